//! The windlass binary: arguments, then validated configuration, then run.
//!
//! Guarantees: exit code 0 after a clean shutdown and after `--help` and `--version`, 1 otherwise; whatever went wrong
//! is one line on stderr; a command line or a file that cannot work is refused before anything is opened or sent.
//!
//! It is a library for its tests alone: [`main`] is all there is to run, and [`reading`] lets a fuzzer read.

mod args;
mod config;
mod duration;
mod explain;
mod feature_gates;
mod known_flags;
mod logging;
pub mod reading;
mod settings;
mod wiring;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::anyhow;
use args::Stop;

/// Runs the process that `words` ask for; they begin with the program's name.
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let outcome = match Command::from_args(words) {
        Ok(Command::Manage(process)) => process.run(),
        Ok(Command::Explain(question)) => question.run(),
        Err(Stop::Print(text)) => std::io::stdout().write_all(text.as_bytes()).map_err(anyhow::Error::from),
        Err(Stop::Write { path, text }) => std::fs::write(&path, text).map_err(|error| {
            let path = path.display();
            anyhow!("cannot write {path}: {error}; name another file with --write-config-to, or - for stdout")
        }),
        Err(Stop::Refused(problem)) => Err(problem.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be reading; the exit code says the same.
            let _ = writeln!(std::io::stderr(), "windlass: {}", one_line(&error));
            ExitCode::FAILURE
        }
    }
}

/// What the command line asks for.
enum Command {
    /// To run controllers against a cluster.
    Manage(Box<wiring::Process>),
    /// To ask a running process about one object.
    Explain(Box<explain::Explain>),
}

impl Command {
    fn from_args(words: impl IntoIterator<Item = OsString>) -> Result<Self, Stop> {
        let mut words = words.into_iter().peekable();
        let program = words.next();
        match words.next_if(|word| word == explain::NAME) {
            Some(_) => explain::Explain::from_args(words).map(|it| Command::Explain(Box::new(it))),
            None => wiring::Process::from_args(program.into_iter().chain(words))
                .map(|it| Command::Manage(Box::new(it))),
        }
    }
}

/// Messages from below may span lines, and say again what is below them; an operator's search for the cause starts from one
/// line that says it once.
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
    use anyhow::anyhow;

    use super::one_line;

    #[test]
    fn what_went_wrong_is_told_on_one_line_and_once() {
        let told =
            anyhow!("no such file").context("reading /key: no such file").context("building\n the client");
        assert_eq!(one_line(&told), "building the client: reading /key: no such file");
    }
}
