//! What is worth telling of a run that failed: the end of its trace, without what continues whatever happens.

use windlass_api_server::faults::{Record, RecordKind};

/// How many lines a failure shows.
const SHOWN: usize = 150;
/// How many lines stand after the last one in which something changed.
const AFTER: usize = 10;

/// The end of a trace. Leases, bookmarks and what others than the processes under test read are left out, and the long
/// quiet after the last write too.
pub(crate) fn excerpt(records: &[Record]) -> String {
    let telling: Vec<&Record> = records.iter().filter(|record| tells(record)).collect();
    let turning = telling.iter().rposition(|record| turns(record));
    let end = turning.map_or(telling.len(), |last| telling.len().min(last + 1 + AFTER));
    let shown = telling[..end].iter().skip(end.saturating_sub(SHOWN));
    let mut text: String = shown.map(|record| format!("{record}\n")).collect();
    if let (Some(last), true) = (records.last(), end < telling.len()) {
        text.push_str(&format!("... and nothing but watches until {}.\n", last.at.as_secs()));
    }
    text
}

fn tells(record: &Record) -> bool {
    let tested = record.who.instance.len() == 1;
    match &record.what {
        RecordKind::Sent { asked, .. }
        | RecordKind::Served { asked, .. }
        | RecordKind::Answered { asked, .. } => asked.resource != "leases" && (asked.is_write() || tested),
        RecordKind::Told { asked, frame, .. } => {
            let is_bookmark = frame.starts_with(br#"{"type":"BOOKMARK""#);
            asked.resource != "leases" && tested && !is_bookmark
        }
        _ => true,
    }
}

/// Whether something changed, in the world or for one of its processes.
fn turns(record: &Record) -> bool {
    match &record.what {
        RecordKind::Sent { asked, .. } | RecordKind::Served { asked, .. } => asked.is_work(),
        RecordKind::Struck { .. } | RecordKind::Note(_) | RecordKind::Broken(_) => true,
        _ => false,
    }
}
