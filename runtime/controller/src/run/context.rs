//! The context of a reconcile: its client, events, queue, timers and tasks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{Api, Resource};
use windlass_client::RequestOptions;
use windlass_env::{Env, Task};
use windlass_events::Recorder;
use windlass_object::condition::ConditionStatus;
use windlass_object::{ObjectKey, ResourceKind, time};
use windlass_workqueue::Priority;

use crate::api_scope::ApiScope;
use crate::core::Core;
use crate::enqueue::enqueuer::Enqueuer;
use crate::enqueue::watch::FullObject;
use crate::enqueue::watches::DynamicWatches;
use crate::live::get_live;
use crate::run::reconcile_scope::ReconcileScope;
use crate::run::spans::ReconcileSpans;

/// The context of one reconcile. Cheap to clone into tasks that the reconcile [spawns](Self::spawn). See the example of
/// [`Controller`](crate::Controller).
#[derive(Clone)]
pub struct Context {
    scope: Arc<ReconcileScope>,
    core: Arc<Core>,
    events: Recorder,
    attempts: u32,
    spans: ReconcileSpans,
    priority: Priority,
}

/// The properties of one attempt at a key.
pub(crate) struct AttemptInfo {
    pub(crate) attempts: u32,
    pub(crate) priority: Priority,
    pub(crate) spans: ReconcileSpans,
}

impl Context {
    pub(crate) fn new(
        scope: Arc<ReconcileScope>,
        core: Arc<Core>,
        events: Recorder,
        about: AttemptInfo,
    ) -> Self {
        let AttemptInfo { attempts, priority, spans } = about;
        Self { scope, core, events, attempts, spans, priority }
    }

    /// Returns the key of this reconcile.
    pub fn key(&self) -> &ObjectKey {
        self.scope.key()
    }

    /// Returns the client of this reconcile. It is rate-limited, fenced by leadership, and rejects requests that the
    /// controller did not declare. The next reconcile of this key waits until the caches reflect the writes of this
    /// client.
    ///
    /// It writes only while the reconcile runs. Afterwards a write fails without being sent, and a write in flight is
    /// dropped. Start tasks that write with [`spawn`](Self::spawn): the reconcile waits for them. Reads are always
    /// sent.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn client(&self) -> &kube::Client {
        self.scope.client()
    }

    /// Returns kube's client for objects of `K`: in the namespace of `at` or in the cluster, by the scope of `K`. For
    /// requests without a method of a [`Writer`](crate::Writer); `setup` must declare them with
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

    /// Returns a context whose requests have these options: those of [`client`](Self::client), [`api`](Self::api) and
    /// of writers that it is passed to. An option that is not set keeps its value.
    ///
    /// In a dry run the server checks a write and responds as if it had written. Read-your-writes does not wait for it,
    /// and no writer records it. Other effects are real: events are recorded, and the cleanup of
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
        Self { scope: Arc::new(self.scope.with(options)), ..self.clone() }
    }

    pub(crate) fn options(&self) -> RequestOptions {
        self.scope.options()
    }

    /// Reads an object from the server, not from a cache; `None` if it does not exist. `setup` must declare it with
    /// `uses::<K>([Verb::Get])`.
    ///
    /// # Errors
    /// A rejected request, an object that cannot be decoded, and
    /// [`NotDeclaredError`](windlass_client::NotDeclaredError) if `setup` does not declare the request. An absent
    /// object is `Ok(None)`.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn get_live<K: FullObject>(&self, key: &ObjectKey) -> Result<Option<K>, kube::Error> {
        let answer = get_live(self.client(), &ResourceKind::of::<K>(), key).await?;
        // Decoded from bytes like cached objects, so each kind has one decoder.
        answer.map(|it| serde_json::from_slice(&it)).transpose().map_err(kube::Error::SerdeError)
    }

    /// Creates a condition for the current generation of `of`, with the current time. `status` is `true`, `false` or
    /// [`ConditionStatus::Unknown`]. Set the condition with
    /// [`set_condition`](windlass_object::condition::set_condition), which keeps the transition time if the status does
    /// not change:
    /// `set_condition(&mut status.conditions, cx.condition(&*site, "Ready", true, "Replicas", "2 are ready"))`.
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

    /// Returns the wall-clock time in whole seconds, as objects store it.
    pub fn time(&self) -> Time {
        time::seconds(self.env().wall())
    }

    /// Returns the recorder of Kubernetes events. It never waits and never fails the reconcile.
    pub fn events(&self) -> &Recorder {
        &self.events
    }

    /// Returns the clock, timers and randomness of this process.
    pub fn env(&self) -> &Env {
        &self.core.env
    }

    /// Returns the number of consecutive failures of this key before this attempt.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the priority of the key when the worker dequeued it. A requeued key keeps it, unless its
    /// [`Outcome`](crate::Outcome::with_priority) sets another.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Lets the key rest for this time after this reconcile, if that is longer than the usual rest: three times the
    /// duration of the reconcile, at most 100 ms. A change during the rest is reconciled at its end. For a reconcile
    /// whose cost grows with the number of objects that it reads, and that is added for each change of them: with
    /// `cx.rest_at_least(Duration::from_millis(pods))`, changes cause at most 1,000 reads of Pods per second.
    ///
    /// The longest of several requests counts. A requeue or a retry that becomes due ends the rest, and so do a new
    /// spec of the object, an add with [`Priority::HIGH`] or more, and
    /// [`Enqueuer::end_rest`](crate::Enqueuer::end_rest). A resting key stays in memory.
    pub fn rest_at_least(&self, length: Duration) {
        self.scope.rest_at_least(length);
    }

    /// Returns the queue of this controller, for other keys than this one: an [`Outcome`](crate::Outcome) determines
    /// when this one is requeued.
    pub fn queue(&self) -> &Enqueuer {
        &self.core.handler_context.queue
    }

    /// Resolves when the controller begins to stop: the reconcile continues, and no other key is dequeued.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.core.stop.clone().cancelled_owned()
    }

    /// Returns the watches that can be added and removed while the controller runs.
    pub fn watches(&self) -> &DynamicWatches {
        &self.core.watches
    }

    /// Starts a task of this reconcile, in its span. The key is settled when every such task has ended: they are
    /// awaited once the reconcile returns, and aborted if it is dropped or panics. `name` appears in the log.
    ///
    /// The handle can be dropped. A panic of the task is logged and returned as an error by the handle; it does not
    /// fail the reconcile unless the reconcile returns that error.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn<F>(&self, name: impl Into<String>, task: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.scope.tasks().spawn(name, self.spans.instrument(task))
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("attempts", &self.attempts).finish_non_exhaustive()
    }
}
