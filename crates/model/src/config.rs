//! Reads an architecture's metadata keys, and gathers everything that is wrong with them into one error.

use std::collections::BTreeSet;

use muser_gguf::{GgufSet, Metadata};

use crate::Error;
use crate::spec::RopeScaling;

/// Largest count a key may state. Products of two of them fit 64 bits, and no model comes near.
const MAX_COUNT: usize = 1 << 30;

/// Most layers. Per-layer data is made from this number before any tensor confirms it.
const MAX_LAYERS: usize = 4096;

/// Least float that a key may state: far below any epsilon or scale in use, and far from the smallest that f32 holds.
const MIN_FLOAT: f32 = 1e-12;

/// Largest scale, factor or cap. Products of a few of them with activations stay in the range of f32.
const MAX_FLOAT: f32 = 1e6;

/// Largest rotary base. Contexts of millions of tokens are trained with some 10^10.
const MAX_ROPE_BASE: f32 = 1e12;

/// Largest epsilon: beyond it, it and not the values would set a norm.
const MAX_EPS: f32 = 1.0;

/// The keys `<architecture>.*` of one file.
///
/// A read that fails gives a harmless value and notes the problem; [`finish`](Self::finish) then refuses with all of them.
pub(crate) struct Config<'a> {
    metadata: &'a Metadata<'a>,
    n_vocab: usize,
    arch: &'static str,
    known: BTreeSet<String>,
    /// Keys whose values are not what was read.
    unusable: BTreeSet<String>,
    problems: Vec<String>,
}

impl<'a> Config<'a> {
    pub(crate) fn new(set: &'a GgufSet<'a>, arch: &'static str) -> Self {
        let metadata = set.metadata();
        let (known, unusable) = (BTreeSet::new(), BTreeSet::new());
        let mut config = Self { metadata, n_vocab: 0, arch, known, unusable, problems: Vec::new() };
        match metadata.strs("tokenizer.ggml.tokens") {
            Ok([]) => config.refuse("tokenizer.ggml.tokens has no entries, expected at least 1".to_owned()),
            Ok(tokens) => config.n_vocab = tokens.len(),
            Err(error) => config.refuse(error.to_string()),
        }
        if config.n_vocab > 0
            && let Some(stated) = config.opt_count("vocab_size")
            && config.usable(&["vocab_size"])
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

    /// Notes that a key can't be used, and gives a harmless value in its place.
    fn problem<T>(&mut self, key: &str, problem: &impl ToString, harmless: T) -> T {
        self.unusable.insert(key.to_owned());
        self.problems.push(problem.to_string());
        harmless
    }

    /// Whether none of these keys had a problem. What a harmless value contradicts is no problem of its own.
    pub(crate) fn usable(&self, names: &[&str]) -> bool {
        names.iter().all(|name| !self.unusable.contains(&format!("{}.{name}", self.arch)))
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
            Err(error) => self.problem(&key, &error, 1),
        }
    }

    /// A count of at least one, if the key is there.
    pub(crate) fn opt_count(&mut self, name: &str) -> Option<usize> {
        let key = self.key(name);
        match self.metadata.opt_usize(&key) {
            Ok(count) => count.map(|count| self.in_range(&key, count)),
            Err(error) => self.problem(&key, &error, None),
        }
    }

    fn in_range(&mut self, key: &str, count: usize) -> usize {
        if (1..=MAX_COUNT).contains(&count) {
            return count;
        }
        self.problem(key, &format!("{key} is {count}, expected 1 to {MAX_COUNT}"), 1)
    }

    /// The number of layers.
    pub(crate) fn n_layer(&mut self) -> usize {
        let n_layer = self.count("block_count");
        if n_layer <= MAX_LAYERS {
            return n_layer;
        }
        let key = self.key("block_count");
        self.problem(&key, &format!("{key} is {n_layer}, expected at most {MAX_LAYERS}"), 1)
    }

    /// One count for each layer: stated once for all of them, or as an array.
    pub(crate) fn per_layer(&mut self, name: &str, n_layer: usize) -> Vec<usize> {
        let key = self.key(name);
        if self.metadata.value(&key).is_none_or(|value| value.as_array().is_none()) {
            return vec![self.count(name); n_layer];
        }
        let counts = match self.metadata.ints::<u32>(&key) {
            Ok(counts) => counts,
            Err(error) => return self.problem(&key, &error, vec![1; n_layer]),
        };
        if counts.len() != n_layer {
            let harmless = vec![1; n_layer];
            if !self.usable(&["block_count"]) {
                return harmless;
            }
            let problem = format!("{key} has {} entries, expected one for each of {n_layer} layers", counts.len());
            return self.problem(&key, &problem, harmless);
        }
        if let Some(layer) = counts.iter().position(|&count| !(1..=MAX_COUNT).contains(&(count as usize))) {
            let problem = format!("{key} is {} for layer {layer}, expected 1 to {MAX_COUNT}", counts[layer]);
            return self.problem(&key, &problem, vec![1; n_layer]);
        }
        counts.into_iter().map(|count| count as usize).collect()
    }

    /// A float above zero.
    pub(crate) fn float(&mut self, name: &str) -> f32 {
        self.float_above(name, 0.0)
    }

    /// A float above zero, if the key is there.
    pub(crate) fn opt_float(&mut self, name: &str) -> Option<f32> {
        self.opt_float_above(name, 0.0)
    }

