//! From a path to a model that is ready to run.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use muser_gguf::{Gguf, Metadata, Shard};
use muser_memory::{Arena, Device, ModelFile, OnProgress, Plan};
use muser_model::{Model, ModelSpec, regions};
use muser_text::template::ChatTemplate;
use muser_text::{Tokenizer, VocabSpec};

use crate::Error;
use crate::error::BadModel;
use crate::plan::{PlanOptions, plan};

/// A model file, opened and ready to run.
pub struct Loaded {
    /// The weights.
    pub model: Arc<Model>,
    /// The vocabulary.
    pub tokenizer: Arc<Tokenizer>,
    /// The chat template, if the file has one.
    pub template: Option<ChatTemplate>,
    /// The context of each slot, in tokens.
    pub n_ctx: usize,
    /// What memory it takes.
    pub plan: Plan,
    /// How loading went.
    pub report: LoadReport,
}

/// How loading went.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// From opening the file to being ready.
    pub elapsed: Duration,
    /// How the weights came into memory.
    pub weights: muser_memory::LoadReport,
    /// Keys of the file that this engine does not know, and that may matter.
    pub unknown_keys: Vec<String>,
}

/// What a caller may ask of the loader.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// How weights come into memory.
    pub weights: muser_memory::LoadOptions,
    /// What memory is planned for.
    pub plan: PlanOptions,
    /// Splits text into words as this pre-tokeniser does, whatever the file says.
    pub force_pre: Option<String>,
}

/// Opens a model file and prepares everything that running it needs.
///
/// What the header alone can refuse is refused before any weight is touched, and so is what does not fit into memory.
///
/// # Errors
/// When the file can't be opened or read, or its plan does not fit ([`Error::Memory`]); when it is not a model that can be
/// run ([`Error::BadModel`]); when `on_progress` breaks ([`Error::Interrupted`]).
pub fn load(
    path: &Path,
    device: &Device,
    options: &LoadOptions,
    on_progress: &OnProgress<'_>,
) -> Result<Loaded, Error> {
    let started = Instant::now();
    let file = open(path)?;
    let bad = |source| bad(path, source);
    let header = Header::read(&file, options.force_pre.as_deref()).map_err(bad)?;
    let Header { gguf, spec, unknown_keys, tokenizer, template } = header;
    let (n_ctx, plan) = plan(&spec, weight_bytes(&gguf), options.weights.policy, options.plan)?;
    let loaded = Arena::load(device, vec![file.clone()], regions(&gguf), &options.weights, on_progress);
    let (arena, weights) = loaded.map_err(|error| match error {
        muser_memory::Error::Cancelled { .. } => Error::Interrupted,
        error => Error::Memory(error),
    })?;
    let model = Model::new(spec, &gguf, arena).map_err(|error| bad(error.into()))?;
    let report = LoadReport { elapsed: started.elapsed(), weights, unknown_keys };
    Ok(Loaded { model: Arc::new(model), tokenizer: Arc::new(tokenizer), template, n_ctx, plan, report })
}

/// Finds out whether a model file can be run, without bringing its weights into memory.
///
/// # Errors
/// As [`load`], but for what has to do with memory.
pub fn check(path: &Path) -> Result<(), Error> {
    let file = open(path)?;
    Header::read(&file, None).map(|_| ()).map_err(|source| bad(path, source))
}

/// What a file says before its weights, found to make a model that can be run.
struct Header<'a> {
    gguf: Gguf<'a>,
    spec: ModelSpec,
    unknown_keys: Vec<String>,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
}

impl<'a> Header<'a> {
    fn read(file: &'a ModelFile, force_pre: Option<&str>) -> Result<Self, BadModel> {
        let gguf = Gguf::parse(file.bytes(), file.size_bytes() as u64)?;
        let (spec, unknown_keys) = read_spec(&gguf)?;
        // Names, shapes and types of tensors are checked by binding them. That touches no more than a few norms, where
        // bringing in the weights of a file that turns out to be unusable can take minutes.
        let arena = Arena::new(&Device::host(), vec![file.clone()], regions(&gguf))?;
        Model::new(spec.clone(), &gguf, arena)?;
        let tokenizer = read_tokenizer(&gguf, force_pre)?;
        let template = read_template(&gguf, &tokenizer)?;
        Ok(Self { gguf, spec, unknown_keys, tokenizer, template })
    }
}

/// Opens a model file for what its header alone says.
///
/// # Errors
/// When the file can't be opened ([`Error::Memory`]), or its header is damaged or refused by `read` ([`Error::BadModel`]).
pub fn with_header<T>(path: &Path, read: impl FnOnce(&Gguf<'_>) -> Result<T, BadModel>) -> Result<T, Error> {
    let file = open(path)?;
    let parsed = Gguf::parse(file.bytes(), file.size_bytes() as u64);
    parsed.map_err(BadModel::from).and_then(|gguf| read(&gguf)).map_err(|source| bad(path, source))
}

fn open(path: &Path) -> Result<ModelFile, Error> {
    ModelFile::open(path).map_err(|error| match error {
        // Nothing of an empty file is mapped; what is wrong with it is what the parser says of any that is too short.
        muser_memory::Error::EmptyFile { .. } => {
            Gguf::parse(&[], 0).map_or_else(|refused| bad(path, refused.into()), |_| error.into())
        }
        error => error.into(),
    })
}

fn bad(path: &Path, source: BadModel) -> Error {
    Error::BadModel { path: path.to_owned(), source: Box::new(source) }
}

/// The shape of a model that is whole in one file, and the keys that are not known.
fn read_spec(gguf: &Gguf<'_>) -> Result<(ModelSpec, Vec<String>), BadModel> {
    match gguf.shard()? {
        Some(Shard { index, count, .. }) if count > 1 => Err(BadModel::Shard { index, count }),
        _ => Ok(ModelSpec::read(gguf)?),
    }
}

/// Bytes of all tensors of a file.
pub fn weight_bytes(gguf: &Gguf<'_>) -> u64 {
    gguf.tensors().iter().map(muser_gguf::TensorInfo::size_bytes).sum()
}

/// Reads a file's vocabulary. With `force_pre`, text is split as that pre-tokeniser does, whatever the file says.
///
/// # Errors
/// When keys are missing, have other types than they must, or contradict each other.
pub fn read_tokenizer(gguf: &Gguf<'_>, force_pre: Option<&str>) -> Result<Tokenizer, BadModel> {
    let metadata = gguf.metadata();
    let bytes = |key| metadata.opt_strs(key).map(|strs| strs.map(|strs| strs.iter().map(|text| text.as_bytes())));
    let model = metadata.str("tokenizer.ggml.model")?;
    if force_pre.is_some() && model == "llama" {
        return Err(BadModel::NoPreTokenizer { model: model.to_owned() });
    }
    let tokens = metadata.strs("tokenizer.ggml.tokens")?;
    let token_types = opt_array(metadata, "tokenizer.ggml.token_type", tokens.len(), Metadata::opt_i32s)?;
    let scores = opt_array(metadata, "tokenizer.ggml.scores", tokens.len(), Metadata::opt_floats)?;
    let id = |name: &str| metadata.opt_u32(&format!("tokenizer.ggml.{name}_token_id"));
    let spec = VocabSpec {
        pre: force_pre.or(metadata.opt_str("tokenizer.ggml.pre")?),
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
        ..VocabSpec::new(model, tokens.iter().map(|text| text.as_bytes()), bytes("tokenizer.ggml.merges")?)
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
