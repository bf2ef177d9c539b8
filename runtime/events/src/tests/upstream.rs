//! The requirements of client-go's correlator tests, as properties: counting, combining, dropping.

use k8s_openapi::api::core::v1::Event;
use windlass_env::Instant;

use super::*;
use crate::correlator::{CAPACITY, CorrelateResult, Correlator};
use crate::recorder::PendingEvent;

/// An event for a container of a Pod, as in client-go's tests.
#[derive(Clone, Debug)]
struct TestEvent {
    pod: String,
    container: &'static str,
    reason: String,
    note: String,
}

fn test_event(reason: &str, note: &str) -> TestEvent {
    let (reason, note) = (reason.to_owned(), note.to_owned());
    TestEvent { pod: "my-pod".to_owned(), container: "mycontainer", reason, note }
}

/// Returns `count` events that differ only in their note.
fn similar(count: usize, said: &TestEvent) -> Vec<TestEvent> {
    (0..count).map(|number| TestEvent { note: format!("{number}-{}", said.note), ..said.clone() }).collect()
}

/// The outcome for the last of several events.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    /// A new Event with this note.
    New(String),
    /// The count of an Event with this note.
    Count(i32, String),
    Nothing,
}

/// A correlator with a clock that advances between two events.
struct TimedCorrelator {
    correlator: Correlator,
    at: Instant,
    interval: Duration,
    heard: usize,
}

impl TimedCorrelator {
    fn new(interval: u64) -> Self {
        Self {
            correlator: Correlator::new("kubelet", CAPACITY),
            at: Instant::ORIGIN,
            interval: seconds(interval),
            heard: 0,
        }
    }

    fn correlate(&mut self, said: &TestEvent) -> CorrelateResult {
        self.at += self.interval;
        self.heard += 1;
        let regarding = ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some("my-ns".to_owned()),
            name: Some(said.pod.clone()),
            uid: Some("C934D34AFB20242".to_owned()),
            api_version: Some("version".to_owned()),
            field_path: Some(format!("spec.containers{{{}}}", said.container)),
            ..ObjectReference::default()
        };
        let occurrence = PendingEvent {
            name: format!("{}.{}", said.pod, self.heard),
            regarding,
            event: NewEvent::normal(&said.reason, &said.note),
            at: Env::virtual_time(1).wall(),
        };
        self.correlator.correlate(occurrence, self.at)
    }
}

fn outcome(verdict: CorrelateResult) -> Outcome {
    let note = |event: &Event| event.message.clone().unwrap_or_default();
    match verdict {
        CorrelateResult::Create(event) => {
            assert_eq!(event.count, Some(1));
            Outcome::New(note(&event))
        }
        CorrelateResult::Patch { body, whole } => {
            assert_eq!((&body["count"], &body["message"]), (&json!(whole.count), &json!(whole.message)));
            Outcome::Count(whole.count.unwrap_or_default(), note(&whole))
        }
        CorrelateResult::Drop => Outcome::Nothing,
    }
}

// parity: order-combine-count-mute
#[tokio::test(start_paused = true)]
async fn event_outcome_follows_upstream_table() {
    let new = |note: &str| Outcome::New(note.to_owned());
    let (first, duplicate) = (test_event("first", "i am first"), test_event("duplicate", "me again"));
    let unique = test_event("unique", "snowflake");
    let alike = TestEvent { container: "container1", ..test_event("similar", "similar message") };
    let of_another = TestEvent { container: "container2", ..alike.clone() };
    let others = (0..30).map(|number| {
        let (pod, reason) = (format!("pod-{number}"), format!("reason-{number}"));
        TestEvent { pod, reason, ..test_event("", &format!("message-{number}")) }
    });
    let combined = "(combined from similar events): similar message";
    let table = [
        ("one event", vec![], &first, 5, new("i am first")),
        ("a repeat is counted", vec![duplicate.clone()], &duplicate, 5, Outcome::Count(2, "me again".into())),
        (
            "many repeats are counted and never combined",
            vec![duplicate.clone(); 10],
            &duplicate,
            30,
            Outcome::Count(11, "me again".into()),
        ),
        ("too many repeats are dropped", vec![duplicate.clone(); 26], &duplicate, 1, Outcome::Nothing),
        ("events of other objects have no effect", others.collect(), &unique, 5, new("snowflake")),
        ("the tenth similar event starts a combined event", similar(9, &alike), &alike, 5, new(combined)),
        (
            "the eleventh is counted on the combined event",
            similar(10, &alike),
            &alike,
            5,
            Outcome::Count(2, combined.into()),
        ),
        ("an event of another container is separate", vec![of_another], &alike, 5, new("similar message")),
        ("old events are not combined", similar(9, &alike), &alike, 601, new("similar message")),
    ];
    for (name, before, last, interval, expected) in table {
        let mut correlator = TimedCorrelator::new(interval);
        for said in &before {
            correlator.correlate(said);
        }
        assert_eq!(outcome(correlator.correlate(last)), expected, "{name}");
    }
}

// parity: event-aggregator
#[tokio::test(start_paused = true)]
async fn events_for_several_containers_are_combined() {
    let mut correlator = TimedCorrelator::new(5);
    let of =
        |container, number| TestEvent { container, ..test_event("similar", &format!("message {number}")) };
    for number in 0..9 {
        correlator.correlate(&of("container1", number));
    }
    assert!(matches!(outcome(correlator.correlate(&of("container1", 9))), Outcome::New(_)));
    let note = "(combined from similar events): message 10".to_owned();
    assert_eq!(outcome(correlator.correlate(&of("container2", 10))), Outcome::Count(2, note));
}

// parity: event-aggregator
#[tokio::test(start_paused = true)]
async fn events_with_another_reason_are_not_combined() {
    let mut correlator = TimedCorrelator::new(5);
    for said in similar(12, &test_event("end-of-world", "it was fun")) {
        correlator.correlate(&said);
    }
    let other = test_event("nevermind", "it was a bug");
    assert_eq!(outcome(correlator.correlate(&other)), Outcome::New("it was a bug".to_owned()));
}

// parity: event-source-object-spam-filter
#[tokio::test(start_paused = true)]
async fn event_limit_of_object_covers_all_reasons() {
    let mut correlator = TimedCorrelator::new(1);
    for number in 0..25 {
        correlator.correlate(&test_event(&format!("reason-{number}"), "i am first"));
    }
    assert_eq!(outcome(correlator.correlate(&test_event("another reason", "me again"))), Outcome::Nothing);
    let other_pod = TestEvent { pod: "another".to_owned(), ..test_event("reason", "me too") };
    assert_eq!(outcome(correlator.correlate(&other_pod)), Outcome::New("me too".to_owned()));
}
