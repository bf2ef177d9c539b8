//! The sink, which sends events to the API server.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::Resource as _;
use kube::api::{Patch, PatchParams, PostParams, Request};
use kube::core::Status;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use windlass_client::{one_line, one_line_with_rule};
use windlass_env::{Env, Rng};
use windlass_metrics::{EventMetrics, Metrics};

use crate::correlator::{CAPACITY, CorrelateResult, Correlator};
use crate::recorder::{PendingEvent, Recorder};

/// Capacity of the event queue, as in client-go: sufficient for a burst, and little to lose.
const QUEUED: usize = 1000;

/// Maximum number of attempts to send an event to an unreachable API server.
const TRIES: u32 = 12;

/// Delay between attempts. The first delay is a random part of it, so that clients do not retry at the same time.
const PAUSE: Duration = Duration::from_secs(10);

/// Time to send queued events after the stop.
const DRAIN: Duration = Duration::from_secs(5);

/// Creates a recorder for this component and its sink. Events are sent only while the sink [runs](Sink::run). Random
/// numbers come from `stream`, which is the component's name unless `env` has several recorders of the component.
///
/// # Panics
///
/// If `env` already has a recorder with the same stream.
pub fn recorder(env: Env, stream: &str, component: &str, metrics: &Metrics) -> (Recorder, Sink) {
    let metrics = metrics.events();
    let (sender, receiver) = mpsc::channel(QUEUED);
    let names = env.rng(&format!("events/{stream}/names"));
    let rng = env.rng(&format!("events/{stream}/pauses"));
    let correlator = Correlator::new(component, CAPACITY);
    let sink = Sink { env: env.clone(), receiver, correlator, rng, metrics: metrics.clone(), in_hand: false };
    (Recorder::queueing(env, sender, names, metrics), sink)
}

/// Sends recorded events to the API server, one at a time.
///
/// A repeated event patches the count of the first Event. Events are combined if they have the same object, reason,
/// action and related object: the tenth different note within ten minutes starts one Event that represents all later
/// notes. For each object and event type, 25 events pass immediately and then one every five minutes. Each cache keeps
/// 4096 entries unless [`with_cache_size`](Self::with_cache_size) sets another size.
pub struct Sink {
    env: Env,
    receiver: mpsc::Receiver<PendingEvent>,
    correlator: Correlator,
    rng: Rng,
    metrics: EventMetrics,
    /// Whether an event was dequeued and its outcome is not known yet.
    in_hand: bool,
}

/// The outcome of one attempt.
enum SendOutcome {
    Sent,
    /// The server or this client rejected the event, and would reject it again.
    Refused(kube::Error),
    /// The event need not be sent: the correlator dropped it, or its namespace is terminating.
    NamespaceTerminating,
    /// The event might not have arrived.
    Unreachable(kube::Error),
}

impl Sink {
    /// Returns this sink with caches of `entries` entries each (at least one). Present entries are discarded.
    #[must_use]
    pub fn with_cache_size(self, entries: usize) -> Self {
        let correlator = Correlator::new(self.correlator.component(), entries);
        Self { correlator, ..self }
    }

    /// Sends events until `stop` is canceled, then the queued events for up to five seconds. Returns earlier if every
    /// recorder was dropped.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future loses queued events. Use `stop`.
    pub async fn run(mut self, client: kube::Client, stop: CancellationToken) {
        let (env, stopped) = (self.env.clone(), stop.clone());
        let drained_too_long = async move {
            stopped.cancelled().await;
            env.sleep(DRAIN).await;
        };
        tokio::select! {
            biased;
            () = self.serve(&client, &stop) => {}
            () = drained_too_long => self.abandon(),
        }
    }

    async fn serve(&mut self, client: &kube::Client, stop: &CancellationToken) {
        while let Some(occurrence) = self.next(stop).await {
            self.in_hand = true;
            self.deliver(client, occurrence, stop).await;
            self.in_hand = false;
        }
    }

    /// Returns the next event to send. After the stop, returns only events that were queued before it.
    async fn next(&mut self, stop: &CancellationToken) -> Option<PendingEvent> {
        tokio::select! {
            biased;
            () = stop.cancelled() => self.receiver.close(),
            occurrence = self.receiver.recv() => return occurrence,
        }
        self.receiver.recv().await
    }

