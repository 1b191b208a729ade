//! How many cores this process may use.

use std::num::NonZero;
use std::thread;

/// Number of physical cores that this process may run on, as far as the system says; what affinity and control groups
/// allow, with the threads of one core counted once.
///
/// Two threads of a core share its multipliers and its path to memory, and these kernels keep both busy alone.
pub fn physical_cores() -> NonZero<usize> {
    let allowed = thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    distinct_cores().map_or(allowed, |cores| cores.min(allowed))
}

/// Number of cores among the CPUs that the affinity mask allows.
#[cfg(target_os = "linux")]
fn distinct_cores() -> Option<NonZero<usize>> {
    use std::collections::BTreeSet;
    use std::fs::read_to_string;

    let status = read_to_string("/proc/self/status").ok()?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let siblings = |cpu| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        parse_cpu_list(&read_to_string(path).ok()?)?.first().copied()
    };
    let cores: Option<BTreeSet<usize>> = parse_cpu_list(allowed)?.into_iter().map(siblings).collect();
    NonZero::new(cores?.len())
}

#[cfg(not(target_os = "linux"))]
fn distinct_cores() -> Option<NonZero<usize>> {
    None
}

/// Parses the kernel's list format, such as `0-3,8,10-11`.
#[cfg(any(target_os = "linux", test))]
fn parse_cpu_list(list: &str) -> Option<Vec<usize>> {
    /// More CPUs than any kernel is built for; bounds what a strange file can make us allocate.
    const MAX_CPU: usize = 1 << 16;
    let mut cpus = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last >= MAX_CPU {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_list_names_single_cpus_and_ranges() {
        assert_eq!(parse_cpu_list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_cpu_list("5"), Some(vec![5]));
    }

    #[test]
    fn a_cpu_list_that_is_no_list_is_unknown() {
        for list in ["", "a", "1-", "0-99999999999"] {
            assert_eq!(parse_cpu_list(list), None, "{list:?}");
        }
    }

    #[test]
    fn no_more_cores_are_counted_than_the_system_offers() {
        assert!(physical_cores() <= thread::available_parallelism().unwrap());
    }
}
