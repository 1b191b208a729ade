//! A plane against a plain list of rows, and its refusals one by one.

use proptest::prelude::*;

use super::{KV_LANES, KvGeometry, KvPlane};
use crate::{Device, Error};

const N_HEAD_KV: usize = 2;
const HEAD_DIM: usize = 3;
const ROW_LEN: usize = N_HEAD_KV * HEAD_DIM;
/// Elements of a row with the scales of its heads.
const EXPORTED_LEN: usize = N_HEAD_KV * (HEAD_DIM + 1);
/// What a head's elements take.
const WIDTH: usize = 16;

/// A window that is no multiple of eight; the plane has 16 rows.
const WINDOW: usize = 13;
const CAPACITY: usize = 16;

fn plane(rows: usize) -> KvPlane {
    KvPlane::zeros(&Device::host(), KvGeometry { n_head_kv: N_HEAD_KV, head_dim: HEAD_DIM, rows }).unwrap()
}

/// Distinct rows that have to be rounded, `(n_rows, ROW_LEN)`.
fn rows(seed: usize, n_rows: usize) -> Vec<f32> {
    (0..n_rows * ROW_LEN).map(|i| ((seed * 7919 + i * 104_729) % 65_521) as f32 * 0.731 - 20_000.0).collect()
}

/// Rows as integers with scales, computed for whole vectors of numbers by `step`.
fn bits(rows: &[f32], step: impl Fn(f32, &[f32]) -> f32) -> Vec<u16> {
    let head = |head: &[f32]| {
        let exact = step(head.iter().fold(0.0f32, |max, x| max.max(x.abs())), head);
        // Up to the next number that half of the bits can hold.
        let scale = (exact.to_bits() >> 16) + u32::from(exact.to_bits() & 0xffff > 0);
        let factor = 1.0 / f32::from_bits(scale << 16);
        let integer = |&x: &f32| f64::from(x * factor).round_ties_even() as i16;
        head.iter().map(integer).map(i16::cast_unsigned).chain([scale as u16]).collect::<Vec<_>>()
    };
    rows.chunks(HEAD_DIM).flat_map(head).collect()
}

fn k_bits(rows: &[f32]) -> Vec<u16> {
    bits(rows, |max, head| {
        let norm = head.iter().map(|x| x / max).map(|x| x * x).sum::<f32>().sqrt();
        max * (norm / 46_000.0).max(1.0 / 32_767.0)
    })
}

fn v_bits(rows: &[f32]) -> Vec<u16> {
    bits(rows, |max, _| max / 16_383.0)
}

/// What a plane should hold: the rows of K and V from `origin` on, and nothing about rings, lanes or heads.
#[derive(Clone, Default)]
struct Model {
    origin: usize,
    held: Vec<(Vec<u16>, Vec<u16>)>,
}

impl Model {
    fn end(&self) -> usize {
        self.origin + self.held.len()
    }

    fn append(&mut self, capacity: usize, k: &[u16], v: &[u16]) {
        self.held.extend(k.chunks(EXPORTED_LEN).zip(v.chunks(EXPORTED_LEN)).map(|(k, v)| (k.to_vec(), v.to_vec())));
        let dropped = self.held.len().saturating_sub(capacity);
        self.held.drain(..dropped);
        self.origin += dropped;
    }

    fn check(&self, plane: &KvPlane) {
        let capacity = plane.capacity();
        assert_eq!((plane.origin_logical(), plane.end(), plane.len()), (self.origin, self.end(), self.held.len()));
        assert_eq!(plane.is_empty(), self.held.is_empty());
        assert_eq!(plane.origin_physical(), self.origin % capacity, "M30: rotation");
        assert_eq!(plane.row_of(self.end()), None);
        assert_eq!(self.origin.checked_sub(1).and_then(|before| plane.row_of(before)), None);

        let zero = (vec![0; EXPORTED_LEN], vec![0; EXPORTED_LEN]);
        let mut expected = vec![&zero; capacity];
        for (i, row) in self.held.iter().enumerate() {
            let pos = self.origin + i;
            assert_eq!(plane.row_of(pos), Some(pos % capacity));
            expected[pos % capacity] = row;
        }
        for (row, (k, v)) in expected.into_iter().enumerate() {
            assert_eq!((&elements(plane, row).0, &elements(plane, row).1), (k, v), "row {row}; M9: zero when not held");
        }
    }
}

