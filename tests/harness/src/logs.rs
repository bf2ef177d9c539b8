//! Log files of the plane's processes: reading their ends, keeping them, and telling where they are.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The file in a run folder whose presence makes the janitor spare the logs. The Go side knows it too.
const KEEP_MARK: &str = "keep-logs";

/// The environment variable that keeps the logs of every plane, whatever happens.
const KEEP_VARIABLE: &str = "WINDLASS_KEEP_LOGS";

/// How much of a log an error message carries, in bytes.
const TAIL: u64 = 4_096;

/// Whether the environment asks for all logs to be kept.
pub(crate) fn always_kept() -> bool {
    std::env::var_os(KEEP_VARIABLE).is_some_and(|value| !value.is_empty())
}

/// Marks the logs of the run folder `run` as to be kept, and says where they are, once.
pub(crate) fn keep(run: &Path) {
    let mark = run.join(KEEP_MARK);
    if mark.exists() {
        return;
    }
    match fs::write(&mark, "") {
        Ok(()) => say(&format!("the control plane's logs are kept in {}", run.join("logs").display())),
        Err(error) => say(&format!("the logs in {} could not be kept: {error}", run.display())),
    }
}

/// Writes a line to standard error, past the capture of the test runner: whoever waits for a build
/// of minutes, or looks for logs after a failure, must see it.
pub(crate) fn say(line: &str) {
    // There is nobody left to tell when standard error itself is gone.
    let _ = writeln!(std::io::stderr(), "windlass-harness: {line}");
}

/// The end of a log file, for an error message; empty when there is none.
pub(crate) fn tail(log: &Path) -> String {
    read_from(log, |length| length.saturating_sub(TAIL)).unwrap_or_default()
}

/// Whether the log says, from byte `since` on, that the address to listen on was taken.
pub(crate) fn says_address_in_use(log: &Path, since: u64) -> bool {
    read_from(log, |_| since).is_ok_and(|text| text.contains("address already in use"))
}

/// The length of a log file, in bytes; 0 when there is none yet.
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
    fn only_what_was_logged_since_the_start_counts_as_a_taken_address() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, "bind: address already in use\n").unwrap();
        assert!(says_address_in_use(&log, 0));
        assert!(!says_address_in_use(&log, length(&log)));
    }

    #[test]
    fn tail_is_short_and_ends_where_the_log_ends() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, format!("{}the end", "x".repeat(100_000))).unwrap();
        assert!(tail(&log).ends_with("the end"));
        assert_eq!(tail(&log).len() as u64, TAIL);
        assert_eq!(tail(&folder.path().join("none")), "");
    }
}
