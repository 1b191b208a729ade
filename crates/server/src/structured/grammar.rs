//! Grammars in the compiler's language.

use std::fmt::Write;

use super::JsonSchema;

/// A grammar, not yet compiled.
///
/// Rules are added one by one, `start` first. A rule's parts are made by [`literal`], [`json`](Self::json), [`token`] and
/// [`regex`], or are names of other rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grammar {
    text: String,
    schemas: Vec<JsonSchema>,
}

impl Grammar {
    /// Exactly one value of a schema.
    pub fn of_json(schema: &JsonSchema) -> Self {
        let mut grammar = Self::default();
        let value = grammar.json(schema);
        grammar.rule("start", &value);
        grammar
    }

    /// A value of a schema.
    pub fn json(&mut self, schema: &JsonSchema) -> String {
        self.schemas.push(schema.clone());
        format!("%json {}", schema.compiler_text())
    }

    /// Adds `name: body`.
    pub fn rule(&mut self, name: &str, body: &str) {
        // A string takes all that is written to it.
        let _ = writeln!(self.text, "{name}: {body}");
    }

    /// What the compiler reads.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The schemas in the text.
    pub fn schemas(&self) -> &[JsonSchema] {
        &self.schemas
    }
}

/// Exactly this text.
pub fn literal(text: &str) -> String {
    // The language has JSON's strings.
    serde_json::Value::from(text).to_string()
}

/// A token that isn't text.
pub fn token(id: u32) -> String {
    format!("<[{id}]>")
}

/// A regular expression. The text must not contain line breaks.
pub fn regex(pattern: &str) -> String {
    format!("/{}/", pattern.replace('/', "\\/"))
}

/// `pattern` with every character standing for itself.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        if !(char.is_ascii_alphanumeric() || matches!(char, '_' | ' ' | '<' | '>')) {
            out.push('\\');
        }
        out.push(char);
    }
    out
}
