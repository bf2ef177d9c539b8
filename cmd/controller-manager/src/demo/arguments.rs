//! What the command line of the demo says.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Parser, ValueEnum};

use crate::args::{Stop, UsageError, first_line};
use crate::duration;

/// A cluster in this process, with windlass at work on it: nothing else is needed, and nothing is left of it.
#[derive(Clone, Debug, Parser)]
#[command(name = "windlass demo", max_term_width = 110)]
pub(super) struct Arguments {
    /// Pods of the sample workload, from 0 (an empty cluster) to 50000.
    #[arg(long, value_name = "PODS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=50_000))]
    pub(super) scale: u32,

    /// Nodes, from 1 to 1000.
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) nodes: u32,

    /// Let requests fail, answers get lost and watches break, and pods die: windlass has to cope.
    #[arg(long)]
    pub(super) faults: bool,

    /// End by itself after this time, such as 30s or 5m. Without it, Ctrl-C ends it.
    #[arg(long, value_name = "DURATION", value_parser = duration_of)]
    pub(super) duration: Option<Duration>,

    /// Write the kubeconfig to this file, which is kept. Without it, it is a temporary file.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig_out: Option<PathBuf>,

    /// Port on loopback for kubectl. 0 takes any free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(super) port: u16,

    /// Go on where an earlier demo ended: read the cluster's state from this file if it exists, and write it at the end.
    #[arg(long, value_name = "FILE")]
    pub(super) state: Option<PathBuf>,

    /// Lines instead of a screen, on a terminal too.
    #[arg(long)]
    pub(super) plain: bool,

    /// What windlass works on: the server in this process, or a real etcd and kube-apiserver built from source, which
    /// takes a checkout of the project and Go.
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = ControlPlane::InProcess)]
    pub(super) control_plane: ControlPlane,
}

/// What windlass works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ControlPlane {
    /// The API server in this process.
    InProcess,
    /// The real one of the tests.
    Real,
}

/// Reads the words after `demo`.
pub(super) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Arguments, Stop> {
    let named = std::iter::once(OsString::from("windlass demo")).chain(words);
    Arguments::try_parse_from(named).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp => Stop::Print(error.to_string()),
        _ => Stop::Refused(UsageError::Demo(first_line(&error)).into()),
    })
}

fn duration_of(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Arguments, Stop> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn five_pods_in_this_process_unless_told_otherwise() {
        let arguments = parsed(&[]).expect("nothing is needed");
        assert_eq!((arguments.scale, arguments.control_plane), (5, ControlPlane::InProcess));
        assert_eq!((arguments.duration, arguments.faults), (None, false));
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        for (words, culprit) in [
            (["--scale", "50001"], "--scale"),
            (["--duration", "soon"], "--duration"),
            (["--control-plane", "cloud"], "--control-plane <WHICH>'; write in-process or real"),
            (["--plain", "--fault"], "did you mean --faults?"),
        ] {
            let Err(Stop::Refused(problem)) = parsed(&words) else { panic!("{words:?} is accepted") };
            assert!(problem.to_string().contains(culprit), "{problem}");
        }
    }
}
