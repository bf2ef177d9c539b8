//! The command line, and the file it may name: the low half of "arguments, then validated configuration".
//!
//! Guarantees: flags are those of the table of settings, and a few that are about the command line itself; underscores
//! are accepted for dashes; a flag given twice counts once, with its last value (lists are joined); every refusal is one
//! line; nothing is opened but the file that `--config` names. [`crate::config`] says what the settings mean together.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::{StyledStr, ValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};
use windlass::controller::Descriptor;

use crate::settings::{
    FileValues, InvalidFile, InvalidSetting, Setting, Settings, Shape, Sources, TABLE, quoted, read_file,
    shown,
};
use crate::{feature_gates, known_flags};

/// What a command line says, with the file it names.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) settings: Settings,
    /// Where to write them, instead of running.
    pub(crate) write_config_to: Option<PathBuf>,
}

/// How a file is read. The process reads files; whoever tests it need not have any.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<Vec<u8>>;

/// Flags that have no field, since they are about the command line or the file itself.
const CONFIG: &str = "config";
const WRITE_CONFIG_TO: &str = "write-config-to";
const VERSION: &str = "version";

const ABOUT: &str = "Kubernetes controllers in Rust: keeps ReplicaSets, ReplicationControllers and Endpoints in the \
    state their owners asked for, beside kube-controller-manager or in place of it.";

const USAGE: &str = "windlass [OPTIONS]\n       windlass explain [OPTIONS] <CONTROLLER> <NAMESPACE/NAME>";

const AFTER_HELP: &str = "Every setting is a flag and, where it says so, a field of the file that --config names; what \
    is given as a flag wins.\n\n`windlass explain` asks a running windlass why an object has not been reconciled; see \
    `windlass explain --help`.";

/// Why parsing ended without arguments to run with.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The user asked for this text; it goes to stdout and the exit code is zero.
    Print(String),
    /// The command line makes no sense, or one of its values.
    Refused(Refusal),
    /// The user asked for the settings in a file.
    Write {
        /// Which one.
        path: PathBuf,
        /// What it is to hold.
        text: String,
    },
}

