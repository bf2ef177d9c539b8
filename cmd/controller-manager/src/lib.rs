//! The windlass binary: arguments, then validated configuration, then run.
//!
//! Guarantees: exit code 0 after a clean shutdown and after `--help` and `--version`, 1 otherwise; an error is one line
//! on stderr; invalid arguments and files are rejected before anything is opened or sent.
//!
//! It is a library only for its tests: [`main`] is the program, and [`parse`] is the entry point of the fuzzer.

mod command_line;
mod config;
#[cfg(test)]
mod controllers_page;
mod explain;
mod logging;
mod manifests;
mod migrate;
pub mod parse;
mod root_ca;
mod settings;
mod upstream;
mod wiring;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use command_line::{CommandLine, Subcommand};
use config::Config;

/// Runs the process that `words` request; they begin with the program's name.
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    match run(words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The exit code reports the same if stderr is closed.
            let _ = writeln!(std::io::stderr(), "windlass: {}", one_line(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(words: impl IntoIterator<Item = OsString>) -> Result<()> {
    match command_line::parse(words, &wiring::read_file)? {
        CommandLine::Print(text) => print(&text),
        CommandLine::Manage(settings) => wiring::run(*settings),
        CommandLine::Write(settings, path) => {
            let text = settings.to_file();
            Config::new(*settings, "validated only")?;
            if path.as_os_str() == "-" {
                return print(&text);
            }
            std::fs::write(&path, text).map_err(|error| {
                let (path, remedy) = (path.display(), "name a writable file, or - for stdout");
                anyhow!("--write-config-to={path}: the file cannot be written: {error}; {remedy}")
            })
        }
        CommandLine::Manifests(options, settings) => print(&options.print(*settings)?),
        CommandLine::MigrateCheck(options, settings) => options.check(*settings),
        CommandLine::Subcommand(subcommand) => match *subcommand {
            Subcommand::Explain(arguments) => arguments.run(),
        },
    }
}

fn print(text: &str) -> Result<()> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// Returns the causes of an error as one line, each once. Errors of libraries can have several lines, and can repeat
/// their causes.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !line.contains(&cause) {
            line.push_str(if line.is_empty() { "" } else { ": " });
            line.push_str(&cause);
        }
    }
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{anyhow, one_line};

    #[test]
    fn error_is_one_line_with_each_cause_once() {
        let error =
            anyhow!("no such file").context("reading /key: no such file").context("building\n the client");
        assert_eq!(one_line(&error), "building the client: reading /key: no such file");
    }
}
