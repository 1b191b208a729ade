//! A request that was read and found good, and what the engine is asked for it.

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use muser_engine::service::{Request, Work};
use serde_json::{Value, json};

use crate::answer::{Answers, Piece, Scored, ScoredTokens, Usage};
use crate::app::App;
use crate::jobs::Jobs;
use crate::reply::{self, ApiError, ApiResult};
use crate::settings::Settings;

/// What is to be answered, and how.
pub struct Prepared {
    /// Tokens of each prompt.
    pub prompts: Vec<Vec<u32>>,
    pub settings: Settings,
    /// Headers of the reply.
    pub headers: HeaderMap,
}

/// A whole choice.
#[derive(Default)]
pub struct Choice {
    pub text: String,
    pub scored: Vec<Scored>,
    pub finish: &'static str,
}

impl Prepared {
    /// Checks that the prompts leave room for an answer, and adds what the reply says of its length. `param` is where the
    /// prompts came from.
    ///
    /// # Errors
    /// A prompt is empty, or fills the context, or no token can begin an answer.
    pub fn new(
        app: &App,
        param: &str,
        prompts: Vec<Vec<u32>>,
        settings: Settings,
        mut headers: HeaderMap,
    ) -> ApiResult<Self> {
        let n_ctx = app.served.service.status().n_ctx;
        check_prompts(param, &prompts, n_ctx.saturating_sub(1), n_ctx)?;
        settings.check_beginning(&app.served.tokenizer)?;
        let longest = prompts.iter().map(Vec::len).max().unwrap_or_default();
        // The last token of an answer needs no place.
        let room = n_ctx - longest + 1;
        let most = settings.max_tokens.map_or(room, |most| most.min(room));
        headers.insert(reply::MAX_TOKENS, HeaderValue::from(most));
        Ok(Self { prompts, settings, headers })
    }

    /// Hands it to the engine. Choices of one prompt follow one another.
    ///
    /// # Errors
    /// The engine takes no more now.
    pub fn submit(self, app: &App) -> ApiResult<Answers> {
        let Self { prompts, settings, .. } = self;
        let (n, n_choice) = (settings.n, prompts.len() * settings.n);
        let scored = |_| ScoredTokens::new(&app.served.tokenizer, settings.special);
        let scored = settings.top_logprobs.map(|_| (0..n_choice).map(scored).collect());
        let make = move |choice: usize| Request {
            prompt: prompts[choice / n].clone(),
            work: Work::Generate(settings.options(choice % n)),
        };
        let service = app.served.service.clone();
        let at_once = service.status().slots.len();
        Ok(Answers::new(Jobs::submit(service, n_choice, at_once, Box::new(make))?, n_choice, n, scored))
    }
}

/// Checks how long prompts are.
///
/// # Errors
/// One has no token, or more than `most`.
pub fn check_prompts(param: &str, prompts: &[Vec<u32>], most: usize, n_ctx: usize) -> ApiResult<()> {
    for (index, prompt) in prompts.iter().enumerate() {
        let place = if prompts.len() == 1 { param.to_owned() } else { format!("{param}[{index}]") };
        if prompt.is_empty() {
            let message = format!("`{place}` has no tokens; expected 1 to {most}");
            return Err(ApiError::invalid(place, message));
        }
        if prompt.len() > most {
            let message = format!(
                "`{place}` has {} tokens; expected at most {most}: the context holds {n_ctx}, and an answer needs a place in it",
                prompt.len()
            );
            let error = ApiError::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message);
            return Err(ApiError { param: Some(place), ..error });
        }
    }
    Ok(())
}

/// Waits for whole answers.
///
/// # Errors
/// One of them failed.
pub async fn collect(mut answers: Answers, n_choice: usize) -> ApiResult<(Vec<Choice>, Usage)> {
    let mut choices: Vec<Choice> = (0..n_choice).map(|_| Choice::default()).collect();
    while let Some(Piece { choice, text, scored, finish }) = answers.next().await? {
        let whole = &mut choices[choice];
        whole.text += &text;
        whole.scored.extend(scored);
        whole.finish = finish.unwrap_or(whole.finish);
    }
    Ok((choices, answers.usage()))
}

/// What every document of a reply starts with.
pub struct Head {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
}

impl Head {
    /// A document with these choices.
    pub fn document(&self, choices: &[Value]) -> Value {
        json!({
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": concat!("muser-", env!("CARGO_PKG_VERSION")),
            "choices": choices,
        })
    }
}
