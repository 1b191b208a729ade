//! Stop texts, found while a text comes in pieces.

/// Passes a text on up to the first stop text, holding back what may be the start of one.
///
/// Of several that occur, the one that starts first ends the text; of those that start there, the longest that is complete
/// when the first of them is.
#[derive(Debug)]
pub(super) struct StopMatcher {
    stops: Vec<String>,
    /// What may be the start of a stop text.
    held: String,
}

/// What lies at a place of the text.
enum Found {
    Nothing,
    /// The rest of the text is the start of a stop text.
    Start,
    /// The stop text with this index.
    Stop(usize),
}

impl StopMatcher {
    /// A matcher for stop texts, none of them empty.
    pub(super) fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new() }
    }

    /// Takes the next piece of the text. Returns what is certain to come before any stop text, and the index of the one that
    /// ends the text, if it does.
    pub(super) fn push(&mut self, piece: &str) -> (String, Option<usize>) {
        if self.stops.is_empty() {
            return (piece.to_owned(), None);
        }
        self.held.push_str(piece);
        for (at, _) in self.held.char_indices() {
            match self.found_at(at) {
                Found::Nothing => {}
                Found::Start => return (self.held.drain(..at).collect(), None),
                Found::Stop(index) => return self.cut(at, index),
            }
        }
        (std::mem::take(&mut self.held), None)
    }

    /// Ends the text. Returns what was held back, and the index of a stop text that ends it after all: one that waited for
    /// another that started before it.
    pub(super) fn finish(&mut self) -> (String, Option<usize>) {
        for (at, _) in self.held.char_indices() {
            if let Found::Stop(index) = self.found_at(at) {
                return self.cut(at, index);
            }
        }
        (std::mem::take(&mut self.held), None)
    }

    fn cut(&mut self, at: usize, index: usize) -> (String, Option<usize>) {
        let before = self.held[..at].to_owned();
        self.held.clear();
        (before, Some(index))
    }

    fn found_at(&self, at: usize) -> Found {
        let rest = &self.held[at..];
        let complete = self.stops.iter().enumerate().filter(|(_, stop)| rest.starts_with(stop.as_str()));
        // The first of equal ones: the last that is no shorter, from the end on.
        match complete.rev().max_by_key(|(_, stop)| stop.len()) {
            Some((index, _)) => Found::Stop(index),
            None if self.stops.iter().any(|stop| stop.starts_with(rest)) => Found::Start,
            None => Found::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matcher(stops: &[&str]) -> StopMatcher {
        StopMatcher::new(stops.iter().map(|&stop| stop.to_owned()).collect())
    }

    /// All text that comes out of pieces, and what ended it.
    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<usize>) {
        let mut matcher = matcher(stops);
        let mut text = String::new();
        for piece in pieces {
            let (certain, stop) = matcher.push(piece);
            text += &certain;
            if stop.is_some() {
                return (text, stop);
            }
        }
        let (rest, stop) = matcher.finish();
        (text + &rest, stop)
    }

    #[test]
    fn a_stop_text_spread_over_pieces_never_shows() {
        assert_eq!(run(&["###"], &["a#", "#", "#b"]), ("a".into(), Some(0)));
        assert_eq!(run(&["日本"], &["x日", "本y"]), ("x".into(), Some(0)));
    }

    #[test]
    fn what_turns_out_to_be_no_stop_text_comes_out() {
        let mut matcher = matcher(&["abc"]);
        assert_eq!(matcher.push("xab"), ("x".into(), None));
        assert_eq!(matcher.push("d"), ("abd".into(), None));
        assert_eq!(matcher.push("ab"), (String::new(), None));
        assert_eq!(matcher.finish(), ("ab".into(), None));
        // A start within a start: "aab" is still possible when "aaa" has come.
        assert_eq!(run(&["aab"], &["a", "a", "a", "b", "c"]), ("a".into(), Some(0)));
    }

    #[test]
    fn of_stop_texts_that_overlap_the_one_that_starts_first_ends_the_text() {
        // "b" is there when "ab" has come, but "abc" would start before it.
        assert_eq!(run(&["b", "abc"], &["xab", "c"]), ("x".into(), Some(1)));
        assert_eq!(run(&["b", "abc"], &["xab", "d"]), ("xa".into(), Some(0)));
        // The text ends before that is decided, and the stop text within is not let out.
        assert_eq!(run(&["b", "abc"], &["xab"]), ("xa".into(), Some(0)));
    }

    #[test]
    fn of_stop_texts_that_start_together_the_longest_complete_one_is_named_and_the_first_of_equals() {
        assert_eq!(run(&["a", "ab", "ab"], &["xabc"]), ("x".into(), Some(1)));
        assert_eq!(run(&["a", "ab"], &["xa", "b"]), ("x".into(), Some(0)));
    }

    proptest! {
        #[test]
        fn what_comes_out_is_the_text_before_the_first_stop_text_however_it_is_cut(
            text in "[ab日]{0,12}",
            stops in prop::collection::vec("[ab日]{1,4}", 1..4),
            cuts in prop::collection::vec(1..4_usize, 12),
        ) {
            let chars: Vec<char> = text.chars().collect();
            let mut pieces: Vec<String> = Vec::new();
            let mut rest = &chars[..];
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece.iter().collect());
                rest = after;
            }
            pieces.push(rest.iter().collect());
            let first = stops.iter().filter_map(|stop| text.find(stop)).min();
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let (out, stop) = run(&stops, &pieces);
            prop_assert_eq!(out, &text[..first.unwrap_or(text.len())]);
            prop_assert_eq!(stop.is_some(), first.is_some());
        }
    }
}
