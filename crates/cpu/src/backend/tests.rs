//! Every operation against the reference backend, and against itself in other tiers, thread counts and batches.

use muser_memory::{GpuBuffer, GpuBytes, KvGeometry, KvPlane};
use muser_ops::{AttentionSpan, Matrix, Reference, Rope, Rows, RowsMut, Vector};
use muser_quant::{WeightType, encode_row, integer_form};

use super::*;
use crate::testing::Random;

/// Rows of the batch: more than are multiplied in one pass over the weights.
const N: usize = 11;
/// Positions before the batch.
const DEPTH: usize = 300;
const WIDTH: usize = 768;
const N_FF: usize = 200;
const N_HEAD: usize = 6;
const N_HEAD_KV: usize = 2;
const HEAD_DIM: usize = 128;

/// Operands of every operation, weights of one type.
struct Fixture {
    ty: WeightType,
    weights: [GpuBytes; 2], // (N_FF, WIDTH)
    other: GpuBytes,        // (WIDTH, WIDTH), F16
    gains: GpuBytes,        // (WIDTH)
    head_gains: GpuBytes,   // (HEAD_DIM)
    x: GpuBuffer,           // (N, WIDTH)
    y: Vec<f32>,            // (N, WIDTH)
    angles: [GpuBuffer; 2], // (N, HEAD_DIM / 4)
    k: Vec<f32>,            // (DEPTH + N, N_HEAD_KV * HEAD_DIM)
    v: Vec<f32>,            // (DEPTH + N, N_HEAD_KV * HEAD_DIM)
}

fn buffer(values: &[f32]) -> GpuBuffer {
    let mut buffer = GpuBuffer::zeros(&Device::host(), values.len()).unwrap();
    buffer.as_mut_slice().copy_from_slice(values);
    buffer
}

fn bytes(bytes: &[u8]) -> GpuBytes {
    GpuBytes::from_slice(&Device::host(), bytes).unwrap()
}

impl Fixture {
    fn new(ty: WeightType) -> Self {
        let mut random = Random::new(20);
        let mut weights = |ty: WeightType, rows: usize| {
            let row_bytes = ty.row_bytes(WIDTH).unwrap();
            let mut stored = vec![0; rows * row_bytes];
            for row in stored.chunks_exact_mut(row_bytes) {
                encode_row(ty, &random.normal(WIDTH), row).unwrap();
            }
            bytes(&stored)
        };
        let (gate, up, other) = (weights(ty, N_FF), weights(ty, N_FF), weights(WeightType::F16, WIDTH));
        let mut gains = |len| bytes(&random.normal(len).iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());
        let (gains, head_gains) = (gains(WIDTH), gains(HEAD_DIM));
        let mut held = || random.normal((DEPTH + N) * N_HEAD_KV * HEAD_DIM);
        let (k, v) = (held(), held());
        Self {
            ty,
            weights: [gate, up],
            other,
            gains,
            head_gains,
            x: buffer(&random.normal(N * WIDTH)),
            y: random.normal(N * WIDTH),
            angles: [buffer(&random.normal(N * HEAD_DIM / 4)), buffer(&random.normal(N * HEAD_DIM / 4))],
            k,
            v,
        }
    }

    fn matrix(&self, index: usize) -> Matrix<'_> {
        let weight = &self.weights[index];
        Matrix::new(weight.view(0, weight.len()).unwrap(), self.ty, N_FF, WIDTH).unwrap()
    }

    fn other(&self) -> Matrix<'_> {
        Matrix::new(self.other.view(0, self.other.len()).unwrap(), WeightType::F16, WIDTH, WIDTH).unwrap()
    }

    fn rows(&self, Part { first, n }: Part) -> Rows<'_> {
        Rows::new(&self.x, N, WIDTH).unwrap().slice(first, n).unwrap()
    }

    fn norm(&self) -> Norm<'_> {
        norm(&self.gains)
    }
}

fn norm(gains: &GpuBytes) -> Norm<'_> {
    let weight = Vector::new(gains.view(0, gains.len()).unwrap(), gains.len() / 4).unwrap();
    Norm { weight: Some(weight), eps: 1.0e-5 }
}

