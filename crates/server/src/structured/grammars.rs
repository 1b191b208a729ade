//! The compiler of grammars for one vocabulary.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Logger, ParserFactory};
use muser_text::Tokenizer;

use super::workers::Workers;
use super::{Grammar, GrammarConstraint, GrammarError, cost, endless};

/// Memory for each token of the vocabulary, of what is built of it for the first answer that is held to a form. It took 278
/// bytes a token of 262,144 tokens, and 303 of 49,152.
pub const GRAMMAR_BYTES_PER_TOKEN: u64 = 320;

/// Most bytes of a vocabulary's text. The trie numbers its nodes in 22 bits, and has at most one for each byte.
const MAX_TRIE_BYTES: usize = (1 << 22) - 2;
/// Longest token that a grammar can let through. The trie counts the way back to the root in 10 bits.
const MAX_TOKEN_BYTES: usize = 1000;
/// Tokens that are text inside a JSON string wherever they stand. Where any such text may follow, they are let through at
/// once instead of byte by byte. More such sets gain nothing that was measured, and cost several tries of memory.
const STRING_SLICE: &str = r#"[^"\\\x00-\x1F\x7F]+"#;
/// Stack of the thread that reads a schema. It recurses once for each link in a chain of references; the longest chain that
/// fits a schema takes a tenth of this. Untouched pages of a stack take no memory.
const STACK_BYTES: usize = 128 << 20;
/// How long one grammar may be compiled: ten times what any takes that the limits on schemas let through, as far as is known.
const MAX_COMPILING: Duration = Duration::from_secs(10);
/// How many that took longer may still be at it. Each takes a processor for as long as it lasts.
const MAX_LATE: usize = 2;

/// Limits for one grammar. Below them, compiling takes some tenths of a second at worst, a token some twenty milliseconds, and the
/// tables of an answer some tens of megabytes.
fn limits() -> ParserLimits {
    ParserLimits {
        step_lexer_fuel: 150_000,
        max_lexer_states: 20_000,
        precompute_large_lexemes: false,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// Compiles grammars for a vocabulary.
///
/// What that needs of the vocabulary, a trie of all tokens, is built when the first grammar is compiled.
pub struct Grammars {
    compiler: Arc<Compiler>,
    /// One compilation at a time, which bounds what requests can take at once.
    workers: Workers,
}

struct Compiler {
    tokenizer: Arc<Tokenizer>,
    factory: OnceLock<Result<ParserFactory, GrammarError>>,
}

impl Grammars {
    /// A compiler that has done nothing yet.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        let compiler = Arc::new(Compiler { tokenizer, factory: OnceLock::new() });
        Self { compiler, workers: Workers::new(MAX_COMPILING, MAX_LATE, STACK_BYTES) }
    }

    /// Compiles a grammar. Blocks for some milliseconds, and for the trie if it is the first.
    ///
    /// # Errors
    ///
    /// [`GrammarError::Refused`] for what the compiler can't do, [`GrammarError::TooSlow`] for what it does not do in time,
    /// [`GrammarError::Busy`] where too many others are not done, and the errors of building the trie.
    pub fn compile(&self, grammar: &Grammar) -> Result<GrammarConstraint, GrammarError> {
        self.compiler.factory()?;
        let (compiler, key, grammar) = (Arc::clone(&self.compiler), grammar.text(), grammar.clone());
        self.workers.run(key, move || compiler.compile(&grammar)).unwrap_or_else(|undone| Err(undone.into()))
    }
}

impl Compiler {
    fn factory(&self) -> Result<&ParserFactory, GrammarError> {
        self.factory.get_or_init(|| factory(&self.tokenizer)).as_ref().map_err(Clone::clone)
    }

    fn compile(&self, grammar: &Grammar) -> Result<GrammarConstraint, GrammarError> {
        for schema in grammar.schemas() {
            cost::check(schema.compiled()).map_err(GrammarError::Refused)?;
            endless::check(schema.compiled()).map_err(GrammarError::Refused)?;
        }
        let grammar = GrammarInit::Serialized(TopLevelGrammar::from_lark(grammar.text().to_owned()));
        let capabilities = InferenceCapabilities::default();
        let parser = self.factory()?.create_parser_from_init_ext(grammar, Logger::new(0, 0), capabilities, limits());
        let parser = parser.map_err(|error| GrammarError::refused(&error))?;
        let mut constraint = GrammarConstraint::new(parser);
        // Some grammars that nothing satisfies are found only where something should follow.
        constraint.begin(self.tokenizer.n_vocab()).map_err(|error| match error {
            GrammarError::TooComplex => error,
            _ => GrammarError::Refused("nothing satisfies the schema".to_owned()),
        })?;
        Ok(constraint)
    }
}

fn factory(tokenizer: &Tokenizer) -> Result<ParserFactory, GrammarError> {
    let n_vocab = tokenizer.n_vocab();
    let texts: Vec<Vec<u8>> = (0..n_vocab as u32).map(|id| text_of(tokenizer, id).to_vec()).collect();
    let size_bytes = texts.iter().map(Vec::len).sum();
    if size_bytes > MAX_TRIE_BYTES || n_vocab > MAX_TRIE_BYTES {
        return Err(GrammarError::VocabularyTooLarge { n_vocab, size_bytes, max: MAX_TRIE_BYTES });
    }
    let ends = tokenizer.end_of_generation_ids();
    let mut trie = TokTrie::from(&TokRxInfo::new(n_vocab as u32, INVALID_TOKEN), &texts);
    if !ends.is_empty() {
        trie = trie.with_eos_tokens(ends);
    }
    // Without a claim that tokens are those that encoding would give, any tokens that spell the text are let through.
    let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &[STRING_SLICE.to_owned()]);
    factory.map_err(|error| GrammarError::refused(&error))
}

/// What a token adds to a text: nothing for those that aren't text, which no text in a grammar lets through then.
fn text_of(tokenizer: &Tokenizer, id: u32) -> &[u8] {
    let is_text = tokenizer.token_type(id).is_some_and(|ty| !ty.is_hidden()) && !tokenizer.is_end_of_generation(id);
    let bytes = tokenizer.token_bytes(id).filter(|_| is_text).unwrap_or_default();
    if bytes.len() > MAX_TOKEN_BYTES { &[] } else { bytes }
}
