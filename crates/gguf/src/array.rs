//! Arrays of the metadata: numbers stay bytes, strings become slices, arrays nest.

use std::borrow::Cow;

use crate::{
    caps,
    cursor::Cursor,
    error::{Error, Result},
    value::{ValueType, require_bool, require_finite, write_str},
};

/// An array whose elements all have one type.
///
/// Numbers and bools are kept as the file's bytes and read when asked for; a vocabulary's strings are one allocation of
/// slices into the file. Build one from a slice of numbers or bools, from a `Vec<&str>`, or from a `Vec<Array>`.
#[derive(Debug, Clone, PartialEq)]
pub struct Array<'a> {
    elem_type: ValueType,
    items: Items<'a>,
}

#[derive(Debug, Clone, PartialEq)]
enum Items<'a> {
    /// Little-endian, `len` times the size of `elem_type`, which is a number or a bool.
    Packed(Cow<'a, [u8]>),
    Strs(Vec<&'a str>),
    Arrays(Vec<Array<'a>>),
}

impl<'a> Array<'a> {
    /// Type of the elements.
    pub fn elem_type(&self) -> ValueType {
        self.elem_type
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match &self.items {
            Items::Packed(bytes) => bytes.len() / self.elem_bytes(),
            Items::Strs(strs) => strs.len(),
            Items::Arrays(arrays) => arrays.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements, if they are integers of any width.
    pub fn ints(&self) -> Option<impl ExactSizeIterator<Item = i128>> {
        let ty = self.elem_type;
        Some(self.packed(ty.is_int())?.map(move |elem| int_from_le(ty, elem)))
    }

    /// The elements, if they are f32 or f64.
    pub fn floats(&self) -> Option<impl ExactSizeIterator<Item = f64>> {
        Some(self.packed(self.elem_type.is_float())?.map(float_from_le))
    }

    /// The elements, if they are bools.
    pub fn bools(&self) -> Option<impl ExactSizeIterator<Item = bool>> {
        Some(self.packed(self.elem_type == ValueType::Bool)?.map(|elem| elem != [0]))
    }

    /// The elements, if they are strings.
    pub fn strs(&self) -> Option<&[&'a str]> {
        match &self.items {
            Items::Strs(strs) => Some(strs),
            _ => None,
        }
    }

    /// The elements, if they are arrays.
    pub fn arrays(&self) -> Option<&[Self]> {
        match &self.items {
            Items::Arrays(arrays) => Some(arrays),
            _ => None,
        }
    }

    pub(crate) fn read(cursor: &mut Cursor<'a>) -> Result<Self> {
        Self::read_at_depth(cursor, 1)
    }

    fn read_at_depth(cursor: &mut Cursor<'a>, depth: u32) -> Result<Self> {
        let elem_type = ValueType::read(cursor)?;
        let len = cursor.u64()?;
        let items = match elem_type {
            ValueType::Str => Items::Strs(read_strs(cursor, len)?),
            ValueType::Array if depth == caps::ARRAY_DEPTH => {
                return Err(Error::OverCap {
                    what: format!("levels of arrays in {}", cursor.what()),
                    found: u64::from(depth) + 1,
                    cap: caps::ARRAY_DEPTH.into(),
                });
            }
            ValueType::Array => {
                // Grown, not reserved: each level could claim the whole rest of the file at once.
                cursor.room_for(len, caps::ARRAY_MIN_BYTES)?;
                cursor.count_arrays(len)?;
                let mut arrays = Vec::new();
                for _ in 0..len {
                    arrays.push(Self::read_at_depth(cursor, depth + 1)?);
                }
                Items::Arrays(arrays)
            }
            _ => Items::Packed(Cow::Borrowed(read_packed(cursor, elem_type, len)?)),
        };
        Ok(Self { elem_type, items })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.elem_type.write(out);
        out.extend_from_slice(&(self.len() as u64).to_le_bytes());
        match &self.items {
            Items::Packed(bytes) => out.extend_from_slice(bytes),
            Items::Strs(strs) => strs.iter().for_each(|str| write_str(str, out)),
            Items::Arrays(arrays) => arrays.iter().for_each(|array| array.write(out)),
        }
    }

    fn packed(&self, is_wanted: bool) -> Option<std::slice::ChunksExact<'_, u8>> {
        match &self.items {
            Items::Packed(bytes) if is_wanted => Some(bytes.chunks_exact(self.elem_bytes())),
            _ => None,
        }
    }

    /// Bytes of a packed element; 1, and of no meaning, for other elements.
    fn elem_bytes(&self) -> usize {
        self.elem_type.size_bytes().unwrap_or(1) as usize
    }
}

fn read_strs<'a>(cursor: &mut Cursor<'a>, len: u64) -> Result<Vec<&'a str>> {
    let room = cursor.room_for(len, caps::STR_MIN_BYTES)?;
    cursor.count_strings(len)?;
    let mut strs = Vec::with_capacity(room);
    for _ in 0..len {
        strs.push(cursor.str()?);
    }
    Ok(strs)
}

fn read_packed<'a>(cursor: &mut Cursor<'a>, elem_type: ValueType, len: u64) -> Result<&'a [u8]> {
    let elem_bytes = elem_type.size_bytes().unwrap_or(1);
    // A product that saturates is more than any file has, too.
    let bytes = cursor.bytes(len.saturating_mul(elem_bytes))?;
    match elem_type {
        ValueType::Bool => bytes.iter().try_for_each(|&byte| require_bool(cursor, byte))?,
        ValueType::F32 | ValueType::F64 => {
            for (index, elem) in bytes.chunks_exact(elem_bytes as usize).enumerate() {
                require_finite(cursor, index as u64, float_from_le(elem))?;
            }
        }
        _ => {}
    }
    Ok(bytes)
}

