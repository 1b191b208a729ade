//! Many requests over one engine: the determinism contract, prefixes, ends of answers, cancellation, shutdown.

mod bits;
mod support;
