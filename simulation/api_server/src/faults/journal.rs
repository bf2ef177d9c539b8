//! Everything that passed, in order.
//!
//! Lines are written when somebody reads them: a run that nobody looks at pays for records only.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::request_summary::RequestSummary;

/// The records of a run, the newest of them at least. Clones are one journal.
#[derive(Clone)]
pub struct Journal {
    kept: Arc<Mutex<JournalBuffer>>,
    witness: Option<Arc<dyn JournalObserver>>,
}

/// Sees every record as it is made.
pub trait JournalObserver: Send + Sync {
    /// One record. It must not write to the journal.
    fn on_record(&self, record: &Record);
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct Record {
    /// True virtual time since the start.
    pub at: Duration,
    /// To whom.
    pub who: ProcessId,
    /// What.
    pub what: RecordKind,
}

/// One life of one instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId {
    /// The instance.
    pub instance: Arc<str>,
    /// Which of its lives.
    pub life: u64,
}

/// What happened. Requests are numbered.
#[derive(Clone, Debug)]
pub enum RecordKind {
    /// A request left its sender.
    Sent {
        /// Its number.
        id: u64,
        /// What it asks for.
        asked: Arc<RequestSummary>,
    },
    /// The server answered it: whatever effect it had, it has now.
    Served {
        /// The number.
        id: u64,
        /// What it asked for.
        asked: Arc<RequestSummary>,
        /// The answer's code.
        code: u16,
        /// The answer's body, for writes.
        body: Bytes,
    },
    /// The answer reached its sender.
    Answered {
        /// The number.
        id: u64,
        /// What it asked for.
        asked: Arc<RequestSummary>,
        /// The answer's code.
        code: u16,
    },
    /// A fault struck a request or a watch.
    Struck {
        /// The number.
        id: u64,
        /// How.
        how: String,
    },
    /// An event reached a watcher.
    Told {
        /// The watch's number.
        id: u64,
        /// What it watches.
        asked: Arc<RequestSummary>,
        /// The event as sent.
        frame: Bytes,
    },
    /// A watch ended.
    Ended {
        /// The watch's number.
        id: u64,
    },
    /// The world itself failed: no fault of anybody's in it.
    Broken(String),
    /// Anything else.
    Note(String),
}

struct JournalBuffer {
    records: VecDeque<Record>,
    capacity: usize,
    made: u64,
}

impl Journal {
    /// A journal that keeps the newest `capacity` records.
    pub fn new(capacity: usize, witness: Option<Arc<dyn JournalObserver>>) -> Self {
        let kept = JournalBuffer { records: VecDeque::new(), capacity, made: 0 };
        Journal { kept: Arc::new(Mutex::new(kept)), witness }
    }

    /// Adds a record.
    pub fn record(&self, record: Record) {
        if let Some(witness) = &self.witness {
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

    /// How many records were made.
    pub fn made(&self) -> u64 {
        self.lock().made
    }

    /// The records kept.
    pub fn records(&self) -> Vec<Record> {
        self.lock().records.iter().cloned().collect()
    }

    /// The records kept, one line each.
    pub fn lines(&self) -> String {
        self.lock().records.iter().map(|record| format!("{record}\n")).collect()
    }

    fn lock(&self) -> MutexGuard<'_, JournalBuffer> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("made", &self.made()).finish_non_exhaustive()
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.instance, self.life)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.at.as_secs(), self.at.subsec_millis());
        write!(f, "{seconds:>6}.{millis:03} {:<8} {}", self.who.to_string(), self.what)
    }
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordKind::Sent { id, asked } => write!(f, "-> #{id} {} {}", asked.method, asked.uri),
            RecordKind::Served { id, code, body, .. } => {
                write!(f, "== #{id} {code}")?;
                // Who was made, and at which version, is what one looks for in a trace.
                serde_json::from_slice::<Value>(body)
                    .map_or(Ok(()), |object| write!(f, " {}", brief(&object)))
            }
            RecordKind::Answered { id, code, .. } => write!(f, "<- #{id} {code}"),
            RecordKind::Struck { id, how } => write!(f, "!! #{id} {how}"),
            RecordKind::Told { id, frame, .. } => {
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
