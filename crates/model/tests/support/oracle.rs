//! Forward passes in f64, written out loop by loop for each architecture: what the one decoder has to agree with.
//!
//! Keys and values are rounded to integers times a scale, as caches hold them. Nothing else is rounded.

use std::collections::HashMap;

use muser_quant::{WeightType, decode_row};

use super::{File, GEMMA3_HEADS, Heads, LLAMA_HEADS, MUSE_HEADS, N_EMBD, N_VOCAB, WINDOW};

/// The tensors of a file, decoded.
pub struct Oracle {
    tensors: HashMap<String, Vec<Vec<f64>>>, // rows
}

/// Keys and values of one layer. `[position][KV head][dimension]`
#[derive(Clone, Default)]
struct Cached {
    k: Vec<Vec<Vec<f64>>>,
    v: Vec<Vec<Vec<f64>>>,
}

impl Oracle {
    pub fn new(file: &File) -> Self {
        let decode = |tensor: &super::Tensor| {
            let ty = WeightType::from_ggml_id(tensor.ty.id()).expect("a type that can be decoded");
            let cols = tensor.dims[0] as usize;
            let rows = tensor.bytes.chunks_exact(ty.row_bytes(cols).expect("whole blocks"));
            let rows = rows.map(|row| {
                let mut values = vec![0.0; cols];
                decode_row(ty, row, &mut values).expect("a whole row");
                values.into_iter().map(f64::from).collect()
            });
            (tensor.name.clone(), rows.collect())
        };
        Self { tensors: file.tensors.iter().map(decode).collect() }
    }

    /// Multiplies all values of a matrix.
    pub fn scale(&mut self, name: &str, factor: f64) {
        self.tensors.get_mut(name).expect("a tensor").iter_mut().flatten().for_each(|value| *value *= factor);
    }

    /// Logits of a `llama` whose rotation has these frequencies, in radians per position.
    pub fn llama(&self, tokens: &[u32], frequencies: &[f64], head: &str) -> Vec<Vec<f64>> {
        let (eps, heads) = (f64::from(1e-5f32), LLAMA_HEADS);
        let scale = 1.0 / 16f64.sqrt();
        let mut cache = vec![Cached::default(); heads.n_layer];
        let mut logits = Vec::new();
        for (pos, &token) in tokens.iter().enumerate() {
            let mut h = self.tensors["token_embd.weight"][token as usize].clone();
            for (layer, cache) in cache.iter_mut().enumerate() {
                let name = |suffix: &str| format!("blk.{layer}.{suffix}.weight");
                let a = self.rms(&h, Some(&name("attn_norm")), eps);
                let mut q = split(&self.product(&name("attn_q"), &a), heads.head_dim);
                let mut k = split(&self.product(&name("attn_k"), &a), heads.head_dim);
                let v = split(&self.product(&name("attn_v"), &a), heads.head_dim);
                q.iter_mut().chain(&mut k).for_each(|head| rotate_adjacent(head, pos, frequencies));
                cache.push(k, v);
                let o = attend(heads, &q, cache, 0, scale);
                add(&mut h, &self.product(&name("attn_output"), &o));
                let f = self.feed_forward(layer, &self.rms(&h, Some(&name("ffn_norm")), eps), silu);
                add(&mut h, &f);
            }
            logits.push(self.product(head, &self.rms(&h, Some("output_norm.weight"), eps)));
        }
        logits
    }

