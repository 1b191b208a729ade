//! What memory there is, from every source that limits it.

use std::fs;
use std::path::Path;

/// A source's answer to how much memory this process may still take.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryLimit {
    /// Who says so, such as `MemAvailable` or the path of a control group.
    pub source: String,
    /// Bytes that can still be taken, memory included that holds file pages and can be had back.
    pub available_bytes: u64,
}

/// All sources that gave an answer. A source that doesn't answer is not in the list: unknown is not zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Availability {
    /// The answers.
    pub limits: Vec<MemoryLimit>,
}

impl Availability {
    /// Asks the system: on Linux for `MemAvailable`, the memory limits of the control groups (versions 1 and 2) that this
    /// process is in, and the address space limit; elsewhere for the physical memory.
    pub fn observe() -> Self {
        if cfg!(target_os = "linux") { Self::of_linux(Path::new("/")) } else { Self::of_physical_memory() }
    }

    /// The source that leaves the least. `None`: nothing is known.
    pub fn least(&self) -> Option<&MemoryLimit> {
        self.limits.iter().min_by_key(|limit| limit.available_bytes)
    }

    /// As [`observe`](Self::observe), from the files of a Linux system under `root`.
    fn of_linux(root: &Path) -> Self {
        let mut limits = Vec::new();
        limits.extend(mem_available(root));
        limits.extend(address_space(root));
        limits.extend(control_groups(root));
        Self { limits }
    }

    fn of_physical_memory() -> Self {
        let pages = physical_pages();
        let limits = pages.map(|pages| MemoryLimit {
            source: "physical memory".into(),
            available_bytes: pages.saturating_mul(crate::page_size() as u64),
        });
        Self { limits: limits.into_iter().collect() }
    }
}

fn physical_pages() -> Option<u64> {
    // SAFETY: `sysconf` only looks a number up.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).ok().filter(|&pages| pages > 0)
}

/// What the kernel reckons can be taken without swapping, page cache that it can drop included.
fn mem_available(root: &Path) -> Option<MemoryLimit> {
    let available_bytes = kibibytes(&read(root, "proc/meminfo")?, "MemAvailable:")?;
    Some(MemoryLimit { source: "MemAvailable".into(), available_bytes })
}

/// What `ulimit -v` leaves. Model files that are mapped already are not counted as taken, since a plan counts them.
fn address_space(root: &Path) -> Option<MemoryLimit> {
    let limits = read(root, "proc/self/limits")?;
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit_bytes: u64 = soft.split_whitespace().next()?.parse().ok()?;
    let taken_bytes = kibibytes(&read(root, "proc/self/status")?, "VmSize:")?;
    let available_bytes = limit_bytes.saturating_sub(taken_bytes).saturating_add(crate::fault::mapped_bytes());
    Some(MemoryLimit { source: "address space limit".into(), available_bytes })
}

/// The memory limits of this process's control group and the groups around it.
fn control_groups(root: &Path) -> Vec<MemoryLimit> {
    let membership = read(root, "proc/self/cgroup").unwrap_or_default();
    let mut limits = Vec::new();
    for line in membership.lines() {
        // hierarchy-id:controllers:path; version 2 has id 0 and no controllers.
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let version = if id == "0" && controllers.is_empty() {
            &CGROUP_V2
        } else if controllers.split(',').any(|controller| controller == "memory") {
            &CGROUP_V1
        } else {
            continue;
        };
        for mount in version.mounts {
            // The path is relative to the mount, unless a container shows only a part of the tree: then its own group is
            // at the mount itself, which is the last ancestor.
            for group in Path::new(group.trim_start_matches('/')).ancestors() {
                limits.extend(control_group(root, version, &Path::new(mount).join(group)));
            }
        }
    }
    limits
}

struct CgroupVersion {
    mounts: &'static [&'static str],
    limit: &'static str,
    usage: &'static str,
    /// Fields of `memory.stat`: file pages, which the kernel drops before it runs into the limit.
    file_pages: [&'static str; 2],
}

const CGROUP_V2: CgroupVersion = CgroupVersion {
    mounts: &["sys/fs/cgroup", "sys/fs/cgroup/unified"],
    limit: "memory.max",
    usage: "memory.current",
    file_pages: ["active_file", "inactive_file"],
};

const CGROUP_V1: CgroupVersion = CgroupVersion {
    mounts: &["sys/fs/cgroup/memory"],
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    file_pages: ["total_active_file", "total_inactive_file"],
};

fn control_group(root: &Path, version: &CgroupVersion, group: &Path) -> Option<MemoryLimit> {
    let folder = root.join(group);
    let number = |file| read(&folder, file)?.trim().parse::<u64>().ok();
    // No limit reads `max` in version 2, and a number beyond every memory in version 1.
    let limit_bytes = number(version.limit).filter(|&limit_bytes| limit_bytes < 1 << 62)?;
    let usage_bytes = number(version.usage)?;
    let stat = read(&folder, "memory.stat").unwrap_or_default();
    let file_bytes: u64 = version.file_pages.iter().filter_map(|field| stat_field(&stat, field)).sum();
    let available_bytes = limit_bytes.saturating_sub(usage_bytes.saturating_sub(file_bytes));
    Some(MemoryLimit { source: format!("/{}", group.join(version.limit).display()), available_bytes })
}

/// The most bytes of memory that this process had so far, file pages included.
pub fn peak_resident_bytes() -> Option<u64> {
    if cfg!(target_os = "linux") {
        return kibibytes(&read(Path::new("/"), "proc/self/status")?, "VmHWM:");
    }
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` has room for the answer.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded and so filled it in.
    let max_rss = unsafe { usage.assume_init() }.ru_maxrss as u64;
    // Apple counts bytes, the others kibibytes.
    Some(if cfg!(target_vendor = "apple") { max_rss } else { max_rss * 1024 })
}

fn read(root: &Path, file: &str) -> Option<String> {
    fs::read_to_string(root.join(file)).ok()
}

/// A line such as `MemAvailable:   1024 kB`, in bytes.
fn kibibytes(text: &str, field: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(field))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// A line such as `inactive_file 4096`, in bytes.
fn stat_field(text: &str, field: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(' ')?.parse().ok())
}
