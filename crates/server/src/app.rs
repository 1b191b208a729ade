//! What all handlers share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use muser_engine::service::Service;
use muser_text::Tokenizer;
use muser_text::template::ChatTemplate;
use serde_json::{Map, Value};

use crate::body::Held;
use crate::fields::{Fields, Unknown};
use crate::keys::Keys;
use crate::metrics::HttpMetrics;
use crate::reply::{self, ApiError, ApiResult};
use crate::structured::Grammars;
use crate::tools::Dialect;
use crate::trace::Ids;

/// How a server is set up.
#[derive(Debug)]
pub struct Options {
    /// Where it listens; port 0 for any that is free.
    pub address: SocketAddr,
    /// Keys of which requests must carry one. Demanded where other machines can reach the address.
    pub keys: Option<Keys>,
    /// Names besides this machine's own by which clients may call it in their `Host`.
    pub allowed_hosts: Vec<String>,
    /// Whether unknown fields are refused; otherwise a header of the reply names them.
    pub strict: bool,
    /// Longest body of a request, in bytes.
    pub max_body_bytes: usize,
    /// Most connections at a time; further ones wait to be accepted.
    pub max_connections: usize,
    /// How long the head of a request may take to arrive, and a connection may stay unused.
    pub header_timeout: Duration,
    /// How long the body of a request may take to arrive.
    pub body_timeout: Duration,
    /// How long a client may go without taking anything of a reply that waits.
    pub write_timeout: Duration,
    /// How long requests that are being answered may go on after a shutdown has begun.
    pub shutdown_timeout: Duration,
}

impl Default for Options {
    /// On any free port of this machine alone, with limits for texts of some millions of tokens.
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            keys: None,
            allowed_hosts: Vec::new(),
            strict: false,
            max_body_bytes: 16 << 20,
            max_connections: 512,
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_mins(5),
            shutdown_timeout: Duration::from_secs(30),
        }
    }
}

/// What is served.
pub struct Served {
    /// Computes.
    pub service: Service,
    /// Its vocabulary.
    pub tokenizer: Arc<Tokenizer>,
    /// Its chat template, if it has one.
    pub template: Option<ChatTemplate>,
    /// Names that requests may call the model by; the first is what it is called in replies.
    pub names: Vec<String>,
    /// Facts for `/props` that the server does not know by itself.
    pub facts: Map<String, Value>,
    /// What was done otherwise than asked when the model was loaded, and how often.
    pub fallbacks: Vec<(&'static str, u64)>,
}

/// What all handlers share.
pub struct App {
    pub served: Served,
    /// What the chat template does with functions, if there is one.
    pub dialect: Option<Dialect>,
    pub grammars: Grammars,
    pub options: Options,
    /// Where it really listens.
    pub address: SocketAddr,
    pub metrics: HttpMetrics,
    pub ids: Ids,
    pub held: Held,
    /// Seconds since 1970.
    pub started: u64,
}

impl App {
    /// What the model is called in replies.
    pub fn model(&self) -> &str {
        &self.served.names[0]
    }

    /// Requests that the engine works on at once.
    pub fn n_slot(&self) -> usize {
        self.served.service.status().slots.len()
    }

    /// Tokens of the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.served.tokenizer.n_vocab()
    }

    /// Takes the model that a request wants, which has to be the one there is.
    ///
    /// # Errors
    /// It is another.
    pub fn take_model(&self, fields: &mut Fields) -> ApiResult<()> {
        match fields.string("model")? {
            Some(model) if !self.served.names.contains(&model) => Err(self.no_such_model(&model)),
            _ => Ok(()),
        }
    }

    /// The reply to a request for another model.
    pub fn no_such_model(&self, model: &str) -> ApiError {
        let message = format!("there is no model {model:?}; served is {}", self.served.names.join(", "));
        let error = ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message);
        ApiError { param: Some("model".into()), ..error }
    }

    /// What a header says of unknown fields.
    ///
    /// # Errors
    /// There are some, and they are to be refused.
    pub fn judge(&self, unknown: &Unknown) -> ApiResult<HeaderMap> {
        let mut headers = HeaderMap::new();
        if let Some(name) = unknown.first().filter(|_| self.options.strict) {
            let message = format!(
                "`{name}` is not a field that is known, and --strict refuses such; expected the field left out"
            );
            return Err(ApiError { code: "unknown_parameter", ..ApiError::invalid(name, message) });
        }
        if let Some(warning) = unknown.warning().and_then(|warning| HeaderValue::from_str(&warning).ok()) {
            headers.insert(reply::WARNING, warning);
        }
        Ok(headers)
    }
}
