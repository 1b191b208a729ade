//! Tests that span crates, in `tests/`; their data is in `data/`, and the tools that make and compare it in `tools/`.
#![forbid(unsafe_code)]
