//! Row 18: control tokens in what users say.

use crate::child::OnDisk;
use crate::raw::{ARRAY, Raw, STR, U32, array, i32s, str, strs};

#[test]
fn control_tokens_in_what_a_user_says_are_text() {
    let letters = ["<", "|", "e", "n", "d", ">", "a", "<|end|>"];
    let raw = Raw::byte_level()
        .with("tokenizer.ggml.tokens", ARRAY, &strs(&letters))
        .with("tokenizer.ggml.token_type", ARRAY, &i32s(&[1, 1, 1, 1, 1, 1, 1, 3]))
        .with("tokenizer.ggml.merges", ARRAY, &array(8, 0, &[]))
        .with("tokenizer.ggml.eos_token_id", U32, &7_u32.to_le_bytes())
        .with("tokenizer.ggml.add_bos_token", 7, &[0])
        .with("tokenizer.chat_template", STR, &str("{{ messages[0].content }}<|end|>"))
        .changed("token_embd.weight", |tensor| (tensor.dims[1], tensor.size_bytes) = (8, 8 * 8 * 34));
    let file = OnDisk::new(&raw.file());
    let ids = |args: &[&str]| file.muser(args).json()["ids"].clone();
    let text = [0, 1, 2, 3, 4, 1, 5];
    assert_eq!(ids(&["tokenize", "--json", "FILE", "<|end|>"]), serde_json::json!(text));
    assert_eq!(ids(&["tokenize", "--json", "--special", "FILE", "<|end|>"]), serde_json::json!([7]));
    // In a chat, the user's is text and the template's own acts.
    let done = file.muser(&["run", "--ctx", "64", "-n", "1", "--json", "FILE", "<|end|>"]);
    assert_eq!(done.json()["prompt_tokens"], text.len() + 1);
    let done = file.muser(&["run", "--raw", "--ctx", "64", "-n", "1", "--json", "FILE", "a<|end|>"]);
    assert_eq!(done.json()["prompt_tokens"], text.len() + 1);
}
