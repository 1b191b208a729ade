//! How an answer is to be made: the fields that chat and completion requests share.

use std::hash::{BuildHasher, RandomState};

use muser_engine::sampler::SamplerSpec;
use muser_engine::service::GenerateOptions;
use muser_text::Tokenizer;
use serde_json::{Value, json};

use crate::answer::failed;
use crate::fields::{Fields, Unknown, whole};
use crate::foreign;
use crate::reply::{ApiError, ApiResult};
use crate::structured::GrammarConstraint;

/// Most stop texts of a request.
const MAX_STOPS: usize = 16;
/// Longest stop text, in bytes. What may be the start of one is held back while an answer streams.
const MAX_STOP_BYTES: usize = 1024;
/// Most tokens listed beside the chosen one.
pub const MAX_TOP_LOGPROBS: i64 = 20;
/// Greatest bias of a token, which excludes all without it; the least one excludes the token.
const MAX_BIAS: f64 = 100.0;
/// How many tokens back penalties look where a request does not say.
const PENALTY_LAST_N: usize = 64;

/// Fields that have no effect on an answer anywhere.
const WITHOUT_EFFECT: [&str; 7] = [
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prediction",
    "service_tier",
];

/// How the choices of a request are made.
#[derive(Debug)]
pub struct Settings {
    /// Most tokens of a choice; `None` is as many as the context has room for.
    pub max_tokens: Option<usize>,
    /// Choices for each prompt.
    pub n: usize,
    /// How many tokens are listed beside each; `None` for no log-probabilities.
    pub top_logprobs: Option<usize>,
    /// How the reply is streamed, if it is.
    pub stream: Option<StreamOptions>,
    /// Texts that end a choice.
    pub stop: Vec<String>,
    /// What the answers are held to.
    pub constraint: Option<GrammarConstraint>,
    /// Whether the names of control tokens are part of the text.
    pub special: bool,
    sampler: SamplerSpec,
    logit_bias: Vec<(u32, f32)>,
    ignore_eos: bool,
}

/// How a reply is streamed.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// Whether a last chunk says how many tokens there were.
    pub include_usage: bool,
}

/// What the fields are checked against.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most choices for a prompt: the slots.
    pub max_n: usize,
    /// Tokens of the vocabulary.
    pub n_vocab: usize,
}

impl Settings {
    /// Takes the fields, but for `max_tokens` and those about log-probabilities, which the interfaces spell differently.
    /// Answers are held to nothing.
    ///
    /// # Errors
    /// The first field that is out of its range or not supported.
    pub fn take(fields: &mut Fields, bounds: Bounds, unknown: &mut Unknown) -> ApiResult<Self> {
        fields.without_effect(&WITHOUT_EFFECT);
        foreign::refuse(fields, foreign::ANSWERS)?;
        fields.only("store", &json!(false))?;
        let n = choices(fields, bounds.max_n)?;
        let sampler = sampler(fields)?;
        Ok(Self {
            max_tokens: None,
            n,
            top_logprobs: None,
            stream: stream(fields, unknown)?,
            stop: stop(fields)?,
            constraint: None,
            special: false,
            sampler,
            logit_bias: logit_bias(fields, bounds.n_vocab)?,
            ignore_eos: fields.flag("ignore_eos")?,
        })
    }

    /// Checks that bias and form leave a token for an answer to begin with.
    ///
    /// # Errors
    /// They leave none.
    pub fn check_beginning(&self, tokenizer: &Tokenizer) -> ApiResult<()> {
        let excludes = self.logit_bias.iter().any(|(_, bias)| bias.abs() >= MAX_BIAS as f32);
        if !(excludes || self.ignore_eos) {
            return Ok(());
        }
        let mut options = self.options(0);
        if options.can_begin(tokenizer).map_err(|error| failed(&error.into()))? {
            return Ok(());
        }
        let param = if excludes { "logit_bias" } else { "ignore_eos" };
        let beside = if self.constraint.is_some() { ", beside the form of the answer," } else { "" };
        let message =
            format!("`{param}`{beside} excludes every token that an answer could begin with; expected to leave one");
        Err(ApiError::invalid(param, message))
    }

