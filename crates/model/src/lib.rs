//! Model architectures as data, and the one decoder.
#![forbid(unsafe_code)]
