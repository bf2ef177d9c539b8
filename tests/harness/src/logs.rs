//! Log files of the control plane's processes: reads their ends, keeps them, and prints their location.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Marker file in a run folder that makes the janitor keep the logs. The Go program uses the same name.
const KEEP_MARK: &str = "keep-logs";

/// Environment variable that keeps the logs of every control plane.
const KEEP_VARIABLE: &str = "WINDLASS_KEEP_LOGS";

/// Length of the log excerpt in an error message, in bytes.
const TAIL: u64 = 4_096;

/// Returns whether the environment requires all logs to be kept.
pub(crate) fn always_kept() -> bool {
    std::env::var_os(KEEP_VARIABLE).is_some_and(|value| !value.is_empty())
}

/// Marks the logs of the run folder `run` to be kept, and prints their location once.
pub(crate) fn keep(run: &Path) {
    let mark = run.join(KEEP_MARK);
    if mark.exists() {
        return;
    }
    match fs::write(&mark, "") {
        Ok(()) => print_line(&format!("the control plane's logs are kept in {}", run.join("logs").display())),
        Err(error) => print_line(&format!("the logs in {} cannot be kept: {error}", run.display())),
    }
}

/// Writes a line to standard error, past the capture of the test runner: long builds and kept logs must be visible
/// immediately.
pub(crate) fn print_line(line: &str) {
    // If standard error is closed, there is no other output.
    let _ = writeln!(std::io::stderr(), "windlass-harness: {line}");
}

/// Returns the end of a log file for an error message; empty if there is none.
pub(crate) fn tail(log: &Path) -> String {
    read_from(log, |length| length.saturating_sub(TAIL)).unwrap_or_default()
}

/// Returns whether the log reports, from byte `since` on, that the listen address was in use.
pub(crate) fn contains_address_in_use(log: &Path, since: u64) -> bool {
    read_from(log, |_| since).is_ok_and(|text| text.contains("address already in use"))
}

/// Returns the length of a log file in bytes; 0 if there is none yet.
pub(crate) fn length(log: &Path) -> u64 {
    fs::metadata(log).map_or(0, |metadata| metadata.len())
}

fn read_from(log: &Path, start: impl Fn(u64) -> u64) -> std::io::Result<String> {
    let mut file = fs::File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(start(length)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_in_use_is_detected_only_after_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, "bind: address already in use\n").unwrap();
        assert!(contains_address_in_use(&log, 0));
        assert!(!contains_address_in_use(&log, length(&log)));
    }

    #[test]
    fn tail_is_short_and_ends_with_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, format!("{}the end", "x".repeat(100_000))).unwrap();
        assert!(tail(&log).ends_with("the end"));
        assert_eq!(tail(&log).len() as u64, TAIL);
        assert_eq!(tail(&folder.path().join("none")), "");
    }
}
