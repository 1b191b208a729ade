//! What else a machine does while something is measured on it.

use std::fs::read_to_string;

/// Processor time in the kernel's ticks, at some moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ticks {
    /// Of all processors, idle or not.
    total: f64,
    /// Of all processors, at work.
    busy: f64,
    /// Of this process and of those that it started and that have ended.
    own: f64,
}

impl Ticks {
    /// Now, where the system says (Linux).
    pub fn now() -> Option<Self> {
        Self::parse(&read_to_string("/proc/stat").ok()?, &read_to_string("/proc/self/stat").ok()?)
    }

    /// The share of all processors that others had since `before`.
    pub fn others_since(&self, before: &Self) -> f64 {
        let busy = (self.busy - before.busy) - (self.own - before.own);
        (busy / (self.total - before.total).max(1.0)).clamp(0.0, 1.0)
    }

    fn parse(all: &str, own: &str) -> Option<Self> {
        let numbers = |text: &str| text.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>().ok();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user and nice.
        let all = numbers(all.lines().next()?.strip_prefix("cpu ")?)?;
        let all = all.get(..8)?;
        let total: f64 = all.iter().sum();
        // The name in parentheses may hold spaces. After it: state, then numbers, of which the 11th to the 14th are the
        // times of this process and of its children, in user and in kernel mode.
        let own = numbers(own.rsplit_once(')')?.1.trim().split_once(' ')?.1)?;
        Some(Self { total, busy: total - all[3] - all[4], own: own.get(10..14)?.iter().sum() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_had_is_what_was_busy_less_what_this_process_and_its_children_had() {
        let own = |times: &str| format!("7 (a ) b) R 1 2 3 4 5 6 7 8 9 10 {times} 20 0 1 0\n");
        let before = Ticks::parse("cpu  100 0 10 500 5 0 0 0 0 0\ncpu0 1 2\n", &own("1 1 10 0")).unwrap();
        let after = Ticks::parse("cpu  180 0 20 600 15 0 0 0 0 0\n", &own("2 2 47 1")).unwrap();
        // 200 ticks passed, of which 90 were busy and 40 of these our own.
        assert!((after.others_since(&before) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn what_the_system_does_not_say_is_unknown() {
        assert_eq!(Ticks::parse("", "1 (a) R 1"), None);
        assert_eq!(Ticks::parse("cpu 1 2 3 4 5 6 7 8\n", "1 (a) R 1"), None);
    }
}
