use std::f32::consts::LOG2_E;
use std::num::NonZero;

use muser_memory::{Device, GpuBuffer, KvGeometry, KvPlane};
use muser_ops::{Checked, Rows, RowsMut};

use super::*;
use crate::arch::simd::Simd;
use crate::dispatch::kernel;
use crate::testing::{Random, assert_same_bits};

#[derive(Clone, Copy, Debug)]
struct Shape {
    n_head: usize,
    n_head_kv: usize,
    head_dim: usize,
    window: Option<usize>,
    soft_cap: Option<f32>,
}

impl Shape {
    const fn new(n_head: usize, n_head_kv: usize, head_dim: usize) -> Self {
        Self { n_head, n_head_kv, head_dim, window: None, soft_cap: None }
    }

    fn scale(self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }
}

/// Queries, keys, values and gates of a sequence that begins at position 0.
struct Sequence {
    shape: Shape,
    q: Vec<f32>,    // (n, n_head, head_dim)
    k: Vec<f32>,    // (n, n_head_kv, head_dim)
    v: Vec<f32>,    // (n, n_head_kv, head_dim)
    gate: Vec<f32>, // (n, n_head, head_dim)
    /// All keys and values.
    plane: KvPlane,
}

impl Sequence {
    fn new(shape: Shape, n: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (query, row) = (shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim);
        // Larger than usual queries, so that the softmax is not flat.
        let q = random.normal(n * query).into_iter().map(|q| 3.0 * q).collect();
        let (k, v) = (random.normal(n * row), random.normal(n * row));
        let geometry = KvGeometry { n_head_kv: shape.n_head_kv, head_dim: shape.head_dim, rows: n };
        let mut plane = KvPlane::zeros(&Device::host(), geometry).unwrap();
        plane.append(0, &k, &v).unwrap();
        Self { shape, q, k, v, gate: random.normal(n * query), plane }
    }

    /// Feeds the sequence in batches of the given sizes, over a plane of `rows` rows, and returns the outputs.
    fn run(&self, batches: &[usize], rows: usize, tier: Tier, threads: usize, gated: bool) -> Vec<f32> {
        let Shape { n_head, n_head_kv, head_dim, window, soft_cap } = self.shape;
        let device = Device::host();
        let mut plane = KvPlane::zeros(&device, KvGeometry { n_head_kv, head_dim, rows }).unwrap();
        let mut pool = Pool::new(NonZero::new(threads).unwrap()).unwrap();
        let (mut scratch, mut outputs, mut pos) = (Scratch::default(), Vec::new(), 0);
        let (query, row) = (n_head * head_dim, n_head_kv * head_dim);
        for &n in batches {
            plane.append(pos, &self.k[pos * row..][..n * row], &self.v[pos * row..][..n * row]).unwrap();
            let q = buffer(&self.q[pos * query..][..n * query]);
            let gate = buffer(&self.gate[pos * query..][..n * query]);
            let mut out = GpuBuffer::zeros(&device, n * query).unwrap();
            let op = Attention {
                q: Rows::new(&q, n, query).unwrap(),
                spans: &[AttentionSpan { n, pos, plane: &plane }],
                n_head,
                window,
                scale: self.shape.scale(),
                soft_cap,
                gate: gated.then(|| Rows::new(&gate, n, query).unwrap()),
                out: RowsMut::new(&mut out, n, query).unwrap(),
            };
            attention(tier, &mut pool, &mut scratch, Checked::new(op).unwrap().into_inner());
            outputs.extend_from_slice(out.as_slice());
            pos += n;
        }
        outputs
    }

    /// Numbers as integers with a scale; a product in f64 is exact.
    fn fixed(x: &[f32], scale: f32) -> Vec<i64> {
        let factor = 1.0 / scale;
        x.iter().map(|&x| (f64::from(x) * f64::from(factor)).round_ties_even() as i64).collect()
    }

