//! What the command line says, word for word: the low half of "arguments, then validated configuration".
//!
//! Guarantees: flag names and defaults are kube-controller-manager's wherever windlass does what the flag asks;
//! underscores are accepted for dashes; a flag given twice counts once, with its last value (lists are joined);
//! every refusal is one line. Values stay text here: [`crate::config`] gives them meaning, and names the flag when
//! it cannot.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser};
use windlass::controller::Descriptor;

use crate::config::InvalidFlag;
use crate::known_flags;

/// Kubernetes controllers in Rust: keeps ReplicaSets, ReplicationControllers and Endpoints in the state their
/// owners asked for, beside kube-controller-manager or in place of it.
#[derive(Clone, Debug, Parser)]
#[command(name = "windlass", disable_version_flag = true, args_override_self = true, max_term_width = 110)]
#[command(
    after_help = "`windlass demo` shows all of it at work, on a cluster in its own process; see `windlass demo --help`."
)]
pub(crate) struct Args {
    /// Print the version and exit.
    #[arg(long, value_name = "raw", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    pub(crate) version: Option<String>,

    #[command(flatten, next_help_heading = "Cluster")]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten, next_help_heading = "Controllers")]
    pub(crate) controllers: ControllerArgs,
    #[command(flatten, next_help_heading = "Leader election")]
    pub(crate) election: ElectionArgs,
    #[command(flatten, next_help_heading = "Serving")]
    pub(crate) serving: ServingArgs,
    #[command(flatten, next_help_heading = "Logging")]
    pub(crate) logging: LoggingArgs,
}

/// Which API server, as whom, how fast.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// Path to a kubeconfig file. Without it the service account of the pod is used.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<OsString>,

    /// Address of the API server; overrides the one in the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub(crate) master: Option<String>,

    /// Requests per second each controller may send to the API server, on average. Negative lifts the limit.
    #[arg(long, value_name = "RATE", default_value = "20", allow_hyphen_values = true)]
    pub(crate) kube_api_qps: String,

    /// Requests each controller may send at once, before the average counts.
    #[arg(long, value_name = "REQUESTS", default_value = "30")]
    pub(crate) kube_api_burst: String,
}

/// What runs, and how eagerly.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ControllerArgs {
    // The help of this flag lists the controllers that are built in; see `command`.
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "*",
        value_delimiter = ',',
        action = ArgAction::Append,
        allow_hyphen_values = true
    )]
    pub(crate) controllers: Vec<String>,

    /// ReplicaSets reconciled at the same time.
    #[arg(long, value_name = "WORKERS", default_value = "5")]
    pub(crate) concurrent_replicaset_syncs: String,

    /// ReplicationControllers reconciled at the same time.
    #[arg(long, value_name = "WORKERS", default_value = "5")]
    pub(crate) concurrent_rc_syncs: String,

    /// Services whose Endpoints are reconciled at the same time.
    #[arg(long, value_name = "WORKERS", default_value = "5")]
    pub(crate) concurrent_endpoint_syncs: String,

    /// How long changes of pods are gathered before Endpoints are written; 0 writes at once.
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub(crate) endpoint_updates_batch_period: String,

    /// Shortest time between two full passes over a cache; 0 makes none. Each process draws its own period,
    /// between this one and twice this one, so that replicas do not pass together.
    #[arg(long, value_name = "DURATION", default_value = "12h")]
    pub(crate) min_resync_period: String,

    /// Time between the starts of two controllers, to spread the first load; 0 starts all at once.
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub(crate) controller_start_interval: String,

    /// How long work in flight may take to end after the first signal; 0 waits for as long as it takes.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(crate) controller_shutdown_timeout: String,

    /// Switches features on and off, as `Name=true,Other=false`.
    #[arg(long, value_name = "GATES", value_delimiter = ',', action = ArgAction::Append)]
    pub(crate) feature_gates: Vec<String>,
}

