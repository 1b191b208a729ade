//! `/v1/embeddings`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use muser_engine::service::{Event, Pooling, Request, Work};
use muser_text::Special;
use serde_json::{Value, json};

use crate::answer::failed;
use crate::app::App;
use crate::body;
use crate::completions::take_prompts;
use crate::fields::{Fields, Unknown};
use crate::foreign;
use crate::jobs::{Jobs, Progress};
use crate::json::Counted;
use crate::prepared::check_prompts;
use crate::reply::{ApiError, ApiResult};

/// Most texts of a request, as in the interface.
const MAX_INPUTS: usize = 2048;

/// How a vector is written.
#[derive(Clone, Copy)]
enum Encoding {
    /// As an array of numbers.
    Float,
    /// As base64 of little-endian 32-bit floats.
    Base64,
}

struct Inputs {
    prompts: Vec<Vec<u32>>,
    pooling: Pooling,
    encoding: Encoding,
    headers: HeaderMap,
}

/// Makes a vector of length 1 for each text.
pub async fn embed(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> ApiResult<Response> {
    let bounded = Some(("input", Counted::Numbers));
    let Inputs { prompts, pooling, encoding, headers } = body::parse(&app, &headers, body, bounded, inputs).await?;
    let n_input = prompts.len();
    let n_prompt: usize = prompts.iter().map(Vec::len).sum();
    let service = app.served.service.clone();
    let at_once = service.status().slots.len();
    let make = move |index: usize| Request { prompt: prompts[index].clone(), work: Work::Embed(pooling) };
    let mut jobs = Jobs::submit(service, n_input, at_once, Box::new(make))?;
    let mut vectors = vec![Value::Null; n_input];
    while let Some((index, progress)) = jobs.next().await? {
        match progress {
            Progress::Event(Event::Embedding(values)) => vectors[index] = encoding.json(&normed(values)),
            Progress::Event(Event::Failed(error)) => return Err(failed(&error)),
            Progress::Event(_) => {}
            Progress::Unread | Progress::Lost => return Err(ApiError::internal("the engine has gone away")),
        }
    }
    let item = |(index, vector)| json!({"object": "embedding", "index": index, "embedding": vector});
    let document = json!({
        "object": "list",
        "data": vectors.into_iter().enumerate().map(item).collect::<Vec<_>>(),
        "model": app.model(),
        "usage": {"prompt_tokens": n_prompt, "total_tokens": n_prompt},
    });
    Ok((headers, Json(document)).into_response())
}

fn inputs(app: &App, mut fields: Fields) -> ApiResult<Inputs> {
    let mut unknown = Unknown::default();
    app.take_model(&mut fields)?;
    let prompts = take_prompts(app, &mut fields, "input", Special::Plain, MAX_INPUTS)?;
    let encoding = match fields.take("encoding_format") {
        None => Encoding::Float,
        Some(format) if format == "float" => Encoding::Float,
        Some(format) if format == "base64" => Encoding::Base64,
        Some(other) => return Err(ApiError::out_of_range("encoding_format", &other, "\"float\" or \"base64\"")),
    };
    let pooling = match fields.take("pooling") {
        None => Pooling::Mean,
        Some(pooling) if pooling == "mean" => Pooling::Mean,
        Some(pooling) if pooling == "last" => Pooling::Last,
        Some(other) => return Err(ApiError::out_of_range("pooling", &other, "\"mean\" or \"last\"")),
    };
    foreign::refuse(&mut fields, foreign::EMBEDDINGS)?;
    fields.without_effect(&["user"]);
    fields.finish(&mut unknown);
    let headers = app.judge(&unknown)?;
    let n_ctx = app.served.service.status().n_ctx;
    check_prompts("input", &prompts, n_ctx, n_ctx)?;
    Ok(Inputs { prompts, pooling, encoding, headers })
}

impl Encoding {
    fn json(self, values: &[f32]) -> Value {
        match self {
            Self::Float => json!(values),
            Self::Base64 => {
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                json!(STANDARD.encode(bytes))
            }
        }
    }
}

/// A vector brought to length 1; one without a direction stays as it is.
fn normed(mut values: Vec<f32>) -> Vec<f32> {
    let length = values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        values.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_brought_to_length_1_and_keeps_its_direction() {
        assert_eq!(normed(vec![3.0, -4.0]), [0.6, -0.8]);
        assert_eq!(normed(vec![0.0, 0.0]), [0.0, 0.0]);
    }

    #[test]
    fn base64_holds_the_same_bits() {
        let Value::String(text) = Encoding::Base64.json(&[1.0, -2.5]) else { panic!("not a string") };
        let bytes = STANDARD.decode(text).expect("base64");
        assert_eq!(bytes, [1.0f32.to_le_bytes(), (-2.5f32).to_le_bytes()].concat());
    }
}
