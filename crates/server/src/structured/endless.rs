//! Schemas whose values have no end: objects that must hold an object of their own kind, and the like.
//!
//! The compiler takes them, and an answer that enters one goes on to its token limit. So every part of a schema has to have a
//! value that ends.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::rewrite::resolve;

/// Checks a schema whose references are in the compiler's words. Recurses along chains of references, so it needs a large stack.
///
/// # Errors
///
/// A part of it has values without an end only, in words.
pub fn check(schema: &Value) -> Result<(), String> {
    let mut search = Search { root: schema, ending: HashSet::new(), seen: HashSet::new() };
    loop {
        let n_ending = search.ending.len();
        search.seen.clear();
        search.has_end(schema);
        // What did not end may have been asked before what it needs was known to end.
        if search.ending.len() == n_ending {
            break;
        }
    }
    if search.seen == search.ending {
        return Ok(());
    }
    Err("a part of the schema has to hold a part of its own kind, without an end; expected a way to end, such as null or an \
         empty array"
        .to_owned())
}

struct Search<'a> {
    root: &'a Value,
    /// Parts of which it is known that they have a value that ends.
    ending: HashSet<*const Value>,
    /// Parts that were looked at, or are being looked at.
    seen: HashSet<*const Value>,
}

impl<'a> Search<'a> {
    /// Whether a schema has a value that ends, as far as it is known. Looks at all its parts, whether or not the answer depends
    /// on them. What nothing satisfies is the compiler's to refuse, and counts as ending.
    fn has_end(&mut self, schema: &'a Value) -> bool {
        let part = std::ptr::from_ref(schema);
        if self.seen.insert(part) && self.find_end(schema) {
            self.ending.insert(part);
        }
        self.ending.contains(&part)
    }

    fn find_end(&mut self, schema: &'a Value) -> bool {
        let mut together = Vec::new();
        self.flatten(schema, &mut together);
        let mut may_end = true;
        for fields in &together {
            for keyword in ["anyOf", "oneOf"] {
                let Some(alternatives) = fields.get(keyword).and_then(Value::as_array) else { continue };
                let ends = alternatives.iter().map(|schema| self.has_end(schema)).fold(false, |any, ends| any | ends);
                may_end &= ends || alternatives.is_empty();
            }
        }
        let object_ends = self.object_ends(&together);
        let array_ends = self.array_ends(&together);
        let is_listed = together.iter().any(|fields| fields.contains_key("const") || fields.contains_key("enum"));
        let takes = |ty: &str| together.iter().all(|fields| may_be(fields, ty));
        let takes_only = |ty: &str| takes(ty) && together.iter().any(|fields| is_only(fields, ty));
        let ends = match () {
            () if is_listed => true,
            () if takes_only("object") => object_ends,
            () if takes_only("array") => array_ends,
            () if ["null", "boolean", "number", "integer", "string"].into_iter().any(takes) => true,
            () => takes("object") && object_ends || takes("array") && array_ends || !takes("object") && !takes("array"),
        };
        may_end && ends
    }

    /// Collects what has to hold together: the schema itself, what it refers to and its `allOf`.
    fn flatten(&self, schema: &'a Value, together: &mut Vec<&'a Map<String, Value>>) {
        let Value::Object(fields) = schema else { return };
        if together.iter().any(|known| std::ptr::eq(*known, fields)) {
            return;
        }
        together.push(fields);
        let target = fields.get("$ref").and_then(Value::as_str).and_then(|reference| resolve(self.root, reference));
        let all = fields.get("allOf").and_then(Value::as_array).into_iter().flatten();
        target.into_iter().chain(all).for_each(|part| self.flatten(part, together));
    }

