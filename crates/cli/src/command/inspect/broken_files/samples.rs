//! Valid model files of a few KiB, one for each kind that can be run. Weights are ones in F32, and zeros in other types.

use std::borrow::Cow;

use muser_gguf::{Array, TensorType, Value, Writer};

/// A model file in the making, whose entries can be changed in any way.
#[derive(Clone)]
pub struct Sample<'a> {
    /// What kind it stands for.
    pub name: &'static str,
    pub metadata: Vec<(Cow<'a, str>, Value<'a>)>,
    pub tensors: Vec<(Cow<'a, str>, Vec<u64>, TensorType)>,
}

/// The shape of a sample.
#[derive(Clone, Copy)]
struct Shape {
    arch: &'static str,
    n_layer: u64,
    n_embd: u64,
    n_head: u64,
    n_head_kv: u64,
    head_dim: u64,
    n_ff: u64,
    n_vocab: u64,
    /// Types of the matrices, in turn.
    types: &'static [TensorType],
    has_post_norms: bool,
}

/// Every sample.
pub fn all() -> [Sample<'static>; 5] {
    [llama(), gemma3(), muse_glimmer(), quantised(), sentencepiece()]
}

/// Byte-level BPE, an alignment of its own, a chat template, factors of rotary frequencies, no head of its own.
fn llama() -> Sample<'static> {
    let shape = Shape {
        arch: "llama",
        n_layer: 1,
        n_embd: 32,
        n_head: 2,
        n_head_kv: 1,
        head_dim: 16,
        n_ff: 64,
        n_vocab: BYTE_TOKENS.len() as u64,
        types: &[TensorType::F32, TensorType::F16, TensorType::BF16],
        has_post_norms: false,
    };
    let mut sample = Sample::new("llama", shape);
    sample.set("general.alignment", 64_u32);
    sample.set("llama.vocab_size", BYTE_TOKENS.len() as u32);
    sample.set("llama.rope.dimension_count", 16_u32);
    sample.set("llama.rope.freq_base", 10_000.0_f32);
    sample.byte_level("gpt-2");
    sample.set("tokenizer.chat_template", "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}");
    sample.vector("rope_freqs.weight", 8);
    sample
}

/// SentencePiece-style BPE, a pattern of windows as an array, two rotary bases.
fn gemma3() -> Sample<'static> {
    let shape = Shape {
        arch: "gemma3",
        n_layer: 2,
        n_embd: 32,
        n_head: 2,
        n_head_kv: 1,
        head_dim: 32,
        n_ff: 32,
        n_vocab: SCORED_TOKENS.len() as u64,
        types: &[TensorType::Q8_0],
        has_post_norms: true,
    };
    let mut sample = Sample::new("gemma3", shape);
    sample.head_dims(shape);
    sample.set("gemma3.attention.sliding_window", 8_u32);
    sample.set("gemma3.attention.sliding_window_pattern", Array::from(&[true, false][..]));
    sample.set("gemma3.rope.scaling.type", "linear");
    sample.set("gemma3.rope.scaling.factor", 8.0_f32);
    sample.scored();
    sample.qk_norms(shape);
    sample
}

/// A pattern of windows as a period, a gate, a head of its own, capped logits.
fn muse_glimmer() -> Sample<'static> {
    let shape = Shape {
        arch: "muse-glimmer",
        n_layer: 2,
        n_embd: 32,
        n_head: 4,
        n_head_kv: 2,
        head_dim: 8,
        n_ff: 32,
        n_vocab: BYTE_TOKENS.len() as u64,
        types: &[TensorType::F32],
        has_post_norms: true,
    };
    let mut sample = Sample::new("muse-glimmer", shape);
    sample.head_dims(shape);
    sample.set("muse-glimmer.attention.sliding_window", 8_u32);
    sample.set("muse-glimmer.attention.sliding_window_pattern", 2_u32);
    sample.set("muse-glimmer.rope.freq_base", 500_000.0_f32);
    sample.set("muse-glimmer.logit_scale", 0.5_f32);
    sample.set("muse-glimmer.final_logit_softcapping", 20.0_f32);
    sample.byte_level("llama4");
    sample.qk_norms(shape);
    for layer in 0..shape.n_layer {
        sample.matrix(format!("blk.{layer}.attn_gate.weight"), shape, [shape.n_embd, shape.n_head * shape.head_dim]);
    }
    sample.matrix("output.weight", shape, [shape.n_embd, shape.n_vocab]);
    sample
}

