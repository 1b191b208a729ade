//! Pages: the unit in which the operating system maps and devices wrap memory.

/// Bytes of a page, asked of the operating system at run time: 4 KiB on most machines, 16 KiB on Apple silicon, 64 KiB
/// on some Arm servers.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// `size_bytes` rounded up to whole pages, at least one. `None` when the result has no representation.
///
/// Nothing can map zero bytes, so an empty buffer occupies one page too.
pub(crate) fn round_up_to_page(size_bytes: usize) -> Option<usize> {
    size_bytes.max(1).checked_next_multiple_of(page_size())
}

/// `offset` rounded down to the page it lies in.
pub(crate) fn page_floor(offset: usize) -> usize {
    offset - offset % page_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m11_the_page_size_is_a_power_of_two_of_at_least_4_kib() {
        assert!(page_size().is_power_of_two());
        assert!(page_size() >= 4096);
    }

    #[test]
    fn m12_sizes_round_up_to_whole_pages() {
        let page = page_size();
        for (size_bytes, pages) in [(0, 1), (1, 1), (10, 1), (page, 1), (page + 1, 2), (7 * page, 7)] {
            assert_eq!(round_up_to_page(size_bytes), Some(pages * page), "{size_bytes}");
        }
    }

    #[test]
    fn m12_a_size_that_rounds_past_the_address_space_is_refused() {
        let last_page = usize::MAX - usize::MAX % page_size();
        assert_eq!(round_up_to_page(last_page), Some(last_page));
        assert_eq!(round_up_to_page(last_page + 1), None);
        assert_eq!(round_up_to_page(usize::MAX), None);
    }

    #[test]
    fn an_offset_rounds_down_to_its_page() {
        let page = page_size();
        assert_eq!(page_floor(0), 0);
        assert_eq!(page_floor(page - 1), 0);
        assert_eq!(page_floor(3 * page), 3 * page);
        assert_eq!(page_floor(3 * page + 17), 3 * page);
    }
}