    /// Whether all properties that an object has to have end.
    fn object_ends(&mut self, together: &[&'a Map<String, Value>]) -> bool {
        let required = together.iter().filter_map(|fields| fields.get("required")?.as_array()).flatten();
        let required: Vec<&str> = required.filter_map(Value::as_str).collect();
        let mut all_end = true;
        for fields in together {
            let properties = fields.get("properties").and_then(Value::as_object);
            for (name, schema) in properties.into_iter().flatten() {
                let ends = self.has_end(schema);
                all_end &= ends || !required.contains(&name.as_str());
            }
            let patterns = fields.get("patternProperties").and_then(Value::as_object);
            let has_patterns = patterns.is_some_and(|patterns| !patterns.is_empty());
            patterns.into_iter().flat_map(Map::values).for_each(|schema| {
                self.has_end(schema);
            });
            if let Some(others) = fields.get("additionalProperties") {
                let is_other = |name: &&str| properties.is_none_or(|properties| !properties.contains_key(*name));
                let ends = self.has_end(others);
                // One that a pattern describes is no other, which is for the compiler to tell.
                all_end &= ends || has_patterns || !required.iter().any(is_other);
            }
        }
        all_end
    }

    /// Whether all elements that an array has to have end.
    fn array_ends(&mut self, together: &[&'a Map<String, Value>]) -> bool {
        let least = together.iter().filter_map(|fields| fields.get("minItems")?.as_f64()).fold(0.0, f64::max);
        let mut all_end = true;
        for fields in together {
            let first = fields.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            for (index, schema) in first.iter().enumerate() {
                let ends = self.has_end(schema);
                all_end &= ends || index as f64 >= least;
            }
            for others in ["items", "additionalItems"].into_iter().filter_map(|keyword| fields.get(keyword)) {
                let ends = self.has_end(others);
                all_end &= ends || first.len() as f64 >= least;
            }
        }
        all_end
    }
}

fn may_be(fields: &Map<String, Value>, ty: &str) -> bool {
    match fields.get("type") {
        Some(Value::String(only)) => only == ty,
        Some(Value::Array(types)) => types.iter().any(|other| other == ty),
        _ => true,
    }
}

fn is_only(fields: &Map<String, Value>, ty: &str) -> bool {
    match fields.get("type") {
        Some(Value::String(only)) => only == ty,
        Some(Value::Array(types)) => types.iter().all(|other| other == ty),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(schema: &Value) -> Value {
        let mut root = json!({"$defs": {"node": schema}});
        root["$ref"] = json!("#/$defs/node");
        root
    }

    #[test]
    fn what_must_hold_its_own_kind_is_refused() {
        let own = || json!({"$ref": "#/$defs/node"});
        let holder = || json!({"type": "object", "properties": {"next": own()}, "required": ["next"]});
        for schema in [
            node(&holder()),
            node(&json!({"type": "array", "items": own(), "minItems": 1})),
            node(&json!({"type": "array", "prefixItems": [{"type": "null"}, own()], "minItems": 2})),
            node(&json!({"type": "object", "additionalProperties": own(), "required": ["a"]})),
            node(&json!({"anyOf": [holder(), {"type": "array", "items": own(), "minItems": 3}]})),
            node(&json!({"allOf": [{"type": "object", "required": ["next"]}, {"properties": {"next": own()}}]})),
            // Where nobody has to enter it, too: who does never comes out.
            json!({"type": "object", "properties": {"a": own()}, "$defs": {"node": holder()}}),
            json!({"anyOf": [{"type": "null"}, own()], "$defs": {"node": holder()}}),
            json!({"$ref": "#/$defs/a", "$defs": {
                "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}, "required": ["b"]},
                "b": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1},
            }}),
        ] {
            assert!(check(&schema).is_err(), "{schema}");
        }
    }

    #[test]
    fn what_may_end_is_taken_however_it_refers_to_itself() {
        let own = || json!({"$ref": "#/$defs/node"});
        let holder = |next: Value| json!({"type": "object", "properties": {"next": next}, "required": ["next"]});
        for schema in [
            node(&holder(json!({"anyOf": [own(), {"type": "null"}]}))),
            node(&json!({"type": "object", "properties": {"next": own()}})),
            node(&json!({"type": "array", "items": own()})),
            node(&json!({"type": "object", "additionalProperties": own()})),
            node(&json!({"type": ["object", "string"], "properties": {"next": own()}, "required": ["next"]})),
            node(&json!({"properties": {"next": own()}, "required": ["next"]})),
            node(&json!({"anyOf": [holder(own()), {"const": 1}]})),
            json!({"$ref": "#/$defs/a", "$defs": {
                "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}, "c": {"$ref": "#/$defs/c"}}, "required": ["b", "c"]},
                "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/c"}]},
                "c": {"anyOf": [holder(json!({"$ref": "#/$defs/b"})), {"type": "null"}]},
            }}),
            json!({"type": "object", "properties": {"a": false}}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]}),
            json!({"$defs": {"unused": holder(json!({"$ref": "#/$defs/unused"}))}, "type": "null"}),
        ] {
            assert_eq!(check(&schema), Ok(()), "{schema}");
        }
    }
}
