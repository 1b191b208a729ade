//! Quantised block layouts and their scalar meaning.
#![forbid(unsafe_code)]
