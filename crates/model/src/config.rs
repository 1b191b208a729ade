//! Reads an architecture's metadata keys, and gathers everything that is wrong with them into one error.

use std::collections::BTreeSet;

use muser_gguf::{Gguf, Metadata};

use crate::Error;
use crate::spec::RopeScaling;

/// Largest count a key may state. Products of two of them fit 64 bits, and no model comes near.
const MAX_COUNT: usize = 1 << 30;

/// Most layers. Per-layer data is made from this number before any tensor confirms it.
const MAX_LAYERS: usize = 4096;

/// The keys `<architecture>.*` of one file.
///
/// A read that fails gives a harmless value and notes the problem; [`finish`](Self::finish) then refuses with all of them.
pub(crate) struct Config<'a> {
    metadata: &'a Metadata<'a>,
    n_vocab: usize,
    arch: &'static str,
    known: BTreeSet<String>,
    problems: Vec<String>,
}

impl<'a> Config<'a> {
    pub(crate) fn new(gguf: &'a Gguf<'a>, arch: &'static str) -> Self {
        let metadata = gguf.metadata();
        let mut config = Self { metadata, n_vocab: 0, arch, known: BTreeSet::new(), problems: Vec::new() };
        config.n_vocab = match metadata.strs("tokenizer.ggml.tokens") {
            Ok(tokens) => tokens.len(),
            Err(error) => config.problem(error.to_string(), 0),
        };
        if let Some(stated) = config.opt_count("vocab_size")
            && stated != config.n_vocab
        {
            let tokens = config.n_vocab;
            config.refuse(format!("{arch}.vocab_size is {stated}, but tokenizer.ggml.tokens has {tokens} entries"));
        }
        config
    }

    /// Notes that something is wrong.
    pub(crate) fn refuse(&mut self, problem: String) {
        self.problems.push(problem);
    }

    fn problem<T>(&mut self, problem: String, harmless: T) -> T {
        self.problems.push(problem);
        harmless
    }

    /// Size of the vocabulary.
    pub(crate) fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    fn key(&mut self, name: &str) -> String {
        let key = format!("{}.{name}", self.arch);
        self.known.insert(key.clone());
        key
    }

