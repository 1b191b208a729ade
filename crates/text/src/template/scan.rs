//! One pass over a template's source before the template engine sees it.
//!
//! The engine parses and compiles by recursion, and lets a namespace hold itself, so neither the depth of what it is given
//! nor the depth of the values a template builds may be left to it. This pass bounds the first and rewrites the source so
//! that [`KEEP`] can bound the second. It also turns the `generation` blocks of training templates into plain scopes, and
//! collects the template's own words and literals.

use std::collections::HashSet;

use super::{MAX_ELIF, MAX_NESTING, MAX_SOURCE_BYTES, MAX_TAG_TOKENS, TemplateError};

/// The function that every assigned value passes through, see [`super::environment`]. Its second argument says whether
/// the target is a plain name, rather than an attribute or several.
pub(super) const KEEP: &str = "muser_keep_";

/// A source ready for the engine.
pub(super) struct Scanned {
    /// The source with assignments guarded and `generation` blocks made scopes; line numbers are those of the original.
    pub source: String,
    /// Every word (`A-Z a-z 0-9 _ - $`) of the source: the names and enumeration values the template may look for.
    pub words: HashSet<String>,
    /// Every string literal, the longest first.
    pub literals: Vec<String>,
}

/// Checks and prepares `source`.
///
/// # Errors
///
/// [`TemplateError::SourceTooLong`], [`TemplateError::TooDeep`], [`TemplateError::TagTooLong`] and
/// [`TemplateError::TooManyBranches`] when a limit is passed. Syntax is the engine's to judge.
pub(super) fn scan(source: &str) -> Result<Scanned, TemplateError> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(TemplateError::SourceTooLong { size_bytes: source.len(), max: MAX_SOURCE_BYTES });
    }
    let mut scanner = Scanner {
        source,
        at: 0,
        copied: 0,
        out: String::with_capacity(source.len() + source.len() / 16),
        blocks: 0,
        branches: 0,
        literals: HashSet::new(),
    };
    scanner.run()?;
    let mut literals: Vec<String> = scanner.literals.into_iter().collect();
    literals.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    Ok(Scanned { source: scanner.out, words: words(source), literals })
}

fn words(source: &str) -> HashSet<String> {
    source.split(|c: char| !is_word_char(c)).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Whether `c` may be part of a word as [`Scanned::words`] has them.
pub(super) fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$')
}

struct Scanner<'a> {
    source: &'a str,
    /// Byte position of the scan.
    at: usize,
    /// The source up to here is in `out`.
    copied: usize,
    out: String,
    /// Open block statements.
    blocks: usize,
    branches: usize,
    literals: HashSet<String>,
}

/// What one `{{ … }}` or `{% … %}` turned out to hold.
#[derive(Default)]
struct Tag {
    tokens: usize,
    /// Byte range of the word that the tag begins with.
    keyword: Option<(usize, usize)>,
    /// Byte position behind the first `=` outside brackets.
    assigned_at: Option<usize>,
    /// Byte position of the closing delimiter, its whitespace sign included.
    end: usize,
}

