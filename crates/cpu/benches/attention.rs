//! Attention, norms and activations at the shapes of real models.
//!
//! Decoding is counted in bytes of keys and values, each read once; prefill in multiply-adds of visible pairs.

use std::num::NonZero;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use muser_cpu::attention::{Scratch, attention};
use muser_cpu::caps::Tier;
use muser_cpu::elementwise::{gelu_tanh_gate, silu_gate};
use muser_cpu::norm::rms_norm;
use muser_cpu::pool::Pool;
use muser_memory::{Device, GpuBuffer, KvGeometry, KvPlane};
use muser_ops::{Attention, AttentionSpan, Checked, Rows, RowsMut};

fn main() {
    divan::main();
}

/// `(n_head, n_head_kv, head_dim)`.
type Heads = (usize, usize, usize);

const SMOLLM2: Heads = (9, 3, 64);
const GEMMA3: Heads = (4, 1, 256);
const MUSE: Heads = (32, 2, 128);
const MODELS: [(&str, Heads); 3] = [("smollm2", SMOLLM2), ("gemma3", GEMMA3), ("muse", MUSE)];

struct Case {
    name: &'static str,
    heads: Heads,
    /// Rows in the batch, the last of the sequence.
    n: usize,
    /// Positions before them.
    depth: usize,
    threads: usize,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} at {}, {} threads", self.name, self.n, self.depth, self.threads)
    }
}

fn cases(n: usize, depths: &'static [usize]) -> impl Iterator<Item = Case> {
    MODELS.into_iter().flat_map(move |(name, heads)| {
        depths.iter().flat_map(move |&depth| [1, 2].map(move |threads| Case { name, heads, n, depth, threads }))
    })
}

/// A sequence with its keys and values, and what a call needs.
struct Setup {
    heads: Heads,
    n: usize,
    /// Sequences alike, attended to in turn.
    planes: Vec<KvPlane>,
    turn: usize,
    q: GpuBuffer,
    out: GpuBuffer,
    pool: Pool,
    scratch: Scratch,
}

impl Case {
    fn setup(&self, n_plane: usize) -> Setup {
        let device = Device::host();
        let (n_head, n_head_kv, head_dim) = self.heads;
        let rows = self.depth + self.n;
        let values: Vec<f32> = (0..rows * n_head_kv * head_dim).map(|i| (i as f32 * 0.37).sin()).collect();
        let plane = |_| {
            let mut plane = KvPlane::zeros(&device, KvGeometry { n_head_kv, head_dim, rows }).unwrap();
            plane.append(0, &values, &values).unwrap();
            plane
        };
        let planes = (0..n_plane).map(plane).collect();
        let mut q = GpuBuffer::zeros(&device, self.n * n_head * head_dim).unwrap();
        for (i, q) in q.as_mut_slice().iter_mut().enumerate() {
            *q = (i as f32 * 0.73).cos();
        }
        let out = GpuBuffer::zeros(&device, q.len()).unwrap();
        let pool = Pool::new(NonZero::new(self.threads).unwrap()).unwrap();
        Setup { heads: self.heads, n: self.n, planes, turn: 0, q, out, pool, scratch: Scratch::default() }
    }
}

impl Setup {
    fn run(&mut self) {
        let (n_head, _, head_dim) = self.heads;
        let width = n_head * head_dim;
        self.turn = (self.turn + 1) % self.planes.len();
        let plane = &self.planes[self.turn];
        let op = Attention {
            q: Rows::new(&self.q, self.n, width).unwrap(),
            spans: &[AttentionSpan { n: self.n, pos: plane.end() - self.n, plane }],
            n_head,
            window: None,
            scale: 0.1,
            soft_cap: None,
            gate: None,
            out: RowsMut::new(&mut self.out, self.n, width).unwrap(),
        };
        let op = Checked::new(op).unwrap().into_inner();
        attention(Tier::detect(), &mut self.pool, &mut self.scratch, op);
    }
}

