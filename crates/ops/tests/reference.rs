//! Every operation of the reference backend against values computed by hand, or in f64 as its definition reads.

mod common;

use std::num::NonZero;

use common::{buffer, matrix, norm, plane, rows, rows_mut};
use muser_memory::{GpuBuffer, KvPlane};
use muser_ops::{
    Activation, Add, Append, Attention, AttentionSpan, Backend, Cap, Checked, Embed, Gated, Gather, Heads, Norm,
    NormRows, Operands, Pairing, Product, Project, Reference, Rope, Rows, RowsMut,
};
use muser_quant::WeightType::{self, F32, MXFP4, Q8_0};
use muser_quant::decode_row;

fn backend() -> Reference {
    Reference::new(NonZero::<usize>::MIN)
}

fn checked<T: Operands>(op: T) -> Checked<T> {
    Checked::new(op).unwrap_or_else(|error| panic!("{error}"))
}

/// What `run` leaves in a buffer of `n` rows.
fn result(n: usize, width: usize, run: impl FnOnce(RowsMut<'_>)) -> Vec<f32> {
    let mut buffer = GpuBuffer::zeros(&muser_memory::Device::host(), n * width).expect("memory");
    buffer.as_mut_slice().fill(f32::NAN);
    run(RowsMut::new(&mut buffer, n, width).expect("rows"));
    buffer.as_slice().to_vec()
}

#[track_caller]
fn assert_close(found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (index, (&found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(found) - expected).abs() <= tolerance, "value {index} is {found}, expected {expected}");
    }
}