    /// The key and the value of a head at a position as a plane holds them: integers and their scale.
    fn held(&self, pos: usize, head: usize) -> [(Vec<i64>, f32); 2] {
        let (mut k, mut v) = (vec![0.0; self.shape.head_dim], vec![0.0; self.shape.head_dim]);
        self.plane.read(head, pos, &mut k, &mut v);
        [(k, self.plane.key_scales(head)), (v, self.plane.value_scales(head))].map(|(x, scales)| {
            let scale = f32::from_bits(u32::from(scales[pos]) << 16);
            (x.iter().map(|x| (x / scale) as i64).collect(), scale)
        })
    }

    /// The output of one query head, computed as the module's text says and in no other way.
    fn expected(&self, pos: usize, head: usize) -> Vec<f32> {
        let Shape { n_head, n_head_kv, head_dim, window, soft_cap } = self.shape;
        let head_kv = head / (n_head / n_head_kv);
        let largest = |x: &[f32]| x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
        let q = &self.q[(pos * n_head + head) * head_dim..][..head_dim];
        let reciprocal = 1.0 / largest(q);
        let squares = q.iter().map(|q| q * reciprocal).enumerate().fold([0.0f32; 8], |mut squares, (d, q)| {
            squares[d % 8] = q.mul_add(q, squares[d % 8]);
            squares
        });
        let q_scale = largest(q) * (fold(squares).sqrt() * (1.0 / 46_000.0)).max(1.0 / 32_767.0);
        let q = Self::fixed(q, q_scale);
        let (mut softmax, mut o) = (Softmax::EMPTY, vec![0.0; head_dim]);
        for chunk in 0..=pos / CHUNK {
            let visible = (chunk * CHUNK..(chunk + 1) * CHUNK)
                .filter(|&j| j <= pos && window.is_none_or(|window| pos - j < window));
            let positions: Vec<usize> = visible.collect();
            if positions.is_empty() {
                continue;
            }
            let score = |j: usize| {
                let [(k, k_scale), _] = self.held(j, head_kv);
                let products = q.iter().zip(k).map(|(q, k)| q * k).sum::<i64>() as f32 * k_scale;
                soft_cap.map_or(products * (q_scale * (self.shape.scale() * LOG2_E)), |cap| {
                    one(tanh, products * (q_scale * (self.shape.scale() / cap))) * (cap * LOG2_E)
                })
            };
            let scores: Vec<f32> = positions.iter().map(|&j| score(j)).collect();
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let p: Vec<f32> = scores.iter().map(|score| one(exp2, score - max)).collect();
            let mut lanes = [0.0f32; 8];
            for (&j, p) in positions.iter().zip(&p) {
                lanes[j % 8] += p;
            }
            let sum = fold(lanes);

            let values: Vec<(Vec<i64>, f32)> = positions.iter().map(|&j| self.held(j, head_kv)[1].clone()).collect();
            let weights: Vec<f32> = p.iter().zip(&values).map(|(p, (_, scale))| p * scale).collect();
            let mut lanes = [0.0f32; 8];
            for (&j, weight) in positions.iter().zip(&weights) {
                lanes[j % 8] += weight;
            }
            let sum_of_weights = fold(lanes);
            let scale =
                sum_of_weights * (1.0 / 130_900.0f32).max(largest(&weights) / sum_of_weights * (1.0 / 32_767.0));
            let weights = Self::fixed(&weights, scale);
            let part_o = (0..head_dim).map(|d| {
                weights.iter().zip(&values).map(|(weight, (value, _))| weight * value[d]).sum::<i64>() as f32 * scale
            });

            let new_max = softmax.max.max(max);
            let (a, b) = (one(exp2, softmax.max - new_max), one(exp2, max - new_max));
            softmax = Softmax { max: new_max, sum: sum.mul_add(b, softmax.sum * a) };
            for (o, part) in o.iter_mut().zip(part_o) {
                *o = part.mul_add(b, *o * a);
            }
        }
        let factor = 1.0 / softmax.sum;
        o.into_iter().map(|o| o * factor).collect()
    }

    fn n(&self) -> usize {
        self.q.len() / (self.shape.n_head * self.shape.head_dim)
    }

    fn all_expected(&self) -> Vec<f32> {
        (0..self.n()).flat_map(|pos| (0..self.shape.n_head).flat_map(move |head| self.expected(pos, head))).collect()
    }
}

