//! References to parts of a schema.
//!
//! JSON Schema writes the path to a part as a JSON pointer in a URI's fragment: `~1` stands for a slash in a name, `~0` for a
//! tilde, and any character may be `%` and its code. The compiler splits the text at slashes and looks each piece up as it is.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::visit;

const KEYWORD: &str = "$ref";

/// The part that a reference in the compiler's words leads to.
pub fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let path = match reference.strip_prefix('#')? {
        "" | "/" => return Some(root),
        path => path.strip_prefix('/')?,
    };
    path.split('/').try_fold(root, |part, name| match part {
        Value::Array(items) => items.get(index(name)?),
        part => part.get(name),
    })
}

/// An index as JSON pointers have it: digits alone, the first of them no zero but in `0` itself.
fn index(name: &str) -> Option<usize> {
    let is_canonical = name.bytes().all(|byte| byte.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    name.parse().ok().filter(|_| is_canonical)
}

/// Checks that references into arrays lead there by an index. The compiler takes what is none, such as `00`.
///
/// # Errors
/// One does not, in words.
pub fn check_indices(root: &Value, reference: &str) -> Result<(), String> {
    let names = reference.strip_prefix("#/").into_iter().flat_map(|path| path.split('/'));
    let mut part = root;
    for name in names {
        let next = match part {
            Value::Array(items) => {
                let wrong = || {
                    format!(
                        "$ref is {reference:?}, which leads into an array by {name:?}; expected the index of one of its {} \
                         elements, from 0 and without leading zeros",
                        items.len()
                    )
                };
                index(name).and_then(|index| items.get(index)).ok_or_else(wrong).map(Some)?
            }
            part => part.get(name),
        };
        let Some(next) = next else { return Ok(()) };
        part = next;
    }
    Ok(())
}

/// Writes all references of a schema in the compiler's words. A part behind a name with a slash is moved to `$defs` for it.
pub fn decode(root: &mut Value) {
    let mut moved = BTreeSet::new();
    visit(root, &mut |fields| {
        let Some(names) = escaped(fields) else { return };
        if names.iter().any(|name| name.contains('/')) {
            moved.insert(names);
        } else {
            fields[KEYWORD] = json!(format!("#/{}", names.join("/")));
        }
    });
    // Parts of parts first: their places are not there any more when the whole is moved.
    let mut moved: Vec<_> = moved.into_iter().collect();
    moved.sort_by_key(|names| std::cmp::Reverse(names.len()));
    let mut references = BTreeMap::new();
    for (number, names) in moved.into_iter().enumerate() {
        if let Some(reference) = move_out(root, &names, number) {
            references.insert(names, reference);
        }
    }
    visit(root, &mut |fields| {
        if let Some(reference) = escaped(fields).and_then(|names| references.get(&names)) {
            fields[KEYWORD] = json!(reference);
        }
    });
}

/// The names on the path of a reference that has escapes.
fn escaped(fields: &Map<String, Value>) -> Option<Vec<String>> {
    let path = fields.get(KEYWORD)?.as_str()?.strip_prefix("#/")?;
    if !path.contains(['~', '%']) {
        return None;
    }
    let pointer = percent_decoded(path)?;
    Some(pointer.split('/').map(|name| name.replace("~1", "/").replace("~0", "~")).collect())
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            bytes.push((digit(rest.next()?)? * 16 + digit(rest.next()?)?) as u8);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Moves a part to `$defs` and leaves a reference in its place. Returns the reference; `None` if there is no such part.
fn move_out(root: &mut Value, names: &[String], number: usize) -> Option<String> {
    let is_taken = |name: &String| root.get("$defs").is_some_and(|definitions| definitions.get(name).is_some());
    let mut name = format!("moved-{number}");
    while is_taken(&name) {
        name.push('-');
    }
    let reference = format!("#/$defs/{name}");
    let place = names.iter().try_fold(&mut *root, |part, name| match part {
        Value::Array(items) => items.get_mut(index(name)?),
        part => part.get_mut(name),
    })?;
    let part = std::mem::replace(place, json!({KEYWORD: reference}));
    let definitions = root.as_object_mut()?.entry("$defs").or_insert_with(|| json!({}));
    definitions.as_object_mut()?.insert(name, part);
    Some(reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(mut schema: Value) -> Value {
        decode(&mut schema);
        schema
    }

    #[test]
    fn escapes_are_decoded_and_names_with_slashes_get_others() {
        let schema = json!({"$defs": {"a~b": 1, "c d": 2, "e/f": {"type": "null"}}, "items": [
            {"$ref": "#/$defs/a~0b"}, {"$ref": "#/%24defs/c%20d"}, {"$ref": "#/$defs/e~1f"}, {"$ref": "#/$defs/e%7E1f"},
        ]});
        let decoded = decoded(schema);
        let expected = ["#/$defs/a~b", "#/$defs/c d", "#/$defs/moved-0", "#/$defs/moved-0"];
        let found: Vec<_> = decoded["items"].as_array().unwrap().iter().map(|item| item["$ref"].clone()).collect();
        assert_eq!(found, expected);
        assert_eq!(resolve(&decoded, "#/$defs/a~b"), Some(&json!(1)));
        assert_eq!(resolve(&decoded, "#/$defs/moved-0"), Some(&json!({"type": "null"})));
        assert_eq!(decoded["$defs"]["e/f"], json!({"$ref": "#/$defs/moved-0"}));
    }

    #[test]
    fn parts_that_are_moved_may_lie_in_each_other_and_anywhere() {
        let schema = json!({"properties": {"a/b": {"items": {"type": "null"}}}, "allOf": [
            {"$ref": "#/properties/a~1b"}, {"$ref": "#/properties/a~1b/items"},
        ]});
        let decoded = decoded(schema);
        let part = |index: usize| resolve(&decoded, decoded["allOf"][index]["$ref"].as_str().unwrap()).unwrap();
        assert_eq!(part(1), &json!({"type": "null"}));
        assert_eq!(part(0)["items"], decoded["allOf"][1]);
        assert_eq!(decoded["properties"]["a/b"], decoded["allOf"][0]);
    }

    #[test]
    fn what_leads_nowhere_and_what_is_no_reference_stays() {
        for schema in [
            json!({"$ref": "#/$defs/a~1b"}),
            json!({"$ref": "#/%zz"}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": true}}),
            json!({"const": {"$ref": "#/a%20b"}}),
            json!({"properties": {"$ref": {"type": "string"}}}),
        ] {
            assert_eq!(decoded(schema.clone()), schema);
        }
    }
}