    /// A bound on magnitudes: a float above zero, or none if the key is missing or 0.
    pub(crate) fn opt_cap(&mut self, name: &str) -> Option<f32> {
        let key = self.key(name);
        if let Ok(Some(0.0)) = self.metadata.opt_f32(&key) { None } else { self.opt_float(name) }
    }

    /// A float above a bound, such as a rotary base, which is above 1.
    pub(crate) fn float_above(&mut self, name: &str, bound: f32) -> f32 {
        let key = self.key(name);
        match self.metadata.f32(&key) {
            Ok(float) => self.float_in_range(name, &key, bound, float),
            Err(error) => self.problem(&key, &error, bound + 1.0),
        }
    }

    /// A float above a bound, if the key is there.
    pub(crate) fn opt_float_above(&mut self, name: &str, bound: f32) -> Option<f32> {
        let key = self.key(name);
        match self.metadata.opt_f32(&key) {
            Ok(float) => float.map(|float| self.float_in_range(name, &key, bound, float)),
            Err(error) => self.problem(&key, &error, None),
        }
    }

    fn float_in_range(&mut self, name: &str, key: &str, bound: f32, float: f32) -> f32 {
        let most = if name.starts_with("rope.freq_base") {
            MAX_ROPE_BASE
        } else if name.ends_with("epsilon") {
            MAX_EPS
        } else {
            MAX_FLOAT
        };
        let problem = if float <= bound {
            format!("{key} is {float}, expected more than {bound}")
        } else if !(MIN_FLOAT..=most).contains(&float) {
            format!("{key} is {float:e}, expected {MIN_FLOAT:e} to {most:e}")
        } else {
            return float;
        };
        self.problem(key, &problem, bound + 1.0)
    }

    /// Which layers slide, from a key that is either a period or an array of truth values, repeated if it is shorter.
    ///
    /// With a period `p`, the last of every `p` layers is global and the others slide; a period of 0 makes all slide.
    /// One beyond the number of layers, which would make all slide too, is taken for damage.
    pub(crate) fn sliding_pattern(&mut self, name: &str, n_layer: usize) -> Option<Vec<bool>> {
        let key = self.key(name);
        let harmless = Some(vec![false; n_layer]);
        if self.metadata.value(&key)?.as_array().is_none() {
            return match self.metadata.usize(&key) {
                Ok(period) if period <= n_layer || !self.usable(&["block_count"]) => {
                    Some(every_last_is_global(period, n_layer))
                }
                Ok(period) => {
                    self.problem(&key, &format!("{key} is {period}, expected 0 to the {n_layer} layers"), harmless)
                }
                Err(error) => self.problem(&key, &error, harmless),
            };
        }
        match self.metadata.bools(&key) {
            Ok(slides) if (1..=n_layer).contains(&slides.len()) => {
                Some(slides.iter().copied().cycle().take(n_layer).collect())
            }
            Ok(slides) if !slides.is_empty() && !self.usable(&["block_count"]) => harmless,
            Ok(slides) => {
                self.problem(&key, &format!("{key} has {} entries, expected 1 to {n_layer}", slides.len()), harmless)
            }
            Err(error) => self.problem(&key, &error, harmless),
        }
    }

    /// How the file says that rotary angles are stretched.
    pub(crate) fn rope_scaling(&mut self, n_ctx_train: usize) -> RopeScaling {
        self.without_effect(&["rope.scaling.finetuned"]);
        let type_key = self.key("rope.scaling.type");
        let kind = match self.metadata.opt_str(&type_key) {
            Ok(kind) => kind.unwrap_or("linear"),
            Err(error) => return self.problem(&type_key, &error, RopeScaling::None),
        };
        let factor = self.opt_float("rope.scaling.factor").or_else(|| self.opt_float("rope.scale_linear"));
        match (kind, factor) {
            ("none", _) | ("linear", None | Some(1.0)) => RopeScaling::None,
            ("linear", Some(factor)) => RopeScaling::Linear { factor },
            ("yarn", None) => {
                let problem = format!("{type_key} is \"yarn\", but {}.rope.scaling.factor is missing", self.arch);
                self.problem(&type_key, &problem, RopeScaling::None)
            }
            ("yarn", Some(factor)) => {
                self.unsupported(&["rope.scaling.yarn_attn_factor", "rope.scaling.yarn_log_multiplier"]);
                if let Some(ext_factor) = self.opt_float("rope.scaling.yarn_ext_factor")
                    && ext_factor.to_bits() != 1.0f32.to_bits()
                {
                    let key = self.key("rope.scaling.yarn_ext_factor");
                    self.refuse(format!("{key} is {ext_factor}, and only 1 is supported"));
                }
                RopeScaling::Yarn {
                    factor,
                    n_ctx_original: self.opt_count("rope.scaling.original_context_length").unwrap_or(n_ctx_train),
                    beta_fast: self.opt_float("rope.scaling.yarn_beta_fast").unwrap_or(32.0),
                    beta_slow: self.opt_float("rope.scaling.yarn_beta_slow").unwrap_or(1.0),
                    attn_factor: self.opt_float("rope.scaling.attn_factor").unwrap_or(1.0),
                }
            }
            _ => {
                let problem = format!("{type_key} is {kind:?}, expected \"none\", \"linear\" or \"yarn\"");
                self.problem(&type_key, &problem, RopeScaling::None)
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
