//! Weights: tensors bound by name to regions of the arena, their types and shapes checked against the spec.

use std::collections::HashSet;
use std::num::NonZero;

use muser_gguf::{GgufSet, TensorInfo};
use muser_memory::{Arena, RegionId, RegionSpec};
use muser_ops::{Matrix, Vector};
use muser_quant::WeightType;

use crate::spec::{HeadSpec, LayerSpec, ModelSpec, QkNorm};
use crate::{Error, config};

/// The regions of a model's tensors, for [`Arena::new`] with the same files in the same order. Their units are blocks;
/// tensors of types that can't be computed have none.
pub fn regions<'a>(set: &'a GgufSet<'_>) -> impl Iterator<Item = RegionSpec> + 'a {
    set.tensors().map(|(file_no, tensor)| RegionSpec {
        name: tensor.name().into(),
        file_no,
        offset: tensor.offset(),
        size_bytes: tensor.size_bytes(),
        unit_bytes: WeightType::from_ggml_id(tensor.tensor_type().id()).and_then(|ty| NonZero::new(ty.block_bytes())),
    })
}

/// A matrix in the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatrixRef {
    region: RegionId,
    ty: WeightType,
    rows: usize,
    cols: usize,
    scale: f32,
}

impl MatrixRef {
    pub(crate) fn bind<'a>(&self, arena: &'a Arena) -> Result<Matrix<'a>, Error> {
        let matrix = Matrix::new(arena.view(self.region), self.ty, self.rows, self.cols)?;
        Ok(matrix.with_scale(self.scale))
    }
}

/// A vector in the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VectorRef {
    region: RegionId,
    len: usize,
}

impl VectorRef {
    pub(crate) fn bind<'a>(&self, arena: &'a Arena) -> Result<Vector<'a>, Error> {
        Ok(Vector::new(arena.view(self.region), self.len)?)
    }
}

/// All weights of a model.
pub(crate) struct Weights {
    pub embedding: MatrixRef, // (n_vocab, n_embd)
    pub output_norm: VectorRef,
    output: Option<MatrixRef>, // (n_vocab, n_embd)
    pub layers: Vec<LayerWeights>,
    pub rope_factors: Option<VectorRef>, // (n_rot / 2)
}

impl Weights {
    /// The output matrix: its own, or the embedding table.
    pub(crate) fn output(&self) -> &MatrixRef {
        self.output.as_ref().unwrap_or(&self.embedding)
    }
}

/// The weights of one layer.
pub(crate) struct LayerWeights {
    pub attn_norm: VectorRef,
    pub q: MatrixRef,              // (n_head * head_dim, n_embd)
    pub k: MatrixRef,              // (n_head_kv * head_dim, n_embd)
    pub v: MatrixRef,              // (n_head_kv * head_dim, n_embd)
    pub gate: Option<MatrixRef>,   // (n_head * head_dim, n_embd)
    pub q_norm: Option<VectorRef>, // (head_dim)
    pub k_norm: Option<VectorRef>, // (head_dim)
    pub attn_output: MatrixRef,    // (n_embd, n_head * head_dim)
    pub post_attention_norm: Option<VectorRef>,
    pub ffn_norm: VectorRef,
    pub ffn_gate: MatrixRef, // (n_ff, n_embd)
    pub ffn_up: MatrixRef,   // (n_ff, n_embd)
    pub ffn_down: MatrixRef, // (n_embd, n_ff)
    pub post_ffw_norm: Option<VectorRef>,
}

impl Weights {
    /// Binds every tensor that the spec asks for, and refuses a file that lacks one or holds another.
    pub(crate) fn bind(spec: &ModelSpec, set: &GgufSet<'_>, arena: &Arena) -> Result<Self, Error> {
        let mut binder = Binder { set, arena, used: HashSet::new(), problems: Vec::new() };
        let embedding = binder.matrix("token_embd", spec.n_vocab, spec.n_embd);
        let output_norm = binder.vector("output_norm.weight", spec.n_embd);
        let output = (spec.head == HeadSpec::Own).then(|| binder.matrix("output", spec.n_vocab, spec.n_embd));
        let rope = spec.layers.iter().find_map(|layer| layer.rope).filter(|rope| rope.factors);
        let rope_factors = rope.map(|rope| binder.rope_factors("rope_freqs.weight", rope.n_rot / 2));
        let layers: Vec<_> =
            spec.layers.iter().enumerate().map(|(index, layer)| binder.layer(spec.n_embd, index, layer)).collect();
        binder.refuse_unused();
        if !binder.problems.is_empty() {
            return Err(Error::Unusable { arch: spec.arch, problems: binder.problems });
        }
        let all_bound = "a tensor that could not be bound is a problem";
        Ok(Self {
            embedding: embedding.expect(all_bound),
            output_norm: output_norm.expect(all_bound),
            output: output.map(|output| output.expect(all_bound)),
            layers: layers.into_iter().map(|layer| layer.expect(all_bound)).collect(),
            rope_factors: rope_factors.map(|factors| factors.expect(all_bound)),
        })
    }
}

