//! Small model files of every architecture, made of repeatable random weights, that tests can bend in any way.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod oracle;

use std::io::Write;
use std::num::NonZero;
use std::sync::Arc;

use muser_gguf::{Array, Gguf, GgufSet, TensorType, Value, Writer};
use muser_memory::{Arena, Device, ModelFile};
use muser_model::{Decoder, Error, KvCache, LogitRows, Model, ModelSpec, Span, TapSink, regions};
use muser_ops::{Backend, Reference};
use muser_quant::{WeightType, encode_row};

pub const N_EMBD: usize = 64;
pub const N_FF: usize = 128;
pub const N_VOCAB: usize = 61;
pub const WINDOW: usize = 8;
pub const N_CTX_TRAIN: usize = 256;

/// A metadata value that owns what it holds.
#[derive(Clone, Debug)]
pub enum Meta {
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(&'static str),
    Bools(Vec<bool>),
    U32s(Vec<u32>),
    Strs(Vec<String>),
}

impl Meta {
    fn value(&self) -> Value<'_> {
        match self {
            Self::U32(v) => (*v).into(),
            Self::I32(v) => (*v).into(),
            Self::F32(v) => (*v).into(),
            Self::Bool(v) => (*v).into(),
            Self::Str(v) => (*v).into(),
            Self::Bools(v) => Value::Array(Array::from(v.as_slice())),
            Self::U32s(v) => Value::Array(Array::from(v.as_slice())),
            Self::Strs(v) => Value::Array(Array::from(v.iter().map(String::as_str).collect::<Vec<_>>())),
        }
    }
}

/// A tensor as it will lie in a file.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    /// Row length first.
    pub dims: Vec<u64>,
    pub ty: TensorType,
    pub bytes: Vec<u8>,
}

/// A model file in the making.
#[derive(Clone, Debug)]
pub struct File {
    pub arch: &'static str,
    pub metadata: Vec<(String, Meta)>,
    pub tensors: Vec<Tensor>,
    random: Random,
}

impl File {
    fn new(arch: &'static str) -> Self {
        let mut file = Self { arch, metadata: Vec::new(), tensors: Vec::new(), random: Random(7) };
        file.metadata.push(("general.architecture".into(), Meta::Str(arch)));
        let tokens = (0..N_VOCAB).map(|id| format!("t{id}")).collect();
        file.metadata.push(("tokenizer.ggml.tokens".into(), Meta::Strs(tokens)));
        file
    }

    /// Sets `<arch>.<name>`.
    pub fn set(&mut self, name: &str, value: Meta) -> &mut Self {
        self.unset(name);
        self.metadata.push((format!("{}.{name}", self.arch), value));
        self
    }

    /// Removes `<arch>.<name>`.
    pub fn unset(&mut self, name: &str) -> &mut Self {
        let name = format!("{}.{name}", self.arch);
        self.metadata.retain(|(key, _)| *key != name);
        self
    }

    /// The tensor of that name, or the place for it.
    pub fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    pub fn remove_tensor(&mut self, name: &str) -> &mut Self {
        self.tensors.retain(|tensor| tensor.name != name);
        self
    }

