//! A journal of all traffic, in order.
//!
//! Text lines are formatted only on request, so an unread journal costs only its records.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::request_summary::RequestSummary;

/// The newest records of a run. Clones share one journal.
#[derive(Clone)]
pub struct Journal {
    buffer: Arc<Mutex<JournalBuffer>>,
    observer: Option<Arc<dyn JournalObserver>>,
}

/// Receives each record when it is added.
pub trait JournalObserver: Send + Sync {
    /// Receives one record. Must not write to the journal.
    fn on_record(&self, record: &Record);
}

/// One event in the journal.
#[derive(Clone, Debug)]
pub struct Record {
    /// True virtual time since the start.
    pub at: Duration,
    /// The process that the record is about.
    pub process: ProcessId,
    /// The event.
    pub kind: RecordKind,
}

/// One incarnation of one instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId {
    /// The instance.
    pub instance: Arc<str>,
    /// Number of the incarnation.
    pub incarnation: u64,
}

/// A kind of record. Requests are numbered.
#[derive(Clone, Debug)]
pub enum RecordKind {
    /// A request left its sender.
    Sent {
        /// Number of the request.
        id: u64,
        /// The request.
        request: Arc<RequestSummary>,
    },
    /// The server answered the request; its effects are complete.
    Served {
        /// Number of the request.
        id: u64,
        /// The request.
        request: Arc<RequestSummary>,
        /// Status code of the response.
        code: u16,
        /// Body of the response, for writes.
        body: Bytes,
    },
    /// The response reached its sender.
    Answered {
        /// Number of the request.
        id: u64,
        /// The request.
        request: Arc<RequestSummary>,
        /// Status code of the response.
        code: u16,
    },
    /// A fault was injected into a request or a watch.
    FaultInjected {
        /// Number of the request.
        id: u64,
        /// Description of the fault.
        how: String,
    },
    /// An event reached a watch client.
    WatchEventSent {
        /// Number of the watch.
        id: u64,
        /// The watch request.
        request: Arc<RequestSummary>,
        /// The event as sent.
        frame: Bytes,
    },
    /// A watch ended.
    Ended {
        /// Number of the watch.
        id: u64,
    },
    /// The simulation itself failed; no injected fault is the cause.
    Broken(String),
    /// Any other text.
    Note(String),
}

struct JournalBuffer {
    records: VecDeque<Record>,
    capacity: usize,
    made: u64,
}

impl Journal {
    /// Creates a journal that keeps the newest `capacity` records.
    pub fn new(capacity: usize, observer: Option<Arc<dyn JournalObserver>>) -> Self {
        let buffer = JournalBuffer { records: VecDeque::new(), capacity, made: 0 };
        Journal { buffer: Arc::new(Mutex::new(buffer)), observer }
    }

    /// Adds a record.
    pub fn record(&self, record: Record) {
        if let Some(witness) = &self.observer {
            witness.on_record(&record);
        }
        let mut kept = self.lock();
        kept.made += 1;
        if kept.records.len() >= kept.capacity {
            kept.records.pop_front();
        }
        if kept.capacity > 0 {
            kept.records.push_back(record);
        }
    }

    /// Returns the number of records added so far.
    pub fn made(&self) -> u64 {
        self.lock().made
    }

    /// Returns the records that are kept.
    pub fn records(&self) -> Vec<Record> {
        self.lock().records.iter().cloned().collect()
    }

    /// Returns the records that are kept, one line each.
    pub fn lines(&self) -> String {
        self.lock().records.iter().map(|record| format!("{record}\n")).collect()
    }

    fn lock(&self) -> MutexGuard<'_, JournalBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("made", &self.made()).finish_non_exhaustive()
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.instance, self.incarnation)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.at.as_secs(), self.at.subsec_millis());
        write!(f, "{seconds:>6}.{millis:03} {:<8} {}", self.process.to_string(), self.kind)
    }
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordKind::Sent { id, request } => write!(f, "-> #{id} {} {}", request.method, request.uri),
            RecordKind::Served { id, code, body, .. } => {
                write!(f, "== #{id} {code}")?;
                // Names and versions of created objects are the most useful details of a trace.
                serde_json::from_slice::<Value>(body)
                    .map_or(Ok(()), |object| write!(f, " {}", brief(&object)))
            }
            RecordKind::Answered { id, code, .. } => write!(f, "<- #{id} {code}"),
            RecordKind::FaultInjected { id, how } => write!(f, "!! #{id} {how}"),
            RecordKind::WatchEventSent { id, frame, .. } => {
                let event: Value = serde_json::from_slice(frame).unwrap_or_default();
                let kind = event["type"].as_str().unwrap_or("?");
                write!(f, "<~ #{id} {kind} {}", brief(&event["object"]))
            }
            RecordKind::Ended { id } => write!(f, "<~ #{id} end"),
            RecordKind::Broken(text) | RecordKind::Note(text) => f.write_str(text),
        }
    }
}

fn brief(object: &Value) -> String {
    let meta = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match object["kind"].as_str() {
        Some("Status") => format!("Status {} {}", text(&object["reason"]), text(&object["message"])),
        kind => format!(
            "{} {}/{}@{}",
            kind.unwrap_or("?"),
            text(&meta["namespace"]),
            text(&meta["name"]),
            text(&meta["resourceVersion"])
        ),
    }
}
