//! From a path to a model that is ready to run.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use muser_gguf::{GgufSet, Metadata};
use muser_memory::{Arena, Device, Observer, OnProgress, Plan, Region};
use muser_model::{Model, ModelSpec, regions};
use muser_text::template::ChatTemplate;
use muser_text::{Tokenizer, VocabSpec};

use crate::Error;
use crate::error::BadModel;
use crate::files::ModelFiles;
use crate::plan::{Footprint, PlanOptions, plan};
use crate::scan::Scan;

/// A model, opened and ready to run.
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
    /// Whether weights are searched for values that are not finite, as they come in.
    pub scan: bool,
    /// What memory is planned for.
    pub plan: PlanOptions,
    /// Splits text into words as this pre-tokeniser does, whatever the file says.
    pub force_pre: Option<String>,
}

/// Opens a model, by its file or any shard of its set, and prepares everything that running it needs.
///
/// What the header alone can refuse is refused before any weight is touched, and so is what does not fit into memory.
/// Weights that are not finite are refused as they come in, if `options` say so.
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
    let files = ModelFiles::open(path)?;
    let Header { set, spec, unknown_keys, tokenizer, template } = Header::read(&files, options.force_pre.as_deref())?;
    let footprint = Footprint::of(&files, &set).map_err(|source| files.bad(source))?;
    let (n_ctx, plan) = plan(&spec, footprint, options.weights.policy, options.plan)?;
    let (arena, weights) = bring_in(&files, &set, device, &options.weights, options.scan, on_progress)?;
    let model = Model::new(spec, &set, arena).map_err(|error| files.bad(error.into()))?;
    let report = LoadReport { elapsed: started.elapsed(), weights, unknown_keys };
    Ok(Loaded { model: Arc::new(model), tokenizer: Arc::new(tokenizer), template, n_ctx, plan, report })
}

/// Opens and indexes a model's weights where they are, and brings none of them in.
///
/// # Errors
/// When the files can't be opened, are damaged, or their tensors are not wholly in them.
pub fn index_weights(path: &Path) -> Result<Arena, Error> {
    let files = ModelFiles::open(path)?;
    let set = files.parse()?;
    Ok(Arena::new(&Device::host(), files.files().to_vec(), regions(&set))?)
}

/// Brings a model's weights to a device and nothing else, for a look at how that goes. They are not scanned.
///
/// # Errors
/// When the files can't be opened, are damaged, or their weights can't be loaded; when `on_progress` breaks
/// ([`Error::Interrupted`]).
pub fn load_weights(
    path: &Path,
    device: &Device,
    options: &muser_memory::LoadOptions,
    on_progress: &OnProgress<'_>,
) -> Result<(Arena, muser_memory::LoadReport), Error> {
    let files = ModelFiles::open(path)?;
    bring_in(&files, &files.parse()?, device, options, false, on_progress)
}

fn bring_in(
    files: &ModelFiles,
    set: &GgufSet<'_>,
    device: &Device,
    options: &muser_memory::LoadOptions,
    is_scanned: bool,
    on_progress: &OnProgress<'_>,
) -> Result<(Arena, muser_memory::LoadReport), Error> {
    let scan = Scan::new(files, set);
    let look = |region: &Region, offset: usize, bytes: &[u8]| scan.look(region, offset, bytes);
    let observer = Observer::new(on_progress);
    let observer = if is_scanned { observer.with_bytes(&look) } else { observer };
    let loaded = Arena::load(device, files.files().to_vec(), regions(set), options, &observer);
    loaded.map_err(|error| match error {
        muser_memory::Error::Cancelled { .. } => scan.into_error().unwrap_or(Error::Interrupted),
        error => Error::Memory(error),
    })
}

/// Finds out whether a model can be run, without bringing its weights into memory.
///
/// # Errors
/// As [`load`], but for what has to do with memory.
pub fn check(path: &Path) -> Result<(), Error> {
    Header::read(&ModelFiles::open(path)?, None).map(|_| ())
}

/// What a model's files say before the weights, found to make a model that can be run.
struct Header<'a> {
    set: GgufSet<'a>,
    spec: ModelSpec,
    unknown_keys: Vec<String>,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
}

impl<'a> Header<'a> {
    fn read(files: &'a ModelFiles, force_pre: Option<&str>) -> Result<Self, Error> {
        let set = files.parse()?;
        Self::of(files, set, force_pre).map_err(|source| files.bad(source))
    }

    fn of(files: &'a ModelFiles, set: GgufSet<'a>, force_pre: Option<&str>) -> Result<Self, BadModel> {
        let (spec, unknown_keys) = ModelSpec::read(&set)?;
        // Names, shapes and types of tensors are checked by binding them. That touches no more than a few norms, where
        // bringing in the weights of a file that turns out to be unusable can take minutes.
        let arena = Arena::new(&Device::host(), files.files().to_vec(), regions(&set))?;
        Model::new(spec.clone(), &set, arena)?;
        let tokenizer = read_tokenizer(set.metadata(), force_pre)?;
        let template = read_template(set.metadata(), &tokenizer)?;
        Ok(Self { set, spec, unknown_keys, tokenizer, template })
    }
}

/// Opens a model for what its files say before the weights. `read` is given the files too, for their paths.
///
/// # Errors
/// When a file can't be opened ([`Error::Memory`]), or what the files say is damaged or refused by `read`
/// ([`Error::BadModel`]).
pub fn with_header<T>(
    path: &Path,
    read: impl FnOnce(&ModelFiles, &GgufSet<'_>) -> Result<T, BadModel>,
) -> Result<T, Error> {
    let files = ModelFiles::open(path)?;
    read(&files, &files.parse()?).map_err(|source| files.bad(source))
}

/// Bytes of all tensors of a model.
pub fn weight_bytes(set: &GgufSet<'_>) -> u64 {
    set.tensors().map(|(_, tensor)| tensor.size_bytes()).sum()
}

/// Reads a model's vocabulary. With `force_pre`, text is split as that pre-tokeniser does, whatever the file says.
///
/// # Errors
/// When keys are missing, have other types than they must, or contradict each other.
pub fn read_tokenizer(metadata: &Metadata<'_>, force_pre: Option<&str>) -> Result<Tokenizer, BadModel> {
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

/// Reads a model's chat template, if it has one.
///
/// # Errors
/// When it is no template.
pub fn read_template(metadata: &Metadata<'_>, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>, BadModel> {
    let Some(source) = metadata.opt_str("tokenizer.chat_template")? else { return Ok(None) };
    let text = |id: Option<u32>| {
        let bytes = id.and_then(|id| tokenizer.token_bytes(id)).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    Ok(Some(ChatTemplate::new(source, &text(tokenizer.bos()), &text(tokenizer.eos()))?))
}
