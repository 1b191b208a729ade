//! The plan: what a model will take, computed before anything is allocated.

use std::fmt;

use crate::{Availability, Error, KvGeometry, LoadPath, Result};

/// What memory is planned for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRequest {
    /// Bytes of weights.
    pub weight_bytes: u64,
    /// Whether they are mapped or copied.
    pub load: LoadPath,
    /// Bytes of what is read beside the weights, and of what is built from it: a header, a vocabulary.
    pub table_bytes: u64,
    /// The KV shape of every layer.
    pub layers: Vec<KvLayer>,
    /// Token positions of a slot.
    pub n_ctx: usize,
    /// Conversations held at once.
    pub n_slot: usize,
    /// Activations and scratch at the chosen batch.
    pub activation_bytes: u64,
    /// What activations and scratch grow by with each position of context, such as a row of attention scores.
    pub activation_bytes_per_position: u64,
    /// Buffers that data passes through.
    pub staging_bytes: u64,
    /// A draft model's weights and state.
    pub draft_bytes: u64,
    /// Saved states of conversations.
    pub snapshot_bytes: u64,
}

/// The KV shape of one layer, whatever the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayer {
    /// KV heads.
    pub n_head_kv: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// The most rows that the layer needs: its window, plus whatever else its user wants to keep, such as the largest
    /// batch. `None`: a global layer, which needs a row for each position.
    pub max_rows: Option<usize>,
}

impl KvLayer {
    /// The shape of this layer's plane for a context of `n_ctx` positions. Planes are made from it, so that what is
    /// allocated is what was planned.
    pub fn geometry(&self, n_ctx: usize) -> KvGeometry {
        let rows = self.max_rows.map_or(n_ctx, |max_rows| max_rows.min(n_ctx));
        KvGeometry { n_head_kv: self.n_head_kv, head_dim: self.head_dim, rows }
    }
}

/// What a request takes, item by item.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The items, those of no bytes left out.
    pub rows: Vec<PlanRow>,
    /// Bytes of one slot's KV planes.
    pub kv_bytes_per_slot: u64,
    /// Sum of all rows.
    pub total_bytes: u64,
}

/// One item of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanRow {
    /// What it is.
    pub what: &'static str,
    /// Bytes it takes.
    pub size_bytes: u64,
}

/// A plan that doesn't fit, and what would.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// Context asked for.
    pub n_ctx: usize,
    /// Slots asked for.
    pub n_slot: usize,
    /// Bytes that they take.
    pub needed_bytes: u64,
    /// Bytes that there are.
    pub available_bytes: u64,
    /// Who says so.
    pub source: String,
    /// The largest context that fits with these slots, if any does.
    pub largest_ctx: Option<usize>,
    /// The most slots that fit with this context, if any do.
    pub most_slots: Option<usize>,
}

impl Plan {
    /// Computes what `request` takes.
    ///
    /// # Errors
    ///
    /// When a layer's shape or the context holds nothing, or a size has no representation.
    pub fn new(request: &PlanRequest) -> Result<Self> {
        let mut kv_bytes_per_slot = 0_u64;
        for layer in &request.layers {
            kv_bytes_per_slot = sum(kv_bytes_per_slot, layer.geometry(request.n_ctx).size_bytes()?)?;
        }
        let activations =
            sum(request.activation_bytes, product(request.activation_bytes_per_position, request.n_ctx)?)?;
        let weights = match request.load {
            LoadPath::Map => "weights, mapped",
            LoadPath::Read | LoadPath::Upload => "weights, copied",
        };
        let items = [
            (weights, request.weight_bytes),
            ("header and vocabulary", request.table_bytes),
            ("KV planes", product(kv_bytes_per_slot, request.n_slot)?),
            ("activations and scratch", activations),
            ("staging", request.staging_bytes),
            ("draft", request.draft_bytes),
            ("snapshots", request.snapshot_bytes),
        ];
        let total_bytes = items.iter().try_fold(0, |total, &(_, size_bytes)| sum(total, size_bytes))?;
        let rows = items.into_iter().filter(|&(_, size_bytes)| size_bytes > 0);
        let rows = rows.map(|(what, size_bytes)| PlanRow { what, size_bytes }).collect();
        Ok(Self { rows, kv_bytes_per_slot, total_bytes })
    }
}

