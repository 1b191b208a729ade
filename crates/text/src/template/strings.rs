//! Python's string methods and the filters on strings, with the origin of each character kept.
//!
//! Plain and disguised renderings run through the same code: a text is read as characters with a flag, worked on, and
//! written back. Where a method makes a new text whose characters can't be matched with the old ones, a text with any
//! character of the caller becomes the caller's altogether.
#![expect(clippy::needless_pass_by_value, reason = "the engine calls filters with owned arguments")]

use std::{borrow::Cow, sync::Arc};

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Kwargs, Rest, StringInput, ValueKind, ValueOrKwargs, from_args},
};
use minijinja_contrib::pycompat;

use super::{
    environment::{DISGUISE, charge},
    origin::{Disguise, Mark},
};

/// The disguise of the rendering in progress.
pub(super) fn disguise(state: &State<'_, '_>) -> Option<Arc<Disguise>> {
    state.lookup(DISGUISE)?.downcast_object()
}

pub(super) fn read(disguise: Option<&Disguise>, text: &str) -> Vec<Mark> {
    match disguise {
        Some(disguise) => disguise.reveal(text),
        None => text.chars().map(|c| (c, false)).collect(),
    }
}

pub(super) fn write(disguise: Option<&Disguise>, marks: &[Mark]) -> Value {
    match disguise {
        Some(disguise) => Value::from(disguise.hide_marks(marks)),
        None => Value::from(marks.iter().map(|(c, _)| *c).collect::<String>()),
    }
}

/// `text` without disguise.
fn revealed<'a>(disguise: Option<&Disguise>, text: &'a str) -> Cow<'a, str> {
    match disguise {
        Some(disguise) if disguise.is_in(text) => disguise.reveal(text).iter().map(|(c, _)| *c).collect(),
        _ => Cow::Borrowed(text),
    }
}

fn revealed_value(disguise: Option<&Disguise>, value: &Value) -> Value {
    match value.as_str() {
        Some(text) => Value::from(revealed(disguise, text).into_owned()),
        // The prefixes of `startswith` may be a tuple.
        None if matches!(value.kind(), ValueKind::Seq) => value
            .try_iter()
            .map_or_else(|_| value.clone(), |items| items.map(|item| revealed_value(disguise, &item)).collect()),
        None => value.clone(),
    }
}

/// What Python's `str.isspace` and `str.strip` call a space.
fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

/// What Python's `str.splitlines` splits at.
fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Left,
    Right,
    Both,
}

fn strip<'a>(mut text: &'a [Mark], chars: Option<&str>, side: Side) -> &'a [Mark] {
    let strips = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    if side != Side::Right {
        text = &text[text.iter().take_while(|(c, _)| strips(*c)).count()..];
    }
    if side != Side::Left {
        text = &text[..text.len() - text.iter().rev().take_while(|(c, _)| strips(*c)).count()];
    }
    text
}

fn starts_with(text: &[Mark], prefix: &[char]) -> bool {
    text.len() >= prefix.len() && text.iter().zip(prefix).all(|((a, _), b)| a == b)
}

/// Up to `max` places where `what` (not empty) occurs, none overlapping, from the left. Linear in both lengths
/// (Knuth, Morris, Pratt): both may be a caller's.
fn occurrences(text: impl Iterator<Item = char>, what: &[char], max: usize) -> Vec<usize> {
    // `border[i]`: length of the longest proper prefix of `what` that ends at `i`.
    let mut border = vec![0; what.len()];
    let mut matched = 0;
    for i in 1..what.len() {
        while matched > 0 && what[i] != what[matched] {
            matched = border[matched - 1];
        }
        matched += usize::from(what[i] == what[matched]);
        border[i] = matched;
    }
    let (mut found, mut matched) = (Vec::new(), 0);
    for (at, c) in text.enumerate() {
        if found.len() == max {
            break;
        }
        while matched > 0 && c != what[matched] {
            matched = border[matched - 1];
        }
        matched += usize::from(c == what[matched]);
        if matched == what.len() {
            found.push(at + 1 - matched);
            matched = 0;
        }
    }
    found
}