    /// What the engine is asked for one choice. Choices differ in their seed only.
    pub fn options(&self, choice: usize) -> GenerateOptions {
        GenerateOptions {
            max_tokens: self.max_tokens,
            sampler: SamplerSpec { seed: self.sampler.seed.wrapping_add(choice as u64), ..self.sampler },
            logit_bias: self.logit_bias.clone(),
            top_logprobs: self.top_logprobs,
            stop: self.stop.clone(),
            ignore_eos: self.ignore_eos,
            constraint: self.constraint.as_ref().map(|constraint| Box::new(constraint.fork()) as _),
            special: self.special,
        }
    }
}

/// Takes a limit on tokens: at least 1, and none where it is larger than any context.
///
/// # Errors
/// It is less, or no whole number.
pub fn max_tokens(fields: &mut Fields, name: &str) -> ApiResult<Option<usize>> {
    Ok(fields.at_least(name, 1)?.map(|tokens| tokens as usize))
}

/// Takes the number of choices, which are made beside each other.
fn choices(fields: &mut Fields, max_n: usize) -> ApiResult<usize> {
    let Some(value) = fields.take("n") else { return Ok(1) };
    whole(&value).filter(|n| (1..=max_n as i64).contains(n)).map(|n| n as usize).ok_or_else(|| {
        let expected = match max_n {
            1 => "1: each choice takes a slot, and the server has one (--slots)".to_owned(),
            max_n => format!("a whole number from 1 to {max_n}: each choice takes one of the server's slots (--slots)"),
        };
        ApiError::out_of_range(fields.path("n"), &value, &expected)
    })
}

fn sampler(fields: &mut Fields) -> ApiResult<SamplerSpec> {
    let top_k = fields.at_least("top_k", -1)?.unwrap_or(0).max(0) as usize;
    let penalty_last_n = match fields.at_least("penalty_last_n", -1)? {
        None => PENALTY_LAST_N,
        // The whole context.
        Some(-1) => usize::MAX,
        Some(tokens) => tokens as usize,
    };
    Ok(SamplerSpec {
        temperature: fields.number("temperature", 0.0..=2.0)?.unwrap_or(1.0),
        top_k,
        top_p: fields.number("top_p", 0.0..=1.0)?.unwrap_or(1.0),
        min_p: fields.number("min_p", 0.0..=1.0)?.unwrap_or(0.0),
        repetition_penalty: fields.number("repetition_penalty", 0.01..=100.0)?.unwrap_or(1.0),
        presence_penalty: fields.number("presence_penalty", -2.0..=2.0)?.unwrap_or(0.0),
        frequency_penalty: fields.number("frequency_penalty", -2.0..=2.0)?.unwrap_or(0.0),
        penalty_last_n,
        seed: seed(fields)?.unwrap_or_else(fresh_seed),
    })
}

/// Takes the seed. A negative one is as good as any.
fn seed(fields: &mut Fields) -> ApiResult<Option<u64>> {
    let Some(value) = fields.take("seed") else { return Ok(None) };
    match value.as_u64().or_else(|| value.as_i64().map(|seed| seed as u64)) {
        Some(seed) => Ok(Some(seed)),
        None => Err(ApiError::out_of_range(fields.path("seed"), &value, "a whole number of 64 bits")),
    }
}

/// A number that nobody can foresee; the standard library draws the keys of its hashes from the system.
pub fn fresh_seed() -> u64 {
    RandomState::new().hash_one(())
}

