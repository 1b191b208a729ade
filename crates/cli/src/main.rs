//! The `muser` command.
#![forbid(unsafe_code)]

fn main() {}
