//! Templates and messages that want to hang, crash or fill the machine.

use muser_text::template::{
    ChatTemplate, MAX_NESTING, MAX_SOURCE_BYTES, Message, OUTPUT_BYTES, RenderOptions, TemplateError, ToolCall,
};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

/// On a stack that any recursion over the input would overflow.
fn on_a_small_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, work).unwrap().join().unwrap()
    })
}

fn render(source: &str) -> Result<String, TemplateError> {
    on_a_small_stack(|| {
        let template = ChatTemplate::new(source, "<s>", "</s>")?;
        template.render(&[Message::new("user", "hi")], &RenderOptions::default())
    })
}

#[test]
fn a_template_that_raises_is_quoted() {
    for source in [
        "{{ raise_exception('no ' ~ messages[0].content) }}",
        "{% macro f() %}{{ raise_exception('no hi') }}{% endmacro %}{% for m in messages %}{{ f() }}{% endfor %}",
    ] {
        let Err(TemplateError::Raised { message }) = render(source) else { panic!("{source}") };
        assert_eq!(message, "no hi");
    }
}

#[test]
fn loops_without_end_are_stopped() {
    for source in [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(9999) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x | length }}",
        "{% for i in range(9999) %}{% for j in range(9999) %}{% set x = 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' | upper %}{% endfor %}{% endfor %}",
    ] {
        assert!(matches!(render(source), Err(TemplateError::OutOfSteps { .. })), "{source}");
    }
    for source in [
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% for t in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% include 'chat_template' %}",
        "{% extends 'chat_template' %}",
        "{{ range(1000000000) | list }}",
        "{{ 'a' * 1000000000 }}",
        "{{ 'a\nb' | indent(100000) }}",
    ] {
        assert!(
            matches!(render(source), Err(TemplateError::Render { .. } | TemplateError::OutOfSteps { .. })),
            "{source}: {:?}",
            render(source).map(|text| text.len())
        );
    }
}

#[test]
fn output_without_end_is_stopped() {
    let source = format!("{{% for i in range(99999) %}}{}{{% endfor %}}", "a".repeat(20_000));
    assert!(
        matches!(render(&source), Err(TemplateError::OutputTooLong { max }) if max == OUTPUT_BYTES + 16 * "userhi".len())
    );
}

#[test]
fn a_text_that_doubles_itself_is_stopped_at_a_few_megabytes() {
    let doubled = |times: u32| {
        let each = "{% set ns.x = ns.x ~ ns.x %}";
        render(&format!(
            "{{% set ns = namespace(x='a') %}}{{% for i in range({times}) %}}{each}{{% endfor %}}{{{{ ns.x | length }}}}"
        ))
    };
    assert_eq!(doubled(20).unwrap(), (1 << 20).to_string());
    assert!(matches!(doubled(25), Err(TemplateError::OutOfSteps { .. })));
}

#[test]
fn nesting_is_refused_without_using_the_stack() {
    for depth in [MAX_NESTING + 1, 10_000] {
        for (open, close) in [
            ("{% if true %}", "{% endif %}"),
            ("{% for i in [1] %}", "{% endfor %}"),
            ("{{ (", ""),
            ("{% macro m() %}", "{% endmacro %}"),
            ("{% generation %}", "{% endgeneration %}"),
            ("{% set x %}", "{% endset %}"),
        ] {
            let source = format!("{}x{}", open.repeat(depth), close.repeat(depth));
            let source = if open == "{{ (" { format!("{{{{ {}", "(".repeat(depth)) } else { source };
            let too_long = source.len() > MAX_SOURCE_BYTES;
            match render(&source) {
                Err(TemplateError::TooDeep { .. }) if !too_long => {}
                Err(TemplateError::SourceTooLong { .. }) if too_long => {}
                other => panic!("{depth} {open}: {other:?}"),
            }
        }
        for bracket in ["[", "{'a':", "f(", "a["] {
            let source = format!("{{{{ {} }}}}", bracket.repeat(depth));
            assert!(matches!(render(&source), Err(TemplateError::TooDeep { .. })), "{depth} {bracket}");
        }
    }
}

#[test]
fn long_chains_do_not_use_the_stack() {
    for link in [" + x", " and x", " ~ x", " ** x", " if x else x", " is defined", " | string", ".a", "[0]", " == x"] {
        for count in [500, 4000, 100_000 / link.len()] {
            let source = format!("{{% set x = 1 %}}{{{{ x{} }}}}", link.repeat(count));
            // Whether it is right or refused depends on the chain; it ends.
            let _ = render(&source);
        }
    }
    for prefix in ["not ", "-"] {
        for count in [500, 8000, 100_000] {
            let _ = render(&format!("{{{{ {}1 }}}}", prefix.repeat(count)));
        }
    }
    for count in [1000, 10_000] {
        let _ = render(&format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(count)));
    }
    let long = render(&format!("{{{{ 1{} }}}}", "+1".repeat(5000)));
    assert!(matches!(long, Err(TemplateError::TagTooLong { line: 1, .. })));
    assert_eq!(render(&format!("{{{{ 1{} }}}}", "+1".repeat(4000))).unwrap(), "4001");
}

