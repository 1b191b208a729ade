//! Answers under a grammar, with the vocabularies of real models.

use muser_engine::service::Constraint as _;
use muser_tests::model;
use muser_text::{Affixes, Special, TokenType};
use serde_json::{Value, json};

use super::{Grammar, GrammarError, Grammars, JsonSchema, ResponseFormat};
use crate::fields::{Fields, Unknown};
use crate::reply::ApiResult;
use crate::testing::{Random, allowed, decode, random_answer, tokenizer, tokenizers};

fn grammar(schema: &Value) -> Grammar {
    Grammar::of_json(&JsonSchema::new("schema", schema.clone()).unwrap())
}

/// Schemas whose answers end by chance soon enough, of every kind of part.
fn schemas() -> Vec<Value> {
    vec![
        json!({"type": "boolean"}),
        json!({"type": "object", "properties": {}, "additionalProperties": false}),
        json!({"type": "object", "properties": {
            "city": {"type": "string", "maxLength": 12},
            "unit": {"enum": ["C", "F", "ÖÄ \"quoted\" 🦀"]},
            "days": {"type": "integer", "minimum": -3, "maximum": 120},
        }, "required": ["city", "unit"], "additionalProperties": false}),
        json!({"type": "array", "items": {"type": ["number", "null"], "minimum": -1e6, "maximum": 1e6}, "minItems": 1, "maxItems": 4}),
        json!({"$defs": {"node": {"type": "object", "properties": {
            "value": {"type": "integer"},
            "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
        }, "required": ["value", "next"], "additionalProperties": false}}, "$ref": "#/$defs/node"}),
        json!({"type": "object", "properties": {
            "when": {"type": "string", "format": "date"},
            "code": {"type": "string", "pattern": "^[A-Z]{2}-\\d{3}$"},
            "tags": {"type": "array", "items": {"const": "x"}, "maxItems": 2},
        }, "required": ["when", "code", "tags"], "additionalProperties": false}),
        json!({"allOf": [
            {"type": "object", "properties": {"a": {"type": "string", "minLength": 1, "maxLength": 3}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b"]},
        ], "additionalProperties": true, "maxProperties": 2}),
        json!({"oneOf": [{"const": 1}, {"enum": [2.5, "a"]}, {"$ref": "#/$defs/a~1b"}], "$defs": {"a/b": {"type": "null"}}}),
        json!({"type": "array", "items": {"type": "number", "multipleOf": 0.1, "minimum": 0.25, "maximum": 0.35}, "maxItems": 2}),
        json!({"type": "number", "multipleOf": 0.05, "exclusiveMinimum": -0.2, "maximum": 1.32}),
    ]
}

#[test]
fn every_random_answer_under_a_schema_parses_and_validates() {
    for tokenizer in tokenizers() {
        let grammars = Grammars::new(tokenizer.clone());
        for (which, schema) in schemas().into_iter().enumerate() {
            let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
            let compiled = grammars.compile(&grammar(&schema)).unwrap();
            let mut n_ended = 0;
            for seed in 1..=12 {
                let mut random = Random(seed * 0x9E37_79B9 + which as u64);
                let ends = tokenizer.end_of_generation_ids();
                let wish = |allowed: &[u32], _: &mut Random| allowed.iter().copied().find(|id| ends.contains(id));
                let answer = random_answer(&mut compiled.fork(), &tokenizer, &mut random, 200, wish);
                let Some(answer) = answer else { continue };
                n_ended += 1;
                let value: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{answer:?}: {error}"));
                assert!(validator.is_valid(&value), "{answer} is not of {schema}");
            }
            assert!(n_ended > 0, "no answer under {schema} ended");
        }
    }
}

#[test]
fn a_text_of_the_schema_is_let_through_in_any_cut_into_tokens() {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let text = "{\"text\": \"naïve 日本語 🦀👩‍👩‍👧 \\u0001\\n\"}";
    for tokenizer in tokenizers() {
        let compiled = Grammars::new(tokenizer.clone()).compile(&grammar(&schema));
        let compiled = compiled.unwrap();
        let whole = tokenizer.encode(text, Special::Plain, Affixes::None);
        let chars = text
            .char_indices()
            .flat_map(|(at, char)| tokenizer.encode(&text[at..at + char.len_utf8()], Special::Plain, Affixes::None));
        let emoji = tokenizer.encode("👩", Special::Plain, Affixes::None);
        assert!(
            emoji.len() > 1 || tokenizer.n_vocab() > 200_000,
            "the emoji is split over tokens in the small vocabulary"
        );
        for ids in [whole, chars.collect()] {
            let mut constraint = compiled.fork();
            for &id in &ids {
                assert!(allowed(&mut constraint, tokenizer.n_vocab()).contains(&id));
                constraint.accept(id).unwrap();
            }
            assert_eq!(decode(&tokenizer, &ids), text);
            assert!(constraint.is_finished());
        }
    }
}

#[test]
fn control_tokens_never_follow_and_the_end_follows_only_where_the_grammar_may_end() {
    for tokenizer in tokenizers() {
        let grammars = Grammars::new(tokenizer.clone());
        let integer = grammar(&json!({"type": "integer"}));
        let mut constraint = grammars.compile(&integer).unwrap();
        let n_vocab = tokenizer.n_vocab();
        let ends = tokenizer.end_of_generation_ids();
        let is_control = |id: u32| tokenizer.token_type(id) == Some(TokenType::Control);
        assert!(allowed(&mut constraint, n_vocab).iter().all(|&id| !is_control(id)), "an empty number can't end");

        let [digit] = tokenizer.encode("7", Special::Plain, Affixes::None)[..] else { panic!("7 is one token") };
        constraint.accept(digit).unwrap();
        let after = allowed(&mut constraint, n_vocab);
        assert!(ends.iter().all(|id| after.contains(id)), "a whole number may end with any token that ends");
        assert!(after.iter().all(|id| !is_control(*id) || ends.contains(id)));

        // Inside a string too, where any text may stand.
        let string = grammar(&json!({"type": "string"}));
        let mut constraint = grammars.compile(&string).unwrap();
        for id in tokenizer.encode("\"a", Special::Plain, Affixes::None) {
            constraint.accept(id).unwrap();
        }
        let inside = allowed(&mut constraint, n_vocab);
        assert!(inside.len() > n_vocab / 2, "{} of {n_vocab}", inside.len());
        assert!(inside.iter().all(|&id| !is_control(id)));
    }
}

#[test]
fn a_token_that_the_grammar_excludes_is_an_error_and_no_panic() {
    let tokenizer = tokenizer(model::SMOLLM2);
    let boolean = grammar(&json!({"type": "boolean"}));
    let mut constraint = Grammars::new(tokenizer.clone()).compile(&boolean).unwrap();
    let [id] = tokenizer.encode("x", Special::Plain, Affixes::None)[..] else { panic!("x is one token") };
    assert!(constraint.accept(id).is_err());
}

#[test]
fn spaces_between_parts_come_to_an_end() {
    for tokenizer in tokenizers() {
        let n_vocab = tokenizer.n_vocab();
        let is_space = |id: u32| tokenizer.token_bytes(id).unwrap().iter().all(u8::is_ascii_whitespace);
        let compiled = Grammars::new(tokenizer.clone()).compile(&Grammar::of_json(&JsonSchema::any_object())).unwrap();
        for seed in 1..=20 {
            let mut random = Random(seed);
            let mut constraint = compiled.fork();
            constraint.accept(tokenizer.encode("{", Special::Plain, Affixes::None)[0]).unwrap();
            let mut run = 0;
            loop {
                let spaces: Vec<u32> = allowed(&mut constraint, n_vocab)
                    .into_iter()
                    .filter(|&id| !tokenizer.is_end_of_generation(id) && is_space(id))
                    .collect();
                let Some(&id) = spaces.get(random.below(spaces.len().max(1))) else { break };
                constraint.accept(id).unwrap();
                run += tokenizer.token_bytes(id).unwrap().len();
                assert!(run <= 26, "a run of {run} spaces");
            }
        }
    }
}

#[test]
fn a_schema_that_is_not_supported_is_refused_with_what_it_asks_for() {
    let grammars = Grammars::new(tokenizer(model::SMOLLM2));
    for (schema, expected) in [
        (json!({"if": {"type": "object"}}), "keywords that are not supported: [\"if\"]"),
        (json!({"uniqueItems": true, "type": "array"}), "uniqueItems"),
        (json!({"type": "strin"}), "strin"),
        (json!({"type": "string", "pattern": "(?=a)b"}), "look-around"),
        (json!({"type": "string", "format": "postcode"}), "postcode"),
        (json!({"$ref": "#/$defs/x"}), "#/$defs/x"),
        (json!({"$ref": "http://example.com/schema"}), "http://example.com/schema"),
        (json!({"oneOf": [{"type": "string"}, {"type": "string", "minLength": 2}]}), "oneOf"),
        (json!({"properties": "é".repeat(60)}), "properties"),
        (json!({"type": "object", "properties": {"a": false}, "required": ["a"]}), "'a' is unsatisfiable"),
        (json!({"$ref": "#"}), "nothing satisfies"),
        (json!({"type": "array", "items": {"$ref": "#"}, "minItems": 1}), "without an end"),
        (json!({"oneOf": [{"const": 1}, {"const": 1.0}]}), "oneOf"),
        (json!({"type": "number", "multipleOf": 0.1, "minimum": 0.31, "maximum": 0.39}), "multiple"),
        (json!({"type": "string", "pattern": "^a$", "minLength": 3}), "nothing satisfies the pattern"),
        (json!({"type": "number", "multipleOf": 0}), "above 0"),
        (json!({"type": "number", "multipleOf": -1}), "above 0"),
        (json!({"type": "number", "multipleOf": 0.07}), "digits"),
        (json!({"type": "number", "minimum": "a"}), "expected a number for 'minimum'"),
        (
            json!({"type": "string", "pattern": "\\bfoo"}),
            "look-around, such as \\b, or ^ and $ other than at the ends, is not supported in a pattern: /",
        ),
        (json!({"type": "string", "pattern": "foo\\B"}), "is not supported in a pattern: /"),
        (json!({"type": "string", "pattern": "a$b"}), "is not supported in a pattern: /a$b/"),
        (json!({"type": "string", "pattern": "(?m)^a$"}), "is not supported in a pattern: /"),
        (
            json!({"type": "integer", "multipleOf": 7, "minimum": 8, "maximum": 13}),
            "no number within its minimum and maximum is a multiple of its multipleOf, 7",
        ),
        (
            json!({"type": "number", "minimum": 14, "maximum": 7}),
            "nothing satisfies the schema: minimum (14) is greater than maximum (7)",
        ),
        (json!({"type": "number", "multipleOf": 1e-300}), "expected a whole number up to 4294967295"),
        (
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a", "type": "object"}}}),
            "$ref leads back to itself, with other keywords beside it",
        ),
        (
            json!({"$ref": "#/anyOf/00", "anyOf": [{"type": "null"}]}),
            "$ref is \"#/anyOf/00\", which leads into an array by \"00\"; expected the index",
        ),
        (json!({"items": {"$ref": "#/anyOf/+0"}, "anyOf": [{"type": "null"}]}), "by \"+0\""),
        (json!({"items": {"$ref": "#/anyOf/1"}, "anyOf": [{"type": "null"}]}), "one of its 1 elements"),
        (json!({"items": {"$ref": "#/anyOf/x"}, "anyOf": [{"type": "null"}]}), "by \"x\""),
        (json!({"enum": []}), "nothing satisfies"),
    ] {
        let refused = grammars.compile(&grammar(&schema));
        let Err(GrammarError::Refused(message)) = refused else { panic!("{schema} is not refused: {refused:?}") };
        assert!(message.contains(expected), "{schema}: {message:?} does not say {expected:?}");
        assert!(message.len() < 400 && !message.contains('\n'), "{message:?}");
        for word in
            ["panic", "f64", "fuel", "limits.", "Regex", "regex", "lark", "coerce", "yet", "Unicode", "siblings", "[14"]
        {
            assert!(!message.contains(word), "the compiler's own words: {message:?}");
        }
    }
}

#[test]
fn every_multiple_between_its_bounds_can_be_said() {
    let tokenizer = tokenizer(model::SMOLLM2);
    let grammars = Grammars::new(tokenizer.clone());
    let can_be_said = |schema: &Value, text: &str| {
        let mut constraint = grammars.compile(&grammar(schema)).unwrap();
        let ids = tokenizer.encode(text, Special::Plain, Affixes::None);
        let is_followed = ids
            .into_iter()
            .all(|id| allowed(&mut constraint, tokenizer.n_vocab()).contains(&id) && constraint.accept(id).is_ok());
        let end = tokenizer.end_of_generation_ids()[0];
        is_followed && (constraint.is_finished() || allowed(&mut constraint, tokenizer.n_vocab()).contains(&end))
    };
    let schema = |step: f64, least: f64, most: f64| json!({"type": "number", "multipleOf": step, "minimum": least, "maximum": most});
    for (schema, said, unsaid) in [
        (schema(0.1, 0.25, 0.35), vec!["0.3"], vec!["0.2", "0.4", "0.25", "0.35"]),
        (schema(0.5, -0.75, 0.75), vec!["-0.5", "0", "0.5"], vec!["-0.75", "1", "0.75"]),
        (schema(0.05, 0.25, 0.35), vec!["0.25", "0.35"], vec!["0.2", "0.4", "0.33"]),
        (schema(3.0, 4.5, 9.5), vec!["6", "9"], vec!["3", "12", "5"]),
    ] {
        for text in said {
            assert!(can_be_said(&schema, text), "{text} is of {schema}");
        }
        for text in unsaid {
            assert!(!can_be_said(&schema, text), "{text} is not of {schema}");
        }
    }
}

#[test]
fn a_schema_that_would_take_too_long_is_refused_before_it_does() {
    let grammars = Grammars::new(tokenizer(model::SMOLLM2));
    let strings = |n: usize, at: &str| -> Vec<Value> {
        (0..n).map(|i| json!({"type": "string", "pattern": format!("{at}{i}")})).collect()
    };
    let object = |n: usize, schema: Value| -> Value { (0..n).map(|i| (format!("p{i}"), schema.clone())).collect() };
    let link = json!({"$ref": "#/$defs/b", "anyOf": strings(8, "a")});
    for (schema, expected) in [
        (json!({"patternProperties": object(1000, json!(true))}), "1000 patterns"),
        (json!({"type": "object", "properties": object(401, json!({"type": "null"}))}), "401 properties"),
        (json!({"allOf": [{"anyOf": strings(32, "a")}, {"anyOf": strings(32, "b")}]}), "1024 or more ways"),
        (json!({"anyOf": strings(32, "a"), "oneOf": strings(32, "b")}), "1024 or more ways"),
        (json!({"$defs": {"b": {"anyOf": strings(8, "b"), "enum": vec!["x"; 16]}}, "items": link}), "ways"),
        (
            json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"enum": [1, 2]}]}}, "allOf": [
            {"$ref": "#/$defs/a"}, {"enum": vec![1; 600]}]}),
            "1204 or more ways",
        ),
    ] {
        let refused = grammars.compile(&grammar(&schema));
        let Err(GrammarError::Refused(message)) = refused else { panic!("{schema} is not refused: {refused:?}") };
        assert!(message.contains(expected), "{message:?} does not say {expected:?}");
    }
    let long = json!({"type": "string", "description": "x".repeat(64 << 10)});
    assert!(JsonSchema::new("schema", long).unwrap_err().message.contains("at most 65536"));
    let many = json!({"anyOf": vec![json!({}); 2000]});
    let Err(GrammarError::Refused(message)) = grammars.compile(&grammar(&many)) else { panic!("it is not refused") };
    assert!(message.contains("2001 objects"), "{message}");
}

