//! What can be wrong with a model, or with what is asked of it.

/// Why a model was refused, or a forward pass not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file's architecture is not one of those that can be run.
    #[error("architecture {found:?} can't be run, expected one of: {known}")]
    UnknownArchitecture {
        /// What the file says.
        found: String,
        /// Those that can be run.
        known: String,
    },
    /// Metadata or tensors do not make a model.
    #[error("not a usable {arch} model: {}", listed(problems))]
    Unusable {
        /// The architecture.
        arch: &'static str,
        /// All that is wrong, each with its key or tensor.
        problems: Vec<String>,
    },
    /// A batch, or a span of it, without tokens.
    #[error("a batch without tokens")]
    EmptyBatch,
    /// More tokens than a decoder was made for.
    #[error("a batch of {n} tokens, expected at most {n_batch}")]
    BatchTooLarge {
        /// Tokens in the batch.
        n: usize,
        /// Tokens that fit.
        n_batch: usize,
    },
    /// A token that is not in the vocabulary.
    #[error("token {token} is not in the vocabulary of {n_vocab}")]
    UnknownToken {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// Logits were asked from a token on that the span does not have.
    #[error("logits were asked from token {index} of a span on, expected less than its {n} tokens")]
    LogitsPastSpan {
        /// Index of the first token whose logits were asked.
        index: usize,
        /// Tokens in the span.
        n: usize,
    },
    /// A cache whose layers are not those of the decoder's model.
    #[error("the sequence's keys and values were made for another model")]
    ForeignCache,
    /// A cache for longer sequences than the decoder was made for.
    #[error("a sequence of up to {n_ctx} tokens, expected at most {max}, which the decoder was made for")]
    CacheTooLong {
        /// Tokens that the cache can hold.
        n_ctx: usize,
        /// Tokens that the decoder was made for.
        max: usize,
    },
    /// A sequence would outgrow its context.
    #[error("the context of {n_ctx} tokens is full: it holds {held}, and {more} more were given")]
    ContextFull {
        /// Tokens held.
        held: usize,
        /// Tokens given.
        more: usize,
        /// Tokens that fit.
        n_ctx: usize,
    },
    /// A cache whose last forward pass failed in the middle.
    #[error("this sequence's keys and values were left incomplete by a failed pass; clear them and process it again")]
    BrokenCache,
    /// The file's header could not be read.
    #[error(transparent)]
    Gguf(#[from] muser_gguf::Error),
    /// Memory could not be had.
    #[error(transparent)]
    Memory(#[from] muser_memory::Error),
    /// An operation was refused or failed.
    #[error(transparent)]
    Ops(#[from] muser_ops::Error),
}

/// All problems, as far as somebody reads them: a file that claims thousands of layers lacks all of their tensors.
fn listed(problems: &[String]) -> String {
    const SHOWN: usize = 32;
    let shown = problems[..problems.len().min(SHOWN)].join("; ");
    if problems.len() > SHOWN { format!("{shown}; and {} more", problems.len() - SHOWN) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_listed_as_far_as_somebody_reads_them() {
        let unusable = |n| Error::Unusable { arch: "llama", problems: vec!["x".into(); n] }.to_string();
        assert_eq!(unusable(2), "not a usable llama model: x; x");
        assert_eq!(unusable(32).matches('x').count(), 32);
        assert!(unusable(36_000).ends_with("x; and 35968 more"));
    }
}
