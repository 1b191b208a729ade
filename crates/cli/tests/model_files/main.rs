//! Model files that broke other engines, byte for byte, through the binary: each is refused by the name of what is wrong
//! and its numbers, with exit code 4, within bounds of memory; and the same file made right is run.
//!
//! All files are small, and no other test runs here: the memory that is measured is that of these calls alone.

mod child;
mod keys;
mod raw;
mod structure;
mod template;
mod tensors;
mod text;
mod vocabulary;
