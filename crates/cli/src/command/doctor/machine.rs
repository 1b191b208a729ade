//! The machine: processor, memory, and which kernels run on it.

use std::fmt::Write;
use std::fs::read_to_string;
use std::num::NonZero;
use std::thread::available_parallelism;

use muser_cpu::caps::Tier;
use muser_cpu::pool::physical_cores;
use muser_memory::{Availability, MemoryLimit, page_size};
use serde::Serialize;

use crate::terminal::{bytes, counted, grouped};

#[derive(Serialize)]
pub struct Machine {
    /// `None`: the system doesn't say.
    processor: Option<String>,
    n_core: usize,
    n_processor: usize,
    n_thread: usize,
    tier: &'static str,
    tiers: Vec<&'static str>,
    page_size: usize,
    memory: Vec<Limit>,
}

/// Memory to be had, and who says so.
#[derive(Serialize)]
struct Limit {
    source: String,
    available_bytes: u64,
}

impl Machine {
    pub fn observe(n_thread: NonZero<usize>) -> Self {
        let limit = |MemoryLimit { source, available_bytes, .. }| Limit { source, available_bytes };
        let mut memory: Vec<_> = Availability::observe().limits.into_iter().map(limit).collect();
        memory.sort_by_key(|limit| limit.available_bytes);
        Self {
            processor: processor(),
            n_core: physical_cores().get(),
            n_processor: available_parallelism().map_or(1, NonZero::get),
            n_thread: n_thread.get(),
            tier: Tier::detect().name(),
            tiers: Tier::available().into_iter().map(Tier::name).collect(),
            page_size: page_size(),
            memory,
        }
    }

    pub fn to_text(&self) -> String {
        let mut out = String::from("Machine\n");
        let mut line = |what: &str, value: &str| {
            let _ = writeln!(out, "  {what:<14} {value}");
        };
        if let Some(processor) = &self.processor {
            line("processor", processor);
        }
        let cores = format!("{}, {}", counted(self.n_core, "core"), counted(self.n_processor, "processor"));
        line("available", &cores);
        line(
            "used",
            &format!("{}, {} kernels (of {})", counted(self.n_thread, "thread"), self.tier, self.tiers.join(", ")),
        );
        line("page", &format!("{} B", grouped(self.page_size as u64)));
        for (i, Limit { source, available_bytes }) in self.memory.iter().enumerate() {
            line(if i == 0 { "memory left" } else { "" }, &format!("{} ({source})", bytes(*available_bytes)));
        }
        out
    }
}

/// The processor's name, as its vendor and the system spell it.
fn processor() -> Option<String> {
    let cpuinfo = read_to_string("/proc/cpuinfo").ok()?;
    let name = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'))?.1;
    Some(name.trim().to_owned())
}