#[test]
fn references_as_long_as_a_schema_allows_do_not_exhaust_the_stack() {
    let grammars = Grammars::new(tokenizer(model::SMOLLM2));
    for (open, close, n_object) in
        [("", "", 0), ("{\"items\":", "}", 1), ("{\"allOf\":[", "]}", 1), ("{\"properties\":{\"a\":", "}}", 2)]
    {
        let depth = 50;
        let n = 1_900 / (n_object * depth + 1);
        let link = |i: usize| {
            let next = i + 1;
            format!("\"{i}\":{}{{\"$ref\":\"#/$defs/{next}\"}}{},", open.repeat(depth), close.repeat(depth))
        };
        let links: String = (0..n).map(link).collect();
        let schema = format!("{{\"$defs\":{{{links}\"{n}\":{{\"type\":\"null\"}}}},\"$ref\":\"#/$defs/0\"}}");
        let schema: Value = serde_json::from_str(&schema).unwrap();
        grammars.compile(&grammar(&schema)).unwrap();
    }
}

#[test]
fn forks_share_nothing() {
    let tokenizer = tokenizer(model::SMOLLM2);
    let boolean = grammar(&json!({"type": "boolean"}));
    let mut first = Grammars::new(tokenizer.clone()).compile(&boolean).unwrap();
    let mut second = first.fork();
    first.accept(tokenizer.encode("true", Special::Plain, Affixes::None)[0]).unwrap();
    assert!(first.is_finished() && !second.is_finished());
    second.accept(tokenizer.encode("false", Special::Plain, Affixes::None)[0]).unwrap();
}

