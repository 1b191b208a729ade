//! Blocks that are not finite are found, and no others, against what the blocks decode to.

mod common;

use common::Random;
use muser_quant::{QuantError, WeightType, decode_row, first_not_finite};

/// Where the scales of a block stand, and the bytes of one.
fn scales(ty: WeightType) -> (&'static [usize], usize) {
    match ty {
        WeightType::F32 => (&[0], 4),
        WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4_K | WeightType::Q5_K => (&[0, 2], 2),
        WeightType::Q6_K => (&[208], 2),
        WeightType::MXFP4 => (&[0], 1),
        WeightType::NVFP4 => (&[0, 1, 2, 3], 1),
        _ => (&[0], 2),
    }
}

/// Every value of a scale of so many bytes; of the f32s, those with the highest 16 bits and the lowest set or not.
fn patterns(size_bytes: usize) -> Vec<Vec<u8>> {
    match size_bytes {
        1 => (0..=u8::MAX).map(|byte| vec![byte]).collect(),
        2 => (0..=u16::MAX).map(|half| half.to_le_bytes().to_vec()).collect(),
        _ => (0..=u16::MAX)
            .flat_map(|high| [0, 1].map(|low| (u32::from(high) << 16 | low).to_le_bytes().to_vec()))
            .collect(),
    }
}

/// The first block in which a value is not finite, from all values.
fn first_by_values(ty: WeightType, bytes: &[u8]) -> Option<usize> {
    let mut values = vec![0.0; bytes.len() / ty.block_bytes() * ty.block_len()];
    decode_row(ty, bytes, &mut values).expect("whole blocks");
    // Not a number to E4M3, which decodes to zeros.
    let has_bad_e4m3 = |block: &[u8]| ty == WeightType::NVFP4 && block[..4].iter().any(|d| d & 0x7f == 0x7f);
    let mut blocks = values.chunks(ty.block_len()).zip(bytes.chunks(ty.block_bytes()));
    blocks.position(|(values, bytes)| values.iter().any(|value| !value.is_finite()) || has_bad_e4m3(bytes))
}

fn block_of(ty: WeightType, bytes: &[u8]) -> Option<usize> {
    let found = first_not_finite(ty, bytes).expect("whole blocks");
    assert!(found.is_none_or(|found| !found.value.is_finite()), "{ty}: {found:?}");
    found.map(|found| found.block)
}

#[test]
fn every_bit_pattern_of_every_scale_is_judged_as_its_values_are() {
    let mut random = Random(5);
    for ty in WeightType::ALL {
        let (places, size_bytes) = scales(ty);
        let mut good = common::encode(ty, &common::shapes()[0].1[..ty.block_len()]);
        let mut n_bad = 0;
        for &place in places {
            let kept = good.clone();
            for pattern in patterns(size_bytes) {
                good[place..place + size_bytes].copy_from_slice(&pattern);
                let expected = if pattern == [0xff] && ty == WeightType::MXFP4 {
                    Some(0) // Whatever the codes are: that exponent is not a number.
                } else {
                    first_by_values(ty, &good)
                };
                assert_eq!(block_of(ty, &good), expected, "{ty}: {pattern:02x?} at {place}");
                n_bad += usize::from(expected.is_some());
            }
            good = kept;
        }
        assert!(n_bad > 0, "{ty}: no scale was bad");
        // What is no scale may have any bits.
        for _ in 0..1000 {
            let mut block = good.clone();
            for (at, byte) in block.iter_mut().enumerate() {
                if !places.iter().any(|&place| (place..place + size_bytes).contains(&at)) {
                    *byte = random.bits() as u8;
                }
            }
            assert_eq!(block_of(ty, &block), None, "{ty}: {block:02x?}");
        }
    }
}

#[test]
fn the_first_of_many_blocks_is_found_wherever_it_stands() {
    for ty in WeightType::ALL {
        let (places, size_bytes) = scales(ty);
        let block = common::encode(ty, &common::shapes()[1].1[..ty.block_len()]);
        for n_block in [1, 7, 255, 256, 257, 1000] {
            let good = block.repeat(n_block);
            assert_eq!(block_of(ty, &good), None, "{ty}");
            for bad in [0, n_block / 2, n_block - 1] {
                let mut bytes = good.clone();
                for bad in [bad, n_block - 1] {
                    let place = bad * ty.block_bytes() + places[places.len() - 1];
                    bytes[place..place + size_bytes].fill(0xff);
                }
                assert_eq!(block_of(ty, &bytes), Some(bad), "{ty}, {n_block} blocks");
            }
        }
        assert_eq!(block_of(ty, &[]), None);
    }
}

#[test]
fn rows_of_random_bits_are_judged_as_their_values_are() {
    let mut random = Random(9);
    for ty in WeightType::ALL {
        let mut counts = [0; 2];
        for _ in 0..300 {
            let bytes: Vec<u8> = (0..5 * ty.block_bytes()).map(|_| random.bits() as u8).collect();
            let is_certain = ty != WeightType::MXFP4 || bytes.chunks(ty.block_bytes()).all(|block| block[0] != 0xff);
            if is_certain {
                let expected = first_by_values(ty, &bytes);
                assert_eq!(block_of(ty, &bytes), expected, "{ty}");
                counts[usize::from(expected.is_some())] += 1;
            }
        }
        assert!(counts[0] > 0 && counts[1] > 0, "{ty}: {counts:?}");
    }
}

#[test]
fn the_value_is_the_one_in_the_scale() {
    let mut block = common::encode(WeightType::Q4_K, &common::shapes()[0].1[..256]);
    block[2..4].copy_from_slice(&0xfc00_u16.to_le_bytes());
    let found = first_not_finite(WeightType::Q4_K, &block).expect("whole blocks").expect("minus infinity");
    assert_eq!((found.block, found.value, found.to_string().as_str()), (0, f32::NEG_INFINITY, "-inf in block 0"));
}

#[test]
fn part_of_a_block_is_refused() {
    let torn = first_not_finite(WeightType::Q8_0, &[0; 35]).expect_err("a block and a byte");
    assert_eq!(torn, QuantError::TornBlock { ty: WeightType::Q8_0, found: 35 });
}
