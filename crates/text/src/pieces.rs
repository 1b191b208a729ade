//! The bytes of all tokens in one table, and the index from bytes back to ids.

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// Byte strings in one allocation, by id.
#[derive(Debug)]
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    /// Where each piece starts, and at last where the bytes end. // (n + 1)
    starts: Vec<u32>,
}

impl Pieces {
    pub(crate) fn with_capacity(n: usize) -> Self {
        let mut starts = Vec::with_capacity(n + 1);
        starts.push(0);
        // Eight bytes a token is what real vocabularies come to, within a third.
        Self { bytes: Vec::with_capacity(n.saturating_mul(8)), starts }
    }

    /// Appends a piece that `write` appends to the bytes before it. Returns false, with nothing appended, if ids or
    /// offsets would no longer fit 32 bits.
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let before = self.bytes.len();
        write(&mut self.bytes);
        // The last id is kept free: it marks absence elsewhere.
        match u32::try_from(self.bytes.len()) {
            Ok(end) if self.starts.len() < u32::MAX as usize => {
                self.starts.push(end);
                true
            }
            _ => {
                self.bytes.truncate(before);
                false
            }
        }
    }

    /// Number of pieces.
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The piece with this id, which must be one.
    pub(crate) fn of(&self, id: u32) -> &[u8] {
        let id = id as usize;
        &self.bytes[self.starts[id] as usize..self.starts[id + 1] as usize]
    }

    pub(crate) fn get(&self, id: u32) -> Option<&[u8]> {
        ((id as usize) < self.len()).then(|| self.of(id))
    }
}

/// Finds pieces by their bytes. Holds ids only, and is hashed with a key of this process, so that no file can be made
/// to collide.
pub(crate) struct PieceIndex {
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
    max_len: usize,
}

impl PieceIndex {
    pub(crate) fn with_capacity(n: usize) -> Self {
        Self { ids: HashTable::with_capacity(n), hasher: DefaultHashBuilder::default(), max_len: 0 }
    }

    /// Adds a piece.
    ///
    /// # Errors
    ///
    /// The id of the piece that has the same bytes.
    pub(crate) fn insert(&mut self, pieces: &Pieces, id: u32) -> Result<(), u32> {
        let key = pieces.of(id);
        let Self { ids, hasher, max_len } = self;
        let entry = ids.entry(
            hasher.hash_one(key),
            |&other| pieces.of(other) == key,
            |&other| hasher.hash_one(pieces.of(other)),
        );
        match entry {
            Entry::Occupied(entry) => Err(*entry.get()),
            Entry::Vacant(entry) => {
                entry.insert(id);
                *max_len = (*max_len).max(key.len());
                Ok(())
            }
        }
    }

    pub(crate) fn remove(&mut self, pieces: &Pieces, key: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let entry = self.ids.find_entry(hash, |&id| pieces.of(id) == key).ok()?;
        Some(entry.remove().0)
    }

    pub(crate) fn find(&self, pieces: &Pieces, key: &[u8]) -> Option<u32> {
        // Merging asks for pairs that can be as long as the text; none longer than a piece needs hashing.
        if key.len() > self.max_len {
            return None;
        }
        self.ids.find(self.hasher.hash_one(key), |&id| pieces.of(id) == key).copied()
    }
}
