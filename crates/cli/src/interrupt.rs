//! Ctrl-C: work that listens for it ends cleanly; anything else ends the process at once.

use std::io;
use std::ops::ControlFlow;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Exit code of a command that Ctrl-C ended.
pub const EXIT_CODE: u8 = 130;

/// Whether some work looks at [`ASKED`] now.
static LISTENING: AtomicBool = AtomicBool::new(false);

/// Whether that work was asked to end.
static ASKED: AtomicBool = AtomicBool::new(false);

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
    thread::Builder::new().name("muser-signals".into()).spawn(move || {
        for signal in &mut signals {
            if let Some(stop) = ON_STOP.lock().unwrap_or_else(PoisonError::into_inner).take() {
                stop();
                continue;
            }
            let heard = signal == SIGINT && LISTENING.load(Ordering::SeqCst);
            if !heard || ASKED.swap(true, Ordering::SeqCst) {
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
    ASKED.store(false, Ordering::SeqCst);
    LISTENING.store(true, Ordering::SeqCst);
    Listener(())
}

impl Drop for Listener {
    fn drop(&mut self) {
        LISTENING.store(false, Ordering::SeqCst);
    }
}

/// Break after Ctrl-C.
pub fn asked() -> ControlFlow<()> {
    if ASKED.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