    /// Adds a tensor of f32 values.
    pub fn add_vector(&mut self, name: impl Into<String>, values: &[f32]) -> &mut Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensors.push(Tensor { name: name.into(), dims: vec![values.len() as u64], ty: TensorType::F32, bytes });
        self
    }

    /// Adds a matrix of random values. Its products keep about the size of what they multiply.
    pub fn add_matrix(&mut self, name: impl Into<String>, ty: WeightType, rows: usize, cols: usize) -> &mut Self {
        self.add_scaled_matrix(name, ty, rows, cols, 1.0)
    }

    /// Adds a matrix whose products have about `gain` times the size of what they multiply.
    fn add_scaled_matrix(
        &mut self,
        name: impl Into<String>,
        ty: WeightType,
        rows: usize,
        cols: usize,
        gain: f32,
    ) -> &mut Self {
        let scale = gain / (cols as f32).sqrt();
        let row_bytes = ty.row_bytes(cols).expect("whole blocks");
        let mut bytes = vec![0; rows * row_bytes];
        for row in bytes.chunks_exact_mut(row_bytes) {
            let values: Vec<f32> = (0..cols).map(|_| scale * self.random.bell()).collect();
            encode_row(ty, &values, row).expect("finite values");
        }
        let ty = TensorType::from_id(ty.ggml_id()).expect("a type that files have");
        self.tensors.push(Tensor { name: name.into(), dims: vec![cols as u64, rows as u64], ty, bytes });
        self
    }

    /// Adds gains around 1.
    fn add_gains(&mut self, name: impl Into<String>, len: usize) {
        let values: Vec<f32> = (0..len).map(|_| 1.0 + 0.2 * self.random.bell()).collect();
        self.add_vector(name, &values);
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        for (key, meta) in &self.metadata {
            writer.metadata(key, meta.value());
        }
        for Tensor { name, dims, ty, bytes } in &self.tensors {
            writer.tensor(name, dims, *ty, bytes).expect("a tensor that fits its shape");
        }
        let mut out = Vec::new();
        writer.write_to(&mut out).expect("a file that the parser accepts");
        out
    }

    /// What the metadata says, and the keys that were not understood.
    pub fn read(&self) -> Result<(ModelSpec, Vec<String>), Error> {
        let bytes = self.bytes();
        ModelSpec::read(&parsed(&bytes))
    }

    /// The spec of a file whose metadata is in order.
    pub fn spec(&self) -> ModelSpec {
        self.read().expect("usable metadata").0
    }

    /// All that is wrong with the metadata.
    pub fn metadata_problems(&self) -> Vec<String> {
        problems(self.read().map(|_| ()))
    }

    /// Opens the file as a program would.
    pub fn open(&self) -> Result<Arc<Model>, Error> {
        let bytes = self.bytes();
        let mut on_disk = tempfile::NamedTempFile::new().expect("a temporary file");
        on_disk.write_all(&bytes).expect("room for it");
        let set = parsed(&bytes);
        let (spec, _) = ModelSpec::read(&set)?;
        let arena = Arena::new(&Device::host(), vec![ModelFile::open(on_disk.path())?], regions(&set))?;
        Ok(Arc::new(Model::new(spec, &set, arena)?))
    }

    /// The model of a file that is in order.
    pub fn model(&self) -> Arc<Model> {
        self.open().expect("a usable file")
    }

    /// All that is wrong with the tensors of a file whose metadata is in order.
    pub fn tensor_problems(&self) -> Vec<String> {
        self.spec();
        problems(self.open().map(|_| ()))
    }
}

/// The only file of a model, parsed.
pub fn parsed(bytes: &[u8]) -> GgufSet<'_> {
    let gguf = Gguf::parse(bytes, bytes.len() as u64).expect("a parsable file");
    GgufSet::new(vec![gguf]).expect("a whole file")
}

fn problems(result: Result<(), Error>) -> Vec<String> {
    match result {
        Err(Error::Unusable { problems, .. }) => problems,
        Err(error) => panic!("expected a list of problems, found: {error}"),
        Ok(()) => panic!("expected a refusal"),
    }
}

/// Heads of `llama()`: the head dimension is not stated, so it is `N_EMBD / 4`.
pub const LLAMA_HEADS: Heads = Heads { n_layer: 3, n_head: 4, n_head_kv: 2, head_dim: 16 };
/// Heads of `gemma3()`: wider together than the residual stream. The sixth layer is global.
pub const GEMMA3_HEADS: Heads = Heads { n_layer: 7, n_head: 4, n_head_kv: 1, head_dim: 32 };
/// Heads of `muse_glimmer()`. The fourth and the eighth layer are global.
pub const MUSE_HEADS: Heads = Heads { n_layer: 8, n_head: 6, n_head_kv: 2, head_dim: 16 };

