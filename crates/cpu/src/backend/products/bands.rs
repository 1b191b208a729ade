//! How the outputs of products are shared out among threads.

use std::ops::Range;

/// A thread takes what remains, divided by this and by the number of threads. So the first bands are long, and read memory
/// in long runs, and the last ones short, so that threads of unequal speed end together.
const SHARE: usize = 2;

/// Bytes of weights that are worth a task of their own when there is one token: about a microsecond's.
const MIN_BAND_BYTES: usize = 16 * 1024;

/// Rows of a band are a multiple of this, so that tiles are whole and threads do not write to the same cache line of an output.
const BAND_ROWS: usize = 16;

/// Some rows of one of the matrices.
#[derive(Debug)]
pub(super) struct OutputBand {
    pub product: usize,
    pub rows: Range<usize>,
}

/// Cuts matrices, each so many rows of so many bytes, into bands, in the order in which threads are to take them.
pub(super) fn cut(
    bands: &mut Vec<OutputBand>,
    threads: usize,
    n_token: usize,
    matrices: impl IntoIterator<Item = (usize, usize), IntoIter: Clone>,
) {
    bands.clear();
    let matrices = matrices.into_iter();
    let min_bytes = MIN_BAND_BYTES / n_token.max(1);
    let mut rest: usize = matrices.clone().map(|(n_row, row_bytes)| n_row * row_bytes).sum();
    for (product, (n_row, row_bytes)) in matrices.enumerate() {
        let mut start = 0;
        while start < n_row {
            let band_bytes = if threads == 1 { rest } else { (rest / (SHARE * threads)).max(min_bytes) };
            let n = (band_bytes / row_bytes / BAND_ROWS).max(1) * BAND_ROWS;
            let end = n_row.min(start + n);
            bands.push(OutputBand { product, rows: start..end });
            rest -= (end - start) * row_bytes;
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Matrices of real models: queries, keys and values; one; a vocabulary; rows that are no whole bands.
    const SHAPES: [&[(usize, usize)]; 4] =
        [&[(576, 360), (192, 360), (192, 360)], &[(576, 960)], &[(262_144, 680)], &[(1000, 440), (3, 36)]];

    #[test]
    fn every_row_is_in_one_band() {
        let mut bands = Vec::new();
        for matrices in SHAPES {
            for (threads, n_token) in [(1, 1), (2, 1), (2, 256), (7, 5), (64, 1)] {
                cut(&mut bands, threads, n_token, matrices.iter().copied());
                let mut next = vec![0; matrices.len()];
                for OutputBand { product, rows } in &bands {
                    assert_eq!(rows.start, next[*product], "{threads} threads, {n_token} tokens: {bands:?}");
                    assert!(rows.start < rows.end, "{bands:?}");
                    next[*product] = rows.end;
                }
                let n_rows: Vec<usize> = matrices.iter().map(|&(n_row, _)| n_row).collect();
                assert_eq!(next, n_rows);
            }
        }
    }

    #[test]
    fn one_thread_takes_a_matrix_at_once() {
        let mut bands = Vec::new();
        cut(&mut bands, 1, 1, SHAPES[0].iter().copied());
        assert_eq!(bands.len(), 3);
    }

    #[test]
    fn threads_of_equal_speed_end_within_a_short_band_of_each_other() {
        let mut bands = Vec::new();
        for matrices in SHAPES {
            for n_token in [1, 256] {
                cut(&mut bands, 2, n_token, matrices.iter().copied());
                let mut ends = [0; 2];
                for OutputBand { product, rows } in &bands {
                    *ends.iter_mut().min().unwrap() += rows.len() * matrices[*product].1;
                }
                let row_bytes = matrices.iter().map(|&(_, row_bytes)| row_bytes).max().unwrap();
                let short = (MIN_BAND_BYTES / n_token).max(BAND_ROWS * row_bytes);
                assert!(ends[0].abs_diff(ends[1]) <= short, "{ends:?} with {n_token} tokens: {bands:?}");
            }
        }
    }
}
