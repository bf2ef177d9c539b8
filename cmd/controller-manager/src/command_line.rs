//! The command line: flags that are rows of the table of settings, its own few flags, and subcommands.
//!
//! Guarantees: underscores in flags are read as dashes; of a repeated flag the last value counts, and lists are joined;
//! an error is one line; the only file that is opened is the one in `--config`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, FromArgMatches as _};

use crate::settings::{InvalidInput, Setting, SettingSources, Settings, TABLE, ValueShape, assignment};
use crate::{explain, manifests, migrate, upstream};

/// Reads a file. Tests replace it.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<Vec<u8>>;

/// The result of a command line.
#[derive(Debug)]
pub(crate) enum CommandLine {
    /// Print this text, the help or the version.
    Print(String),
    /// Run controllers with these settings.
    Manage(Box<Settings>),
    /// Write these settings to a file; to stdout if the path is `-`.
    Write(Box<Settings>, PathBuf),
    /// Print the manifests of a process with these settings.
    Manifests(manifests::Options, Box<Settings>),
    /// Check whether a process with these settings can replace controllers of kube-controller-manager.
    MigrateCheck(migrate::Options, Box<Settings>),
    Subcommand(Box<Subcommand>),
}

/// The subcommands without settings. Without a subcommand the process runs controllers.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Subcommand {
    Explain(explain::Arguments),
}

const CONFIG: &str = "config";
const WRITE_CONFIG_TO: &str = "write-config-to";
const VERSION: &str = "version";

const ABOUT: &str = "Kubernetes controllers in Rust: runs controllers of kube-controller-manager, instead of it or \
    next to it.";

const AFTER_HELP: &str =
    "Each setting is a flag and a field of the file in --config; the flag overrides the field.";

/// Parses a command line; `words` begins with the name of the program.
///
/// # Errors
/// The command line, or the file that it names, cannot be used.
pub(crate) fn parse(
    words: impl IntoIterator<Item = OsString>,
    files: ReadFile<'_>,
) -> Result<CommandLine, InvalidInput> {
    let words = words.into_iter().map(normalized).collect::<Result<Vec<_>, _>>()?;
    let matches = match command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            return Ok(CommandLine::Print(error.to_string()));
        }
        Err(error) => return Err(explained(&error)),
    };
    if let Some(name) = matches.subcommand_name() {
        if matches.args_present() {
            return Err(InvalidInput::new(name, "flags before a subcommand", "write the subcommand first"));
        }
        if let Some(matches) = matches.subcommand_matches(manifests::NAME) {
            let options = manifests::Options::from_arg_matches(matches).map_err(|error| explained(&error))?;
            return Ok(CommandLine::Manifests(options, settings(matches, files)?));
        }
        if let Some((migrate::CHECK, matches)) =
            matches.subcommand_matches(migrate::NAME).and_then(ArgMatches::subcommand)
        {
            let options = migrate::Options::from_arg_matches(matches).map_err(|error| explained(&error))?;
            return Ok(CommandLine::MigrateCheck(options, settings(matches, files)?));
        }
        let subcommand = Subcommand::from_arg_matches(&matches).map_err(|error| explained(&error))?;
        return Ok(CommandLine::Subcommand(Box::new(subcommand)));
    }
    if matches.contains_id(VERSION) {
        return Ok(CommandLine::Print(format!("windlass {}\n", env!("CARGO_PKG_VERSION"))));
    }
    let settings = settings(&matches, files)?;
    Ok(match path(&matches, WRITE_CONFIG_TO)? {
        Some(path) => CommandLine::Write(settings, PathBuf::from(path)),
        None => CommandLine::Manage(settings),
    })
}