    /// Logits of `gemma3()`, in which only the sixth layer is global.
    pub fn gemma3(&self, tokens: &[u32]) -> Vec<Vec<f64>> {
        let (eps, heads) = (f64::from(1e-6f32), GEMMA3_HEADS);
        let scale = 1.0 / 32f64.sqrt();
        let frequencies = |base: f64, divisor: f64| -> Vec<f64> {
            (0..16).map(|pair| base.powf(-f64::from(pair) / 16.0) / divisor).collect()
        };
        let (sliding, global) = (frequencies(10_000.0, 1.0), frequencies(50_000.0, 8.0));
        let mut cache = vec![Cached::default(); heads.n_layer];
        let mut logits = Vec::new();
        for (pos, &token) in tokens.iter().enumerate() {
            let mut h = self.tensors["token_embd.weight"][token as usize].clone();
            h.iter_mut().for_each(|value| *value *= (N_EMBD as f64).sqrt());
            for (layer, cache) in cache.iter_mut().enumerate() {
                let name = |suffix: &str| format!("blk.{layer}.{suffix}.weight");
                let is_global = layer == 5;
                let a = self.rms(&h, Some(&name("attn_norm")), eps);
                let mut q = split(&self.product(&name("attn_q"), &a), heads.head_dim);
                let mut k = split(&self.product(&name("attn_k"), &a), heads.head_dim);
                let v = split(&self.product(&name("attn_v"), &a), heads.head_dim);
                for (heads, norm) in [(&mut q, "attn_q_norm"), (&mut k, "attn_k_norm")] {
                    for head in heads {
                        *head = self.rms(head, Some(&name(norm)), eps);
                        rotate_half(head, pos, if is_global { &global } else { &sliding });
                    }
                }
                cache.push(k, v);
                let first = if is_global { 0 } else { (pos + 1).saturating_sub(WINDOW) };
                let o = self.product(&name("attn_output"), &attend(heads, &q, cache, first, scale));
                add(&mut h, &self.rms(&o, Some(&name("post_attention_norm")), eps));
                let f = self.feed_forward(layer, &self.rms(&h, Some(&name("ffn_norm")), eps), gelu);
                add(&mut h, &self.rms(&f, Some(&name("post_ffw_norm")), eps));
            }
            logits.push(self.product("token_embd.weight", &self.rms(&h, Some("output_norm.weight"), eps)));
        }
        logits
    }

    /// Logits of `muse_glimmer()`, in which every fourth layer is global and has no positions.
    pub fn muse_glimmer(&self, tokens: &[u32]) -> Vec<Vec<f64>> {
        let (eps, post_eps, heads) = (f64::from(1e-5f32), 1e-8, MUSE_HEADS);
        let scale = 1.0 / 16f64.sqrt();
        let frequencies: Vec<f64> = (0..8).map(|pair| 500f64.powf(-2.0 * f64::from(pair) / 16.0)).collect();
        let mut cache = vec![Cached::default(); heads.n_layer];
        let mut logits = Vec::new();
        for (pos, &token) in tokens.iter().enumerate() {
            let mut h = self.rms(&self.tensors["token_embd.weight"][token as usize], None, eps);
            for (layer, cache) in cache.iter_mut().enumerate() {
                let name = |suffix: &str| format!("blk.{layer}.{suffix}.weight");
                let is_sliding = layer % 4 != 3;
                let a = self.rms(&h, Some(&name("attn_norm")), eps);
                let mut q = split(&self.product(&name("attn_q"), &a), heads.head_dim);
                let mut k = split(&self.product(&name("attn_k"), &a), heads.head_dim);
                let v = split(&self.product(&name("attn_v"), &a), heads.head_dim);
                let gate = self.product(&name("attn_gate"), &a);
                for (heads, gain) in [(&mut q, f64::from(3.87f32)), (&mut k, 1.0)] {
                    for head in heads {
                        *head = self.rms(head, None, eps);
                        head.iter_mut().for_each(|value| *value *= gain);
                        if is_sliding {
                            rotate_adjacent(head, pos, &frequencies);
                        }
                    }
                }
                cache.push(k, v);
                let first = if is_sliding { (pos + 1).saturating_sub(WINDOW) } else { 0 };
                let mut o = attend(heads, &q, cache, first, scale);
                o.iter_mut().zip(gate).for_each(|(o, gate)| *o *= sigmoid(gate));
                let o = self.product(&name("attn_output"), &o);
                add(&mut h, &self.rms(&o, Some(&name("post_attention_norm")), post_eps));
                let f = self.feed_forward(layer, &self.rms(&h, Some(&name("ffn_norm")), eps), silu);
                add(&mut h, &self.rms(&f, Some(&name("post_ffw_norm")), post_eps));
            }
            let mut z = self.product("output.weight", &self.rms(&h, Some("output_norm.weight"), eps));
            z.iter_mut().for_each(|z| *z = 1.5 * (*z * 0.75 / 1.5).tanh());
            logits.push(z);
        }
        logits
    }

    fn feed_forward(&self, layer: usize, x: &[f64], activation: fn(f64) -> f64) -> Vec<f64> {
        let gate = self.product(&format!("blk.{layer}.ffn_gate.weight"), x);
        let up = self.product(&format!("blk.{layer}.ffn_up.weight"), x);
        let hidden: Vec<f64> = gate.into_iter().zip(up).map(|(gate, up)| activation(gate) * up).collect();
        self.product(&format!("blk.{layer}.ffn_down.weight"), &hidden)
    }