/// Some rows of the batch.
#[derive(Clone, Copy)]
struct Part {
    first: usize,
    n: usize,
}

/// Runs an operation on a part of the batch and returns its output. `(n, width)`
type Run = fn(&Fixture, &mut dyn Backend, Part) -> Vec<f32>;

/// Greatest error of an operation against the reference, as a share of the root mean square of its output. Only the order
/// of sums differs, the last places of functions, and in what follows a product, the rounding of activations.
const FLOAT: f32 = 2.0e-5;
/// Attention takes a query in steps of 1/46,000 of its length and weights in steps of 1/130,900 of their sum; its output, a
/// mean of values, is small beside them.
const ATTENTION: f32 = 2.0e-3;
/// Wide activations are rounded to 16 bits of the greatest value in their unit, which is at most three standard deviations
/// here: half a step is 5e-5 of one. A gate multiplies two products, and the greatest of some thousand errors is asked for.
const WIDE: f32 = 5.0e-4;
/// Narrow ones are rounded to 8 bits, 256 times as coarse, or less for the units with a second digit.
const NARROW: f32 = 0.1;

/// Operations with weights of the fixture's type.
const PRODUCTS: [(&str, Run); 5] = [
    ("project", |fixture, backend, part| project(fixture, backend, part, None)),
    ("project a normed input", |fixture, backend, part| project(fixture, backend, part, Some(fixture.norm()))),
    ("silu gate", |fixture, backend, part| gated(fixture, backend, part, Activation::Silu, None)),
    ("gelu gate of a normed input", |fixture, backend, part| {
        gated(fixture, backend, part, Activation::GeluTanh, Some(fixture.norm()))
    }),
    ("embed", |fixture, backend, Part { first, n }| {
        let tokens: Vec<u32> = (first..first + n).map(|token| token as u32 * 7).collect();
        with_out(n, WIDTH, |out| {
            let (table, norm) = (fixture.matrix(0), Some(fixture.norm()));
            backend.embed(Checked::new(Embed { tokens: &tokens, table, scale: 3.0, norm, out }).unwrap()).unwrap();
        })
    }),
];

/// Operations without weights of the fixture's type.
const OTHERS: [(&str, Run); 10] = [
    ("gather", |fixture, backend, Part { first, n }| {
        let rows: Vec<usize> = (first..first + n).map(|row| (row * 3) % N).collect();
        with_out(n, WIDTH, |out| {
            let x = Rows::new(&fixture.x, N, WIDTH).unwrap();
            backend.gather(Checked::new(Gather { x, rows: &rows, out }).unwrap()).unwrap();
        })
    }),
    ("norm", |fixture, backend, part| {
        with_out(part.n, WIDTH, |out| {
            let op = NormRows { x: fixture.rows(part), norm: fixture.norm(), out };
            backend.norm(Checked::new(op).unwrap()).unwrap();
        })
    }),
    ("add", |fixture, backend, part| add(fixture, backend, part, None)),
    ("add a normed input", |fixture, backend, part| add(fixture, backend, part, Some(fixture.norm()))),
    ("cap", |fixture, backend, part| cap(fixture, backend, part, Some(1.5))),
    ("scale", |fixture, backend, part| cap(fixture, backend, part, None)),
    ("rotate adjacent pairs", |fixture, backend, part| heads(fixture, backend, part, Pairing::Adjacent, None)),
    ("norm heads and rotate half pairs", |fixture, backend, part| {
        heads(fixture, backend, part, Pairing::Half, Some(norm(&fixture.head_gains)))
    }),
    ("attention", |fixture, backend, part| attend(fixture, backend, part, None, None, false)),
    ("attention in a window, capped and gated", |fixture, backend, part| {
        attend(fixture, backend, part, Some(45), Some(4.0), true)
    }),
];

