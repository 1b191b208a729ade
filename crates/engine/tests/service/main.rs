//! Many requests over one engine: the determinism contract, prefixes, ends of answers, cancellation, shutdown.

mod backend;
mod bits;
mod control;
mod embeddings;
mod ends;
mod faults;
mod numbers;
mod prefixes;
mod support;
mod windows;
