//! What a command line means, and what is said of one that means nothing.

use std::ffi::OsString;

use super::*;
use crate::args::{self, Refusal, Stop, UsageError};

const KNOWN: [Descriptor; 3] = [
    Descriptor::new("replicaset-controller").with_aliases(&["replicaset"]),
    Descriptor::new("endpoints-controller").with_aliases(&["endpoint"]),
    Descriptor::new("rare-controller").disabled_by_default(),
];

/// Arguments as after the program's name, taken to the end.
fn read(line: &[&str]) -> Result<Config, String> {
    let words = std::iter::once("windlass").chain(line.iter().copied()).map(OsString::from);
    match args::parse(words, &KNOWN) {
        Ok(args) => Config::from_args(args, &KNOWN, "me").map_err(|error| error.to_string()),
        Err(Stop::Refused(error)) => Err(error.to_string()),
        Err(Stop::Print(text)) => Err(text),
    }
}

fn config(line: &[&str]) -> Config {
    read(line).unwrap_or_else(|message| panic!("{line:?}: {message}"))
}

/// The names of the controllers that would run.
fn selected(line: &[&str]) -> Vec<&'static str> {
    config(line).manager.controllers.resolve(&KNOWN).expect("resolved before")
}

#[test]
fn defaults_are_upstreams() {
    let Config { cluster, manager, controllers, logging } = config(&[]);
    assert_eq!(cluster, Cluster { kubeconfig: None, master: None });
    assert_eq!((manager.client.qps, manager.client.burst), (20.0, 30));
    assert_eq!(selected(&[]), ["replicaset-controller", "endpoints-controller"]);
    assert_eq!(manager.resync, Duration::from_secs(12 * 3600));
    assert_eq!(manager.start_interval, Duration::ZERO);
    assert_eq!(manager.shutdown_timeout, Duration::from_secs(10));
    assert_eq!(manager.admin, Some("127.0.0.1:10257".parse().unwrap()));
    assert_eq!(controllers, Options::default());
    assert_eq!(logging, Logging { verbosity: 0, format: Format::Text });
}

#[test]
fn the_default_election_is_upstreams_under_a_name_of_our_own() {
    let election = config(&[]).manager.election.expect("on by default");
    let seconds =
        [election.lease_duration, election.renew_deadline, election.retry_period].map(|d| d.as_secs());
    assert_eq!(seconds, [15, 10, 2]);
    assert_eq!((&*election.lease_namespace, &*election.lease_name), ("kube-system", "windlass"));
    assert_eq!(election.identity, "me");
}

#[test]
fn underscores_stand_for_dashes_in_names_and_not_in_values() {
    let config = config(&["--concurrent_rc_syncs=7", "--kube_api_burst", "9", "--kubeconfig=a_b"]);
    assert_eq!(config.controllers.concurrent_rc_syncs, 7);
    assert_eq!(config.manager.client.burst, 9);
    assert_eq!(config.cluster.kubeconfig, Some(PathBuf::from("a_b")));
}

#[test]
fn of_a_flag_given_twice_the_last_counts_and_lists_are_joined() {
    let line = ["-v=1", "--v=4", "--controllers=*", "--controllers", "-endpoint,rare-controller"];
    assert_eq!(config(&line).logging.verbosity, 4);
    assert_eq!(selected(&line), ["replicaset-controller", "rare-controller"]);
}

#[test]
fn election_can_be_turned_off_and_then_its_durations_need_not_agree() {
    for word in ["--leader-elect=false", "--leader_elect=F", "--leader-elect=0"] {
        assert_eq!(config(&[word, "--leader-elect-renew-deadline=20s"]).manager.election, None);
    }
    assert!(config(&["--leader-elect"]).manager.election.is_some());
}

#[test]
fn a_negative_rate_is_no_limit() {
    assert_eq!(config(&["--kube-api-qps=-1"]).manager.client.qps, -1.0);
    assert_eq!(config(&["--kube-api-qps", "-1"]).manager.client.qps, -1.0);
    assert_eq!(config(&["--kube-api-qps=0.5"]).manager.client.qps, 0.5);
}

#[test]
fn port_zero_serves_nothing_wherever_that_would_be() {
    assert_eq!(config(&["--secure-port=0", "--bind-address=0.0.0.0"]).manager.admin, None);
    assert_eq!(config(&["--bind-address=::1"]).manager.admin, Some("[::1]:10257".parse().unwrap()));
}

#[test]
fn help_and_version_are_printed_not_refused() {
    assert!(read(&["--help"]).unwrap_err().contains("endpoints-controller"));
    assert!(read(&["--version"]).unwrap_err().starts_with("windlass "));
    assert!(read(&["--version=raw"]).unwrap_err().starts_with("windlass "));
}

