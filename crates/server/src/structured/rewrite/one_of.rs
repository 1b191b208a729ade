//! `oneOf` whose alternatives exclude each other, which then is `anyOf`.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};

use super::resolve;

/// Most alternatives that are compared in pairs.
const MAX_COMPARED: usize = 64;
/// How many references, and properties in each other, are followed.
const MAX_DEPTH: usize = 8;

/// Writes `oneOf` as `anyOf` where no value is of two alternatives.
pub fn relax(root: &Value, fields: &mut Map<String, Value>) {
    let Some(Value::Array(alternatives)) = fields.get("oneOf") else { return };
    if !fields.contains_key("anyOf") && are_exclusive(root, alternatives) {
        let alternatives = fields.shift_remove("oneOf").unwrap_or_default();
        fields.insert("anyOf".to_owned(), alternatives);
    }
}

fn are_exclusive(root: &Value, alternatives: &[Value]) -> bool {
    let listed: Option<Vec<_>> = alternatives.iter().map(|schema| values(target(root, schema))).collect();
    if let Some(listed) = listed {
        let n_value: usize = listed.iter().map(BTreeSet::len).sum();
        return listed.into_iter().flatten().collect::<BTreeSet<_>>().len() == n_value;
    }
    let mut pairs = (0..alternatives.len()).flat_map(|second| (0..second).map(move |first| (first, second)));
    alternatives.len() <= MAX_COMPARED
        && pairs.all(|(first, second)| exclude(root, &alternatives[first], &alternatives[second], MAX_DEPTH))
}

/// Whether no value can be of both schemas, as far as constants, types and properties that have to be there tell.
fn exclude(root: &Value, first: &Value, second: &Value, depth: usize) -> bool {
    let (first, second) = (target(root, first), target(root, second));
    match (values(first), values(second)) {
        (Some(first), Some(second)) => first.is_disjoint(&second),
        (Some(_), None) => have_no_type_in_common(&types_of_values(first), second),
        (None, Some(_)) => have_no_type_in_common(&types_of_values(second), first),
        (None, None) => {
            let Some(types) = types(first) else { return false };
            let is_object = |schema: &Value| schema.get("type").is_some_and(|ty| ty == "object");
            have_no_type_in_common(&types, second)
                || (depth > 0
                    && is_object(first)
                    && is_object(second)
                    && exclude_by_property(root, first, second, depth))
        }
    }
}

/// Whether a property that one of two objects has to have can't be of both.
fn exclude_by_property(root: &Value, first: &Value, second: &Value, depth: usize) -> bool {
    let required = |schema: &Value| schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let names = required(first).into_iter().chain(required(second));
    let property = |schema: &'_ Value, name: &str| schema.get("properties")?.get(name).cloned();
    names.filter_map(|name| name.as_str().map(str::to_owned)).any(|name| {
        let pair = property(first, &name).zip(property(second, &name));
        pair.is_some_and(|(first, second)| exclude(root, &first, &second, depth - 1))
    })
}

/// The schema itself, or the one that it refers to and that it has to follow.
fn target<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MAX_DEPTH {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let Some(next) = reference.and_then(|reference| resolve(root, reference)) else { break };
        schema = next;
    }
    schema
}

/// The values that a schema may have at most, spelled so that equal ones are spelled alike.
fn values(schema: &Value) -> Option<BTreeSet<String>> {
    constants(schema).map(|values| values.into_iter().map(|value| canonical(value).to_string()).collect())
}

fn constants(schema: &Value) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(values))) => Some(values.iter().collect()),
        _ => None,
    }
}

fn types_of_values(schema: &Value) -> Vec<String> {
    let name = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    constants(schema).into_iter().flatten().map(|value| name(value).to_owned()).collect()
}

/// The types that a schema names.
fn types(schema: &Value) -> Option<Vec<String>> {
    match schema.get("type")? {
        Value::String(ty) => Some(vec![ty.clone()]),
        Value::Array(types) => types.iter().map(|ty| ty.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

fn have_no_type_in_common(first: &[String], second: &Value) -> bool {
    let wider = |ty: &str| if ty == "integer" { "number".to_owned() } else { ty.to_owned() };
    types(second).is_some_and(|second| first.iter().all(|ty| second.iter().all(|other| wider(ty) != wider(other))))
}

/// The value with numbers, and the order of properties, as they are spelled once and for all.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().and_then(Number::from_f64).map_or(Value::Null, |number| {
            // There are two zeros, which are equal.
            if number.as_f64() == Some(0.0) { Value::from(0.0) } else { Value::Number(number) }
        }),
        Value::Array(items) => items.iter().map(canonical).collect(),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().map(|(name, value)| (name.clone(), canonical(value))).collect();
            fields.sort_by(|(first, _), (second, _)| first.cmp(second));
            fields.into_iter().collect()
        }
        value => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is_relaxed(alternatives: &Value) -> bool {
        let root = json!({"$defs": {"one": {"const": 1}, "text": {"type": "string"}}, "oneOf": alternatives});
        let mut fields = root.as_object().unwrap().clone();
        relax(&root, &mut fields);
        fields.contains_key("anyOf")
    }

    #[test]
    fn alternatives_that_exclude_each_other_are_any_of_them() {
        let kind = |value: Value, more: Value| json!({"type": "object", "properties": {"kind": {"const": value}, "x": more}, "required": ["kind"]});
        for alternatives in [
            json!([{"const": 1}, {"const": 2}]),
            json!([{"enum": [1, 2, "a"]}, {"const": 1.5, "title": "more"}, {"const": {"a": 1}}]),
            json!([{"const": 1}, {"type": "string"}]),
            json!([{"$ref": "#/$defs/one"}, {"const": 2}, {"$ref": "#/$defs/text"}]),
            json!([{"type": ["null", "boolean"]}, {"type": "integer", "minimum": 3}]),
            json!([kind(json!(1), json!(true)), kind(json!(2), json!({"type": "null"}))]),
        ] {
            assert!(is_relaxed(&alternatives), "{alternatives}");
        }
    }

    #[test]
    fn alternatives_that_have_a_value_in_common_stay_as_they_are() {
        for alternatives in [
            json!([{"const": 1}, {"const": 1.0}]),
            json!([{"const": [1, {"a": 2, "b": 0.0}]}, {"const": [1.0, {"b": -0.0, "a": 2}]}]),
            json!([{"enum": [1, 2]}, {"enum": [2, 3]}]),
            json!([{"const": 1}, {"type": "number"}]),
            json!([{"const": 1}, {}]),
            json!([{"type": "integer"}, {"type": "number"}]),
            json!([{"$ref": "#/$defs/one"}, {"const": 1}]),
            json!([{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"properties": {"a": {"const": 2}}}]),
            json!([{"type": "object", "properties": {"a": {"const": 1}}}, {"type": "object"}]),
        ] {
            assert!(!is_relaxed(&alternatives), "{alternatives}");
        }
    }
}
