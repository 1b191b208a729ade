//! The memory roof: how fast this machine's memory can be read, which bounds decoding.
//!
//! A buffer well larger than the caches is read again and again, in tasks that the pool's threads share as they share
//! those of a product. Each task reads several streams at once: one stream waits for each page's first lines, since
//! hardware prefetches nothing across pages.

use std::hint::black_box;
use std::num::NonZero;
use std::time::{Duration, Instant};

use muser_memory::{Availability, Device, GpuBuffer};

use crate::Error;
use crate::caps::Tier;
use crate::dispatch::kernel;
use crate::pool::Pool;

/// Bytes that one task reads: long enough to hide the hand-over, short enough that threads end together.
const TASK_BYTES: usize = 1 << 20;

/// The least and the most that is read in one pass.
const BUFFER_BYTES: std::ops::RangeInclusive<u64> = (256 << 20)..=(2 << 30);

/// The buffer's size over that of all last-level caches together.
const CACHES: u64 = 4;

/// How long passes are repeated for each number of threads, and how many there are at least.
const DURATION: Duration = Duration::from_millis(250);
const MIN_PASSES: usize = 3;

/// Measured read bandwidth in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Roof {
    /// With one thread.
    pub one_thread: Bandwidth,
    /// With `n_threads` threads.
    pub all_threads: Bandwidth,
    /// How many threads were measured.
    pub n_threads: NonZero<usize>,
    /// Size of the buffer that was read.
    pub buffer_bytes: u64,
}

/// What the passes over the buffer came to, in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// The fastest pass: the machine's limit, where others use it too.
    pub best: f64,
    /// The pass in the middle: what was to be had while it was measured.
    pub median: f64,
}

/// Measures how fast memory can be read, with one thread and with `n_threads`. Takes about a second, and for its time a
/// buffer of four times the caches, 256 MiB at least.
///
/// # Errors
/// When memory for the buffer is not available, or the system refuses to start a thread.
pub fn read_roof(n_threads: NonZero<usize>) -> Result<Roof, Error> {
    let buffer_bytes = (cache_bytes() * CACHES).clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end());
    let buffer_bytes = buffer_bytes.next_multiple_of(TASK_BYTES as u64);
    if let Some(limit) = Availability::observe().least()
        && limit.available_bytes < buffer_bytes
    {
        return Err(Error::RoofMemory { needed_bytes: buffer_bytes, available_bytes: limit.available_bytes });
    }
    let mut pool = Pool::new(n_threads)?;
    let mut buffer = GpuBuffer::zeros(&Device::host(), buffer_bytes as usize / size_of::<f32>())?;
    buffer.prefer_large_pages();
    // Untouched pages are all the same page of zeros, and each lies near the thread that wrote it first.
    pool.run_chunks(buffer.as_mut_slice(), TASK_BYTES / size_of::<f32>(), |_, chunk| chunk.fill(1.0));
    let all_threads = bandwidth(&mut pool, buffer.as_slice());
    let one_thread = bandwidth(&mut Pool::new(NonZero::<usize>::MIN)?, buffer.as_slice());
    Ok(Roof { one_thread, all_threads, n_threads, buffer_bytes })
}

fn bandwidth(pool: &mut Pool, values: &[f32]) -> Bandwidth {
    let tier = Tier::detect();
    let task_len = TASK_BYTES / size_of::<f32>();
    let mut pass = || {
        let started = Instant::now();
        pool.run(values.len() / task_len, |index, _| {
            let start = index * task_len;
            black_box(read_streams(tier, &values[start..start + task_len]));
        });
        size_of_val(values) as f64 / started.elapsed().as_secs_f64()
    };
    // The first pass finds threads asleep and pages unknown to the processor.
    pass();
    let started = Instant::now();
    let mut passes = Vec::new();
    while passes.len() < MIN_PASSES || started.elapsed() < DURATION {
        passes.push(pass());
    }
    passes.sort_by(f64::total_cmp);
    Bandwidth { best: passes[passes.len() - 1], median: passes[passes.len() / 2] }
}

kernel! {
    /// Reads `values` as four streams of eight lanes; `n` is a multiple of 32. `values (n)`
    fn read_streams(values: &[f32]) -> u32 = read_streams_lanes;
}

/// The exclusive or of the values' bits: a result that needs every one, for one operation a register.
#[inline(always)]
fn read_streams_lanes(_tier: impl Copy, values: &[f32]) -> u32 {
    let lanes = values.as_chunks::<8>().0;
    let (front, back) = lanes.split_at(lanes.len() / 2);
    let ((a, b), (c, d)) = (front.split_at(front.len() / 2), back.split_at(back.len() / 2));
    let mut sums = [[0u32; 8]; 4];
    for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
        for (sum, lanes) in sums.iter_mut().zip([a, b, c, d]) {
            for (sum, value) in sum.iter_mut().zip(lanes) {
                *sum ^= value.to_bits();
            }
        }
    }
    sums.iter().flatten().fold(0, |sum, lane| sum ^ lane)
}

/// Size of all last-level caches together, or nothing where the system does not say.
#[cfg(target_os = "linux")]
fn cache_bytes() -> u64 {
    use std::collections::BTreeMap;
    use std::fs::{read_dir, read_to_string};

    // Processors that share a cache list the same sharers; the cache of the highest level is the last one.
    let mut caches = BTreeMap::new();
    for cpu in read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten() {
        let indices = read_dir(cpu.path().join("cache")).into_iter().flatten().flatten();
        let last = indices
            .filter_map(|index| {
                let field = |name| read_to_string(index.path().join(name)).ok();
                let level: u32 = field("level")?.trim().parse().ok()?;
                Some((level, field("shared_cpu_list")?, parse_size(field("size")?.trim())?))
            })
            .max();
        if let Some((_, sharers, size_bytes)) = last {
            caches.insert(sharers, size_bytes);
        }
    }
    caches.values().sum()
}

#[cfg(not(target_os = "linux"))]
fn cache_bytes() -> u64 {
    0
}

/// Parses the kernel's sizes, such as `32768K`.
#[cfg(any(target_os = "linux", test))]
fn parse_size(text: &str) -> Option<u64> {
    let kibibytes: u64 = text.strip_suffix('K')?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn every_tier_reads_every_value() {
        let mut random = Random::new(7);
        let values: Vec<f32> = (0..4 * 8 * 33).map(|_| f32::from_bits(random.bits() as u32)).collect();
        let expected = values.iter().fold(0, |sum, value| sum ^ value.to_bits());
        for tier in Tier::available() {
            assert_eq!(read_streams(tier, &values), expected, "{}", tier.name());
        }
    }

    #[test]
    fn the_best_pass_is_no_slower_than_the_one_in_the_middle_and_the_buffer_exceeds_the_caches() {
        let n_threads = NonZero::new(2).expect("not zero");
        let roof = read_roof(n_threads).expect("there is memory for it");
        for Bandwidth { best, median } in [roof.one_thread, roof.all_threads] {
            assert!(best >= median && median > 0.0 && best.is_finite(), "{roof:?}");
        }
        assert_eq!(roof.n_threads, n_threads);
        assert!(roof.buffer_bytes >= CACHES * cache_bytes().min(BUFFER_BYTES.end() / CACHES), "{roof:?}");
    }

    #[test]
    fn cache_sizes_are_read_in_kibibytes() {
        assert_eq!(parse_size("32768K"), Some(32 << 20));
        assert_eq!((parse_size("32768"), parse_size("18446744073709551615K")), (None, None));
    }
}
