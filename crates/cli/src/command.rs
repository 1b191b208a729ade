//! The commands, one file each.

pub mod bench;
pub mod doctor;
pub mod inspect;
pub mod perplexity;
pub mod plan;
pub mod run;
pub mod score;
pub mod serve;
pub mod split;
pub mod taps;
pub mod tokenize;

use muser_text::Tokenizer;

use crate::terminal::warn;

/// Says on standard error what of a text no token can express: the model will not see it.
fn warn_of_lost_bytes(tokenizer: &Tokenizer, text: &str) {
    let mut is_missing = [false; 256];
    tokenizer.missing_bytes().iter().for_each(|&byte| is_missing[usize::from(byte)] = true);
    let lost = text.bytes().filter(|&byte| is_missing[usize::from(byte)]).count();
    if lost > 0 {
        warn(format_args!(
            "{lost} of the text's {} bytes have no token in this vocabulary and are left out",
            text.len()
        ));
    }
}
