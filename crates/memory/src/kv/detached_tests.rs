//! Generations that are complete, and those that are not.

use super::{DetachedGeneration, KvGeometry, KvPlane};
use crate::{Device, Error, POISON_BITS};

const GEOMETRY: KvGeometry = KvGeometry { n_head_kv: 2, head_dim: 2, rows: 16 };
const ROW_LEN: usize = 4;
/// Elements of a row with the scales of its heads.
const EXPORTED_LEN: usize = 6;

/// A live plane of 20 appended positions.
fn live() -> KvPlane {
    let mut plane = KvPlane::zeros(&Device::host(), GEOMETRY).unwrap();
    let rows: Vec<f32> = (0..20 * ROW_LEN).map(|i| i as f32).collect();
    plane.append(0, &rows, &rows).unwrap();
    plane
}

/// Copies positions of `plane` into `layer`, tile by tile.
fn copy(plane: &KvPlane, layer: usize, positions: std::ops::Range<usize>, detached: &mut DetachedGeneration) {
    for pos in positions {
        let (mut k, mut v) = ([0; EXPORTED_LEN], [0; EXPORTED_LEN]);
        plane.export(pos, &mut k, &mut v).unwrap();
        detached.install(layer, pos, &k, &v).unwrap();
    }
}

#[test]
fn m31_a_complete_generation_replaces_the_live_planes_bit_by_bit() {
    let original = live();
    let mut detached = DetachedGeneration::new(&Device::host(), [(GEOMETRY, 4..20), (GEOMETRY, 4..20)]).unwrap();
    copy(&original, 0, 4..20, &mut detached);
    copy(&original, 1, 4..20, &mut detached);
    let mut planes = vec![KvPlane::zeros(&Device::host(), GEOMETRY).unwrap()];
    let old = detached.complete().unwrap().swap_into(&mut planes);
    assert_eq!((old.len(), planes.len()), (1, 2));
    for plane in &planes {
        assert_eq!(plane.origin_physical(), original.origin_physical());
        assert_eq!((plane.k_bits(), plane.v_bits()), (original.k_bits(), original.v_bits()));
    }
}

#[test]
fn m9_a_published_plane_shows_no_uninitialised_row() {
    let geometries = [(GEOMETRY, 5..8), (GEOMETRY, 9..9)];
    let mut detached = DetachedGeneration::new(&Device::host(), geometries).unwrap();
    copy(&live(), 0, 5..8, &mut detached);
    let mut planes = Vec::new();
    detached.complete().unwrap().swap_into(&mut planes);
    for (plane, held) in planes.iter().zip([3, 0]) {
        let bits = || plane.k_bits().iter().chain(plane.v_bits());
        assert!(bits().all(|&bits| bits != POISON_BITS));
        assert_eq!(bits().filter(|&&bits| bits != 0).count(), 2 * held * EXPORTED_LEN);
    }
}

#[test]
fn m10_a_detached_plane_read_early_shows_poison_and_written_round_trips() {
    let mut plane = KvPlane::uninitialized(&Device::host(), GEOMETRY).unwrap();
    assert!(plane.k_bits().iter().chain(plane.v_bits()).all(|&bits| bits == POISON_BITS));
    plane.install(0, &[1, 2, 3, 4, 5, 6], &[7, 8, 9, 10, 11, 12]).unwrap();
    let (mut k, mut v) = ([0; EXPORTED_LEN], [0; EXPORTED_LEN]);
    plane.export(0, &mut k, &mut v).unwrap();
    assert_eq!((k, v), ([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]));
}

#[test]
fn m31_tiles_out_of_order_or_past_the_span_are_refused_and_install_nothing() {
    let mut detached = DetachedGeneration::new(&Device::host(), [(GEOMETRY, 4..6), (GEOMETRY, 4..6)]).unwrap();
    let tile = [7; EXPORTED_LEN];
    for (layer, pos) in [(0, 5), (0, 3), (1, 4), (2, 4)] {
        let refused = detached.install(layer, pos, &tile, &tile).unwrap_err();
        assert!(matches!(refused, Error::KvOutOfOrder { cursor: Some((0, 4)), .. }), "{refused}");
    }
    let three = [7; 3 * EXPORTED_LEN];
    assert!(matches!(detached.install(0, 4, &three, &three), Err(Error::KvPastSpan { n_rows: 3, end: 6, .. })));
    assert!(matches!(detached.install(0, 4, &tile, &tile[1..]), Err(Error::KvRows { .. })));
    assert_eq!(detached.cursor(), Some((0, 4)));
    assert!(matches!(detached.complete(), Err(Error::KvIncomplete { layer: 0, pos: 4, end: 6 })));
}

#[test]
fn m31_a_generation_dropped_half_way_leaves_no_trace() {
    let device = Device::host();
    let live = live();
    let mut detached = DetachedGeneration::new(&device, [(GEOMETRY, 4..20)]).unwrap();
    copy(&live, 0, 4..9, &mut detached);
    assert!(device.allocated_bytes() > 0);
    drop(detached);
    assert_eq!(device.allocated_bytes(), 0);
}

#[test]
fn m31_a_span_that_its_plane_can_not_hold_is_refused() {
    let refused = DetachedGeneration::new(&Device::host(), [(GEOMETRY, 0..17)]).unwrap_err();
    assert!(matches!(refused, Error::KvOverCapacity { n_rows: 17, capacity: 16 }));
}
