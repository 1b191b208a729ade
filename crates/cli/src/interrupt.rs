//! Ctrl-C and requests to end: work that listens for them ends cleanly; anything else ends the process at once.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// Exit code of a command that Ctrl-C ended.
pub const EXIT_CODE: u8 = 130;

/// Whether some work looks at [`ASKED`] now.
static LISTENING: AtomicBool = AtomicBool::new(false);

/// Whether that work listens to all signals that ask to end, and not to Ctrl-C alone.
static TO_ALL: AtomicBool = AtomicBool::new(false);

/// The signal by which that work was asked to end; 0 if it was not.
static ASKED: AtomicI32 = AtomicI32::new(0);

/// Adds signals to those that are handled.
static HANDLE: OnceLock<Handle> = OnceLock::new();

/// What is done at the next signal, once.
static ON_STOP: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

/// Handles interrupts from now on. A first Ctrl-C asks the work that [listens](listen) to end; a second one, one that
/// nobody listens for, and a request to terminate end the process, with the terminal as it is now. What has its own way to
/// end is told by [`on_stop`] of either, once.
///
/// # Errors
/// When the handlers can't be installed, or no thread can be started for them.
pub fn catch() -> io::Result<()> {
    let terminal = tcgetattr(stdin()).ok();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    HANDLE.get_or_init(|| signals.handle());
    thread::Builder::new().name("muser-signals".into()).spawn(move || {
        for signal in &mut signals {
            if let Some(stop) = ON_STOP.lock().unwrap_or_else(PoisonError::into_inner).take() {
                stop();
                continue;
            }
            let heard = LISTENING.load(Ordering::SeqCst) && (signal == SIGINT || TO_ALL.load(Ordering::SeqCst));
            if !heard || ASKED.swap(signal, Ordering::SeqCst) != 0 {
                terminal.iter().for_each(restore);
                process::exit(128 + signal);
            }
        }
    })?;
    Ok(())
}

/// Undoes what line editing did to the terminal, unless it is another's now, because this process is in the background.
fn restore(terminal: &Termios) {
    if tcgetpgrp(stdin()).map_or(true, |foreground| foreground == getpgrp()) {
        // The process ends anyway; there is nobody left to tell.
        let _ = tcsetattr(stdin(), OptionalActions::Now, terminal);
    }
}

/// Has the next Ctrl-C or request to terminate do this, and nothing else.
pub fn on_stop(stop: impl FnOnce() + Send + 'static) {
    *ON_STOP.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(stop));
}

/// Work that looks at [`asked`] until this is dropped. An earlier Ctrl-C is forgotten.
pub struct Listener(());

/// Announces work that looks at [`asked`].
pub fn listen() -> Listener {
    ASKED.store(0, Ordering::SeqCst);
    LISTENING.store(true, Ordering::SeqCst);
    Listener(())
}

/// As [`listen`], for work that leaves something behind if it is not asked: it is by a request to terminate and by the end of
/// its terminal as well.
pub fn listen_to_all() -> Listener {
    TO_ALL.store(true, Ordering::SeqCst);
    // Who started it with `nohup` wants it to go on. Without the handler, it ends as it would have.
    if let Some(handle) = HANDLE.get().filter(|_| !is_ignored(SIGHUP)) {
        let _ = handle.add_signal(SIGHUP);
    }
    listen()
}

/// Whether whoever started this process had it ignore a signal. Where that can't be told, it counts as ignored.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_none_or(|mask| mask >> (signal - 1) & 1 == 1)
}

impl Drop for Listener {
    fn drop(&mut self) {
        LISTENING.store(false, Ordering::SeqCst);
        TO_ALL.store(false, Ordering::SeqCst);
    }
}

/// Break after Ctrl-C, or what else is listened to.
pub fn asked() -> ControlFlow<()> {
    if ASKED.load(Ordering::Relaxed) == 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// Exit code of a command whose work was asked to end.
pub fn exit_code() -> u8 {
    match ASKED.load(Ordering::Relaxed) {
        0 => EXIT_CODE,
        signal => 128 + signal as u8,
    }
}
