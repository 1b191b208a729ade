//! Bounds of multiples, drawn in to the multiples themselves.
//!
//! The compiler looks for a bound's digits: under 0.35 it takes 0.30 and not 0.3. With `multipleOf` 0.1 only the latter is
//! left, and would be excluded. Where there are few multiples, they are listed.

use serde_json::{Map, Number, Value};

/// Most digits behind the point. With those before it, which are fewer than 17, they fit the arithmetic.
const MAX_SCALE: u32 = 18;

/// Up to so many multiples are listed instead: the compiler divides bounds by the step to see whether any lies between, and
/// rounds.
const MAX_LISTED: i128 = 8;

/// What the list takes the place of.
const KEYWORDS: [&str; 5] = ["multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
/// What a list beside it would have to be brought together with.
const OTHERS: [&str; 6] = ["enum", "const", "anyOf", "oneOf", "allOf", "$ref"];

/// A number as `digits / 10^scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Decimal {
    digits: i128,
    scale: u32,
}

/// Draws the bounds of a number that has to be a multiple in to the nearest multiples. Bounds without a multiple between them
/// are left for the compiler to refuse.
pub fn tighten(fields: &mut Map<String, Value>) {
    let number = |keyword: &str| fields.get(keyword).and_then(Value::as_number).and_then(Decimal::of);
    let Some(step) = number("multipleOf").filter(|step| step.digits > 0) else { return };
    let least = bound(number("minimum"), number("exclusiveMinimum"), step, true);
    let most = bound(number("maximum"), number("exclusiveMaximum"), step, false);
    if least.zip(most).is_some_and(|(least, most)| least > most) {
        return;
    }
    if let Some(all) = least.zip(most).filter(|_| is_listable(fields)).and_then(|(least, most)| step.list(least, most))
    {
        KEYWORDS.iter().for_each(|keyword| drop(fields.shift_remove(*keyword)));
        fields.insert("enum".to_owned(), all);
        return;
    }
    let bounds = [("minimum", "exclusiveMinimum", least), ("maximum", "exclusiveMaximum", most)];
    for (inclusive, exclusive, count) in bounds {
        let Some(bound) = count.and_then(|count| step.times(count)) else { continue };
        fields.shift_remove(exclusive);
        fields.insert(inclusive.to_owned(), Value::Number(bound));
    }
}

/// Whether all that a schema takes are numbers, of which nothing else is asked.
fn is_listable(fields: &Map<String, Value>) -> bool {
    fields.get("type").is_some_and(|ty| ty == "number") && !fields.keys().any(|keyword| OTHERS.contains(&&**keyword))
}

/// How many steps lie within a bound, up to or, if `is_lower`, from it.
fn bound(inclusive: Option<Decimal>, exclusive: Option<Decimal>, step: Decimal, is_lower: bool) -> Option<i128> {
    let sign = if is_lower { -1 } else { 1 };
    // A lower bound is an upper one of the negative numbers.
    let upper = |bound: Decimal, is_open: bool| -> Option<i128> {
        let (bound, step) = (bound.scaled(step.scale)?.checked_mul(sign)?, step.scaled(bound.scale)?);
        let count = bound.div_euclid(step);
        Some(count - i128::from(is_open && count * step == bound))
    };
    let counts = [inclusive.and_then(|bound| upper(bound, false)), exclusive.and_then(|bound| upper(bound, true))];
    counts.into_iter().flatten().min().map(|count| sign * count)
}

impl Decimal {
    /// `None` where it has too many digits.
    fn of(number: &Number) -> Option<Self> {
        let text = number.to_string();
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent.parse().ok()?)?;
        if digits == 0 {
            return Some(Self { digits, scale: 0 });
        }
        let power = |exponent: u32| 10i128.checked_pow(exponent);
        match u32::try_from(scale) {
            Ok(scale) => (scale <= MAX_SCALE).then_some(Self { digits, scale }),
            Err(_) => Some(Self { digits: digits.checked_mul(power(scale.unsigned_abs())?)?, scale: 0 }),
        }
    }

    /// The digits with so many more behind the point.
    fn scaled(self, scale: u32) -> Option<i128> {
        self.digits.checked_mul(10i128.checked_pow(scale)?)
    }

    /// All multiples from one to another, if they are few.
    fn list(self, least: i128, most: i128) -> Option<Value> {
        if most - least >= MAX_LISTED {
            return None;
        }
        (least..=most).map(|count| self.times(count).map(Value::Number)).collect()
    }

    fn times(self, count: i128) -> Option<Number> {
        let digits = self.digits.checked_mul(count)?;
        let text = format!("{digits}e-{}", self.scale);
        let number: f64 = text.parse().ok()?;
        if number.fract() == 0.0 && number.abs() < 1e15 {
            return Some(Number::from(number as i64));
        }
        Number::from_f64(number)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tightened(schema: &Value) -> Value {
        let mut fields = schema.as_object().unwrap().clone();
        tighten(&mut fields);
        Value::Object(fields)
    }

    #[test]
    fn bounds_become_the_nearest_multiples_within() {
        for (schema, expected) in [
            (json!({"minimum": 0.25, "maximum": 0.35}), json!({"minimum": 0.3, "maximum": 0.3})),
            (json!({"minimum": -0.35, "maximum": -0.05}), json!({"minimum": -0.3, "maximum": -0.1})),
            (json!({"exclusiveMinimum": 0.3, "exclusiveMaximum": 1}), json!({"minimum": 0.4, "maximum": 0.9})),
            (json!({"minimum": 0.3, "exclusiveMinimum": 0.1}), json!({"minimum": 0.3})),
            (json!({"maximum": 7.77}), json!({"maximum": 7.7})),
            (json!({"maximum": 1e3}), json!({"maximum": 1000})),
        ] {
            let with = |schema: &Value| {
                let mut schema = schema.clone();
                schema["multipleOf"] = json!(0.1);
                schema
            };
            assert_eq!(tightened(&with(&schema)), with(&expected), "{schema}");
        }
    }

    #[test]
    fn few_multiples_are_listed() {
        let schema =
            json!({"type": "number", "multipleOf": 0.1, "minimum": 0.25, "exclusiveMaximum": 0.6, "title": "x"});
        assert_eq!(tightened(&schema), json!({"type": "number", "title": "x", "enum": [0.3, 0.4, 0.5]}));
        let many = json!({"type": "number", "multipleOf": 0.1, "minimum": 0, "maximum": 0.8});
        assert_eq!(tightened(&many), many);
        // What may be something else as well, or has to be more, keeps its bounds.
        for (keyword, value) in [("type", json!(["number", "null"])), ("enum", json!([0.3])), ("allOf", json!([]))] {
            let mut schema = schema.clone();
            schema[keyword] = value;
            assert_eq!(tightened(&schema)["maximum"], 0.5);
        }
    }

    #[test]
    fn what_has_no_multiple_or_no_bound_stays() {
        for schema in [
            json!({"multipleOf": 0.1, "minimum": 0.31, "maximum": 0.39}),
            json!({"multipleOf": 0.1}),
            json!({"minimum": 0.25}),
            json!({"multipleOf": 0, "minimum": 0.25}),
            json!({"multipleOf": -1, "minimum": 0.25}),
            json!({"multipleOf": 1e-300, "minimum": 0.25}),
            json!({"multipleOf": "1", "minimum": "2"}),
        ] {
            assert_eq!(tightened(&schema), schema);
        }
    }
}
