//! Ids of calls.

use super::ToolFormat;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Makes the ids of one answer's calls.
#[derive(Clone, Debug)]
pub struct CallIds {
    state: u64,
    prefix: &'static str,
    len: usize,
}

impl CallIds {
    /// Ids that differ for answers with different seeds. Mistral's templates insist on nine letters and digits; elsewhere an
    /// id looks as it does in `OpenAI`'s interface.
    pub fn new(format: ToolFormat, seed: u64) -> Self {
        match format {
            ToolFormat::Mistral | ToolFormat::MistralNamed => Self { state: seed, prefix: "", len: 9 },
            _ => Self { state: seed, prefix: "call_", len: 24 },
        }
    }

    pub fn next(&mut self) -> String {
        let mut id = self.prefix.to_owned();
        id.extend((0..self.len).map(|_| char::from(ALPHABET[(self.random() % ALPHABET.len() as u64) as usize])));
        id
    }

    /// `SplitMix64`.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }
}