/// Values between -1 and 1 that look random, and are exact in eight bits.
fn noise(len: usize, seed: u32) -> Vec<f32> {
    let value = |i: u32| (i.wrapping_add(seed << 16).wrapping_mul(2_654_435_761) >> 24) as f32 / 128.0 - 1.0;
    (0..len as u32).map(value).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn the_backend_says_what_it_is() {
    assert_eq!(Reference::new(NonZero::new(3).expect("three")).describe(), "reference (f32 activations, 3 threads)");
    backend().synchronize().expect("nothing to wait for");
    assert!(backend().device().capabilities().max_buffer_bytes.is_none());
}

#[test]
fn an_embedding_is_a_scaled_row_of_the_table_and_normed_after_that() {
    let table = matrix(F32, 2, &[1.0, 2.0, 3.0, -4.0, 5.0, 6.0]);
    let embed = |table, scale, norm| {
        result(3, 2, |out| {
            backend().embed(checked(Embed { tokens: &[1, 0, 1], table, scale, norm, out })).expect("an embedding");
        })
    };
    assert_eq!(embed(table, 2.0, None), [6.0, -8.0, 2.0, 4.0, 6.0, -8.0]);
    assert_eq!(embed(table.with_scale(0.5), 2.0, None), [3.0, -4.0, 1.0, 2.0, 3.0, -4.0]);
    // The mean square of (3, -4) twice over is 4 * 12.5 = 50, and 50 + 14 = 8 * 8.
    let normed = embed(table, 2.0, Some(Norm { weight: None, eps: 14.0 }));
    assert_eq!(normed[..2], [0.75, -1.0]);
}

#[test]
fn gathered_rows_are_copies() {
    let x = rows(2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let found = result(4, 2, |out| {
        backend().gather(checked(Gather { x, rows: &[2, 0, 2, 1], out })).expect("a copy");
    });
    assert_eq!(found, [5.0, 6.0, 1.0, 2.0, 5.0, 6.0, 3.0, 4.0]);
}

#[test]
fn a_norm_divides_by_the_root_of_the_mean_square_plus_epsilon() {
    // (1 + 1 + 1 + 1) / 4 + 3 = 2 * 2, and (9 + 9 + 9 + 25) / 4 + 3 = 4 * 4.
    let x = rows(4, &[1.0, -1.0, 1.0, -1.0, 3.0, 3.0, 3.0, -5.0]);
    let run = |norm| result(2, 4, |out| backend().norm(checked(NormRows { x, norm, out })).expect("a norm"));
    assert_eq!(run(Norm { weight: None, eps: 3.0 }), [0.5, -0.5, 0.5, -0.5, 0.75, 0.75, 0.75, -1.25]);
    let weighted = run(norm(&[1.0, 2.0, 0.0, -4.0], 3.0));
    assert_eq!(weighted, [0.5, -1.0, 0.0, 2.0, 0.75, 1.5, 0.0, 5.0]);
}

#[test]
fn products_are_rows_of_the_weight_times_the_input() {
    let weight = matrix(F32, 3, &[1.0, 2.0, 3.0, 0.0, -1.0, 0.5]);
    let x = rows(3, &[1.0, 1.0, 1.0, 2.0, 0.0, -4.0]);
    let project = |weight, norm| {
        result(2, 2, |out| {
            let products = &mut [Product { weight, out }];
            backend().project(checked(Project { x, norm, products })).expect("a product");
        })
    };
    assert_eq!(project(weight, None), [6.0, -0.5, -10.0, -2.0]);
    assert_eq!(project(weight.with_scale(-2.0), None), [-12.0, 1.0, 20.0, 4.0]);
    // Mean squares 1 and 20/3; weights (1, 2, 4).
    let found = project(weight, Some(norm(&[1.0, 2.0, 4.0], 0.0)));
    let root = (20.0f64 / 3.0).sqrt();
    assert_close(&found, &[17.0, 0.0, -46.0 / root, -8.0 / root], 1e-5);
}

#[test]
fn several_products_read_one_normed_input() {
    let weights = [matrix(F32, 2, &[1.0, 0.0]), matrix(F32, 2, &[0.0, 1.0, 1.0, 1.0])];
    let x = rows(2, &[3.0, -3.0]);
    let mut outs = [buffer(&[0.0]), buffer(&[0.0; 2])];
    let [a, b] = &mut outs;
    let products = &mut [
        Product { weight: weights[0], out: RowsMut::new(a, 1, 1).expect("a row") },
        Product { weight: weights[1], out: RowsMut::new(b, 1, 2).expect("a row") },
    ];
    // 9 + 0 = 3 * 3.
    let norm = Some(norm(&[1.0, 2.0], 0.0));
    backend().project(checked(Project { x, norm, products })).expect("products");
    assert_eq!((outs[0].as_slice(), outs[1].as_slice()), (&[1.0][..], &[-2.0, -1.0][..]));
}

#[test]
fn products_of_every_type_and_odd_shape_agree_with_sums_in_f64() {
    for ty in WeightType::ALL {
        let block = ty.block_len();
        // More rows than a group of tiles and a part of one; columns over more than a run, and for plain types a tail.
        for (n_rows, cols, n) in [(1, block, 1), (23, block * 256usize.div_ceil(block), 3), (5, block * 3, 2)] {
            let values = noise(n_rows * cols, 1);
            let (weight, x) = (matrix(ty, cols, &values), noise(n * cols, 2));
            let found = result(n, n_rows, |out| {
                let products = &mut [Product { weight, out }];
                backend().project(checked(Project { x: rows(cols, &x), norm: None, products })).expect("a product");
            });
            let mut expected = Vec::new();
            for x in x.chunks_exact(cols) {
                for row in 0..n_rows {
                    let mut decoded = vec![0.0; cols];
                    decode_row(ty, weight.row(row), &mut decoded).expect("a row");
                    expected.push(dot(&wide(&decoded), &wide(x)));
                }
            }
            // The largest sums are about 128, where f32 values lie 2^-17 apart, and so lies each of their last additions.
            assert_close(&found, &expected, 4e-5);
        }
    }
}

#[test]
fn a_product_has_the_same_bits_beside_others_and_on_any_number_of_threads() {
    // Enough products for several threads.
    let (n_rows, cols, n) = (70, 1056, 17);
    let weight = matrix(Q8_0, cols, &noise(n_rows * cols, 3));
    let x = noise(n * cols, 4);
    let product = |x: &[f32], threads: usize| {
        result(x.len() / cols, n_rows, |out| {
            let mut backend = Reference::new(threads.try_into().expect("not zero"));
            let products = &mut [Product { weight, out }];
            backend.project(checked(Project { x: rows(cols, x), norm: None, products })).expect("a product");
        })
    };
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let alone: Vec<u32> = x.chunks_exact(cols).flat_map(|x| bits(product(x, 1))).collect();
    for threads in [1, 2, 3, 7, 200] {
        assert_eq!(bits(product(&x, threads)), alone, "{threads} threads");
    }
}

#[test]
fn a_gated_block_activates_the_gate_and_multiplies_with_up() {
    let (gate, up) =
        (matrix(F32, 2, &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]), matrix(F32, 2, &[2.0, 0.0, 0.0, 3.0, 1.0, -1.0]));
    let x = rows(2, &[1.5, -2.0, 0.0, 4.0]);
    let run = |activation, norm| {
        result(2, 3, |out| {
            backend().gated(checked(Gated { x, norm, gate, up, activation, out })).expect("a block");
        })
    };
    let gates = [1.5, -2.0, -0.5, 0.0, 4.0, 4.0];
    let ups = [3.0, -6.0, 3.5, 0.0, 12.0, -4.0];
    let silu = |x: f64| x * sigmoid(x);
    let gelu = |x: f64| x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh());
    let expect = |f: &dyn Fn(f64) -> f64| gates.iter().zip(ups).map(|(&g, u)| f(g) * u).collect::<Vec<_>>();
    assert_close(&run(Activation::Silu, None), &expect(&silu), 1e-5);
    assert_close(&run(Activation::GeluTanh, None), &expect(&gelu), 1e-5);
    // Known values: silu(1) = 0.7310586, gelu(1) = 0.8411920. The mean square of (1, -1) and (0, 2) with what is added to
    // it is 4.
    assert!((silu(1.0) - 0.731_058_6).abs() < 1e-7 && (gelu(1.0) - 0.841_192).abs() < 1e-6);
    let normed = result(1, 3, |out| {
        let op = Gated {
            x: rows(2, &[2.0, -2.0]),
            norm: Some(norm(&[1.0, 3.0], 0.0)),
            gate,
            up,
            activation: Activation::Silu,
            out,
        };
        backend().gated(checked(op)).expect("a block");
    });
    assert_close(&normed, &[silu(1.0) * 2.0, silu(-3.0) * -9.0, silu(-2.0) * 4.0], 1e-6);
}

