//! GPT-2's alphabet: every byte as a printable character, so that byte strings can be written as text.
//!
//! The bytes `21..=7E`, `A1..=AC` and `AE..=FF` stand for themselves; the other 68, in order, are U+0100 onwards.

/// Characters of the alphabet lie below this one.
const END: usize = 0x100 + 68;

/// The byte that a character stands for, or -1.
const BYTES: [i16; END] = {
    let mut table = [-1; END];
    let mut moved = 0x100;
    let mut byte = 0;
    while byte < 0x100 {
        if matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) {
            table[byte as usize] = byte;
        } else {
            table[moved] = byte;
            moved += 1;
        }
        byte += 1;
    }
    table
};

/// Appends the bytes that `text` spells to `out`. If a character is not of the alphabet, or `text` is not UTF-8,
/// appends nothing and returns false.
pub(crate) fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let mut rest = text;
    loop {
        let character = match *rest {
            [] => return true,
            [first, ..] if first.is_ascii() => {
                rest = &rest[1..];
                usize::from(first)
            }
            // All others of the alphabet take two bytes.
            [first @ 0xC2..=0xC5, second @ 0x80..=0xBF, ..] => {
                rest = &rest[2..];
                usize::from(first & 0x1F) << 6 | usize::from(second & 0x3F)
            }
            _ => END,
        };
        match BYTES.get(character) {
            Some(&byte) if byte >= 0 => out.push(byte as u8),
            _ => {
                out.truncate(start);
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_has_one_character_for_each_byte() {
        let mut seen = [false; 256];
        for &byte in BYTES.iter().filter(|&&byte| byte >= 0) {
            assert!(!seen[byte as usize], "byte {byte} has two characters");
            seen[byte as usize] = true;
        }
        assert!(seen.iter().all(|&seen| seen));
    }

    #[test]
    fn known_characters_decode_and_others_are_refused_whole() {
        let mut out = b"kept".to_vec();
        assert!(decode("ĠaĊé".as_bytes(), &mut out));
        assert_eq!(out, b"kept a\n\xE9");
        assert!(!decode("a日".as_bytes(), &mut out));
        assert!(!decode(b"a\xC4", &mut out));
        assert!(!decode(b"a b", &mut out));
        assert_eq!(out, b"kept a\n\xE9");
    }
}
