//! The commands, one file each.

pub mod inspect;
pub mod perplexity;
pub mod plan;
pub mod run;
pub mod score;
pub mod taps;
pub mod tokenize;
