//! CPU kernels, their dispatch, and the worker pool.
#![expect(clippy::inline_always, reason = "lanes become instructions only inside what enables them")]

mod arch;
pub mod attention;
mod backend;
pub mod caps;
mod dispatch;
pub mod elementwise;
mod error;
mod grow;
mod math;
pub mod norm;
pub mod pool;
pub mod product;
pub mod roof;
pub mod rope;

pub use backend::CpuBackend;
pub use error::Error;

#[cfg(test)]
mod testing;
