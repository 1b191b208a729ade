//! The format's thirteen value types, and a value of any of them.

use std::fmt;

use crate::{
    array::Array,
    cursor::Cursor,
    error::{Error, Result},
};

/// Type of a metadata value, or of an array's elements.
#[allow(missing_docs, reason = "the names are the types'")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Str,
    Array,
    U64,
    I64,
    F64,
}

/// One metadata value.
#[allow(missing_docs, reason = "the names are the types'")]
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(&'a str),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl ValueType {
    /// By id: the position of a type is its number in the file.
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::Str,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The type's name, for example `u32`.
    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::Str => "str",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }

    /// Bytes of one value, where all values of the type have the same.
    pub(crate) fn size_bytes(self) -> Option<u64> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::Str | Self::Array => None,
        }
    }

    pub(crate) fn is_int(self) -> bool {
        use ValueType::{I8, I16, I32, I64, U8, U16, U32, U64};
        matches!(self, U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64)
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let id = cursor.u32()?;
        Self::ALL.get(id as usize).copied().ok_or_else(|| Error::UnknownValueType { what: cursor.what(), id })
    }

    pub(crate) fn write(self, out: &mut Vec<u8>) {
        // The enum is in the order of `ALL`, which a test holds.
        out.extend_from_slice(&(self as u32).to_le_bytes());
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl<'a> Value<'a> {
    /// The value's type.
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::Str(_) => ValueType::Str,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// The number, if the value is an integer of any width.
    pub fn as_int(&self) -> Option<i128> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::I8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::I16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::I32(v) => Some(v.into()),
            Self::U64(v) => Some(v.into()),
            Self::I64(v) => Some(v.into()),
            _ => None,
        }
    }

    /// The number, if the value is an f32 or an f64.
    pub fn as_float(&self) -> Option<f64> {
        match *self {
            Self::F32(v) => Some(v.into()),
            Self::F64(v) => Some(v),
            _ => None,
        }
    }

    /// The array, if the value is one.
    pub fn as_array(&self) -> Option<&Array<'a>> {
        match self {
            Self::Array(array) => Some(array),
            _ => None,
        }
    }

    pub(crate) fn read(cursor: &mut Cursor<'a>) -> Result<Self> {
        Ok(match ValueType::read(cursor)? {
            ValueType::U8 => Self::U8(u8::from_le_bytes(cursor.array()?)),
            ValueType::I8 => Self::I8(i8::from_le_bytes(cursor.array()?)),
            ValueType::U16 => Self::U16(u16::from_le_bytes(cursor.array()?)),
            ValueType::I16 => Self::I16(i16::from_le_bytes(cursor.array()?)),
            ValueType::U32 => Self::U32(cursor.u32()?),
            ValueType::I32 => Self::I32(i32::from_le_bytes(cursor.array()?)),
            ValueType::F32 => {
                let value = f32::from_le_bytes(cursor.array()?);
                require_finite(cursor, 0, value.into())?;
                Self::F32(value)
            }
            ValueType::Bool => {
                let [byte] = cursor.array()?;
                require_bool(cursor, byte)?;
                Self::Bool(byte == 1)
            }
            ValueType::Str => Self::Str(cursor.str()?),
            ValueType::Array => Self::Array(Array::read(cursor)?),
            ValueType::U64 => Self::U64(cursor.u64()?),
            ValueType::I64 => Self::I64(i64::from_le_bytes(cursor.array()?)),
            ValueType::F64 => {
                let value = f64::from_le_bytes(cursor.array()?);
                require_finite(cursor, 0, value)?;
                Self::F64(value)
            }
        })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.value_type().write(out);
        match self {
            Self::U8(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::I8(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::U16(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::I16(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::U32(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::I32(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::F32(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::Bool(v) => out.push(u8::from(*v)),
            Self::Str(v) => write_str(v, out),
            Self::Array(v) => v.write(out),
            Self::U64(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::I64(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::F64(v) => out.extend_from_slice(&v.to_le_bytes()),
        }
    }

    /// Type and value, in a length fit for a message.
    pub(crate) fn described(&self) -> String {
        let ty = self.value_type();
        match self {
            Self::Bool(v) => format!("{ty} {v}"),
            Self::Str(v) => format!("{ty} {:?}", crate::error::shown(v)),
            Self::Array(v) => format!("an array of {} {}", v.len(), v.elem_type()),
            _ => match (self.as_int(), self.as_float()) {
                (Some(v), _) => format!("{ty} {v}"),
                (_, Some(v)) => format!("{ty} {v}"),
                _ => ty.name().to_owned(),
            },
        }
    }
}

pub(crate) fn write_str(str: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(str.len() as u64).to_le_bytes());
    out.extend_from_slice(str.as_bytes());
}

pub(crate) fn require_finite(cursor: &Cursor<'_>, index: u64, found: f64) -> Result<()> {
    if found.is_finite() { Ok(()) } else { Err(Error::NotFinite { what: cursor.what(), index, found }) }
}

pub(crate) fn require_bool(cursor: &Cursor<'_>, byte: u8) -> Result<()> {
    if byte <= 1 { Ok(()) } else { Err(Error::BadBool { what: cursor.what(), found: byte }) }
}

macro_rules! value_from {
    ($($variant:ident($type:ty)),* $(,)?) => {$(
        impl<'a> From<$type> for Value<'a> {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}

value_from! {
    U8(u8), I8(i8), U16(u16), I16(i16), U32(u32), I32(i32), U64(u64), I64(i64), F32(f32), F64(f64), Bool(bool),
    Str(&'a str), Array(Array<'a>),
}

#[cfg(test)]
mod tests {
    use super::ValueType;

    #[test]
    fn a_type_is_written_as_its_position_among_all() {
        for (id, ty) in ValueType::ALL.into_iter().enumerate() {
            let mut out = Vec::new();
            ty.write(&mut out);
            assert_eq!(out, (id as u32).to_le_bytes(), "{ty}");
        }
    }
}
