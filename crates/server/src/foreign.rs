//! Fields of other servers and interfaces that would change an answer, and that nothing here goes by.
//!
//! A client that sends one of them counts on it, so it is refused by name. A value that asks for what is done anyway is taken.
//! `docs/server.md` lists them all.

use serde_json::Value;

use crate::fields::Fields;
use crate::reply::{ApiError, ApiResult};

/// Fields for one purpose.
pub struct Group {
    /// What to use here, or that there is nothing.
    pub instead: &'static str,
    /// Each with the JSON of the value that asks for what is done anyway; empty if there is none.
    pub fields: &'static [(&'static str, &'static str)],
}

/// How an answer is made.
pub const ANSWERS: &[Group] = &[
    Group {
        instead: "`max_tokens`",
        fields: &[
            ("n_predict", ""),
            ("num_predict", ""),
            ("max_new_tokens", ""),
            ("max_length", ""),
            ("max_gen_len", ""),
            ("max_output_tokens", ""),
            ("max_tokens_to_sample", ""),
        ],
    },
    Group { instead: "`n`", fields: &[("n_cmpl", "1"), ("num_return_sequences", "1"), ("num_completions", "1")] },
    Group {
        instead: "`temperature`",
        fields: &[
            ("dynatemp_range", "0"),
            ("dynamic_temperature", "false"),
            ("smoothing_factor", "0"),
            ("do_sample", "true"),
        ],
    },
    Group {
        instead: "`top_p` or `min_p`",
        fields: &[
            ("typical_p", "1"),
            ("typical", "1"),
            ("tfs_z", "1"),
            ("tfs", "1"),
            ("top_a", "0"),
            ("top_n_sigma", "-1"),
            ("nsigma", "0"),
            ("epsilon_cutoff", "0"),
            ("eta_cutoff", "0"),
            ("mirostat", "0"),
            ("mirostat_mode", "0"),
            ("xtc_probability", "0"),
            ("adaptive_target", "-1"),
        ],
    },
    Group {
        instead: "`repetition_penalty`",
        fields: &[
            ("repeat_penalty", "1"),
            ("rep_pen", "1"),
            ("dry_multiplier", "0"),
            ("no_repeat_ngram_size", "0"),
            ("encoder_repetition_penalty", "1"),
            ("penalty_alpha", "0"),
            ("penalty_prompt", ""),
        ],
    },
    Group {
        instead: "`penalty_last_n`",
        fields: &[("repeat_last_n", ""), ("repetition_penalty_range", ""), ("rep_pen_range", "")],
    },
    Group {
        instead: "`logit_bias`",
        fields: &[
            ("bad_words", "[]"),
            ("bad_words_ids", "[]"),
            ("suppress_tokens", "[]"),
            ("begin_suppress_tokens", "[]"),
            ("allowed_token_ids", "[]"),
            ("force_words_ids", "[]"),
            ("sequence_bias", "{}"),
            ("custom_token_bans", "\"\""),
            ("banned_tokens", "[]"),
            ("banned_strings", "[]"),
            ("logits_processors", "[]"),
            ("custom_logit_processor", ""),
        ],
    },
    Group { instead: "`ignore_eos`", fields: &[("ban_eos_token", "false")] },
    Group { instead: "`seed`", fields: &[("random_seed", ""), ("sampler_seed", ""), ("sampling_seed", "")] },
    Group {
        instead: "`stop`",
        fields: &[
            ("stop_sequences", "[]"),
            ("stop_sequence", "[]"),
            ("stop_strings", "[]"),
            ("stop_words", "[]"),
            ("stopping_strings", "[]"),
            ("custom_stopping_strings", "[]"),
            ("stop_token_ids", "[]"),
            ("stop_regex", "[]"),
            ("eos_token_id", ""),
            ("include_stop_str_in_output", "false"),
            ("no_stop_trim", "false"),
        ],
    },
    Group {
        instead: "`response_format` of a chat",
        fields: &[
            ("grammar", "\"\""),
            ("json_schema", ""),
            ("json_mode", "false"),
            ("format", "\"\""),
            ("regex", ""),
            ("ebnf", ""),
            ("structural_tag", ""),
            ("structured_outputs", ""),
            ("guided_json", ""),
            ("guided_regex", ""),
            ("guided_choice", ""),
            ("guided_grammar", ""),
        ],
    },
    Group {
        instead: "`logprobs`",
        fields: &[
            ("n_probs", "0"),
            ("return_logprob", "false"),
            ("top_logprobs_num", "0"),
            ("top_n_tokens", "0"),
            ("post_sampling_probs", "false"),
            ("return_tokens_as_token_ids", "false"),
        ],
    },
    Group {
        instead: "the fields in it, each by itself",
        fields: &[("options", "{}"), ("parameters", "{}"), ("sampling_params", "{}"), ("extra_body", "{}")],
    },
    Group {
        instead: "the field left out: a prompt is never cut, and a context never shifted; --ctx says how long it is",
        fields: &[
            ("truncate", "false"),
            ("truncation", "\"disabled\""),
            ("truncation_length", ""),
            ("truncate_prompt_tokens", ""),
            ("context_shift", "false"),
            ("n_keep", "0"),
            ("num_keep", "0"),
            ("n_discard", "0"),
            ("num_ctx", ""),
            ("n_ctx", ""),
        ],
    },
    Group {
        instead: "the field left out",
        fields: &[
            ("min_tokens", "0"),
            ("min_length", "0"),
            ("min_new_tokens", "0"),
            ("n_indent", "0"),
            ("t_max_predict_ms", "0"),
            ("max_time", ""),
            ("samplers", ""),
            ("sampler_order", ""),
            ("sampler_priority", ""),
            ("temperature_last", "false"),
            ("use_beam_search", "false"),
            ("num_beams", "1"),
            ("length_penalty", "1"),
            ("early_stopping", "false"),
            ("guidance_scale", "1"),
            ("cfg_scale", "1"),
            ("negative_prompt", "\"\""),
            ("watermark", "false"),
            ("return_full_text", "false"),
            ("prompt_logprobs", ""),
            ("skip_special_tokens", "true"),
            ("add_special_tokens", ""),
            ("lora", "[]"),
            ("lora_path", ""),
            ("adapter_id", ""),
            ("image_data", "[]"),
            ("images", "[]"),
            ("prompt_embeds", ""),
            ("previous_response_id", ""),
        ],
    },
];

