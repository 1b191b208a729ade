//! Any template over any messages: refused, or rendered, with every byte of the messages told apart.
#![no_main]

use libfuzzer_sys::fuzz_target;
use muser_text::template::{ChatTemplate, DateTime, Message, RenderOptions, ToolCall};

const NOW: DateTime = DateTime { year: 2024, month: 2, day: 29, hour: 23, minute: 59, second: 60 };

fuzz_target!(|input: (&str, Vec<(&str, Option<&str>, Option<&str>)>, u8)| {
    let (source, messages, flags) = input;
    let template = match ChatTemplate::new(source, "<s>", "</s>") {
        Ok(template) => template,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let messages: Vec<_> = messages
        .into_iter()
        .take(4)
        .map(|(role, content, called)| {
            let role = match role.len() % 4 {
                0 => "user",
                1 => "assistant",
                2 => "system",
                _ => role,
            };
            let call = |name: &str| ToolCall {
                id: None,
                name: name.to_owned(),
                arguments: serde_json::json!({ name: [1, name] }),
            };
            Message {
                role: role.to_owned(),
                content: content.map(str::to_owned),
                reasoning_content: called.map(str::to_owned),
                tool_calls: called.into_iter().map(call).collect(),
                ..Message::default()
            }
        })
        .collect();
    let options = RenderOptions {
        add_generation_prompt: flags & 1 != 0,
        tools: if flags & 2 != 0 { vec![serde_json::json!({"name": "f", "parameters": {}})] } else { Vec::new() },
        now: (flags & 4 != 0).then_some(NOW),
        ..RenderOptions::default()
    };
    let Ok(text) = template.render(&messages, &options) else { return };
    let Ok(prompt) = template.prompt(&messages, &options) else { return };
    assert_eq!(prompt.text(), text);
    let mut end = 0;
    for range in prompt.foreign() {
        assert!(range.start < range.end && range.end <= text.len() && (range.start > end || end == 0));
        assert!(text.is_char_boundary(range.start) && text.is_char_boundary(range.end));
        end = range.end;
    }
    assert_eq!(prompt.segments().map(|segment| segment.text).collect::<String>(), text);
});
