//! From the text of an answer to content and calls, as it comes.

use super::format::HERMES_CLOSE;
use super::head::{Head, Place};
use super::{CallIds, ToolFormat, ToolUse};

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// Text outside of calls.
    Content(String),
    /// A call begins.
    Call {
        /// Its place among the answer's calls.
        index: usize,
        /// Links it to its result.
        id: String,
        /// The function.
        name: String,
    },
    /// A piece of a call's arguments.
    Arguments {
        /// The call's place.
        index: usize,
        /// Some of the JSON text.
        text: String,
    },
}

/// Finds the calls in an answer's text.
///
/// However the text is cut into pieces, the parts joined are the same. Text that turns out to be no call is content, in full;
/// of a call that the end cuts off, the arguments so far are passed on. Spaces between content and a call belong to neither.
#[derive(Clone, Debug)]
pub struct CallParser {
    format: ToolFormat,
    names: Vec<String>,
    ids: CallIds,
    state: State,
    /// Text that it is not yet known what it is.
    held: String,
    n_call: usize,
    /// Whether the last call has all of its arguments.
    is_complete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but spaces so far; a format without trigger begins its call here.
    Start,
    /// Content, up to the trigger.
    Text,
    /// The beginning of a call.
    Head(Place),
    /// A call's arguments.
    Arguments(Scan),
    /// What closes a call.
    Tail,
    /// Content in which no call is looked for: the format has none there.
    Rest,
}

/// Where in a JSON object a text is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Scan {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
}

