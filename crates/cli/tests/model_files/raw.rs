//! A valid model file put together byte by byte, so that any of it can be wrong.

/// Ids of value types, as the format numbers them.
pub const U8: u32 = 0;
pub const U16: u32 = 2;
pub const U32: u32 = 4;
pub const I32: u32 = 5;
pub const F32: u32 = 6;
pub const BOOL: u32 = 7;
pub const STR: u32 = 8;
pub const ARRAY: u32 = 9;
pub const U64: u32 = 10;
pub const I64: u32 = 11;
pub const F64: u32 = 12;

/// Ids of tensor types.
pub const TENSOR_F32: u32 = 0;
pub const TENSOR_Q8_0: u32 = 8;

/// Elements of a block and its bytes, by id, of the types that the files here use.
const BLOCKS: [(u32, u64, u64); 2] = [(TENSOR_F32, 1, 4), (TENSOR_Q8_0, 32, 34)];

/// Width of the residual stream: whole blocks of any type.
pub const N_EMBD: u64 = 256;
/// Heads have this width, and so have queries, keys, values and the feed-forward block.
pub const NARROW: u64 = 32;

/// A file in the making. Counts and offsets are what they must be, unless set.
#[derive(Clone)]
pub struct Raw {
    pub magic: [u8; 4],
    pub version: [u8; 4],
    pub n_tensors: Option<u64>,
    pub n_metadata: Option<u64>,
    /// What the data's start and every tensor's is padded to, whatever the metadata say.
    pub alignment: u64,
    pub metadata: Vec<(String, u32, Vec<u8>)>,
    pub tensors: Vec<Tensor>,
}

/// An entry of the tensor table, and how much data the file has for it.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub dims: Vec<u64>,
    pub ty: u32,
    /// From the start of the data; after the tensor before it if not set.
    pub offset: Option<u64>,
    pub size_bytes: u64,
}

impl Raw {
    /// A `llama` of one layer whose byte-level vocabulary has [`BYTE_TOKENS`].
    pub fn byte_level() -> Self {
        Self::with_vocabulary(&BYTE_TOKENS)
            .with("tokenizer.ggml.model", STR, &str("gpt2"))
            .with("tokenizer.ggml.pre", STR, &str("gpt-2"))
            .with("tokenizer.ggml.token_type", ARRAY, &i32s(&[1, 1, 1, 1, 1, 3, 3]))
            .with("tokenizer.ggml.merges", ARRAY, &strs(&["a b"]))
            .with("tokenizer.ggml.bos_token_id", U32, &6_u32.to_le_bytes())
            .with("tokenizer.ggml.eos_token_id", U32, &5_u32.to_le_bytes())
            .with("tokenizer.ggml.add_bos_token", BOOL, &[1])
    }

    /// A `llama` of one layer whose vocabulary has [`SCORED_TOKENS`].
    pub fn scored() -> Self {
        Self::with_vocabulary(&SCORED_TOKENS)
            .with("tokenizer.ggml.model", STR, &str("llama"))
            .with("tokenizer.ggml.scores", ARRAY, &f32s(&[0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0]))
            .with("tokenizer.ggml.token_type", ARRAY, &i32s(&[2, 3, 3, 1, 1, 1, 1]))
            .with("tokenizer.ggml.bos_token_id", U32, &1_u32.to_le_bytes())
            .with("tokenizer.ggml.eos_token_id", U32, &2_u32.to_le_bytes())
            .with("tokenizer.ggml.unknown_token_id", U32, &0_u32.to_le_bytes())
    }

    fn with_vocabulary(tokens: &[&str]) -> Self {
        let raw = Self {
            magic: *b"GGUF",
            version: 3_u32.to_le_bytes(),
            n_tensors: None,
            n_metadata: None,
            alignment: 32,
            metadata: Vec::new(),
            tensors: Vec::new(),
        };
        let count = |count: u64| (count as u32).to_le_bytes();
        raw.with("general.architecture", STR, &str("llama"))
            .with("llama.block_count", U32, &count(1))
            .with("llama.context_length", U32, &count(4096))
            .with("llama.embedding_length", U32, &count(N_EMBD))
            .with("llama.feed_forward_length", U32, &count(NARROW))
            .with("llama.attention.head_count", U32, &count(1))
            .with("llama.attention.head_count_kv", U32, &count(1))
            .with("llama.attention.key_length", U32, &count(NARROW))
            .with("llama.attention.value_length", U32, &count(NARROW))
            .with("llama.attention.layer_norm_rms_epsilon", F32, &1e-5_f32.to_le_bytes())
            .with("tokenizer.ggml.tokens", ARRAY, &strs(tokens))
            .tensor("token_embd.weight", &[N_EMBD, tokens.len() as u64], TENSOR_Q8_0)
            .tensor("blk.0.attn_norm.weight", &[N_EMBD], TENSOR_F32)
            .tensor("blk.0.attn_q.weight", &[N_EMBD, NARROW], TENSOR_Q8_0)
            .tensor("blk.0.attn_k.weight", &[N_EMBD, NARROW], TENSOR_Q8_0)
            .tensor("blk.0.attn_v.weight", &[N_EMBD, NARROW], TENSOR_Q8_0)
            .tensor("blk.0.attn_output.weight", &[NARROW, N_EMBD], TENSOR_Q8_0)
            .tensor("blk.0.ffn_norm.weight", &[N_EMBD], TENSOR_F32)
            .tensor("blk.0.ffn_gate.weight", &[N_EMBD, NARROW], TENSOR_Q8_0)
            .tensor("blk.0.ffn_up.weight", &[N_EMBD, NARROW], TENSOR_Q8_0)
            .tensor("blk.0.ffn_down.weight", &[NARROW, N_EMBD], TENSOR_Q8_0)
            .tensor("output_norm.weight", &[N_EMBD], TENSOR_F32)
    }

