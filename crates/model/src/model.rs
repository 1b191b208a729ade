//! A spec and its weights.

use muser_gguf::GgufSet;
use muser_memory::Arena;

use crate::Error;
use crate::rope::Frequencies;
use crate::spec::{ModelSpec, RopeSpec};
use crate::weights::Weights;

/// A model ready to run: its spec, its weights, and the arena that holds their bytes.
///
/// Sessions and decoders share it; it is never written.
pub struct Model {
    spec: ModelSpec,
    weights: Weights,
    arena: Arena,
}

impl Model {
    /// Binds the spec's weights to the arena's regions.
    ///
    /// # Errors
    /// When a tensor is missing, unknown, of the wrong shape or of a type that can't be computed: all of them at once.
    pub fn new(spec: ModelSpec, set: &GgufSet<'_>, arena: Arena) -> Result<Self, Error> {
        let weights = Weights::bind(&spec, set, &arena)?;
        Ok(Self { spec, weights, arena })
    }

    /// What the model is.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// The bytes of its weights.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(crate) fn weights(&self) -> &Weights {
        &self.weights
    }

    pub(crate) fn frequencies(&self, rope: RopeSpec) -> Result<Frequencies, Error> {
        let factors = self.weights.rope_factors.filter(|_| rope.factors);
        let factors = factors.map(|factors| factors.bind(&self.arena)).transpose()?;
        Ok(Frequencies::new(rope, factors.map(|factors| factors.values())))
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("spec", &self.spec).finish_non_exhaustive()
    }
}
