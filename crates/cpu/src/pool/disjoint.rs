//! A slice that several threads write to, each its own part.

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice whose parts are handed out by the promise that they do not meet.
pub struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is `slice`, whose parts do not meet; a part is a `&mut [T]`, which may go to another thread when
// `T` may.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Borrows all of `items`.
    pub fn new(items: &'a mut [T]) -> Self {
        Self { start: items.as_mut_ptr(), len: items.len(), borrow: PhantomData }
    }

    /// One part of the slice.
    ///
    /// # Panics
    /// When `range` is not within the slice.
    ///
    /// # Safety
    /// - No part that is in use meets `range`.
    #[expect(clippy::mut_from_ref, reason = "the parts are exclusive by the function's contract")]
    #[inline]
    pub unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} items", self.len);
        // SAFETY: the range lies in the slice that this value borrows mutably, and the caller's promise makes it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