/// Why a command line is refused.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum Refusal {
    /// As a whole.
    Usage(#[from] UsageError),
    /// For what its file says.
    File(#[from] InvalidFile),
    /// For the value of one setting.
    Setting(#[from] InvalidSetting),
}

/// What is wrong with a command line as such, before its values are looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UsageError {
    /// A flag that kube-controller-manager has.
    #[error("--{0} is a kube-controller-manager flag that windlass does not implement yet; leave it out")]
    NotImplemented(String),
    /// A flag nobody has, perhaps close to one that exists.
    #[error("unknown flag {}{}; `windlass --help` lists all flags", shown(flag), similar.as_ref().map(|name| format!(" (did you mean {name}?)")).unwrap_or_default())]
    UnknownFlag {
        /// As it was written, without the value.
        flag: String,
        /// The flag that looks most like it.
        similar: Option<String>,
    },
    /// A flag at the end of the line, or followed by nothing.
    #[error("{0} needs a value; write {0}=<value>")]
    MissingValue(String),
    /// The value of a flag is no text.
    #[error("--{0}: the value is not UTF-8; write it in UTF-8")]
    NotText(&'static str),
    /// The file that was named cannot be read.
    #[error("--config={path}: cannot be read: {reason}; name a readable file")]
    Unreadable {
        /// Which one.
        path: String,
        /// What the operating system says.
        reason: String,
    },
    /// A word that is no flag.
    #[error("unexpected argument {}: values of flags follow an equals sign, and explain is the only command, as the first word; leave it out, or write --flag=value; `windlass --help` lists all flags", quoted(.0))]
    Unexpected(String),
    /// Whatever else the parser objects to, in its words.
    #[error("{0}; `windlass --help` lists all flags")]
    Other(String),
    /// The same of the command line of `explain`.
    #[error("{0}; `windlass explain --help` lists all flags")]
    Explain(String),
}

/// Reads a command line; `words` begins with the program's name, `known` are the controllers that are built in.
///
/// # Errors
/// [`Stop::Print`] when help or the version was asked for, [`Stop::Refused`] when the line or the file makes no sense.
pub(crate) fn parse(
    words: impl IntoIterator<Item = OsString>,
    known: &[Descriptor],
    files: ReadFile<'_>,
) -> Result<Args, Stop> {
    let words = words.into_iter().map(dashed);
    let matches = command(known).try_get_matches_from(words).map_err(|error| stop(&error))?;
    if matches.contains_id(VERSION) {
        return Err(Stop::Print(format!("windlass {}\n", env!("CARGO_PKG_VERSION"))));
    }
    let mut sources = Sources::default();
    for setting in TABLE {
        if let Some(words) = given(&matches, setting.name)? {
            sources.flags.insert(setting.name, words);
        }
    }
    if let Some(path) = path(&matches, CONFIG)? {
        sources.file = Some(file(&path, files).map_err(Stop::Refused)?);
    }
    let settings = Settings::read(&sources).map_err(|error| Stop::Refused(error.into()))?;
    Ok(Args { settings, write_config_to: path(&matches, WRITE_CONFIG_TO)? })
}

fn file(path: &Path, files: ReadFile<'_>) -> Result<FileValues, Refusal> {
    let bytes = files(path).map_err(|error| UsageError::Unreadable {
        path: shown(&path.to_string_lossy()),
        reason: error.to_string(),
    })?;
    Ok(read_file(&path.to_string_lossy(), &bytes)?)
}

/// The words of a flag, if it was given.
fn given(matches: &ArgMatches, name: &'static str) -> Result<Option<Vec<String>>, Stop> {
    if matches.value_source(name) != Some(ValueSource::CommandLine) {
        return Ok(None);
    }
    let words = matches.get_many::<OsString>(name).into_iter().flatten();
    let texts = words.map(|word| word.to_str().map(str::to_owned).ok_or(UsageError::NotText(name)));
    texts.collect::<Result<_, _>>().map(Some).map_err(refused)
}

/// The file that a flag names.
fn path(matches: &ArgMatches, name: &'static str) -> Result<Option<PathBuf>, Stop> {
    match matches.get_many::<OsString>(name).and_then(|mut words| words.next_back()) {
        Some(path) if path.is_empty() => Err(refused(UsageError::MissingValue(format!("--{name}")))),
        path => Ok(path.map(PathBuf::from)),
    }
}

/// The command, of the table; some of the help depends on what is built in.
fn command(known: &[Descriptor]) -> clap::Command {
    let command = clap::Command::new("windlass").about(ABOUT).after_help(AFTER_HELP).max_term_width(110);
    let command = command.override_usage(USAGE);
    let config = "Read settings from this file, YAML or JSON; a flag that is given wins over its field.";
    let write = "Write all settings, with those given, to this file for --config, and exit; - for stdout.";
    let command = command
        .disable_version_flag(true)
        .arg(own(CONFIG, "FILE", config))
        .arg(own(WRITE_CONFIG_TO, "FILE", write))
        .arg(switch(own(VERSION, "raw", "Print the version and exit.")));
    TABLE.iter().fold(command, |command, setting| command.arg(argument(setting, known)))
}

fn own(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name(value)
        .help(help)
        .action(ArgAction::Append)
        .value_parser(ValueParser::os_string())
}

/// A flag that stands for `true` where it stands alone.
fn switch(arg: Arg) -> Arg {
    arg.default_missing_value("true").num_args(0..=1).require_equals(true)
}

/// A setting as a flag.
fn argument(setting: &'static Setting, known: &[Descriptor]) -> Arg {
    let mut help =
        format!("{} [default: {}] [field: {}]", setting.sentence(), setting.shown_default(), setting.field);
    match setting.name {
        "controllers" => help.push_str(&built_in(known)),
        "feature-gates" => help.push_str(&gates()),
        _ => {}
    }
    let arg = Arg::new(setting.name)
        .long(setting.name)
        .help_heading(setting.section)
        .value_name(setting.unit)
        .help(StyledStr::from(help))
        .action(ArgAction::Append)
        .value_parser(ValueParser::os_string());
    let arg = match setting.name.as_bytes() {
        [letter] => arg.short(char::from(*letter)),
        _ => arg,
    };
    match setting.shape {
        Shape::Switch => switch(arg),
        Shape::Number => arg.allow_negative_numbers(true),
        // An entry may begin with a dash.
        Shape::List => arg.allow_hyphen_values(true),
        Shape::Text | Shape::Switches => arg,
    }
}

/// The controllers there are.
fn built_in(known: &[Descriptor]) -> String {
    let sorted = |filter: fn(&&Descriptor) -> bool| {
        let mut names: Vec<_> = known.iter().filter(filter).map(|one| one.name).collect();
        names.sort_unstable();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    format!(
        "\nAll controllers: {}\nDisabled by default: {}",
        sorted(|_| true),
        sorted(|one| !one.enabled_by_default)
    )
}

/// The feature gates there are.
fn gates() -> String {
    feature_gates::GATES.iter().map(|gate| format!("\n{gate}")).collect()
}

/// The long names of all flags that are implemented.
#[cfg(test)]
pub(crate) fn flag_names() -> Vec<String> {
    let mut command = command(&[]);
    command.build();
    command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)).collect()
}

/// The help, for whoever checks it.
#[cfg(test)]
pub(crate) fn help(known: &[Descriptor]) -> String {
    command(known).render_help().to_string()
}

/// `--bind_address=x` as `--bind-address=x`; the value is left alone.
fn dashed(word: OsString) -> OsString {
    let Some(text) = word.to_str().filter(|text| text.starts_with("--")) else { return word };
    match text.split_once('=') {
        Some((flag, value)) => format!("{}={value}", flag.replace('_', "-")).into(),
        None => text.replace('_', "-").into(),
    }
}

fn stop(error: &clap::Error) -> Stop {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Stop::Print(error.to_string())
        }
        ErrorKind::UnknownArgument => refused(unknown(error)),
        ErrorKind::InvalidValue | ErrorKind::NoEquals => refused(without_value(error)),
        _ => refused(UsageError::Other(first_line(error))),
    }
}