/// How a prompt is made of messages.
pub const TEMPLATE: &[Group] = &[
    Group {
        instead: "a message of the role `system`",
        fields: &[("system", ""), ("system_prompt", ""), ("instructions", "")],
    },
    Group {
        instead: "`chat_template_kwargs`, as far as the model's template has such a variable",
        fields: &[
            ("enable_thinking", ""),
            ("thinking", ""),
            ("think", ""),
            ("thinking_budget", ""),
            ("thinking_budget_tokens", ""),
            ("reasoning", ""),
            ("reasoning_effort", ""),
            ("reasoning_budget", "-1"),
            ("reasoning_format", "\"none\""),
            ("include_reasoning", ""),
            ("separate_reasoning", ""),
            ("verbosity", ""),
            ("documents", "[]"),
        ],
    },
    Group {
        instead: "the field left out: the template is the model's",
        fields: &[
            ("chat_template", ""),
            ("template", ""),
            ("instruction_template", ""),
            ("continue_final_message", "false"),
            ("assistant_prefill", "\"\""),
            ("input_prefix", "\"\""),
            ("input_suffix", "\"\""),
            ("raw", "false"),
            ("audio", ""),
            ("modalities", "[\"text\"]"),
            ("web_search_options", ""),
        ],
    },
    Group { instead: "`tools`", fields: &[("functions", "[]")] },
    Group { instead: "`tool_choice`", fields: &[("function_call", "\"none\"")] },
];

/// What belongs to chats, in completions.
pub const OF_CHATS: &[Group] = &[
    Group { instead: "`max_tokens`", fields: &[("max_completion_tokens", "")] },
    Group { instead: "`logprobs`, with the number of tokens", fields: &[("top_logprobs", "0")] },
    Group {
        instead: "a chat for it, at /v1/chat/completions",
        fields: &[
            ("messages", ""),
            ("tools", "[]"),
            ("tool_choice", "\"none\""),
            ("parallel_tool_calls", ""),
            ("chat_template_kwargs", "{}"),
            ("add_generation_prompt", ""),
            ("response_format", "{\"type\": \"text\"}"),
        ],
    },
    Group { instead: "the field left out", fields: &[("echo", "false"), ("suffix", "\"\"")] },
];

/// What belongs to completions, in chats.
pub const OF_COMPLETIONS: &[Group] = &[Group {
    instead: "a completion for it, at /v1/completions",
    fields: &[("prompt", "\"\""), ("parse_special", "false"), ("echo", "false"), ("suffix", "\"\"")],
}];

/// What is said in a message.
pub const MESSAGES: &[Group] = &[
    Group { instead: "`reasoning_content`", fields: &[("reasoning", ""), ("thinking", "")] },
    Group { instead: "`tool_calls`", fields: &[("function_call", "")] },
    Group { instead: "text", fields: &[("images", "[]"), ("audio", ""), ("input_audio", "")] },
    Group {
        instead: "the field left out: an answer is a message of its own",
        fields: &[("prefix", "false"), ("partial", "false")],
    },
];

