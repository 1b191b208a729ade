//! The `muser` binary, as a user meets it: what it prints where, and how it ends.

mod bad_files;
mod bench;
mod chat;
mod doctor;
mod faults;
mod inspect;
mod interrupts;
mod perplexity;
mod plan;
mod run;
mod scan;
mod score;
mod shards;
mod split;
mod support;
mod taps;
mod tokenize;