/// Returns the settings of the flags and of the file in `--config`.
fn settings(matches: &ArgMatches, files: ReadFile<'_>) -> Result<Box<Settings>, InvalidInput> {
    let mut sources = SettingSources { flags: flags(matches), file: BTreeMap::new() };
    if let Some(name) = path(matches, CONFIG)? {
        let bytes = files(Path::new(name)).map_err(|error| {
            let problem = format!("the file cannot be read: {error}");
            InvalidInput::new(&format!("--{CONFIG}={name}"), problem, "name a readable file")
        })?;
        sources.add_file(name, &bytes)?;
    }
    Ok(Box::new(Settings::read(&sources)?))
}

/// Replaces underscores in the name of a flag.
fn normalized(word: OsString) -> Result<String, InvalidInput> {
    let word = word.into_string().map_err(|word| {
        InvalidInput::new(&word.to_string_lossy(), "the argument is not UTF-8", "write it in UTF-8")
    })?;
    Ok(match word.split_once('=') {
        _ if !word.starts_with("--") => word,
        Some((flag, value)) => format!("{}={value}", flag.replace('_', "-")),
        None => word.replace('_', "-"),
    })
}

/// Returns the text of each setting on the command line.
fn flags(matches: &ArgMatches) -> BTreeMap<&'static str, String> {
    let given = TABLE.iter().filter(|it| matches.value_source(&it.flag) == Some(ValueSource::CommandLine));
    let text = |setting: &Setting| {
        let mut texts = matches.get_many::<String>(&setting.flag).into_iter().flatten();
        match setting.shape {
            ValueShape::Switch | ValueShape::Scalar => texts.next_back().cloned().unwrap_or_default(),
            ValueShape::List | ValueShape::Map => texts.map(String::as_str).collect::<Vec<_>>().join(","),
        }
    };
    given.map(|setting| (setting.flag.as_str(), text(setting))).collect()
}

/// Returns the path in a flag that is not a setting.
fn path<'a>(matches: &'a ArgMatches, name: &str) -> Result<Option<&'a str>, InvalidInput> {
    match matches.get_many::<String>(name).and_then(|mut paths| paths.next_back()) {
        Some(path) if path.is_empty() => Err(without_value(&format!("--{name}"))),
        path => Ok(path.map(String::as_str)),
    }
}

fn command() -> clap::Command {
    let write = "Write a file with all settings for --config, and exit; - for stdout.";
    let command = clap::Command::new("windlass")
        .after_help(AFTER_HELP)
        .max_term_width(110)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .arg(argument(WRITE_CONFIG_TO, "FILE", write))
        .arg(switch(argument(VERSION, "raw", "Print the version and exit.")));
    let command = <Subcommand as clap::Subcommand>::augment_subcommands(command).about(ABOUT);
    let manifests = <manifests::Options as clap::Args>::augment_args(clap::Command::new(manifests::NAME));
    let check = <migrate::Options as clap::Args>::augment_args(clap::Command::new(migrate::CHECK));
    let migrate = clap::Command::new(migrate::NAME)
        .about("Replaces controllers of kube-controller-manager.")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(with_settings(check));
    with_settings(command.subcommand(with_settings(manifests)).subcommand(migrate))
}

/// Adds `--config` and the flags of all settings.
fn with_settings(command: clap::Command) -> clap::Command {
    let config = argument(CONFIG, "FILE", "YAML or JSON file with settings; flags override its fields.");
    TABLE.iter().fold(command.arg(config), |command, setting| command.arg(flag(setting)))
}

fn argument(name: &'static str, value: &'static str, help: &str) -> Arg {
    let help = StyledStr::from(help.to_owned());
    Arg::new(name).long(name).value_name(value).help(help).action(ArgAction::Append)
}

/// Makes the value of a flag optional.
fn switch(arg: Arg) -> Arg {
    arg.default_missing_value("true").num_args(0..=1).require_equals(true)
}

/// Other names of flags.
const ALIASES: [(&str, &str); 1] = [("watch-namespaces", "namespaces")];

