//! Attention, one query head at a time: all scores, their softmax, the weighted sum of values.

use std::num::NonZero;
use std::thread;

use half::f16;
use muser_memory::KvPlane;

use crate::{AttentionSpan, Rows};

#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub n_head: usize,
    pub window: Option<usize>,
    pub scale: f32,
    pub soft_cap: Option<f32>,
}

/// Fills `out`. `(n, n_head * head_dim)`
pub(super) fn run(shape: Shape, spans: &[AttentionSpan<'_>], q: Rows<'_>, out: &mut [f32], threads: NonZero<usize>) {
    let mut first = 0;
    for &AttentionSpan { n, pos, plane } in spans {
        let out = &mut out[first * q.width()..][..n * q.width()];
        let rows_each = n.div_ceil(threads.get()).max(1);
        let held = Decoded::of(plane);
        thread::scope(|scope| {
            for (share, out) in out.chunks_mut(rows_each * q.width()).enumerate() {
                let held = &held;
                scope.spawn(move || {
                    for (index, out) in out.chunks_exact_mut(q.width()).enumerate() {
                        let row = share * rows_each + index;
                        attend(shape, held, q.row(first + row), pos + row, out);
                    }
                });
            }
        });
        first += n;
    }
}

/// A plane's rows as f32, in the order of their positions.
struct Decoded {
    origin: usize,
    n_head_kv: usize,
    head_dim: usize,
    k: Vec<f32>, // (len, n_head_kv, head_dim)
    v: Vec<f32>, // (len, n_head_kv, head_dim)
}

impl Decoded {
    fn of(plane: &KvPlane) -> Self {
        let (n_head_kv, head_dim, capacity) = (plane.geometry().n_head_kv, plane.geometry().head_dim, plane.capacity());
        let origin = plane.origin_logical();
        let mut decoded = Self { origin, n_head_kv, head_dim, k: Vec::new(), v: Vec::new() };
        for pos in origin..plane.end() {
            let row = plane.row_of(pos).expect("a position between origin and end is held");
            for head in 0..n_head_kv {
                for d in 0..head_dim {
                    let k = ((head * capacity / 8 + row / 8) * head_dim + d) * 8 + row % 8;
                    let v = (head * capacity + row) * head_dim + d;
                    decoded.k.push(f16::from_bits(plane.k_bits()[k]).to_f32());
                    decoded.v.push(f16::from_bits(plane.v_bits()[v]).to_f32());
                }
            }
        }
        decoded
    }

    fn head<'a>(&self, values: &'a [f32], pos: usize, head: usize) -> &'a [f32] {
        &values[((pos - self.origin) * self.n_head_kv + head) * self.head_dim..][..self.head_dim]
    }
}

fn attend(shape: Shape, held: &Decoded, q: &[f32], pos: usize, out: &mut [f32]) {
    let group = shape.n_head / held.n_head_kv;
    let first = shape.window.map_or(0, |window| (pos + 1).saturating_sub(window));
    for (head, (q, out)) in q.chunks_exact(held.head_dim).zip(out.chunks_exact_mut(held.head_dim)).enumerate() {
        let head = head / group;
        let mut scores: Vec<f32> = (first..=pos)
            .map(|j| {
                let score = super::math::dot(q, held.head(&held.k, j, head)) * shape.scale;
                shape.soft_cap.map_or(score, |cap| cap * (score / cap).tanh())
            })
            .collect();
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        scores.iter_mut().for_each(|score| *score = (*score - max).exp());
        let sum: f64 = scores.iter().map(|&p| f64::from(p)).sum();
        let mut mixed = vec![0.0f64; held.head_dim];
        for (j, &p) in (first..=pos).zip(&scores) {
            for (mixed, &v) in mixed.iter_mut().zip(held.head(&held.v, j, head)) {
                *mixed += f64::from(p) * f64::from(v);
            }
        }
        out.iter_mut().zip(mixed).for_each(|(out, mixed)| *out = (mixed / sum) as f32);
    }
}
