//! Products of every weight type, by shape.
//!
//! Decoding is one token and weights that no cache holds, counted in bytes of weights, each read once; prefill is many
//! tokens, counted in multiply-adds. `decode_cached` repeats the former on weights that stay in the second-level cache,
//! which shows how far a kernel is from being bound by anything but memory. The roof of both is measured beside them.

use std::num::NonZero;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use muser_cpu::caps::Tier;
use muser_cpu::pool::{Disjoint, Pool};
use muser_cpu::product::{Activations, Band, Forms, Scratch, WeightRows, product_float, product_integer};
use muser_quant::WeightType;

fn main() {
    divan::main();
}

/// Far more than caches hold.
const DECODE_BYTES: usize = 128 << 20;

/// Half of a second-level cache.
const CACHED_BYTES: usize = 256 << 10;

/// A row length of real models that is whole blocks of every type.
const K: usize = 1536;

/// A row length whose last group is not whole, and the types that models use with it.
const SHORT_K: usize = 576;
const SHORT_TYPES: [WeightType; 5] =
    [WeightType::Q8_0, WeightType::Q4_0, WeightType::Q4_1, WeightType::Q5_0, WeightType::Q5_1];

/// Rows of a prefill product: enough to amortise what is done once.
const PREFILL_ROWS: usize = 192;

#[divan::bench(consts = [1, 2], args = WeightType::ALL)]
fn decode<const THREADS: usize>(bencher: Bencher<'_, '_>, ty: WeightType) {
    decode_of(bencher, ty, K, DECODE_BYTES, THREADS);
}

#[divan::bench(consts = [1, 2], args = SHORT_TYPES)]
fn decode_576<const THREADS: usize>(bencher: Bencher<'_, '_>, ty: WeightType) {
    decode_of(bencher, ty, SHORT_K, DECODE_BYTES, THREADS);
}

#[divan::bench(args = WeightType::ALL)]
fn decode_cached(bencher: Bencher<'_, '_>, ty: WeightType) {
    decode_of(bencher, ty, K, CACHED_BYTES, 1);
}

#[divan::bench(args = SHORT_TYPES)]
fn decode_cached_576(bencher: Bencher<'_, '_>, ty: WeightType) {
    decode_of(bencher, ty, SHORT_K, CACHED_BYTES, 1);
}

#[divan::bench(consts = [4, 8, 64, 512], args = WeightType::ALL)]
fn prefill<const N: usize>(bencher: Bencher<'_, '_>, ty: WeightType) {
    prefill_of(bencher, ty, K, N);
}

#[divan::bench(args = SHORT_TYPES)]
fn prefill_576(bencher: Bencher<'_, '_>, ty: WeightType) {
    prefill_of(bencher, ty, SHORT_K, 512);
}

#[divan::bench(args = [SHORT_K, K])]
fn quantize(bencher: Bencher<'_, '_>, k: usize) {
    let x = activations(64 * k);
    let mut acts = Activations::new();
    bencher
        .counter(BytesCount::of_slice(&x))
        .bench_local(|| acts.quantize(Tier::detect(), black_box(&x), k, Forms { narrow: true, wide: false }));
}

/// Sums of words, the simplest use of memory.
#[divan::bench(consts = [1, 2])]
fn read_roof<const THREADS: usize>(bencher: Bencher<'_, '_>) {
    let words = vec![1_u64; DECODE_BYTES / 8];
    let mut pool = pool(THREADS);
    bencher.counter(BytesCount::of_slice(&words)).bench_local(|| {
        pool.run(THREADS, |task, _| {
            let mut sums = [0_u64; 16];
            let part = &black_box(&words)[words.len() * task / THREADS..words.len() * (task + 1) / THREADS];
            for words in part.as_chunks::<16>().0 {
                for (sum, word) in sums.iter_mut().zip(words) {
                    *sum = sum.wrapping_add(*word);
                }
            }
            black_box(sums);
        });
    });
}

fn decode_of(bencher: Bencher<'_, '_>, ty: WeightType, k: usize, size_bytes: usize, threads: usize) {
    let n_row = size_bytes / ty.row_bytes(k).expect("the lengths are whole blocks");
    let mut case = Case::new(ty, k, n_row, 1, threads);
    bencher.counter(BytesCount::of_slice(&case.bytes)).bench_local(|| case.run());
}

fn prefill_of(bencher: Bencher<'_, '_>, ty: WeightType, k: usize, n_token: usize) {
    let mut case = Case::new(ty, k, PREFILL_ROWS, n_token, 1);
    bencher.counter(ItemsCount::new(PREFILL_ROWS * k * n_token)).bench_local(|| case.run());
}

/// One product.
struct Case {
    ty: WeightType,
    k: usize,
    n_row: usize,
    n_token: usize,
    bytes: Vec<u8>,
    x: Vec<f32>,
    acts: Activations,
    y: Vec<f32>,
    pool: Pool,
    scratch: Vec<Scratch>,
}

impl Case {
    fn new(ty: WeightType, k: usize, n_row: usize, n_token: usize, threads: usize) -> Self {
        let size_bytes = n_row * ty.row_bytes(k).expect("the lengths are whole blocks");
        // What the weights are does not matter, as long as floats are neither subnormal nor not a number.
        let bytes = (0..size_bytes).map(|i| 0x20 | (i * 7 % 13) as u8).collect();
        let x = activations(n_token * k);
        let mut acts = Activations::new();
        acts.quantize(Tier::detect(), &x, k, Forms::of([ty]));
        let scratch = (0..threads).map(|_| Scratch::new()).collect();
        Self { ty, k, n_row, n_token, bytes, x, acts, y: vec![0.0; n_row * n_token], pool: pool(threads), scratch }
    }

    fn run(&mut self) {
        let Self { n_row, n_token, .. } = *self;
        let weights = WeightRows::new(self.ty, black_box(&self.bytes), n_row, self.k).expect("made to fit");
        let out = Disjoint::new(&mut self.y);
        let n_task = self.scratch.len();
        self.pool.run_with(&mut self.scratch, n_task, |task, scratch| {
            let rows = n_row * task / n_task..n_row * (task + 1) / n_task;
            // SAFETY: the rows of different tasks do not meet.
            let mut band = unsafe { Band::new(&out, n_row, rows.clone(), 0..n_token) };
            let weights = weights.rows(rows);
            if weights.is_integer() {
                product_integer(Tier::detect(), weights, &self.acts, &mut band, scratch);
            } else {
                product_float(Tier::detect(), weights, &self.x, &mut band, scratch);
            }
        });
        black_box(&self.y);
    }
}

fn pool(threads: usize) -> Pool {
    Pool::new(NonZero::new(threads).expect("there are threads")).expect("threads start")
}

fn activations(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i * 7919 % 1000) as f32 / 500.0 - 1.0).collect()
}