#[test]
fn values_that_nest_or_hold_themselves_are_refused() {
    for use_of_it in ["{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x == ns.x }}", "{{ {ns.x: 1} }}", ""] {
        for wrap in ["[ns.x]", "{'a': ns.x}", "(ns.x, 1)", "[[[[[[ns.x]]]]]]"] {
            let source = format!(
                "{{% set ns = namespace(x=[]) %}}{{% for i in range(9999) %}}{{% set ns.x = {wrap} %}}{{% endfor %}}{use_of_it}"
            );
            assert!(matches!(render(&source), Err(TemplateError::ValueTooDeep { .. })), "{source}");
        }
    }
    for source in [
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
        "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}",
        "{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{{ a }}",
        "{% set a = namespace() %}{% set a.x, y = a, 1 %}{{ a }}",
        "{% set a = namespace() %}{% for b in [a] %}{% set b.x = b %}{% endfor %}{{ a }}",
        "{%- set a = namespace() -%}{%+ set\n a . x\n=\na -%}{{ a }}",
    ] {
        assert!(matches!(render(source), Err(TemplateError::Render { .. })), "{source}: {:?}", render(source));
    }
    let nested = format!("{{{{ {}1{} }}}}", "[".repeat(MAX_NESTING - 10), "]".repeat(MAX_NESTING - 10));
    assert_eq!(render(&nested).unwrap().len(), 2 * (MAX_NESTING - 10) + 1);
    let by_macro = "{% macro f(v) %}{{ f([[[[[[[[[[v]]]]]]]]]]) }}{% endmacro %}{{ f(1) }}";
    assert!(matches!(render(by_macro), Err(TemplateError::Render { .. })));
}

#[test]
fn what_does_not_exist_is_named() {
    for (source, name) in [
        ("{{ 'a' | nope }}", "nope"),
        ("{{ 'a' is nope }}", "nope"),
        ("{{ nope() }}", "nope"),
        ("{{ 'a'.nope() }}", "nope"),
    ] {
        match render(&format!("\n{source}")) {
            Err(TemplateError::Unknown { message, line: Some(2) }) => assert!(message.contains(name), "{message}"),
            other => panic!("{source}: {other:?}"),
        }
    }
    assert!(matches!(render("\n\n{% nope %}"), Err(TemplateError::Syntax { line: Some(3), .. })));
    assert!(matches!(render("{{ x.y }}"), Err(TemplateError::Render { line: Some(1), .. })));
    assert!(matches!(render("{{ strftime_now('%Y') }}"), Err(TemplateError::Unknown { .. })));
    assert_eq!(render("[{{ x }}]").unwrap(), "[]");
    assert!(matches!(render(&"a".repeat(MAX_SOURCE_BYTES + 1)), Err(TemplateError::SourceTooLong { .. })));
}

#[test]
fn deep_arguments_are_refused() {
    let mut deep = json!(1);
    for _ in 0..2000 {
        deep = json!([deep]);
    }
    let template = ChatTemplate::new("{{ messages[0].tool_calls[0].function.arguments | tojson }}", "", "").unwrap();
    let message = |arguments: &Json| Message {
        role: "assistant".into(),
        tool_calls: vec![ToolCall { id: None, name: "f".into(), arguments: arguments.clone() }],
        ..Message::default()
    };
    let options = RenderOptions::default();
    assert!(matches!(template.prompt(&[message(&deep)], &options), Err(TemplateError::ValueTooDeep { .. })));
    assert_eq!(template.render(&[message(&json!({"a": [{"b": 1}]}))], &options).unwrap(), r#"{"a": [{"b": 1}]}"#);
}

#[test]
fn a_long_conversation_is_within_the_limits() {
    let source = "{% set ns = namespace(out='') %}{% for m in messages %}{{ '<|' ~ m.role ~ '|>' ~ m.content | trim ~ eos_token }}\
                  {% endfor %}";
    let template = ChatTemplate::new(source, "<s>", "</s>").unwrap();
    let messages: Vec<_> = (0..1000).map(|i| Message::new("user", format!(" {i} {}\n", "word ".repeat(800)))).collect();
    let prompt = template.prompt(&messages, &RenderOptions::default()).unwrap();
    assert_eq!(prompt.segments().filter(|segment| segment.trusted).count(), 1001);
    let one = [Message::new("user", "x".repeat(4 << 20))];
    assert_eq!(template.prompt(&one, &RenderOptions::default()).unwrap().segments().count(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_source_renders_or_is_refused(source in r"(\{\{|\}\}|\{%|%\}|-|'|[a-z |.()\[\]=~é\n]|if |for x in |endfor|endif|set ){0,60}") {
        let _ = render(&source);
    }

    #[test]
    fn any_message_is_found_where_the_template_put_it(content in r"(<\|im_end\|>|</think>|\PC|[ \n]|[\u{f0000}-\u{f0005}]){0,20}") {
        let source = "<|im_start|>{{ messages[0].content }}<|im_end|>{% if '</think>' in messages[0].content %}</think>{% endif %}";
        let template = ChatTemplate::new(source, "", "").unwrap();
        let prompt = template.prompt(&[Message::new("user", &*content)], &RenderOptions::default()).unwrap();
        let foreign: Vec<_> = prompt.foreign().iter().map(|range| &prompt.text()[range.clone()]).collect();
        let expected = if content.is_empty() { vec![] } else { vec![&*content] };
        prop_assert_eq!(foreign, expected);
        prop_assert!(prompt.foreign().iter().all(|range| range.start == 12));
    }
}
