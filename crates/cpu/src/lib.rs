//! CPU kernels, their dispatch, and the worker pool.

pub mod caps;
