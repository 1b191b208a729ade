//! Where everything lies in a valid file, found without the parser under test, and where `muser inspect` shows it.

use std::ops::Range;

/// A part of a file that has one meaning.
#[derive(Clone, Debug)]
pub struct Field {
    pub bytes: Range<usize>,
    pub kind: Kind,
    /// Places of the document that this part decides, as paths; keys of the metadata go by their position.
    pub shown_at: Vec<String>,
}

/// What a part of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What all that follows depends on: the magic, a count, a length, a number of dimensions. Only one value is right.
    Structure,
    /// A number, an id or a bool.
    Number,
    Text,
    /// Bytes that nothing reads.
    Padding,
}

/// The fields of a valid file from its start to the data.
pub fn fields(file: &[u8]) -> Vec<Field> {
    let mut walk = Walk { file, at: 0, fields: Vec::new() };
    walk.take(4, Kind::Structure, &[]);
    walk.take(4, Kind::Number, &["/version".into(), "/files/0/version".into()]);
    let n_tensors = walk.number(8, Kind::Structure, &[]);
    let n_metadata = walk.number(8, Kind::Structure, &[]);
    let mut alignment = 32;
    for index in 0..n_metadata {
        let at = format!("/metadata/{index}");
        // The one key that decides what lies elsewhere.
        let is_alignment = walk.peek_text() == b"general.alignment";
        let also = if is_alignment { vec!["/alignment".into(), "/files/0/alignment".into()] } else { Vec::new() };
        walk.text(&[vec![format!("{at}/key")], also.clone()].concat());
        let parts = ["type", "elem_type", "value", "len"].map(|part| format!("{at}/{part}"));
        let ty = walk.number(4, Kind::Number, &parts);
        let value_at = walk.at;
        walk.value(ty, &at, &[vec![format!("{at}/value")], also].concat());
        if is_alignment {
            alignment = little_endian(&file[value_at..value_at + 4]);
        }
    }
    for index in 0..n_tensors {
        let at = format!("/tensors/{index}");
        let size = format!("{at}/size_bytes");
        walk.text(&[format!("{at}/name")]);
        let n_dims = walk.number(4, Kind::Structure, &[]);
        for dim in 0..n_dims {
            walk.take(8, Kind::Number, &[format!("{at}/dims/{dim}"), size.clone()]);
        }
        walk.take(4, Kind::Number, &[format!("{at}/type"), size]);
        walk.take(8, Kind::Number, &[format!("{at}/offset")]);
    }
    walk.take(walk.at.next_multiple_of(alignment as usize) - walk.at, Kind::Padding, &[]);
    walk.fields
}

struct Walk<'a> {
    file: &'a [u8],
    at: usize,
    fields: Vec<Field>,
}

impl Walk<'_> {
    fn take(&mut self, len: usize, kind: Kind, shown_at: &[String]) {
        self.fields.push(Field { bytes: self.at..self.at + len, kind, shown_at: shown_at.to_vec() });
        self.at += len;
    }

    fn number(&mut self, len: usize, kind: Kind, shown_at: &[String]) -> u64 {
        let number = little_endian(&self.file[self.at..self.at + len]);
        self.take(len, kind, shown_at);
        number
    }

    fn peek_text(&self) -> &[u8] {
        let len = little_endian(&self.file[self.at..self.at + 8]) as usize;
        &self.file[self.at + 8..][..len]
    }

    fn text(&mut self, shown_at: &[String]) {
        let len = self.number(8, Kind::Structure, &[]);
        self.take(len as usize, Kind::Text, shown_at);
    }

    fn value(&mut self, ty: u64, entry_at: &str, shown_at: &[String]) {
        match ty {
            8 => self.text(shown_at),
            9 => {
                let elem_type = self.number(4, Kind::Number, &[format!("{entry_at}/elem_type"), shown_at[0].clone()]);
                let len = self.number(8, Kind::Structure, &[]);
                for index in 0..len {
                    self.value(elem_type, entry_at, &[format!("{entry_at}/value/{index}")]);
                }
            }
            _ => self.take([1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8][ty as usize], Kind::Number, shown_at),
        }
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}
