//! `tojson` as chat templates know it: Python's `json.dumps` with `ensure_ascii=False`.
#![expect(clippy::needless_pass_by_value, reason = "the engine calls filters with owned arguments")]

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Kwargs, ObjectRepr, ValueKind},
};

use super::{
    MAX_VALUE_DEPTH,
    environment::{charge, too_deep},
    origin::{Disguise, Mark},
    strings,
};

/// The filter: `value | tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
pub(super) fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    ensure_ascii: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let indent = kwargs.get::<Option<usize>>("indent")?;
    let separators = kwargs.get::<Option<Value>>("separators")?.filter(|value| !value.is_none());
    let (item_separator, key_separator) = match separators {
        Some(pair) => {
            let pair: Vec<String> = pair.try_iter()?.map(|item| item.to_string()).collect();
            <[String; 2]>::try_from(pair)
                .map_err(|_| Error::new(ErrorKind::InvalidOperation, "separators must be a pair of strings"))?
                .into()
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let ensure_ascii = match ensure_ascii {
        Some(value) => value,
        None => kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
    };
    let sort_keys = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let disguise = strings::disguise(state);
    let mut writer = Writer {
        state,
        disguise: disguise.as_deref(),
        out: Vec::new(),
        indent: indent.map(strings::checked_indent).transpose()?,
        item_separator,
        key_separator,
        ensure_ascii,
        sort_keys,
        depth: 0,
    };
    writer.value(value)?;
    let marks = writer.out;
    charge(state, marks.len())?;
    Ok(strings::write(disguise.as_deref(), &marks))
}

struct Writer<'a, 'state, 'env> {
    state: &'a State<'state, 'env>,
    disguise: Option<&'a Disguise>,
    out: Vec<Mark>,
    indent: Option<usize>,
    item_separator: String,
    key_separator: String,
    ensure_ascii: bool,
    sort_keys: bool,
    depth: usize,
}

impl Writer<'_, '_, '_> {
    fn plain(&mut self, text: &str) {
        self.out.extend(text.chars().map(|c| (c, false)));
    }

    fn value(&mut self, value: &Value) -> Result<(), Error> {
        self.state.consume_fuel(1)?;
        match value.kind() {
            ValueKind::None => self.plain("null"),
            ValueKind::Bool => self.plain(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.plain(&value.to_string()),
            ValueKind::Number => self.plain(&python_float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default())?,
            ValueKind::Seq | ValueKind::Iterable => self.list(value)?,
            ValueKind::Map => self.map(value)?,
            kind => {
                return Err(Error::new(ErrorKind::BadSerialization, format!("{kind} has no JSON form")));
            }
        }
        Ok(())
    }

    fn list(&mut self, value: &Value) -> Result<(), Error> {
        self.open("[")?;
        let mut is_empty = true;
        for item in value.try_iter()?.checked() {
            self.next_item(is_empty);
            is_empty = false;
            self.value(&item?)?;
        }
        self.close("]", is_empty);
        Ok(())
    }

    fn map(&mut self, value: &Value) -> Result<(), Error> {
        let object = value.as_object().filter(|object| object.repr() == ObjectRepr::Map);
        let mut pairs: Vec<(Value, Value)> =
            object.and_then(minijinja::value::DynObject::try_iter_pairs).into_iter().flatten().collect();
        if self.sort_keys {
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.open("{")?;
        for (at, (key, item)) in pairs.iter().enumerate() {
            self.next_item(at == 0);
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default())?,
                ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                    self.plain("\"");
                    self.value(key)?;
                    self.plain("\"");
                }
                kind => {
                    return Err(Error::new(ErrorKind::BadSerialization, format!("{kind} can't be a JSON key")));
                }
            }
            let separator = std::mem::take(&mut self.key_separator);
            self.plain(&separator);
            self.key_separator = separator;
            self.value(item)?;
        }
        self.close("}", pairs.is_empty());
        Ok(())
    }

    fn open(&mut self, bracket: &str) -> Result<(), Error> {
        self.plain(bracket);
        self.depth += 1;
        // Twice: a kept value may stand inside a literal of the expression.
        if self.depth > 2 * MAX_VALUE_DEPTH { Err(too_deep()) } else { Ok(()) }
    }

    fn next_item(&mut self, is_first: bool) {
        if !is_first {
            let separator = std::mem::take(&mut self.item_separator);
            self.plain(&separator);
            self.item_separator = separator;
        }
        self.new_line();
    }

    fn new_line(&mut self) {
        if let Some(width) = self.indent {
            self.out.push(('\n', false));
            self.out.extend(std::iter::repeat_n((' ', false), width * self.depth));
        }
    }

    fn close(&mut self, bracket: &str, is_empty: bool) {
        self.depth -= 1;
        if !is_empty {
            self.new_line();
        }
        self.plain(bracket);
    }

    fn string(&mut self, text: &str) -> Result<(), Error> {
        charge(self.state, text.len())?;
        self.plain("\"");
        for (c, foreign) in strings::read(self.disguise, text) {
            let mut push = |text: &str| self.out.extend(text.chars().map(|c| (c, foreign)));
            match c {
                '"' => push("\\\""),
                '\\' => push("\\\\"),
                '\n' => push("\\n"),
                '\r' => push("\\r"),
                '\t' => push("\\t"),
                '\u{8}' => push("\\b"),
                '\u{c}' => push("\\f"),
                c if c < ' ' => push(&format!("\\u{:04x}", c as u32)),
                c if self.ensure_ascii && c > '~' => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        push(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.out.push((c, foreign)),
            }
        }
        self.plain("\"");
        Ok(())
    }
}

/// A float as Python's `repr` writes it.
fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if value == 0.0 || (1e-4..1e16).contains(&value.abs()) {
        return format!("{value:?}");
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::python_float;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-1.25e-7, "-1.25e-07"),
            (f64::INFINITY, "Infinity"),
        ] {
            assert_eq!(python_float(value), expected);
        }
    }
}
