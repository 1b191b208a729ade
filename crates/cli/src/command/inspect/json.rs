//! What a model's files say, as one JSON document. It is written as it is read: a tree of a large vocabulary would take
//! many times the file's own bytes.

use muser_engine::ModelFiles;
use muser_gguf::{Array, Gguf, GgufSet, TensorInfo, Value};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::json;

/// All that the files say but for the weights, and in which file each tensor lies.
#[derive(Serialize)]
pub struct Document<'a> {
    version: u32,
    alignment: u32,
    size_bytes: u64,
    files: Vec<serde_json::Value>,
    runs: bool,
    why_not: Option<&'a str>,
    metadata: Metadata<'a>,
    tensors: Vec<Tensor<'a>>,
}

impl<'a> Document<'a> {
    pub fn new(files: &ModelFiles, set: &'a GgufSet<'a>, why_not: Option<&'a str>) -> Self {
        let first = &set.files()[0];
        let file = |(file, gguf): (&muser_memory::ModelFile, &Gguf<'_>)| {
            json!({
                "path": file.path().to_string_lossy(),
                "version": gguf.version(),
                "alignment": gguf.alignment(),
                "size_bytes": gguf.file_len(),
            })
        };
        Self {
            version: first.version(),
            alignment: first.alignment(),
            size_bytes: super::size_bytes(set),
            files: files.files().iter().zip(set.files()).map(file).collect(),
            runs: why_not.is_none(),
            why_not,
            metadata: Metadata(set.metadata()),
            tensors: set.tensors().map(|(file_no, tensor)| Tensor::new(file_no, tensor)).collect(),
        }
    }
}

#[derive(Serialize)]
struct Tensor<'a> {
    name: &'a str,
    r#type: &'static str,
    dims: &'a [u64],
    file: usize,
    offset: u64,
    size_bytes: u64,
}

impl<'a> Tensor<'a> {
    fn new(file: usize, tensor: &'a TensorInfo<'a>) -> Self {
        Self {
            name: tensor.name(),
            r#type: tensor.tensor_type().name(),
            dims: tensor.dims(),
            file,
            offset: tensor.offset(),
            size_bytes: tensor.size_bytes(),
        }
    }
}

struct Metadata<'a>(&'a muser_gguf::Metadata<'a>);

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, Entry(value))))
    }
}

/// A value with its type, and that of its elements.
struct Entry<'a>(&'a Value<'a>);

impl Serialize for Entry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.0.value_type().name())?;
        if let Value::Array(array) = self.0 {
            map.serialize_entry("elem_type", array.elem_type().name())?;
        }
        map.serialize_entry("value", &Plain(self.0))?;
        map.end()
    }
}

/// A value by itself.
pub struct Plain<'a>(pub &'a Value<'a>);

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Str(text) => serializer.serialize_str(text),
            Value::Bool(flag) => serializer.serialize_bool(*flag),
            Value::Array(array) => Start(array, array.len()).serialize(serializer),
            // All digits of the number that is stored, and not the fewest that are read back as it.
            Value::F32(number) => serializer.serialize_f64((*number).into()),
            Value::F64(number) => serializer.serialize_f64(*number),
            value => match value.as_int() {
                Some(int) => Int(int).serialize(serializer),
                // Every other type is an integer.
                None => serializer.serialize_none(),
            },
        }
    }
}

/// The first entries of an array, at most so many.
pub struct Start<'a>(pub &'a Array<'a>, pub usize);

impl Serialize for Start<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(array, most) = *self;
        if let Some(strs) = array.strs() {
            serializer.collect_seq(strs.iter().take(most))
        } else if let Some(bools) = array.bools() {
            serializer.collect_seq(bools.take(most))
        } else if let Some(ints) = array.ints() {
            serializer.collect_seq(ints.take(most).map(Int))
        } else if let Some(floats) = array.floats() {
            serializer.collect_seq(floats.take(most))
        } else {
            let arrays = array.arrays().unwrap_or_default();
            serializer.collect_seq(arrays.iter().take(most).map(|array| Start(array, array.len())))
        }
    }
}

/// An integer of at most 64 bits.
struct Int(i128);

impl Serialize for Int {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match u64::try_from(self.0) {
            Ok(int) => serializer.serialize_u64(int),
            Err(_) => serializer.serialize_i64(self.0 as i64),
        }
    }
}
