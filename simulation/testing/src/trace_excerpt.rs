//! Extracts the relevant end of the trace of a failed run, without periodic background records.

use std::fmt;

use windlass_api_server::faults::{Record, RecordKind};

/// Maximum number of lines of changes: about one screen.
const MAX_CHANGES: usize = 40;
/// Maximum number of lines with reads and watches.
const MAX_LINES: usize = 150;
/// Number of lines after the last change.
const LINES_AFTER_LAST_CHANGE: usize = 10;
/// Environment variable that adds reads and watches to a printed failure, with the value `all`.
const VARIABLE: &str = "WINDLASS_TRACE";

/// End of the trace of a failed run. Its text contains the changes; with `WINDLASS_TRACE=all` also reads and watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The last writes, faults, and starts and ends of processes.
    pub changes: String,
    /// The last records, with reads and watches, but without Leases and bookmarks.
    pub all: String,
}

impl Trace {
    /// Extracts the end of a trace, without reads by processes that are not under test, and without the idle period
    /// after the last write.
    pub(crate) fn of(records: &[Record], is_tested: impl Fn(&str) -> bool) -> Self {
        let relevant: Vec<&Record> = records
            .iter()
            .filter(|record| is_relevant(record, is_tested(&record.process.instance)))
            .collect();
        let changes: Vec<&Record> = relevant.iter().copied().filter(|record| is_change(record)).collect();
        let last_change = relevant.iter().rposition(|record| is_change(record));
        let end =
            last_change.map_or(relevant.len(), |last| relevant.len().min(last + 1 + LINES_AFTER_LAST_CHANGE));
        let mut all = last_lines(&relevant[..end], MAX_LINES);
        if let (Some(last), true) = (records.last(), end < relevant.len()) {
            all.push_str(&format!("... only watches until {}.\n", last.at.as_secs()));
        }
        Self { changes: last_lines(&changes, MAX_CHANGES), all }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if std::env::var_os(VARIABLE).is_some_and(|value| value == "all") {
            return write!(f, "end of the trace:\n{}", self.all);
        }
        write!(f, "last writes and faults ({VARIABLE}=all adds reads and watches):\n{}", self.changes)
    }
}

/// Returns the last records, one line each, after the number of those that are left out.
fn last_lines(records: &[&Record], count: usize) -> String {
    let omitted = records.len().saturating_sub(count);
    let first = (omitted > 0).then(|| format!("... {omitted} earlier lines\n"));
    first.into_iter().chain(records[omitted..].iter().map(|record| format!("{record}\n"))).collect()
}

fn is_relevant(record: &Record, tested: bool) -> bool {
    match &record.kind {
        RecordKind::Sent { request, .. }
        | RecordKind::Served { request, .. }
        | RecordKind::Answered { request, .. } => {
            request.resource != "leases" && (request.is_write() || tested)
        }
        RecordKind::WatchEventSent { request, frame, .. } => {
            let is_bookmark = frame.starts_with(br#"{"type":"BOOKMARK""#);
            request.resource != "leases" && tested && !is_bookmark
        }
        _ => true,
    }
}

/// Returns whether the record changes the world or one of its processes.
fn is_change(record: &Record) -> bool {
    match &record.kind {
        RecordKind::Sent { request, .. } | RecordKind::Served { request, .. } => request.is_work(),
        RecordKind::FaultInjected { .. } | RecordKind::Note(_) | RecordKind::Broken(_) => true,
        _ => false,
    }
}