impl Scanner<'_> {
    fn run(&mut self) -> Result<(), TemplateError> {
        while let Some(found) = self.source[self.at..].find('{') {
            self.at += found;
            match self.source.as_bytes().get(self.at + 1) {
                Some(b'#') => self.skip_past("#}"),
                Some(b'{') => {
                    self.at += 2;
                    self.tag(*b"}}")?;
                }
                Some(b'%') => {
                    self.at += 2;
                    let tag = self.tag(*b"%}")?;
                    self.statement(&tag)?;
                }
                _ => self.at += 1,
            }
        }
        self.out.push_str(&self.source[self.copied..]);
        Ok(())
    }

    fn statement(&mut self, tag: &Tag) -> Result<(), TemplateError> {
        let Some((start, end)) = tag.keyword else { return Ok(()) };
        match &self.source[start..end] {
            "set" if tag.assigned_at.is_some() => {
                let value_at = tag.assigned_at.unwrap_or_default();
                let target = self.source[end..value_at].trim_end_matches('=').trim();
                let to_name = target.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                self.replace(value_at..value_at, &format!(" {KEEP}(("));
                self.replace(tag.end..tag.end, &format!("), {to_name}) "));
            }
            "generation" => {
                self.replace(start..end, "with");
                self.open_block()?;
            }
            "endgeneration" => {
                self.replace(start..end, "endwith");
                self.blocks = self.blocks.saturating_sub(1);
            }
            "raw" => self.skip_raw(),
            "if" | "for" | "macro" | "call" | "filter" | "with" | "autoescape" | "block" | "set" => {
                self.open_block()?;
            }
            "elif" => {
                self.branches += 1;
                if self.branches > MAX_ELIF {
                    return Err(TemplateError::TooManyBranches { max: MAX_ELIF, line: self.line_at(start) });
                }
            }
            keyword if keyword.starts_with("end") => self.blocks = self.blocks.saturating_sub(1),
            _ => {}
        }
        Ok(())
    }

    /// Reads from behind an opening delimiter to behind `close`, or to the end of the source.
    fn tag(&mut self, close: [u8; 2]) -> Result<Tag, TemplateError> {
        let bytes = self.source.as_bytes();
        let mut tag = Tag { end: bytes.len(), ..Tag::default() };
        let mut brackets = 0_usize;
        if matches!(bytes.get(self.at), Some(b'-' | b'+')) {
            self.at += 1;
        }
        while let Some(&byte) = bytes.get(self.at) {
            let start = self.at;
            if brackets == 0 && self.closes(close) {
                tag.end = start;
                self.at += if bytes[start] == close[0] { 2 } else { 3 };
                break;
            }
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => {
                    self.at += 1;
                    continue;
                }
                b'\'' | b'"' => self.literal(byte),
                b'(' | b'[' | b'{' => {
                    self.at += 1;
                    brackets += 1;
                    if brackets > MAX_NESTING {
                        return Err(TemplateError::TooDeep { max: MAX_NESTING, line: self.line_at(start) });
                    }
                }
                b')' | b']' | b'}' => {
                    self.at += 1;
                    brackets = brackets.saturating_sub(1);
                }
                b'=' | b'!' | b'<' | b'>' if bytes.get(start + 1) == Some(&b'=') => self.at += 2,
                b'=' => {
                    self.at += 1;
                    if brackets == 0 && tag.assigned_at.is_none() {
                        tag.assigned_at = Some(self.at);
                    }
                }
                _ if byte.is_ascii_alphanumeric() || byte == b'_' => {
                    while bytes.get(self.at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_') {
                        self.at += 1;
                    }
                    if tag.tokens == 0 {
                        tag.keyword = Some((start, self.at));
                    }
                }
                _ => self.at += self.source[start..].chars().next().map_or(1, char::len_utf8),
            }
            tag.tokens += 1;
            if tag.tokens > MAX_TAG_TOKENS {
                return Err(TemplateError::TagTooLong { max: MAX_TAG_TOKENS, line: self.line_at(start) });
            }
        }
        Ok(tag)
    }

    fn closes(&self, close: [u8; 2]) -> bool {
        let rest = &self.source.as_bytes()[self.at..];
        rest.starts_with(&close) || (matches!(rest.first(), Some(b'-' | b'+')) && rest[1..].starts_with(&close))
    }

    /// Reads a quoted string and remembers what it says.
    fn literal(&mut self, quote: u8) {
        let bytes = self.source.as_bytes();
        let start = self.at + 1;
        self.at = start;
        let mut escaped = false;
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'\\' => {
                    escaped = true;
                    self.at += 2;
                }
                _ if byte == quote => break,
                _ => self.at += 1,
            }
        }
        // A backslash may have stepped over the end of the source, or into a character.
        self.at = self.at.min(bytes.len());
        while !self.source.is_char_boundary(self.at) {
            self.at += 1;
        }
        let text = &self.source[start..self.at];
        self.at = (self.at + 1).min(bytes.len());
        let text = if escaped { unescape(text) } else { Some(text.to_owned()) };
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.literals.insert(text);
        }
    }

    fn open_block(&mut self) -> Result<(), TemplateError> {
        self.blocks += 1;
        if self.blocks > MAX_NESTING {
            return Err(TemplateError::TooDeep { max: MAX_NESTING, line: self.line_at(self.at) });
        }
        Ok(())
    }

    fn skip_past(&mut self, end: &str) {
        self.at = self.source[self.at..].find(end).map_or(self.source.len(), |found| self.at + found + end.len());
    }

    /// Goes to the `{%` of the matching `endraw`.
    fn skip_raw(&mut self) {
        let mut from = self.at;
        while let Some(found) = self.source[from..].find("{%") {
            let inside = &self.source[from + found + 2..];
            let inside = inside.strip_prefix(['-', '+']).unwrap_or(inside);
            if inside.trim_start().starts_with("endraw") {
                self.at = from + found;
                return;
            }
            from += found + 2;
        }
        self.at = self.source.len();
    }

    fn replace(&mut self, range: std::ops::Range<usize>, with: &str) {
        self.out.push_str(&self.source[self.copied..range.start]);
        self.out.push_str(with);
        self.copied = range.end;
    }

    fn line_at(&self, at: usize) -> usize {
        1 + self.source[..at].matches('\n').count()
    }
}

