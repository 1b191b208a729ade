//! The fields of a request, taken out one by one, so that what is left is what nobody asked for.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::reply::{ApiError, ApiResult};

/// Most unknown fields that are named.
const MOST_NAMED: usize = 16;

/// One JSON object of a request.
pub struct Fields {
    /// Where it stands in the request, as in `messages[0]`; empty for the request itself.
    path: String,
    map: Map<String, Value>,
}

/// Fields of a request that nothing is known of.
#[derive(Debug, Default)]
pub struct Unknown(Vec<String>);

impl Unknown {
    /// The first of them.
    pub fn first(&self) -> Option<&str> {
        self.0.first().map(String::as_str)
    }

    /// What a header says of them, in printable ASCII; `None` if there are none.
    pub fn warning(&self) -> Option<String> {
        let named: Vec<_> = self.0.iter().take(MOST_NAMED).map(|name| name.escape_default().to_string()).collect();
        let more = match self.0.len().saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!named.is_empty()).then(|| format!("unknown fields without effect: {}{more}", named.join(", ")))
    }
}

impl Fields {
    /// The fields of `value`, which stands at `path`.
    ///
    /// # Errors
    /// It is not an object.
    pub fn of(path: impl Into<String>, value: Value) -> ApiResult<Self> {
        let path = path.into();
        match value {
            Value::Object(map) => Ok(Self { path, map }),
            other if path.is_empty() => {
                let message = format!("the body is {}; expected a JSON object", super::reply::shown(&other));
                Err(ApiError { param: None, ..ApiError::invalid("", message) })
            }
            other => Err(ApiError::out_of_range(path, &other, "an object")),
        }
    }

    /// A field's place in the request.
    pub fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Takes a field. `null` is as good as none.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.map.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Takes a field that has to be there.
    ///
    /// # Errors
    /// It is not.
    pub fn required(&mut self, name: &str, expected: &str) -> ApiResult<Value> {
        self.take(name).ok_or_else(|| {
            let path = self.path(name);
            let message = format!("`{path}` is missing; expected {expected}");
            ApiError { code: "missing_required_parameter", ..ApiError::invalid(path, message) }
        })
    }

