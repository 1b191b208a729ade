//! Tests that span crates.
#![forbid(unsafe_code)]