impl Scan {
    /// Where the object ends in `text`, which goes on from here.
    fn end(&mut self, text: &str) -> Option<usize> {
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_string => self.is_escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' if !self.in_string => self.depth += 1,
                b'}' | b']' if !self.in_string => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

impl CallParser {
    /// A parser at the start of an answer.
    pub fn new(format: ToolFormat, tools: &ToolUse, ids: CallIds) -> Self {
        let names = tools.callable().map(|(_, tool)| tool.name.clone()).collect();
        let state = if format.trigger().is_some() { State::Text } else { State::Start };
        Self { format, names, ids, state, held: String::new(), n_call: 0, is_complete: false }
    }

    /// Takes the next piece of text, and appends to `out` what became certain with it.
    pub fn push(&mut self, text: &str, out: &mut Vec<Delta>) {
        self.held.push_str(text);
        while self.step(out) {}
    }

    /// Ends the text.
    pub fn finish(&mut self, out: &mut Vec<Delta>) {
        let held = std::mem::take(&mut self.held);
        let is_rest_of_call = match self.state {
            State::Tail => tail(self.format, &held) == Tail::Partial,
            // Behind a list's last call stands what closes it, or nothing.
            State::Head(Place::Next) | State::Text => self.n_call > 0 && held.trim_ascii().is_empty(),
            _ => false,
        };
        if !is_rest_of_call {
            content(out, &held);
        }
    }

    /// Whether there was a call, and the last one has all of its arguments.
    pub fn has_called(&self) -> bool {
        self.n_call > 0 && self.is_complete
    }

    /// Goes on by one part; false when more text is needed.
    fn step(&mut self, out: &mut Vec<Delta>) -> bool {
        if self.held.is_empty() {
            return false;
        }
        match self.state {
            State::Start => {
                self.state = State::Head(Place::First);
                true
            }
            State::Text => self.text(out),
            State::Head(place) => self.head(place, out),
            State::Arguments(scan) => self.arguments(scan, out),
            State::Tail => self.tail(),
            State::Rest => {
                content(out, &std::mem::take(&mut self.held));
                false
            }
        }
    }

    /// Content up to the trigger. The spaces before it are held until it is known whether it comes.
    fn text(&mut self, out: &mut Vec<Delta>) -> bool {
        let trigger = self.format.trigger().unwrap_or_default();
        let found = self.held.find(trigger);
        let end = found.unwrap_or_else(|| self.held.len() - partial(&self.held, trigger));
        let end = self.held[..end].trim_ascii_end().len();
        content(out, &self.held[..end]);
        self.held.drain(..end);
        if found.is_some() {
            self.state = State::Head(Place::First);
        }
        found.is_some()
    }

    fn head(&mut self, place: Place, out: &mut Vec<Delta>) -> bool {
        match Head::of(self.format, place, &self.names, &self.held) {
            Head::Partial => false,
            Head::Not => {
                self.not_a_call(out);
                true
            }
            Head::Whole { name, arguments_at } => {
                self.held.drain(..arguments_at);
                out.push(Delta::Call { index: self.n_call, id: self.ids.next(), name });
                self.n_call += 1;
                self.is_complete = false;
                self.state = State::Arguments(Scan::default());
                true
            }
        }
    }

    /// Gives up the beginning of a call. Behind its trigger, another may come.
    fn not_a_call(&mut self, out: &mut Vec<Delta>) {
        let len = match self.format.trigger() {
            Some(trigger) => self.held.find(trigger).map_or(0, |at| at + trigger.len()),
            None => self.held.len(),
        };
        content(out, &self.held[..len]);
        self.held.drain(..len);
        self.state = if self.format.trigger().is_some() { State::Text } else { State::Rest };
    }

    fn arguments(&mut self, mut scan: Scan, out: &mut Vec<Delta>) -> bool {
        let end = scan.end(&self.held);
        let text: String = self.held.drain(..end.unwrap_or(self.held.len())).collect();
        arguments(out, self.n_call - 1, text);
        self.is_complete = end.is_some();
        self.state = if end.is_some() { State::Tail } else { State::Arguments(scan) };
        end.is_some()
    }

    fn tail(&mut self) -> bool {
        let after = if self.format.trigger().is_some() { State::Text } else { State::Rest };
        let (len, state) = match tail(self.format, &self.held) {
            Tail::Partial => return false,
            // No call ends so: what follows its arguments is content, or the next call.
            Tail::Not => (0, after),
            Tail::Next(len) => (len, State::Head(Place::Next)),
            Tail::Whole(len) => (len, after),
        };
        self.held.drain(..len);
        self.state = state;
        true
    }
}

/// What stands behind the arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    Partial,
    Not,
    /// All that closes the call, of this length.
    Whole(usize),
    /// So much closes the call, and another one follows in the list.
    Next(usize),
}

fn tail(format: ToolFormat, text: &str) -> Tail {
    let parts: &[&str] = match format {
        ToolFormat::Hermes => &["}", HERMES_CLOSE],
        ToolFormat::Llama | ToolFormat::Generic | ToolFormat::Mistral => &["}"],
        ToolFormat::MistralNamed => &[],
    };
    let mut rest = text;
    for part in parts {
        rest = rest.trim_ascii_start();
        match rest.strip_prefix(part) {
            Some(after) => rest = after,
            None if part.starts_with(rest) => return Tail::Partial,
            None => return Tail::Not,
        }
    }
    if format == ToolFormat::Mistral {
        rest = rest.trim_ascii_start();
        match rest.bytes().next() {
            None => return Tail::Partial,
            Some(b']') => rest = &rest[1..],
            Some(b',') => return Tail::Next(text.len() - rest.len()),
            Some(_) => return Tail::Not,
        }
    }
    Tail::Whole(text.len() - rest.len())
}

/// Length of the longest end of `text` that a beginning of `trigger` is.
fn partial(text: &str, trigger: &str) -> usize {
    (1..trigger.len()).rev().find(|&len| text.ends_with(&trigger[..len])).unwrap_or(0)
}

fn content(out: &mut Vec<Delta>, text: &str) {
    match out.last_mut() {
        _ if text.is_empty() => {}
        Some(Delta::Content(last)) => last.push_str(text),
        _ => out.push(Delta::Content(text.to_owned())),
    }
}

fn arguments(out: &mut Vec<Delta>, at: usize, text: String) {
    match out.last_mut() {
        Some(Delta::Arguments { index, text: last }) if *index == at => last.push_str(&text),
        _ => out.push(Delta::Arguments { index: at, text }),
    }
}
