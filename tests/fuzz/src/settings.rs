//! Inputs of the binary: its command line and its configuration file.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use windlass_controller_manager::parse::{ParseOutcome, read};

/// Each line is one argument as raw bytes. A command line is rejected with one line of plain text, or a file written
/// from it has the same meaning.
pub(crate) fn command_line_is_rejected_in_one_line_or_round_trips(bytes: &[u8]) {
    let words = bytes.split(|byte| *byte == b'\n').map(word);
    let line = std::iter::once(OsString::from("windlass")).chain(words);
    let gone = |_: &Path| Err(io::Error::from(io::ErrorKind::NotFound));
    holds(read(line, &gone));
}

/// A file is rejected with its name in one line, or a file written from it has the same meaning.
pub(crate) fn config_file_is_rejected_by_name_or_round_trips(bytes: &[u8]) {
    let reading = read_file(bytes);
    if let ParseOutcome::Rejected(why) = &reading {
        // The conflict can be between the file and a default.
        assert!(why.starts_with("f.yaml") || why.starts_with("--"), "{why}");
    }
    holds(reading);
}

fn read_file(bytes: &[u8]) -> ParseOutcome {
    read(["windlass", "--config=f.yaml"].map(OsString::from), &|_| Ok(bytes.to_vec()))
}

fn holds(reading: ParseOutcome) {
    match reading {
        ParseOutcome::Printed(text) => assert!(!text.is_empty()),
        ParseOutcome::Rejected(why) => {
            assert!(!why.is_empty() && why.len() < 4096, "{why}");
            assert!(!why.chars().any(char::is_control), "{why:?}");
        }
        ParseOutcome::Accepted { file, effective } => {
            let again = read_file(file.as_bytes());
            assert_eq!(
                again,
                ParseOutcome::Accepted { file: file.clone(), effective: effective.clone() },
                "{file}"
            );
            let json = effective.to_string();
            // JSON can contain raw characters that YAML requires to be escaped.
            if json.chars().all(|c| c == ' ' || c.is_ascii_graphic()) {
                assert_eq!(read_file(json.as_bytes()), ParseOutcome::Accepted { file, effective });
            }
        }
    }
}

/// Returns bytes as an argument, where arguments are bytes.
#[cfg(unix)]
fn word(bytes: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStringExt as _;
    OsString::from_vec(bytes.to_vec())
}

/// Returns bytes as an argument via text on other systems.
#[cfg(not(unix))]
fn word(bytes: &[u8]) -> OsString {
    String::from_utf8_lossy(bytes).into_owned().into()
}
