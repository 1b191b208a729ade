//! The workspace's shape as `docs/architecture.md` states it: which crate may use which, and where unsafe code may be.

use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// What the architecture says about one crate.
struct Rule {
    name: &'static str,
    /// Dependencies go to lower levels only.
    level: u8,
    /// What it must not depend on directly though the level would allow it, or though it is no crate of ours.
    forbidden: &'static [&'static str],
    /// Whether it may contain unsafe code.
    allows_unsafe: bool,
}

const fn rule(name: &'static str, level: u8, forbidden: &'static [&'static str]) -> Rule {
    Rule { name, level, forbidden, allows_unsafe: false }
}

const fn unsafe_rule(name: &'static str, level: u8, forbidden: &'static [&'static str]) -> Rule {
    Rule { name, level, forbidden, allows_unsafe: true }
}

/// One line for each package of the workspace. Developer packages are above everything.
const RULES: [Rule; 12] = [
    rule("muser-gguf", 1, &["rustix", "libc", "memmap2"]),
    rule("muser-quant", 1, &["rustix", "libc"]),
    unsafe_rule("muser-memory", 1, &["tokio", "serde", "serde_json"]),
    rule("muser-ops", 2, &["muser-gguf", "rustix", "libc"]),
    rule("muser-text", 2, &["muser-memory", "rustix", "libc"]),
    unsafe_rule("muser-cpu", 3, &["muser-gguf", "muser-text"]),
    rule("muser-model", 3, &["muser-text", "rustix", "libc"]),
    rule("muser-engine", 4, &["muser-cpu", "muser-gpu", "tokio", "axum", "hyper"]),
    rule("muser-server", 5, &["muser-cpu", "muser-gpu", "muser-memory", "muser-model", "muser-ops", "rustix", "libc"]),
    rule("muser-cli", 6, &[]),
    rule("muser-tests", 7, &[]),
    rule("xtask", 7, &[]),
];

#[test]
fn dependencies_go_to_lower_levels_only() {
    let metadata = metadata();
    let mut upward = Vec::new();
    for (package, rule) in ruled(&metadata) {
        for dependency in &package.dependencies {
            let Some(target) = rule_of(&dependency.name) else { continue };
            // Tests may put a neighbour beside the crate, such as a backend under the decoder.
            // The library of `muser-tests` finds models for them, and uses no crate of the workspace itself.
            let for_tests = dependency.kind == DependencyKind::Development;
            let allowed = for_tests && (target.level == rule.level || target.name == "muser-tests");
            if target.level >= rule.level && !allowed {
                upward.push(format!(
                    "{} (level {}) uses {} (level {})",
                    rule.name, rule.level, target.name, target.level
                ));
            }
        }
    }
    assert!(upward.is_empty(), "{}", upward.join("\n"));
}

#[test]
fn no_crate_uses_what_it_must_not_contain() {
    let metadata = metadata();
    let mut found = Vec::new();
    for (package, rule) in ruled(&metadata) {
        for dependency in package.dependencies.iter().filter(|it| it.kind != DependencyKind::Development) {
            if rule.forbidden.contains(&dependency.name.as_str()) {
                found.push(format!("{} uses {}", rule.name, dependency.name));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_package_has_a_rule_and_every_rule_a_package() {
    let metadata = metadata();
    let mut packages: Vec<_> = ruled(&metadata).map(|(package, _)| package.name.to_string()).collect();
    let mut rules: Vec<_> = RULES.iter().map(|rule| rule.name.to_owned()).collect();
    packages.sort();
    rules.sort();
    assert_eq!(packages, rules);
}

#[test]
fn unsafe_code_is_forbidden_outside_the_crates_that_need_it() {
    let metadata = metadata();
    let mut open = Vec::new();
    for (package, rule) in ruled(&metadata) {
        if rule.allows_unsafe {
            continue;
        }
        for target in package.targets.iter().filter(|target| target.is_lib() || target.is_bin()) {
            let source = fs::read_to_string(&target.src_path).unwrap();
            if !source.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]") {
                open.push(target.src_path.to_string());
            }
        }
    }
    assert!(open.is_empty(), "without #![forbid(unsafe_code)]: {}", open.join(", "));
}

#[test]
fn no_source_file_is_longer_than_a_thousand_lines() {
    let metadata = metadata();
    let mut long = Vec::new();
    for (package, _) in ruled(&metadata) {
        let folder = package.manifest_path.parent().unwrap().join("src");
        for path in sources(folder.as_std_path()) {
            // Tables and tests are read by looking something up, not from top to bottom.
            let name = path.file_stem().unwrap().to_string_lossy();
            let len = fs::read_to_string(&path).unwrap().lines().count();
            if len > 1000 && !name.ends_with("tables") && !name.ends_with("tests") {
                long.push(format!("{}: {len} lines", path.display()));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

fn metadata() -> Metadata {
    MetadataCommand::new().no_deps().exec().unwrap()
}

/// Each package of the workspace with its rule.
fn ruled(metadata: &Metadata) -> impl Iterator<Item = (&Package, &'static Rule)> {
    metadata.workspace_packages().into_iter().map(|package| {
        let rule = rule_of(&package.name);
        (package, rule.unwrap_or_else(|| panic!("{} has no rule: give it a line in RULES", package.name)))
    })
}

fn rule_of(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

/// Every Rust file under a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
