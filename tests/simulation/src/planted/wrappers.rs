//! Controllers around controllers, and a server around a server, each with one bad habit.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use serde_json::Value;
use windlass_controller::{
    Context, Controller, Descriptor, Enqueuer, Outcome, ReconcileError, Setup, SetupError,
};
use windlass_env::{Env, Instant};
use windlass_object::ObjectKey;
use windlass_testing::Server;
use windlass_testing::api_server::body::Body;
use windlass_testing::api_server::{ApiServer, ApiServerOptions};
use windlass_workqueue::{RateLimiter, default_limiter};

/// Takes a conflict for success.
#[derive(Debug)]
pub(super) struct Forgiving<C>(C);

/// Leaves a task behind with every reconcile.
#[derive(Debug)]
pub(super) struct Leaking<C>(C);

/// Executes creates of pods late.
#[derive(Debug)]
pub(super) struct LateServer {
    server: ApiServer,
    env: Env,
    late: Duration,
}

impl LateServer {
    pub(super) fn new(env: &Env, late: Duration) -> Self {
        LateServer { server: ApiServer::new(env, ApiServerOptions::default()), env: env.clone(), late }
    }
}

impl Server for LateServer {
    fn answer(&self, request: Request<Bytes>) -> BoxFuture<'static, Response<Body>> {
        let creates_pod = request.method() == Method::POST && request.uri().path().ends_with("/pods");
        let (server, env, late) = (self.server.clone(), self.env.clone(), self.late);
        Box::pin(async move {
            if creates_pod {
                env.sleep(late).await;
            }
            server.answer(request).await
        })
    }

    fn stale(&self) -> Arc<dyn Server> {
        self.server.stale()
    }

    fn objects(&self) -> Vec<Value> {
        self.server.objects()
    }

    fn revision(&self) -> Option<u64> {
        self.server.revision()
    }
}

/// Never forgives a key its failures.
#[derive(Debug)]
pub(super) struct Resentful<C>(C);

impl<C: Controller> Controller for Forgiving<C> {
    const NAME: &'static str = C::NAME;
    const DESCRIPTOR: Descriptor = C::DESCRIPTOR;
    type Config = C::Config;

    fn setup(setup: &mut Setup, config: &C::Config) -> Result<Self, SetupError> {
        C::setup(setup, config).map(Self)
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        match self.0.reconcile(key, cx).await {
            Err(error) if error.is_conflict() => Ok(Outcome::Done),
            outcome => outcome,
        }
    }

    fn started(&self, queue: &Enqueuer) {
        self.0.started(queue);
    }
}

impl<C: Controller> Controller for Leaking<C> {
    const NAME: &'static str = C::NAME;
    const DESCRIPTOR: Descriptor = C::DESCRIPTOR;
    type Config = C::Config;

    fn setup(setup: &mut Setup, config: &C::Config) -> Result<Self, SetupError> {
        C::setup(setup, config).map(Self)
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        drop(cx.env().spawn("nobody's", pending::<()>()));
        self.0.reconcile(key, cx).await
    }

    fn started(&self, queue: &Enqueuer) {
        self.0.started(queue);
    }
}

impl<C: Controller> Controller for Resentful<C> {
    const NAME: &'static str = C::NAME;
    const DESCRIPTOR: Descriptor = C::DESCRIPTOR;
    type Config = C::Config;

    fn setup(setup: &mut Setup, config: &C::Config) -> Result<Self, SetupError> {
        let controller = C::setup(setup, config)?;
        setup.limiter(Box::new(Unforgetting(default_limiter())));
        Ok(Self(controller))
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        self.0.reconcile(key, cx).await
    }

    fn started(&self, queue: &Enqueuer) {
        self.0.started(queue);
    }
}

/// The usual limiter, told nothing of success.
struct Unforgetting(Box<dyn RateLimiter<ObjectKey>>);

impl RateLimiter<ObjectKey> for Unforgetting {
    fn when(&mut self, now: Instant, key: &ObjectKey) -> Duration {
        self.0.when(now, key)
    }

    fn forget(&mut self, _now: Instant, _key: &ObjectKey) {}

    /// Nobody gives up on a key because of it: the key is only late.
    fn attempts(&self, _key: &ObjectKey) -> u32 {
        0
    }
}
