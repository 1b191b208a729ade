//! GGUF model files: parse, validate, write.
#![forbid(unsafe_code)]