/// Every wrong value: what was written, and what the one line about it must contain.
const REFUSALS: &[(&[&str], &[&str])] = &[
    (&["--kube-api-qps=fast"], &["--kube-api-qps=fast", "not a number", "-1 for no limit"]),
    (&["--kube-api-qps=NaN"], &["--kube-api-qps=NaN", "not a number"]),
    (&["--kube-api-qps=0"], &["--kube-api-qps=0", "ever be sent", "-1 for no limit"]),
    (&["--kube-api-burst=0"], &["--kube-api-burst=0", "out of range", "from 1 up"]),
    (&["--kube-api-burst=1.5"], &["--kube-api-burst=1.5", "whole number", "from 1 up"]),
    (&["--controllers=*,foo"], &["--controllers=*,foo", "\"foo\"", "there are replicaset-controller, endp"]),
    (&["--controllers=endpont"], &["\"endpont\"", "endpoints-controller if you meant that"]),
    (&["--controllers=-replicaset"], &["no controller would run", "'*' for all"]),
    (&["--controllers=-deployment"], &["--controllers=-deployment", "does not have yet", "leave it out"]),
    (&["--concurrent-replicaset-syncs=0"], &["--concurrent-replicaset-syncs=0", "from 1 to 10000"]),
    (&["--concurrent-rc-syncs=-3"], &["--concurrent-rc-syncs=-3", "out of range", "from 1 to 10000"]),
    (&["--concurrent-endpoint-syncs=five"], &["--concurrent-endpoint-syncs=five", "whole number"]),
    (
        &["--endpoint-updates-batch-period=5"],
        &["--endpoint-updates-batch-period=5", "unit is missing", "15s"],
    ),
    (&["--min-resync-period=-1h"], &["--min-resync-period=-1h", "negative", "15s"]),
    (&["--controller-start-interval=1d"], &["--controller-start-interval=1d", "\"d\"", "1m30s"]),
    (&["--controller-shutdown-timeout="], &["--controller-shutdown-timeout=", "empty", "15s"]),
    (&["--feature-gates=Foo=true"], &["--feature-gates=Foo=true", "unknown feature gate", "leave it out"]),
    (&["--feature-gates=LogarithmicScaleDown=false"], &["always true", "leave it out"]),
    (&["--leader-elect=maybe"], &["--leader-elect=maybe", "true or false"]),
    (&["--leader-elect-lease-duration=abc"], &["--leader-elect-lease-duration=abc", "not a duration", "15s"]),
    (&["--leader-elect-lease-duration=10500ms"], &["whole number of seconds", "15s"]),
    (&["--leader-elect-lease-duration=0"], &["--leader-elect-lease-duration=0ns", "at least 1s", "15s"]),
    (
        &["--leader-elect-renew-deadline=15s"],
        &[
            "--leader-elect-renew-deadline=15s",
            "lease duration (15s)",
            "shorter than --leader-elect-lease-duration",
        ],
    ),
    (
        &["--leader-elect-retry-period=9s"],
        &["--leader-elect-renew-deadline=10s", "retry period (9s)", "--leader-elect-retry-period shorter"],
    ),
    (
        &["--leader-elect-renew-deadline=1s", "--leader-elect-retry-period=200ms"],
        &["--leader-elect-renew-deadline=1s", "2s longer than the retry period (200ms)", "make it longer"],
    ),
    (&["--leader-elect-retry-period=0"], &["--leader-elect-retry-period=0", "longer than zero", "2s"]),
    (&["--leader-elect-resource-lock=endpoints"], &["--leader-elect-resource-lock=endpoints", "leases"]),
    (&["--leader-elect-resource-name="], &["--leader-elect-resource-name=", "not a name", "windlass"]),
    (&["--leader-elect-resource-namespace=A_b"], &["--leader-elect-resource-namespace=A_b", "not a name"]),
    (&["--bind-address=localhost"], &["--bind-address=localhost", "not an IP address", "127.0.0.1"]),
    (&["--bind-address=0.0.0.0"], &["--bind-address=0.0.0.0", "loopback", "--secure-port=0"]),
    (&["--secure-port=70000"], &["--secure-port=70000", "not a port", "65535"]),
    (&["-v=loud"], &["--v=loud", "whole number", "from 0 to 10"]),
    (&["--logging-format=xml"], &["--logging-format=xml", "not a format", "text or json"]),
    (&["--node-monitor-period=5s"], &["--node-monitor-period", "does not implement yet", "leave it out"]),
    (&["--node_monitor_period", "5s"], &["--node-monitor-period", "does not implement yet"]),
    (&["--leader-elects=true"], &["--leader-elects", "unknown flag", "--leader-elect?"]),
    (&["--zzz"], &["--zzz", "unknown flag", "windlass --help"]),
    (&["-q"], &["-q", "unknown flag", "windlass --help"]),
    (&["--kubeconfig"], &["--kubeconfig", "needs a value", "--kubeconfig=<value>"]),
    (&["extra"], &["\"extra\"", "unexpected argument"]),
    (&["--leader-elect", "false"], &["\"false\"", "unexpected argument", "equals sign"]),
];

#[test]
fn every_refusal_names_flag_value_and_remedy() {
    for (line, parts) in REFUSALS {
        let message = read(line).expect_err(&format!("{line:?} should be refused"));
        assert!(!message.contains('\n'), "{line:?}: more than one line: {message}");
        for part in *parts {
            assert!(message.contains(part), "{line:?}: {part:?} is not in: {message}");
        }
    }
}

#[test]
fn flags_named_in_the_documentation_exist() {
    const PAGE: &str = include_str!("../../../../docs/running.md");
    let implemented = args::flag_names();
    let words = PAGE.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let named: Vec<_> =
        words.filter_map(|word| word.strip_prefix("--")).filter(|name| !name.is_empty()).collect();
    assert!(named.len() > 5, "the page names flags");
    for name in named.into_iter().filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase())) {
        assert!(implemented.iter().any(|flag| flag == name), "--{name} does not exist");
    }
}

#[test]
fn a_flag_of_kube_controller_manager_is_not_called_a_typo() {
    let words = ["windlass", "--cluster-cidr=10.0.0.0/8"].map(OsString::from);
    let Err(Stop::Refused(error)) = args::parse(words, &KNOWN) else {
        panic!("should be refused");
    };
    assert!(matches!(error, Refusal::Usage(UsageError::NotImplemented(flag)) if flag == "cluster-cidr"));
}
