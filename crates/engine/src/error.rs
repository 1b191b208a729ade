//! What can go wrong between a file and its text.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::perplexity::MIN_CHUNK;
use crate::service::ConstraintError;

/// Why a model could not be loaded, or a request not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is not a model that can be run.
    #[error("{path}: {source}", path = path.display())]
    BadModel {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<BadModel>,
    },
    /// The file could not be opened or mapped, or memory could not be had.
    #[error(transparent)]
    Memory(#[from] muser_memory::Error),
    /// A forward pass was refused or failed.
    #[error(transparent)]
    Model(#[from] muser_model::Error),
    /// A sampler setting out of range, or logits that can't be sampled.
    #[error(transparent)]
    Sampler(#[from] crate::sampler::SamplerError),
    /// Tokens or text that the vocabulary can't take.
    #[error(transparent)]
    Text(#[from] muser_text::TextError),
    /// The chat template failed.
    #[error(transparent)]
    Template(#[from] muser_text::template::TemplateError),
    /// The chat template's text holds nothing of the messages.
    #[error("the chat template leaves out all that was said; --raw continues a text without it")]
    NothingRendered,
    /// A request without a token to start from.
    #[error("nothing to continue: the prompt has no tokens, and the vocabulary has no token that begins a text")]
    EmptyPrompt,
    /// The prompt leaves no room for an answer.
    #[error("the prompt has {tokens} tokens, and the context holds {n_ctx}: raise --ctx or shorten the prompt")]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens that fit.
        n_ctx: usize,
    },
    /// A token id that the vocabulary does not have.
    #[error("token {id} is not in the vocabulary of {n_vocab} tokens")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// The model computed values that are not numbers.
    #[error(
        "the logits after token {pos} hold a value that is not finite (token {id}): the weights or the state are damaged"
    )]
    NotFinite {
        /// Position of the token they follow.
        pos: usize,
        /// First token id with such a value.
        id: usize,
    },
    /// A chunk in which no token is scored.
    #[error("a chunk of {tokens} tokens has none to score, expected at least {MIN_CHUNK}")]
    ChunkTooShort {
        /// Tokens of the chunk.
        tokens: usize,
    },
    /// The text has too few tokens for one chunk.
    #[error("the text has {tokens} tokens, and one chunk needs {needed}")]
    TextTooShort {
        /// Tokens of the text.
        tokens: usize,
        /// Tokens that a chunk has.
        needed: usize,
    },
    /// A model that can't be split as asked.
    #[error("the model can't be split so: {0}")]
    Unsplittable(#[source] muser_gguf::Error),
    /// A file where one was to be written.
    #[error("{path}: there is such a file already, and nothing is overwritten", path = path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file of the model that became another between two looks at it.
    #[error("{path}: the file was replaced while it was read", path = path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// A file that could not be read or written.
    #[error("{path}: could not {action} the file: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The model computed hidden states that are not numbers.
    #[error("the hidden state of token {pos} holds a value that is not finite: the weights or the state are damaged")]
    StateNotFinite {
        /// Position of the token.
        pos: usize,
    },
    /// The batch that a request took part in failed.
    #[error(transparent)]
    Step(Arc<Error>),
    /// What restricts an answer could not go on.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// Slots that a batch has no rows for.
    #[error("{n_slot} slots, expected at least one and at most {n_batch}, a row of a batch for each")]
    SlotCount {
        /// Slots asked for.
        n_slot: usize,
        /// Rows of a batch.
        n_batch: usize,
    },
    /// A thread that the system did not give.
    #[error("could not start the engine thread: {0}")]
    Thread(#[source] std::io::Error),
    /// The engine thread is busy with one step, or stuck.
    #[error("the engine thread gave no answer within {timeout:?}")]
    NoAnswer {
        /// How long it was waited for.
        timeout: Duration,
    },
    /// The service was shut down.
    #[error("the service has ended")]
    ServiceEnded,
    /// The engine thread is no more.
    #[error("the engine thread panicked; the service has to be started again")]
    EnginePanicked,
    /// A file of the model changed under a service, which has ended.
    #[error("the model's file changed while it was in use; the service has to be started again")]
    ModelChanged,
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// What is wrong with a model file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadModel {
    /// Its header.
    #[error(transparent)]
    Gguf(#[from] muser_gguf::Error),
    /// A file of the set that it belongs to is not there.
    #[error("shard {} of {count} of its set is missing, expected at {}", index + 1, expected.display())]
    MissingShard {
        /// The missing one's place, from 0.
        index: u64,
        /// Files of the set.
        count: u64,
        /// Where it was looked for.
        expected: PathBuf,
    },
    /// A shard whose name doesn't lead to the others.
    #[error(
        "it says that it is shard {} of {count} of a set (split.no {index}, split.count {count}): to find the others, its \
         name must end in {expected:?}",
        u128::from(*index) + 1
    )]
    MisnamedShard {
        /// Its place by its own account, from 0.
        index: u64,
        /// Files of the set.
        count: u64,
        /// What its name has to end in.
        expected: String,
    },
    /// A pre-tokeniser was forced on a vocabulary that has no use for one.
    #[error("a vocabulary of kind {model:?} does not use a pre-tokeniser, so none can be forced")]
    NoPreTokenizer {
        /// The kind.
        model: String,
    },
    /// Its shape or tensors.
    #[error(transparent)]
    Model(#[from] muser_model::Error),
    /// A weight that is infinite or not a number, or a scale that makes its block so.
    #[error("tensor {tensor:?} ({ty}): {unit} {index} holds {value}, expected finite values: the file is damaged")]
    NotFinite {
        /// The tensor.
        tensor: String,
        /// Its type.
        ty: &'static str,
        /// What `index` counts: `"block"`, or `"value"` in a float type.
        unit: &'static str,
        /// The place in the tensor, from 0.
        index: usize,
        /// What stands there.
        value: f32,
    },
    /// Its vocabulary.
    #[error(transparent)]
    Text(#[from] muser_text::TextError),
    /// Its chat template.
    #[error("chat template: {0}")]
    Template(#[from] muser_text::template::TemplateError),
    /// Its tensors' places in the file.
    #[error(transparent)]
    Memory(#[from] muser_memory::Error),
}
