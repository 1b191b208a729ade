//! Mappings: the only place that asks the operating system for memory and gives it back.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags};

use crate::fault::Watch;
use crate::file::SourceFile;
use crate::page::{page_size, round_up_to_page};
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
        let pages = Self { start: nonnull(start), size_bytes };
        pages.prefer_large();
        Ok(pages)
    }

    /// Asks for large pages (2 MiB on most machines), of which a processor can remember where all weights lie. A file comes in
    /// them when it is read for the mapping, not when others have read it before; an allocation takes whole ones, so this is
    /// for those that are filled. No more than advice: where a system has none, pages are small.
    pub(crate) fn prefer_large(&self) {
        #[cfg(target_os = "linux")]
        {
            let (start, len) = self.part(0..self.size_bytes);
            // SAFETY: the range is this mapping. The advice changes no byte.
            let advised = unsafe { rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxHugepage) };
            // A kernel that has no large pages doesn't know the advice.
            let _ = advised;
        }
    }

    /// Address of the first byte, on a page boundary.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Mapped bytes, a multiple of the page size.
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Locks the pages of `range`, which begins on one, in memory until they are unmapped.
    pub(crate) fn lock(&self, range: Range<usize>) -> io::Result<()> {
        let (start, len) = self.part(range);
        // SAFETY: the range lies in this mapping. Locking changes no byte.
        Ok(unsafe { rustix::mm::mlock(start, len) }?)
    }

    /// Brings the pages of `range`, which begins on one, into memory and into the page table.
    #[cfg(target_os = "linux")]
    fn populate(&self, range: Range<usize>) -> rustix::io::Result<()> {
        let (start, len) = self.part(range);
        // SAFETY: the range lies in this mapping. Populating for reads changes no byte, and where a page can't be had it
        // returns an error instead of raising a bus error.
        unsafe { rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxPopulateRead) }
    }

    /// Which of the pages in `range`, which begins on one, are in memory: bit 0 of each answer.
    fn resident_pages(&self, range: Range<usize>) -> io::Result<Vec<u8>> {
        let (start, len) = self.part(range);
        let mut resident = vec![0_u8; len.div_ceil(page_size())];
        // SAFETY: the range lies in this mapping, and `resident` has a byte for each of its pages.
        if unsafe { libc::mincore(start, len, resident.as_mut_ptr().cast()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(resident)
    }

    /// Address and length of a part of the mapping that begins on a page.
    fn part(&self, range: Range<usize>) -> (*mut c_void, usize) {
        assert!(range.start <= range.end && range.end <= self.size_bytes, "{range:?} of {} bytes", self.size_bytes);
        assert!(range.start.is_multiple_of(page_size()), "{range:?} does not begin on a page");
        (self.start.as_ptr().wrapping_add(range.start).cast(), range.len())
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

    /// Address of the byte at `offset`, which begins a page of the mapping.
    pub(crate) fn page_at(&self, offset: usize) -> NonNull<u8> {
        let (start, _) = self.pages.part(offset..offset);
        nonnull(start)
    }

    /// Bytes of the pages of `window`, which begins on one: all of them are mapped, also the last one's rest.
    pub(crate) fn window_pages(&self, window: Range<usize>) -> usize {
        let size_bytes = round_up_to_page(window.len()).expect("the mapping has as many");
        assert!(
            window.start + size_bytes <= self.pages.size_bytes(),
            "{window:?} of {} bytes",
            self.pages.size_bytes()
        );
        size_bytes
    }

    /// Brings the pages of `range`, which begins on one, into memory. Nothing is copied.
    pub(crate) fn populate(&self, range: Range<usize>) -> Result<()> {
        #[cfg(target_os = "linux")]
        match self.pages.populate(range.clone()) {
            Ok(()) => return Ok(()),
            // Kernels before 5.14 don't know the call.
            Err(rustix::io::Errno::INVAL) => {}
            Err(error) => {
                let failed = || self.source.failed("bring the mapped file into memory", error.into());
                return Err(self.source.check_unchanged().err().unwrap_or_else(failed));
            }
        }
        for byte in self.as_slice()[range].iter().step_by(page_size()) {
            std::hint::black_box(*byte);
        }
        Ok(())
    }

    /// Asks the operating system to keep the pages of `range`, which begins on one, in memory.
    pub(crate) fn lock_resident(&self, range: Range<usize>) -> io::Result<()> {
        self.pages.lock(range)
    }

    /// The share of the file that is in the page cache, 0 to 1, from samples all over it. `None`: the system doesn't say.
    /// (Linux says so only to who may write the file; others are told that all of it is.)
    pub(crate) fn cached_share(&self) -> Option<f64> {
        const N_SAMPLES: usize = 64;
        let sample_bytes = 16 * page_size();
        let step = (self.pages.size_bytes() / N_SAMPLES).max(sample_bytes).next_multiple_of(page_size());
        let (mut n_pages, mut n_resident) = (0, 0);
        for start in (0..self.pages.size_bytes()).step_by(step) {
            let end = self.pages.size_bytes().min(start + sample_bytes);
            let resident = self.pages.resident_pages(start..end).ok()?;
            n_pages += resident.len();
            n_resident += resident.iter().filter(|&page| page & 1 == 1).count();
        }
        Some(n_resident as f64 / n_pages as f64)
    }

    pub(crate) fn source(&self) -> &Arc<SourceFile> {
        &self.source
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::path::Path;

    use crate::{Device, GpuBytes, ModelFile};

    /// What the system notes of the mapping that an address lies in.
    fn flags(address: usize) -> String {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let bounds = |line: &str| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
        };
        let mut lines = smaps.lines().skip_while(|line| !bounds(line).is_some_and(|bounds| bounds.contains(&address)));
        lines.find(|line| line.starts_with("VmFlags:")).expect("an address that is mapped").to_owned()
    }

    #[test]
    fn large_pages_are_asked_for_weights_mapped_or_read_and_for_nothing_else() {
        let known = Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        let asked = |address: usize| flags(address).split(' ').any(|flag| flag == "hg");
        let device = Device::host();
        let temp = tempfile::NamedTempFile::new().unwrap();
        fs::write(temp.path(), vec![7; 5 << 20]).unwrap();
        let file = ModelFile::open(temp.path()).unwrap();
        assert_eq!(asked(file.mapping().as_slice().as_ptr().addr()), known, "mapped");
        let copied = GpuBytes::from_slice(&device, file.mapping().as_slice()).unwrap();
        assert_eq!(asked(copied.view(0, 1).unwrap().as_slice().as_ptr().addr()), known, "read");
        let buffer = crate::GpuBuffer::zeros(&device, 5 << 20).unwrap();
        assert!(!asked(buffer.as_slice().as_ptr().addr()), "a buffer may stay untouched for the most part");
    }
}