impl PlanRequest {
    /// Plans, and refuses what doesn't fit before anything is allocated. Where nothing is known about the memory,
    /// everything fits.
    ///
    /// # Errors
    ///
    /// [`Error::DoesNotFit`] with the numbers and with what would fit; and as [`Plan::new`].
    pub fn fit(&self, availability: &Availability) -> Result<Plan> {
        let plan = Plan::new(self)?;
        let Some(limit) = availability.least().filter(|limit| limit.available_bytes < plan.total_bytes) else {
            return Ok(plan);
        };
        Err(Error::DoesNotFit(Box::new(Refusal {
            n_ctx: self.n_ctx,
            n_slot: self.n_slot,
            needed_bytes: plan.total_bytes,
            available_bytes: limit.available_bytes,
            source: limit.source.clone(),
            largest_ctx: self.largest_ctx(limit.available_bytes, self.n_ctx),
            most_slots: self.most_slots(limit.available_bytes),
        })))
    }

    /// The largest context of at most `max_ctx` positions with which the plan takes no more than `available_bytes`, if
    /// there is one.
    pub fn largest_ctx(&self, available_bytes: u64, max_ctx: usize) -> Option<usize> {
        // The plan grows with the context, so halving the interval finds the last one that fits.
        let (mut fits, mut too_large) = (0, max_ctx.checked_add(1)?);
        while fits + 1 < too_large {
            let n_ctx = fits.midpoint(too_large);
            if (Self { n_ctx, ..self.clone() }).takes_at_most(available_bytes) {
                fits = n_ctx;
            } else {
                too_large = n_ctx;
            }
        }
        (fits > 0).then_some(fits)
    }

    /// The most slots, up to those asked for, with which the plan takes no more than `available_bytes`, if any do.
    pub fn most_slots(&self, available_bytes: u64) -> Option<usize> {
        let plan = Plan::new(&Self { n_slot: 1, ..self.clone() }).ok()?;
        let spare_bytes = available_bytes.checked_sub(plan.total_bytes)?;
        // Without KV, every number of slots takes the same.
        let further = spare_bytes.checked_div(plan.kv_bytes_per_slot).unwrap_or(u64::MAX);
        Some(usize::try_from(further).unwrap_or(usize::MAX).saturating_add(1).min(self.n_slot)).filter(|&n| n > 0)
    }

    fn takes_at_most(&self, available_bytes: u64) -> bool {
        Plan::new(self).is_ok_and(|plan| plan.total_bytes <= available_bytes)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_ctx, n_slot, needed_bytes, available_bytes, source, largest_ctx, most_slots } = self;
        let slots = |n: usize| if n == 1 { "1 slot".to_owned() } else { format!("{n} slots") };
        let asked = slots(*n_slot);
        write!(f, "context {n_ctx} with {asked} takes {needed_bytes} bytes, {source} leaves {available_bytes}; ")?;
        match (largest_ctx, most_slots) {
            (Some(ctx), Some(most)) => write!(f, "context {ctx} with {asked}, or {n_ctx} with {most}, would fit"),
            (Some(ctx), None) => write!(f, "context {ctx} with {asked} would fit"),
            (None, Some(most)) => write!(f, "context {n_ctx} with {} would fit", slots(*most)),
            (None, None) => f.write_str("no context and no number of slots would fit"),
        }
    }
}

fn sum(a: u64, b: u64) -> Result<u64> {
    a.checked_add(b).ok_or(Error::TooLarge { what: "memory plan", len: a.max(b), element_bytes: 1 })
}