/// Returns the flag of a setting.
fn flag(setting: &'static Setting) -> Arg {
    let Setting { flag, field, section, help, unit, shape, choices, .. } = setting;
    let facts = format!("{help} [default: {}] [field: {field}]", setting.shown_default());
    let help = std::iter::once(facts).chain(choices()).collect::<Vec<_>>().join("\n");
    let arg = argument(flag, unit, &help).help_heading(*section);
    let aliases = ALIASES.iter().filter(|(of, _)| of == flag).map(|(_, alias)| *alias);
    let arg = arg.visible_aliases(aliases);
    let arg = match flag.as_bytes() {
        [letter] => arg.short(char::from(*letter)),
        _ => arg,
    };
    match shape {
        ValueShape::Switch => switch(arg),
        ValueShape::Scalar => arg.allow_negative_numbers(true),
        // The first entry can start with a dash.
        ValueShape::List => arg.allow_hyphen_values(true),
        ValueShape::Map => arg,
    }
}

/// Returns an error of the parser as one line with a remedy.
fn explained(error: &clap::Error) -> InvalidInput {
    const LIST: &str = "`windlass --help` lists all flags and commands";
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(ContextValue::Strings(texts)) => texts.first().map(String::as_str),
        _ => None,
    };
    let argument =
        context(ContextKind::InvalidArg).or(context(ContextKind::InvalidSubcommand)).unwrap_or_default();
    let similar = context(ContextKind::SuggestedArg).or(context(ContextKind::SuggestedSubcommand));
    let remedy = similar.map_or(LIST.to_owned(), |similar| format!("did you mean {similar}? {LIST}"));
    let (name, _) = argument.split_once(['=', ' ']).unwrap_or((argument, ""));
    match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand if !argument.starts_with('-') => {
            let remedy = format!("write values as --flag=value; {remedy}");
            InvalidInput::new(&format!("{argument:?}"), "neither a flag nor a command", remedy)
        }
        ErrorKind::UnknownArgument if upstream::has_flag(name.trim_start_matches('-')) => {
            let problem = "windlass does not implement this kube-controller-manager flag yet";
            InvalidInput::new(name, problem, "leave it out")
        }
        ErrorKind::UnknownArgument => InvalidInput::new(name, "unknown flag", remedy),
        ErrorKind::NoEquals => without_value(name),
        ErrorKind::InvalidValue if context(ContextKind::InvalidValue).is_none_or(str::is_empty) => {
            without_value(name)
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = context(ContextKind::InvalidValue).unwrap_or_default();
            let remedy = match (error.get(ContextKind::ValidValue), std::error::Error::source(error)) {
                (Some(ContextValue::Strings(values)), _) => format!("write {}", values.join(" or ")),
                (_, Some(cause)) => format!("{cause}; {LIST}"),
                _ => LIST.to_owned(),
            };
            InvalidInput::new(&assignment(name, value), "invalid value", remedy)
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::Strings(names)) => names.join(", "),
                _ => argument.to_owned(),
            };
            let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
            let usage = usage.trim_start_matches("Usage: ").to_owned();
            InvalidInput::new(&missing, "missing", format!("write `{usage}`"))
        }
        _ => {
            // The parser lists arguments on the lines below, and the usage after an empty line.
            let text = error.to_string();
            let lines: Vec<_> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            let problem = lines.join(" ").replace("error: ", "");
            InvalidInput::new("command line", problem, remedy)
        }
    }
}

fn without_value(flag: &str) -> InvalidInput {
    InvalidInput::new(flag, "the value is missing", format!("write {flag}=<value>"))
}

/// Returns the long names of all flags that are implemented.
#[cfg(test)]
pub(crate) fn flag_names() -> Vec<String> {
    let mut command = command();
    command.build();
    let checks = command.find_subcommand(migrate::NAME).into_iter().flat_map(clap::Command::get_subcommands);
    let commands = std::iter::once(&command).chain(command.get_subcommands()).chain(checks);
    commands
        .flat_map(clap::Command::get_arguments)
        .filter_map(|arg| arg.get_long().map(str::to_owned))
        .collect()
}
