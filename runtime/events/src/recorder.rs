//! The recorder, which creates events and queues them without waiting.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use tokio::sync::mpsc;
use windlass_env::{Env, Rng};
use windlass_metrics::EventMetrics;
use windlass_object::names::is_dns_subdomain;

/// An event with optional fields, for [`Recorder::publish`].
///
/// If events for one object differ only in their note, they are combined from the tenth note on; the combined Event has
/// no annotations. A repeat changes count, time and note of the first Event and keeps its annotations.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NewEvent {
    pub(crate) type_: &'static str,
    /// A short reason in UpperCamelCase, for programs.
    pub reason: String,
    /// A sentence for users.
    pub note: String,
    /// The action that succeeded or failed, for programs. `None` unless set, as in upstream's controllers.
    pub action: Option<String>,
    /// A second object, for example the one that the controller created.
    pub related: Option<ObjectReference>,
    /// Annotations of the Event.
    pub annotations: BTreeMap<String, String>,
}

impl NewEvent {
    /// Creates an event of type `Normal`.
    pub fn normal(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self::new("Normal", reason.into(), note.into())
    }

    /// Creates an event of type `Warning`, for conditions that require attention.
    pub fn warning(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self::new("Warning", reason.into(), note.into())
    }

    /// Returns the type: `Normal` or `Warning`.
    pub fn type_(&self) -> &'static str {
        self.type_
    }

    fn new(type_: &'static str, reason: String, note: String) -> Self {
        Self { type_, reason, note, action: None, related: None, annotations: BTreeMap::new() }
    }
}

/// Accepts events. Cloning is cheap; all clones share one queue.
///
/// # Examples
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use windlass_events::Recorder;
///
/// let (recorder, events) = Recorder::capturing();
/// recorder.warning(&Pod::default(), "FailedMount", "the volume does not exist");
/// let captured = events.take();
/// assert_eq!((captured[0].event.type_(), captured[0].event.reason.as_str()), ("Warning", "FailedMount"));
/// ```
#[derive(Clone)]
pub struct Recorder {
    destination: Destination,
}

#[derive(Clone)]
enum Destination {
    Sink(Arc<Queue>),
    Log(CapturedEvents),
    Nowhere,
}

/// The sending end of the queue to a sink.
struct Queue {
    env: Env,
    sender: mpsc::Sender<PendingEvent>,
    names: Mutex<EventNameGenerator>,
    overflowing: AtomicBool,
    metrics: EventMetrics,
}

/// A recorded event that is queued for the sink.
#[derive(Debug)]
pub(crate) struct PendingEvent {
    /// The name for the Event, if a new one is created.
    pub(crate) name: String,
    pub(crate) regarding: ObjectReference,
    pub(crate) event: NewEvent,
    /// The time of the event, by the wall clock.
    pub(crate) at: Timestamp,
}

impl Recorder {
    pub(crate) fn queueing(
        env: Env,
        sender: mpsc::Sender<PendingEvent>,
        rng: Rng,
        metrics: EventMetrics,
    ) -> Self {
        let names = Mutex::new(EventNameGenerator::new(rng));
        let queue = Queue { env, sender, names, overflowing: AtomicBool::new(false), metrics };
        Self { destination: Destination::Sink(Arc::new(queue)) }
    }

    /// Creates a recorder that discards all events.
    pub fn discarding() -> Self {
        Self { destination: Destination::Nowhere }
    }

    /// Creates a recorder for tests. The returned log contains its events.
    pub fn capturing() -> (Self, CapturedEvents) {
        let log = CapturedEvents::default();
        (Self { destination: Destination::Log(log.clone()) }, log)
    }

    /// Records an event of type `Normal` for `regarding`, with a reason for programs and a note for users.
    ///
    /// Never waits. If the queue is full, the event is dropped and counted. This also applies to the other methods.
    pub fn normal(&self, regarding: &impl Resource<DynamicType = ()>, reason: &str, note: impl Display) {
        self.record(reference(regarding), NewEvent::normal(reason, note.to_string()));
    }

    /// Records an event of type `Warning` for `regarding`, like [`normal`](Self::normal).
    pub fn warning(&self, regarding: &impl Resource<DynamicType = ()>, reason: &str, note: impl Display) {
        self.record(reference(regarding), NewEvent::warning(reason, note.to_string()));
    }

    /// Records an event with all its fields for any object, including an object that the caller has not read.
    pub fn publish(&self, regarding: &ObjectReference, event: &NewEvent) {
        self.record(regarding.clone(), event.clone());
    }

    fn record(&self, regarding: ObjectReference, event: NewEvent) {
        match &self.destination {
            Destination::Sink(queue) => queue.push(regarding, event),
            Destination::Log(log) => log.lock().push(CapturedEvent { regarding, event }),
            Destination::Nowhere => {}
        }
    }
}

/// Returns a reference to the version of the object that the caller has read, as upstream's `GetReference` does.
fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    let resource_version = object.meta().resource_version.clone();
    ObjectReference { resource_version, ..object.object_ref(&()) }
}

impl Queue {
    fn push(&self, regarding: ObjectReference, event: NewEvent) {
        let at = self.env.wall();
        let name = self.names.lock().unwrap_or_else(PoisonError::into_inner).next(&regarding, at);
        self.metrics.recorded.inc();
        match self.sender.try_send(PendingEvent { name, regarding, event, at }) {
            Ok(()) => self.overflowing.store(false, Ordering::Relaxed),
            Err(refused) => self.drop_event(&refused),
        }
    }

