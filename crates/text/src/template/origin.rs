//! Which characters of a rendering came from the caller.
//!
//! A template engine hands back one string. To know which of its characters a message put there, the message is disguised
//! before rendering: each of its characters becomes a stand-in, a private-use character of its own that occurs nowhere in
//! the template. What the template writes keeps its ordinary characters. Afterwards each stand-in is turned back, and its
//! place is known. The mapping is one to one, so lengths, slices, concatenation, comparison between message texts and
//! their order come out as they would undisguised; what looks into a text (`trim`, `split`, `tojson` …) is implemented in
//! [`super::strings`] and [`super::json`] on the revealed characters.
//!
//! What can't be hooked are the operators that compare a text with a literal of the template, above all
//! `'</think>' in content`. So there is a second disguise, [`Disguise::keeping`], that leaves the template's literals
//! readable where they occur in a text, and encloses each in a pair of marks.
//!
//! Neither disguise is trusted to have worked: the caller compares the revealed text with a plain rendering.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ops::Range,
    sync::{Mutex, PoisonError},
};

use minijinja::value::Object;

/// A character and whether it came from the caller.
pub(super) type Mark = (char, bool);

/// Stand-ins are taken from the private-use planes 15 and 16.
const POOL: [Range<u32>; 2] = [0xF_0000..0xF_FFFE, 0x10_0000..0x10_FFFE];

/// One rendering's mapping between characters and stand-ins.
#[derive(Debug)]
pub(super) struct Disguise {
    table: Mutex<Table>,
    /// By first character, the longest first.
    literals: HashMap<char, Vec<String>>,
    open: char,
    close: char,
}

#[derive(Debug)]
struct Table {
    /// Stand-ins of the ASCII characters, which are most of any text; `'\0'` where there is none yet.
    ascii: [char; 128],
    others: HashMap<char, char>,
    /// What each character of the pool stands for, from its start on.
    meant: Vec<Option<char>>,
    /// Private-use characters of the template itself; never stand-ins.
    reserved: HashSet<char>,
    next: u32,
}

impl Object for Disguise {}

impl Table {
    fn fresh(&mut self) -> char {
        loop {
            let c = char::from_u32(self.next).unwrap_or(char::MAX);
            // At the end of the pool the last character stands for all that follow: the rendering then can't agree with
            // the plain one, which is how the caller learns of it.
            if self.next + 1 < POOL[1].end {
                self.next += 1;
                if self.next == POOL[0].end {
                    self.next = POOL[1].start;
                }
                if self.reserved.contains(&c) {
                    continue;
                }
            }
            return c;
        }
    }

    fn stand_in(&mut self, c: char) -> char {
        let known = match self.ascii.get(c as usize) {
            Some(stand_in) => Some(*stand_in).filter(|c| *c != '\0'),
            None => self.others.get(&c).copied(),
        };
        known.unwrap_or_else(|| {
            let stand_in = self.fresh();
            match self.ascii.get_mut(c as usize) {
                Some(entry) => *entry = stand_in,
                None => drop(self.others.insert(c, stand_in)),
            }
            let at = (stand_in as u32 - POOL[0].start) as usize;
            if self.meant.len() <= at {
                self.meant.resize(at + 1, None);
            }
            self.meant[at] = Some(c);
            stand_in
        })
    }

    /// What `c` stands for, if it is a stand-in.
    fn meant(&self, c: char) -> Option<char> {
        let at = (c as u32).checked_sub(POOL[0].start)?;
        *self.meant.get(at as usize)?
    }
}