/// Who acts when several replicas run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ElectionArgs {
    /// Act only while holding a lease, so that of several replicas one works and the others stand by.
    #[arg(
        long,
        value_name = "BOOL",
        default_value = "true",
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true
    )]
    pub(crate) leader_elect: String,

    /// How long a standby waits after the last renewal it saw before it takes over.
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    pub(crate) leader_elect_lease_duration: String,

    /// How long the leader goes on without a successful renewal before it stops all work.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(crate) leader_elect_renew_deadline: String,

    /// Time between two attempts to acquire or renew the lease.
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(crate) leader_elect_retry_period: String,

    /// Kind of object that holds the lock; `leases` is the only one.
    #[arg(long, value_name = "KIND", default_value = "leases")]
    pub(crate) leader_elect_resource_lock: String,

    /// Name of the Lease. Not kube-controller-manager's own, so that both can run in one cluster.
    #[arg(long, value_name = "NAME", default_value = "windlass")]
    pub(crate) leader_elect_resource_name: String,

    /// Namespace of the Lease.
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    pub(crate) leader_elect_resource_namespace: String,
}

/// Where health and metrics are served.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServingArgs {
    /// Address on which health and metrics are served. Loopback only, until the server can tell who is asking.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) bind_address: String,

    /// Port of that server, which speaks plain HTTP for now; 0 turns it off.
    #[arg(long, value_name = "PORT", default_value = "10257")]
    pub(crate) secure_port: String,
}

/// What is told to stderr.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoggingArgs {
    /// How much is logged: 0 what an operator needs, 4 why things happen, 6 the libraries too, 8 everything.
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value = "0")]
    pub(crate) verbosity: String,

    /// `text` for people, `json` for machines. Either goes to stderr.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) logging_format: String,
}

/// Why parsing ended without arguments to run with.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The user asked for this text; it goes to stdout and the exit code is zero.
    Print(String),
    /// The command line makes no sense, or one of its values.
    Refused(Refusal),
}

/// Why a command line is refused.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum Refusal {
    /// As a whole.
    Usage(#[from] UsageError),
    /// For the value of one flag.
    Flag(#[from] InvalidFlag),
}

/// What is wrong with a command line as such, before its values are looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UsageError {
    /// A flag that kube-controller-manager has.
    #[error("--{0} is a kube-controller-manager flag that windlass does not implement yet; leave it out")]
    NotImplemented(String),
    /// A flag nobody has, perhaps close to one that exists.
    #[error("unknown flag {flag}{}; `windlass --help` lists all flags", similar.as_ref().map(|name| format!(" (did you mean {name}?)")).unwrap_or_default())]
    UnknownFlag {
        /// As it was written, without the value.
        flag: String,
        /// The flag that looks most like it.
        similar: Option<String>,
    },
    /// A flag at the end of the line, or followed by nothing.
    #[error("{0} needs a value; write {0}=<value>")]
    MissingValue(String),
    /// A word that is no flag.
    #[error("unexpected argument {0:?}: windlass takes flags only, and their values follow an equals sign")]
    Unexpected(String),
    /// Whatever else the parser objects to, in its words.
    #[error("{0}; `windlass --help` lists all flags")]
    Other(String),
    /// The same of the demo's command line.
    #[error("{0}; `windlass demo --help` lists all flags")]
    Demo(String),
}

/// Reads a command line; `words` begins with the program's name, `known` are the controllers that are built in.
///
/// # Errors
/// [`Stop::Print`] when help or the version was asked for, [`Stop::Refused`] when the line makes no sense.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>, known: &[Descriptor]) -> Result<Args, Stop> {
    let mut command = command(known);
    let words = words.into_iter().map(dashed);
    let matches = command.try_get_matches_from_mut(words).map_err(|error| stop(&error))?;
    let args = Args::from_arg_matches(&matches).map_err(|error| stop(&error))?;
    match &args.version {
        Some(_) => Err(Stop::Print(format!("windlass {}\n", env!("CARGO_PKG_VERSION")))),
        None => Ok(args),
    }
}

/// The command with the help that depends on what is built in.
fn command(known: &[Descriptor]) -> clap::Command {
    let sorted = |filter: fn(&&Descriptor) -> bool| {
        let mut names: Vec<_> = known.iter().filter(filter).map(|one| one.name).collect();
        names.sort_unstable();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let help = format!(
        "Controllers to run: '*' stands for all that are enabled by default, 'name' enables one, '-name' disables \
         one; the first that names a controller decides.\nAll controllers: {}\nDisabled by default: {}",
        sorted(|_| true),
        sorted(|one| !one.enabled_by_default),
    );
    Args::command().mut_arg("controllers", |arg| arg.help(StyledStr::from(help)))
}

/// The long names of all flags that are implemented.
#[cfg(test)]
pub(crate) fn flag_names() -> Vec<String> {
    Args::command().get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)).collect()
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

/// What the parser objects to, without its advice.
pub(crate) fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}
