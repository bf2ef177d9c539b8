//! What a command line means, and what is said of one that means nothing.

use std::ffi::OsString;

use std::time::Duration;

use windlass::admin::{Access, AdminConfig, Tls};
use windlass::election::CoordinatedConfig;

use super::*;
use crate::args::{self, Refusal, Stop, UsageError};

mod matrix;

const KNOWN: [Descriptor; 3] = [
    Descriptor::new("replicaset-controller").with_aliases(&["replicaset"]),
    Descriptor::new("endpoints-controller").with_aliases(&["endpoint"]),
    Descriptor::new("rare-controller").disabled_by_default(),
];

/// Arguments as after the program's name, taken to the end.
fn read(line: &[&str]) -> Result<Config, String> {
    read_with(line, "")
}

/// The same, where every file that is named holds this.
fn read_with(line: &[&str], file: &str) -> Result<Config, String> {
    let words = std::iter::once("windlass").chain(line.iter().copied()).map(OsString::from);
    match args::parse(words, &KNOWN, &|_| Ok(file.as_bytes().to_vec())) {
        Ok(args) => Config::new(args.settings, &KNOWN, "me").map_err(|error| error.to_string()),
        Err(Stop::Refused(error)) => Err(error.to_string()),
        Err(Stop::Print(text) | Stop::Write { text, .. }) => Err(text),
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
    assert_eq!(manager.admin, Some(AdminConfig::new("0.0.0.0:10257".parse().unwrap())));
    assert_eq!(manager.client.identities, Identities::Shared);
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
    assert_eq!((&*election.identity, election.coordinated), ("me", None));
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
        let line = [
            word,
            "--leader-elect-renew-deadline=20s",
            "--leader-elect-resource-name=kube-controller-manager",
            "--leader-elect-resource-namespace=elsewhere",
        ];
        assert_eq!(config(&line).manager.election, None, "as kube-controller-manager takes it");
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
    let moved =
        ["--secure-port=0", "--tls-cert-file=c", "--tls-private-key-file=k", "--disable-http2-serving=false"];
    assert_eq!(config(&moved).manager.admin, None, "as kube-controller-manager takes it");
}

/// What is served, for a command line.
fn admin(line: &[&str]) -> AdminConfig {
    config(line).manager.admin.expect("on by default")
}

#[test]
fn what_is_served_is_behind_a_certificate_and_reviewed_unless_plain_http_is_asked_for() {
    let address = "[::1]:10257".parse().unwrap();
    assert_eq!(admin(&["--bind-address=::1"]), AdminConfig::new(address));
    assert_eq!(admin(&["--bind-address=::1", "--plain-http"]), AdminConfig::local(address));
    let files = admin(&["--tls-cert-file=c", "--tls-private-key-file=k"]);
    assert_eq!(files.tls, Tls::Files { certificate: "c".into(), key: "k".into() });
    let access = admin(&[
        "--authorization-always-allow-paths=/livez,/pages/*",
        "--authentication-token-webhook-cache-ttl=1s",
        "--authorization-webhook-cache-authorized-ttl=2s",
        "--authorization-webhook-cache-unauthorized-ttl=0s",
    ])
    .access;
    let [authentication_ttl, allow_ttl, deny_ttl] = [1, 2, 0].map(Duration::from_secs);
    let always_allow = ["/livez", "/pages/*"].map(str::to_owned).to_vec();
    assert_eq!(access, Access::Reviewed { always_allow, authentication_ttl, allow_ttl, deny_ttl });
}

#[test]
fn a_certificate_is_kept_in_a_directory_under_upstreams_name_unless_files_are_given() {
    let kept = Tls::Kept { folder: "/certificates".into(), name: "kube-controller-manager".to_owned() };
    assert_eq!(admin(&["--cert-dir=/certificates"]).tls, kept);
    assert_eq!(admin(&["--cert-dir="]).tls, Tls::SelfSigned);
    let both = ["--cert-dir=/certificates", "--tls-cert-file=c", "--tls-private-key-file=k"];
    assert_eq!(admin(&both).tls, Tls::Files { certificate: "c".into(), key: "k".into() });
    assert_eq!(config(&["--cert-dir=/certificates", "--secure-port=0"]).manager.admin, None);
    let refused =
        read(&["--cert-dir=/c", "--plain-http", "--bind-address=::1"]).map(drop).expect_err("plain");
    assert!(refused.starts_with("--cert-dir=/c: --plain-http serves everybody"), "{refused}");
}

#[test]
fn http2_is_off_unless_it_is_not_disabled() {
    for (line, offered) in [
        (&[][..], false),
        (&["--disable-http2-serving"], false),
        (&["--disable-http2-serving=true"], false),
        (&["--disable-http2-serving=false"], true),
    ] {
        assert_eq!(admin(line).http2, offered, "{line:?}");
    }
}

#[test]
fn controllers_may_have_accounts_of_their_own() {
    let identities = config(&["--use-service-account-credentials"]).manager.client.identities;
    assert_eq!(identities, Identities::service_accounts());
}

#[test]
fn the_api_server_chooses_the_leader_if_flag_or_gate_ask_for_it() {
    for line in [
        &["--leader-elect-coordinated"][..],
        &["--feature-gates=CoordinatedLeaderElection=true"],
        &["--feature-gates=AllBeta=true", "--leader-elect-coordinated=true"],
    ] {
        let election = config(line).manager.election.expect("on by default");
        assert_eq!(election.coordinated, Some(CoordinatedConfig::new(env!("CARGO_PKG_VERSION"))), "{line:?}");
    }
    for gates in ["--feature-gates=AllBeta=true", "--feature-gates=CoordinatedLeaderElection=false"] {
        let alone = config(&[gates, "--leader-elect=false"]);
        assert_eq!(alone.manager.election, None, "{gates} does not ask for an election");
    }
}

#[test]
fn a_file_with_all_settings_leaves_the_coordinator_to_the_gate() {
    let line = ["--feature-gates=CoordinatedLeaderElection=true"];
    let words = ["windlass"].into_iter().chain(line).map(OsString::from);
    let args = args::parse(words, &KNOWN, &|_| Ok(Vec::new())).expect("a gate");
    let again = read_with(&["--config=f"], &args.settings.to_file()).expect("what was written is accepted");
    assert!(again.manager.election.expect("on by default").coordinated.is_some());
    let off = read_with(
        &["--config=f", "--feature-gates=CoordinatedLeaderElection=false"],
        &args.settings.to_file(),
    );
    assert_eq!(off.expect("the flag wins").manager.election.expect("on by default").coordinated, None);
}

#[test]
fn a_flag_decides_on_the_gates_that_it_names_and_the_file_on_the_others() {
    let file = "apiVersion: config.windlass.dev/v1alpha1\nkind: ControllerManagerConfiguration\n\
        featureGates: {PodDeletionCost: false, DeploymentReplicaSetTerminatingReplicas: false}\n";
    let line = ["--config=f", "--feature-gates=kube:PodDeletionCost=true"];
    let config = read_with(&line, file).expect("both make sense");
    let gates = &config.manager.feature_gates;
    assert!(gates.is_on(&feature_gates::POD_DELETION_COST), "the flag wins");
    assert!(!gates.is_on(&feature_gates::TERMINATING_REPLICAS), "the file is not forgotten");
    let shown = &config.manager.configuration["config.windlass.dev"]["featureGates"];
    let both = serde_json::json!({"DeploymentReplicaSetTerminatingReplicas": false, "PodDeletionCost": true});
    assert_eq!(shown, &both, "and both are shown");
}

#[test]
fn of_two_words_about_one_gate_the_last_counts_and_stays_when_it_is_written() {
    let line = ["--feature-gates=kube:PodDeletionCost=true", "--feature-gates= PodDeletionCost = false ,"];
    let set = config(&line).manager;
    assert!(!set.feature_gates.is_on(&feature_gates::POD_DELETION_COST));
    assert_eq!(set.flags["feature-gates"], "PodDeletionCost=false");
}

#[test]
fn what_was_set_is_shown_by_the_running_process() {
    let manager = config(&["--concurrent-rc-syncs=9", "--feature-gates=PodDeletionCost=false"]).manager;
    assert_eq!(manager.flags["concurrent-rc-syncs"], "9");
    let shown = &manager.configuration["config.windlass.dev"];
    assert_eq!(shown["replicationController"]["concurrentRCSyncs"], 9);
    assert_eq!(shown["featureGates"]["PodDeletionCost"], false);
    assert!(!manager.feature_gates.is_on(&feature_gates::POD_DELETION_COST));
}

#[test]
fn help_and_version_are_printed_not_refused() {
    assert!(read(&["--help"]).unwrap_err().contains("endpoints-controller"));
    assert!(read(&["--version"]).unwrap_err().starts_with("windlass "));
    assert!(read(&["--version=raw"]).unwrap_err().starts_with("windlass "));
}

#[test]
fn flags_named_in_the_documentation_exist() {
    const PAGE: &str = include_str!("../../../../docs/running.md");
    // Those of `windlass explain` are read apart, and its tests know them.
    let explain =
        ["server", "token-file", "kubeconfig", "certificate-authority", "insecure-skip-tls-verify", "output"];
    let implemented: Vec<_> = args::flag_names().into_iter().chain(explain.map(str::to_owned)).collect();
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
    let Err(Stop::Refused(error)) = args::parse(words, &KNOWN, &|_| Ok(Vec::new())) else {
        panic!("should be refused");
    };
    assert!(matches!(error, Refusal::Usage(UsageError::NotImplemented(flag)) if flag == "cluster-cidr"));
}
