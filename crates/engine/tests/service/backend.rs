//! A backend that fails, panics or waits when it is told to.

use std::num::NonZero;
use std::sync::{Arc, Mutex};

use muser_cpu::CpuBackend;
use muser_memory::Device;
use muser_ops::{Add, Append, Attention, Backend, Cap, Checked, Embed, Error, Gated, Gather, Heads, NormRows, Project};

use crate::support::Gate;

/// What the next batch does.
#[derive(Clone)]
pub enum Mood {
    Works,
    /// Fails in the middle of a batch.
    Fails,
    /// Fails when logits are computed, after the batch itself.
    FailsAtLogits,
    Panics,
    /// Waits at the gate, then works.
    Waits(Gate),
}

/// Sets a backend's mood, from the next batch on.
#[derive(Clone)]
pub struct Remote(Arc<Mutex<Mood>>);

impl Remote {
    pub fn set(&self, mood: Mood) {
        *self.0.lock().expect("nobody panics here") = mood;
    }
}

pub struct Moody {
    inner: CpuBackend,
    remote: Remote,
    /// Products of a batch so far.
    n_products: usize,
    n_layer: usize,
}

impl Moody {
    pub fn new(n_layer: usize) -> (Box<Self>, Remote) {
        let inner = CpuBackend::new(Device::host(), NonZero::<usize>::MIN, None).expect("one thread needs no other");
        let remote = Remote(Arc::new(Mutex::new(Mood::Works)));
        (Box::new(Self { inner, remote: remote.clone(), n_products: 0, n_layer }), remote)
    }

    fn mood(&self) -> Mood {
        self.remote.0.lock().expect("nobody panics here").clone()
    }
}

/// An error that no operation of a good model gives.
fn failure() -> Error {
    Error::Unaligned { len: 12345 }
}

impl Backend for Moody {
    fn describe(&self) -> String {
        "moody".to_owned()
    }

    fn device(&self) -> &Device {
        self.inner.device()
    }

    fn embed(&mut self, op: Checked<Embed<'_>>) -> Result<(), Error> {
        self.n_products = 0;
        match self.mood() {
            Mood::Panics => panic!("a backend that was told to panic"),
            Mood::Waits(gate) => gate.pass(),
            Mood::Works | Mood::Fails | Mood::FailsAtLogits => {}
        }
        self.inner.embed(op)
    }

    fn gather(&mut self, op: Checked<Gather<'_>>) -> Result<(), Error> {
        self.inner.gather(op)
    }

    fn norm(&mut self, op: Checked<NormRows<'_>>) -> Result<(), Error> {
        self.inner.norm(op)
    }

    fn project(&mut self, op: Checked<Project<'_>>) -> Result<(), Error> {
        self.n_products += 1;
        // Three in each layer, then the one that gives logits.
        let is_logits = self.n_products > 3 * self.n_layer;
        match self.mood() {
            Mood::Fails if self.n_products == 4 => Err(failure()),
            Mood::FailsAtLogits if is_logits => Err(failure()),
            _ => self.inner.project(op),
        }
    }

    fn gated(&mut self, op: Checked<Gated<'_>>) -> Result<(), Error> {
        self.inner.gated(op)
    }

    fn heads(&mut self, op: Checked<Heads<'_>>) -> Result<(), Error> {
        self.inner.heads(op)
    }

    fn append(&mut self, op: Checked<Append<'_>>) -> Result<(), Error> {
        self.inner.append(op)
    }

    fn attention(&mut self, op: Checked<Attention<'_>>) -> Result<(), Error> {
        self.inner.attention(op)
    }

    fn add(&mut self, op: Checked<Add<'_>>) -> Result<(), Error> {
        self.inner.add(op)
    }

    fn cap(&mut self, op: Checked<Cap<'_>>) -> Result<(), Error> {
        self.inner.cap(op)
    }

    fn synchronize(&mut self) -> Result<(), Error> {
        self.inner.synchronize()
    }
}
