//! JSON as requests may have it: each name once in an object, and no more values than memory is meant for.

use std::fmt;

use axum::http::StatusCode;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::reply::ApiError;

/// Most values in a document: numbers, texts, arrays and so on. A value takes 72 bytes in memory, of which a text may have two.
pub const MAX_VALUES: usize = 1 << 19;

/// A field of a document whose array has to fit into the context. One that does not is refused before all of it is held.
#[derive(Clone, Copy, Debug)]
pub struct Bounded {
    /// Its name in the outermost object.
    pub field: &'static str,
    /// What takes a token or more.
    pub counted: Counted,
    /// Tokens of the context.
    pub n_ctx: usize,
}

/// What of an array takes a token or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Each element, as a message does.
    Elements,
    /// Each number, which is a token itself, there or in the arrays within.
    Numbers,
}

/// Reads a document. The parser's own limit on nesting is 127.
///
/// # Errors
/// It is no JSON, has too many values, a name twice in one object, or more in `bounded` than fits.
pub fn parse(bytes: &[u8], bounded: Option<Bounded>) -> Result<Value, ApiError> {
    let mut limits = Limits { n_value: 0, refusal: None };
    let mut text = serde_json::Deserializer::from_slice(bytes);
    let value = Document { limits: &mut limits, place: Place::Whole(bounded) }
        .deserialize(&mut text)
        .and_then(|value| text.end().map(|()| value));
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
struct Document<'a> {
    limits: &'a mut Limits,
    place: Place,
}

/// What a value is in its document.
#[derive(Clone, Copy)]
enum Place {
    /// The document.
    Whole(Option<Bounded>),
    /// The field that is bounded, or an array in it that is.
    Bounded(Bounded),
    Elsewhere,
}

impl Document<'_> {
    /// A value in this one.
    fn part(&mut self, place: Place) -> Document<'_> {
        Document { limits: self.limits, place }
    }
}

impl Bounded {
    fn counts(self, value: &Value) -> bool {
        self.counted == Counted::Elements || value.is_number()
    }

    /// What stands in its arrays.
    fn within(self) -> Place {
        if self.counted == Counted::Numbers { Place::Bounded(self) } else { Place::Elsewhere }
    }

    fn refusal(self, n: usize) -> ApiError {
        let Self { field, counted, n_ctx } = self;
        let (what, each) = match counted {
            Counted::Elements => ("elements", ", and each takes one or more"),
            Counted::Numbers => ("token ids", ""),
        };
        let message =
            format!("`{field}` has {n} {what}; expected at most {n_ctx}: the context holds {n_ctx} tokens{each}");
        ApiError { code: "context_length_exceeded", ..ApiError::invalid(field, message) }
    }
}

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.limits.n_value += 1;
        if self.limits.n_value > MAX_VALUES {
            let message = format!("the body has too many values; expected at most {MAX_VALUES}");
            return Err(self.limits.refuse(ApiError::new(StatusCode::BAD_REQUEST, "too_many_values", message)));
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

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let bounded = if let Place::Bounded(bounded) = self.place { Some(bounded) } else { None };
        let within = bounded.map_or(Place::Elsewhere, Bounded::within);
        let (mut values, mut n_counted) = (Vec::new(), 0);
        while let Some(value) = items.next_element_seed(self.part(within))? {
            if let Some(bounded) = bounded.filter(|bounded| bounded.counts(&value)) {
                n_counted += 1;
                if n_counted > bounded.n_ctx {
                    drop(values);
                    while items.next_element::<IgnoredAny>()?.is_some() {
                        n_counted += 1;
                    }
                    return Err(self.limits.refuse(bounded.refusal(n_counted)));
                }
            }
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if map.contains_key(&name) {
                let shown: String = name.chars().take(80).collect();
                let message = format!("`{shown}` stands more than once in one object; expected each name once");
                return Err(self
                    .limits
                    .refuse(ApiError { code: "duplicate_name", ..ApiError::invalid(shown, message) }));
            }
            let place = match self.place {
                Place::Whole(Some(bounded)) if name == bounded.field => Place::Bounded(bounded),
                _ => Place::Elsewhere,
            };
            let value = fields.next_value_seed(self.part(place))?;
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
            assert_eq!(parse(text.as_bytes(), None).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        }
        for text in ["", "{", "[1,]", "{\"a\": 1} 2", "nul", "[\"\\ud800\"]", "1e999", "{\"a\" 1}"] {
            assert_eq!(parse(text.as_bytes(), None).unwrap_err().code, "invalid_json", "{text}");
        }
        assert_eq!(parse(&[b"[".repeat(200), b"]".repeat(200)].concat(), None).unwrap_err().code, "invalid_json");
    }

    #[test]
    fn a_name_that_stands_twice_in_one_object_is_refused_by_name_and_place() {
        let error = parse(br#"{"a": {"n": 1}, "b": [{"n": 1, "m": {"n": 2}, "n": 1}]}"#, None).unwrap_err();
        assert_eq!((error.code, error.param.as_deref()), ("duplicate_name", Some("n")));
        assert!(
            error.message.starts_with("`n` stands more than once") && error.message.contains("column"),
            "{error:?}"
        );
    }

    #[test]
    fn an_array_that_can_not_fit_is_refused_by_its_field_and_both_numbers() {
        let bounded = |field, counted| Some(Bounded { field, counted, n_ctx: 3 });
        let messages = bounded("messages", Counted::Elements);
        let prompt = bounded("prompt", Counted::Numbers);
        for (text, bounded, n) in [
            (r#"{"messages": [{}, {"a": [1]}, 1, "b", {}]}"#, messages, 5),
            (r#"{"a": 1, "prompt": [1, 2, 3, 4, 5, 6]}"#, prompt, 6),
            (r#"{"prompt": [[1, 2], [1, 2, 3, 4]]}"#, prompt, 4),
        ] {
            let error = parse(text.as_bytes(), bounded).unwrap_err();
            let field = bounded.map(|bounded| bounded.field).unwrap();
            assert_eq!((error.code, error.param.as_deref()), ("context_length_exceeded", Some(field)), "{text}");
            assert!(error.message.starts_with(&format!("`{field}` has {n} ")), "{}", error.message);
            assert!(error.message.contains("expected at most 3: the context holds 3 tokens"), "{}", error.message);
        }
        for (text, bounded) in [
            (r#"{"messages": [{"content": [1, 2, 3, 4]}, {}, {}], "stop": [1, 2, 3, 4]}"#, messages),
            (r#"{"prompt": [[1, 2, 3], ["a", "b", "c", "d"], [3], [4]], "x": {"prompt": [1, 2, 3, 4]}}"#, prompt),
        ] {
            assert!(parse(text.as_bytes(), bounded).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_document_has_so_many_values_and_no_more() {
        let array = |n: usize| format!("[{}1]", "1,".repeat(n - 1));
        assert!(parse(array(MAX_VALUES - 1).as_bytes(), None).is_ok());
        assert_eq!(parse(array(MAX_VALUES).as_bytes(), None).unwrap_err().code, "too_many_values");
    }
}