    fn product(&self, name: &str, x: &[f64]) -> Vec<f64> {
        self.tensors[name].iter().map(|row| dot(row, x)).collect()
    }

    fn rms(&self, x: &[f64], weight: Option<&str>, eps: f64) -> Vec<f64> {
        let root = (dot(x, x) / x.len() as f64 + eps).sqrt();
        let gain = |i: usize| weight.map_or(1.0, |weight| self.tensors[weight][0][i]);
        x.iter().enumerate().map(|(i, x)| x / root * gain(i)).collect()
    }
}

impl Cached {
    fn push(&mut self, k: Vec<Vec<f64>>, v: Vec<Vec<f64>>) {
        let norm = |head: &[f64]| head.iter().map(|x| x * x).sum::<f64>().sqrt();
        let held_key = |head: Vec<f64>| held(&head, (norm(&head) / 46_000.0).max(largest(&head) / 32_767.0));
        let held_value = |head: Vec<f64>| held(&head, largest(&head) / 16_383.0);
        self.k.push(k.into_iter().map(held_key).collect());
        self.v.push(v.into_iter().map(held_value).collect());
    }
}

fn largest(head: &[f64]) -> f64 {
    head.iter().fold(0.0, |max, x| max.max(x.abs()))
}

/// A head in steps, which are rounded up to what the upper half of an f32 holds.
fn held(head: &[f64], step: f64) -> Vec<f64> {
    let bits = (step as f32).to_bits();
    let step = f64::from(f32::from_bits(((bits >> 16) + u32::from(bits & 0xffff > 0)) << 16));
    head.iter().map(|x| if step > 0.0 { (x / step).round_ties_even() * step } else { 0.0 }).collect()
}

/// The attention of the last position in the cache to those from `first` on.
fn attend(heads: Heads, q: &[Vec<f64>], cache: &Cached, first: usize, scale: f64) -> Vec<f64> {
    let mut out = Vec::new();
    for (head, q) in q.iter().enumerate() {
        let head_kv = head / (heads.n_head / heads.n_head_kv);
        let weights: Vec<f64> = cache.k[first..].iter().map(|k| (dot(q, &k[head_kv]) * scale).exp()).collect();
        let sum: f64 = weights.iter().sum();
        out.extend((0..heads.head_dim).map(|d| {
            let values = cache.v[first..].iter().map(|v| v[head_kv][d]);
            weights.iter().zip(values).map(|(weight, value)| weight * value).sum::<f64>() / sum
        }));
    }
    out
}

fn rotate_adjacent(head: &mut [f64], pos: usize, frequencies: &[f64]) {
    for (pair, frequency) in frequencies.iter().enumerate() {
        rotate(head, 2 * pair, 2 * pair + 1, pos as f64 * frequency);
    }
}

fn rotate_half(head: &mut [f64], pos: usize, frequencies: &[f64]) {
    for (pair, frequency) in frequencies.iter().enumerate() {
        rotate(head, pair, pair + frequencies.len(), pos as f64 * frequency);
    }
}

fn rotate(head: &mut [f64], i: usize, j: usize, angle: f64) {
    let (x0, x1) = (head[i], head[j]);
    head[i] = x0 * angle.cos() - x1 * angle.sin();
    head[j] = x0 * angle.sin() + x1 * angle.cos();
}

fn split(values: &[f64], head_dim: usize) -> Vec<Vec<f64>> {
    values.chunks_exact(head_dim).map(<[f64]>::to_vec).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(sum: &mut [f64], x: &[f64]) {
    sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
}

/// The root of the mean square, and the largest, of the differences of two lists of logits.
pub fn differences(found: &[Vec<f32>], expected: &[Vec<f64>]) -> (f64, f64) {
    assert_eq!(found.len(), expected.len());
    let rows = found.iter().zip(expected).flat_map(|(found, expected)| {
        assert_eq!((found.len(), expected.len()), (N_VOCAB, N_VOCAB));
        found.iter().zip(expected)
    });
    let all: Vec<f64> = rows.map(|(&found, &expected)| (f64::from(found) - expected).abs()).collect();
    ((dot(&all, &all) / all.len() as f64).sqrt(), all.into_iter().fold(0.0, f64::max))
}