#[test]
fn heads_are_rotated_in_adjacent_pairs_or_in_halves() {
    let x: Vec<f32> = (1..=12u8).map(f32::from).collect();
    // One row of two heads of six; four values of each are rotated: by a quarter turn, and by 3-4-5.
    let (cos, sin) = (rows(2, &[0.0, 0.6]), rows(2, &[1.0, 0.8]));
    let run = |pairing| {
        let rotated = buffer(&x);
        let x = RowsMut::new(rotated, 1, 12).expect("a row");
        let rope = Some(Rope { cos, sin, pairing });
        backend().heads(checked(Heads { x, head_dim: 6, norm: None, rope })).expect("a rotation");
        rotated.as_slice().to_vec()
    };
    // Pairs (1, 2), (3, 4) and (7, 8), (9, 10).
    let expected = [-2.0, 1.0, 1.8 - 3.2, 2.4 + 2.4, 5.0, 6.0, -8.0, 7.0, 5.4 - 8.0, 7.2 + 6.0, 11.0, 12.0];
    assert_close(&run(Pairing::Adjacent), &expected, 1e-5);
    // Pairs (1, 3), (2, 4) and (7, 9), (8, 10).
    let expected = [-3.0, 1.2 - 3.2, 1.0, 1.6 + 2.4, 5.0, 6.0, -9.0, 4.8 - 8.0, 7.0, 6.4 + 6.0, 11.0, 12.0];
    assert_close(&run(Pairing::Half), &expected, 1e-5);
}

