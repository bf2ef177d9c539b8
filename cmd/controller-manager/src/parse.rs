//! The result of a command line and its file without running anything: the entry point of the fuzzer.
//!
//! Guarantees: pure but for the file, which the caller reads.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use crate::command_line::{self, CommandLine};
use crate::config::Config;
use crate::settings::{InvalidInput, Settings};

/// The result of a command line.
#[derive(Clone, Debug, PartialEq)]
pub enum ParseOutcome {
    /// A text is printed, or a subcommand runs.
    Printed(String),
    /// No process runs, because of this error.
    Rejected(String),
    /// Controllers would run.
    Accepted {
        /// The file that sets what all flags and the file set.
        file: String,
        /// The same as data.
        effective: serde_json::Value,
    },
}

/// Reads a command line, which begins with the program's name. `files` reads the file that it can name.
pub fn read(
    words: impl IntoIterator<Item = OsString>,
    files: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> ParseOutcome {
    let accepted = |settings: Settings| -> Result<ParseOutcome, InvalidInput> {
        let (file, effective) = (settings.to_file(), settings.to_json());
        Config::new(settings, "tested").map(|_| ParseOutcome::Accepted { file, effective })
    };
    let reading = command_line::parse(words, files).and_then(|line| match line {
        CommandLine::Print(text) => Ok(ParseOutcome::Printed(text)),
        CommandLine::Subcommand(subcommand) => Ok(ParseOutcome::Printed(format!("{subcommand:?}"))),
        CommandLine::Manage(settings)
        | CommandLine::Write(settings, _)
        | CommandLine::Manifests(_, settings)
        | CommandLine::MigrateCheck(_, settings) => accepted(*settings),
    });
    reading.unwrap_or_else(|error| ParseOutcome::Rejected(error.to_string()))
}