/// Bytes of the keys and values that the last row sees.
fn kv_bytes(case: &Case) -> usize {
    let (_, n_head_kv, head_dim) = case.heads;
    2 * size_of::<u16>() * n_head_kv * head_dim * (case.depth + case.n)
}

#[divan::bench(args = cases(1, &[511, 4095]))]
fn decode(bencher: Bencher<'_, '_>, case: &Case) {
    let mut setup = case.setup(1);
    bencher.counter(BytesCount::new(kv_bytes(case))).bench_local(|| setup.run());
}

/// More than the caches hold.
const SIZE_BYTES: usize = 128 << 20;

/// As in a model, whose layers together leave nothing of a plane in the caches.
#[divan::bench(args = cases(1, &[4095]))]
fn decode_from_memory(bencher: Bencher<'_, '_>, case: &Case) {
    let mut setup = case.setup(SIZE_BYTES.div_ceil(kv_bytes(case)));
    bencher.counter(BytesCount::new(kv_bytes(case))).bench_local(|| setup.run());
}

/// A few rows, as many sequences or guessed tokens bring.
#[divan::bench(args = [2, 3, 4, 6, 8, 16, 32].map(|n| Case { name: "smollm2", heads: SMOLLM2, n, depth: 2048, threads: 1 }))]
fn few(bencher: Bencher<'_, '_>, case: &Case) {
    let (n_head, _, head_dim) = case.heads;
    let pairs: usize = (case.depth + 1..=case.depth + case.n).sum();
    let mut setup = case.setup(1);
    bencher.counter(ItemsCount::new(2 * pairs * n_head * head_dim)).bench_local(|| setup.run());
}

#[divan::bench(args = cases(512, &[0, 3584]), sample_count = 20)]
fn prefill(bencher: Bencher<'_, '_>, case: &Case) {
    let (n_head, _, head_dim) = case.heads;
    let pairs: usize = (case.depth + 1..=case.depth + case.n).sum();
    let mut setup = case.setup(1);
    bencher.counter(ItemsCount::new(2 * pairs * n_head * head_dim)).bench_local(|| setup.run());
}

/// As in a model: see [`decode_from_memory`].
#[divan::bench(args = cases(256, &[3584]), sample_count = 20)]
fn prefill_from_memory(bencher: Bencher<'_, '_>, case: &Case) {
    let (n_head, _, head_dim) = case.heads;
    let pairs: usize = (case.depth + 1..=case.depth + case.n).sum();
    let mut setup = case.setup(SIZE_BYTES.div_ceil(kv_bytes(case)));
    bencher.counter(ItemsCount::new(2 * pairs * n_head * head_dim)).bench_local(|| setup.run());
}

#[divan::bench(args = [576, 6656])]
fn norm(bencher: Bencher<'_, '_>, n: usize) {
    let (x, weight, mut out) = (vec![0.5; n], vec![1.5; n], vec![0.0; n]);
    bencher
        .counter(ItemsCount::new(n))
        .bench_local(|| rms_norm(Tier::detect(), black_box(&x), Some(&weight), 1.0e-5, black_box(&mut out)));
}

#[divan::bench(args = [1536, 19_968])]
fn silu(bencher: Bencher<'_, '_>, n: usize) {
    let (mut gate, up) = (vec![0.5; n], vec![1.0; n]);
    bencher.counter(ItemsCount::new(n)).bench_local(|| silu_gate(Tier::detect(), black_box(&mut gate), black_box(&up)));
}

#[divan::bench(args = [2048])]
fn gelu(bencher: Bencher<'_, '_>, n: usize) {
    let (mut gate, up) = (vec![0.5; n], vec![1.0; n]);
    bencher
        .counter(ItemsCount::new(n))
        .bench_local(|| gelu_tanh_gate(Tier::detect(), black_box(&mut gate), black_box(&up)));
}