/// Many weight types in one file, a factor beside an NVFP4 matrix, counts for each layer, stretched positions.
fn quantised() -> Sample<'static> {
    let shape = Shape {
        arch: "llama",
        n_layer: 2,
        n_embd: 64,
        n_head: 2,
        n_head_kv: 2,
        head_dim: 32,
        n_ff: 64,
        n_vocab: BYTE_TOKENS.len() as u64,
        types: &[
            TensorType::Q4_0,
            TensorType::Q4_1,
            TensorType::Q5_0,
            TensorType::Q5_1,
            TensorType::Q8_0,
            TensorType::IQ4_NL,
            TensorType::MXFP4,
            TensorType::NVFP4,
        ],
        has_post_norms: false,
    };
    let mut sample = Sample::new("quantised", shape);
    sample.set("llama.feed_forward_length", Array::from(&[64_u32, 64][..]));
    sample.set("llama.rope.scaling.type", "yarn");
    sample.set("llama.rope.scaling.factor", 4.0_f32);
    sample.set("llama.rope.scaling.original_context_length", 64_u32);
    sample.byte_level("smollm");
    let nvfp4 = sample.tensors.iter().find(|(.., ty)| *ty == TensorType::NVFP4).expect("there is one").0.clone();
    sample.vector(nvfp4.replace(".weight", ".scale"), 1);
    sample
}

/// SentencePiece-style BPE without byte tokens, beside a head of its own.
fn sentencepiece() -> Sample<'static> {
    let shape = Shape {
        arch: "llama",
        n_layer: 1,
        n_embd: 32,
        n_head: 1,
        n_head_kv: 1,
        head_dim: 32,
        n_ff: 32,
        n_vocab: SCORED_TOKENS.len() as u64,
        types: &[TensorType::Q4_0],
        has_post_norms: false,
    };
    let mut sample = Sample::new("sentencepiece", shape);
    sample.scored();
    sample.set("tokenizer.ggml.add_bos_token", true);
    sample.set("tokenizer.ggml.add_space_prefix", false);
    sample.set("general.file_type", 2_u64);
    sample.set("general.quantization_version", -2_i64);
    sample.set("general.tags", Array::from(vec!["tiny", "Größe"]));
    sample.matrix("output.weight", shape, [shape.n_embd, shape.n_vocab]);
    sample
}

/// A byte-level vocabulary of a few letters.
const BYTE_TOKENS: [&str; 9] = ["a", "b", "c", "Ġ", "ab", "Ġa", "abc", "<|end|>", "<|user|>"];
const SCORED_TOKENS: [&str; 7] = ["<unk>", "<s>", "</s>", "a", "b", "▁a", "ab"];

impl<'a> Sample<'a> {
    /// What all kinds have: the shape's own keys and tensors.
    fn new(name: &'static str, shape: Shape) -> Self {
        let mut sample = Self { name, metadata: Vec::new(), tensors: Vec::new() };
        sample.set("general.architecture", shape.arch);
        let key = |key: &str| format!("{}.{key}", shape.arch);
        sample.set(key("block_count"), shape.n_layer as u32);
        sample.set(key("context_length"), 128_u32);
        sample.set(key("embedding_length"), shape.n_embd as u32);
        sample.set(key("feed_forward_length"), shape.n_ff as u32);
        sample.set(key("attention.head_count"), shape.n_head as u32);
        sample.set(key("attention.head_count_kv"), shape.n_head_kv as u32);
        sample.set(key("attention.layer_norm_rms_epsilon"), 1e-5_f32);

        let (q_width, kv_width) = (shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim);
        sample.matrix("token_embd.weight", shape, [shape.n_embd, shape.n_vocab]);
        sample.vector("output_norm.weight", shape.n_embd);
        for layer in 0..shape.n_layer {
            let name = |name: &str| format!("blk.{layer}.{name}.weight");
            sample.vector(name("attn_norm"), shape.n_embd);
            sample.matrix(name("attn_q"), shape, [shape.n_embd, q_width]);
            sample.matrix(name("attn_k"), shape, [shape.n_embd, kv_width]);
            sample.matrix(name("attn_v"), shape, [shape.n_embd, kv_width]);
            sample.matrix(name("attn_output"), shape, [q_width, shape.n_embd]);
            sample.vector(name("ffn_norm"), shape.n_embd);
            sample.matrix(name("ffn_gate"), shape, [shape.n_embd, shape.n_ff]);
            sample.matrix(name("ffn_up"), shape, [shape.n_embd, shape.n_ff]);
            sample.matrix(name("ffn_down"), shape, [shape.n_ff, shape.n_embd]);
            if shape.has_post_norms {
                sample.vector(name("post_attention_norm"), shape.n_embd);
                sample.vector(name("post_ffw_norm"), shape.n_embd);
            }
        }
        sample
    }