fn fold([v0, v1, v2, v3, v4, v5, v6, v7]: [f32; 8]) -> f32 {
    ((v0 + v4) + (v2 + v6)) + ((v1 + v5) + (v3 + v7))
}

fn buffer(values: &[f32]) -> GpuBuffer {
    let mut buffer = GpuBuffer::zeros(&Device::host(), values.len()).unwrap();
    buffer.as_mut_slice().copy_from_slice(values);
    buffer
}

#[inline(always)]
fn exp2_lanes<S: Simd>(s: S, x: &mut [f32; 8]) {
    let [y] = crate::math::exp2(s, [s.load(x)]);
    s.store(y, x);
}

#[inline(always)]
fn tanh_lanes<S: Simd>(s: S, x: &mut [f32; 8]) {
    s.store(crate::math::tanh(s, s.load(x)), x);
}

kernel! { fn exp2(x: &mut [f32; 8]) = exp2_lanes; }
kernel! { fn tanh(x: &mut [f32; 8]) = tanh_lanes; }

fn one(function: fn(Tier, &mut [f32; 8]), x: f32) -> f32 {
    let mut lanes = [x; 8];
    function(Tier::named("scalar").unwrap(), &mut lanes);
    lanes[0]
}

/// Batch sizes that add up to `n`.
fn random_cut(n: usize, random: &mut Random) -> Vec<usize> {
    let mut left = n;
    let mut batches = Vec::new();
    while left > 0 {
        let most = [1, 3, 17, 90, 300][random.below(5)];
        let n = 1 + random.below(left.min(most));
        batches.push(n);
        left -= n;
    }
    batches
}

#[test]
fn every_tier_gives_the_bits_of_the_definition_for_every_shape() {
    for (n_head, n_head_kv, head_dim) in
        [(1, 1, 8), (3, 1, 64), (4, 2, 20), (4, 1, 40), (5, 1, 32), (6, 1, 16), (7, 7, 9), (16, 1, 12), (9, 3, 24)]
    {
        let sequence = Sequence::new(Shape::new(n_head, n_head_kv, head_dim), 37, 1);
        let expected = sequence.all_expected();
        for tier in Tier::available() {
            assert_same_bits(&sequence.run(&[37], 64, tier, 1, false), &expected);
        }
    }
}

#[test]
fn chunks_are_joined_as_defined() {
    let shape = Shape { soft_cap: Some(5.0), ..Shape::new(2, 1, 8) };
    for shape in [shape, Shape::new(3, 1, 8)] {
        for n in [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 9] {
            let sequence = Sequence::new(shape, n, 2);
            let found = sequence.run(&[n], n, Tier::detect(), 1, false);
            let width = shape.n_head * shape.head_dim;
            for pos in (0..n).rev().take(12).chain([0, n / 2]) {
                let expected: Vec<f32> = (0..shape.n_head).flat_map(|head| sequence.expected(pos, head)).collect();
                assert_same_bits(&found[pos * width..][..width], &expected);
            }
        }
    }
}

#[test]
fn any_cut_and_thread_count_gives_the_same_bits() {
    let mut random = Random::new(3);
    for (shape, n) in [(Shape::new(3, 1, 16), 700), (Shape::new(4, 2, 8), 530), (Shape::new(2, 2, 40), 300)] {
        let sequence = Sequence::new(shape, n, 4);
        let expected = sequence.run(&[n], n, Tier::detect(), 1, true);
        for threads in 1..=3 {
            for _ in 0..3 {
                let batches = random_cut(n, &mut random);
                assert_same_bits(&sequence.run(&batches, n, Tier::detect(), threads, true), &expected);
            }
        }
        let one_by_one = vec![1; n];
        assert_same_bits(&sequence.run(&one_by_one, n, Tier::detect(), 3, true), &expected);
    }
}

