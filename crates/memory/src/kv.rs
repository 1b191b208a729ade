//! KV planes: one layer's keys and values, a ring of rows addressed by token position.

mod detached;
mod fixed;
mod geometry;
mod plane;

#[cfg(test)]
mod detached_tests;
#[cfg(test)]
mod plane_tests;

pub use detached::{CompleteGeneration, DetachedGeneration};
pub use geometry::{KV_COMPONENTS, KV_LANES, KV_MOST_OF_V, KV_NORM_OF_K, KvGeometry};
pub use plane::KvPlane;
