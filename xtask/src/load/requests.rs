//! The requests of a load: different lengths, the same every time.

use serde_json::{Value, json};

/// What is asked.
#[derive(Clone, Debug)]
pub struct Request {
    prompt: String,
    max_tokens: usize,
}

/// Prose to cut prompts from.
const TEXT: &str = include_str!("../../../tests/data/golden/text/gpl3-head.txt");

impl Request {
    /// The body that a completions endpoint takes.
    pub fn body(&self) -> Value {
        json!({
            "prompt": self.prompt, "max_tokens": self.max_tokens, "temperature": 0, "stream": true,
            "stream_options": { "include_usage": true },
        })
    }
}

/// `n` requests with prompts of about 10 to 500 tokens, short ones more often than long ones, for answers of up to 4 to 48
/// tokens.
pub fn requests(n: usize) -> Vec<Request> {
    let mut random = SplitMix64(1);
    (0..n)
        .map(|index| {
            let (least, most) = match random.below(10) {
                0..6 => (20, 200),
                6..9 => (200, 700),
                _ => (700, 1800),
            };
            let len = least + random.below(most - least);
            let start = random.below(TEXT.len() - len);
            // The number comes first, so no two prompts begin alike: what a server reuses, it owes to no accident.
            let prompt = format!("{index}. {}", &TEXT[start..start + len]);
            Request { prompt, max_tokens: 4 + random.below(45) }
        })
        .collect()
}

/// The generator of Steele, Lea and Flood, 2014.
struct SplitMix64(u64);

impl SplitMix64 {
    /// A number from 0 to `end`, which is not among them.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_mixed_and_the_same_every_time() {
        let all = requests(2000);
        let len = |request: &Request| request.prompt.len();
        assert!(all.iter().any(|request| len(request) < 40) && all.iter().any(|request| len(request) > 1700));
        assert!(all.iter().zip(requests(2000)).all(|(a, b)| a.body() == b.body()));
    }
}