    /// Gives a key another value, or adds it.
    pub fn set(&mut self, key: impl Into<Cow<'a, str>>, value: impl Into<Value<'a>>) {
        let (key, value) = (key.into(), value.into());
        match self.metadata.iter_mut().find(|(name, _)| *name == key) {
            Some((_, old)) => *old = value,
            None => self.metadata.push((key, value)),
        }
    }

    /// The file's bytes.
    ///
    /// # Errors
    /// The parser would not accept it.
    pub fn bytes(&self) -> Result<Vec<u8>, muser_gguf::Error> {
        let mut writer = Writer::new();
        for (key, value) in &self.metadata {
            writer.metadata(key, value.clone());
        }
        let ones = 1_f32.to_le_bytes().repeat(1 << 12);
        let zeros = vec![0; ones.len()];
        for (name, dims, ty) in &self.tensors {
            let n = dims.iter().try_fold(1_u64, |n, &dim| n.checked_mul(dim)).unwrap_or(u64::MAX);
            let size_bytes = (n / ty.block_len()).saturating_mul(ty.block_bytes()).min(zeros.len() as u64);
            let data = if *ty == TensorType::F32 { &ones } else { &zeros };
            writer.tensor(name, dims, *ty, &data[..size_bytes as usize])?;
        }
        let mut out = Vec::new();
        writer.write_to(&mut out)?;
        Ok(out)
    }

    fn head_dims(&mut self, shape: Shape) {
        self.set(format!("{}.attention.key_length", shape.arch), shape.head_dim as u32);
        self.set(format!("{}.attention.value_length", shape.arch), shape.head_dim as u32);
    }

    fn qk_norms(&mut self, shape: Shape) {
        for layer in 0..shape.n_layer {
            self.vector(format!("blk.{layer}.attn_q_norm.weight"), shape.head_dim);
            self.vector(format!("blk.{layer}.attn_k_norm.weight"), shape.head_dim);
        }
    }

    fn byte_level(&mut self, pre: &'static str) {
        self.set("tokenizer.ggml.model", "gpt2");
        self.set("tokenizer.ggml.pre", pre);
        self.set("tokenizer.ggml.tokens", Array::from(BYTE_TOKENS.to_vec()));
        self.set("tokenizer.ggml.token_type", Array::from(&[1_i32, 1, 1, 1, 1, 1, 1, 3, 3][..]));
        self.set("tokenizer.ggml.merges", Array::from(vec!["a b", "Ġ a", "ab c"]));
        self.set("tokenizer.ggml.bos_token_id", 8_u32);
        self.set("tokenizer.ggml.eos_token_id", 7_u32);
        self.set("tokenizer.ggml.add_bos_token", false);
    }

    fn scored(&mut self) {
        self.set("tokenizer.ggml.model", "llama");
        self.set("tokenizer.ggml.tokens", Array::from(SCORED_TOKENS.to_vec()));
        self.set("tokenizer.ggml.scores", Array::from(&[0.0_f32, 0.0, 0.0, -1.0, -2.0, -3.5, -4.0][..]));
        self.set("tokenizer.ggml.token_type", Array::from(&[2_i32, 3, 3, 1, 1, 1, 1][..]));
        self.set("tokenizer.ggml.bos_token_id", 1_u32);
        self.set("tokenizer.ggml.eos_token_id", 2_u32);
        self.set("tokenizer.ggml.unknown_token_id", 0_u32);
    }

    /// Adds a matrix of the shape's next type.
    fn matrix(&mut self, name: impl Into<Cow<'a, str>>, shape: Shape, dims: [u64; 2]) {
        let ty = shape.types[self.tensors.len() % shape.types.len()];
        self.tensors.push((name.into(), dims.to_vec(), ty));
    }

    fn vector(&mut self, name: impl Into<Cow<'a, str>>, len: u64) {
        self.tensors.push((name.into(), vec![len], TensorType::F32));
    }
}
