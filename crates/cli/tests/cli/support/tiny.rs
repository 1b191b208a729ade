//! A model of a few hundred kilobytes, to be changed in any place.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use muser_gguf::{Array, TensorType, Value, Writer};
use tempfile::TempDir;

/// Every width, so that rows are whole blocks of any type.
const WIDTH: u64 = 256;

/// A `llama` model of one layer, with a vocabulary of one token for each byte and one that ends a text.
#[derive(Clone)]
pub struct Tiny {
    metadata: Vec<(&'static str, Value<'static>)>,
    tensors: Vec<(&'static str, Vec<u64>, TensorType)>,
}

impl Tiny {
    pub fn new() -> Self {
        let mut tokens: Vec<&'static str> = byte_tokens().map(|token| &*token.to_string().leak()).collect();
        tokens.push("<|end|>");
        let n_vocab = tokens.len() as u64;
        let mut types = vec![1i32; tokens.len()];
        types[tokens.len() - 1] = 3;
        let metadata = vec![
            ("general.architecture", "llama".into()),
            ("llama.block_count", 1u32.into()),
            ("llama.context_length", 128u32.into()),
            ("llama.embedding_length", (WIDTH as u32).into()),
            ("llama.feed_forward_length", (WIDTH as u32).into()),
            ("llama.attention.head_count", 4u32.into()),
            ("llama.attention.head_count_kv", 4u32.into()),
            ("llama.attention.layer_norm_rms_epsilon", 1e-5f32.into()),
            ("llama.rope.dimension_count", 64u32.into()),
            ("tokenizer.ggml.model", "gpt2".into()),
            ("tokenizer.ggml.pre", "gpt-2".into()),
            ("tokenizer.ggml.tokens", Array::from(tokens).into()),
            ("tokenizer.ggml.token_type", Array::from(&types[..]).into()),
            ("tokenizer.ggml.merges", Array::from(Vec::<&str>::new()).into()),
            ("tokenizer.ggml.eos_token_id", (n_vocab as u32 - 1).into()),
        ];
        let square = || vec![WIDTH, WIDTH];
        let tensors = vec![
            ("token_embd.weight", vec![WIDTH, n_vocab], TensorType::Q8_0),
            ("blk.0.attn_norm.weight", vec![WIDTH], TensorType::F32),
            ("blk.0.attn_q.weight", square(), TensorType::Q8_0),
            ("blk.0.attn_k.weight", square(), TensorType::Q8_0),
            ("blk.0.attn_v.weight", square(), TensorType::Q8_0),
            ("blk.0.attn_output.weight", square(), TensorType::Q8_0),
            ("blk.0.ffn_norm.weight", vec![WIDTH], TensorType::F32),
            ("blk.0.ffn_gate.weight", square(), TensorType::Q8_0),
            ("blk.0.ffn_up.weight", square(), TensorType::Q8_0),
            ("blk.0.ffn_down.weight", square(), TensorType::Q8_0),
            ("output_norm.weight", vec![WIDTH], TensorType::F32),
        ];
        Self { metadata, tensors }
    }

    /// With room for an answer that outlasts any test: all tokens are as likely, the first is taken, and none ends it.
    pub fn endless() -> Self {
        Self::new().with("llama.context_length", 1_000_000u32)
    }

    /// Gives a key another value, or adds it.
    pub fn with(mut self, key: &'static str, value: impl Into<Value<'static>>) -> Self {
        self.metadata.retain(|(name, _)| *name != key);
        self.metadata.push((key, value.into()));
        self
    }

    pub fn without(mut self, key: &'static str) -> Self {
        self.metadata.retain(|(name, _)| *name != key);
        self
    }

    /// Gives a tensor another type.
    pub fn retyped(mut self, tensor: &str, ty: TensorType) -> Self {
        self.tensors.iter_mut().filter(|(name, ..)| *name == tensor).for_each(|(_, _, old)| *old = ty);
        self
    }

    /// A file of a set that holds the model: some of its tensors, and all metadata if it is the first. `index` counts from
    /// 0, and `n_tensors` are those of the whole set by its account.
    pub fn shard(mut self, index: u16, count: u16, n_tensors: i32, tensors: Range<usize>) -> Self {
        if index > 0 {
            self.metadata.clear();
        }
        self.tensors = self.tensors[tensors].to_vec();
        self.with("split.no", index).with("split.count", count).with("split.tensors.count", n_tensors)
    }

    /// Writes the file to a new folder.
    pub fn place(&self) -> Place {
        let place = Place::new();
        self.write(&place.path());
        place
    }

    /// Writes the file. All weights are zero.
    pub fn write(&self, path: &Path) {
        let mut writer = Writer::new();
        for (key, value) in &self.metadata {
            writer.metadata(key, value.clone());
        }
        let zeros = vec![0; 1 << 20];
        for (name, dims, ty) in &self.tensors {
            let size_bytes = dims.iter().product::<u64>() / ty.block_len() * ty.block_bytes();
            writer.tensor(name, dims, *ty, &zeros[..size_bytes as usize]).expect("it is a tensor");
        }
        let mut file = File::create(path).expect("it can be made");
        writer.write_to(&mut file).expect("the parser accepts it");
    }
}

/// How byte-level vocabularies spell each byte: printable ones as themselves, others as characters from U+0100 on. The
/// letter `a` comes first.
fn byte_tokens() -> impl Iterator<Item = char> {
    let is_printable = |byte| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut others = (0x100..).map(|code| char::from_u32(code).expect("a character"));
    let mut tokens: Vec<char> = (0..=u8::MAX)
        .map(|byte| if is_printable(byte) { char::from(byte) } else { others.next().expect("one more") })
        .collect();
    tokens.rotate_left(usize::from(b'a'));
    tokens.into_iter()
}

/// A folder with one file in it.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.0.path().join("model.gguf")
    }

    /// The file, with these bytes in it.
    pub fn holding(&self, bytes: &[u8]) -> PathBuf {
        fs::write(self.path(), bytes).expect("it can be written");
        self.path()
    }

    /// The file, with this model in it.
    pub fn holding_tiny(&self, model: &Tiny) -> PathBuf {
        model.write(&self.path());
        self.path()
    }
}