    /// Counts each dropped event, and logs the first of a series.
    fn drop_event(&self, refused: &mpsc::error::TrySendError<PendingEvent>) {
        self.metrics.dropped.inc();
        if !self.overflowing.swap(true, Ordering::Relaxed) {
            tracing::warn!(why = %refused, "event queue full; dropping events");
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

/// Generates Event names: the name of the object, a dot, and the time in nanoseconds as hexadecimal digits.
struct EventNameGenerator {
    rng: Rng,
    /// Distinguishes recorders that read the same coarse clock; less than a millisecond.
    offset: i128,
    last: i128,
}

const NANOS_PER_MILLISECOND: u64 = 1_000_000;

impl EventNameGenerator {
    fn new(mut rng: Rng) -> Self {
        let offset = i128::from(rng.below(NANOS_PER_MILLISECOND));
        Self { rng, offset, last: 0 }
    }

    /// Returns a name that was not returned before, even if the clock does not advance. Returns a random name if the
    /// name of the object is not a valid prefix for an Event name.
    fn next(&mut self, regarding: &ObjectReference, at: Timestamp) -> String {
        self.last = (at.as_nanosecond() + self.offset).max(self.last + 1);
        let name = format!("{}.{:x}", regarding.name.as_deref().unwrap_or(""), self.last);
        if is_dns_subdomain(&name) { name } else { self.rng.identifier() }
    }
}

/// The events of a recorder that was created with [`Recorder::capturing`].
#[derive(Clone, Debug, Default)]
pub struct CapturedEvents(Arc<Mutex<Vec<CapturedEvent>>>);

/// A recorded event and its object.
#[derive(Clone, Debug, PartialEq)]
pub struct CapturedEvent {
    /// The object of the event.
    pub regarding: ObjectReference,
    /// The event.
    pub event: NewEvent,
}

impl CapturedEvents {
    /// Removes and returns all events recorded so far, in order.
    pub fn take(&self) -> Vec<CapturedEvent> {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CapturedEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn named(name: &str) -> ObjectReference {
        ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() }
    }

    // parity: generate-event-name
    #[tokio::test(start_paused = true)]
    async fn event_names_differ_when_clock_does_not_advance() {
        let env = Env::virtual_time(1);
        let mut names = EventNameGenerator::new(env.rng("names"));
        let first = names.next(&named("web"), env.wall());
        let second = names.next(&named("web"), env.wall());
        let nanos =
            |name: &str| i128::from_str_radix(name.strip_prefix("web.").expect("prefix"), 16).expect("hex");
        assert_eq!(nanos(&first) + 1, nanos(&second));
        let ahead = nanos(&first) - env.wall().as_nanosecond();
        assert!((0..1_000_000).contains(&ahead), "{ahead}");
    }

    // parity: generate-event-name
    #[tokio::test(start_paused = true)]
    async fn object_with_invalid_event_name_prefix_gets_random_name() {
        let env = Env::virtual_time(1);
        let mut names = EventNameGenerator::new(env.rng("names"));
        let long = "a".repeat(250);
        for name in ["system:node", "", "Upper", long.as_str()] {
            let given = names.next(&named(name), env.wall());
            assert!(is_dns_subdomain(&given) && given.len() == 36, "{given}");
        }
    }

    fn replica_set() -> ReplicaSet {
        let metadata = ObjectMeta {
            name: Some("web".to_owned()),
            namespace: Some("shop".to_owned()),
            uid: Some("u1".to_owned()),
            resource_version: Some("7".to_owned()),
            ..ObjectMeta::default()
        };
        ReplicaSet { metadata, ..ReplicaSet::default() }
    }

    #[test]
    fn event_refers_to_version_of_object_that_was_read() {
        let (recorder, log) = Recorder::capturing();
        recorder.normal(&replica_set(), "Scaled", "to three");
        let regarding = ObjectReference {
            api_version: Some("apps/v1".to_owned()),
            kind: Some("ReplicaSet".to_owned()),
            namespace: Some("shop".to_owned()),
            name: Some("web".to_owned()),
            uid: Some("u1".to_owned()),
            resource_version: Some("7".to_owned()),
            field_path: None,
        };
        assert_eq!(log.take(), [CapturedEvent { regarding, event: NewEvent::normal("Scaled", "to three") }]);
    }

    // parity: fake-recorder
    #[test]
    fn capturing_recorder_logs_all_fields_until_they_are_taken() {
        let (recorder, log) = Recorder::capturing();
        recorder.warning(&replica_set(), "FailedCreate", format_args!("no room for {}", 3));
        let mut event = NewEvent::normal("Moved", "to another node");
        event.action = Some("Move".to_owned());
        event.related = Some(named("node-1"));
        event.annotations.insert("zone".to_owned(), "a".to_owned());
        recorder.publish(&named("web"), &event);
        let [first, second]: [CapturedEvent; 2] = log.take().try_into().expect("two events");
        assert_eq!((first.event.type_(), first.event.note.as_str()), ("Warning", "no room for 3"));
        assert_eq!((second.regarding, second.event), (named("web"), event));
        assert!(log.take().is_empty());
    }

    #[test]
    fn discarding_recorder_accepts_events() {
        Recorder::discarding().normal(&replica_set(), "Created", "done");
    }
}