#[test]
fn the_response_format_is_read_or_refused_by_field() {
    let take = |value: Value| -> ApiResult<ResponseFormat> {
        let mut unknown = Unknown::default();
        ResponseFormat::take(&mut Fields::of("", json!({"response_format": value}))?, &mut unknown)
    };
    assert_eq!(take(Value::Null).unwrap(), ResponseFormat::Text);
    assert_eq!(take(json!({"type": "text"})).unwrap(), ResponseFormat::Text);
    assert_eq!(take(json!({"type": "json_object"})).unwrap(), ResponseFormat::JsonObject);
    for strict in [json!(true), json!(false), Value::Null] {
        let schema = json!({"name": "x", "schema": {"type": "object"}, "strict": strict});
        let format = take(json!({"type": "json_schema", "json_schema": schema})).unwrap();
        assert!(matches!(format, ResponseFormat::JsonSchema(_)));
    }
    let schema = |value: Value| json!({"type": "json_schema", "json_schema": value});
    for (format, param) in [
        (json!("json"), "response_format"),
        (json!({"type": "grammar"}), "response_format.type"),
        (json!({}), "response_format.type"),
        (json!({"type": "json_schema"}), "response_format.json_schema"),
        (json!({"type": "json_object", "schema": {}}), "response_format.schema"),
        (schema(json!({"schema": {}})), "response_format.json_schema.name"),
        (schema(json!({"name": "a b", "schema": {}})), "response_format.json_schema.name"),
        (schema(json!({"name": "x"})), "response_format.json_schema.schema"),
        (schema(json!({"name": "x", "schema": true})), "response_format.json_schema.schema"),
        (schema(json!({"name": "x", "schema": {"x-guidance": {}}})), "response_format.json_schema.schema.x-guidance"),
        (schema(json!({"name": "x", "schema": {}, "strict": 1})), "response_format.json_schema.strict"),
    ] {
        assert_eq!(take(format).unwrap_err().param.as_deref(), Some(param));
    }
}

