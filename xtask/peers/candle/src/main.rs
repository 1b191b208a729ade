//! Times candle: one prompt and one answer.
//!
//! `peer-candle MODEL N_THREAD N_PROMPT N_ANSWER` prints one line of JSON. The prompt is token ids without meaning; the
//! answer takes the likeliest token each time. The first token is that of a prompt of one token before.

use std::error::Error;
use std::fs::{File, read_to_string};
use std::time::Instant;

use candle_core::quantized::gguf_file::Content;
use candle_core::{D, Device, Tensor};
use candle_transformers::models::{quantized_gemma3, quantized_llama};

enum Model {
    Llama(quantized_llama::ModelWeights),
    Gemma3(quantized_gemma3::ModelWeights),
}

impl Model {
    fn load(path: &str) -> Result<Self, Box<dyn Error>> {
        let mut file = File::open(path)?;
        let content = Content::read(&mut file)?;
        let arch = content.metadata.get("general.architecture").ok_or("no architecture")?.to_string()?.clone();
        Ok(match arch.as_str() {
            "llama" => Self::Llama(quantized_llama::ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?),
            "gemma3" => Self::Gemma3(quantized_gemma3::ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?),
            _ => return Err(format!("architecture {arch} is not among those compared").into()),
        })
    }

    /// Appends tokens at a position, 0 for a new sequence, and returns the likeliest next one.
    fn step(&mut self, ids: &[u32], pos: usize) -> candle_core::Result<u32> {
        let ids = Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
        let logits = match self {
            Self::Llama(model) => model.forward(&ids, pos)?,
            Self::Gemma3(model) => model.forward(&ids, pos)?,
        };
        logits.flatten_all()?.argmax(D::Minus1)?.to_scalar()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let args: Vec<String> = std::env::args().skip(1).collect();
    // candle's keys and values grow as they come, whatever the context.
    let [model, n_thread, n_prompt, n_answer, _n_ctx] = args.as_slice() else {
        return Err("usage: peer-candle MODEL N_THREAD N_PROMPT N_ANSWER N_CTX".into());
    };
    let (n_prompt, n_answer): (usize, usize) = (n_prompt.parse()?, n_answer.parse()?);
    if std::env::var("RAYON_NUM_THREADS").as_ref() != Ok(n_thread) {
        return Err("candle takes its number of threads from RAYON_NUM_THREADS, which is another".into());
    }
    let mut model = Model::load(model)?;
    model.step(&[1], 0)?;
    let first_token_seconds = started.elapsed().as_secs_f64();

    let ids: Vec<u32> = (0..n_prompt).map(|index| ((index * 7919 + 1) % 32000) as u32).collect();
    let started = Instant::now();
    let mut next = model.step(&ids, 0)?;
    let prefill = n_prompt as f64 / started.elapsed().as_secs_f64();
    let started = Instant::now();
    for index in 0..n_answer {
        next = model.step(&[next], n_prompt + index)?;
    }
    let decode = n_answer as f64 / started.elapsed().as_secs_f64();
    let peak = read_to_string("/proc/self/status")?;
    let peak = peak.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no peak memory")?;
    let peak_bytes = peak.trim().trim_end_matches(" kB").trim().parse::<u64>()? * 1024;
    println!(
        "{{\"prefill\":{prefill},\"decode\":{decode},\"first_token_seconds\":{first_token_seconds},\"peak_bytes\":{peak_bytes}}}"
    );
    Ok(())
}
