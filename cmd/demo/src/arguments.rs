//! The command line.

use std::ffi::OsString;
use std::iter;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use jiff::SignedDuration;

/// A small cluster with running windlass controllers. By default it needs no other programs, and leaves nothing behind.
#[derive(Clone, Debug, Parser)]
#[command(name = "windlass-demo", bin_name = "cargo demo", max_term_width = 110)]
pub(crate) struct Arguments {
    /// Pods of the sample workload, from 0 (an empty cluster) to 50000.
    #[arg(long, value_name = "PODS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=50_000))]
    pub(crate) scale: u32,

    /// Nodes, from 1 to 1000.
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) nodes: u32,

    /// Inject failed requests, lost responses, broken watches and pod deletions.
    #[arg(long)]
    pub(crate) faults: bool,

    /// Stop after this time, such as 30s or 5m. Without it, Ctrl-C stops the demo.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) duration: Option<Duration>,

    /// Write the kubeconfig to this file and keep it. Without it, a temporary file is used.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig_out: Option<PathBuf>,

    /// Port on loopback for kubectl. 0 selects a free port.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,

    /// Continue an earlier demo: read the state of the cluster from this file if it exists, and write it at the end.
    #[arg(long, value_name = "FILE")]
    pub(crate) state: Option<PathBuf>,

    /// Print lines on a terminal too, instead of a screen.
    #[arg(long)]
    pub(crate) plain: bool,

    /// Write the last state of the screen to this file as an SVG picture.
    #[arg(long, value_name = "FILE")]
    pub(crate) picture: Option<PathBuf>,

    /// The control plane: an API server in this process, or a real etcd and kube-apiserver built from source. The real
    /// one requires Go and takes minutes to build the first time.
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = ControlPlaneKind::InProcess)]
    pub(crate) control_plane: ControlPlaneKind,
}

/// The control plane that windlass connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ControlPlaneKind {
    /// The API server in this process.
    InProcess,
    /// etcd and kube-apiserver.
    Real,
}

impl Arguments {
    /// Parses the words of a command line after the name of the program. A first `--` is ignored: `cargo demo` already
    /// contains one, and users of cargo write another.
    ///
    /// # Errors
    /// Returns the message for the user, such as the help.
    pub(crate) fn of(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut words = words.into_iter().peekable();
        words.next_if(|word| word == "--");
        Self::try_parse_from(iter::once("windlass-demo".into()).chain(words))
    }

    /// Rejects arguments that the selected control plane does not support.
    ///
    /// # Errors
    /// Returns an error that names the flag.
    pub(crate) fn validate(&self) -> Result<()> {
        if self.control_plane == ControlPlaneKind::Real {
            let only_in_process =
                [("--faults", self.faults), ("--port", self.port != 0), ("--state", self.state.is_some())];
            for (flag, given) in only_in_process {
                ensure!(!given, "{flag} works with the control plane in this process only; leave it out");
            }
        }
        Ok(())
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = text.parse::<SignedDuration>().ok().and_then(|it| Duration::try_from(it).ok());
    duration.ok_or_else(|| "not a duration; write 30s, 5m or 1h30m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Arguments> {
        let arguments = Arguments::of(words.iter().map(Into::into))?;
        arguments.validate()?;
        Ok(arguments)
    }

    #[test]
    fn default_is_five_pods_in_this_process() {
        let arguments = parse(&[]).expect("valid");
        assert_eq!((arguments.scale, arguments.control_plane), (5, ControlPlaneKind::InProcess));
        assert_eq!((arguments.duration, arguments.faults), (None, false));
        let arguments = parse(&["--", "--duration=1m30s"]).expect("valid");
        assert_eq!(arguments.duration, Some(Duration::from_secs(90)));
    }

    #[test]
    fn invalid_argument_is_rejected_by_name() {
        let cases: [(&[&str], &str); 7] = [
            (&["--scale", "50001"], "--scale"),
            (&["--duration", "soon"], "'--duration <DURATION>': not a duration; write 30s"),
            (&["--duration=-5s"], "--duration"),
            (&["--control-plane", "cloud"], "possible values: in-process, real"),
            (&["--fault"], "'--faults'"),
            (&["--control-plane=real", "--state=f"], "--state works with the control plane in this process"),
            (&["--control-plane=real", "--faults"], "--faults works with"),
        ];
        for (words, culprit) in cases {
            let problem = parse(words).expect_err("rejected").to_string();
            assert!(problem.contains(culprit), "{words:?}: {problem}");
        }
    }
}
