//! Fingerprints: the taps of a run, hashed or whole, in a file, and the comparison of two such files.
//!
//! ```text
//! offset  field
//! 0       magic     8 bytes, "MUSERTAP"
//! 8       version   u32, 1
//! 12      values    u32, 1 when records carry their values, else 0
//! 16      records:
//!           tap       u32, index into `Tap::ALL`
//!           layer     u32, 0xffff_ffff for none
//!           sequence  u32
//!           pos       u32
//!           len       u32, number of values
//!           hash      u64, FNV-1a over the values' little-endian bytes
//!           values    len × f32, where the header says so
//!         end       u32, 0xffff_ffff where a tap would be, and u64, the number of records
//! ```
//!
//! All numbers are little-endian. Records lie in the order in which the run reached them, which depends on how it was cut
//! into batches; comparison goes by what a record is about, not by where it lies.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use muser_model::{Tap, TapPoint, TapSink};

const MAGIC: &[u8; 8] = b"MUSERTAP";
const VERSION: u32 = 1;
const NO_LAYER: u32 = u32::MAX;
/// Stands where a tap would, behind the last record. A file without it was not finished.
const END: u32 = u32::MAX;
/// More values than any tap has; a larger count is a damaged file.
const MAX_VALUES: u32 = 1 << 24;

/// What a record is about. Its order is that of a sequence's tokens, and for each token that of the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TapKey {
    /// Which of the run's sequences.
    pub sequence: u32,
    /// Position of the token.
    pub pos: u32,
    /// Rank of the layer: 0 before the first, then 1 for layer 0 and so on, the largest after the last.
    rank: u32,
    /// Index into [`Tap::ALL`].
    tap: u32,
}

impl TapKey {
    fn new(tap: u32, layer: u32, sequence: u32, pos: u32) -> Option<Self> {
        let rank = match (layer, Tap::ALL.get(tap as usize)?) {
            (NO_LAYER, Tap::Logits) => u32::MAX,
            (NO_LAYER, _) => 0,
            (layer, _) => layer + 1,
        };
        Some(Self { sequence, pos, rank, tap })
    }

    /// Which tap.
    pub fn tap(&self) -> Tap {
        Tap::ALL[self.tap as usize]
    }

    /// Which layer, if the tap belongs to one.
    pub fn layer(&self) -> Option<u32> {
        (1..u32::MAX).contains(&self.rank).then(|| self.rank - 1)
    }
}

/// Writes records to a file.
///
/// A write that fails is kept and reported by [`finish`](Self::finish); nothing is written after it.
pub struct TapWriter<W> {
    out: W,
    values: bool,
    sequence: u32,
    n_records: u64,
    failed: Option<io::Error>,
}

impl<W: Write> TapWriter<W> {
    /// Starts a file. With `values`, records carry their values beside the hash.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn new(mut out: W, values: bool) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&u32::from(values).to_le_bytes())?;
        Ok(Self { out, values, sequence: 0, n_records: 0, failed: None })
    }

    /// Records that follow belong to the next sequence.
    pub fn next_sequence(&mut self) {
        self.sequence += 1;
    }

    /// Ends the file, and returns what it was written to.
    ///
    /// # Errors
    /// The first write that failed.
    pub fn finish(mut self) -> io::Result<W> {
        self.failed.take().map_or(Ok(()), Err)?;
        self.out.write_all(&END.to_le_bytes())?;
        self.out.write_all(&self.n_records.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn write(&mut self, point: TapPoint, values: &[f32]) -> io::Result<()> {
        let tap = Tap::ALL.iter().position(|&tap| tap == point.tap).expect("every tap is in the list") as u32;
        let layer = point.layer.map_or(NO_LAYER, |layer| layer as u32);
        for number in [tap, layer, self.sequence, point.pos as u32, values.len() as u32] {
            self.out.write_all(&number.to_le_bytes())?;
        }
        self.out.write_all(&hash(values).to_le_bytes())?;
        if self.values {
            for value in values {
                self.out.write_all(&value.to_le_bytes())?;
            }
        }
        self.n_records += 1;
        Ok(())
    }
}

impl<W: Write> TapSink for TapWriter<W> {
    fn record(&mut self, point: TapPoint, values: &[f32]) {
        if self.failed.is_none() {
            self.failed = self.write(point, values).err();
        }
    }
}

/// FNV-1a, 64 bits.
fn hash(values: &[f32]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Why a file of taps can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapFileError {
    /// Reading failed.
    #[error(transparent)]
    Io(io::Error),
    /// The file ends before its end mark: it was cut, or the run that wrote it did not finish.
    #[error("the file is cut short, or the run that wrote it did not finish")]
    CutShort,
    /// Another kind of file.
    #[error("not a file of taps: it starts with \"{}\"", found.escape_ascii())]
    NotTaps {
        /// The first bytes.
        found: [u8; 8],
    },
    /// Another version.
    #[error("version {found} can't be read, expected {VERSION}")]
    Version {
        /// The version the file claims.
        found: u32,
    },
    /// A record that can't be one.
    #[error("record {index} is damaged: tap {tap}, {len} values")]
    Damaged {
        /// Index of the record.
        index: usize,
        /// Its tap.
        tap: u32,
        /// Its number of values.
        len: u32,
    },
    /// The end mark counts other records than there are.
    #[error("the file has {found} records, and says that it has {stated}")]
    Count {
        /// What the end mark says.
        stated: u64,
        /// What there are.
        found: usize,
    },
    /// The same tap of the same token twice.
    #[error("record {index} repeats an earlier one")]
    Repeated {
        /// Index of the record.
        index: usize,
    },
}

impl From<io::Error> for TapFileError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::CutShort } else { Self::Io(error) }
    }
}