/// What form an answer has, beside `type` of `response_format`.
pub const FORMATS: &[Group] = &[Group {
    instead: "the type `json_schema`, and the schema in `json_schema.schema`",
    fields: &[("schema", ""), ("value", ""), ("json_schema", "")],
}];

/// How texts become vectors.
pub const EMBEDDINGS: &[Group] = &[
    Group {
        instead: "the field left out: a text is never cut",
        fields: &[("truncate", "false"), ("truncation", "false"), ("truncate_prompt_tokens", ""), ("num_ctx", "")],
    },
    Group { instead: "`encoding_format`", fields: &[("output_dtype", "\"float\""), ("embedding_type", "\"float\"")] },
    Group {
        instead: "the field left out",
        fields: &[
            ("dimensions", ""),
            ("output_dimension", ""),
            ("normalize", "true"),
            ("embd_normalize", "2"),
            ("add_special_tokens", "true"),
            ("input_type", ""),
            ("instruction", ""),
            ("prompt_name", ""),
            ("task", ""),
            ("late_chunking", "false"),
            ("options", "{}"),
            ("image_data", "[]"),
        ],
    },
];

/// How a text becomes tokens, and tokens a text.
pub const TOKENS: &[Group] = &[
    Group { instead: "`add_special`", fields: &[("add_special_tokens", "")] },
    Group { instead: "`special`", fields: &[("skip_special_tokens", "true")] },
];

/// Takes the fields of the groups, which have to ask for nothing but what is done anyway.
///
/// # Errors
/// One asks for more.
pub fn refuse(fields: &mut Fields, groups: &[Group]) -> ApiResult<()> {
    for Group { instead, fields: rows } in groups {
        for (name, neutral) in *rows {
            if let Some(value) = fields.take(name)
                && !is_neutral(&value, neutral)
            {
                let expected =
                    if neutral.is_empty() { (*instead).to_owned() } else { format!("{neutral}, or {instead}") };
                return Err(ApiError::unsupported(fields.path(name), &value, &expected));
            }
        }
    }
    Ok(())
}

fn is_neutral(value: &Value, neutral: &str) -> bool {
    let Ok(neutral) = serde_json::from_str::<Value>(neutral) else { return false };
    match (value.as_f64(), neutral.as_f64()) {
        (Some(number), Some(neutral)) => number.total_cmp(&neutral).is_eq(),
        _ => *value == neutral,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    const ALL: [&[Group]; 8] = [ANSWERS, TEMPLATE, OF_CHATS, OF_COMPLETIONS, MESSAGES, FORMATS, EMBEDDINGS, TOKENS];

    #[test]
    fn a_field_is_refused_by_its_name_and_taken_where_it_asks_for_what_is_done() {
        for group in ALL.into_iter().flatten() {
            for (name, neutral) in group.fields {
                let mut asks = Fields::of("", json!({*name: ["more"]})).expect("an object");
                let error = refuse(&mut asks, std::slice::from_ref(group)).expect_err(name);
                assert_eq!(error.param.as_deref(), Some(*name));
                let all = [*name, "an array", neutral, group.instead];
                assert!(all.iter().all(|part| error.message.contains(part)), "{}", error.message);
                if !neutral.is_empty() {
                    let neutral: Value = serde_json::from_str(neutral).unwrap_or_else(|_| panic!("{name}: {neutral}"));
                    let mut takes = Fields::of("", json!({*name: neutral})).expect("an object");
                    refuse(&mut takes, std::slice::from_ref(group)).expect(name);
                }
            }
        }
    }

    #[test]
    fn numbers_are_the_same_however_they_are_spelled() {
        for (value, neutral, expected) in [
            (json!(1.0), "1", true),
            (json!(1), "1", true),
            (json!(0.5), "1", false),
            (json!("1"), "1", false),
            (json!(true), "1", false),
            (json!(null), "", false),
        ] {
            assert_eq!(is_neutral(&value, neutral), expected, "{value} {neutral}");
        }
    }

    #[test]
    fn the_documentation_lists_them_all_and_no_others() {
        let documentation = include_str!("../../../docs/server.md");
        let (_, section) = documentation.split_once("## Fields of other servers\n").expect("it has a section");
        let (section, _) = section.split_once("\n## ").expect("others follow");
        let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.rsplit_once(" | ")).map(|(_, row)| row);
        let listed: BTreeSet<&str> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
        let names: BTreeSet<&str> =
            ALL.into_iter().flatten().flat_map(|group| group.fields).map(|(name, _)| *name).collect();
        assert_eq!(listed, names);
    }
}
