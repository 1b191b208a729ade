//! JSON as requests may have it: each name once in an object, and no more values than memory is meant for.

use std::fmt;

use axum::http::StatusCode;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::reply::ApiError;

/// Most values in a document: numbers, texts, arrays and so on. A value takes 72 bytes in memory, of which a text may have two.
pub const MAX_VALUES: usize = 1 << 19;

/// Reads a document. The parser's own limit on nesting is 127.
///
/// # Errors
/// It is no JSON, has too many values, or a name twice in one object.
pub fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    let mut limits = Limits { n_value: 0, refusal: None };
    let mut text = serde_json::Deserializer::from_slice(bytes);
    let value = Document(&mut limits).deserialize(&mut text).and_then(|value| text.end().map(|()| value));
    value.map_err(|error| {
        let Some(mut refusal) = limits.refusal else {
            let message = format!("the body is not JSON that can be read: {error}");
            return ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", message);
        };
        // What was told to the parser, with the place that it added.
        refusal.message = error.to_string();
        refusal
    })
}

struct Limits {
    n_value: usize,
    /// Why the document is refused, but for the message.
    refusal: Option<ApiError>,
}

impl Limits {
    fn refuse<E: serde::de::Error>(&mut self, refusal: ApiError) -> E {
        let error = E::custom(&refusal.message);
        self.refusal = Some(refusal);
        error
    }
}

/// A value of a document, and all in it.
struct Document<'a>(&'a mut Limits);

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.n_value += 1;
        if self.0.n_value > MAX_VALUES {
            let message = format!("the body has too many values; expected at most {MAX_VALUES}");
            return Err(self.0.refuse(ApiError::new(StatusCode::BAD_REQUEST, "too_many_values", message)));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(Document(self.0))? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if map.contains_key(&name) {
                let shown: String = name.chars().take(80).collect();
                let message = format!("`{shown}` stands more than once in one object; expected each name once");
                return Err(self.0.refuse(ApiError { code: "duplicate_name", ..ApiError::invalid(shown, message) }));
            }
            let value = fields.next_value_seed(Document(self.0))?;
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_as_they_are_elsewhere() {
        for text in [
            "null",
            " [1, -2, 1.5, 1e300, 18446744073709551615, true, false, \"\\u00e9\\n\"] ",
            r#"{"b": {"x": []}, "a": [{"x": 1}, {"x": 2}], "": {}}"#,
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        }
        for text in ["", "{", "[1,]", "{\"a\": 1} 2", "nul", "[\"\\ud800\"]", "1e999", "{\"a\" 1}"] {
            assert_eq!(parse(text.as_bytes()).unwrap_err().code, "invalid_json", "{text}");
        }
        assert_eq!(parse(&[b"[".repeat(200), b"]".repeat(200)].concat()).unwrap_err().code, "invalid_json");
    }

    #[test]
    fn a_name_that_stands_twice_in_one_object_is_refused_by_name_and_place() {
        let error = parse(br#"{"a": {"n": 1}, "b": [{"n": 1, "m": {"n": 2}, "n": 1}]}"#).unwrap_err();
        assert_eq!((error.code, error.param.as_deref()), ("duplicate_name", Some("n")));
        assert!(
            error.message.starts_with("`n` stands more than once") && error.message.contains("column"),
            "{error:?}"
        );
    }

    #[test]
    fn a_document_has_so_many_values_and_no_more() {
        let array = |n: usize| format!("[{}1]", "1,".repeat(n - 1));
        assert!(parse(array(MAX_VALUES - 1).as_bytes()).is_ok());
        assert_eq!(parse(array(MAX_VALUES).as_bytes()).unwrap_err().code, "too_many_values");
    }
}
