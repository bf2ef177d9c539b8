//! Extracts the relevant end of the trace of a failed run, without periodic background records.

use windlass_api_server::faults::{Record, RecordKind};

/// Maximum number of lines in a failure.
const SHOWN: usize = 150;
/// Number of lines after the last change.
const AFTER: usize = 10;

/// Returns the end of a trace, without Leases, bookmarks, reads by processes that are not under test, and the idle
/// period after the last write.
pub(crate) fn excerpt(records: &[Record], is_tested: impl Fn(&str) -> bool) -> String {
    let telling: Vec<&Record> =
        records.iter().filter(|record| tells(record, is_tested(&record.who.instance))).collect();
    let turning = telling.iter().rposition(|record| turns(record));
    let end = turning.map_or(telling.len(), |last| telling.len().min(last + 1 + AFTER));
    let shown = telling[..end].iter().skip(end.saturating_sub(SHOWN));
    let mut text: String = shown.map(|record| format!("{record}\n")).collect();
    if let (Some(last), true) = (records.last(), end < telling.len()) {
        text.push_str(&format!("... only watches until {}.\n", last.at.as_secs()));
    }
    text
}

fn tells(record: &Record, tested: bool) -> bool {
    match &record.what {
        RecordKind::Sent { asked, .. }
        | RecordKind::Served { asked, .. }
        | RecordKind::Answered { asked, .. } => asked.resource != "leases" && (asked.is_write() || tested),
        RecordKind::WatchEventSent { asked, frame, .. } => {
            let is_bookmark = frame.starts_with(br#"{"type":"BOOKMARK""#);
            asked.resource != "leases" && tested && !is_bookmark
        }
        _ => true,
    }
}

/// Returns whether the record changes the world or one of its processes.
fn turns(record: &Record) -> bool {
    match &record.what {
        RecordKind::Sent { asked, .. } | RecordKind::Served { asked, .. } => asked.is_work(),
        RecordKind::FaultInjected { .. } | RecordKind::Note(_) | RecordKind::Broken(_) => true,
        _ => false,
    }
}