/// One record's content.
#[derive(Clone, Debug, PartialEq)]
pub struct TapRecord {
    /// Number of values.
    pub len: u32,
    /// Their hash.
    pub hash: u64,
    /// The values, if the file carries them.
    pub values: Option<Vec<f32>>,
}

/// All records of a file, by what they are about.
#[derive(Debug, Default)]
pub struct TapFile {
    records: BTreeMap<TapKey, TapRecord>,
}

impl TapFile {
    /// Reads a file.
    ///
    /// # Errors
    /// When it is not a whole file of taps.
    pub fn read(mut from: impl Read) -> Result<Self, TapFileError> {
        let mut magic = [0; 8];
        from.read_exact(&mut magic)?;
        if &magic != MAGIC {
            return Err(TapFileError::NotTaps { found: magic });
        }
        let version = read_u32(&mut from)?;
        if version != VERSION {
            return Err(TapFileError::Version { found: version });
        }
        let has_values = read_u32(&mut from)? != 0;
        let mut records = BTreeMap::new();
        for index in 0.. {
            let tap = read_u32(&mut from)?;
            if tap == END {
                let mut stated = [0; 8];
                from.read_exact(&mut stated)?;
                let stated = u64::from_le_bytes(stated);
                if stated != index as u64 {
                    return Err(TapFileError::Count { stated, found: index });
                }
                break;
            }
            let mut field = || read_u32(&mut from);
            let (layer, sequence, pos, len) = (field()?, field()?, field()?, field()?);
            let mut hash = [0; 8];
            from.read_exact(&mut hash)?;
            let key = TapKey::new(tap, layer, sequence, pos).filter(|_| len <= MAX_VALUES);
            let key = key.ok_or(TapFileError::Damaged { index, tap, len })?;
            let values = if has_values { Some(read_values(&mut from, len)?) } else { None };
            let record = TapRecord { len, hash: u64::from_le_bytes(hash), values };
            if records.insert(key, record).is_some() {
                return Err(TapFileError::Repeated { index });
            }
        }
        Ok(Self { records })
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The first record in which two files differ; `None` when they are equal.
    pub fn first_difference(&self, other: &Self) -> Option<Difference> {
        let only = |records: &BTreeMap<TapKey, TapRecord>, others: &BTreeMap<TapKey, TapRecord>| {
            records.keys().find(|key| !others.contains_key(key)).copied()
        };
        let changed = self.records.iter().find_map(|(key, ours)| {
            let theirs = other.records.get(key)?;
            (ours.hash != theirs.hash || ours.len != theirs.len)
                .then(|| (*key, DifferenceKind::Changed(distance(ours, theirs))))
        });
        let candidates = [
            changed,
            only(&self.records, &other.records).map(|key| (key, DifferenceKind::OnlyInFirst)),
            only(&other.records, &self.records).map(|key| (key, DifferenceKind::OnlyInSecond)),
        ];
        let (key, kind) = candidates.into_iter().flatten().min_by_key(|(key, _)| *key)?;
        Some(Difference { key, kind })
    }
}

/// Where two files differ first.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The tap, layer and token.
    pub key: TapKey,
    /// How they differ there.
    pub kind: DifferenceKind,
}

/// How two files differ in a record.
#[derive(Clone, Debug, PartialEq)]
pub enum DifferenceKind {
    /// Both have it, with other values; by how much is known when both files carry values.
    Changed(Option<Distance>),
    /// Only the first file has it.
    OnlyInFirst,
    /// Only the second file has it.
    OnlyInSecond,
}

/// How far the values of two records are from each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// Values whose bits differ.
    pub n_changed: usize,
    /// Values in all.
    pub n: usize,
    /// Index of the value that differs most.
    pub worst_index: usize,
    /// It in the first file.
    pub first: f32,
    /// It in the second file.
    pub second: f32,
}

