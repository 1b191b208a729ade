//! Sessions, sampling and generation.
#![forbid(unsafe_code)]