fn with_out(n: usize, width: usize, task: impl FnOnce(RowsMut<'_>)) -> Vec<f32> {
    let mut out = GpuBuffer::zeros(&Device::host(), n * width).unwrap();
    task(RowsMut::new(&mut out, n, width).unwrap());
    out.as_slice().to_vec()
}

/// As [`with_out`], with some rows of `values` to begin with.
fn with_values(values: &[f32], Part { first, n }: Part, task: impl FnOnce(RowsMut<'_>)) -> Vec<f32> {
    let mut out = buffer(&values[first * WIDTH..][..n * WIDTH]);
    task(RowsMut::new(&mut out, n, WIDTH).unwrap());
    out.as_slice().to_vec()
}

/// Two products of one input, with weights of two types.
fn project(fixture: &Fixture, backend: &mut dyn Backend, part: Part, norm: Option<Norm<'_>>) -> Vec<f32> {
    let mut second = GpuBuffer::zeros(&Device::host(), part.n * WIDTH).unwrap();
    let first = with_out(part.n, N_FF, |out| {
        let other = RowsMut::new(&mut second, part.n, WIDTH).unwrap();
        let mut products =
            [Product { weight: fixture.matrix(0), out }, Product { weight: fixture.other(), out: other }];
        let op = Project { x: fixture.rows(part), norm, products: &mut products };
        backend.project(Checked::new(op).unwrap()).unwrap();
    });
    let rows = first.chunks_exact(N_FF).zip(second.as_slice().chunks_exact(WIDTH));
    rows.flat_map(|(first, second)| first.iter().chain(second).copied()).collect()
}

fn gated(
    fixture: &Fixture,
    backend: &mut dyn Backend,
    part: Part,
    activation: Activation,
    norm: Option<Norm<'_>>,
) -> Vec<f32> {
    with_out(part.n, N_FF, |out| {
        let (x, gate, up) = (fixture.rows(part), fixture.matrix(0), fixture.matrix(1));
        backend.gated(Checked::new(Gated { x, norm, gate, up, activation, out }).unwrap()).unwrap();
    })
}

fn add(fixture: &Fixture, backend: &mut dyn Backend, part: Part, norm: Option<Norm<'_>>) -> Vec<f32> {
    with_values(&fixture.y, part, |residual| {
        backend.add(Checked::new(Add { x: fixture.rows(part), norm, residual }).unwrap()).unwrap();
    })
}

fn cap(fixture: &Fixture, backend: &mut dyn Backend, part: Part, cap: Option<f32>) -> Vec<f32> {
    with_values(&fixture.y, part, |x| {
        backend.cap(Checked::new(Cap { x, scale: 0.7, cap }).unwrap()).unwrap();
    })
}

fn heads(
    fixture: &Fixture,
    backend: &mut dyn Backend,
    part: Part,
    pairing: Pairing,
    norm: Option<Norm<'_>>,
) -> Vec<f32> {
    let [cos, sin] = fixture
        .angles
        .each_ref()
        .map(|angles| Rows::new(angles, N, HEAD_DIM / 4).unwrap().slice(part.first, part.n).unwrap());
    with_values(&fixture.y, part, |x| {
        let op = Heads { x, head_dim: HEAD_DIM, norm, rope: Some(Rope { cos, sin, pairing }) };
        backend.heads(Checked::new(op).unwrap()).unwrap();
    })
}

fn attend(
    fixture: &Fixture,
    backend: &mut dyn Backend,
    part: Part,
    window: Option<usize>,
    soft_cap: Option<f32>,
    gated: bool,
) -> Vec<f32> {
    let device = Device::host();
    let geometry = KvGeometry { n_head_kv: N_HEAD_KV, head_dim: HEAD_DIM, rows: DEPTH + N };
    let mut plane = KvPlane::zeros(&device, geometry).unwrap();
    let (pos, width) = (DEPTH + part.first, N_HEAD_KV * HEAD_DIM);
    for (pos, n) in [(0, pos), (pos, part.n)] {
        let held = |values: &[f32]| buffer(&values[pos * width..][..n * width]);
        let (k, v) = (held(&fixture.k), held(&fixture.v));
        let (k, v) = (Rows::new(&k, n, width).unwrap(), Rows::new(&v, n, width).unwrap());
        backend.append(Checked::new(Append { plane: &mut plane, pos, k, v }).unwrap()).unwrap();
    }
    with_out(part.n, WIDTH, |out| {
        let op = Attention {
            q: fixture.rows(part),
            spans: &[AttentionSpan { n: part.n, pos, plane: &plane }],
            n_head: N_HEAD,
            window,
            scale: 0.1,
            soft_cap,
            gate: gated.then(|| fixture.rows(part)),
            out,
        };
        backend.attention(Checked::new(op).unwrap()).unwrap();
    })
}

fn backend(threads: usize, tier: Tier) -> CpuBackend {
    CpuBackend::new(Device::host(), NonZero::new(threads).unwrap(), Some(tier)).unwrap()
}

const ALL: Part = Part { first: 0, n: N };

fn assert_near_the_reference(fixture: &Fixture, name: &str, run: Run, tolerance: f32) {
    let expected = run(fixture, &mut Reference::new(NonZero::<usize>::MIN), ALL);
    let found = run(fixture, &mut backend(1, Tier::detect()), ALL);
    let mean_square = expected.iter().map(|x| x * x).sum::<f32>() / expected.len() as f32;
    assert!(mean_square > 0.0 && found.len() == expected.len());
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let error = (found - expected).abs() / mean_square.sqrt();
        assert!(error <= tolerance, "{name}, {}: value {index} is {found}, expected {expected}", fixture.ty);
    }
}

#[test]
fn products_are_near_the_reference_for_every_weight_type() {
    for ty in WeightType::ALL {
        let fixture = Fixture::new(ty);
        let tolerance = match integer_form(ty) {
            None => FLOAT,
            Some(form) if form.wide => WIDE,
            Some(_) => NARROW,
        };
        for (name, run) in PRODUCTS {
            assert_near_the_reference(&fixture, name, run, tolerance);
        }
    }
}

#[test]
fn operations_without_weights_are_near_the_reference() {
    let fixture = Fixture::new(WeightType::F32);
    for (name, run) in OTHERS {
        let tolerance = if name.contains("attention") { ATTENTION } else { FLOAT };
        assert_near_the_reference(&fixture, name, run, tolerance);
    }
}

#[test]
fn bits_depend_on_neither_tier_nor_threads_nor_the_cut_of_the_batch() {
    for ty in [WeightType::Q4_1, WeightType::Q6_K] {
        let fixture = Fixture::new(ty);
        for (name, run) in PRODUCTS.into_iter().chain(OTHERS) {
            let expected = run(&fixture, &mut backend(1, Tier::detect()), ALL);
            // The scalar tier is slow, and which thread runs it makes no difference that another tier would not show.
            let scalar = (Tier::named("scalar").unwrap(), 2);
            for (tier, threads) in [1, 2, 3].map(|threads| (Tier::detect(), threads)).into_iter().chain([scalar]) {
                let mut backend = backend(threads, tier);
                for batches in [&[N][..], &[1, 7, 3], &[1; N]] {
                    let mut found = Vec::new();
                    for &n in batches {
                        let first = found.len() * N / expected.len();
                        found.extend(run(&fixture, &mut backend, Part { first, n }));
                    }
                    let same =
                        found.iter().zip(&expected).all(|(found, expected)| found.to_bits() == expected.to_bits());
                    assert!(same && found.len() == expected.len(), "{name}, {ty}, {}, {batches:?}", backend.describe());
                }
            }
        }
    }
}

#[test]
fn a_backend_says_what_engaged() {
    let scalar = Tier::named("scalar").unwrap();
    assert_eq!(backend(1, scalar).describe(), "cpu (scalar, 1 thread)");
    assert_eq!(backend(3, scalar).describe(), "cpu (scalar, 3 threads)");
    let detected = CpuBackend::new(Device::host(), NonZero::new(2).unwrap(), None).unwrap();
    assert_eq!((detected.tier(), detected.threads()), (Tier::detect(), 2));
}
