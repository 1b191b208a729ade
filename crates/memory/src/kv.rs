//! KV planes: one layer's keys and values, a ring of rows addressed by token position.

mod geometry;
mod plane;

pub use geometry::{KV_LANES, KvGeometry};
pub use plane::KvPlane;
