//! Bus errors in mapped files: what a truncated file or a failing disk turns a read into.

use std::ffi::{CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::file::SourceFile;
use crate::{Error, Result};

/// From now on, ends the process with `exit_code` and one line on stderr when a read of a mapped file fails: the line
/// names the file, the byte, and what the file's size was and is. Without this, the process dies of the signal.
///
/// The signal's handling is the process's, so it is for the binary to ask for it, once, before it loads. Bus errors
/// elsewhere go to whoever handled them before. Calling it again changes the exit code.
///
/// # Errors
///
/// When the operating system refuses the handler.
pub fn report_bus_errors(exit_code: u8) -> Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    EXIT_CODE.store(c_int::from(exit_code), Ordering::Relaxed);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*installed {
        install()?;
        *installed = true;
    }
    Ok(())
}

static EXIT_CODE: AtomicI32 = AtomicI32::new(1);

/// What handled bus errors before; set before the handler is installed.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// The head of a list of all files ever mapped. The handler walks it at any moment, so an entry is never changed, but for
/// its flag, and never freed: some 100 bytes for each mapping that a process makes, and it makes few.
static MAPPED: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

/// What the handler knows and says about a mapped file.
#[derive(Debug)]
struct Entry {
    is_mapped: AtomicBool,
    start: usize,
    size_bytes: usize,
    path: CString,
    fd: c_int,
    file_bytes: u64,
    next: Option<&'static Entry>,
}

/// Keeps a mapping known to the handler. Drop it before the mapping and the file.
#[derive(Debug)]
pub(crate) struct Watch {
    entry: &'static Entry,
}

impl Watch {
    /// Makes the `size_bytes` mapped at `start` known as those of `source`.
    pub(crate) fn new(start: usize, size_bytes: usize, source: &SourceFile) -> Self {
        let path =
            CString::new(source.path().as_os_str().as_bytes()).expect("it was opened, so there is no zero in it");
        let entry = Box::leak(Box::new(Entry {
            is_mapped: AtomicBool::new(true),
            start,
            size_bytes,
            path,
            fd: source.file().as_raw_fd(),
            file_bytes: source.size_bytes() as u64,
            next: None,
        }));
        let mut head = MAPPED.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or an entry that was whole when it was published and is never freed.
            entry.next = unsafe { head.as_ref() };
            match MAPPED.compare_exchange_weak(head, entry, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Self { entry },
                Err(now) => head = now,
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.entry.is_mapped.store(false, Ordering::Release);
    }
}

/// Bytes of all model files that are mapped now.
pub(crate) fn mapped_bytes() -> u64 {
    entries().filter(|entry| entry.is_mapped.load(Ordering::Acquire)).map(|entry| entry.size_bytes as u64).sum()
}

/// The entry whose mapping holds `address`. Neither allocates nor locks.
fn mapped_at(address: usize) -> Option<&'static Entry> {
    entries()
        .find(|entry| entry.is_mapped.load(Ordering::Acquire) && address.wrapping_sub(entry.start) < entry.size_bytes)
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    // SAFETY: null, or an entry that was whole when it was published and is never freed.
    let head: Option<&'static Entry> = unsafe { MAPPED.load(Ordering::Acquire).as_ref() };
    std::iter::successors(head, |entry| entry.next)
}

fn install() -> Result<()> {
    let mut previous = MaybeUninit::uninit();
    // SAFETY: a null action only asks; `previous` has room for the answer.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), previous.as_mut_ptr()) } != 0 {
        return Err(Error::SignalHandler { source: std::io::Error::last_os_error() });
    }
    // SAFETY: the call succeeded and so filled it in. It is leaked, since the handler may read it at any time.
    PREVIOUS.store(Box::into_raw(Box::new(unsafe { previous.assume_init() })), Ordering::Release);

    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
    // SAFETY: all zeros is a valid `sigaction`: the default handler, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler has the signature that `SA_SIGINFO` calls for and does only what a signal handler may.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
        return Err(Error::SignalHandler { source: std::io::Error::last_os_error() });
    }
    Ok(())
}

/// Runs in the thread that faulted, in the middle of whatever it did: calls only async-signal-safe functions, takes no
/// lock and allocates nothing.
extern "C" fn on_bus_error(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t` to a handler with `SA_SIGINFO`, and for a bus error its address.
    let address = unsafe { (*info).si_addr() } as usize;
    let Some(entry) = mapped_at(address) else {
        return restore_previous();
    };
    report(entry, address - entry.start);
    // SAFETY: `_exit` may be called in a signal handler; it runs no destructor and doesn't return.
    unsafe { libc::_exit(EXIT_CODE.load(Ordering::Relaxed)) }
}

/// Says on stderr what became of the file.
fn report(file: &Entry, offset: usize) {
    let mut line = Line::new();
    line.text(b"error: ").text(file.path.as_bytes());
    line.text(b": reading byte ").number(offset as u64).text(b" of the mapped file failed: ");
    let mut now = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `fstat` may be called in a signal handler, and `now` has room for the answer. The descriptor is the file's:
    // it is open while the file is mapped.
    if unsafe { libc::fstat(file.fd, now.as_mut_ptr()) } == 0 {
        // SAFETY: the call succeeded and so filled it in.
        let size_now = unsafe { now.assume_init_ref() }.st_size as u64;
        if size_now == file.file_bytes {
            line.text(b"its storage did not deliver it\n");
        } else {
            line.text(b"the file changed while it was in use, from ").number(file.file_bytes);
            line.text(b" to ").number(size_now).text(b" bytes\n");
        }
    } else {
        line.text(b"the file can't be examined either\n");
    }
    line.write_to_stderr();
}

/// Gives the signal back to who handled it before. The faulting read is then repeated, and faults again, for them.
fn restore_previous() {
    let previous = PREVIOUS.load(Ordering::Acquire);
    // SAFETY: `sigaction` may be called in a signal handler. `previous` is what it gave out itself, and never freed; it
    // was stored before the handler was installed.
    unsafe { libc::sigaction(libc::SIGBUS, previous, ptr::null_mut()) };
}

/// A line of text put together without allocating. What doesn't fit is cut off.
struct Line {
    bytes: [u8; 1024],
    len: usize,
}

impl Line {
    fn new() -> Self {
        Self { bytes: [0; 1024], len: 0 }
    }

    fn text(&mut self, text: &[u8]) -> &mut Self {
        for (to, &from) in self.bytes[self.len..].iter_mut().zip(text) {
            *to = from;
            self.len += 1;
        }
        self
    }

    fn number(&mut self, mut number: u64) -> &mut Self {
        let mut digits = [0; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return self.text(&digits[first..]);
            }
        }
    }

    fn write_to_stderr(&self) {
        // SAFETY: `write` may be called in a signal handler; the pointer and length are those of initialised bytes.
        unsafe { libc::write(libc::STDERR_FILENO, self.bytes.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_text_and_numbers_and_never_longer_than_its_room() {
        let mut line = Line::new();
        line.text(b"from ").number(0).text(b" to ").number(u64::MAX);
        assert_eq!(&line.bytes[..line.len], b"from 0 to 18446744073709551615");
        line.text(&[b'x'; 4000]).number(7);
        assert_eq!((line.len, line.bytes[1023]), (1024, b'x'));
    }
}