/// How many heads a model has, in how many layers.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    pub n_layer: usize,
    pub n_head: usize,
    pub n_head_kv: usize,
    pub head_dim: usize,
}

/// A `llama` whose embeddings serve as output matrix.
pub fn llama() -> File {
    let mut file = File::new("llama");
    common_keys(&mut file, LLAMA_HEADS);
    file.set("rope.dimension_count", Meta::U32(16));
    file.set("attention.layer_norm_rms_epsilon", Meta::F32(1e-5));
    common_tensors(&mut file, LLAMA_HEADS, 1.0);
    file
}

/// A `gemma3` without pattern key, whose global layers' positions are divided by 8.
pub fn gemma3() -> File {
    let mut file = File::new("gemma3");
    common_keys(&mut file, GEMMA3_HEADS);
    file.set("attention.key_length", Meta::U32(32)).set("attention.value_length", Meta::U32(32));
    file.set("attention.layer_norm_rms_epsilon", Meta::F32(1e-6));
    file.set("attention.sliding_window", Meta::U32(WINDOW as u32));
    file.set("rope.freq_base", Meta::F32(50_000.0));
    file.set("rope.scaling.type", Meta::Str("linear")).set("rope.scaling.factor", Meta::F32(8.0));
    common_tensors(&mut file, GEMMA3_HEADS, 1.0);
    for layer in 0..GEMMA3_HEADS.n_layer {
        file.add_gains(format!("blk.{layer}.attn_q_norm.weight"), GEMMA3_HEADS.head_dim);
        file.add_gains(format!("blk.{layer}.attn_k_norm.weight"), GEMMA3_HEADS.head_dim);
        post_norms(&mut file, layer);
    }
    file
}

/// A `muse-glimmer` whose branches are so small that the epsilon of their norms shows.
pub fn muse_glimmer() -> File {
    let mut file = File::new("muse-glimmer");
    common_keys(&mut file, MUSE_HEADS);
    file.set("attention.key_length", Meta::U32(16)).set("attention.value_length", Meta::U32(16));
    file.set("attention.layer_norm_rms_epsilon", Meta::F32(1e-5));
    file.set("attention.sliding_window", Meta::U32(WINDOW as u32));
    file.set("attention.sliding_window_pattern", Meta::U32(4));
    file.set("rope.freq_base", Meta::F32(500.0));
    file.set("logit_scale", Meta::F32(0.75)).set("final_logit_softcapping", Meta::F32(1.5));
    common_tensors(&mut file, MUSE_HEADS, 0.005);
    for layer in 0..MUSE_HEADS.n_layer {
        file.add_vector(format!("blk.{layer}.attn_q_norm.weight"), &[3.87; 16]);
        file.add_vector(format!("blk.{layer}.attn_k_norm.weight"), &[1.0; 16]);
        let q_width = MUSE_HEADS.n_head * MUSE_HEADS.head_dim;
        file.add_matrix(format!("blk.{layer}.attn_gate.weight"), WeightType::F16, q_width, N_EMBD);
        post_norms(&mut file, layer);
    }
    file.add_matrix("output.weight", WeightType::Q8_0, N_VOCAB, N_EMBD);
    file
}

/// One file of each architecture.
pub fn all() -> [File; 3] {
    [llama(), gemma3(), muse_glimmer()]
}

fn common_keys(file: &mut File, heads: Heads) {
    file.set("block_count", Meta::U32(heads.n_layer as u32));
    file.set("context_length", Meta::U32(N_CTX_TRAIN as u32));
    file.set("embedding_length", Meta::U32(N_EMBD as u32));
    file.set("feed_forward_length", Meta::U32(N_FF as u32));
    file.set("attention.head_count", Meta::U32(heads.n_head as u32));
    file.set("attention.head_count_kv", Meta::U32(heads.n_head_kv as u32));
}