fn find(text: &[Mark], what: &[char], max: usize) -> Vec<usize> {
    occurrences(text.iter().map(|(c, _)| *c), what, max)
}

/// As [`find`], from the right; the places are still in ascending order.
fn rfind(text: &[Mark], what: &[char], max: usize) -> Vec<usize> {
    let backwards: Vec<char> = what.iter().rev().copied().collect();
    let mut found = occurrences(text.iter().rev().map(|(c, _)| *c), &backwards, max);
    for at in &mut found {
        *at = text.len() - *at - what.len();
    }
    found.reverse();
    found
}

fn cut<'a>(text: &'a [Mark], places: &[usize], separator_len: usize) -> Vec<&'a [Mark]> {
    let mut from = 0;
    let mut parts = Vec::with_capacity(places.len() + 1);
    for &at in places {
        parts.push(&text[from..at]);
        from = at + separator_len;
    }
    parts.push(&text[from..]);
    parts
}

fn split_spaces(text: &[Mark], max: usize) -> Vec<&[Mark]> {
    let (mut parts, mut rest) = (Vec::new(), strip(text, None, Side::Left));
    while !rest.is_empty() {
        let word = if parts.len() < max { rest.iter().take_while(|(c, _)| !is_space(*c)).count() } else { rest.len() };
        parts.push(&rest[..word]);
        rest = strip(&rest[word..], None, Side::Left);
    }
    parts
}

fn rsplit_spaces(text: &[Mark], max: usize) -> Vec<&[Mark]> {
    let (mut parts, mut rest) = (Vec::new(), strip(text, None, Side::Right));
    while !rest.is_empty() {
        let word =
            if parts.len() < max { rest.iter().rev().take_while(|(c, _)| !is_space(*c)).count() } else { rest.len() };
        parts.push(&rest[rest.len() - word..]);
        rest = strip(&rest[..rest.len() - word], None, Side::Right);
    }
    parts.reverse();
    parts
}

fn split_lines(text: &[Mark], keep_ends: bool) -> Vec<&[Mark]> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let line = rest.iter().take_while(|(c, _)| !is_line_end(*c)).count();
        let end = match rest.get(line..).unwrap_or_default() {
            [('\r', _), ('\n', _), ..] => 2,
            [] => 0,
            _ => 1,
        };
        parts.push(&rest[..line + if keep_ends { end } else { 0 }]);
        rest = &rest[line + end..];
    }
    parts
}

fn replace(state: &State<'_, '_>, text: &[Mark], old: &[char], new: &[Mark], max: usize) -> Result<Vec<Mark>, Error> {
    let places = match old {
        // Nothing is found before every character and at the end.
        [] => (0..=text.len()).take(max).collect(),
        old => find(text, old, max),
    };
    charge(state, places.len().saturating_mul(new.len()))?;
    let parts = cut(text, &places, old.len());
    Ok(parts.join(new))
}

/// As Python's `str.title` has it: what follows a letter is small.
fn title(text: &[Mark]) -> Vec<Mark> {
    let mut after_letter = false;
    let mut out = Vec::with_capacity(text.len());
    for &(c, foreign) in text {
        if after_letter {
            out.extend(c.to_lowercase().map(|c| (c, foreign)));
        } else {
            let mut upper = c.to_uppercase();
            out.extend(upper.next().map(|c| (c, foreign)));
            out.extend(upper.flat_map(char::to_lowercase).map(|c| (c, foreign)));
        }
        after_letter = c.is_lowercase() || c.is_uppercase();
    }
    out
}

/// The flags of `old` on the text it became.
fn relabel(old: &[Mark], new: &str) -> Vec<Mark> {
    if new.chars().count() == old.len() {
        return new.chars().zip(old).map(|(c, (_, foreign))| (c, *foreign)).collect();
    }
    let foreign = old.iter().any(|(_, foreign)| *foreign);
    new.chars().map(|c| (c, foreign)).collect()
}

