//! Wires a backend to an engine: the one place that chooses what computes.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use muser_cpu::CpuBackend;
use muser_cpu::caps::Tier;
use muser_cpu::pool::physical_cores;
use muser_engine::{Engine, LoadOptions, LoadReport, Loaded};
use muser_memory::Device;
use muser_ops::{Backend, Reference};
use muser_text::Tokenizer;
use muser_text::template::ChatTemplate;

use crate::args::{Ctx, EngineArgs};
use crate::exit::Usage;

/// A model, opened, with an engine that runs it.
pub struct Opened {
    pub engine: Engine,
    pub tokenizer: Arc<Tokenizer>,
    pub template: Option<ChatTemplate>,
    pub report: LoadReport,
}

/// How long a context a command needs.
pub enum Context {
    /// What the user asked for.
    Asked(Ctx),
    /// So many tokens.
    Tokens(usize),
}

/// Opens a model and makes an engine for it.
pub fn open(path: &Path, args: &EngineArgs, context: Context) -> Result<Opened> {
    if args.batch == 0 {
        return Err(Usage("--batch is 0, expected at least 1".into()).into());
    }
    let options = LoadOptions { force_pre: args.force_pre.clone() };
    let Loaded { model, tokenizer, template, report } = muser_engine::load(path, &Device::host(), &options)?;
    for key in &report.unknown_keys {
        eprintln!("muser: {}: metadata key {key:?} is not known to this version and has no effect", path.display());
    }
    let n_ctx_train = model.spec().n_ctx_train;
    let n_ctx = match context {
        Context::Asked(Ctx::Auto) => n_ctx_train,
        Context::Asked(Ctx::Tokens(tokens)) => tokens.get(),
        Context::Tokens(tokens) => tokens,
    };
    if n_ctx > n_ctx_train {
        eprintln!("muser: a context of {n_ctx} tokens is longer than the {n_ctx_train} the model was trained for");
    }
    let engine = Engine::new(model, backend(args)?, args.batch, n_ctx)?;
    Ok(Opened { engine, tokenizer, template, report })
}

fn backend(args: &EngineArgs) -> Result<Box<dyn Backend>> {
    let threads = args.threads.unwrap_or_else(physical_cores);
    if args.reference {
        return Ok(Box::new(Reference::new(threads)));
    }
    let tier = args.tier.as_deref().map(tier).transpose()?;
    Ok(Box::new(CpuBackend::new(Device::host(), threads, tier)?))
}

fn tier(name: &str) -> Result<Tier> {
    Tier::named(name).ok_or_else(|| {
        let names = Tier::available().into_iter().map(Tier::name).collect::<Vec<_>>().join(", ");
        Usage(format!("--tier {name} is not a tier of this machine, which has: {names}")).into()
    })
}
