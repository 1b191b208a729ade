//! What is written is read back, and no damage to it makes the parser panic.

use std::collections::BTreeMap;

use muser_gguf::{Array, Error, Gguf, TensorType, Value, Writer};
use proptest::prelude::*;

/// A value that owns its strings.
#[derive(Debug, Clone)]
enum Owned {
    Plain(Value<'static>),
    Str(String),
    Strs(Vec<String>),
    Nested(Vec<Owned>),
}

impl Owned {
    fn borrowed(&self) -> Value<'_> {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Str(str) => str.as_str().into(),
            Self::Strs(strs) => Array::from(strs.iter().map(String::as_str).collect::<Vec<_>>()).into(),
            Self::Nested(values) => {
                let arrays = values.iter().map(|value| match value.borrowed() {
                    Value::Array(array) => array,
                    other => panic!("{other:?} is no array"),
                });
                Array::from(arrays.collect::<Vec<_>>()).into()
            }
        }
    }
}

fn numbers<T: std::fmt::Debug + 'static>(element: impl Strategy<Value = T> + 'static) -> BoxedStrategy<Owned>
where
    for<'a> Array<'static>: From<&'a [T]>,
{
    prop::collection::vec(element, 0..9)
        .prop_map(|numbers| Owned::Plain(Value::Array(Array::from(&numbers[..]))))
        .boxed()
}

fn any_array() -> impl Strategy<Value = Owned> {
    use prop::num::{f32, f64};
    let flat = prop_oneof![
        numbers(any::<u8>()),
        numbers(any::<i8>()),
        numbers(any::<u16>()),
        numbers(any::<i16>()),
        numbers(any::<u32>()),
        numbers(any::<i32>()),
        numbers(any::<u64>()),
        numbers(any::<i64>()),
        numbers(f32::NORMAL | f32::ZERO),
        numbers(f64::NORMAL | f64::ZERO),
        numbers(any::<bool>()),
        prop::collection::vec(".{0,5}", 0..9).prop_map(Owned::Strs),
    ];
    flat.prop_recursive(3, 20, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Owned::Nested))
}

fn any_value() -> impl Strategy<Value = Owned> {
    use prop::num::{f32, f64};
    fn plain<T: Into<Value<'static>>>(value: T) -> Owned {
        Owned::Plain(value.into())
    }
    prop_oneof![
        any::<u8>().prop_map(plain),
        any::<i8>().prop_map(plain),
        any::<u16>().prop_map(plain),
        any::<i16>().prop_map(plain),
        any::<u32>().prop_map(plain),
        any::<i32>().prop_map(plain),
        any::<u64>().prop_map(plain),
        any::<i64>().prop_map(plain),
        (f32::NORMAL | f32::ZERO).prop_map(plain),
        (f64::NORMAL | f64::ZERO).prop_map(plain),
        any::<bool>().prop_map(plain),
        ".{0,20}".prop_map(Owned::Str),
        any_array(),
    ]
}

/// A tensor's type, dimensions and bytes.
fn any_tensor() -> impl Strategy<Value = (TensorType, Vec<u64>, Vec<u8>)> {
    let types: Vec<_> = TensorType::all().collect();
    (prop::sample::select(types), prop::collection::vec(1_u64..4, 1..5), any::<u8>()).prop_map(
        |(ty, mut dims, fill)| {
            let n_blocks: u64 = dims.iter().product();
            dims[0] *= ty.block_len();
            (ty, dims, vec![fill; (n_blocks * ty.block_bytes()) as usize])
        },
    )
}

fn small_file() -> Vec<u8> {
    let mut writer = Writer::new();
    writer
        .metadata("general.architecture", "llama")
        .metadata("general.alignment", 16_u32)
        .metadata("f", 1.5_f32)
        .metadata("b", true)
        .metadata("tokens", Array::from(vec!["a", "bc", "é"]))
        .metadata("scores", Array::from(&[0.5_f32, -1.0, 2.0][..]))
        .metadata("nested", Array::from(vec![Array::from(&[1_u8, 2][..]), Array::from(vec!["x"])]));
    writer.tensor("a.weight", &[32, 2], TensorType::Q8_0, &[7; 68]).unwrap();
    writer.tensor("b.weight", &[3], TensorType::F32, &[1; 12]).unwrap();
    let mut file = Vec::new();
    writer.write_to(&mut file).unwrap();
    file
}

fn parse(file: &[u8]) -> Result<Gguf<'_>, Error> {
    Gguf::parse(file, file.len() as u64)
}

/// Asks everything of a file that was accepted.
fn use_all(gguf: &Gguf<'_>) {
    for (key, _) in gguf.metadata().iter() {
        let metadata = gguf.metadata();
        let _ = (metadata.u32(key), metadata.f32(key), metadata.bool(key), metadata.str(key), metadata.strs(key));
        let _ = (metadata.ints::<i32>(key), metadata.floats(key), metadata.bools(key));
    }
    let _ = gguf.shard();
    for tensor in gguf.tensors() {
        assert!(
            tensor.byte_range().end <= gguf.file_len() && tensor.n_elements() == tensor.row_len() * tensor.n_rows()
        );
    }
}

