//! What compiling a schema can cost, found before it is done.
//!
//! The compiler limits sizes, but two things in it take time in the product of sizes, and some of them are checks of regular
//! expressions against each other, half a millisecond each: the names of `patternProperties` are compared in pairs, and
//! alternatives that must hold together (`anyOf` beside `anyOf`, inside `allOf` or by `$ref`) are combined one with
//! another.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::numbers;
use super::rewrite::{check_indices, resolve};

/// Most `pattern` and `patternProperties` of a schema.
const MAX_PATTERNS: usize = 64;
/// Most properties of one object. Each that may be absent is a few possibilities more at every comma, of which the compiler
/// takes 2,000.
const MAX_PROPERTIES: usize = 400;
/// Most objects in a schema, which is most of what is counted in work. Real schemas of 64 KiB have a thousand.
const MAX_OBJECTS: usize = 2000;
/// Most combinations of alternatives.
const MAX_COMBINATIONS: usize = 1000;

/// Refuses a schema, in the compiler's words, that would take too long. Recurses along chains of references, so it needs a large stack.
///
/// # Errors
///
/// What is too much, in words.
pub fn check(schema: &Value) -> Result<(), String> {
    let mut cost = Cost { root: schema, n_object: 0, n_pattern: 0, n_combination: 0, widths: HashMap::new() };
    cost.visit(schema)?;
    let Cost { n_object, n_pattern, n_combination, .. } = cost;
    if n_object > MAX_OBJECTS {
        return Err(format!("the schema has {n_object} objects; the limit is {MAX_OBJECTS}"));
    }
    if n_pattern > MAX_PATTERNS {
        return Err(format!("the schema has {n_pattern} patterns; the limit is {MAX_PATTERNS}"));
    }
    if n_combination > MAX_COMBINATIONS {
        return Err(format!(
            "the schema combines alternatives in {n_combination} or more ways (anyOf, oneOf or enum within allOf or beside \
             each other); the limit is {MAX_COMBINATIONS}"
        ));
    }
    Ok(())
}

struct Cost<'a> {
    root: &'a Value,
    n_object: usize,
    n_pattern: usize,
    n_combination: usize,
    /// Alternatives by reference; those being counted have one.
    widths: HashMap<&'a str, usize>,
}

impl<'a> Cost<'a> {
    /// Counts in all parts. What is named like a keyword without being one is counted too.
    fn visit(&mut self, value: &'a Value) -> Result<(), String> {
        match value {
            Value::Object(fields) => {
                self.n_object += 1;
                self.n_pattern += usize::from(fields.get("pattern").is_some_and(Value::is_string));
                self.n_pattern += len_of(fields, "patternProperties");
                let n_property = len_of(fields, "properties");
                if n_property > MAX_PROPERTIES {
                    return Err(format!("an object has {n_property} properties; the limit is {MAX_PROPERTIES}"));
                }
                fields.iter().try_for_each(|(keyword, value)| numbers::check(keyword, value))?;
                if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                    check_indices(self.root, reference)?;
                }
                self.combine(fields);
                fields.values().try_for_each(|value| self.visit(value))
            }
            Value::Array(items) => items.iter().try_for_each(|value| self.visit(value)),
            _ => Ok(()),
        }
    }

    /// Adds the combinations that `fields` make, if there is more than one set of alternatives.
    fn combine(&mut self, fields: &'a Map<String, Value>) {
        let factors = self.factors(fields);
        if factors.iter().filter(|&&factor| factor > 1).count() > 1 {
            let product = factors.into_iter().fold(1, usize::saturating_mul);
            self.n_combination = self.n_combination.saturating_add(product);
        }
    }

    /// Alternatives of each part that must hold together with the others.
    fn factors(&mut self, fields: &'a Map<String, Value>) -> Vec<usize> {
        let mut factors = Vec::new();
        for (key, value) in fields {
            let items = value.as_array().map_or(&[][..], Vec::as_slice);
            match key.as_str() {
                "anyOf" | "oneOf" => {
                    factors.push(items.iter().map(|item| self.width(item)).fold(0, usize::saturating_add));
                }
                "enum" => factors.push(items.len()),
                "allOf" => factors.extend(items.iter().map(|item| self.width(item))),
                "$ref" => factors.extend(value.as_str().map(|to| self.referred_width(to))),
                _ => {}
            }
        }
        factors
    }

    /// Alternatives that a schema becomes.
    fn width(&mut self, schema: &'a Value) -> usize {
        let Value::Object(fields) = schema else { return 1 };
        self.factors(fields).into_iter().fold(1, usize::saturating_mul).max(1)
    }

    fn referred_width(&mut self, to: &'a str) -> usize {
        if let Some(&width) = self.widths.get(to) {
            return width;
        }
        self.widths.insert(to, 1);
        let target = resolve(self.root, to);
        let width = target.map_or(1, |target| self.width(target));
        self.widths.insert(to, width);
        width
    }
}

fn len_of(fields: &Map<String, Value>, key: &str) -> usize {
    fields.get(key).and_then(Value::as_object).map_or(0, Map::len)
}
