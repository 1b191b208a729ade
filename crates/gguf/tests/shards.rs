//! Sets of shards: each file's own keys, and a set held together.

use muser_gguf::{Error, Gguf, GgufSet, Shard, TensorType, Value, Writer, shard::ShardName};

const ROW: [u8; 4] = [0; 4];

/// A shard as the splitting tool of the format's authors writes it: u16, u16 and i32.
fn shard(index: u16, count: u16, n_tensors: i32, tensors: &[&str]) -> Vec<u8> {
    shard_with(&[], index, count, n_tensors, tensors)
}

/// As [`shard`], with more metadata.
fn shard_with(
    metadata: &[(&'static str, Value<'static>)],
    index: u16,
    count: u16,
    n_tensors: i32,
    tensors: &[&str],
) -> Vec<u8> {
    let mut writer = Writer::new();
    metadata.iter().for_each(|(key, value)| _ = writer.metadata(key, value.clone()));
    writer.metadata("split.no", index).metadata("split.count", count).metadata("split.tensors.count", n_tensors);
    for &name in tensors {
        writer.tensor(name, &[1], TensorType::F32, &ROW).unwrap();
    }
    written(&writer)
}

fn written(writer: &Writer<'_>) -> Vec<u8> {
    let mut file = Vec::new();
    writer.write_to(&mut file).unwrap();
    file
}

fn parse(file: &[u8]) -> Gguf<'_> {
    Gguf::parse(file, file.len() as u64).unwrap()
}

fn check(files: &[Vec<u8>]) -> Result<(), Error> {
    GgufSet::new(files.iter().map(|file| parse(file)).collect()).map(|_| ())
}

#[test]
fn a_shard_knows_its_place_and_the_whole() {
    let file = shard(1, 3, 7, &["a"]);
    assert_eq!(parse(&file).shard().unwrap(), Some(Shard { index: 1, count: 3, n_tensors: 7 }));
}

#[test]
fn a_whole_or_merged_file_is_no_shard() {
    assert_eq!(parse(&written(&Writer::new())).shard().unwrap(), None);
    assert_eq!(parse(&shard(0, 0, 1, &["a"])).shard().unwrap(), None);
}

#[test]
fn keys_that_contradict_each_other_are_refused() {
    let refusal = |file: Vec<u8>| parse(&file).shard().unwrap_err();
    assert!(matches!(refusal(shard(3, 3, 1, &[])), Error::ShardOutOfRange { index: 3, count: 3 }));
    assert!(matches!(refusal(shard(0, 2, 1, &["a", "b"])), Error::WrongTensorTotal { found: 2, expected: 1 }));
    assert!(matches!(refusal(shard(0, 2, -1, &[])), Error::OutOfRange { .. }));
    let mut without_number = Writer::new();
    without_number.metadata("split.count", 2_u16);
    assert!(matches!(refusal(written(&without_number)), Error::MissingKey { .. }));
}

#[test]
fn names_count_from_1_and_keys_from_0() {
    let name = ShardName::parse("Muse-30B-of-gold-00002-of-00003.gguf").unwrap();
    assert_eq!(name, ShardName { stem: "Muse-30B-of-gold", index: 1, count: 3 });
    assert_eq!(name.sibling(0), "Muse-30B-of-gold-00001-of-00003.gguf");
    assert_eq!(name.sibling(2), "Muse-30B-of-gold-00003-of-00003.gguf");
}

#[test]
fn a_name_that_is_no_shards_is_none() {
    for name in [
        "muse.gguf",
        "muse-00000-of-00003.gguf",
        "muse-00004-of-00003.gguf",
        "muse-1-of-3.gguf",
        "muse-00001-of-00003.bin",
        "muse-+0001-of-00003.gguf",
    ] {
        assert_eq!(ShardName::parse(name), None, "{name}");
    }
}

#[test]
fn a_whole_set_is_one_model() {
    let files = [
        shard_with(&[("general.architecture", "llama".into())], 0, 3, 3, &[]),
        shard(1, 3, 3, &["a", "b"]),
        shard(2, 3, 3, &["c"]),
    ];
    let set = GgufSet::new(files.iter().map(|file| parse(file)).collect()).unwrap();
    assert_eq!(set.architecture().unwrap(), "llama");
    let tensors: Vec<_> = set.tensors().map(|(file_no, tensor)| (file_no, tensor.name())).collect();
    assert_eq!(tensors, [(1, "a"), (1, "b"), (2, "c")]);
    assert_eq!(set.tensor("c").map(|tensor| tensor.name()), Some("c"));
    assert_eq!(set.tensor("d"), None);
}

#[test]
fn a_whole_file_is_a_set_of_one() {
    check(&[written(&Writer::new())]).unwrap();
    check(&[shard(0, 1, 1, &["a"])]).unwrap();
    let refusal = check(&[shard(0, 1, 2, &["a"])]).unwrap_err();
    assert!(matches!(refusal, Error::WrongTensorTotal { found: 1, expected: 2 }), "{refusal}");
    let whole = written(&Writer::new());
    assert!(matches!(check(&[whole.clone(), whole]).unwrap_err(), Error::NotAShard { index: 0 }));
}

#[test]
fn a_later_shard_adds_nothing_to_the_metadata_of_the_first() {
    let first = shard_with(&[("general.architecture", "llama".into())], 0, 2, 0, &[]);
    let second = |metadata: &[_]| check(&[first.clone(), shard_with(metadata, 1, 2, 0, &[])]);
    second(&[("general.architecture", "llama".into())]).unwrap();
    // Each file has a layout of its own.
    second(&[("general.alignment", 64_u32.into())]).unwrap();
    let refusal = second(&[("general.architecture", "gemma3".into())]).unwrap_err();
    assert_eq!(refusal.shard(), Some(1));
    assert_eq!(
        refusal.to_string(),
        "shard 2 of the set has metadata key \"general.architecture\" as str \"gemma3\", where the first shard has \
         str \"llama\""
    );
    let refusal = second(&[("llama.block_count", 3_u32.into())]).unwrap_err();
    assert!(refusal.to_string().ends_with("as u32 3, where the first shard has nothing"), "{refusal}");
}

#[test]
fn a_set_with_a_fault_is_refused_naming_it() {
    let refusal = |files: &[Vec<u8>]| check(files).unwrap_err();
    let first = shard(0, 2, 2, &["a"]);

    assert!(matches!(
        refusal(std::slice::from_ref(&first)),
        Error::ShardsDisagree { key: "split.count", found: 2, expected: 1, .. }
    ));
    assert!(matches!(refusal(&[first.clone(), first.clone()]), Error::ShardOutOfPlace { index: 1, found: 0 }));
    let other_set = shard(1, 2, 5, &["b"]);
    assert!(matches!(
        refusal(&[first.clone(), other_set]),
        Error::ShardsDisagree { key: "split.tensors.count", index: 1, found: 5, expected: 2 }
    ));
    let whole = written(&Writer::new());
    assert!(matches!(refusal(&[first.clone(), whole]), Error::NotAShard { index: 1 }));
    let same_tensor = shard(1, 2, 2, &["a"]);
    assert!(matches!(
        refusal(&[first.clone(), same_tensor]),
        Error::TensorInTwoShards { tensor, first: 0, second: 1 } if tensor == "a"
    ));
    let too_few = shard(1, 2, 2, &[]);
    assert!(matches!(refusal(&[first, too_few]), Error::WrongTensorTotal { found: 1, expected: 2 }));
}
