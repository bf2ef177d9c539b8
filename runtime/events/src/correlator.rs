//! Decides what to send for a recorded event: a new Event, a higher count, or nothing. Pure functions.
//!
//! Events that differ only in their note are [combined](crate::aggregate) first. Repeats are counted next. Events above
//! the limit of their object are [dropped](crate::spam) last. A dropped repeat is still counted, so that the next one
//! that is sent contains the correct count.

use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;
use windlass_env::Instant;
use windlass_object::time;

use crate::NewEvent;
use crate::aggregate::{AggregateKey, Aggregator, combined_note};
use crate::lru::Lru;
use crate::recorder::PendingEvent;
use crate::spam::SpamFilter;
use crate::subject::RegardingKey;

/// Default number of entries in each cache, as in client-go.
pub(crate) const CAPACITY: usize = 4096;

/// Namespace of Events for cluster-scoped objects.
const DEFAULT_NAMESPACE: &str = "default";

/// The decision for one recorded event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CorrelateResult {
    /// Create a new Event.
    Create(Box<Event>),
    /// Patch an Event that was sent before. `whole` is the complete Event, in case it was deleted.
    Patch { body: serde_json::Value, whole: Box<Event> },
    /// Send nothing.
    Drop,
}

/// The fields that repeats of one Event share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EventKey {
    theme: AggregateKey,
    /// Note and field path; `None` for a combined Event, which can refer to any part of the object.
    own: Option<(String, Option<String>)>,
}

/// The Event whose count repeats increase.
#[derive(Clone, Debug)]
struct LoggedEvent {
    name: String,
    count: i32,
    at: Time,
}

/// Correlates the events of one component.
#[derive(Debug)]
pub(crate) struct Correlator {
    component: String,
    aggregator: Aggregator,
    firsts: Lru<EventKey, LoggedEvent>,
    filter: SpamFilter,
}

impl Correlator {
    /// Creates a correlator whose caches keep `capacity` entries each.
    pub(crate) fn new(component: &str, capacity: usize) -> Self {
        Self {
            component: component.to_owned(),
            aggregator: Aggregator::new(capacity),
            firsts: Lru::new(capacity),
            filter: SpamFilter::new(capacity),
        }
    }

    /// Returns the name of the component.
    pub(crate) fn component(&self) -> &str {
        &self.component
    }

    /// Returns what to send for this event, handled at `now`.
    pub(crate) fn correlate(&mut self, mut pending: PendingEvent, now: Instant) -> CorrelateResult {
        let key = self.key(&mut pending, now);
        let first = self.count(&key, &pending);
        if !self.filter.admits(&key.theme.subject, key.theme.type_, now) {
            return CorrelateResult::Drop;
        }
        let mut event = Box::new(event(&self.component, pending, &first));
        if key.own.is_none() {
            // As client-go.
            event.reporting_component = Some(String::new());
        }
        if first.count == 1 {
            CorrelateResult::Create(event)
        } else {
            CorrelateResult::Patch { body: patch(&event), whole: event }
        }
    }

    /// Returns the key of this event. Rewrites the note if the event is combined with others.
    fn key(&mut self, pending: &mut PendingEvent, now: Instant) -> EventKey {
        let theme = AggregateKey {
            subject: RegardingKey::of(&pending.regarding),
            type_: pending.event.type_,
            reason: pending.event.reason.clone(),
            action: pending.event.action.clone(),
            related: pending.event.related.as_ref().map(RegardingKey::of),
        };
        if self.aggregator.combines(&theme, &pending.event.note, now) {
            pending.event.note = combined_note(&pending.event.note);
            pending.event.annotations.clear();
            return EventKey { theme, own: None };
        }
        let own = (pending.event.note.clone(), pending.regarding.field_path.clone());
        EventKey { theme, own: Some(own) }
    }

    fn count(&mut self, key: &EventKey, pending: &PendingEvent) -> LoggedEvent {
        let first = self.firsts.touch(key, || LoggedEvent {
            name: pending.name.clone(),
            count: 0,
            at: time::seconds(pending.at),
        });
        first.count = first.count.saturating_add(1);
        first.clone()
    }
}

