//! What fuzz targets draw from the fuzzer's bytes: broken files, changed models, vocabularies.
//!
//! Run one with `cargo +nightly fuzz run NAME`; see `docs/testing.md`.

mod files;
#[path = "../../crates/cli/src/command/inspect/broken_files/samples.rs"]
#[allow(missing_docs, reason = "written for tests")]
pub mod samples;
mod vocabularies;

pub use files::{broken, changed};
pub use libfuzzer_sys::arbitrary;
pub use vocabularies::Vocabulary;
