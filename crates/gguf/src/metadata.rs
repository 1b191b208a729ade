//! The metadata, and the typed questions to it.

use crate::{
    array::Array,
    caps,
    cursor::{Cursor, What},
    error::{Error, Result, shown},
    names::NameIndex,
    value::{Value, ValueType},
};

/// Metadata entries in the file's order, each key once.
///
/// Every typed question has two forms: `u32` and its like refuse a key that is missing, `opt_u32` and its like answer
/// `None` for it. Both refuse a value of another type. Integers of any width and sign answer for each other as long as
/// the number fits, and so do f32 and f64; nothing else is converted.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata<'a> {
    entries: Vec<(&'a str, Value<'a>)>,
    by_key: NameIndex,
}

/// An integer type that metadata can be asked for.
pub trait Int: TryFrom<i128> {
    /// The type, for messages.
    const NAME: &'static str;
    /// An array of it, for messages.
    const ARRAY_NAME: &'static str;
}

macro_rules! int {
    ($($type:ident),*) => {$(
        impl Int for $type {
            const NAME: &'static str = stringify!($type);
            const ARRAY_NAME: &'static str = concat!("an array of integers (", stringify!($type), ")");
        }
    )*};
}

int!(u8, i8, u16, i16, u32, i32, u64, i64, usize);

