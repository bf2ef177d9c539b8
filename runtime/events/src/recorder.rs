//! The side that reconciles see: say what happened, and go on.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::mpsc;
use windlass_env::{Env, Rng};
use windlass_metrics::EventMetrics;

/// How an event is meant.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// Things go as they should; the event says what was done.
    Normal,
    /// Something needs a person's attention.
    Warning,
}

impl EventType {
    /// The type as the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Takes events. Cloning is cheap; all clones share one queue.
#[derive(Clone)]
pub struct Recorder {
    destination: Destination,
}

#[derive(Clone)]
enum Destination {
    Sink(Arc<Queue>),
    Log(Log),
    Nowhere,
}

/// The recording end of the queue to a sink.
struct Queue {
    env: Env,
    sender: mpsc::Sender<Occurrence>,
    names: Mutex<Names>,
    overflowing: AtomicBool,
    metrics: EventMetrics,
}

/// Something that happened, on its way to the sink.
#[derive(Debug)]
pub(crate) struct Occurrence {
    /// What the Event is called if it becomes one.
    pub(crate) name: String,
    pub(crate) regarding: ObjectReference,
    pub(crate) kind: EventType,
    pub(crate) reason: String,
    pub(crate) note: String,
    /// When it happened, by the wall clock.
    pub(crate) at: Timestamp,
}

impl Recorder {
    pub(crate) fn queueing(
        env: Env,
        sender: mpsc::Sender<Occurrence>,
        rng: Rng,
        metrics: EventMetrics,
    ) -> Self {
        let names = Mutex::new(Names::new(rng));
        let queue = Queue { env, sender, names, overflowing: AtomicBool::new(false), metrics };
        Self { destination: Destination::Sink(Arc::new(queue)) }
    }

    /// A recorder whose events go nowhere.
    pub fn discarding() -> Self {
        Self { destination: Destination::Nowhere }
    }

    /// A recorder whose events a test reads from the log.
    pub fn capturing() -> (Self, Log) {
        let log = Log::default();
        (Self { destination: Destination::Log(log.clone()) }, log)
    }

    /// Records that something happened to an object. Never waits; drops the event if the queue is full.
    ///
    /// `reason` is short, UpperCamelCase and meant for machines; `note` is a sentence for people.
    pub fn event(&self, regarding: &ObjectReference, kind: EventType, reason: &str, note: &str) {
        match &self.destination {
            Destination::Sink(queue) => queue.push(regarding, kind, reason, note),
            Destination::Log(log) => log.push(regarding, kind, reason, note),
            Destination::Nowhere => {}
        }
    }
}

impl Queue {
    fn push(&self, regarding: &ObjectReference, kind: EventType, reason: &str, note: &str) {
        let at = self.env.wall();
        let occurrence = Occurrence {
            name: self.names.lock().unwrap_or_else(PoisonError::into_inner).next(regarding, at),
            regarding: regarding.clone(),
            kind,
            reason: reason.to_owned(),
            note: note.to_owned(),
            at,
        };
        self.metrics.recorded.inc();
        match self.sender.try_send(occurrence) {
            Ok(()) => self.overflowing.store(false, Ordering::Relaxed),
            Err(refused) => self.drop_event(&refused),
        }
    }

    /// Counts each event dropped, and tells of the first of a row.
    fn drop_event(&self, refused: &mpsc::error::TrySendError<Occurrence>) {
        self.metrics.dropped.inc();
        if !self.overflowing.swap(true, Ordering::Relaxed) {
            tracing::warn!(why = %refused, "dropping events until there is room");
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let destination = match self.destination {
            Destination::Sink(_) => "sink",
            Destination::Log(_) => "log",
            Destination::Nowhere => "nowhere",
        };
        f.debug_struct("Recorder").field("destination", &destination).finish()
    }
}

/// Names of Events: the object's, a dot, and the time in nanoseconds as hexadecimal digits.
struct Names {
    rng: Rng,
    /// Sets recorders apart that read the same coarse clock; less than a millisecond.
    offset: i128,
    last: i128,
}

const NANOS_PER_MILLISECOND: u64 = 1_000_000;

impl Names {
    fn new(mut rng: Rng) -> Self {
        let offset = i128::from(rng.below(NANOS_PER_MILLISECOND));
        Self { rng, offset, last: 0 }
    }

    /// A name not given before, even if the clock stands still. An object whose name could not begin that of an
    /// Event gets a random one.
    fn next(&mut self, regarding: &ObjectReference, at: Timestamp) -> String {
        self.last = (at.as_nanosecond() + self.offset).max(self.last + 1);
        let name = format!("{}.{:x}", regarding.name.as_deref().unwrap_or(""), self.last);
        if is_dns_subdomain(&name) { name } else { self.rng.identifier() }
    }
}

/// Whether the API accepts this as the name of an object.
fn is_dns_subdomain(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label = |label: &str| {
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(inner)
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// What a capturing recorder was told.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<Recorded>>>);

/// One event in a [`Log`].
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The object it is about.
    pub regarding: ObjectReference,
    /// How it is meant.
    pub kind: EventType,
    /// The reason, for machines.
    pub reason: String,
    /// The note, for people.
    pub note: String,
}

impl Log {
    /// Everything recorded so far, in order.
    pub fn entries(&self) -> Vec<Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Everything recorded since this was last asked, in order.
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, regarding: &ObjectReference, kind: EventType, reason: &str, note: &str) {
        let recorded =
            Recorded { regarding: regarding.clone(), kind, reason: reason.to_owned(), note: note.to_owned() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(recorded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> ObjectReference {
        ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn names_differ_even_if_the_clock_stands_still() {
        let env = Env::virtual_time(1);
        let mut names = Names::new(env.rng("names"));
        let first = names.next(&named("web"), env.wall());
        let second = names.next(&named("web"), env.wall());
        let nanos =
            |name: &str| i128::from_str_radix(name.strip_prefix("web.").expect("prefix"), 16).expect("hex");
        assert_eq!(nanos(&first) + 1, nanos(&second));
        let ahead = nanos(&first) - env.wall().as_nanosecond();
        assert!((0..1_000_000).contains(&ahead), "{ahead}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_whose_name_no_event_may_have_gets_a_random_one() {
        let env = Env::virtual_time(1);
        let mut names = Names::new(env.rng("names"));
        let long = "a".repeat(250);
        for name in ["system:node", "", "Upper", long.as_str()] {
            let given = names.next(&named(name), env.wall());
            assert!(is_dns_subdomain(&given) && given.len() == 36, "{given}");
        }
    }

    #[test]
    fn a_capturing_recorder_logs_and_a_discarding_one_does_not_mind() {
        let (recorder, log) = Recorder::capturing();
        recorder.event(&named("web"), EventType::Warning, "FailedCreate", "no room");
        Recorder::discarding().event(&named("web"), EventType::Normal, "Created", "done");
        let entries = log.take();
        assert_eq!(entries.len(), 1);
        assert_eq!((entries[0].kind, entries[0].reason.as_str()), (EventType::Warning, "FailedCreate"));
        assert!(log.entries().is_empty());
    }
}