    /// Sends one event and retries while the server is unreachable. After the stop, there is one last attempt.
    async fn deliver(&mut self, client: &kube::Client, pending: PendingEvent, stop: &CancellationToken) {
        let verdict = self.correlator.correlate(pending, self.env.now());
        for tried in 1..=TRIES {
            let failure = match attempt(client, &verdict).await {
                SendOutcome::Sent => return self.metrics.sent.inc(),
                SendOutcome::NamespaceTerminating => return self.metrics.dropped.inc(),
                SendOutcome::Refused(error) => return self.refused(&error),
                SendOutcome::Unreachable(error) => error,
            };
            if tried == TRIES || stop.is_cancelled() {
                tracing::error!(error = one_line(&failure), tried, "event not sent; dropping it");
                return self.metrics.failed.inc();
            }
            tracing::debug!(error = one_line(&failure), "API server unreachable; retrying event");
            self.pause(tried, stop).await;
        }
    }

    async fn pause(&mut self, tried: u32, stop: &CancellationToken) {
        let pause = if tried == 1 { self.rng.between(Duration::ZERO, PAUSE) } else { PAUSE };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.env.sleep(pause) => {}
        }
    }

    fn refused(&self, error: &kube::Error) {
        self.metrics.failed.inc();
        match error {
            kube::Error::Api(status) if status.is_already_exists() => {
                tracing::debug!(%error, "event already exists");
            }
            error => tracing::error!(error = one_line_with_rule(error), "event rejected"),
        }
    }

    /// Counts the events that were not sent in time.
    fn abandon(&mut self) {
        let mut dropped = u64::from(self.in_hand);
        while self.receiver.try_recv().is_ok() {
            dropped += 1;
        }
        self.metrics.dropped.inc_by(dropped);
        tracing::warn!(count = dropped, "events not sent before shutdown; dropped");
    }
}

async fn attempt(client: &kube::Client, verdict: &CorrelateResult) -> SendOutcome {
    let outcome = match verdict {
        CorrelateResult::Create(event) => create(client, event).await,
        CorrelateResult::Patch { body, whole } => patch(client, body, whole).await,
        CorrelateResult::Drop => return SendOutcome::NamespaceTerminating,
    };
    match outcome {
        Ok(()) => SendOutcome::Sent,
        Err(kube::Error::Api(status)) if is_namespace_terminating(&status) => {
            SendOutcome::NamespaceTerminating
        }
        Err(error) if may_not_have_arrived(&error) => SendOutcome::Unreachable(error),
        Err(error) => SendOutcome::Refused(error),
    }
}

/// Creates the Event. The response is not decoded: it has no use here, and there can be as many Events as other writes.
async fn create(client: &kube::Client, event: &Event) -> kube::Result<()> {
    let body = serde_json::to_vec(event).map_err(kube::Error::SerdeError)?;
    let request = requests(event).create(&PostParams::default(), body);
    windlass_client::send(client, request.map_err(kube::Error::BuildRequest)?).await.map(drop)
}

/// Patches the count. If the Event has expired or was deleted, creates it again with that count.
async fn patch(client: &kube::Client, body: &serde_json::Value, whole: &Event) -> kube::Result<()> {
    let name = whole.metadata.name.as_deref().unwrap_or_default();
    let request = requests(whole).patch(name, &PatchParams::default(), &Patch::Strategic(body));
    match windlass_client::send(client, request.map_err(kube::Error::BuildRequest)?).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => create(client, whole).await,
        outcome => outcome.map(drop),
    }
}

fn requests(event: &Event) -> Request {
    Request::new(Event::url_path(&(), event.metadata.namespace.as_deref()))
}

fn is_namespace_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Returns whether the failure occurred between client and server. A closed fence or an undeclared verb is a local
/// failure, and a retry would not help.
fn may_not_have_arrived(error: &kube::Error) -> bool {
    match error {
        kube::Error::Service(_) => {
            windlass_client::fenced(error).is_none() && windlass_client::undeclared(error).is_none()
        }
        kube::Error::HyperError(_) | kube::Error::Auth(_) | kube::Error::ReadEvents(_) => true,
        _ => false,
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("queued", &self.receiver.len()).finish_non_exhaustive()
    }
}