impl<'a> Metadata<'a> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys and values, in the file's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a str, &Value<'a>)> {
        self.entries.iter().map(|(key, value)| (*key, value))
    }

    /// Whether the key is there, with a value of any type.
    pub fn contains(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// The value of a key, of whatever type.
    pub fn value(&self, key: &str) -> Option<&Value<'a>> {
        let at = self.by_key.find(key, |at| self.entries[at].0)?;
        Some(&self.entries[at].1)
    }

    /// An integer that fits an `u32`.
    ///
    /// # Errors
    /// The key is missing, or its value no integer, or out of range.
    pub fn u32(&self, key: &str) -> Result<u32> {
        required(self.opt_u32(key)?, key, u32::NAME)
    }

    /// Like [`Self::u32`], `None` if the key is missing.
    ///
    /// # Errors
    /// The value is no integer, or out of range.
    pub fn opt_u32(&self, key: &str) -> Result<Option<u32>> {
        self.opt_int(key)
    }

    /// An integer that fits an `u64`.
    ///
    /// # Errors
    /// The key is missing, or its value no integer, or out of range.
    pub fn u64(&self, key: &str) -> Result<u64> {
        required(self.opt_u64(key)?, key, u64::NAME)
    }

    /// Like [`Self::u64`], `None` if the key is missing.
    ///
    /// # Errors
    /// The value is no integer, or out of range.
    pub fn opt_u64(&self, key: &str) -> Result<Option<u64>> {
        self.opt_int(key)
    }

    /// An integer that fits an `usize`.
    ///
    /// # Errors
    /// The key is missing, or its value no integer, or out of range.
    pub fn usize(&self, key: &str) -> Result<usize> {
        required(self.opt_usize(key)?, key, usize::NAME)
    }

    /// Like [`Self::usize`], `None` if the key is missing.
    ///
    /// # Errors
    /// The value is no integer, or out of range.
    pub fn opt_usize(&self, key: &str) -> Result<Option<usize>> {
        self.opt_int(key)
    }

    /// A float, rounded to f32 if it is stored as f64; finite.
    ///
    /// # Errors
    /// The key is missing, or its value no float, or beyond f32.
    pub fn f32(&self, key: &str) -> Result<f32> {
        required(self.opt_f32(key)?, key, "f32")
    }

    /// Like [`Self::f32`], `None` if the key is missing.
    ///
    /// # Errors
    /// The value is no float, or beyond f32.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let wide = value.as_float().ok_or_else(|| wrong_type(key, value, "f32"))?;
        narrowed(key, 0, wide).map(Some)
    }

    /// A bool.
    ///
    /// # Errors
    /// The key is missing, or its value no bool.
    pub fn bool(&self, key: &str) -> Result<bool> {
        required(self.opt_bool(key)?, key, "bool")
    }

    /// Like [`Self::bool`], `None` if the key is missing.
    ///
    /// # Errors
    /// The value is no bool.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>> {
        match self.value(key) {
            None => Ok(None),
            Some(&Value::Bool(bool)) => Ok(Some(bool)),
            Some(value) => Err(wrong_type(key, value, "bool")),
        }
    }

    /// A string.
    ///
    /// # Errors
    /// The key is missing, or its value no string.
    pub fn str(&self, key: &str) -> Result<&'a str> {
        required(self.opt_str(key)?, key, "str")
    }

    /// Like [`Self::str`], `None` if the key is missing.
    ///
    /// # Errors
    /// The value is no string.
    pub fn opt_str(&self, key: &str) -> Result<Option<&'a str>> {
        match self.value(key) {
            None => Ok(None),
            Some(&Value::Str(str)) => Ok(Some(str)),
            Some(value) => Err(wrong_type(key, value, "str")),
        }
    }

    /// An array of integers that fit a `T`.
    ///
    /// # Errors
    /// The key is missing, or its value no array of integers, or one of them is out of range.
    pub fn ints<T: Int>(&self, key: &str) -> Result<Vec<T>> {
        required(self.opt_ints(key)?, key, T::ARRAY_NAME)
    }

    /// Like [`Self::ints`], `None` if the key is missing.
    ///
    /// # Errors
    /// The value is no array of integers, or one of them is out of range.
    pub fn opt_ints<T: Int>(&self, key: &str) -> Result<Option<Vec<T>>> {
        self.opt_array(key, T::ARRAY_NAME, |array| {
            let ints = array.ints()?.enumerate();
            Some(ints.map(|(index, int)| fitted(key, index as u64, int)).collect())
        })
    }

    /// An array of i32, stored as i32 and nothing else: for keys that other readers take by their bytes, such as token
    /// types, where another width is the mark of a broken writer.
    ///
    /// # Errors
    /// The key is missing, or its value no array of i32.
    pub fn i32s(&self, key: &str) -> Result<Vec<i32>> {
        required(self.opt_i32s(key)?, key, "an array of i32")
    }

    /// Like [`Self::i32s`], `None` if the key is missing.
    ///
    /// # Errors
    /// The value is no array of i32.
    pub fn opt_i32s(&self, key: &str) -> Result<Option<Vec<i32>>> {
        self.opt_array(key, "an array of i32", |array| {
            let ints = array.ints().filter(|_| array.elem_type() == ValueType::I32)?;
            Some(ints.enumerate().map(|(index, int)| fitted(key, index as u64, int)).collect())
        })
    }

    /// An array of floats, rounded to f32 if stored as f64; finite.
    ///
    /// # Errors
    /// The key is missing, or its value no array of floats, or one of them is beyond f32.
    pub fn floats(&self, key: &str) -> Result<Vec<f32>> {
        required(self.opt_floats(key)?, key, "an array of f32")
    }

    /// Like [`Self::floats`], `None` if the key is missing.
    ///
    /// # Errors
    /// The value is no array of floats, or one of them is beyond f32.
    pub fn opt_floats(&self, key: &str) -> Result<Option<Vec<f32>>> {
        self.opt_array(key, "an array of f32", |array| {
            let floats = array.floats()?.enumerate();
            Some(floats.map(|(index, wide)| narrowed(key, index as u64, wide)).collect())
        })
    }

    /// An array of bools.
    ///
    /// # Errors
    /// The key is missing, or its value no array of bools.
    pub fn bools(&self, key: &str) -> Result<Vec<bool>> {
        required(self.opt_bools(key)?, key, "an array of bool")
    }

    /// Like [`Self::bools`], `None` if the key is missing.
    ///
    /// # Errors
    /// The value is no array of bools.
    pub fn opt_bools(&self, key: &str) -> Result<Option<Vec<bool>>> {
        self.opt_array(key, "an array of bool", |array| Some(Ok(array.bools()?.collect())))
    }

    /// An array of strings.
    ///
    /// # Errors
    /// The key is missing, or its value no array of strings.
    pub fn strs(&self, key: &str) -> Result<&[&'a str]> {
        required(self.opt_strs(key)?, key, "an array of str")
    }

    /// Like [`Self::strs`], `None` if the key is missing.
    ///
    /// # Errors
    /// The value is no array of strings.
    pub fn opt_strs(&self, key: &str) -> Result<Option<&[&'a str]>> {
        self.opt_array(key, "an array of str", |array| array.strs().map(Ok))
    }

    /// Checks that the array under `key` has exactly `len` entries, for arrays that run beside another: scores and types
    /// beside tokens. A key that is missing passes.
    ///
    /// # Errors
    /// The value is no array, or has another length.
    pub fn expect_len(&self, key: &str, len: usize) -> Result<()> {
        match self.value(key) {
            None => Ok(()),
            Some(Value::Array(array)) if array.len() == len => Ok(()),
            Some(Value::Array(array)) => {
                Err(Error::WrongLen { key: shown(key), found: array.len() as u64, expected: len as u64 })
            }
            Some(value) => Err(wrong_type(key, value, "an array")),
        }
    }

    pub(crate) fn read(cursor: &mut Cursor<'a>, len: u64) -> Result<Self> {
        cursor.reads(What::AllMetadata { len });
        let mut entries = Vec::with_capacity(cursor.room_for(len, caps::METADATA_ENTRY_MIN_BYTES)?);
        for index in 0..len {
            cursor.reads(What::Key { index });
            let key = cursor.name(caps::KEY_BYTES)?;
            cursor.reads(What::Value { key });
            entries.push((key, Value::read(cursor)?));
        }
        let by_key =
            NameIndex::new(entries.len(), |at| entries[at].0).map_err(|key| Error::DuplicateKey { key: shown(key) })?;
        Ok(Self { entries, by_key })
    }

    fn opt_int<T: Int>(&self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let int = value.as_int().ok_or_else(|| wrong_type(key, value, T::NAME))?;
        fitted(key, 0, int).map(Some)
    }

    /// What `read` makes of the array under `key`; `read` answers `None` for elements of the wrong type.
    fn opt_array<'m, T>(
        &'m self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&'m Array<'a>) -> Option<Result<T>>,
    ) -> Result<Option<T>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.as_array().and_then(read) {
            Some(read) => read.map(Some),
            None => Err(wrong_type(key, value, expected)),
        }
    }
}

fn required<T>(found: Option<T>, key: &str, expected: &'static str) -> Result<T> {
    found.ok_or_else(|| Error::MissingKey { key: shown(key), expected })
}

fn wrong_type(key: &str, value: &Value<'_>, expected: &'static str) -> Error {
    Error::WrongType { key: shown(key), found: value.described(), expected }
}

fn fitted<T: Int>(key: &str, index: u64, int: i128) -> Result<T> {
    T::try_from(int).map_err(|_| Error::OutOfRange {
        key: shown(key),
        index,
        found: int.to_string(),
        expected: T::NAME,
    })
}

fn narrowed(key: &str, index: u64, wide: f64) -> Result<f32> {
    let narrow = wide as f32;
    if narrow.is_finite() {
        Ok(narrow)
    } else {
        Err(Error::OutOfRange { key: shown(key), index, found: wide.to_string(), expected: "f32" })
    }
}