fn event(component: &str, pending: PendingEvent, first: &LoggedEvent) -> Event {
    let NewEvent { type_, reason, note, action, related, annotations } = pending.event;
    let namespace = pending.regarding.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    Event {
        metadata: ObjectMeta {
            name: Some(first.name.clone()),
            namespace: Some(namespace),
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            ..ObjectMeta::default()
        },
        involved_object: pending.regarding,
        related,
        type_: Some(type_.to_owned()),
        reason: Some(reason),
        action,
        message: Some(note),
        count: Some(first.count),
        first_timestamp: Some(first.at.clone()),
        last_timestamp: Some(time::seconds(pending.at)),
        source: Some(EventSource { component: Some(component.to_owned()), host: None }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: Some(String::new()),
        ..Event::default()
    }
}

/// Returns the fields that a repeat changes, as a patch.
fn patch(event: &Event) -> serde_json::Value {
    json!({ "count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ObjectReference;

    use std::time::Duration;
    use windlass_env::Env;

    fn named(name: &str) -> ObjectReference {
        ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() }
    }

    fn occurrence(env: &Env, name: &str, note: &str) -> PendingEvent {
        let event = NewEvent::normal("Created", note);
        PendingEvent { name: name.to_owned(), regarding: named("web"), event, at: env.wall() }
    }

    // parity: object-without-namespace-default
    #[tokio::test(start_paused = true)]
    async fn event_for_cluster_scoped_object_is_in_default_namespace() {
        let env = Env::virtual_time(1);
        let verdict =
            Correlator::new("tester", CAPACITY).correlate(occurrence(&env, "web.1", "one"), env.now());
        let CorrelateResult::Create(event) = verdict else { panic!("{verdict:?}") };
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(event.metadata.name.as_deref(), Some("web.1"));
        assert_eq!(event.source.and_then(|source| source.component).as_deref(), Some("tester"));
        assert_eq!(event.reporting_component.as_deref(), Some("tester"));
        assert_eq!((event.count, event.first_timestamp), (Some(1), event.last_timestamp));
    }

    // parity: event-logger
    #[tokio::test(start_paused = true)]
    async fn repeat_changes_only_count_time_and_note() {
        let env = Env::virtual_time(1);
        let mut correlator = Correlator::new("tester", CAPACITY);
        correlator.correlate(occurrence(&env, "web.1", "one"), env.now());
        env.sleep(Duration::from_secs(5)).await;
        let verdict = correlator.correlate(occurrence(&env, "web.2", "one"), env.now());
        let CorrelateResult::Patch { body, whole } = verdict else { panic!("{verdict:?}") };
        assert_eq!(whole.metadata.name.as_deref(), Some("web.1"));
        assert_ne!(whole.first_timestamp, whole.last_timestamp);
        let expected = json!({ "count": 2, "lastTimestamp": time::seconds(env.wall()), "message": "one" });
        assert_eq!(body, expected);
    }

    // parity: annotated-eventf
    #[tokio::test(start_paused = true)]
    async fn event_contains_optional_action_related_object_and_annotations() {
        let env = Env::virtual_time(1);
        let mut correlator = Correlator::new("tester", CAPACITY);
        let mut send = |occurrence| match correlator.correlate(occurrence, env.now()) {
            CorrelateResult::Create(event) => event,
            other => panic!("{other:?}"),
        };
        let plain = send(occurrence(&env, "web.1", "one"));
        assert_eq!((plain.action, plain.related, plain.metadata.annotations), (None, None, None));
        let mut full = occurrence(&env, "web.2", "one");
        full.event.action = Some("Create".to_owned());
        full.event.related = Some(named("pod"));
        full.event.annotations.insert("zone".to_owned(), "a".to_owned());
        let (expected, event) = (full.event.clone(), send(full));
        assert_eq!((event.action, event.related), (expected.action, expected.related));
        assert_eq!(event.metadata.annotations, Some(expected.annotations));
    }

    // parity: event-aggregator, tools-events-action
    #[tokio::test(start_paused = true)]
    async fn events_are_combined_only_for_equal_action_and_related_object() {
        let env = Env::virtual_time(1);
        let mut correlator = Correlator::new("tester", CAPACITY);
        let mut send = |number: u32, change: fn(&mut NewEvent)| {
            let mut occurrence = occurrence(&env, &format!("web.{number}"), &format!("pod {number}"));
            occurrence.event.annotations.insert("number".to_owned(), number.to_string());
            change(&mut occurrence.event);
            match correlator.correlate(occurrence, env.now()) {
                CorrelateResult::Create(event) => event,
                other => panic!("{other:?}"),
            }
        };
        (0..9).for_each(|number| drop(send(number, |_| {})));
        assert_eq!(
            send(9, |event| event.action = Some("Create".to_owned())).message.as_deref(),
            Some("pod 9")
        );
        assert_eq!(send(10, |event| event.related = Some(named("pod"))).message.as_deref(), Some("pod 10"));
        let combined = send(11, |_| {});
        assert_eq!(combined.message.as_deref(), Some("(combined from similar events): pod 11"));
        assert_eq!(combined.metadata.annotations, None, "annotations describe only one of the notes");
    }

    // parity: event-aggregator
    #[tokio::test(start_paused = true)]
    async fn events_with_many_notes_are_combined_into_one() {
        let env = Env::virtual_time(1);
        let mut correlator = Correlator::new("tester", CAPACITY);
        let mut send = |number: u32| {
            let occurrence = occurrence(&env, &format!("web.{number}"), &format!("pod {number}"));
            correlator.correlate(occurrence, env.now())
        };
        for number in 0..9 {
            assert!(matches!(send(number), CorrelateResult::Create(_)));
        }
        let CorrelateResult::Create(tenth) = send(9) else { panic!("the tenth starts a combined event") };
        assert_eq!(tenth.message.as_deref(), Some("(combined from similar events): pod 9"));
        assert_eq!(tenth.reporting_component.as_deref(), Some(""), "as in client-go");
        let CorrelateResult::Patch { whole, .. } = send(10) else { panic!("the eleventh is counted on it") };
        assert_eq!((whole.metadata.name.as_deref(), whole.count), (Some("web.9"), Some(2)));
    }

    // parity: event-source-object-spam-filter, spam-filter-counts-filtered
    #[tokio::test(start_paused = true)]
    async fn dropped_repeat_is_still_counted() {
        let env = Env::virtual_time(1);
        let mut correlator = Correlator::new("tester", CAPACITY);
        let verdicts: Vec<_> =
            (0..30).map(|_| correlator.correlate(occurrence(&env, "web.1", "one"), env.now())).collect();
        assert_eq!(verdicts.iter().filter(|verdict| **verdict == CorrelateResult::Drop).count(), 5);
        env.sleep(Duration::from_secs(300)).await;
        let verdict = correlator.correlate(occurrence(&env, "web.2", "one"), env.now());
        let CorrelateResult::Patch { whole, .. } = verdict else { panic!("{verdict:?}") };
        assert_eq!(whole.count, Some(31));
    }
}