    /// Takes a text.
    ///
    /// # Errors
    /// It is something else.
    pub fn string(&mut self, name: &str) -> ApiResult<Option<String>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(ApiError::out_of_range(self.path(name), &other, "a string")),
        }
    }

    /// Takes a name that has to be there, of a schema or a function.
    ///
    /// # Errors
    /// It is not, or is something else.
    pub fn name(&mut self, name: &str) -> ApiResult<String> {
        const EXPECTED: &str = "1 to 64 letters, digits, underscores or dashes";
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        match self.required(name, EXPECTED)? {
            Value::String(text) if (1..=64).contains(&text.len()) && text.bytes().all(is_part) => Ok(text),
            other => Err(ApiError::out_of_range(self.path(name), &other, EXPECTED)),
        }
    }

    /// Takes a truth value; `false` where there is none.
    ///
    /// # Errors
    /// It is something else.
    pub fn flag(&mut self, name: &str) -> ApiResult<bool> {
        Ok(self.boolean(name)?.unwrap_or_default())
    }

    /// Takes a truth value.
    ///
    /// # Errors
    /// It is something else.
    pub fn boolean(&mut self, name: &str) -> ApiResult<Option<bool>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(ApiError::out_of_range(self.path(name), &other, "true or false")),
        }
    }

    /// Takes a number within a range.
    ///
    /// # Errors
    /// It is out of it, or no number.
    pub fn number(&mut self, name: &str, range: RangeInclusive<f64>) -> ApiResult<Option<f32>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = value.as_f64().filter(|number| range.contains(number)).ok_or_else(|| {
            let expected = format!("a number from {} to {}", range.start(), range.end());
            ApiError::out_of_range(self.path(name), &value, &expected)
        })?;
        Ok(Some(number as f32))
    }

    /// Takes a whole number of at least `least`; one beyond what an `i64` holds is the largest there is.
    ///
    /// # Errors
    /// It is less, or no whole number.
    pub fn at_least(&mut self, name: &str, least: i64) -> ApiResult<Option<i64>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = whole(&value).filter(|number| *number >= least).ok_or_else(|| {
            let expected = format!("a whole number from {least} up");
            ApiError::out_of_range(self.path(name), &value, &expected)
        })?;
        Ok(Some(number))
    }

    /// Takes a whole number within a range.
    ///
    /// # Errors
    /// It is out of it, or no whole number.
    pub fn integer(&mut self, name: &str, range: RangeInclusive<i64>) -> ApiResult<Option<i64>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = whole(&value).filter(|number| range.contains(number)).ok_or_else(|| {
            let expected = format!("a whole number from {} to {}", range.start(), range.end());
            ApiError::out_of_range(self.path(name), &value, &expected)
        })?;
        Ok(Some(number))
    }

    /// Takes an object.
    ///
    /// # Errors
    /// It is something else.
    pub fn object(&mut self, name: &str) -> ApiResult<Option<Self>> {
        self.take(name).map(|value| Self::of(self.path(name), value)).transpose()
    }

    /// Takes a field that must not ask for anything but `neutral`.
    ///
    /// # Errors
    /// It does.
    pub fn only(&mut self, name: &str, neutral: &Value) -> ApiResult<()> {
        match self.take(name) {
            Some(value) if value != *neutral => {
                Err(ApiError::unsupported(self.path(name), &value, &format!("{neutral}, or the field left out")))
            }
            _ => Ok(()),
        }
    }

    /// Takes fields that have no effect on the answer anywhere.
    pub fn without_effect(&mut self, names: &[&str]) {
        for name in names {
            self.map.shift_remove(*name);
        }
    }

    /// Ends the object: what is left is not known.
    pub fn finish(self, unknown: &mut Unknown) {
        let Self { path, map } = self;
        let names = map.into_iter().filter(|(_, value)| !value.is_null());
        unknown.0.extend(names.map(|(name, _)| if path.is_empty() { name } else { format!("{path}.{name}") }));
    }
}

/// A whole number, however it is spelled; one that does not fit is the nearest that does.
pub fn whole(value: &Value) -> Option<i64> {
    let float = || value.as_f64().filter(|number| number.fract() == 0.0).map(|number| number as i64);
    value.as_i64().or_else(float)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields {
        Fields::of("", value).expect("an object")
    }

    #[test]
    fn whole_numbers_are_taken_however_they_are_spelled() {
        for (value, expected) in [
            (json!(7), Some(7)),
            (json!(7.0), Some(7)),
            (json!(7.5), None),
            (json!("7"), None),
            (json!(u64::MAX), Some(i64::MAX)),
            (json!(1e300), Some(i64::MAX)),
            (json!(-1e300), Some(i64::MIN)),
        ] {
            assert_eq!(whole(&value), expected, "{value}");
        }
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_the_field_and_the_range() {
        let error = fields(json!({"temperature": 2.5})).number("temperature", 0.0..=2.0).expect_err("too much");
        assert_eq!(error.param.as_deref(), Some("temperature"));
        assert_eq!(error.message, "`temperature` is 2.5; expected a number from 0 to 2");
        let error = fields(json!({"n": 0})).integer("n", 1..=4).expect_err("too few");
        assert_eq!(error.message, "`n` is 0; expected a whole number from 1 to 4");
    }

    #[test]
    fn what_is_left_is_unknown_unless_it_is_null() {
        let mut fields = fields(json!({"a": 1, "b": 2, "c": null, "d\n": {}}));
        assert_eq!(fields.take("a"), Some(json!(1)));
        let mut unknown = Unknown::default();
        fields.finish(&mut unknown);
        assert_eq!(unknown.warning().as_deref(), Some("unknown fields without effect: b, d\\n"));
        assert_eq!(Unknown::default().warning(), None);
    }
}
