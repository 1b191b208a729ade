//! Every allocation of a session fails once.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::Arc;

use muser_cpu::CpuBackend;
use muser_engine::{Engine, Error, LoadOptions, Loaded, PlanOptions, Session, load};
use muser_memory::{Device, DeviceLimits, LoadPolicy};
use muser_model::Model;
use muser_tests::model::MUSE;
use muser_tests::model_path;

/// An engine and a session on a device, or why there is none.
fn session(device: &Device, model: &Arc<Model>) -> Result<(Engine, Session), Error> {
    let backend = CpuBackend::new(device.clone(), NonZero::<usize>::MIN, None).expect("one thread needs no other");
    let engine = Engine::new(model.clone(), Box::new(backend), 64, 256)?;
    let session = engine.session()?;
    Ok((engine, session))
}

#[test]
fn whichever_allocation_fails_the_error_says_so_and_nothing_half_made_stays() {
    let options = LoadOptions {
        weights: muser_memory::LoadOptions { policy: LoadPolicy::Map, n_threads: 1, resident: false, strict: false },
        scan: true,
        plan: PlanOptions { n_ctx: Some(256), n_slot: 1, n_batch: 64, prefix_cache_bytes: 0, table_bytes_per_token: 0 },
        force_pre: None,
    };
    let loaded = load(&model_path(MUSE[1]), &Device::host(), &options, &|_| ControlFlow::Continue(()));
    let Loaded { model, .. } = loaded.expect("a good model");
    let (mut budget, mut n_failed) = (0, 0);
    loop {
        let device = Device::host_with(DeviceLimits { budget_bytes: Some(budget), ..DeviceLimits::default() });
        let error = match session(&device, &model) {
            Ok(made) => {
                drop(made);
                assert_eq!(device.allocated_bytes(), 0);
                break;
            }
            Err(error) => error,
        };
        let memory = match error {
            Error::Memory(error) | Error::Model(muser_model::Error::Memory(error)) => error,
            other => panic!("the budget of {budget} bytes was passed, but: {other}"),
        };
        let muser_memory::Error::OverBudget { size_bytes, allocated_bytes, .. } = memory else {
            panic!("the budget of {budget} bytes was passed, but: {memory}");
        };
        assert_eq!(device.allocated_bytes(), 0, "allocation {n_failed} failed, and something stayed");
        // Room for the allocation that failed, so that the next one does.
        budget = allocated_bytes + size_bytes;
        n_failed += 1;
    }
    // K and V of eight layers, and more than ten buffers of the decoder.
    assert!(n_failed > 2 * 8 + 10, "{n_failed} allocations failed");
}