fn product(size_bytes: u64, n: usize) -> Result<u64> {
    size_bytes.checked_mul(n as u64).ok_or(Error::TooLarge { what: "memory plan", len: size_bytes, element_bytes: n })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryLimit;
    use crate::page_size;

    /// Muse Glimmer: 13 global layers and 39 with a window of 2048, two KV heads of 128.
    fn muse_glimmer(n_ctx: usize, n_slot: usize) -> PlanRequest {
        let layer = |max_rows| KvLayer { n_head_kv: 2, head_dim: 128, max_rows };
        PlanRequest {
            weight_bytes: 16_700_000_000,
            load: LoadPath::Map,
            table_bytes: 0,
            layers: (0..52).map(|i| layer((i % 4 != 3).then_some(2048))).collect(),
            n_ctx,
            n_slot,
            activation_bytes: 64 << 20,
            activation_bytes_per_position: 128,
            staging_bytes: 0,
            draft_bytes: 0,
            snapshot_bytes: 0,
        }
    }

    fn available(available_bytes: u64) -> Availability {
        let limit = |source: &str, available_bytes| MemoryLimit { source: source.into(), available_bytes };
        Availability { limits: vec![limit("elsewhere", u64::MAX), limit("MemAvailable", available_bytes)] }
    }

    fn whole_pages(size_bytes: u64) -> u64 {
        size_bytes.next_multiple_of(page_size() as u64)
    }

    #[test]
    fn m27_muse_glimmer_at_131072_tokens_takes_1840889856_bytes_a_slot() {
        let one = Plan::new(&muse_glimmer(131_072, 1)).unwrap();
        let slot = 13 * 2 * whole_pages(131_072 * 516) + 39 * 2 * whole_pages(2048 * 516);
        assert_eq!(one.kv_bytes_per_slot, slot);
        // Pages of 4 KiB fill up without a rest.
        assert!(page_size() > 4096 || slot == 1_840_889_856);
        let four = Plan::new(&muse_glimmer(131_072, 4)).unwrap();
        assert_eq!(four.rows[1], PlanRow { what: "KV planes", size_bytes: 4 * slot });
    }

    #[test]
    fn m27_a_context_shorter_than_the_window_takes_rows_for_the_context_only() {
        let plan = Plan::new(&muse_glimmer(1024, 1)).unwrap();
        assert_eq!(plan.kv_bytes_per_slot, 52 * 2 * whole_pages(1024 * 516));
    }

    #[test]
    fn m25_a_plan_names_each_item_and_sums_them() {
        let request = PlanRequest {
            load: LoadPath::Read,
            table_bytes: 4,
            staging_bytes: 5,
            draft_bytes: 6,
            ..muse_glimmer(1000, 2)
        };
        let plan = Plan::new(&request).unwrap();
        let rows: Vec<_> = plan.rows.iter().map(|row| (row.what, row.size_bytes)).collect();
        let expected = [
            ("weights, copied", 16_700_000_000),
            ("header and vocabulary", 4),
            ("KV planes", 2 * 52 * 2 * whole_pages(1000 * 516)),
            ("activations and scratch", (64 << 20) + 1000 * 128),
            ("staging", 5),
            ("draft", 6),
        ];
        assert_eq!(rows, expected);
        assert_eq!(plan.total_bytes, expected.iter().map(|(_, size_bytes)| size_bytes).sum::<u64>());
    }

    #[test]
    fn m26_a_plan_fits_to_the_byte() {
        let request = muse_glimmer(131_072, 4);
        let total_bytes = Plan::new(&request).unwrap().total_bytes;
        request.fit(&available(total_bytes)).unwrap();
        request.fit(&available(total_bytes - 1)).unwrap_err();
    }

    #[test]
    fn m26_what_does_not_fit_is_refused_with_what_would() {
        let request = muse_glimmer(131_072, 4);
        let bytes_of = |n_ctx, n_slot| Plan::new(&muse_glimmer(n_ctx, n_slot)).unwrap().total_bytes;
        let available_bytes = bytes_of(131_072, 2) + 1_000_000;
        let Error::DoesNotFit(refusal) = request.fit(&available(available_bytes)).unwrap_err() else {
            panic!("a refusal by the plan");
        };
        assert_eq!(refusal.most_slots, Some(2));
        let largest_ctx = refusal.largest_ctx.unwrap();
        assert!(bytes_of(largest_ctx, 4) <= available_bytes && available_bytes < bytes_of(largest_ctx + 1, 4));
        let needed_bytes = bytes_of(131_072, 4);
        assert_eq!(
            refusal.to_string(),
            format!(
                "context 131072 with 4 slots takes {needed_bytes} bytes, MemAvailable leaves {available_bytes}; \
                 context {largest_ctx} with 4 slots, or 131072 with 2, would fit"
            )
        );
    }

    #[test]
    fn m26_where_nothing_would_fit_the_refusal_says_so() {
        let refused = muse_glimmer(131_072, 4).fit(&available(1_000_000)).unwrap_err();
        assert!(refused.to_string().ends_with("no context and no number of slots would fit"), "{refused}");
    }

    #[test]
    fn m26_the_largest_context_is_what_was_asked_for_where_it_fits() {
        assert_eq!(muse_glimmer(0, 1).largest_ctx(u64::MAX, 131_072), Some(131_072));
        assert_eq!(muse_glimmer(0, 1).largest_ctx(u64::MAX, 0), None);
    }

    #[test]
    fn m25_what_is_not_known_refuses_nothing() {
        muse_glimmer(131_072, 1000).fit(&Availability::default()).unwrap();
    }

    #[test]
    fn sizes_without_a_representation_are_refused() {
        for request in [
            muse_glimmer(usize::MAX, 1),
            muse_glimmer(131_072, usize::MAX),
            PlanRequest { weight_bytes: u64::MAX, ..muse_glimmer(1, 1) },
        ] {
            assert!(matches!(Plan::new(&request), Err(Error::TooLarge { .. })), "{request:?}");
        }
    }
}
