//! What a backend computes, and the f32 reference backend.
#![forbid(unsafe_code)]
