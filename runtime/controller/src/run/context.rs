//! What a reconcile is handed: the means to write, to tell, and to wait.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{Api, Resource};
use tracing::Instrument as _;
use windlass_client::RequestOptions;
use windlass_env::{Env, Task};
use windlass_events::Recorder;
use windlass_object::condition::ConditionStatus;
use windlass_object::{ObjectKey, ResourceKind, time};
use windlass_workqueue::Priority;

use crate::core::Core;
use crate::enqueue::enqueuer::Enqueuer;
use crate::enqueue::watch::Watchable;
use crate::enqueue::watches::DynamicWatches;
use crate::live::live;
use crate::ownership::ApiScope;
use crate::run::turn::Turn;

/// The means of one reconcile. Cheap to clone into tasks that the reconcile [spawns](Self::spawn).
#[derive(Clone)]
pub struct Context {
    turn: Arc<Turn>,
    core: Arc<Core>,
    events: Recorder,
    attempts: u32,
    span: tracing::Span,
    priority: Priority,
}

/// What the attempt at one key knows of it.
pub(crate) struct AttemptInfo {
    pub(crate) attempts: u32,
    pub(crate) priority: Priority,
    pub(crate) span: tracing::Span,
}

impl Context {
    pub(crate) fn new(turn: Arc<Turn>, core: Arc<Core>, events: Recorder, about: AttemptInfo) -> Self {
        let AttemptInfo { attempts, priority, span } = about;
        Self { turn, core, events, attempts, span, priority }
    }

    /// Returns the key of this reconcile.
    pub fn key(&self) -> &ObjectKey {
        self.turn.key()
    }

    /// Returns the client of this reconcile. It is rate-limited, fenced by leadership, and rejects requests that the
    /// controller did not declare. The next reconcile of this key waits until the caches reflect what the client wrote.
    ///
    /// It writes while the reconcile runs. Afterwards a write fails and is not sent, and one that is under way then is
    /// dropped: a task that writes is started by [`spawn`](Self::spawn), and the reconcile waits for it. Reads pass.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn client(&self) -> &kube::Client {
        self.turn.client()
    }

    /// Returns kube's client for objects of `K`: those in the namespace of `at`, or of the cluster, as the scope of `K`
    /// says. For requests that have no method of a [`Writer`](crate::Writer); `setup` declares them by
    /// [`uses`](crate::Setup::uses).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn api<K>(&self, at: &ObjectKey) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope: ApiScope>,
    {
        K::Scope::api(self.client().clone(), at.namespace().unwrap_or_default())
    }

    /// Returns a context whose requests have these options: those of [`client`](Self::client), [`api`](Self::api) and of
    /// writers that it is passed to. An option that is not set keeps its value.
    ///
    /// In a dry run the server checks a write and answers as if it had written. Read-your-writes does not wait for it, and no
    /// writer records it. The rest has its effect: events are recorded, and the cleanup of
    /// [`finalize`](crate::Writer::finalize) runs.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kube::api::LogParams;
    /// # use windlass_controller::{Context, ReconcileError, RequestOptions};
    /// # use windlass_object::ObjectKey;
    /// # async fn follow(key: &ObjectKey, cx: &Context) -> Result<(), ReconcileError> {
    /// let cx = cx.with(RequestOptions::within(Duration::MAX));
    /// let log = LogParams { follow: true, ..LogParams::default() };
    /// let lines = cx.api::<Pod>(key).log_stream(key.name(), &log).await?;
    /// # drop(lines);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with(&self, options: RequestOptions) -> Self {
        Self { turn: Arc::new(self.turn.with(options)), ..self.clone() }
    }

    pub(crate) fn options(&self) -> RequestOptions {
        self.turn.options()
    }

    /// Reads an object past the cache; `None` if it does not exist. `setup` declares that by
    /// `uses::<K>([Verb::Get])`.
    ///
    /// # Errors
    /// As the server answers, except that the object does not exist.
    pub async fn get_live<K: Watchable>(&self, key: &ObjectKey) -> Result<Option<K>, kube::Error> {
        let answer = live(self.client(), &ResourceKind::of::<K>(), key).await?;
        // From bytes, as caches decode: one decoder for every kind.
        answer.map(|it| serde_json::from_slice(&it)).transpose().map_err(kube::Error::SerdeError)
    }

    /// Makes a condition about the present generation of `of`, stamped with the time. To be set by
    /// [`set_condition`](windlass_object::condition::set_condition), which keeps the time of a status that stays.
    pub fn condition(
        &self,
        of: &impl Resource,
        type_: &str,
        status: impl Into<ConditionStatus>,
        reason: &str,
        message: impl Into<String>,
    ) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status: status.into().as_str().to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
            observed_generation: of.meta().generation,
            last_transition_time: self.time(),
        }
    }

    /// The wall clock, in whole seconds, as objects carry it.
    pub fn time(&self) -> Time {
        time::seconds(self.env().wall())
    }

    /// Tells users what happened. Never waits and never fails the reconcile.
    pub fn events(&self) -> &Recorder {
        &self.events
    }

    /// The clock, timers and randomness of this process.
    pub fn env(&self) -> &Env {
        &self.core.env
    }

    /// How many times in a row this key has failed before this attempt.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How urgent the key was when the worker took it. A key that comes back keeps it, unless its
    /// [`Outcome`](crate::Outcome::at) says otherwise.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// The queue of this controller, for other keys than this one: an [`Outcome`](crate::Outcome) says when this one
    /// comes back.
    pub fn queue(&self) -> &Enqueuer {
        &self.core.wiring.queue
    }

    /// Resolves when the controller begins to stop: the reconcile continues, and no other key is taken.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.core.stop.clone().cancelled_owned()
    }

    /// Watches that may be added and removed while the controller runs.
    pub fn watches(&self) -> &DynamicWatches {
        &self.core.watches
    }

    /// Starts a task of this reconcile, in its span. The key is settled when every such task has ended: they are awaited
    /// once the reconcile returns, and aborted if it is dropped or panics. `name` shows in the log.
    ///
    /// The handle need not be kept. A panic of the task is an error of the handle and is logged; it is no failure of the
    /// reconcile unless the reconcile makes it one.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn<F>(&self, name: impl Into<String>, task: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.turn.tasks().spawn(name, task.instrument(self.span.clone()))
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("attempts", &self.attempts).finish_non_exhaustive()
    }
}