fn distance(ours: &TapRecord, theirs: &TapRecord) -> Option<Distance> {
    let (ours, theirs) = (ours.values.as_ref()?, theirs.values.as_ref()?);
    if ours.len() != theirs.len() {
        return None;
    }
    let pairs = || ours.iter().zip(theirs).enumerate().filter(|(_, (a, b))| a.to_bits() != b.to_bits());
    let gap = |a: f32, b: f32| (f64::from(a) - f64::from(b)).abs();
    let (worst_index, (&first, &second)) =
        pairs().max_by(|(_, (a, b)), (_, (c, d))| gap(**a, **b).total_cmp(&gap(**c, **d)))?;
    Some(Distance { n_changed: pairs().count(), n: ours.len(), worst_index, first, second })
}

fn read_u32(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn read_values(from: &mut impl Read, len: u32) -> io::Result<Vec<f32>> {
    let mut bytes = Vec::new();
    let size = u64::from(len) * 4;
    if from.take(size).read_to_end(&mut bytes)? as u64 != size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (values, _) = bytes.as_chunks::<4>();
    Ok(values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(tap: Tap, layer: Option<usize>, pos: usize) -> TapPoint {
        TapPoint { tap, layer, span: 0, pos }
    }

    fn file(values: bool, records: &[(TapPoint, &[f32])]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = TapWriter::new(&mut out, values).expect("writing to memory");
        records.iter().for_each(|(point, values)| writer.record(*point, values));
        writer.finish().expect("writing to memory");
        out
    }

    fn read(bytes: &[u8]) -> TapFile {
        TapFile::read(bytes).expect("a file just written")
    }

    #[test]
    fn records_in_another_order_are_the_same_run() {
        let records: [(_, &[f32]); 3] = [
            (point(Tap::Q, Some(0), 0), &[1.0]),
            (point(Tap::Q, Some(0), 1), &[2.0]),
            (point(Tap::Logits, None, 0), &[3.0]),
        ];
        let reversed: Vec<_> = records.iter().rev().copied().collect();
        assert_eq!(read(&file(false, &records)).first_difference(&read(&file(false, &reversed))), None);
    }

    #[test]
    fn the_first_difference_is_that_of_the_earliest_token_and_tap() {
        let ours: [(_, &[f32]); 4] = [
            (point(Tap::Logits, None, 0), &[1.0]),
            (point(Tap::LOut, Some(3), 0), &[1.0, 2.0, 3.0]),
            (point(Tap::Embd, None, 0), &[1.0]),
            (point(Tap::Embd, None, 1), &[1.0]),
        ];
        let mut theirs = ours;
        theirs[0].1 = &[1.5];
        theirs[1].1 = &[1.0, 2.5, 2.75];
        theirs[3].1 = &[1.5];
        let difference = read(&file(true, &ours)).first_difference(&read(&file(true, &theirs))).expect("they differ");
        assert_eq!((difference.key.tap(), difference.key.layer(), difference.key.pos), (Tap::LOut, Some(3), 0));
        let distance = Distance { n_changed: 2, n: 3, worst_index: 1, first: 2.0, second: 2.5 };
        assert_eq!(difference.kind, DifferenceKind::Changed(Some(distance)));
    }

    #[test]
    fn a_sign_of_zero_is_a_difference() {
        let ours = file(false, &[(point(Tap::V, Some(0), 0), &[0.0])]);
        let theirs = file(false, &[(point(Tap::V, Some(0), 0), &[-0.0])]);
        let difference = read(&ours).first_difference(&read(&theirs)).expect("the bits differ");
        assert_eq!(difference.kind, DifferenceKind::Changed(None));
    }

    #[test]
    fn a_record_that_one_file_lacks_is_a_difference() {
        let ours = file(false, &[(point(Tap::V, Some(0), 0), &[1.0]), (point(Tap::V, Some(1), 0), &[1.0])]);
        let theirs = file(false, &[(point(Tap::V, Some(0), 0), &[1.0])]);
        let (ours, theirs) = (read(&ours), read(&theirs));
        assert_eq!(ours.first_difference(&theirs).expect("one is missing").kind, DifferenceKind::OnlyInFirst);
        assert_eq!(theirs.first_difference(&ours).expect("one is missing").kind, DifferenceKind::OnlyInSecond);
    }

    #[test]
    fn a_file_cut_anywhere_is_refused() {
        let whole = file(true, &[(point(Tap::K, Some(2), 7), &[1.0, -2.0])]);
        for len in 0..whole.len() {
            assert!(TapFile::read(&whole[..len]).is_err(), "{len} of {} bytes were taken for a file", whole.len());
        }
    }

    #[test]
    fn a_huge_count_is_refused_before_anything_is_reserved_for_it() {
        let mut damaged = file(true, &[(point(Tap::K, Some(2), 7), &[1.0])]);
        damaged[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(TapFile::read(&damaged[..]), Err(TapFileError::Damaged { index: 0, len: u32::MAX, .. })));
    }
}
