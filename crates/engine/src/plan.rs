//! The memory plan of a model: what it takes, before anything is allocated.

use muser_gguf::GgufSet;
use muser_memory::{Availability, LoadPath, LoadPolicy, Plan, PlanRequest};
use muser_model::{Decoder, KvCache, ModelSpec};
use muser_text::Tokenizer;

use crate::Error;
use crate::engine::batch_rows;
use crate::error::BadModel;
use crate::files::ModelFiles;
use crate::loader::weight_bytes;

/// What a model's files bring into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of all tensors.
    pub weight_bytes: u64,
    /// The rest of the files, which is read once, and the vocabulary that is built from it.
    pub table_bytes: u64,
}

impl Footprint {
    /// Looks at what the files say before their weights.
    ///
    /// # Errors
    /// When the vocabulary's keys have other types than they must.
    pub fn of(files: &ModelFiles, set: &GgufSet<'_>) -> Result<Self, BadModel> {
        let weight_bytes = weight_bytes(set);
        let file_bytes: u64 = files.files().iter().map(|file| file.size_bytes() as u64).sum();
        let len = |key: &str| set.metadata().opt_strs(key).map(|strs| strs.map_or(0, <[&str]>::len));
        let vocabulary = Tokenizer::planned_bytes(len("tokenizer.ggml.tokens")?, len("tokenizer.ggml.merges")?);
        Ok(Self { weight_bytes, table_bytes: file_bytes.saturating_sub(weight_bytes).saturating_add(vocabulary) })
    }
}

/// What memory is planned for.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// Context of each slot in tokens; `None` takes the largest that fits, up to what the model was trained for.
    pub n_ctx: Option<usize>,
    /// Conversations held at once.
    pub n_slot: usize,
    /// Tokens processed at once.
    pub n_batch: usize,
    /// Bytes of ended sessions that are kept for their prefixes.
    pub prefix_cache_bytes: u64,
    /// Bytes for each token of the vocabulary, of tables that the caller makes of it.
    pub table_bytes_per_token: u64,
}

/// Plans a model's memory against what the machine has. Returns the context of each slot, and the plan.
///
/// # Errors
/// [`muser_memory::Error::DoesNotFit`] with the numbers, and with what would fit.
pub fn plan(
    spec: &ModelSpec,
    footprint: Footprint,
    policy: LoadPolicy,
    options: PlanOptions,
) -> Result<(usize, Plan), Error> {
    let availability = Availability::observe();
    let n_ctx = options.n_ctx.unwrap_or(spec.n_ctx_train);
    let request = request(spec, footprint, policy, options, n_ctx)?;
    if options.n_ctx.is_some() {
        return Ok((n_ctx, request.fit(&availability)?));
    }
    let available_bytes = availability.least().map_or(u64::MAX, |limit| limit.available_bytes);
    // When not even one token fits, the plan of the smallest context says what is missing.
    let n_ctx = request.largest_ctx(available_bytes, n_ctx).unwrap_or(1);
    Ok((n_ctx, PlanRequest { n_ctx, ..request }.fit(&availability)?))
}

fn request(
    spec: &ModelSpec,
    footprint: Footprint,
    policy: LoadPolicy,
    options: PlanOptions,
    n_ctx: usize,
) -> Result<PlanRequest, Error> {
    let memory = Decoder::memory(spec, batch_rows(options.n_batch, n_ctx, options.n_slot), n_ctx)?;
    let further_tables = options.table_bytes_per_token.saturating_mul(spec.n_vocab as u64);
    Ok(PlanRequest {
        weight_bytes: footprint.weight_bytes,
        table_bytes: footprint.table_bytes.saturating_add(further_tables),
        load: if policy == LoadPolicy::Read { LoadPath::Read } else { LoadPath::Map },
        layers: KvCache::layers(spec).collect(),
        n_ctx,
        n_slot: options.n_slot,
        activation_bytes: memory.activation_bytes,
        activation_bytes_per_position: 0,
        staging_bytes: memory.staging_bytes,
        draft_bytes: 0,
        snapshot_bytes: options.prefix_cache_bytes,
    })
}
