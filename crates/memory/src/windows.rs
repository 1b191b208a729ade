//! Windows: which parts of a file become buffers.

use std::ops::Range;

use crate::page::page_floor;

/// Covers `spans` (byte ranges of one file, sorted by their start) with as few windows as the limit allows.
///
/// A window begins on a page, has at most `max_bytes` bytes in whole pages, and holds each of its spans whole; where two
/// neighbours share a page they overlap. Returns the windows and, for each span, the number of its window; or the number of the
/// first span that no window of `max_bytes` holds.
pub(crate) fn cover(spans: &[Range<usize>], max_bytes: usize) -> Result<(Vec<Range<usize>>, Vec<usize>), usize> {
    // Devices take whole pages, so what a limit leaves of one is of no use.
    let max_bytes = page_floor(max_bytes);
    let mut windows: Vec<Range<usize>> = Vec::new();
    let mut window_of = Vec::with_capacity(spans.len());
    for (span_no, span) in spans.iter().enumerate() {
        match windows.last_mut() {
            Some(window) if span.end.max(window.end) - window.start <= max_bytes => {
                window.end = window.end.max(span.end);
            }
            _ => {
                let start = page_floor(span.start);
                if span.end - start > max_bytes {
                    return Err(span_no);
                }
                windows.push(start..span.end);
            }
        }
        window_of.push(windows.len() - 1);
    }
    Ok((windows, window_of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_size;

    #[test]
    fn m14_without_a_limit_one_window_covers_all() {
        let page = page_size();
        let spans = [page + 32..page + 64, 2 * page..5 * page, 5 * page..5 * page + 1];
        let (windows, window_of) = cover(&spans, usize::MAX).unwrap();
        assert_eq!((&windows[0], windows.len()), (&(page..5 * page + 1), 1));
        assert_eq!(window_of, [0, 0, 0]);
        assert_eq!(cover(&[], usize::MAX), Ok((vec![], vec![])));
    }

    #[test]
    fn m15_windows_overlap_on_pages_and_hold_each_span_whole() {
        let page = page_size();
        let spans = [0..page + 100, page + 100..2 * page, 2 * page - 50..4 * page];
        let (windows, window_of) = cover(&spans, 3 * page).unwrap();
        assert_eq!(windows, [0..2 * page, page..4 * page]);
        assert_eq!(window_of, [0, 0, 1]);
        for (span, &window_no) in spans.iter().zip(&window_of) {
            let window = &windows[window_no];
            assert!(window.start <= span.start && span.end <= window.end);
            assert!(window.start.is_multiple_of(page) && window.len() <= 3 * page);
        }
    }

    #[test]
    fn m15_a_window_fits_the_limit_in_whole_pages() {
        let page = page_size();
        // A limit one byte short of three pages, as of 2 GiB - 1, holds two.
        let (windows, _) = cover(&[0..2 * page, 2 * page..2 * page + 10], 3 * page - 1).unwrap();
        assert_eq!(windows, [0..2 * page, 2 * page..2 * page + 10]);
    }

    #[test]
    fn m15_a_span_that_no_window_holds_is_named() {
        let page = page_size();
        assert_eq!(cover(&[0..page, page..2 * page, 2 * page + 1..3 * page + 2], page), Err(2));
        // It has the size of a window, but windows begin on pages.
        assert_eq!(cover(&[1..page + 1, page + 1..page + 2], page), Err(0));
    }
}
