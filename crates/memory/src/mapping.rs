//! Mappings: the only place that asks the operating system for memory and gives it back.

use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags};

use crate::fault::Watch;
use crate::file::SourceFile;
use crate::page::round_up_to_page;
use crate::{Error, Result};

/// Whole pages mapped into the address space, unmapped on drop. Owned, never aliased by another `Pages`.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    /// A multiple of the page size.
    size_bytes: usize,
}

// SAFETY: the pages belong to this value alone and no thread-bound state is attached to them.
unsafe impl Send for Pages {}
// SAFETY: a shared `Pages` gives out its address only; reading and writing through it is the owner's to justify.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `size_bytes` (a multiple of the page size) of private memory, readable and writable.
    ///
    /// POSIX systems fill the pages of an anonymous mapping with zeros, by contract and on first touch.
    pub(crate) fn anonymous(size_bytes: usize) -> io::Result<Self> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: without `FIXED` the kernel places the mapping in unused address space, so it can't replace memory
        // that something refers to.
        let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), size_bytes, prot, flags)? };
        Ok(Self { start: nonnull(start), size_bytes })
    }

    /// Maps the first `size_bytes` (a multiple of the page size) of a file, read-only.
    fn of_file(source: &SourceFile, size_bytes: usize) -> io::Result<Self> {
        let (prot, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: as above, the kernel chooses the place. The pages are never writable, so nothing in this process can
        // change the file through them.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), size_bytes, prot, flags, source.file(), 0)? };
        Ok(Self { start: nonnull(start), size_bytes })
    }

    /// Address of the first byte, on a page boundary.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Mapped bytes, a multiple of the page size.
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: start and size are those of a mapping made above. This value owned it, so with the drop nothing
        // borrows its pages any more.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.size_bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of own pages: {unmapped:?}");
    }
}

fn nonnull(start: *mut c_void) -> NonNull<u8> {
    NonNull::new(start.cast()).expect("the kernel maps nothing at address 0 unless told to")
}

/// A whole file, mapped read-only. Shared by an `Arc`; the mapping goes with its last owner.
#[derive(Debug)]
pub struct FileMapping {
    /// Fields drop in this order: the watch looks at pages and file.
    _watch: Watch,
    pages: Pages,
    source: Arc<SourceFile>,
}

impl FileMapping {
    pub(crate) fn new(source: Arc<SourceFile>) -> Result<Self> {
        let size_bytes = source.size_bytes();
        let too_large = Error::TooLarge { what: "file mapping", len: size_bytes as u64, element_bytes: 1 };
        let pages = Pages::of_file(&source, round_up_to_page(size_bytes).ok_or(too_large)?)
            .map_err(|error| source.failed("map the file", error))?;
        let watch = Watch::new(pages.start().as_ptr() as usize, pages.size_bytes(), &source);
        Ok(Self { _watch: watch, pages, source })
    }

    /// The file's bytes.
    ///
    /// The pages are those of the file: who changes the file in place changes what is read here. The shared lock and the
    /// identity check of [`ModelFile`](crate::ModelFile) are there against that.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the pages are mapped readable for as long as `self` lives, the file had this many bytes when it was
        // mapped, and nothing in this process writes them: they are mapped read-only.
        unsafe { std::slice::from_raw_parts(self.pages.start().as_ptr(), self.source.size_bytes()) }
    }

    /// Bytes of the file.
    pub fn size_bytes(&self) -> usize {
        self.source.size_bytes()
    }

    /// Mapped bytes: those of the file rounded up to whole pages. The kernel fills the last page with zeros past the end
    /// of the file; only devices, which wrap whole pages, ever come to see them.
    pub fn device_size_bytes(&self) -> usize {
        self.pages.size_bytes()
    }

    pub(crate) fn source(&self) -> &Arc<SourceFile> {
        &self.source
    }
}
