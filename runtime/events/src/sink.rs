//! The side that talks to the API server.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::Status;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use windlass_client::{one_line, one_line_with_rule};
use windlass_env::{Env, Rng};
use windlass_metrics::{EventMetrics, Metrics};

use crate::correlator::{CAPACITY, CorrelateResult, Correlator};
use crate::recorder::{PendingEvent, Recorder};

/// Events that may wait to be sent. Upstream's number: enough for a burst, and little to lose.
const QUEUED: usize = 1000;

/// How often an event is tried that does not reach the API server.
const TRIES: u32 = 12;

/// Pause between tries. The first is shortened at random, so that clients that failed together do not return so.
const PAUSE: Duration = Duration::from_secs(10);

/// How long what is queued is still sent after the stop.
const DRAIN: Duration = Duration::from_secs(5);

/// Returns a recorder for this component, and the sink that must [run](Sink::run) for its events to arrive. Random numbers
/// come from `stream`, which is the component's name unless `env` has several recorders of the component.
///
/// # Panics
///
/// If `env` has a recorder of the same stream.
pub fn recorder(env: Env, stream: &str, component: &str, metrics: &Metrics) -> (Recorder, Sink) {
    let metrics = metrics.events();
    let (sender, receiver) = mpsc::channel(QUEUED);
    let names = env.rng(&format!("events/{stream}/names"));
    let rng = env.rng(&format!("events/{stream}/pauses"));
    let correlator = Correlator::new(component, CAPACITY);
    let sink = Sink { env: env.clone(), receiver, correlator, rng, metrics: metrics.clone(), in_hand: false };
    (Recorder::queueing(env, sender, names, metrics), sink)
}

/// Sends recorded events to the API server, one after the other.
///
/// A repeat of the same event patches the count of the first. The tenth different note of one reason about one object, with
/// one action and one related object, within ten minutes begins one Event that stands for all further ones. Of one type
/// about one object 25 events pass at once, then one in five minutes. Of each the last 4096 are remembered, unless
/// [`with_cache_size`](Self::with_cache_size) says otherwise.
pub struct Sink {
    env: Env,
    receiver: mpsc::Receiver<PendingEvent>,
    correlator: Correlator,
    rng: Rng,
    metrics: EventMetrics,
    /// Whether an event was taken from the queue and its fate is open.
    in_hand: bool,
}

/// How one try ended.
enum SendOutcome {
    Sent,
    /// The server, or we ourselves, refused it, and would again.
    Refused(kube::Error),
    /// Its namespace is going away, and takes its events with it.
    NamespaceTerminating,
    /// It may not have arrived.
    Unreachable(kube::Error),
}

impl Sink {
    /// The same sink, which remembers so many events of each sort in order to recognize repetition. What was said before
    /// is forgotten. At least one is remembered.
    #[must_use]
    pub fn with_cache_size(self, entries: usize) -> Self {
        let correlator = Correlator::new(self.correlator.component(), entries);
        Self { correlator, ..self }
    }

    /// Sends events until `stop`, then what is still queued, for at most five seconds. Ends earlier if every recorder
    /// is gone.
    ///
    /// # Cancel safety
    ///
    /// None: dropping the future loses what is queued. Use `stop`.
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

    /// The next event to send: after the stop only what was queued before.
    async fn next(&mut self, stop: &CancellationToken) -> Option<PendingEvent> {
        tokio::select! {
            biased;
            () = stop.cancelled() => self.receiver.close(),
            occurrence = self.receiver.recv() => return occurrence,
        }
        self.receiver.recv().await
    }

    /// Sends one event, trying again while the server cannot be reached; after the stop there is one last try.
    async fn deliver(&mut self, client: &kube::Client, occurrence: PendingEvent, stop: &CancellationToken) {
        let verdict = self.correlator.correlate(occurrence, self.env.now());
        for tried in 1..=TRIES {
            let failure = match attempt(client, &verdict).await {
                SendOutcome::Sent => return self.metrics.sent.inc(),
                SendOutcome::NamespaceTerminating => return self.metrics.dropped.inc(),
                SendOutcome::Refused(error) => return self.refused(&error),
                SendOutcome::Unreachable(error) => error,
            };
            if tried == TRIES || stop.is_cancelled() {
                tracing::error!(error = one_line(&failure), tried, "giving up on an event");
                return self.metrics.failed.inc();
            }
            tracing::debug!(error = one_line(&failure), "an event did not reach the API server");
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
                tracing::debug!(%error, "an event of this name exists");
            }
            error => tracing::error!(error = one_line_with_rule(error), "an event was refused"),
        }
    }

    /// Counts what there was no time for.
    fn abandon(&mut self) {
        let mut dropped = u64::from(self.in_hand);
        while self.receiver.try_recv().is_ok() {
            dropped += 1;
        }
        self.metrics.dropped.inc_by(dropped);
        tracing::warn!(dropped, "events were left unsent at shutdown");
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

async fn create(client: &kube::Client, event: &Event) -> kube::Result<()> {
    api(client, event).create(&PostParams::default(), event).await.map(drop)
}

/// Raises the count; creates the Event again, with that count, if it has expired or was deleted.
async fn patch(client: &kube::Client, body: &serde_json::Value, whole: &Event) -> kube::Result<()> {
    let name = whole.metadata.name.as_deref().unwrap_or_default();
    match api(client, whole).patch(name, &PatchParams::default(), &Patch::Strategic(body)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => create(client, whole).await,
        outcome => outcome.map(drop),
    }
}

fn api(client: &kube::Client, event: &Event) -> Api<Event> {
    Api::namespaced(client.clone(), event.metadata.namespace.as_deref().unwrap_or_default())
}

fn is_namespace_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Whether the failure lies on the way to the server. A closed fence, or a verb that was not declared, is on our side
/// of it, and will not pass.
fn may_not_have_arrived(error: &kube::Error) -> bool {
    match error {
        kube::Error::Service(_) => {
            windlass_client::refusal(error).is_none() && windlass_client::undeclared(error).is_none()
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