/// `branch_gain` sizes what attention and feed-forward give.
fn common_tensors(file: &mut File, heads: Heads, branch_gain: f32) {
    let (q_width, kv_width) = (heads.n_head * heads.head_dim, heads.n_head_kv * heads.head_dim);
    file.add_matrix("token_embd.weight", WeightType::Q8_0, N_VOCAB, N_EMBD);
    file.add_gains("output_norm.weight", N_EMBD);
    for layer in 0..heads.n_layer {
        let name = |suffix: &str| format!("blk.{layer}.{suffix}.weight");
        file.add_gains(name("attn_norm"), N_EMBD);
        file.add_matrix(name("attn_q"), WeightType::Q5_0, q_width, N_EMBD);
        file.add_matrix(name("attn_k"), WeightType::Q8_0, kv_width, N_EMBD);
        file.add_matrix(name("attn_v"), WeightType::BF16, kv_width, N_EMBD);
        file.add_scaled_matrix(name("attn_output"), WeightType::F32, N_EMBD, q_width, branch_gain);
        file.add_gains(name("ffn_norm"), N_EMBD);
        file.add_matrix(name("ffn_gate"), WeightType::Q4_1, N_FF, N_EMBD);
        file.add_matrix(name("ffn_up"), WeightType::NVFP4, N_FF, N_EMBD);
        file.add_scaled_matrix(name("ffn_down"), WeightType::IQ4_NL, N_EMBD, N_FF, branch_gain);
    }
}

fn post_norms(file: &mut File, layer: usize) {
    file.add_gains(format!("blk.{layer}.post_attention_norm.weight"), N_EMBD);
    file.add_gains(format!("blk.{layer}.post_ffw_norm.weight"), N_EMBD);
}

/// A decoder, a backend and a cache for one sequence.
pub struct Run {
    pub decoder: Decoder,
    pub backend: Reference,
    pub cache: KvCache,
}

impl Run {
    pub fn new(model: &Arc<Model>, n_batch: usize, n_ctx: usize) -> Self {
        let device = Device::host();
        Self {
            decoder: Decoder::new(Arc::clone(model), &device, n_batch, n_ctx).expect("memory"),
            backend: reference(),
            cache: KvCache::new(model.spec(), &device, n_ctx).expect("memory"),
        }
    }

    /// The logits of each of `tokens`, processed in batches of the given lengths, and the rest in one.
    pub fn logits_of_all(&mut self, tokens: &[u32], cuts: &[usize]) -> Vec<Vec<f32>> {
        let mut left = tokens;
        let mut logits = Vec::new();
        for &n in cuts.iter().chain([&tokens.len()]) {
            let (batch, rest) = left.split_at(n.min(left.len()));
            if !batch.is_empty() {
                logits.extend(self.step(batch, None).expect("a batch that fits"));
            }
            left = rest;
        }
        logits
    }

    /// The logits of each of `tokens`, processed in one batch.
    pub fn step(&mut self, tokens: &[u32], taps: Option<&mut dyn TapSink>) -> Result<Vec<Vec<f32>>, Error> {
        let Self { decoder, backend, cache } = self;
        let n = decoder.forward(backend, &mut [Span { tokens, cache, logits: LogitRows::From(0) }], taps)?;
        all_logits(decoder, backend, n)
    }
}

pub fn reference() -> Reference {
    Reference::new(NonZero::<usize>::MIN)
}

/// The logits of all `n` selected tokens.
pub fn all_logits(decoder: &mut Decoder, backend: &mut dyn Backend, n: usize) -> Result<Vec<Vec<f32>>, Error> {
    (0..n).map(|row| Ok(decoder.logits(backend, row, 1, None)?.to_vec())).collect()
}

/// Repeatable tokens.
pub fn tokens(n: usize, seed: u64) -> Vec<u32> {
    let mut random = Random(seed);
    (0..n).map(|_| (random.bits() % N_VOCAB as u64) as u32).collect()
}

/// Repeatable random numbers (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A bell-shaped value around 0 with a deviation of 1.
    pub fn bell(&mut self) -> f32 {
        (0..12).map(|_| (self.bits() >> 40) as f32 / (1 << 24) as f32).sum::<f32>() - 6.0
    }
}
