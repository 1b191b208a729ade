//! Schemas in the words of the compiler, which knows fewer than JSON Schema has.
//!
//! What is rewritten says the same: references by names with a slash, `oneOf` whose alternatives exclude each other by other
//! means than the compiler looks at, and bounds between multiples.

mod multiples;
mod one_of;
mod refs;

use serde_json::{Map, Value};

pub use refs::{check_indices, resolve};

/// The schema as the compiler takes it.
pub fn compiled(schema: &Value) -> Value {
    let mut root = schema.clone();
    refs::decode(&mut root);
    let whole = root.clone();
    visit(&mut root, &mut |fields| {
        one_of::relax(&whole, fields);
        multiples::tighten(fields);
    });
    root
}

/// Calls `each` with every object that is a schema, parts before wholes. What only stands in a schema as a value is left alone.
fn visit(schema: &mut Value, each: &mut dyn FnMut(&mut Map<String, Value>)) {
    let Value::Object(fields) = schema else { return };
    for (keyword, value) in fields.iter_mut() {
        match keyword.as_str() {
            "const" | "enum" | "default" | "examples" => {}
            "properties" | "patternProperties" | "$defs" | "definitions" => {
                let parts = value.as_object_mut().into_iter().flat_map(Map::values_mut);
                parts.for_each(|part| visit(part, each));
            }
            _ => match value {
                Value::Array(parts) => parts.iter_mut().for_each(|part| visit(part, each)),
                part => visit(part, each),
            },
        }
    }
    each(fields);
}
