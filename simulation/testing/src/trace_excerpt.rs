//! Extracts the relevant end of the trace of a failed run, without periodic background records.

use windlass_api_server::faults::{Record, RecordKind};

/// Maximum number of lines in a failure.
const MAX_LINES: usize = 150;
/// Number of lines after the last change.
const LINES_AFTER_LAST_CHANGE: usize = 10;

/// Returns the end of a trace, without Leases, bookmarks, reads by processes that are not under test, and the idle
/// period after the last write.
pub(crate) fn excerpt(records: &[Record], is_tested: impl Fn(&str) -> bool) -> String {
    let relevant: Vec<&Record> =
        records.iter().filter(|record| is_relevant(record, is_tested(&record.process.instance))).collect();
    let last_change = relevant.iter().rposition(|record| is_change(record));
    let end =
        last_change.map_or(relevant.len(), |last| relevant.len().min(last + 1 + LINES_AFTER_LAST_CHANGE));
    let shown = relevant[..end].iter().skip(end.saturating_sub(MAX_LINES));
    let mut text: String = shown.map(|record| format!("{record}\n")).collect();
    if let (Some(last), true) = (records.last(), end < relevant.len()) {
        text.push_str(&format!("... only watches until {}.\n", last.at.as_secs()));
    }
    text
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
