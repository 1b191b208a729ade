//! The HTTP server.
#![forbid(unsafe_code)]

mod field;
pub mod structured;
pub mod tools;

pub use field::FieldError;