proptest! {
    #[test]
    fn a_file_that_was_written_says_what_was_put_in(
        metadata in prop::collection::btree_map("[a-z][a-z.]{0,12}", any_value(), 0..8),
        tensors in prop::collection::btree_map("[a-z][a-z.0-9]{0,12}", any_tensor(), 0..6),
        alignment in prop::option::of(1_u32..20),
    ) {
        let metadata: BTreeMap<String, Owned> = metadata;
        let mut writer = Writer::new();
        if let Some(units) = alignment {
            writer.metadata("general.alignment", units * 8);
        }
        for (key, value) in &metadata {
            writer.metadata(key, value.borrowed());
        }
        for (name, (ty, dims, data)) in &tensors {
            writer.tensor(name, dims, *ty, data).unwrap();
        }
        let mut file = Vec::new();
        let len = writer.write_to(&mut file).unwrap();
        prop_assert_eq!(len, file.len() as u64);

        let gguf = parse(&file).unwrap();
        prop_assert_eq!(gguf.version(), 3);
        prop_assert_eq!(gguf.alignment(), alignment.map_or(32, |units| units * 8));
        let found: Vec<_> = gguf.metadata().iter().filter(|(key, _)| *key != "general.alignment").collect();
        prop_assert_eq!(found.len(), metadata.len());
        for ((key, value), (wanted_key, wanted)) in found.into_iter().zip(&metadata) {
            prop_assert_eq!(key, wanted_key);
            prop_assert_eq!(value, &wanted.borrowed());
        }
        prop_assert_eq!(gguf.tensors().len(), tensors.len());
        for (tensor, (name, (ty, dims, data))) in gguf.tensors().iter().zip(&tensors) {
            prop_assert_eq!((tensor.name(), tensor.dims(), tensor.tensor_type()), (&name[..], &dims[..], *ty));
            let range = tensor.byte_range();
            prop_assert_eq!(&file[range.start as usize..range.end as usize], &data[..]);
        }
    }

    #[test]
    fn bytes_after_the_magic_of_any_content_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let counts = [3_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat();
        let file = [b"GGUF\x03\0\0\0", &counts[..], &bytes].concat();
        if let Ok(gguf) = parse(&file) {
            use_all(&gguf);
        }
    }

    #[test]
    fn several_bytes_changed_at_once_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut file = small_file();
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Ok(gguf) = parse(&file) {
            use_all(&gguf);
        }
    }
}

#[test]
fn any_one_bit_flipped_is_an_error_or_a_value() {
    let valid = small_file();
    let mut n_refused = 0;
    for bit in 0..valid.len() * 8 {
        let mut file = valid.clone();
        file[bit / 8] ^= 1 << (bit % 8);
        match parse(&file) {
            Ok(gguf) => use_all(&gguf),
            Err(error) => {
                n_refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    // Most of the head is structure: its damage is seen.
    assert!(n_refused > valid.len() * 2, "{n_refused} of {}", valid.len() * 8);
}

#[test]
fn any_cut_before_the_end_of_the_last_tensor_is_refused() {
    let valid = small_file();
    let gguf = parse(&valid).unwrap();
    let data_end = valid.len() - gguf.trailing_bytes() as usize;
    for len in 0..valid.len() {
        assert_eq!(parse(&valid[..len]).is_ok(), len >= data_end, "{len}");
    }
}

#[test]
fn the_writer_refuses_what_the_parser_would() {
    let refusal = |writer: &Writer<'_>| {
        let mut out = Vec::new();
        let error = writer.write_to(&mut out).unwrap_err();
        assert!(out.is_empty(), "something was written");
        error
    };
    let mut writer = Writer::new();
    writer.metadata("k", 1_u8).metadata("k", 2_u8);
    assert!(matches!(refusal(&writer), Error::DuplicateKey { .. }));
    let mut writer = Writer::new();
    writer.metadata("k", f32::NAN);
    assert!(matches!(refusal(&writer), Error::NotFinite { .. }));
    let mut writer = Writer::new();
    writer.metadata("general.alignment", 12_u32);
    assert!(matches!(refusal(&writer), Error::BadAlignment { .. }));
    let mut writer = Writer::new();
    writer.tensor("t", &[1], TensorType::F32, &[0; 4]).unwrap().tensor("t", &[1], TensorType::F32, &[0; 4]).unwrap();
    assert!(matches!(refusal(&writer), Error::DuplicateTensor { .. }));
}

#[test]
fn the_writer_refuses_a_tensor_whose_bytes_do_not_fit_its_dimensions() {
    let mut writer = Writer::new();
    let error = writer.tensor("t", &[2], TensorType::F32, &[0; 7]).unwrap_err();
    assert!(matches!(error, Error::WrongDataLen { found_bytes: 7, expected_bytes: 8, .. }));
    assert!(matches!(writer.tensor("t", &[], TensorType::F32, &[]).unwrap_err(), Error::BadDimCount { .. }));
    assert!(matches!(writer.tensor("t", &[33], TensorType::Q8_0, &[]).unwrap_err(), Error::PartialBlock { .. }));
}

#[test]
fn a_failing_output_is_an_error() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    assert!(matches!(Writer::new().write_to(&mut Full).unwrap_err(), Error::Io(_)));
}
