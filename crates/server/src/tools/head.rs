//! The beginning of a call, up to its arguments.

use super::ToolFormat;
use super::format::{MISTRAL_ARGUMENTS, PYTHON_TAG};

/// Longest beginning that is still taken for one: the longest name, and spaces beyond what any grammar lets through.
const MAX_HEAD_BYTES: usize = 512;

/// What a text is, as the beginning of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// It may become one.
    Partial,
    /// It is none.
    Not,
    /// It is one.
    Whole {
        /// The function.
        name: String,
        /// Where the arguments begin, with their brace.
        arguments_at: usize,
    },
}

/// Where in an answer a call begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At the format's trigger, or at the answer's start.
    First,
    /// Behind a call, where the format goes on in a list.
    Next,
}

impl Head {
    /// Looks at a text that starts where a call may.
    pub fn of(format: ToolFormat, place: Place, names: &[String], text: &str) -> Self {
        let mut cursor = Cursor { text, at: 0 };
        match cursor.head(format, place, names) {
            Ok(name) => Self::Whole { name, arguments_at: cursor.at },
            Err(Stop::Partial) if text.len() <= MAX_HEAD_BYTES => Self::Partial,
            Err(_) => Self::Not,
        }
    }
}

enum Stop {
    /// The text ends first.
    Partial,
    Mismatch,
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl Cursor<'_> {
    fn head(&mut self, format: ToolFormat, place: Place, names: &[String]) -> Result<String, Stop> {
        self.spaces();
        match (format, place) {
            (ToolFormat::Mistral, Place::Next) => self.literal(",")?,
            (ToolFormat::Llama, _) => _ = self.optional(PYTHON_TAG)?,
            (ToolFormat::Generic, _) => {}
            _ => self.literal(format.trigger().unwrap_or_default())?,
        }
        if format == ToolFormat::MistralNamed {
            let name = self.name()?;
            self.literal(MISTRAL_ARGUMENTS)?;
            self.spaces();
            self.literal_ahead("{")?;
            return known(name, names);
        }
        if (format, place) == (ToolFormat::Mistral, Place::First) {
            self.part("[")?;
        }
        self.part("{")?;
        if format == ToolFormat::Llama && self.optional("\"type\"")? {
            self.part(":")?;
            self.part("\"function\"")?;
            self.part(",")?;
        }
        self.part("\"name\"")?;
        self.part(":")?;
        self.part("\"")?;
        let name = known(self.name()?, names)?;
        self.literal("\"")?;
        self.part(",")?;
        self.part("\"")?;
        self.literal(format.arguments_key())?;
        self.literal("\"")?;
        self.part(":")?;
        self.spaces();
        self.literal_ahead("{")?;
        Ok(name)
    }

    /// A literal behind spaces, and the spaces behind it unless it opens a string.
    fn part(&mut self, literal: &str) -> Result<(), Stop> {
        self.spaces();
        self.literal(literal)?;
        if literal != "\"" {
            self.spaces();
        }
        Ok(())
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn spaces(&mut self) {
        self.at = self.text.len() - self.rest().trim_ascii_start().len();
    }

    fn literal_ahead(&self, literal: &str) -> Result<(), Stop> {
        let rest = self.rest();
        if rest.starts_with(literal) {
            Ok(())
        } else if literal.starts_with(rest) {
            Err(Stop::Partial)
        } else {
            Err(Stop::Mismatch)
        }
    }

    fn literal(&mut self, literal: &str) -> Result<(), Stop> {
        self.literal_ahead(literal)?;
        self.at += literal.len();
        Ok(())
    }

    fn optional(&mut self, literal: &str) -> Result<bool, Stop> {
        match self.literal(literal) {
            Ok(()) => {
                self.spaces();
                Ok(true)
            }
            Err(Stop::Mismatch) => Ok(false),
            Err(Stop::Partial) => Err(Stop::Partial),
        }
    }

    /// Letters, digits, underscores and dashes, and something behind them.
    fn name(&mut self) -> Result<String, Stop> {
        let rest = self.rest();
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let len = rest.bytes().position(|byte| !is_part(byte)).ok_or(Stop::Partial)?;
        let name = rest[..len].to_owned();
        self.at += len;
        Ok(name)
    }
}

fn known(name: String, names: &[String]) -> Result<String, Stop> {
    if names.contains(&name) { Ok(name) } else { Err(Stop::Mismatch) }
}