fn stream(fields: &mut Fields, unknown: &mut Unknown) -> ApiResult<Option<StreamOptions>> {
    let is_streamed = fields.flag("stream")?;
    let options = fields.object("stream_options")?;
    if options.is_some() && !is_streamed {
        let message = "`stream_options` is only allowed where `stream` is true";
        return Err(ApiError::invalid(fields.path("stream_options"), message));
    }
    let include_usage = match options {
        None => false,
        Some(mut options) => {
            let include_usage = options.flag("include_usage")?;
            options.only("include_obfuscation", &json!(false))?;
            options.finish(unknown);
            include_usage
        }
    };
    Ok(is_streamed.then_some(StreamOptions { include_usage }))
}

fn stop(fields: &mut Fields) -> ApiResult<Vec<String>> {
    let path = fields.path("stop");
    let values = match fields.take("stop") {
        None => Vec::new(),
        Some(Value::Array(values)) => values,
        Some(value) => vec![value],
    };
    if values.len() > MAX_STOPS {
        let message = format!("`{path}` has {} texts; expected at most {MAX_STOPS}", values.len());
        return Err(ApiError::invalid(path, message));
    }
    let text = |value: Value| match value {
        Value::String(text) if (1..=MAX_STOP_BYTES).contains(&text.len()) => Ok(text),
        Value::String(text) => {
            let message = format!("`{path}` has a text of {} bytes; expected 1 to {MAX_STOP_BYTES}", text.len());
            Err(ApiError::invalid(&path, message))
        }
        other => Err(ApiError::out_of_range(&path, &other, "a string, or an array of them")),
    };
    values.into_iter().map(text).collect()
}

fn logit_bias(fields: &mut Fields, n_vocab: usize) -> ApiResult<Vec<(u32, f32)>> {
    let path = fields.path("logit_bias");
    let map = match fields.take("logit_bias") {
        None => return Ok(Vec::new()),
        Some(Value::Object(map)) => map,
        Some(other) => return Err(ApiError::out_of_range(path, &other, "an object from token ids to numbers")),
    };
    let bias = |(name, value): (String, Value)| {
        // One way to write an id, so that no token stands twice.
        let id = name.parse().ok().filter(|id: &u32| (*id as usize) < n_vocab && id.to_string() == name);
        let id = id.ok_or_else(|| {
            let message = format!("`{path}` names the token {name:?}; expected an id from 0 to {}", n_vocab - 1);
            ApiError::invalid(&path, message)
        })?;
        let bias = value
            .as_f64()
            .filter(|bias| (-MAX_BIAS..=MAX_BIAS).contains(bias))
            .ok_or_else(|| ApiError::out_of_range(format!("{path}.{id}"), &value, "a number from -100 to 100"))?;
        Ok((id, bias as f32))
    };
    map.into_iter().map(bias).collect()
}

