//! Threads and what orders them: the standard library's, or under `--cfg loom` those of the model checker.

#[cfg(not(loom))]
pub(crate) use std::{
    sync::{Arc, Condvar, Mutex},
    thread::JoinHandle,
};

#[cfg(loom)]
pub(crate) use loom::{
    sync::{Arc, Condvar, Mutex},
    thread::JoinHandle,
};

/// Starts a thread that has a name for debuggers.
#[cfg(not(loom))]
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(run)
}

#[cfg(loom)]
pub(crate) fn spawn(_name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    Ok(loom::thread::spawn(run))
}