#[test]
fn each_head_is_normed_by_itself_before_it_is_rotated_and_each_row_has_its_angles() {
    // Two rows of two heads of two. Mean squares: 1, 4; 25, 1.
    let x = buffer(&[1.0, -1.0, 2.0, 2.0, 7.0, 1.0, 1.0, 1.0]);
    let rope = Some(Rope { cos: rows(1, &[1.0, 0.0]), sin: rows(1, &[0.0, 1.0]), pairing: Pairing::Half });
    let norm = Some(norm(&[1.0, 3.0], 0.0));
    let op = Heads { x: RowsMut::new(x, 2, 4).expect("rows"), head_dim: 2, norm, rope };
    backend().heads(checked(op)).expect("heads");
    assert_close(x.as_slice(), &[1.0, -3.0, 1.0, 3.0, -0.6, 1.4, -3.0, 1.0], 1e-6);
}

#[test]
fn appended_rows_are_in_the_plane() {
    let mut plane = plane(1, 2, 8);
    let op =
        Append { plane: &mut plane, pos: 0, k: rows(2, &[3.0, -4.0, 0.5, 0.0]), v: rows(2, &[1.0, 2.0, 3.0, -4.0]) };
    backend().append(checked(op)).expect("room");
    assert_eq!(plane.end(), 2);
    for (row, k, v) in [(0, [3.0, -4.0], [1.0, 2.0]), (1, [0.5, 0.0], [3.0, -4.0])] {
        let (mut found_k, mut found_v) = ([0.0; 2], [0.0; 2]);
        plane.read(0, row, &mut found_k, &mut found_v);
        assert_close(&found_k, &k, 4.0 / 32_767.0);
        assert_close(&found_v, &v, 4.0 / 16_383.0);
    }
}

#[test]
fn attention_weighs_values_by_the_softmax_of_scaled_scores() {
    // One head of one value; scores 0, ln 2 and ln 4 times 0.5 * 2.
    let ln2 = 2f32.ln();
    let mut plane = plane(1, 1, 8);
    plane.append(0, &[0.0, ln2, 2.0 * ln2], &[7.0, 14.0, 28.0]).expect("room");
    let run = |window, soft_cap, gate: Option<Rows<'static>>| {
        result(2, 1, |out| {
            let op = Attention {
                q: rows(1, &[2.0, 2.0]),
                spans: &[AttentionSpan { n: 2, pos: 1, plane: &plane }],
                n_head: 1,
                window,
                scale: 0.5,
                soft_cap,
                gate,
                out,
            };
            backend().attention(checked(op)).expect("attention");
        })
    };
    // Weights 1, 2 and 4, but for the rounding of keys and values.
    let all = [(7.0 + 28.0) / 3.0, (7.0 + 28.0 + 112.0) / 7.0];
    assert_close(&run(None, None, None), &all, 1e-2);
    assert_close(&run(Some(3), None, None), &all, 1e-2);
    assert_close(&run(Some(2), None, None), &[all[0], (28.0 + 112.0) / 6.0], 1e-2);
    assert_close(&run(Some(1), None, None), &[14.0, 28.0], 1e-3);
    // Scores 0, c tanh(ln 2 / c) and c tanh(ln 4 / c).
    let score = |x: f64| (0.5 * (x / 0.5).tanh()).exp();
    let (b, c) = (score(2f64.ln()), score(4f64.ln()));
    let capped = [(7.0 + 14.0 * b) / (1.0 + b), (7.0 + 14.0 * b + 28.0 * c) / (1.0 + b + c)];
    assert_close(&run(None, Some(0.5), None), &capped, 1e-2);
    let gated = [all[0] * sigmoid(3.0), all[1] * sigmoid(-1.0)];
    assert_close(&run(None, None, Some(rows(1, &[3.0, -1.0]))), &gated, 1e-2);
}

/// A sequence's keys and values, all of them.
struct Sequence {
    n_head_kv: usize,
    head_dim: usize,
    k: Vec<f32>,
    v: Vec<f32>,
    /// As a plane holds them.
    held_k: Vec<f32>,
    held_v: Vec<f32>,
}

