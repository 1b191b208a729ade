//! Sets of shards: each file's own keys, and a set held together.

use std::num::NonZero;

use muser_gguf::{
    Array, Error, Gguf, GgufSet, Outline, Shard, ShardLimit, TensorInfo, TensorType, Value, Writer, shard::ShardName,
    split,
};

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
    assert_eq!(set.tensor("c").map(TensorInfo::name), Some("c"));
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

/// A file with ten tensors of ten sizes, each of bytes of its own.
fn whole(metadata: &[(&'static str, Value<'static>)]) -> Vec<u8> {
    let data: Vec<(String, Vec<u8>)> = (1..=10_u8).map(|i| (format!("t{i}"), vec![i; 40 * usize::from(i)])).collect();
    let mut writer = Writer::new();
    metadata.iter().for_each(|(key, value)| _ = writer.metadata(key, value.clone()));
    for (name, data) in &data {
        writer.tensor(name, &[data.len() as u64 / 4], TensorType::F32, data).unwrap();
    }
    written(&writer)
}

fn set(file: &[u8]) -> GgufSet<'_> {
    GgufSet::new(vec![parse(file)]).unwrap()
}

/// Writes the shards of a whole file.
fn shards(file: &[u8], limit: ShardLimit) -> Result<Vec<Vec<u8>>, Error> {
    let set = set(file);
    let write = |outline: &Outline<'_>| {
        let mut out = Vec::new();
        let len = outline.write_to(&mut out, |tensor, out: &mut Vec<u8>| {
            let data = bytes(&set, tensor.name(), &[file]);
            out.extend_from_slice(data);
            Ok::<_, Error>(data.len() as u64)
        })?;
        assert_eq!(len, out.len() as u64);
        Ok(out)
    };
    split(&set, limit)?.iter().map(write).collect()
}

/// The bytes of a tensor in the files of a set.
fn bytes<'f>(set: &GgufSet<'_>, name: &str, files: &[&'f [u8]]) -> &'f [u8] {
    let (file_no, tensor) = set.tensors().find(|(_, tensor)| tensor.name() == name).unwrap();
    let range = tensor.byte_range();
    &files[file_no][range.start as usize..range.end as usize]
}

#[test]
fn a_shard_of_another_model_with_the_same_counts_and_names_is_found() {
    let [one, other] = [1_u32, 2].map(|n_layer| whole(&[("llama.block_count", n_layer.into())]));
    let (ones, others) = (shards(&one, tensors(4)).unwrap(), shards(&other, tensors(4)).unwrap());
    assert_eq!(ones.len(), others.len());
    let mixed = vec![parse(&ones[0]), parse(&others[1]), parse(&ones[2])];
    let refused = GgufSet::new(mixed).unwrap_err();
    assert!(matches!(&refused, Error::ShardMetadata { index: 1, key, .. } if key == "split.set"), "{refused}");
}

/// Checks that shards are a set with the whole file's metadata and tensors, in order.
fn joins_to(file: &[u8], shards: &[Vec<u8>]) {
    let (whole, joined) = (set(file), GgufSet::new(shards.iter().map(|shard| parse(shard)).collect()).unwrap());
    let metadata: Vec<_> = whole.metadata().iter().collect();
    let n = metadata.len();
    assert_eq!(joined.metadata().iter().take(n).collect::<Vec<_>>(), metadata);
    assert_eq!(joined.metadata().len(), n + 4, "the keys of the set, and no more");
    let files: Vec<&[u8]> = shards.iter().map(Vec::as_slice).collect();
    assert_eq!(joined.tensors().count(), whole.tensors().count());
    for ((_, found), (_, expected)) in joined.tensors().zip(whole.tensors()) {
        let what = |tensor: &TensorInfo<'_>| (tensor.name().to_owned(), tensor.dims().to_vec());
        assert_eq!((what(found), found.tensor_type()), (what(expected), expected.tensor_type()));
        assert_eq!(bytes(&joined, found.name(), &files), bytes(&whole, found.name(), &[file]));
    }
}

fn tensors(most: u64) -> ShardLimit {
    ShardLimit::Tensors(NonZero::new(most).unwrap())
}

#[test]
fn the_shards_of_a_file_join_to_the_same_tensors() {
    for metadata in [&[][..], &[("general.architecture", "llama".into())], &[("general.alignment", 64_u32.into())]] {
        let file = whole(metadata);
        for most in 1..=11 {
            let shards = shards(&file, tensors(most)).unwrap();
            assert_eq!(shards.len(), 10_usize.div_ceil(most as usize));
            joins_to(&file, &shards);
            for shard in &shards {
                assert_eq!(parse(shard).alignment(), parse(&file).alignment());
            }
        }
    }
}

#[test]
fn no_shard_is_larger_than_asked_and_none_could_take_the_next_tensor() {
    let file = whole(&[]);
    for most in (610..file.len() as u64 + 200).step_by(7) {
        let shards = shards(&file, ShardLimit::SizeBytes(most)).unwrap();
        joins_to(&file, &shards);
        for pair in shards.windows(2) {
            // A padded tensor, its padded table entry, and what both paddings may add.
            let next = parse(&pair[1]).tensors()[0].size_bytes() + 50 + 2 * 31;
            assert!(pair[0].len() as u64 <= most && pair[0].len() as u64 + next > most, "{most}");
        }
        assert!(shards.last().unwrap().len() as u64 <= most);
    }
}

#[test]
fn metadata_that_leave_no_room_have_a_shard_of_their_own() {
    let file = whole(&[("a.long", Array::from(&[7_u8; 900][..]).into())]);
    let shards = shards(&file, ShardLimit::SizeBytes(1100)).unwrap();
    assert_eq!(parse(&shards[0]).tensors(), []);
    joins_to(&file, &shards);
}

#[test]
fn what_fits_into_no_shard_is_named_with_its_size() {
    let file = whole(&[]);
    let refusal = shards(&file, ShardLimit::SizeBytes(500)).unwrap_err().to_string();
    assert_eq!(refusal, "a file with tensor \"t8\" needs 512 bytes, and a shard may have at most 500");
    let refusal = shards(&file, ShardLimit::SizeBytes(100)).unwrap_err().to_string();
    assert_eq!(refusal, "a file with all metadata needs 160 bytes, and a shard may have at most 100");
}

#[test]
fn a_set_can_be_split_again() {
    let file = whole(&[("general.architecture", "llama".into())]);
    let once = shards(&file, tensors(3)).unwrap();
    let set = GgufSet::new(once.iter().map(|shard| parse(shard)).collect()).unwrap();
    let again = split(&set, tensors(4)).unwrap();
    let names: Vec<Vec<&str>> =
        again.iter().map(|shard| shard.tensors().iter().map(TensorInfo::name).collect()).collect();
    assert_eq!(names, [&["t1", "t2", "t3", "t4"][..], &["t5", "t6", "t7", "t8"], &["t9", "t10"]]);
}

#[test]
fn a_tensor_of_another_size_than_its_outline_says_is_refused() {
    let mut outline = Outline::new();
    outline.tensor("a", &[2], TensorType::F32).unwrap();
    let refusal = outline.write_to(&mut Vec::new(), |_, _| Ok::<_, Error>(7)).unwrap_err();
    assert!(matches!(refusal, Error::WrongDataLen { found_bytes: 7, expected_bytes: 8, .. }), "{refusal}");
}
