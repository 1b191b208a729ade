//! Golden rows and repeatable values for the tests of this crate.
#![allow(dead_code, reason = "each test binary uses its part")]

use muser_quant::{WeightType, encode_row};
use serde_json::Value;

const GOLDEN: &str = include_str!("../../../../tests/data/golden/dequant.json");

/// What the golden file holds of one type.
pub struct Golden {
    pub ty: WeightType,
    pub id: u32,
    pub block_len: usize,
    pub block_bytes: usize,
    pub rows: Vec<(Vec<u8>, Vec<f32>)>,
}

/// The golden rows of every quantised type.
pub fn golden() -> Vec<Golden> {
    let file: Value = serde_json::from_str(GOLDEN).expect("golden JSON");
    let number = |v: &Value| v.as_u64().expect("a number") as usize;
    let row = |row: &Value| {
        let values = row["f32"].as_array().expect("values").iter();
        (
            base64(row["bytes_b64"].as_str().expect("base64")),
            values.map(|v| v.as_f64().expect("a number") as f32).collect(),
        )
    };
    let quantised = WeightType::ALL.into_iter().filter(|ty| ty.block_len() > 1);
    quantised
        .map(|ty| {
            let entry = &file[ty.name()];
            Golden {
                ty,
                id: number(&entry["type_id"]) as u32,
                block_len: number(&entry["block_elems"]),
                block_bytes: number(&entry["block_bytes"]),
                rows: entry["rows"].as_array().expect("rows").iter().map(row).collect(),
            }
        })
        .collect()
}

/// Standard base64; the golden file pads to whole quartets.
fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<u32> = text
        .trim_end_matches('=')
        .bytes()
        .map(|c| ALPHABET.iter().position(|&a| a == c).expect("a base64 digit") as u32)
        .collect();
    let quartet = |digits: &[u32]| {
        let bits = digits.iter().enumerate().map(|(i, d)| d << (18 - 6 * i)).sum::<u32>();
        bits.to_be_bytes()[1..digits.len()].to_vec()
    };
    digits.chunks(4).flat_map(quartet).collect()
}

/// Repeatable random numbers (`SplitMix64`).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// An integer in `low ..= high`.
    pub fn between(&mut self, low: i32, high: i32) -> i32 {
        low + (self.bits() % (high - low + 1) as u64) as i32
    }

    /// A value from -1 to 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// A bell-shaped value around 0 with a deviation of 1.
    pub fn bell(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() / 2.0
    }
}

/// Named rows of 512 values in the shapes that weights take, and in some that they don't.
pub fn shapes() -> Vec<(&'static str, Vec<f32>)> {
    let mut random = Random(1);
    let mut row = |f: fn(&mut Random, usize) -> f32| (0..512).map(|i| f(&mut random, i)).collect::<Vec<_>>();
    vec![
        ("bell", row(|r, _| r.bell())),
        ("even", row(|r, _| 3.0 * r.unit())),
        ("above zero", row(|r, _| 5.0 + r.unit())),
        ("below zero", row(|r, _| -5.0 + r.unit())),
        ("outliers", row(|r, i| if i % 97 == 0 { 40.0 * r.unit() } else { r.bell() })),
        ("uneven blocks", row(|r, i| r.bell() * (1 + i / 32) as f32)),
        ("constant", row(|_, _| 0.75)),
    ]
}

/// `x` encoded.
pub fn encode(ty: WeightType, x: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; ty.row_bytes(x.len()).expect("whole blocks")];
    encode_row(ty, x, &mut bytes).expect("finite values");
    bytes
}