impl Sequence {
    fn new(n_head_kv: usize, head_dim: usize, len: usize) -> Self {
        let (k, v) = (noise(len * n_head_kv * head_dim, 5), noise(len * n_head_kv * head_dim, 6));
        let mut plane = plane(n_head_kv, head_dim, len);
        plane.append(0, &k, &v).expect("room");
        let (mut held_k, mut held_v) = (k.clone(), v.clone());
        for (i, (k, v)) in held_k.chunks_mut(head_dim).zip(held_v.chunks_mut(head_dim)).enumerate() {
            plane.read(i % n_head_kv, i / n_head_kv, k, v);
        }
        Self { n_head_kv, head_dim, k, v, held_k, held_v }
    }

    /// A plane that the sequence was appended to in pieces, up to position `end`.
    fn plane(&self, rows: usize, end: usize) -> KvPlane {
        let mut plane = plane(self.n_head_kv, self.head_dim, rows);
        let width = self.n_head_kv * self.head_dim;
        for pos in (0..end).step_by(5) {
            let range = pos * width..end.min(pos + 5) * width;
            plane.append(pos, &self.k[range.clone()], &self.v[range]).expect("room");
        }
        plane
    }

    /// The attention of the query heads `q` at `pos`, in f64.
    fn attend(&self, q: &[f32], n_head: usize, pos: usize, first: usize, scale: f64) -> Vec<f64> {
        let at = |values: &[f32], j: usize, head: usize| {
            wide(&values[(j * self.n_head_kv + head) * self.head_dim..][..self.head_dim])
        };
        let mut out = Vec::new();
        for (head, q) in q.chunks_exact(self.head_dim).enumerate() {
            let head_kv = head * self.n_head_kv / n_head;
            let weights: Vec<f64> =
                (first..=pos).map(|j| (dot(&wide(q), &at(&self.held_k, j, head_kv)) * scale).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..self.head_dim {
                let mixed: f64 =
                    (first..=pos).zip(&weights).map(|(j, weight)| weight * at(&self.held_v, j, head_kv)[d]).sum();
                out.push(mixed / sum);
            }
        }
        out
    }
}

/// Attention of `n` positions before `end` on a plane of `rows` rows.
fn attend(
    sequence: &Sequence,
    rows_: usize,
    n_head: usize,
    window: Option<usize>,
    n: usize,
    end: usize,
    threads: usize,
) -> Vec<f32> {
    let width = n_head * sequence.head_dim;
    let plane = sequence.plane(rows_, end);
    let q = noise(end * width, 7);
    result(n, width, |out| {
        let op = Attention {
            q: rows(width, &q[(end - n) * width..]),
            spans: &[AttentionSpan { n, pos: end - n, plane: &plane }],
            n_head,
            window,
            scale: 0.3,
            soft_cap: None,
            gate: None,
            out,
        };
        Reference::new(threads.try_into().expect("not zero")).attention(checked(op)).expect("attention");
    })
}

#[test]
fn attention_agrees_with_f64_for_shared_heads_windows_and_wrapped_planes() {
    for (n_head, n_head_kv, head_dim) in [(1, 1, 4), (6, 2, 5), (3, 3, 8), (4, 1, 17)] {
        let sequence = Sequence::new(n_head_kv, head_dim, 300);
        let width = n_head * head_dim;
        for (window, rows, n, end) in [
            (None, 300, 1, 1),
            (None, 300, 7, 7),
            (None, 300, 3, 300),
            (Some(16), 16, 1, 100),
            (Some(16), 24, 9, 100),
            (Some(13), 16, 4, 131),
            (Some(200), 208, 2, 300),
            (Some(400), 300, 2, 290),
        ] {
            let found = attend(&sequence, rows, n_head, window, n, end, 1);
            let mut expected = Vec::new();
            for pos in end - n..end {
                let q = &noise(end * width, 7)[pos * width..][..width];
                let first = window.map_or(0, |window| (pos + 1).saturating_sub(window));
                expected.extend(sequence.attend(q, n_head, pos, first, f64::from(0.3f32)));
            }
            assert_close(&found, &expected, 2e-6);
        }
    }
}

#[test]
fn attention_has_the_same_bits_in_any_batch_plane_and_number_of_threads() {
    let (n_head, end) = (6, 290);
    let sequence = Sequence::new(2, 16, end);
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    for (window, planes) in [
        (None, vec![290, 400]),
        (Some(40), vec![104, 112, 290]),
        (Some(98), vec![168, 290]),
        (Some(131), vec![200, 290]),
    ] {
        let width = n_head * sequence.head_dim;
        let last = |n: usize, rows, threads| {
            let found = attend(&sequence, rows, n_head, window, n, end, threads);
            bits(&found[(n - 1) * width..])
        };
        let alone = last(1, planes[0], 1);
        for &rows in &planes {
            for (n, threads) in [(1, 2), (2, 1), (3, 2), (64, 1), (64, 3), (65, 2)] {
                assert_eq!(last(n, rows, threads), alone, "window {window:?}, {rows} rows, {n} of {threads} threads");
            }
        }
    }
}

#[test]
fn spans_attend_to_their_own_planes() {
    let (a, b) = (Sequence::new(1, 4, 20), Sequence::new(1, 4, 3));
    let planes = [a.plane(24, 20), b.plane(8, 3)];
    let q = noise(4 * 8, 8);
    let found = result(4, 8, |out| {
        let spans =
            &[AttentionSpan { n: 1, pos: 19, plane: &planes[0] }, AttentionSpan { n: 3, pos: 0, plane: &planes[1] }];
        let op =
            Attention { q: rows(8, &q), spans, n_head: 2, window: None, scale: 1.0, soft_cap: None, gate: None, out };
        backend().attention(checked(op)).expect("attention");
    });
    let mut expected = a.attend(&q[..8], 2, 19, 0, 1.0);
    for pos in 0..3 {
        expected.extend(b.attend(&q[8 + 8 * pos..][..8], 2, pos, 0, 1.0));
    }
    assert_close(&found, &expected, 2e-6);
}

#[test]
fn an_addition_norms_what_is_added_only() {
    let residual = buffer(&[10.0, 20.0, 30.0, 40.0]);
    let op =
        Add { x: rows(2, &[3.0, -3.0, 0.5, 0.5]), norm: None, residual: RowsMut::new(residual, 2, 2).expect("rows") };
    backend().add(checked(op)).expect("a sum");
    assert_eq!(residual.as_slice(), [13.0, 17.0, 30.5, 40.5]);
    let norm = Some(norm(&[1.0, 2.0], 0.0));
    let op = Add { x: rows(2, &[3.0, -3.0, 0.5, 0.5]), norm, residual: RowsMut::new(residual, 2, 2).expect("rows") };
    backend().add(checked(op)).expect("a sum");
    assert_eq!(residual.as_slice(), [14.0, 15.0, 31.5, 42.5]);
}

#[test]
fn logits_are_scaled_before_they_are_capped() {
    let run = |scale, cap| {
        let x = buffer(&[1.0, -8.0, 0.0]);
        let op = Cap { x: RowsMut::new(x, 1, 3).expect("a row"), scale, cap };
        backend().cap(checked(op)).expect("caps");
        x.as_slice().to_vec()
    };
    assert_eq!(run(0.5, None), [0.5, -4.0, 0.0]);
    let capped = [2.0 * 0.25f64.tanh(), 2.0 * (-2.0f64).tanh(), 0.0];
    assert_close(&run(0.5, Some(2.0)), &capped, 1e-6);
}

#[test]
fn a_tied_table_scales_embeddings_and_logits_alike() {
    let table = matrix(MXFP4, 32, &[[1.0; 32], [-0.5; 32]].concat()).with_scale(0.25);
    let embedded = result(1, 32, |out| {
        backend().embed(checked(Embed { tokens: &[1], table, scale: 1.0, norm: None, out })).expect("an embedding");
    });
    assert_eq!(embedded, [-0.125; 32]);
    let logits = result(1, 2, |out| {
        let products = &mut [Product { weight: table, out }];
        backend().project(checked(Project { x: rows(32, &[1.0; 32]), norm: None, products })).expect("logits");
    });
    assert_eq!(logits, [8.0, -4.0]);
    assert_eq!(rows_mut(2, &[0.0; 2]).n(), 1);
}
