//! What is wrong with one field of a request.

/// A field that can't be done, by its place in the body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{param}: {message}")]
pub struct FieldError {
    /// Where, such as `tools[0].function.name`.
    pub param: String,
    /// What was found and what is expected.
    pub message: String,
}

impl FieldError {
    pub(crate) fn new(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: param.into(), message: message.into() }
    }
}