    /// Whether a key is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.metadata.contains(&format!("{}.{name}", self.arch))
    }

    /// A count of at least one.
    pub(crate) fn count(&mut self, name: &str) -> usize {
        let key = self.key(name);
        match self.metadata.usize(&key) {
            Ok(count) => self.in_range(&key, count),
            Err(error) => self.problem(error.to_string(), 1),
        }
    }

    /// A count of at least one, if the key is there.
    pub(crate) fn opt_count(&mut self, name: &str) -> Option<usize> {
        let key = self.key(name);
        match self.metadata.opt_usize(&key) {
            Ok(count) => count.map(|count| self.in_range(&key, count)),
            Err(error) => self.problem(error.to_string(), None),
        }
    }

    fn in_range(&mut self, key: &str, count: usize) -> usize {
        if (1..=MAX_COUNT).contains(&count) {
            return count;
        }
        self.problem(format!("{key} is {count}, expected 1 to {MAX_COUNT}"), 1)
    }

    /// The number of layers.
    pub(crate) fn n_layer(&mut self) -> usize {
        let n_layer = self.count("block_count");
        if n_layer <= MAX_LAYERS {
            return n_layer;
        }
        self.problem(format!("{}.block_count is {n_layer}, expected at most {MAX_LAYERS}", self.arch), 1)
    }

    /// One count for each layer: stated once for all of them, or as an array.
    pub(crate) fn per_layer(&mut self, name: &str, n_layer: usize) -> Vec<usize> {
        let key = self.key(name);
        if self.metadata.value(&key).is_none_or(|value| value.as_array().is_none()) {
            return vec![self.count(name); n_layer];
        }
        let counts = match self.metadata.ints::<u32>(&key) {
            Ok(counts) => counts,
            Err(error) => self.problem(error.to_string(), Vec::new()),
        };
        if counts.len() != n_layer {
            let problem = format!("{key} has {} entries, expected one for each of {n_layer} layers", counts.len());
            return self.problem(problem, vec![1; n_layer]);
        }
        counts.into_iter().map(|count| self.in_range(&key, count as usize)).collect()
    }

    /// A float above zero.
    pub(crate) fn float(&mut self, name: &str) -> f32 {
        let key = self.key(name);
        match self.metadata.f32(&key) {
            Ok(float) => self.positive(&key, float),
            Err(error) => self.problem(error.to_string(), 1.0),
        }
    }

    /// A float above zero, if the key is there.
    pub(crate) fn opt_float(&mut self, name: &str) -> Option<f32> {
        let key = self.key(name);
        match self.metadata.opt_f32(&key) {
            Ok(float) => float.map(|float| self.positive(&key, float)),
            Err(error) => self.problem(error.to_string(), None),
        }
    }

    fn positive(&mut self, key: &str, float: f32) -> f32 {
        if float > 0.0 { float } else { self.problem(format!("{key} is {float}, expected more than 0"), 1.0) }
    }

    /// Which layers slide, from a key that is either a period or an array of truth values, repeated if it is shorter.
    ///
    /// With a period `p`, the last of every `p` layers is global and the others slide; a period of 0 makes all slide.
    pub(crate) fn sliding_pattern(&mut self, name: &str, n_layer: usize) -> Option<Vec<bool>> {
        let key = self.key(name);
        let value = self.metadata.value(&key)?;
        if value.as_array().is_none() {
            return match self.metadata.usize(&key) {
                Ok(period) => Some(every_last_is_global(period, n_layer)),
                Err(error) => self.problem(error.to_string(), None),
            };
        }
        match self.metadata.bools(&key) {
            Ok(slides) if (1..=n_layer).contains(&slides.len()) => {
                Some(slides.iter().copied().cycle().take(n_layer).collect())
            }
            Ok(slides) => {
                let problem = format!("{key} has {} entries, expected 1 to {n_layer}", slides.len());
                self.problem(problem, None)
            }
            Err(error) => self.problem(error.to_string(), None),
        }
    }

    /// How the file says that rotary angles are stretched.
    pub(crate) fn rope_scaling(&mut self, n_ctx_train: usize) -> RopeScaling {
        let type_key = self.key("rope.scaling.type");
        let kind = match self.metadata.opt_str(&type_key) {
            Ok(kind) => kind.unwrap_or("linear"),
            Err(error) => return self.problem(error.to_string(), RopeScaling::None),
        };
        let factor = self.opt_float("rope.scaling.factor").or_else(|| self.opt_float("rope.scale_linear"));
        match (kind, factor) {
            ("none", _) | ("linear", None | Some(1.0)) => RopeScaling::None,
            ("linear", Some(factor)) => RopeScaling::Linear { factor },
            ("yarn", None) => self.problem(
                format!("{type_key} is \"yarn\", but {}.rope.scaling.factor is missing", self.arch),
                RopeScaling::None,
            ),
            ("yarn", Some(factor)) => RopeScaling::Yarn {
                factor,
                n_ctx_original: self.opt_count("rope.scaling.original_context_length").unwrap_or(n_ctx_train),
                beta_fast: self.opt_float("rope.scaling.yarn_beta_fast").unwrap_or(32.0),
                beta_slow: self.opt_float("rope.scaling.yarn_beta_slow").unwrap_or(1.0),
                attn_factor: self.opt_float("rope.scaling.attn_factor").unwrap_or(1.0),
            },
            _ => {
                let problem = format!("{type_key} is {kind:?}, expected \"none\", \"linear\" or \"yarn\"");
                self.problem(problem, RopeScaling::None)
            }
        }
    }

    /// Accepts keys whose values change nothing that this engine computes.
    pub(crate) fn without_effect(&mut self, names: &[&str]) {
        for name in names {
            self.key(name);
        }
    }

    /// Refuses keys that would change the answer and are not computed, unless their value switches them off.
    pub(crate) fn unsupported(&mut self, names: &[&str]) {
        for name in names {
            let key = self.key(name);
            let Some(value) = self.metadata.value(&key) else { continue };
            if value.as_int() != Some(0) && value.as_float() != Some(0.0) {
                self.refuse(format!("{key} is set, and what it asks for is not supported"));
            }
        }
    }

    /// Refuses with all problems; without any, returns the keys of this architecture that no reader knows.
    pub(crate) fn finish(self) -> Result<Vec<String>, Error> {
        let Self { metadata, arch, known, problems, .. } = self;
        if !problems.is_empty() {
            return Err(Error::Unusable { arch, problems });
        }
        let prefix = format!("{arch}.");
        let keys = metadata.iter().map(|(key, _)| key);
        Ok(keys.filter(|key| key.starts_with(&prefix) && !known.contains(*key)).map(str::to_owned).collect())
    }
}

/// The pattern of a period: see [`Config::sliding_pattern`].
pub(crate) fn every_last_is_global(period: usize, n_layer: usize) -> Vec<bool> {
    (0..n_layer).map(|layer| period == 0 || layer % period < period - 1).collect()
}

/// A list for a message: its first entries, and how many more there are.
pub(crate) fn shortened(entries: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = entries[..entries.len().min(SHOWN)].join(", ");
    if entries.len() > SHOWN { format!("{shown} and {} more", entries.len() - SHOWN) } else { shown }
}
