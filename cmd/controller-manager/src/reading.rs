//! What a command line and its file come to, without running anything: for whoever tests how they are read.
//!
//! Guarantees: pure but for the file, which the caller reads.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use crate::args::{self, Stop};
use crate::config::Config;
use crate::wiring;

/// What a command line comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// A text is printed.
    Printed(String),
    /// Nothing runs, and this is said on one line.
    Refused(String),
    /// Controllers would run.
    Accepted {
        /// The file that says the same as all flags and the file together.
        file: String,
        /// The same as data.
        effective: serde_json::Value,
    },
}

/// Reads a command line, which begins with the program's name. `files` reads the file that it may name.
pub fn read(
    words: impl IntoIterator<Item = OsString>,
    files: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> Reading {
    match read_or_stop(words, files) {
        Ok(accepted) => accepted,
        Err(Stop::Print(text)) => Reading::Printed(text),
        Err(Stop::Write { text, .. }) => Reading::Printed(text),
        Err(Stop::Refused(refusal)) => Reading::Refused(refusal.to_string()),
    }
}

fn read_or_stop(
    words: impl IntoIterator<Item = OsString>,
    files: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Reading, Stop> {
    let known = wiring::known_controllers();
    let args = args::parse(words, &known, files)?;
    let (file, effective) = (args.settings.to_file(), args.settings.to_json());
    Config::new(args.settings, &known, "tested").map_err(|error| Stop::Refused(error.into()))?;
    Ok(Reading::Accepted { file, effective })
}