/// How many times a `count` or `maxsplit` argument allows.
fn times(limit: Option<i64>) -> usize {
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Python's methods on strings, maps and lists.
pub(super) fn call_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return pycompat::unknown_method_callback(state, value, method, args);
    };
    charge(state, text.len())?;
    let disguise = disguise(state);
    let disguise = disguise.as_deref();
    let chars = |text: &str| -> Vec<char> { revealed(disguise, text).chars().collect() };
    let separator_chars = |text: &str| match chars(text) {
        chars if chars.is_empty() => Err(Error::new(ErrorKind::InvalidOperation, "empty separator")),
        chars => Ok(chars),
    };
    let put = |marks: &[Mark]| write(disguise, marks);
    let list = |parts: Vec<&[Mark]>| Value::from(parts.into_iter().map(put).collect::<Vec<_>>());
    Ok(match method {
        // These only join texts, which needs no look at their characters.
        "join" | "format" => return pycompat::unknown_method_callback(state, value, method, args),
        "strip" | "lstrip" | "rstrip" => {
            let (stripped,): (Option<&str>,) = from_args(args)?;
            let stripped = stripped.map(|text| revealed(disguise, text));
            let side = match method {
                "strip" => Side::Both,
                "lstrip" => Side::Left,
                _ => Side::Right,
            };
            put(strip(&read(disguise, text), stripped.as_deref(), side))
        }
        "split" | "rsplit" => {
            let (args, kwargs): (&[Value], Kwargs) = from_args(args)?;
            let (separator, max): (Option<&str>, Option<i64>) = from_args(args)?;
            let separator = separator.or(kwargs.get("sep")?);
            let max = times(max.or(kwargs.get("maxsplit")?));
            kwargs.assert_all_used()?;
            let marks = read(disguise, text);
            match separator.map(separator_chars).transpose()? {
                Some(what) if method == "split" => list(cut(&marks, &find(&marks, &what, max), what.len())),
                Some(what) => list(cut(&marks, &rfind(&marks, &what, max), what.len())),
                None if method == "split" => list(split_spaces(&marks, max)),
                None => list(rsplit_spaces(&marks, max)),
            }
        }
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(args)?;
            list(split_lines(&read(disguise, text), keep_ends.unwrap_or(false)))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (marks, what) = (read(disguise, text), separator_chars(separator)?);
            let (found, absent) = match method {
                "partition" => (find(&marks, &what, 1), marks.len()),
                _ => (rfind(&marks, &what, 1), 0),
            };
            let (left, right) = found.first().map_or((absent, absent), |at| (*at, at + what.len()));
            list(vec![&marks[..left], &marks[left..right], &marks[right..]])
        }
        "removeprefix" | "removesuffix" => {
            let (affix,): (&str,) = from_args(args)?;
            let (marks, affix) = (read(disguise, text), chars(affix));
            let rest = marks.len().saturating_sub(affix.len());
            match method {
                "removeprefix" if starts_with(&marks, &affix) => put(&marks[affix.len()..]),
                "removesuffix" if starts_with(&marks[rest..], &affix) => put(&marks[..rest]),
                _ => value.clone(),
            }
        }
        "replace" => {
            let (old, new, max): (&str, &str, Option<i64>) = from_args(args)?;
            put(&replace(state, &read(disguise, text), &chars(old), &read(disguise, new), times(max))?)
        }
        "title" => {
            let () = from_args(args)?;
            put(&title(&read(disguise, text)))
        }
        "upper" | "lower" | "capitalize" => {
            let plain = Value::from(revealed(disguise, text).into_owned());
            let changed = pycompat::unknown_method_callback(state, &plain, method, args)?;
            put(&relabel(&read(disguise, text), changed.as_str().unwrap_or_default()))
        }
        // The rest answer a question about the text.
        _ => {
            let args: Vec<Value> = args.iter().map(|arg| revealed_value(disguise, arg)).collect();
            let plain = Value::from(revealed(disguise, text).into_owned());
            return pycompat::unknown_method_callback(state, &plain, method, &args);
        }
    })
}

