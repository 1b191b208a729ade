//! CPU kernels, their dispatch, and the worker pool.
#![expect(clippy::inline_always, reason = "lane operations only become instructions inside the function that enables them")]

mod arch;
pub mod attention;
pub mod caps;
mod dispatch;
pub mod elementwise;
mod math;
pub mod norm;
pub mod pool;
pub mod product;
pub mod rope;

#[cfg(test)]
mod testing;