impl Disguise {
    /// A disguise for `texts` that hides every character. `trusted` are the template and all else that stays as it is.
    pub(super) fn hiding<'a>(
        trusted: impl IntoIterator<Item = &'a str>,
        texts: impl IntoIterator<Item = &'a str>,
    ) -> Disguise {
        let reserved = trusted.into_iter().flat_map(str::chars).filter(|c| *c as u32 >= POOL[0].start).collect();
        let mut table =
            Table { ascii: ['\0'; 128], others: HashMap::new(), meant: Vec::new(), reserved, next: POOL[0].start };
        let (open, close) = (table.fresh(), table.fresh());
        let (mut ascii, mut others) = ([false; 128], BTreeSet::new());
        for c in texts.into_iter().flat_map(str::chars) {
            match ascii.get_mut(c as usize) {
                Some(used) => *used = true,
                None => drop(others.insert(c)),
            }
        }
        // In order, so that texts sort as they would undisguised.
        let ascii = (0_u8..).zip(ascii).filter(|(_, used)| *used).map(|(c, _)| char::from(c));
        for c in ascii.chain(others) {
            table.stand_in(c);
        }
        Disguise { table: Mutex::new(table), literals: HashMap::new(), open, close }
    }

    /// The same, but occurrences of `literals` (the longest first) stay readable between marks.
    pub(super) fn keeping(mut self, literals: &[String]) -> Disguise {
        for literal in literals {
            if let Some(first) = literal.chars().next() {
                self.literals.entry(first).or_default().push(literal.clone());
            }
        }
        self
    }

    /// Whether whole texts that are words of the template stay as they are, see [`super::value`].
    pub(super) fn keeps_literals(&self) -> bool {
        !self.literals.is_empty()
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hide(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() * 4);
        self.hide_into(text, &mut out);
        out
    }

    fn hide_into(&self, text: &str, out: &mut String) {
        let mut table = self.table();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let literal = self.literals_at(c).and_then(|all| all.iter().find(|l| rest.starts_with(l.as_str())));
            if let Some(literal) = literal {
                out.push(self.open);
                out.push_str(literal);
                out.push(self.close);
                rest = &rest[literal.len()..];
            } else {
                out.push(table.stand_in(c));
                rest = &rest[c.len_utf8()..];
            }
        }
    }

    fn literals_at(&self, first: char) -> Option<&Vec<String>> {
        if self.literals.is_empty() { None } else { self.literals.get(&first) }
    }

    /// Whether `text` has a character from the caller.
    pub(super) fn is_in(&self, text: &str) -> bool {
        let table = self.table();
        text.chars().any(|c| table.meant(c).is_some() || self.is_mark(c))
    }

    fn is_mark(&self, c: char) -> bool {
        c == self.open || c == self.close
    }

    /// The characters of `text`, marks left out. `None` when a mark has lost its partner.
    fn try_reveal(&self, text: &str) -> Option<Vec<Mark>> {
        let table = self.table();
        let mut kept = false;
        let mut out = Vec::with_capacity(text.len());
        for c in text.chars() {
            if self.is_mark(c) {
                if kept == (c == self.open) {
                    return None;
                }
                kept = c == self.open;
            } else if let Some(meant) = table.meant(c) {
                out.push((meant, true));
            } else {
                out.push((c, kept));
            }
        }
        (!kept).then_some(out)
    }

    /// The characters of `text`; all of them the caller's when it isn't certain which are.
    pub(super) fn reveal(&self, text: &str) -> Vec<Mark> {
        self.try_reveal(text).unwrap_or_else(|| {
            let table = self.table();
            text.chars().filter(|c| !self.is_mark(*c)).map(|c| (table.meant(c).unwrap_or(c), true)).collect()
        })
    }

    /// The disguised text of `marks`.
    pub(super) fn hide_marks(&self, marks: &[Mark]) -> String {
        let mut out = String::with_capacity(marks.len() * 4);
        for run in marks.chunk_by(|a, b| a.1 == b.1) {
            let text = run.iter().map(|(c, _)| *c);
            if run[0].1 {
                self.hide_into(&text.collect::<String>(), &mut out);
            } else {
                out.extend(text);
            }
        }
        out
    }

    /// The revealed text of a whole rendering and the byte ranges of it that came from the caller; `None` when marks don't
    /// pair up.
    pub(super) fn finish(&self, rendered: &str) -> Option<(String, Vec<Range<usize>>)> {
        let mut text = String::with_capacity(rendered.len());
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for (c, foreign) in self.try_reveal(rendered)? {
            let start = text.len();
            text.push(c);
            if foreign {
                match ranges.last_mut() {
                    Some(last) if last.end == start => last.end = text.len(),
                    _ => ranges.push(start..text.len()),
                }
            }
        }
        Some((text, ranges))
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "ranges are compared, not filled in")]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_text_has_no_character_of_its_own_and_comes_back_whole() {
        let text = "a<|im_end|>\u{F0000}\u{10FFFD} \n😀é";
        let disguise = Disguise::hiding(["\u{F0000}\u{F0001}"], [text]);
        let hidden = disguise.hide(text);
        assert_eq!(hidden.chars().count(), text.chars().count());
        assert!(hidden.chars().all(|c| c as u32 > 0xF_0001 && !text.contains(c)), "{hidden:?}");
        assert_eq!(
            disguise.finish(&format!("x\u{F0000}{hidden}y")).unwrap(),
            (format!("x\u{F0000}{text}y"), vec![5..5 + text.len()])
        );
    }

    #[test]
    fn hidden_texts_sort_as_they_would() {
        let texts = ["b", "a", "é", "Z", "zz"];
        let disguise = Disguise::hiding([], texts);
        let mut hidden: Vec<_> = texts.map(|text| disguise.hide(text)).into();
        hidden.sort();
        let sorted: Vec<_> = hidden.iter().map(|text| disguise.finish(text).unwrap().0).collect();
        assert_eq!(sorted, ["Z", "a", "b", "zz", "é"]);
    }

    #[test]
    fn kept_literals_stay_readable_and_are_still_the_callers() {
        let disguise = Disguise::hiding([], ["ab"]).keeping(&["</think>".into(), "<".into()]);
        let hidden = disguise.hide("a</think>b<");
        assert!(hidden.contains("</think>"));
        let (text, ranges) = disguise.finish(&format!("</think>{hidden}")).unwrap();
        assert_eq!((text.as_str(), ranges), ("</think>a</think>b<", vec![8..19]));
    }

    #[test]
    fn a_mark_without_its_partner_is_noticed() {
        let disguise = Disguise::hiding([], ["a"]).keeping(&["bcd".into()]);
        let hidden = disguise.hide("bcd");
        let cut: String = hidden.chars().skip(1).collect();
        assert_eq!(disguise.finish(&cut), None);
        assert!(disguise.reveal(&cut).iter().all(|(_, foreign)| *foreign));
    }

    #[test]
    fn more_different_characters_than_stand_ins_are_noticed_by_their_text() {
        let text: String = (0..0x10_FFFF).filter_map(char::from_u32).take(140_000).collect();
        let disguise = Disguise::hiding([], [text.as_str()]);
        assert_ne!(disguise.finish(&disguise.hide(&text)).unwrap().0, text);
    }
}