/// `text | trim`, `text | trim(chars)`.
pub(super) fn trim(state: &State<'_, '_>, text: Cow<'_, str>, chars: Option<&str>) -> Result<Value, Error> {
    charge(state, text.len())?;
    let disguise = disguise(state);
    let disguise = disguise.as_deref();
    let chars = chars.map(|chars| revealed(disguise, chars));
    Ok(write(disguise, strip(&read(disguise, &text), chars.as_deref(), Side::Both)))
}

/// `text | replace(old, new, count)`.
pub(super) fn replace_filter(
    state: &State<'_, '_>,
    text: Cow<'_, str>,
    old: Cow<'_, str>,
    new: Cow<'_, str>,
    count: Option<i64>,
) -> Result<Value, Error> {
    charge(state, text.len())?;
    let disguise = disguise(state);
    let disguise = disguise.as_deref();
    let old: Vec<char> = revealed(disguise, &old).chars().collect();
    let marks = replace(state, &read(disguise, &text), &old, &read(disguise, &new), times(count))?;
    Ok(write(disguise, &marks))
}

/// `value | length`: characters of a string, items of anything else.
pub(super) fn length(state: &State<'_, '_>, value: &Value) -> Result<usize, Error> {
    match (value.as_str(), disguise(state)) {
        (Some(text), Some(disguise)) => Ok(disguise.reveal(text).len()),
        _ => minijinja::filters::length(value),
    }
}

/// `text | indent(width, first, blank)`.
pub(super) fn indent(state: &State<'_, '_>, text: Cow<'_, str>, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let (width, first, blank, kwargs): (Option<usize>, Option<bool>, Option<bool>, Kwargs) = from_args(&args)?;
    let width = checked_indent(width.or(kwargs.get("width")?).unwrap_or(4))?;
    let first = first.or(kwargs.get("first")?).unwrap_or(false);
    let blank = blank.or(kwargs.get("blank")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let disguise = disguise(state);
    let disguise = disguise.as_deref();
    // With a line end more, so that a last one survives the splitting.
    let mut marks = read(disguise, &text);
    marks.push(('\n', false));
    let lines = split_lines(&marks, false);
    charge(state, text.len() + lines.len() * width)?;
    let mut out = Vec::with_capacity(text.len() + lines.len() * width);
    for (at, line) in lines.into_iter().enumerate() {
        if at > 0 {
            out.push(('\n', false));
        }
        if (at == 0 && first) || (at > 0 && (blank || !line.is_empty())) {
            out.extend(std::iter::repeat_n((' ', false), width));
        }
        out.extend_from_slice(line);
    }
    Ok(write(disguise, &out))
}

/// Refuses an indentation that only serves to make a small text huge.
pub(super) fn checked_indent(width: usize) -> Result<usize, Error> {
    const MAX: usize = 256;
    if width > MAX {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("an indentation of {width}; the limit is {MAX}")));
    }
    Ok(width)
}

/// `text | upper` and its like; `text | title` differs from the method of that name in what it takes for a word.
pub(super) fn changing_case(
    change: impl Fn(StringInput<'_>) -> Value + Send + Sync + 'static,
) -> impl Fn(&State<'_, '_>, Cow<'_, str>) -> Result<Value, Error> + Send + Sync + 'static {
    move |state, text| {
        charge(state, text.len())?;
        let disguise = disguise(state);
        let disguise = disguise.as_deref();
        let plain = Value::from(revealed(disguise, &text).into_owned());
        let changed = change(StringInput::new(state, &plain)?);
        Ok(write(disguise, &relabel(&read(disguise, &text), changed.as_str().unwrap_or_default())))
    }
}