    /// Gives a key another type and value, or adds it.
    pub fn with(mut self, key: &str, ty: u32, value: &[u8]) -> Self {
        match self.metadata.iter_mut().find(|(name, ..)| name == key) {
            Some(entry) => (entry.1, entry.2) = (ty, value.to_vec()),
            None => self.metadata.push((key.to_owned(), ty, value.to_vec())),
        }
        self
    }

    /// Adds an entry, whether or not its key is there.
    pub fn entry(mut self, key: &str, ty: u32, value: &[u8]) -> Self {
        self.metadata.push((key.to_owned(), ty, value.to_vec()));
        self
    }

    pub fn without(mut self, key: &str) -> Self {
        self.metadata.retain(|(name, ..)| name != key);
        self
    }

    pub fn without_tensors(mut self, prefix: &str) -> Self {
        self.tensors.retain(|tensor| !tensor.name.starts_with(prefix));
        self
    }

    /// Adds a tensor after the others.
    pub fn tensor(mut self, name: &str, dims: &[u64], ty: u32) -> Self {
        let (_, block_len, block_bytes) = *BLOCKS.iter().find(|(id, ..)| *id == ty).expect("a type of these files");
        let size_bytes = dims.iter().product::<u64>() / block_len * block_bytes;
        self.tensors.push(Tensor { name: name.to_owned(), dims: dims.to_vec(), ty, offset: None, size_bytes });
        self
    }

    /// Changes a tensor's entry.
    pub fn changed(mut self, name: &str, change: impl FnOnce(&mut Tensor)) -> Self {
        change(self.tensors.iter_mut().find(|tensor| tensor.name == name).expect("it is there"));
        self
    }

    /// The file: zeros for all data, padded after every tensor.
    pub fn file(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version);
        out.extend(self.n_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.n_metadata.unwrap_or(self.metadata.len() as u64).to_le_bytes());
        for (key, ty, value) in &self.metadata {
            out.extend(str(key));
            out.extend(ty.to_le_bytes());
            out.extend(value);
        }
        let mut data_len = 0;
        for tensor in &self.tensors {
            out.extend(str(&tensor.name));
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            out.extend(tensor.dims.iter().flat_map(|dim| dim.to_le_bytes()));
            out.extend(tensor.ty.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(data_len).to_le_bytes());
            data_len = (data_len + tensor.size_bytes).next_multiple_of(self.alignment);
        }
        let data_start = (out.len() as u64).next_multiple_of(self.alignment);
        out.resize((data_start + data_len) as usize, 0);
        out
    }
}

/// Letters, a space, and two control tokens: one ends a text, one begins it.
pub const BYTE_TOKENS: [&str; 7] = ["a", "b", "x", "Ġ", "ab", "<|end|>", "<|begin|>"];
/// Unknown text, two control tokens, and letters.
pub const SCORED_TOKENS: [&str; 7] = ["<unk>", "<s>", "</s>", "a", "b", "▁a", "ab"];

pub fn str(str: &str) -> Vec<u8> {
    [&(str.len() as u64).to_le_bytes(), str.as_bytes()].concat()
}

/// An array's value; its elements can be fewer bytes than `len` says.
pub fn array(elem_type: u32, len: u64, elems: &[u8]) -> Vec<u8> {
    [&elem_type.to_le_bytes()[..], &len.to_le_bytes(), elems].concat()
}

pub fn strs(strs: &[&str]) -> Vec<u8> {
    array(STR, strs.len() as u64, &strs.iter().flat_map(|text| str(text)).collect::<Vec<_>>())
}

pub fn i32s(ints: &[i32]) -> Vec<u8> {
    array(I32, ints.len() as u64, &ints.iter().flat_map(|int| int.to_le_bytes()).collect::<Vec<_>>())
}

pub fn f32s(floats: &[f32]) -> Vec<u8> {
    array(F32, floats.len() as u64, &floats.iter().flat_map(|float| float.to_le_bytes()).collect::<Vec<_>>())
}
