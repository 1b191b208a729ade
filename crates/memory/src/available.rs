//! What memory there is, from every source that limits it.

use std::fs;
use std::path::Path;

use crate::Device;

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

    /// As [`observe`](Self::observe), and what the memory of `device` leaves, if it has any of its own.
    pub fn of(device: &Device) -> Self {
        let mut observed = Self::observe();
        observed.limits.extend(device.memory_limit());
        observed
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

/// Address space that a thread takes without it being memory: its stack, and what the C library reserves for its heap.
const THREAD_ADDRESS_SPACE: u64 = (64 + 8) << 20;

/// What `ulimit -v` leaves, less what a thread for each processor will reserve. Model files that are mapped already are not
/// counted as taken, since a plan counts them.
fn address_space(root: &Path) -> Option<MemoryLimit> {
    let limits = read(root, "proc/self/limits")?;
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit_bytes: u64 = soft.split_whitespace().next()?.parse().ok()?;
    let taken_bytes = kibibytes(&read(root, "proc/self/status")?, "VmSize:")?;
    let n_threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let available_bytes = limit_bytes
        .saturating_sub(taken_bytes)
        .saturating_add(crate::fault::mapped_bytes())
        .saturating_sub(n_threads.saturating_mul(THREAD_ADDRESS_SPACE));
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

/// Bytes of this process's memory, file pages included, that are mapped by large pages. `None`: the system doesn't say.
pub fn large_page_bytes() -> Option<u64> {
    large_page_bytes_of(&read(Path::new("/"), "proc/self/smaps_rollup")?)
}

fn large_page_bytes_of(smaps: &str) -> Option<u64> {
    ["AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:"].iter().map(|field| kibibytes(smaps, field)).sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A Linux system's files.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn answers(files: &[(&str, &str)]) -> Vec<(String, u64)> {
        let limits = Availability::of_linux(system(files).path()).limits;
        limits.into_iter().map(|limit| (limit.source, limit.available_bytes)).collect()
    }

    #[test]
    fn m25_mem_available_is_read_in_bytes() {
        let meminfo = "MemTotal:       24684092 kB\nMemFree:  1 kB\nMemAvailable:   23341600 kB\n";
        assert_eq!(answers(&[("proc/meminfo", meminfo)]), [("MemAvailable".into(), 23_341_600 * 1024)]);
    }

    #[test]
    fn m25_a_version_2_group_and_those_around_it_limit() {
        let found = answers(&[
            ("proc/self/cgroup", "0::/service/muser\n"),
            ("sys/fs/cgroup/service/muser/memory.max", "max\n"),
            ("sys/fs/cgroup/service/muser/memory.current", "100\n"),
            ("sys/fs/cgroup/service/memory.max", "10000\n"),
            ("sys/fs/cgroup/service/memory.current", "7000\n"),
            ("sys/fs/cgroup/service/memory.stat", "anon 1000\nactive_file 400\ninactive_file 5000\n"),
        ]);
        assert_eq!(found, [("/sys/fs/cgroup/service/memory.max".into(), 10_000 - (7000 - 5400))]);
    }

    #[test]
    fn m25_a_version_1_group_limits() {
        let found = answers(&[
            ("proc/self/cgroup", "5:devices:/a\n4:cpu,memory:/a\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4096\n"),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n"),
        ]);
        assert_eq!(found, [("/sys/fs/cgroup/memory/a/memory.limit_in_bytes".into(), 3096)]);
    }

    #[test]
    fn m25_in_a_container_the_group_is_at_the_mount() {
        let found = answers(&[
            ("proc/self/cgroup", "0::/outside/of/the/container\n"),
            ("sys/fs/cgroup/memory.max", "4096\n"),
            ("sys/fs/cgroup/memory.current", "96\n"),
        ]);
        assert_eq!(found, [("/sys/fs/cgroup/memory.max".into(), 4000)]);
    }

    #[test]
    fn m25_an_address_space_limit_limits() {
        let limits =
            |soft: &str| format!("Limit  Soft Limit  Hard Limit  Units\nMax address space  {soft}  unlimited  bytes\n");
        let status = ("proc/self/status", "VmPeak: 9 kB\nVmSize:\t       4 kB\n");
        let limit_bytes: u64 = 1 << 40;
        let found = answers(&[("proc/self/limits", &limits(&limit_bytes.to_string())), status]);
        assert_eq!(found[0].0, "address space limit");
        // Other tests may have model files mapped, which come on top, and threads will take some.
        assert!((limit_bytes / 10 * 9..limit_bytes * 2).contains(&found[0].1), "{found:?}");
        let none = answers(&[("proc/self/limits", &limits("8192")), status]);
        assert!(none[0].1 < limit_bytes / 2, "the threads' share does not wrap around: {none:?}");
        assert_eq!(answers(&[("proc/self/limits", &limits("unlimited")), status]), []);
    }

    #[test]
    fn m25_a_source_that_does_not_answer_is_unknown_and_not_zero() {
        assert_eq!(answers(&[]), []);
        assert_eq!(answers(&[("proc/meminfo", "MemAvailable: much\n"), ("proc/self/cgroup", "nonsense\n")]), []);
        assert_eq!(Availability::default().least(), None);
    }

    #[test]
    fn the_source_that_leaves_the_least_counts() {
        let limit = |source: &str, available_bytes| MemoryLimit { source: source.into(), available_bytes };
        let availability = Availability { limits: vec![limit("a", 3), limit("b", 1), limit("c", 2)] };
        assert_eq!(availability.least().unwrap().source, "b");
    }

    #[test]
    fn large_pages_of_files_and_of_allocations_count() {
        let fields = "AnonHugePages:  2048 kB\nShmemPmdMapped:  0 kB\nFilePmdMapped:  4096 kB\n";
        assert_eq!(large_page_bytes_of(fields), Some(6 << 20));
        assert_eq!(large_page_bytes_of("AnonHugePages:  2048 kB\n"), None, "kernels before 5.4 don't count files'");
    }

    #[test]
    fn this_system_says_what_is_available_and_what_was_used() {
        let least = Availability::observe().least().cloned().expect("every supported system answers");
        assert!(least.available_bytes > 0, "{least:?}");
        assert!(peak_resident_bytes().unwrap() > 1 << 20, "a running test takes a mebibyte");
        assert!(physical_pages().unwrap() > 0);
    }
}