fn refused(error: UsageError) -> Stop {
    Stop::Refused(error.into())
}

fn unknown(error: &clap::Error) -> UsageError {
    let word = context(error, ContextKind::InvalidArg).unwrap_or_default();
    if !word.starts_with('-') {
        return UsageError::Unexpected(word);
    }
    let flag = word.split('=').next().unwrap_or_default().to_owned();
    let name = flag.trim_start_matches('-');
    if known_flags::is_upstream_flag(name) {
        return UsageError::NotImplemented(name.to_owned());
    }
    UsageError::UnknownFlag { similar: context(error, ContextKind::SuggestedArg), flag }
}

/// The parser's word for the flag is followed by its value's name.
fn without_value(error: &clap::Error) -> UsageError {
    let flag = context(error, ContextKind::InvalidArg).unwrap_or_default();
    UsageError::MissingValue(flag.split([' ', '=']).next().unwrap_or_default().to_owned())
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    }
}

/// What the parser objects to and, in our words, what it would take.
pub(crate) fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let remedy = match (error.get(ContextKind::ValidValue), context(error, ContextKind::SuggestedArg)) {
        (Some(ContextValue::Strings(values)), _) => format!("; write {}", values.join(" or ")),
        (_, Some(flag)) => format!("; did you mean {flag}?"),
        _ => String::new(),
    };
    shown(line.strip_prefix("error: ").unwrap_or(line)) + &remedy
}