/// K and V of one physical row with their scales, read by the published table of the layout. What fills up a head is zero.
fn elements(plane: &KvPlane, r: usize) -> (Vec<u16>, Vec<u16>) {
    let cap = plane.capacity();
    let row = |bits: &[u16], index: &dyn Fn(usize, usize) -> usize| {
        let head = |h| {
            assert!((HEAD_DIM..WIDTH).all(|d| bits[index(h, d)] == 0), "row {r}");
            let scale = bits[N_HEAD_KV * cap * WIDTH + h * cap + r];
            (0..HEAD_DIM).map(|d| bits[index(h, d)]).chain([scale]).collect::<Vec<_>>()
        };
        (0..N_HEAD_KV).flat_map(head).collect()
    };
    (
        row(plane.k_bits(), &|h, d| (h * cap + r / 8 * 8) * WIDTH + d / 2 * 16 + r % 8 * 2 + d % 2),
        row(plane.v_bits(), &|h, d| (h * cap + r / 8 * 8) * WIDTH + d / 16 * 128 + r % 8 / 2 * 32 + d % 16 * 2 + r % 2),
    )
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Install(usize),
    RollBack(usize),
    /// Export from this many positions before the end.
    Export(usize),
    /// Go on with a copy of the last positions in a plane of so many rows.
    CopyTail(usize, usize),
    /// Go on with a copy of the positions that begin so far before the end, up to so many of them, in a plane of as many
    /// rows.
    Copy(usize, usize),
    Reset,
    Anchor(usize),
}

/// Numbers of rows around those at which a ring does something else.
fn n_rows() -> impl Strategy<Value = usize> {
    let window = [WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, 10 * WINDOW];
    let capacity = [CAPACITY - 1, CAPACITY, CAPACITY + 1, 2 * CAPACITY, 10 * CAPACITY];
    prop_oneof![
        5 => 0..=KV_LANES + 1,
        1 => prop::sample::select(window.to_vec()),
        1 => prop::sample::select(capacity.to_vec()),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => n_rows().prop_map(Step::Append),
        2 => n_rows().prop_map(Step::Install),
        3 => (0..=CAPACITY).prop_map(Step::RollBack),
        2 => (0..=CAPACITY).prop_map(Step::Export),
        2 => (0..=CAPACITY, 1..=5 * CAPACITY).prop_map(|(n, rows)| Step::CopyTail(n, rows)),
        2 => (0..=CAPACITY, 1..=CAPACITY).prop_map(|(n, rows)| Step::Copy(n, rows)),
        1 => Just(Step::Reset),
        1 => (0..1000_usize).prop_map(Step::Anchor),
    ]
}

