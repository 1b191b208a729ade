//! From an address to a server, and from there to its end.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::Error;
use crate::app::{App, Options, Served};
use crate::body::Held;
use crate::chat::now;
use crate::connection::Acceptor;
use crate::metrics::HttpMetrics;
use crate::router::router;
use crate::structured::Grammars;
use crate::tools::Dialect;
use crate::trace::Ids;

/// Threads that talk to clients. They compute nothing.
const N_TALKING: usize = 2;
/// Threads that read requests, which may take time where they are long.
const MAX_READING: usize = 16;
/// How long replies have to reach their clients when the last of them is complete.
const REPLY_GRACE: Duration = Duration::from_secs(2);

/// An address that is taken, and not yet answered at.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    options: Options,
}

/// Tells a server to end. Clones tell the same one.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// For one server.
    #[expect(clippy::new_without_default, reason = "it is an act, not a value")]
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Begins the shutdown: no more connections and requests are taken, and those that are being answered have the time
    /// that the server's options give them.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }
}

impl Server {
    /// Takes the address. Clients that connect from now on wait until the server [runs](Self::run).
    ///
    /// # Errors
    /// When other machines can reach the address and no keys are given, or it can't be had.
    pub fn bind(options: Options) -> Result<Self, Error> {
        let address = options.address;
        if !address.ip().is_loopback() && options.keys.is_none() {
            return Err(Error::KeyDemanded { address });
        }
        let failed = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, options })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` begins the shutdown, and ends within [`Options::shutdown_timeout`] and a few seconds for the
    /// engine's last step and the last replies.
    ///
    /// # Errors
    /// When the system gives no threads, or the engine ends by itself: it panicked, or a file of the model changed.
    pub fn run(self, served: Served, stop: &Stop) -> Result<(), Error> {
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(N_TALKING).max_blocking_threads(MAX_READING + 1).thread_name("muser-http").enable_all();
        let runtime = runtime.build().map_err(Error::Runtime)?;
        let result = runtime.block_on(self.serve(served, stop));
        // What is left are clients that read nothing.
        runtime.shutdown_background();
        result
    }

    async fn serve(self, served: Served, stop: &Stop) -> Result<(), Error> {
        let Self { listener, address, options } = self;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(Error::Runtime)?;
        let service = served.service.clone();
        let (status, model) = (service.status(), served.names[0].clone());
        let shutdown_timeout = options.shutdown_timeout;
        let dialect = served.template.as_ref().map(|template| Dialect::of(template, &served.tokenizer));
        let grammars = Grammars::new(Arc::clone(&served.tokenizer));
        let app = Arc::new(App {
            served,
            dialect,
            grammars,
            options,
            address,
            metrics: HttpMetrics::default(),
            ids: Ids::new(),
            held: Held::default(),
            started: now(),
        });
        let (watched, begin, mut stop) = (service.clone(), stop.clone(), stop.0.subscribe());
        let ended = spawn_blocking(move || {
            let ended = watched.wait();
            begin.begin();
            ended
        });
        let acceptor = Acceptor::new(Arc::clone(&app), router(app), stop.clone());
        info!(%address, model, n_ctx = status.n_ctx, n_slot = status.slots.len(), "listening");
        let connections = acceptor.accept_until(listener, &mut stop).await;

        info!("shutting down");
        let deadline = Instant::now() + shutdown_timeout;
        let engine = spawn_blocking({
            let service = service.clone();
            move || service.shutdown(deadline)
        });
        let replies = connections.wait();
        tokio::pin!(replies);
        // Replies that need no engine may take as long as the others.
        let is_quiet = timeout(shutdown_timeout, &mut replies).await.is_ok();
        // It has its own limit.
        let _ = engine.await;
        if !is_quiet && timeout(REPLY_GRACE, replies).await.is_err() {
            warn!("connections were closed before their replies were read");
        }
        // An engine that is stuck does not tell how it ends.
        if service.status().is_ended
            && let Ok(Err(error)) = ended.await
        {
            return Err(Error::Engine(error));
        }
        Ok(())
    }
}
