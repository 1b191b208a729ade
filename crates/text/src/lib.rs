//! Tokenisers, streaming detokeniser and chat templates.
#![forbid(unsafe_code)]