/// Token ids of an array.
///
/// # Errors
/// One is not in a vocabulary of `n_vocab`.
pub fn token_ids(path: &str, values: &[Value], n_vocab: usize) -> ApiResult<Vec<u32>> {
    let id = |(index, value): (usize, &Value)| {
        let id = whole(value).filter(|id| (0..n_vocab as i64).contains(id));
        let expected = format!("a token id from 0 to {}", n_vocab.saturating_sub(1));
        id.map(|id| id as u32).ok_or_else(|| ApiError::out_of_range(format!("{path}[{index}]"), value, &expected))
    };
    values.iter().enumerate().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(body: Value) -> ApiResult<Settings> {
        let mut fields = Fields::of("", body)?;
        Settings::take(&mut fields, Bounds { max_n: 4, n_vocab: 100 }, &mut Unknown::default())
    }

    #[test]
    fn defaults_are_those_of_the_interface() {
        let settings = settings(json!({})).expect("nothing is wrong");
        let SamplerSpec { temperature, top_p, top_k, min_p, repetition_penalty, .. } = settings.sampler;
        assert_eq!((temperature, top_p, top_k, min_p, repetition_penalty), (1.0, 1.0, 0, 0.0, 1.0));
        assert_eq!((settings.n, settings.stop.len(), settings.stream.is_none()), (1, 0, true));
    }

    #[test]
    fn what_is_out_of_range_or_not_supported_is_refused_by_name() {
        for (body, param) in [
            (json!({"temperature": -0.1}), "temperature"),
            (json!({"temperature": "1"}), "temperature"),
            (json!({"top_n_sigma": 1}), "top_n_sigma"),
            (json!({"top_p": 1.5}), "top_p"),
            (json!({"top_k": -2}), "top_k"),
            (json!({"min_p": -1}), "min_p"),
            (json!({"n": 5}), "n"),
            (json!({"n": 0}), "n"),
            (json!({"seed": 0.5}), "seed"),
            (json!({"stop": ""}), "stop"),
            (json!({"stop": ["a", ""]}), "stop"),
            (json!({"stop": vec!["a"; 17]}), "stop"),
            (json!({"stop": 3}), "stop"),
            (json!({"penalty_last_n": -2}), "penalty_last_n"),
            (json!({"presence_penalty": 3}), "presence_penalty"),
            (json!({"frequency_penalty": -2.5}), "frequency_penalty"),
            (json!({"repetition_penalty": 0}), "repetition_penalty"),
            (json!({"logit_bias": []}), "logit_bias"),
            (json!({"logit_bias": {"100": 1}}), "logit_bias"),
            (json!({"logit_bias": {"x": 1}}), "logit_bias"),
            (json!({"logit_bias": {"07": 1}}), "logit_bias"),
            (json!({"logit_bias": {"7": 101}}), "logit_bias.7"),
            (json!({"stream_options": {}}), "stream_options"),
            (json!({"stream": true, "stream_options": {"include_usage": 1}}), "stream_options.include_usage"),
            (json!({"store": true}), "store"),
            (json!({"mirostat": 2}), "mirostat"),
            (json!({"grammar": "root ::= x"}), "grammar"),
        ] {
            let error = settings(body.clone()).err().unwrap_or_else(|| panic!("{body} was taken"));
            assert_eq!(error.param.as_deref(), Some(param), "{body}");
            assert!(error.message.contains("expected") || error.message.contains("only allowed"), "{}", error.message);
        }
    }

    #[test]
    fn choices_are_bounded_by_the_slots_and_the_refusal_says_so() {
        for (max_n, n, expected) in [
            (1, json!(0), "`n` is 0; expected 1: each choice takes a slot, and the server has one (--slots)"),
            (1, json!(2), "`n` is 2; expected 1: each choice takes a slot, and the server has one (--slots)"),
            (
                4,
                json!(1.5),
                "`n` is 1.5; expected a whole number from 1 to 4: each choice takes one of the server's slots (--slots)",
            ),
        ] {
            let error = choices(&mut Fields::of("", json!({"n": n})).expect("an object"), max_n).expect_err("too many");
            assert_eq!(error.message, expected);
        }
    }

    #[test]
    fn neutral_and_absent_values_are_taken() {
        for body in [
            json!({"temperature": 0, "top_k": 0, "top_p": 0, "min_p": 1}),
            json!({"top_k": -1, "penalty_last_n": -1}),
            json!({"penalty_last_n": 0}),
            json!({"penalty_last_n": 1_000_000_000}),
            json!({"stop": null, "seed": -1, "logit_bias": {}, "store": false, "user": "somebody"}),
            json!({"stop": [], "n": 4.0, "temperature": null}),
            json!({"mirostat": 0, "typical_p": 1.0, "stop_sequences": [], "skip_special_tokens": true}),
        ] {
            assert!(settings(body.clone()).is_ok(), "{body}");
        }
    }

    #[test]
    fn choices_differ_in_their_seed_only() {
        let settings = settings(json!({"seed": 7, "n": 2})).expect("nothing is wrong");
        let seeds = [0, 1].map(|choice| settings.options(choice).sampler.seed);
        assert_eq!(seeds, [7, 8]);
    }
}