/// The text of a literal with simple escapes; `None` for the escapes that no template compares with.
fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                c @ ('\\' | '\'' | '"' | '/') => c,
                _ => return None,
            },
            c => c,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(source: &str) -> String {
        scan(source).unwrap().source
    }

    #[test]
    fn an_assignment_is_guarded_and_everything_else_stays_as_it_was() {
        assert_eq!(
            rewritten("a {%- set ns.x = f(b=1) == '%}' -%} c {{ x == {'a': {}} }} {# {% set a = 1 %} #}"),
            "a {%- set ns.x = muser_keep_(( f(b=1) == '%}' ), false) -%} c {{ x == {'a': {}} }} {# {% set a = 1 %} #}"
        );
        assert_eq!(rewritten("{% set x %}a = b{% endset %}"), "{% set x %}a = b{% endset %}");
        assert_eq!(rewritten("{% raw %}{% set a = 1 %}{% endraw %}"), "{% raw %}{% set a = 1 %}{% endraw %}");
    }

    #[test]
    fn generation_blocks_become_scopes() {
        assert_eq!(rewritten("{%- generation -%}a{% endgeneration %}"), "{%- with -%}a{% endwith %}");
    }

    #[test]
    fn words_and_literals_are_collected_with_their_escapes_read() {
        let scanned = scan(r#"{% if '</think>' in m.content or x == "a\n" %}{% endif %}"#).unwrap();
        assert_eq!(scanned.literals, ["</think>", "a\n"]);
        assert!(scanned.words.contains("content") && scanned.words.contains("think"));
    }

    #[test]
    fn limits_name_the_line() {
        let deep = format!("\n{}", "{% if x %}".repeat(MAX_NESTING + 1));
        assert!(matches!(scan(&deep), Err(TemplateError::TooDeep { line: 2, .. })));
        let brackets = format!("\n\n{{{{ {}", "(".repeat(MAX_NESTING + 1));
        assert!(matches!(scan(&brackets), Err(TemplateError::TooDeep { line: 3, .. })));
        let chain = format!("{{{{ 1{} }}}}", "+1".repeat(MAX_TAG_TOKENS));
        assert!(matches!(scan(&chain), Err(TemplateError::TagTooLong { line: 1, .. })));
        let branches = format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(MAX_ELIF + 1));
        assert!(matches!(scan(&branches), Err(TemplateError::TooManyBranches { line: 1, .. })));
        assert!(matches!(scan(&" ".repeat(MAX_SOURCE_BYTES + 1)), Err(TemplateError::SourceTooLong { .. })));
    }

    #[test]
    fn cut_off_sources_are_left_to_the_engine() {
        for source in [
            "{",
            "{{",
            "{%",
            "{% set",
            "{{ 'a",
            "{{ 'a\\",
            "{{ 'a\\é",
            "{#",
            "{% raw %}{%",
            "{{ \"é",
            "{%- -%}",
            "{{ é",
            "{%={{set ",
        ] {
            assert_eq!(rewritten(source), source);
        }
        assert_eq!(rewritten("{% set a ="), "{% set a = muser_keep_((), true) ");
    }
}
