//! Files that are wrong in some way, near enough to valid ones to get past the first checks.

use std::sync::OnceLock;

use libfuzzer_sys::arbitrary::{Arbitrary, Result, Unstructured};
use muser_gguf::{Array, TensorType, Value};

use crate::samples::{self, Sample};

/// A sample file with some bytes changed, or the bytes as they are.
pub fn broken(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    static SAMPLES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let samples = SAMPLES
        .get_or_init(|| samples::all().iter().map(|sample| sample.bytes().expect("a sample is valid")).collect());
    let choice = usize::from(u8::arbitrary(u)?);
    let Some(sample) = samples.get(choice) else { return Ok(u.bytes(u.len())?.to_vec()) };
    let mut file = sample.clone();
    while !u.is_empty() {
        edit(u, &mut file)?;
    }
    Ok(file)
}

/// Changes a few bytes.
fn edit(u: &mut Unstructured<'_>, file: &mut Vec<u8>) -> Result<()> {
    let kind = u8::arbitrary(u)? % 6;
    let at = usize::from(u16::arbitrary(u)?) % file.len().max(1);
    let Some(byte) = file.get_mut(at) else { return Ok(()) };
    match kind {
        0 => *byte ^= 1 << (u8::arbitrary(u)? % 8),
        1 => *byte = byte.wrapping_add(1),
        2 => *byte = byte.wrapping_sub(1),
        3 => {
            let number = *u.choose(&[0, 1, u64::MAX, 1 << 31, 1 << 32, 1 << 62, 1 << 63])?;
            let end = file.len().min(at + 8);
            file[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
        }
        4 => file.truncate(at),
        _ => {
            let bytes = <[u8; 4]>::arbitrary(u)?;
            file.splice(at..at, bytes);
        }
    }
    Ok(())
}

/// A sample with some of its keys and tensors changed, in ways that a writer can express.
pub fn changed<'a>(u: &mut Unstructured<'a>) -> Result<Sample<'a>> {
    let mut sample: Sample<'a> = u.choose(&samples::all())?.clone();
    while !u.is_empty() {
        if bool::arbitrary(u)? {
            change_key(u, &mut sample)?;
        } else {
            change_tensor(u, &mut sample)?;
        }
    }
    Ok(sample)
}

fn change_key<'a>(u: &mut Unstructured<'a>, sample: &mut Sample<'a>) -> Result<()> {
    let at = u.choose_index(sample.metadata.len() + 1)?;
    let Some((key, value)) = sample.metadata.get_mut(at) else {
        let arch = *u.choose(&["llama", "gemma3", "muse-glimmer"])?;
        let name = *u.choose(&KEYS)?;
        let key = if name.starts_with("tokenizer") { name.to_owned() } else { format!("{arch}.{name}") };
        let value = any_value(u)?;
        sample.metadata.push((key.into(), value));
        return Ok(());
    };
    match u8::arbitrary(u)? % 4 {
        0 => *value = any_value(u)?,
        1 => *key = <&str>::arbitrary(u)?.into(),
        2 => *value = near(u, value)?,
        _ => {
            sample.metadata.remove(at);
            if sample.metadata.is_empty() {
                sample.set("general.architecture", "llama");
            }
        }
    }
    Ok(())
}

/// Optional keys that no sample has.
const KEYS: [&str; 14] = [
    "attention.scale",
    "attention.key_length",
    "attention.value_length",
    "attn_logit_softcapping",
    "embedding_scale",
    "expert_count",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_beta_fast",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.padding_token_id",
    "tokenizer.chat_template",
];

fn any_value<'a>(u: &mut Unstructured<'a>) -> Result<Value<'a>> {
    Ok(match u8::arbitrary(u)? % 12 {
        0 => Value::U32(u8::arbitrary(u)?.into()),
        1 => Value::U32(u32::arbitrary(u)?),
        2 => Value::I32(i32::arbitrary(u)?),
        3 => Value::U64(u64::arbitrary(u)?),
        4 => Value::F32(f32::arbitrary(u)?),
        5 => Value::F64(f64::arbitrary(u)?),
        6 => Value::Bool(bool::arbitrary(u)?),
        7 => Value::Str(<&str>::arbitrary(u)?),
        8 => Value::Array(Array::from(&*Vec::<i32>::arbitrary(u)?)),
        9 => Value::Array(Array::from(&*Vec::<f32>::arbitrary(u)?)),
        10 => Value::Array(Array::from(&*Vec::<bool>::arbitrary(u)?)),
        _ => Value::Array(Array::from(Vec::<&str>::arbitrary(u)?)),
    })
}

/// A number one off, or an array one entry shorter.
fn near<'a>(u: &mut Unstructured<'a>, value: &Value<'a>) -> Result<Value<'a>> {
    let by = if bool::arbitrary(u)? { 1 } else { -1 };
    Ok(match value {
        Value::U32(number) => Value::U32(number.wrapping_add_signed(by)),
        Value::F32(number) => Value::F32(*number + by as f32),
        Value::Array(array) => match array.strs() {
            Some(strs) => Value::Array(Array::from(strs[..strs.len().saturating_sub(1)].to_vec())),
            None => Value::Array(Array::from(
                &array.ints().into_iter().flatten().skip(1).map(|int| int as i32).collect::<Vec<_>>()[..],
            )),
        },
        other => other.clone(),
    })
}

fn change_tensor(u: &mut Unstructured<'_>, sample: &mut Sample<'_>) -> Result<()> {
    let Some(last) = sample.tensors.len().checked_sub(1) else { return Ok(()) };
    let at = u.int_in_range(0..=last)?;
    let (name, dims, ty) = &mut sample.tensors[at];
    match u8::arbitrary(u)? % 6 {
        0 => *ty = *u.choose(&TensorType::all().collect::<Vec<_>>())?,
        1 => {
            let dim = u.choose_index(dims.len())?;
            dims[dim] = u16::arbitrary(u)?.into();
        }
        2 if dims.len() < 4 => dims.push(u8::arbitrary(u)?.into()),
        2 | 3 => dims.reverse(),
        4 => *name = <&str>::arbitrary(u)?.to_owned().into(),
        _ => {
            sample.tensors.remove(at);
        }
    }
    Ok(())
}