/// An integer of type `ty` from its bytes.
fn int_from_le(ty: ValueType, elem: &[u8]) -> i128 {
    match ty {
        ValueType::U8 => u8::from_le_bytes(sized(elem)).into(),
        ValueType::I8 => i8::from_le_bytes(sized(elem)).into(),
        ValueType::U16 => u16::from_le_bytes(sized(elem)).into(),
        ValueType::I16 => i16::from_le_bytes(sized(elem)).into(),
        ValueType::U32 => u32::from_le_bytes(sized(elem)).into(),
        ValueType::I32 => i32::from_le_bytes(sized(elem)).into(),
        ValueType::I64 => i64::from_le_bytes(sized(elem)).into(),
        _ => u64::from_le_bytes(sized(elem)).into(),
    }
}

/// An f32 from four bytes, an f64 from eight.
fn float_from_le(elem: &[u8]) -> f64 {
    match elem.len() {
        4 => f32::from_le_bytes(sized(elem)).into(),
        _ => f64::from_le_bytes(sized(elem)),
    }
}

/// The bytes of one element, which has the size of its type.
fn sized<const N: usize>(elem: &[u8]) -> [u8; N] {
    let mut sized = [0; N];
    sized.copy_from_slice(elem);
    sized
}

macro_rules! array_from_numbers {
    ($($type:ty => $elem_type:ident),* $(,)?) => {$(
        impl From<&[$type]> for Array<'_> {
            fn from(numbers: &[$type]) -> Self {
                let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                Self { elem_type: ValueType::$elem_type, items: Items::Packed(Cow::Owned(bytes)) }
            }
        }
    )*};
}

array_from_numbers! {
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64, f32 => F32, f64 => F64,
}

impl From<&[bool]> for Array<'_> {
    fn from(bools: &[bool]) -> Self {
        let bytes = bools.iter().map(|&bool| u8::from(bool)).collect();
        Self { elem_type: ValueType::Bool, items: Items::Packed(Cow::Owned(bytes)) }
    }
}

impl<'a> From<Vec<&'a str>> for Array<'a> {
    fn from(strs: Vec<&'a str>) -> Self {
        Self { elem_type: ValueType::Str, items: Items::Strs(strs) }
    }
}

impl<'a> From<Vec<Array<'a>>> for Array<'a> {
    fn from(arrays: Vec<Self>) -> Self {
        Self { elem_type: ValueType::Array, items: Items::Arrays(arrays) }
    }
}