fn take(step: &Step, seed: usize, plane: &mut KvPlane, model: &mut Model) {
    let (capacity, end) = (plane.capacity(), model.end());
    match *step {
        Step::Append(n) => {
            let (k, v) = (rows(2 * seed, n), rows(2 * seed + 1, n));
            plane.append(end, &k, &v).unwrap();
            model.append(capacity, &k_bits(&k), &v_bits(&v));
        }
        Step::Install(n) => {
            let (k, v) = (k_bits(&rows(2 * seed, n)), v_bits(&rows(2 * seed + 1, n)));
            plane.install(end, &k, &v).unwrap();
            model.append(capacity, &k, &v);
        }
        Step::RollBack(n) => {
            let n = n.min(model.held.len());
            plane.truncate(end - n).unwrap();
            model.held.truncate(model.held.len() - n);
        }
        Step::Export(n) => {
            let n = n.min(model.held.len());
            let (mut k, mut v) = (vec![1; n * EXPORTED_LEN], vec![1; n * EXPORTED_LEN]);
            plane.export(end - n, &mut k, &mut v).unwrap();
            let (expected_k, expected_v): (Vec<_>, Vec<_>) = model.held[model.held.len() - n..].iter().cloned().unzip();
            assert_eq!((k, v), (expected_k.concat(), expected_v.concat()));
        }
        Step::CopyTail(n, rows) => {
            let mut copy = self::plane(rows);
            let n = n.min(model.held.len()).min(copy.capacity());
            copy.copy_tail_from(plane, end - n).unwrap();
            *plane = copy;
            model.held.drain(..model.held.len() - n);
            model.origin = end - n;
        }
        Step::Copy(n, rows) => {
            let mut copy = self::plane(rows);
            let first = model.held.len() - n.min(model.held.len());
            let rows = rows.min(model.held.len() - first);
            let start = model.origin + first;
            copy.copy_from(plane, start..start + rows).unwrap();
            *plane = copy;
            model.held.truncate(first + rows);
            model.held.drain(..first);
            model.origin = start;
        }
        Step::Reset => {
            plane.reset();
            *model = Model::default();
        }
        Step::Anchor(pos) if model.held.is_empty() => {
            plane.anchor(pos).unwrap();
            model.origin = pos;
        }
        Step::Anchor(pos) => {
            assert!(matches!(plane.anchor(pos), Err(Error::KvNotEmpty { .. })));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn m32_any_sequence_of_steps_agrees_with_a_plain_list_of_rows(steps in prop::collection::vec(step(), 1..24)) {
        let (mut plane, mut model) = (plane(WINDOW), Model::default());
        model.check(&plane);
        for (seed, step) in steps.iter().enumerate() {
            take(step, seed, &mut plane, &mut model);
            model.check(&plane);
        }
    }

    #[test]
    fn m30_an_exported_ring_installs_with_the_very_same_bits(start in 0..100_usize, n in 1..=200_usize, tile in 1..=9_usize) {
        let mut live = plane(WINDOW);
        live.anchor(start).unwrap();
        live.append(start, &rows(1, n), &rows(2, n)).unwrap();

        let mut restored = plane(WINDOW);
        restored.anchor(live.origin_logical()).unwrap();
        while restored.end() < live.end() {
            let (pos, n) = (restored.end(), tile.min(live.end() - restored.end()));
            let (mut k, mut v) = (vec![0; n * EXPORTED_LEN], vec![0; n * EXPORTED_LEN]);
            live.export(pos, &mut k, &mut v).unwrap();
            restored.install(pos, &k, &v).unwrap();
        }
        prop_assert_eq!(restored.origin_physical(), live.origin_physical());
        prop_assert_eq!(restored.k_bits(), live.k_bits());
        prop_assert_eq!(restored.v_bits(), live.v_bits());
    }

    #[test]
    fn rows_appended_in_any_cut_give_the_same_bits(cuts in prop::collection::vec(1..40_usize, 1..6)) {
        let n = cuts.iter().sum();
        let (k, v) = (rows(3, n), rows(4, n));
        let (mut whole, mut pieces) = (plane(WINDOW), plane(WINDOW));
        whole.append(0, &k, &v).unwrap();
        for cut in cuts {
            let (pos, range) = (pieces.end(), pieces.end() * ROW_LEN..(pieces.end() + cut) * ROW_LEN);
            pieces.append(pos, &k[range.clone()], &v[range]).unwrap();
        }
        prop_assert_eq!(pieces.k_bits(), whole.k_bits());
        prop_assert_eq!(pieces.v_bits(), whole.v_bits());
    }
}

#[test]
fn m29_appending_past_the_capacity_advances_the_origin() {
    for n in [WINDOW - 1, WINDOW, WINDOW + 1, CAPACITY, CAPACITY + 1, 2 * WINDOW, 10 * WINDOW] {
        let mut plane = plane(WINDOW);
        plane.append(0, &rows(1, n), &rows(2, n)).unwrap();
        assert_eq!((plane.origin_logical(), plane.end()), (n.saturating_sub(CAPACITY), n));
        assert_eq!(plane.origin_physical(), plane.origin_logical() % CAPACITY);
    }
}

#[test]
fn m29_a_gap_in_positions_is_refused_and_changes_nothing() {
    let (mut plane, mut model) = (plane(WINDOW), Model::default());
    take(&Step::Append(5), 0, &mut plane, &mut model);
    for pos in [0, 4, 6, usize::MAX] {
        let refused = plane.append(pos, &rows(1, 1), &rows(1, 1)).unwrap_err();
        assert!(matches!(refused, Error::KvGap { pos: found, end: 5 } if found == pos));
    }
    model.check(&plane);
}

#[test]
fn k_and_v_that_are_not_the_same_whole_rows_are_refused() {
    let mut plane = plane(WINDOW);
    let two = rows(1, 2);
    for (k, v) in [(&two[..], &two[..ROW_LEN]), (&two[..=ROW_LEN], &two[..=ROW_LEN])] {
        assert!(matches!(plane.append(0, k, v), Err(Error::KvRows { row_len: ROW_LEN, .. })));
    }
    assert!(plane.is_empty());
}

#[test]
fn positions_that_are_not_held_can_be_neither_exported_nor_kept() {
    let mut plane = plane(WINDOW);
    plane.append(0, &rows(1, 20), &rows(2, 20)).unwrap();
    let mut tile = [0; 2 * EXPORTED_LEN];
    for pos in [3, 19, 20] {
        let refused = plane.export(pos, &mut tile, &mut [0; 2 * EXPORTED_LEN]).unwrap_err();
        assert!(matches!(refused, Error::KvNotHeld { origin: 4, end: 20, .. }), "{refused}");
    }
    for pos in [3, 21] {
        assert!(matches!(plane.truncate(pos), Err(Error::KvNotHeld { origin: 4, end: 20, .. })));
    }
    assert_eq!(plane.len(), 16);
}

#[test]
fn a_tail_is_copied_only_into_an_empty_plane_of_the_same_heads_with_room() {
    let mut full = plane(WINDOW);
    full.append(0, &rows(1, CAPACITY), &rows(2, CAPACITY)).unwrap();
    assert!(matches!(full.copy_tail_from(&plane(8), 0), Err(Error::KvNotEmpty { .. })));
    assert!(matches!(plane(8).copy_tail_from(&full, 7), Err(Error::KvOverCapacity { n_rows: 9, capacity: 8 })));
    assert!(matches!(plane(8).copy_tail_from(&full, 17), Err(Error::KvNotHeld { .. })));
    let heads = KvGeometry { n_head_kv: HEAD_DIM, head_dim: N_HEAD_KV, rows: 16 };
    let mut other_heads = KvPlane::zeros(&Device::host(), heads).unwrap();
    assert!(matches!(other_heads.copy_tail_from(&full, 0), Err(Error::KvShape { .. })));
}

#[test]
fn a_head_of_a_row_that_is_not_finite_reads_as_no_number_and_the_others_as_they_are() {
    let mut plane = plane(8);
    let row = [1.0, f32::INFINITY, 2.0, 3.0, -4.0, 5.0];
    plane.append(0, &row, &row).unwrap();
    let (mut k, mut v) = ([0.0; HEAD_DIM], [0.0; HEAD_DIM]);
    plane.read(0, 0, &mut k, &mut v);
    assert!(k.iter().chain(&v).all(|x| x.is_nan()));
    plane.read(1, 0, &mut k, &mut v);
    for (&found, expected) in k.iter().chain(&v).zip([3.0f32, -4.0, 5.0].into_iter().cycle()) {
        assert!((found - expected).abs() < 5.0 / 2047.0, "{found} for {expected}");
    }
}