/// Finds tensors by name, notes which were asked for and all that is wrong with them.
struct Binder<'a> {
    set: &'a GgufSet<'a>,
    arena: &'a Arena,
    used: HashSet<String>,
    problems: Vec<String>,
}

impl Binder<'_> {
    fn layer(&mut self, n_embd: usize, index: usize, spec: &LayerSpec) -> Option<LayerWeights> {
        let name = |suffix: &str| format!("blk.{index}.{suffix}");
        let (q_width, kv_width, head_dim) = (spec.q_width(), spec.kv_width(), spec.head_dim);
        let attn_norm = self.vector(&name("attn_norm.weight"), n_embd);
        let q = self.matrix(&name("attn_q"), q_width, n_embd);
        let k = self.matrix(&name("attn_k"), kv_width, n_embd);
        let v = self.matrix(&name("attn_v"), kv_width, n_embd);
        // An optional tensor that can't be bound is `None` here, and a problem that refuses the file in the end.
        let gate = spec.gate.then(|| self.matrix(&name("attn_gate"), q_width, n_embd)).flatten();
        let has_qk_norm = spec.qk_norm != QkNorm::None;
        let q_norm = has_qk_norm.then(|| self.vector(&name("attn_q_norm.weight"), head_dim)).flatten();
        let k_norm = has_qk_norm.then(|| self.vector(&name("attn_k_norm.weight"), head_dim)).flatten();
        if spec.qk_norm == QkNorm::ConstantGains {
            for (name, norm) in [("attn_q_norm.weight", q_norm), ("attn_k_norm.weight", k_norm)] {
                self.expect_constant(&format!("blk.{index}.{name}"), norm);
            }
        }
        let attn_output = self.matrix(&name("attn_output"), n_embd, q_width);
        let has_post_norms = spec.post_norm_eps.is_some();
        let post_attention_norm =
            has_post_norms.then(|| self.vector(&name("post_attention_norm.weight"), n_embd)).flatten();
        let ffn_norm = self.vector(&name("ffn_norm.weight"), n_embd);
        let ffn_gate = self.matrix(&name("ffn_gate"), spec.n_ff, n_embd);
        let ffn_up = self.matrix(&name("ffn_up"), spec.n_ff, n_embd);
        let ffn_down = self.matrix(&name("ffn_down"), n_embd, spec.n_ff);
        let post_ffw_norm = has_post_norms.then(|| self.vector(&name("post_ffw_norm.weight"), n_embd)).flatten();
        Some(LayerWeights {
            attn_norm: attn_norm?,
            q: q?,
            k: k?,
            v: v?,
            gate,
            q_norm,
            k_norm,
            attn_output: attn_output?,
            post_attention_norm,
            ffn_norm: ffn_norm?,
            ffn_gate: ffn_gate?,
            ffn_up: ffn_up?,
            ffn_down: ffn_down?,
            post_ffw_norm,
        })
    }

    /// Binds `<name>.weight`, and the factors that may stand beside it.
    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Option<MatrixRef> {
        let weight = format!("{name}.weight");
        // A factor for activations quantised with one scale for a whole tensor. Ours have a scale for each group.
        self.used.insert(format!("{name}.input_scale"));
        let (ty, region) = self.tensor(&weight, &[cols, rows])?;
        // NVFP4 files keep a factor for the whole tensor beside it, under one of two names.
        let scale_names = [format!("{name}.scale"), format!("{weight}.scale")];
        let scale = match scale_names.each_ref().map(|name| self.set.tensor(name).is_some()) {
            [false, false] => 1.0,
            [true, false] => self.scalar(&scale_names[0])?,
            [false, true] => self.scalar(&scale_names[1])?,
            [true, true] => {
                let [first, second] = scale_names;
                self.problems.push(format!("tensors {first:?} and {second:?} both scale {weight:?}, expected one"));
                self.used.extend([first, second]);
                return None;
            }
        };
        if !cols.is_multiple_of(ty.block_len()) {
            let block_len = ty.block_len();
            self.problems.push(format!("tensor {weight:?}: rows of {cols} are not whole blocks of {block_len}"));
            return None;
        }
        Some(MatrixRef { region, ty, rows, cols, scale })
    }

    fn vector(&mut self, name: &str, len: usize) -> Option<VectorRef> {
        let (ty, region) = self.tensor(name, &[len])?;
        if ty != WeightType::F32 {
            self.problems.push(format!("tensor {name:?} is {}, expected F32", ty.name()));
            return None;
        }
        let vector = VectorRef { region, len };
        if let Err(error) = vector.bind(self.arena) {
            self.problems.push(format!("tensor {name:?}: {error}"));
            return None;
        }
        Some(vector)
    }

    /// Divisors of rotary frequencies.
    fn rope_factors(&mut self, name: &str, len: usize) -> Option<VectorRef> {
        let vector = self.vector(name, len)?;
        let values = vector.bind(self.arena).ok()?.values();
        if let Some(index) = values.iter().position(|value| !value.is_normal() || *value < 0.0) {
            let value = values[index];
            self.problems.push(format!("tensor {name:?}: value {index} is {value}, expected a finite one above 0"));
            return None;
        }
        Some(vector)
    }

    fn scalar(&mut self, name: &str) -> Option<f32> {
        let vector = self.vector(name, 1)?;
        let value = vector.bind(self.arena).ok()?.values()[0];
        if value.is_finite() {
            return Some(value);
        }
        self.problems.push(format!("tensor {name:?} holds {value}, expected a finite factor"));
        None
    }

    fn expect_constant(&mut self, name: &str, vector: Option<VectorRef>) {
        let Some(Ok(vector)) = vector.map(|vector| vector.bind(self.arena)) else { return };
        let values = vector.values();
        if let Some(index) = values.iter().position(|value| value.to_bits() != values[0].to_bits()) {
            let (first, other) = (values[0], values[index]);
            let problem = format!("tensor {name:?} is not constant: value 0 is {first}, value {index} is {other}");
            self.problems.push(problem);
        }
    }

    /// A tensor that has these dimensions and a type that can be computed.
    fn tensor(&mut self, name: &str, dims: &[usize]) -> Option<(WeightType, RegionId)> {
        self.used.insert(name.to_owned());
        let Some(tensor) = self.set.tensor(name) else {
            self.problems.push(format!("tensor {name:?} is missing"));
            return None;
        };
        if !same_dims(tensor, dims) {
            self.problems.push(format!("tensor {name:?} has dimensions {:?}, expected {dims:?}", tensor.dims()));
            return None;
        }
        let ty = tensor.tensor_type();
        let Some(weight_type) = WeightType::from_ggml_id(ty.id()) else {
            self.problems.push(format!("tensor {name:?} is {}, a type that can't be computed", ty.name()));
            return None;
        };
        let Some(region) = self.arena.region(name) else {
            self.problems.push(format!("tensor {name:?} is not in the arena"));
            return None;
        };
        Some((weight_type, region.id()))
    }

    /// A tensor that nothing reads would change the answer of an engine that knew it.
    fn refuse_unused(&mut self) {
        let tensors = self.set.tensors().map(|(_, tensor)| tensor.name());
        let unused: Vec<_> =
            tensors.filter(|name| !self.used.contains(*name)).map(|name| format!("{name:?}")).collect();
        if !unused.is_empty() {
            self.problems.push(format!("tensors that this architecture does not use: {}", config::shortened(&unused)));
        }
    }
}

/// Dimensions are equal but for trailing ones.
fn same_dims(tensor: &TensorInfo<'_>, dims: &[usize]) -> bool {
    let found = tensor.dims();
    found.len() >= dims.len()
        && found.iter().zip(dims).all(|(&found, &expected)| found == expected as u64)
        && found[dims.len()..].iter().all(|&dim| dim == 1)
}
