//! From a path to a model that is ready to run.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use muser_gguf::{Gguf, Metadata};
use muser_memory::{Arena, Device, ModelFile};
use muser_model::{Model, ModelSpec, regions};
use muser_text::template::ChatTemplate;
use muser_text::{Tokenizer, VocabSpec};

use crate::Error;
use crate::error::BadModel;

/// A model file, opened: its vocabulary and chat template, and, unless only those were asked for, its weights.
pub struct Loaded {
    /// The weights.
    pub model: Arc<Model>,
    /// The vocabulary.
    pub tokenizer: Arc<Tokenizer>,
    /// The chat template, if the file has one.
    pub template: Option<ChatTemplate>,
    /// How loading went.
    pub report: LoadReport,
}

/// How loading went.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// From opening the file to being ready.
    pub elapsed: Duration,
    /// Bytes of the file that are mapped.
    pub bytes_mapped: u64,
    /// Bytes of weights that were copied.
    pub bytes_copied: u64,
    /// Keys of the file that this engine does not know, and that may matter.
    pub unknown_keys: Vec<String>,
}

/// What a caller may ask of the loader.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Splits text into words as this pre-tokeniser does, whatever the file says.
    pub force_pre: Option<String>,
}

/// Opens a model file and prepares everything that running it needs.
///
/// # Errors
/// When the file can't be opened ([`Error::Memory`]) or is not a model that can be run ([`Error::BadModel`]).
pub fn load(path: &Path, device: &Device, options: &LoadOptions) -> Result<Loaded, Error> {
    let started = Instant::now();
    let file = ModelFile::open(path)?;
    let bad = |source: BadModel| Error::BadModel { path: path.to_owned(), source: Box::new(source) };
    let mapping = Arc::clone(file.mapping());
    let gguf = Gguf::parse(mapping.as_slice(), mapping.as_slice().len() as u64).map_err(|error| bad(error.into()))?;
    // Everything that the header alone can refuse is refused before any weight is touched.
    let (spec, unknown_keys) = ModelSpec::read(&gguf).map_err(|error| bad(error.into()))?;
    let arena = Arena::new(device, vec![file], regions(&gguf)).map_err(|error| bad(error.into()))?;
    let bytes_copied = if arena.windows().iter().all(muser_memory::GpuBytes::is_mapped) {
        0
    } else {
        arena.windows().iter().map(|window| window.len() as u64).sum()
    };
    let model = Model::new(spec, &gguf, arena).map_err(|error| bad(error.into()))?;
    let tokenizer = read_tokenizer(&gguf, options).map_err(bad)?;
    let template = read_template(&gguf, &tokenizer).map_err(bad)?;
    let bytes_mapped = mapping.as_slice().len() as u64;
    let report = LoadReport { elapsed: started.elapsed(), bytes_mapped, bytes_copied, unknown_keys };
    Ok(Loaded { model: Arc::new(model), tokenizer: Arc::new(tokenizer), template, report })
}

/// Reads a file's vocabulary.
///
/// # Errors
/// When keys are missing, have other types than they must, or contradict each other.
pub fn read_tokenizer(gguf: &Gguf<'_>, options: &LoadOptions) -> Result<Tokenizer, BadModel> {
    let metadata = gguf.metadata();
    let bytes = |key| metadata.opt_strs(key).map(|strs| strs.map(|strs| strs.iter().map(|text| text.as_bytes())));
    let tokens = metadata.strs("tokenizer.ggml.tokens")?;
    let token_types = opt_array(metadata, "tokenizer.ggml.token_type", tokens.len(), Metadata::opt_i32s)?;
    let scores = opt_array(metadata, "tokenizer.ggml.scores", tokens.len(), Metadata::opt_floats)?;
    let id = |name: &str| metadata.opt_u32(&format!("tokenizer.ggml.{name}_token_id"));
    let spec = VocabSpec {
        pre: options.force_pre.as_deref().or(metadata.opt_str("tokenizer.ggml.pre")?),
        token_types: token_types.as_deref(),
        scores: scores.as_deref(),
        bos: id("bos")?,
        eos: id("eos")?,
        eot: id("eot")?,
        eom: id("eom")?,
        unk: id("unknown")?,
        pad: id("padding")?,
        add_bos: metadata.opt_bool("tokenizer.ggml.add_bos_token")?,
        add_eos: metadata.opt_bool("tokenizer.ggml.add_eos_token")?,
        add_space_prefix: metadata.opt_bool("tokenizer.ggml.add_space_prefix")?,
        ..VocabSpec::new(
            metadata.str("tokenizer.ggml.model")?,
            tokens.iter().map(|text| text.as_bytes()),
            bytes("tokenizer.ggml.merges")?,
        )
    };
    Ok(Tokenizer::new(spec)?)
}

/// An array that has one entry for each token.
fn opt_array<'a, T>(
    metadata: &Metadata<'a>,
    key: &str,
    n_vocab: usize,
    read: impl Fn(&Metadata<'a>, &str) -> muser_gguf::Result<Option<T>>,
) -> Result<Option<T>, BadModel> {
    if metadata.contains(key) {
        metadata.expect_len(key, n_vocab)?;
    }
    Ok(read(metadata, key)?)
}

/// Reads a file's chat template, if it has one.
///
/// # Errors
/// When it is no template.
pub fn read_template(gguf: &Gguf<'_>, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>, BadModel> {
    let Some(source) = gguf.metadata().opt_str("tokenizer.chat_template")? else { return Ok(None) };
    let text = |id: Option<u32>| {
        let bytes = id.and_then(|id| tokenizer.token_bytes(id)).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    Ok(Some(ChatTemplate::new(source, &text(tokenizer.bos()), &text(tokenizer.eos()))?))
}
