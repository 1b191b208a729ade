//! Rows 17 and 19: chat templates that misbehave, and the token that begins a text.

use crate::child::{Done, OnDisk, unusable};
use crate::raw::{BOOL, Raw, STR, str};

fn with_template(source: &str) -> Raw {
    Raw::byte_level().with("tokenizer.chat_template", STR, &str(source))
}

/// One turn of chat.
fn chat(raw: &Raw, user: &str) -> Done {
    OnDisk::new(&raw.file()).muser(&["run", "--ctx", "64", "-n", "1", "--json", "FILE", user])
}

const ALL: &str = "{% for m in messages %}{{ m.content }}{% endfor %}";

#[test]
fn a_template_that_raises_is_quoted() {
    let raw = with_template("{{ raise_exception('roles must alternate') }}");
    // The conversation, and not the file, is what it refuses.
    chat(&raw, "a").refused(2, &["the chat template refuses these messages: roles must alternate"]);
}

#[test]
fn a_template_without_end_is_stopped() {
    for source in [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(9999) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    ] {
        chat(&with_template(source), "a").refused(4, &["the chat template was stopped after", "steps"]);
    }
    let endless = format!("{{% for a in range(9999) %}}{}{{% endfor %}}", "a".repeat(20_000));
    chat(&with_template(&endless), "a").refused(4, &["the chat template was stopped at", "bytes of output"]);
    chat(&with_template("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(0) }}"), "a").refused(4, &["chat template"]);
}

#[test]
fn a_template_that_nests_10_000_deep_is_refused_when_the_file_is_opened() {
    for source in [
        format!("{}{}", "{% if 1 %}".repeat(10_000), "{% endif %}".repeat(10_000)),
        format!("{{{{ {}1{} }}}}", "(".repeat(10_000), ")".repeat(10_000)),
        format!("{{{{ {}1{} }}}}", "[".repeat(10_000), "]".repeat(10_000)),
    ] {
        unusable(&with_template(&source), &["line 1 of the chat template nests more than 64"]);
    }
    unusable(&with_template(&"a".repeat(300 << 10)), &["is 307200 bytes long; the limit is 262144"]);
}

#[test]
fn a_template_that_asks_for_what_does_not_exist_is_refused_by_name() {
    for source in ["{{ 'a' | frobnicate }}", "{{ frobnicate() }}", "{{ 'a'.frobnicate() }}", "{{ 'a' is frobnicate }}"]
    {
        chat(&with_template(source), "a").refused(4, &["frobnicate"]);
    }
    for source in ["{% for %}", "{{ ", "{% if 1 %}", "{% frobnicate %}"] {
        unusable(&with_template(source), &["the chat template is malformed"]);
    }
    // Nothing stands in for a template that leaves out what was said.
    chat(&with_template("fixed"), "a").refused(4, &["leaves out all that was said"]);
}

#[test]
fn a_template_that_repeats_what_was_said_a_million_times_is_within_bounds() {
    // Just within the limit of output, and of bytes that are marked as the user's.
    let source = "{% for a in range(20) %}{{ messages[0].content * 100000 }}{% endfor %}";
    chat(&with_template(source), "a").refused(2, &["the context holds 64"]);
}

#[test]
fn a_text_begins_once_whoever_adds_the_token() {
    let prompt_tokens = |raw: &Raw| chat(raw, "ab").json()["prompt_tokens"].clone();
    let asks = |asks: u8, template: &str| with_template(template).with("tokenizer.ggml.add_bos_token", BOOL, &[asks]);
    let begins = format!("{{{{ bos_token }}}}{ALL}");
    assert_eq!(prompt_tokens(&asks(0, ALL)), 1);
    assert_eq!(prompt_tokens(&asks(1, ALL)), 2);
    assert_eq!(prompt_tokens(&asks(0, &begins)), 2);
    assert_eq!(prompt_tokens(&asks(1, &begins)), 2);
}
