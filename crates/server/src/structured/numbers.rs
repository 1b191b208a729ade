//! Numbers in a schema that can be held to exactly.
//!
//! The compiler takes numbers as f64 and bounds of integers as i64. Beyond what an f64 counts one by one, answers would be held to
//! other numbers than the schema's; and at the end of i64 it does not come to an end.

use serde_json::{Number, Value};

/// Greatest magnitude up to which an f64 holds every integer.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Greatest factor of a `multipleOf` beside twos and fives. A digit after the other, multiples are recognised by their
/// remainder, so the compiler takes a state for each; powers of ten come for nothing.
const MAX_REMAINDERS: u64 = 1000;

/// Greatest `multipleOf` as the compiler holds it: without its point.
const MAX_STEP: f64 = u32::MAX as f64;

/// Checks the value of a keyword, if it is one of those with numbers.
///
/// # Errors
///
/// Which number can't be held to, in words.
pub fn check(keyword: &str, value: &Value) -> Result<(), String> {
    match (keyword, value) {
        ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum", Value::Number(_)) | ("const" | "enum", _) => {
            check_exact(keyword, value)
        }
        ("multipleOf", Value::Number(number)) => check_multiple(number),
        _ => Ok(()),
    }
}

fn check_exact(keyword: &str, value: &Value) -> Result<(), String> {
    match value {
        // Every magnitude below the limit is exact if it is an integer, and as near as JSON's readers come if it is not.
        Value::Number(number) if number.as_f64().is_none_or(|number| number.abs() >= MAX_EXACT) => {
            Err(format!("{keyword} has the number {number}; only numbers between -2^53 and 2^53 are held to exactly"))
        }
        Value::Array(items) => items.iter().try_for_each(|item| check_exact(keyword, item)),
        Value::Object(fields) => fields.values().try_for_each(|value| check_exact(keyword, value)),
        _ => Ok(()),
    }
}

fn check_multiple(number: &Number) -> Result<(), String> {
    let step = number.as_f64().filter(|step| *step > 0.0);
    let mut step = step.ok_or_else(|| format!("multipleOf is {number}; expected a number above 0"))?;
    let text = number.to_string();
    // The compiler moves the point as long as something is behind it, and each time the product is rounded.
    while step.fract() != 0.0 {
        step *= 10.0;
    }
    if step > MAX_STEP {
        return Err(format!(
            "multipleOf is {text}, which has more digits than multiples can be told by; expected a whole number up to \
             {MAX_STEP}, or a fraction such as 0.1, 0.01, 0.05 or 0.25"
        ));
    }
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let mut rest = digits.parse::<u64>().unwrap_or(u64::MAX);
    for factor in [2, 5] {
        while rest > 0 && rest.is_multiple_of(factor) {
            rest /= factor;
        }
    }
    if rest > MAX_REMAINDERS {
        return Err(format!(
            "multipleOf is {text}, which has the factor {rest} beside twos and fives; expected at most {MAX_REMAINDERS}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_that_the_compiler_would_round_are_refused() {
        for value in [json!(9_007_199_254_740_993_u64), json!(i64::MIN), json!(u64::MAX), json!(-1e20), json!(1e300)] {
            for keyword in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "const"] {
                assert!(check(keyword, &value).is_err(), "{keyword} {value}");
            }
            assert!(check("enum", &json!([1, {"a": [value]}])).is_err(), "{value}");
        }
        for value in [json!(0), json!(-1.5), json!(9_007_199_254_740_991_u64), json!("9007199254740993")] {
            assert_eq!(check("const", &value), Ok(()), "{value}");
        }
    }

    #[test]
    fn multiples_with_many_digits_are_refused_with_what_is_expected() {
        for value in
            [json!(u64::MAX), json!(1e25), json!(1e300), json!(5e-324), json!(0.07), json!(0.123_456_789_012_3)]
        {
            let message = check("multipleOf", &value).expect_err("too many digits");
            assert!(message.starts_with(&format!("multipleOf is {value}, which has more digits")), "{message}");
            assert!(message.contains("expected a whole number up to 4294967295"), "{message}");
        }
    }

    #[test]
    fn multiples_with_many_remainders_are_refused() {
        for value in [json!(99_999_989), json!(65_537), json!(1009), json!(0.1009), json!(2018), json!(u64::MAX)] {
            assert!(check("multipleOf", &value).is_err(), "{value}");
        }
        for value in [json!(1), json!(0.01), json!(86_400), json!(1_000_000), json!(1e-7), json!(997)] {
            assert_eq!(check("multipleOf", &value), Ok(()), "{value}");
        }
    }
}
