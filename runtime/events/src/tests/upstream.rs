//! What client-go's tests of its correlator demand, as properties: counting, combining, muting.

use k8s_openapi::api::core::v1::Event;
use windlass_env::Instant;

use super::*;
use crate::correlator::{CAPACITY, CorrelateResult, Correlator};
use crate::recorder::PendingEvent;

/// An event about a container of a pod, as client-go's tests make theirs.
#[derive(Clone, Debug)]
struct Said {
    pod: String,
    container: &'static str,
    reason: String,
    note: String,
}

fn said(reason: &str, note: &str) -> Said {
    let (reason, note) = (reason.to_owned(), note.to_owned());
    Said { pod: "my-pod".to_owned(), container: "mycontainer", reason, note }
}

/// So many events that differ in their note alone.
fn similar(count: usize, said: &Said) -> Vec<Said> {
    (0..count).map(|number| Said { note: format!("{number}-{}", said.note), ..said.clone() }).collect()
}

/// What became of the last of several events.
#[derive(Clone, Debug, PartialEq)]
enum Became {
    /// A new Event with this note.
    New(String),
    /// The count of an Event with this note.
    Count(i32, String),
    Nothing,
}

/// A correlator over time, which passes between any two events.
struct Listener {
    correlator: Correlator,
    at: Instant,
    interval: Duration,
    heard: usize,
}

impl Listener {
    fn new(interval: u64) -> Self {
        Self {
            correlator: Correlator::new("kubelet", CAPACITY),
            at: Instant::ORIGIN,
            interval: seconds(interval),
            heard: 0,
        }
    }

    fn hear(&mut self, said: &Said) -> CorrelateResult {
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

fn became(verdict: CorrelateResult) -> Became {
    let told = |event: &Event| event.message.clone().unwrap_or_default();
    match verdict {
        CorrelateResult::Create(event) => {
            assert_eq!(event.count, Some(1));
            Became::New(told(&event))
        }
        CorrelateResult::Patch { body, whole } => {
            assert_eq!((&body["count"], &body["message"]), (&json!(whole.count), &json!(whole.message)));
            Became::Count(whole.count.unwrap_or_default(), told(&whole))
        }
        CorrelateResult::Drop => Became::Nothing,
    }
}

// parity: order-combine-count-mute
#[tokio::test(start_paused = true)]
async fn what_becomes_of_an_event_depends_on_those_before_it_as_upstreams_table_says() {
    let new = |note: &str| Became::New(note.to_owned());
    let (first, duplicate) = (said("first", "i am first"), said("duplicate", "me again"));
    let unique = said("unique", "snowflake");
    let alike = Said { container: "container1", ..said("similar", "similar message") };
    let of_another = Said { container: "container2", ..alike.clone() };
    let strangers = (0..30).map(|number| {
        let (pod, reason) = (format!("pod-{number}"), format!("reason-{number}"));
        Said { pod, reason, ..said("", &format!("message-{number}")) }
    });
    let combined = "(combined from similar events): similar message";
    let table = [
        ("one event", vec![], &first, 5, new("i am first")),
        (
            "the same again is counted",
            vec![duplicate.clone()],
            &duplicate,
            5,
            Became::Count(2, "me again".into()),
        ),
        (
            "the same is counted however often it comes, and never combined",
            vec![duplicate.clone(); 10],
            &duplicate,
            30,
            Became::Count(11, "me again".into()),
        ),
        ("the same too often is spam", vec![duplicate.clone(); 26], &duplicate, 1, Became::Nothing),
        ("others do not matter", strangers.collect(), &unique, 5, new("snowflake")),
        ("the tenth of its kind stands for many", similar(9, &alike), &alike, 5, new(combined)),
        (
            "the eleventh is counted on the tenth",
            similar(10, &alike),
            &alike,
            5,
            Became::Count(2, combined.into()),
        ),
        ("another container's is another", vec![of_another], &alike, 5, new("similar message")),
        ("what came long ago does not count", similar(9, &alike), &alike, 601, new("similar message")),
    ];
    for (name, before, last, interval, expected) in table {
        let mut listener = Listener::new(interval);
        for said in &before {
            listener.hear(said);
        }
        assert_eq!(became(listener.hear(last)), expected, "{name}");
    }
}

// parity: event-aggregator
#[tokio::test(start_paused = true)]
async fn events_about_several_parts_of_an_object_are_combined_into_one() {
    let mut listener = Listener::new(5);
    let of = |container, number| Said { container, ..said("similar", &format!("message {number}")) };
    for number in 0..9 {
        listener.hear(&of("container1", number));
    }
    assert!(matches!(became(listener.hear(&of("container1", 9))), Became::New(_)));
    let note = "(combined from similar events): message 10".to_owned();
    assert_eq!(became(listener.hear(&of("container2", 10))), Became::Count(2, note));
}

// parity: event-aggregator
#[tokio::test(start_paused = true)]
async fn only_what_differs_in_its_note_alone_is_combined() {
    let mut listener = Listener::new(5);
    for said in similar(12, &said("end-of-world", "it was fun")) {
        listener.hear(&said);
    }
    let other = said("nevermind", "it was a bug");
    assert_eq!(became(listener.hear(&other)), Became::New("it was a bug".to_owned()));
}

// parity: event-source-object-spam-filter
#[tokio::test(start_paused = true)]
async fn object_has_one_share_of_events_for_all_reasons_together() {
    let mut listener = Listener::new(1);
    for number in 0..25 {
        listener.hear(&said(&format!("reason-{number}"), "i am first"));
    }
    assert_eq!(became(listener.hear(&said("another reason", "me again"))), Became::Nothing);
    let stranger = Said { pod: "another".to_owned(), ..said("reason", "me too") };
    assert_eq!(became(listener.hear(&stranger)), Became::New("me too".to_owned()));
}