#[test]
fn a_pattern_that_passes_the_limits_in_mid_answer_says_so() {
    let tokenizer = tokenizer(model::SMOLLM2);
    let schema = json!({"type": "string", "pattern": "^[a-z]*[aeiou][a-z]{900}$"});
    let mut constraint = Grammars::new(tokenizer.clone()).compile(&grammar(&schema)).unwrap();
    let mut random = Random(1);
    constraint.accept(tokenizer.encode("\"", Special::Plain, Affixes::None)[0]).unwrap();
    let failed = (0..2000).find_map(|_| {
        let mut logits = vec![0.0; tokenizer.n_vocab()];
        if let Err(error) = constraint.mask(&mut logits) {
            return Some(error);
        }
        let is_text = |id: &u32| tokenizer.token_bytes(*id).unwrap().iter().all(u8::is_ascii_lowercase);
        let allowed = (0..tokenizer.n_vocab() as u32).filter(|&id| logits[id as usize] == 0.0);
        let allowed: Vec<u32> = allowed.filter(is_text).collect();
        constraint.accept(allowed[random.below(allowed.len())]).err()
    });
    let error = failed.expect("the pattern has more states than are allowed");
    assert_eq!(error.0.downcast_ref(), Some(&GrammarError::TooComplex), "{error}");
}