#[test]
fn a_window_ends_where_it_should_in_rings_of_every_size() {
    let mut random = Random::new(5);
    for window in [1, 2, 7, 8, 9, 63, 64, 65, CHUNK - 1, CHUNK, CHUNK + 1] {
        let shape = Shape { window: Some(window), ..Shape::new(3, 1, 8) };
        let sequence = Sequence::new(shape, 600, 6);
        let expected = sequence.run(&[600], 600, Tier::detect(), 1, false);
        for pos in [0, window - 1, window, window + 1, 511, 512, 599] {
            let expected_row: Vec<f32> = (0..3).flat_map(|head| sequence.expected(pos, head)).collect();
            assert_same_bits(&expected[pos * 24..][..24], &expected_row);
        }
        // A ring holds the window and the rest of the largest batch; with exactly that, old and new rows share blocks.
        for batch in [1, 5, 40] {
            let mut batches = vec![batch; 600 / batch];
            batches.extend((600 % batch > 0).then_some(600 % batch));
            let rows = window + batch - 1;
            assert_same_bits(&sequence.run(&batches, rows, Tier::detect(), 2, false), &expected);
            let rows = rows + random.below(300);
            assert_same_bits(&sequence.run(&batches, rows, Tier::detect(), 3, false), &expected);
        }
    }
}

#[test]
fn what_a_query_does_not_see_does_not_reach_it() {
    let shape = Shape { window: Some(20), ..Shape::new(3, 1, 8) };
    let clean = Sequence::new(shape, 300, 7);
    let clean_out = clean.run(&[300], 300, Tier::detect(), 1, false);
    for bad in [f32::INFINITY, f32::NAN] {
        let mut dirty = Sequence::new(shape, 300, 7);
        let at = 150;
        dirty.k[at * 8 + 3] = bad;
        dirty.v[at * 8 + 3] = bad;
        let out = dirty.run(&[300], 300, Tier::detect(), 1, false);
        assert_same_bits(&out[..at * 24], &clean_out[..at * 24]);
        assert_same_bits(&out[(at + 20) * 24..], &clean_out[(at + 20) * 24..]);
        assert!(out[at * 24..(at + 20) * 24].chunks(8).all(|head| head.iter().all(|o| !o.is_finite())));
    }
}

#[test]
fn sequences_in_one_batch_do_not_change_each_other() {
    let shape = Shape::new(4, 2, 16);
    let device = Device::host();
    let width = shape.n_head * shape.head_dim;
    let lens = [1usize, 300, 7, 600];
    let taken = [1usize, 2, 7, 130];
    let sequences: Vec<Sequence> = lens.iter().zip(10..).map(|(&n, seed)| Sequence::new(shape, n, seed)).collect();
    let planes: Vec<KvPlane> = sequences
        .iter()
        .map(|sequence| {
            let geometry = KvGeometry { n_head_kv: 2, head_dim: 16, rows: sequence.n() };
            let mut plane = KvPlane::zeros(&device, geometry).unwrap();
            plane.append(0, &sequence.k, &sequence.v).unwrap();
            plane
        })
        .collect();
    let tails: Vec<f32> = sequences
        .iter()
        .zip(taken)
        .flat_map(|(sequence, taken)| sequence.q[(sequence.n() - taken) * width..].iter().copied())
        .collect();
    let expected: Vec<f32> = sequences
        .iter()
        .zip(taken)
        .flat_map(|(sequence, taken)| {
            let n = sequence.n();
            sequence.run(&[n], n, Tier::detect(), 1, false).split_off((n - taken) * width)
        })
        .collect();
    let n: usize = taken.iter().sum();
    let q = buffer(&tails);
    let spans: Vec<AttentionSpan<'_>> =
        planes.iter().zip(taken).map(|(plane, n)| AttentionSpan { n, pos: plane.end() - n, plane }).collect();
    for threads in 1..=3 {
        let mut out = GpuBuffer::zeros(&device, n * width).unwrap();
        let op = Attention {
            q: Rows::new(&q, n, width).unwrap(),
            spans: &spans,
            n_head: shape.n_head,
            window: None,
            scale: shape.scale(),
            soft_cap: None,
            gate: None,
            out: RowsMut::new(&mut out, n, width).unwrap(),
        };
        let mut pool = Pool::new(NonZero::new(threads).unwrap()).unwrap();
        attention(Tier::detect(), &mut pool, &mut Scratch::default(), Checked::new(op).unwrap().into_inner());
        assert_same_bits(out.as_slice(), &expected);
    }
}
