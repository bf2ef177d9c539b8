//! The recording side: describes events and queues them without waiting.

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

/// An event to [record](Recorder::publish) with more than a reason and a note.
///
/// Events about one object that differ in their note alone are combined from the tenth note on; the combined Event has
/// no annotations. A repeat changes count, time and note of the first Event, so its annotations are those of the first.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NewEvent {
    pub(crate) type_: &'static str,
    /// The reason for machines, short and in UpperCamelCase.
    pub reason: String,
    /// A sentence for people.
    pub note: String,
    /// The action that was taken or failed, for machines. `None` unless set, as in upstream's controllers.
    pub action: Option<String>,
    /// A second object, for example the one that the controller created.
    pub related: Option<ObjectReference>,
    /// Annotations of the Event.
    pub annotations: BTreeMap<String, String>,
}

impl NewEvent {
    /// Returns an event of type `Normal`: nothing is wrong.
    pub fn normal(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self::new("Normal", reason.into(), note.into())
    }

    /// Returns an event of type `Warning`: something requires attention.
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

/// Takes events. Cloning is cheap; all clones share one queue.
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

/// The recording end of the queue to a sink.
struct Queue {
    env: Env,
    sender: mpsc::Sender<PendingEvent>,
    names: Mutex<EventNameGenerator>,
    overflowing: AtomicBool,
    metrics: EventMetrics,
}

/// Something that happened, on its way to the sink.
#[derive(Debug)]
pub(crate) struct PendingEvent {
    /// What the Event is called if it becomes one.
    pub(crate) name: String,
    pub(crate) regarding: ObjectReference,
    pub(crate) event: NewEvent,
    /// When it happened, by the wall clock.
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

    /// A recorder whose events go nowhere.
    pub fn discarding() -> Self {
        Self { destination: Destination::Nowhere }
    }

    /// A recorder whose events a test reads from the log.
    pub fn capturing() -> (Self, CapturedEvents) {
        let log = CapturedEvents::default();
        (Self { destination: Destination::Log(log.clone()) }, log)
    }

    /// Records that `regarding` is in order, with a reason for machines and a note for people.
    ///
    /// Never waits. If the queue is full, the event is dropped and counted. So it is with the other methods.
    pub fn normal(&self, regarding: &impl Resource<DynamicType = ()>, reason: &str, note: impl Display) {
        self.record(reference(regarding), NewEvent::normal(reason, note.to_string()));
    }

    /// Records that `regarding` requires attention, as [`normal`](Self::normal) does.
    pub fn warning(&self, regarding: &impl Resource<DynamicType = ()>, reason: &str, note: impl Display) {
        self.record(reference(regarding), NewEvent::warning(reason, note.to_string()));
    }

    /// Records an event with all its fields about any object, also one that the caller has not read.
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

    /// Counts each event dropped, and tells of the first of a row.
    fn drop_event(&self, refused: &mpsc::error::TrySendError<PendingEvent>) {
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
struct EventNameGenerator {
    rng: Rng,
    /// Sets recorders apart that read the same coarse clock; less than a millisecond.
    offset: i128,
    last: i128,
}

const NANOS_PER_MILLISECOND: u64 = 1_000_000;

impl EventNameGenerator {
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

/// The events of a [capturing](Recorder::capturing) recorder.
#[derive(Clone, Debug, Default)]
pub struct CapturedEvents(Arc<Mutex<Vec<CapturedEvent>>>);

/// An event with its object.
#[derive(Clone, Debug, PartialEq)]
pub struct CapturedEvent {
    /// The object that the event is about.
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
    async fn names_differ_even_if_the_clock_stands_still() {
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
    async fn object_whose_name_no_event_may_have_gets_a_random_one() {
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
