//! Models from the cache folder, for the tests of this crate.

use muser_gguf::Gguf;
use muser_tests::model_path;
use muser_text::{Tokenizer, VocabSpec};
use std::fs::File;
use std::io::Read;

pub use muser_tests::model::{GEMMA3, SMOLLM2};

/// The metadata of a model file lies in its first bytes; these hold that of all models tested here.
const HEAD_BYTES: u64 = 32 << 20;

/// The start of a model file, and its length.
pub struct Model {
    head: Vec<u8>,
    len: u64,
}

impl Model {
    pub fn open(name: &str) -> Self {
        let file = File::open(model_path(name)).expect("the model can be read");
        let len = file.metadata().expect("an open file has metadata").len();
        let mut head = Vec::new();
        file.take(HEAD_BYTES).read_to_end(&mut head).expect("the file can be read");
        Self { head, len }
    }

    pub fn gguf(&self) -> Gguf<'_> {
        Gguf::parse(&self.head, self.len).expect("the file is valid")
    }
}

/// What a test may change of a file's vocabulary.
pub type Spec<'a> = VocabSpec<'a, &'a [&'a str], &'a [&'a str]>;

/// The tokeniser of a file, after `change` to what the file says.
pub fn tokenizer(gguf: &Gguf<'_>, change: impl FnOnce(&mut Spec<'_>)) -> Tokenizer {
    let meta = gguf.metadata();
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let id = |name: &str| meta.opt_u32(&key(&format!("{name}_token_id"))).expect("an id is an integer");
    let flag = |name: &str| meta.opt_bool(&key(name)).expect("a flag is a bool");
    let types = meta.opt_i32s(&key("token_type")).expect("types are integers");
    let scores = meta.opt_floats(&key("scores")).expect("scores are floats");
    let mut spec = VocabSpec {
        model: meta.str(&key("model")).expect("the file has a tokeniser"),
        pre: meta.opt_str(&key("pre")).expect("the name is a string"),
        tokens: meta.strs(&key("tokens")).expect("the file has tokens"),
        token_types: types.as_deref(),
        scores: scores.as_deref(),
        merges: meta.opt_strs(&key("merges")).expect("merges are strings"),
        bos: id("bos"),
        eos: id("eos"),
        eot: id("eot"),
        eom: id("eom"),
        unk: id("unknown"),
        pad: id("padding"),
        add_bos: flag("add_bos_token"),
        add_eos: flag("add_eos_token"),
        add_space_prefix: flag("add_space_prefix"),
    };
    change(&mut spec);
    Tokenizer::new(spec).expect("the vocabulary is valid")
}
