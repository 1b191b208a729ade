//! The HTTP server.
#![forbid(unsafe_code)]

mod field;
pub mod structured;

pub use field::FieldError;
