//! The configuration of a command line and a file, and the errors about settings that contradict each other.

use std::ffi::OsString;

use windlass::admin::{Access, AdminConfig, Tls};
use windlass::election::{CoordinatedConfig, ElectionConfig};

use super::*;
use crate::command_line::{self, CommandLine};

const FILE_HEADER: &str = "apiVersion: config.windlass.dev/v1alpha1\nkind: ControllerManagerConfiguration\n";

/// Reads the arguments, where every file has this content below its header.
fn read(line: &[&str], fields: &str) -> Result<Config, String> {
    let words = std::iter::once("windlass").chain(line.iter().copied()).map(OsString::from);
    let file = format!("{FILE_HEADER}{fields}\n");
    match command_line::parse(words, &|_| Ok(file.as_bytes().to_vec())) {
        Ok(CommandLine::Manage(settings)) => Config::new(*settings, "me").map_err(|error| error.to_string()),
        Ok(other) => panic!("{line:?}: {other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

#[track_caller]
fn config(line: &[&str]) -> Config {
    read(line, "").unwrap_or_else(|error| panic!("{line:?}: {error}"))
}

fn admin(line: &[&str]) -> AdminConfig {
    config(line).manager.admin.expect("on by default")
}

fn election(line: &[&str]) -> ElectionConfig {
    config(line).manager.election.expect("on by default")
}

#[test]
fn defaults_are_those_of_upstream() {
    let Config { cluster, manager, controllers, root_ca_file, worker_threads, logging } = config(&[]);
    assert_eq!(cluster, Cluster { kubeconfig: None, master: None });
    assert_eq!((manager.client.qps, manager.client.burst), (20.0, 30));
    assert_eq!(manager.controllers, ControllerSelection::default());
    assert_eq!(manager.cache.resync, Duration::from_secs(12 * 3600));
    assert_eq!(manager.start_interval, Duration::ZERO);
    assert_eq!(manager.shutdown_timeout, Duration::from_secs(10));
    assert_eq!(manager.admin, Some(AdminConfig::new("0.0.0.0:10257".parse().expect("an address"))));
    assert_eq!(manager.client.identities, Identities::Shared);
    assert_eq!((controllers, root_ca_file), (ControllerOptions::default(), None));
    assert_eq!(worker_threads, 1, "see docs/performance.md");
    assert_eq!(logging, Logging { verbosity: 0, format: LogFormat::Text });
    let election = manager.election.expect("on by default");
    let durations = [election.lease_duration, election.renew_deadline, election.retry_period];
    assert_eq!(durations.map(|duration| duration.as_secs()), [15, 10, 2]);
    assert_eq!(election.lease_namespace.as_deref(), Some("kube-system"));
    assert_eq!(election.lease_name, "windlass");
    assert_eq!((&*election.identity, election.coordinated), ("me", None));
}

// parity: word-sep-normalize-func
#[test]
fn underscores_are_dashes_in_flags_and_not_in_values() {
    let config = config(&["--concurrent_rc_syncs=7", "--kube_api_burst", "9", "--kubeconfig=a_b"]);
    assert_eq!(config.controllers.concurrent_rc_syncs, 7);
    assert_eq!(config.manager.client.burst, 9);
    assert_eq!(config.cluster.kubeconfig, Some(PathBuf::from("a_b")));
}

#[test]
fn last_value_of_a_repeated_flag_counts_and_lists_are_joined() {
    let config = config(&["-v=1", "--v=4", "--controllers=*", "--controllers", "-endpoint, replicaset,"]);
    assert_eq!(config.logging.verbosity, 4);
    assert_eq!(config.manager.controllers, ControllerSelection::parse(["*", "-endpoint", "replicaset"]));
}

#[test]
fn election_and_server_can_be_off_next_to_their_settings() {
    for flag in ["--leader-elect=false", "--leader_elect=F", "--leader-elect=0"] {
        let line = [flag, "--leader-elect-renew-deadline=20s", "--leader-elect-resource-name=other"];
        assert_eq!(config(&line).manager.election, None);
    }
    assert!(config(&["--leader-elect"]).manager.election.is_some());
    let line =
        ["--secure-port=0", "--tls-cert-file=c", "--tls-private-key-file=k", "--disable-http2-serving=false"];
    assert_eq!(config(&line).manager.admin, None);
    assert_eq!(config(&["--cert-dir=/c", "--secure-port=0"]).manager.admin, None);
}

#[test]
fn field_manager_is_the_first_part_of_the_user_agent() {
    let user_agent = |line: &[&str]| config(line).manager.client.user_agent;
    assert_eq!(user_agent(&[]), ClientOptions::default().user_agent);
    assert!(user_agent(&["--field-manager=kube-controller-manager"]).starts_with("kube-controller-manager/"));
}

#[test]
fn negative_rate_disables_the_limit() {
    for (line, qps) in [
        (&["--kube-api-qps=-1"][..], -1.0),
        (&["--kube-api-qps", "-1"], -1.0),
        (&["--kube-api-qps=0.5"], 0.5),
    ] {
        assert_eq!(config(line).manager.client.qps, qps);
    }
}

#[test]
fn server_uses_tls_and_reviews_unless_it_is_plain() {
    let address = "[::1]:10257".parse().expect("an address");
    assert_eq!(admin(&["--bind-address=::1"]), AdminConfig::new(address));
    assert_eq!(admin(&["--bind-address=::1", "--plain-http"]), AdminConfig::local(address));
    assert_eq!(admin(&["--bind-address=::1", "--disable-http2-serving"]), AdminConfig::new(address));
    let access = admin(&[
        "--authorization-always-allow-paths=/livez,/pages/*",
        "--authentication-token-webhook-cache-ttl=1s",
        "--authorization-webhook-cache-authorized-ttl=2s",
        "--authorization-webhook-cache-unauthorized-ttl=0s",
    ])
    .access;
    let [authentication_ttl, allow_ttl, deny_ttl] = [1, 2, 0].map(Duration::from_secs);
    let always_allow = ["/livez", "/pages/*"].map(str::to_owned).to_vec();
    assert_eq!(access, Access::Delegated { always_allow, authentication_ttl, allow_ttl, deny_ttl });
}

// parity: cert-dir
#[test]
fn certificate_files_take_precedence_over_the_directory() {
    let kept = Tls::Persisted { folder: "/certificates".into(), name: "kube-controller-manager".to_owned() };
    let files = Tls::Files { certificate: "c".into(), key: "k".into() };
    assert_eq!(admin(&["--cert-dir=/certificates"]).tls, kept);
    assert_eq!(admin(&["--cert-dir="]).tls, Tls::SelfSigned);
    assert_eq!(admin(&["--tls-cert-file=c", "--tls-private-key-file=k"]).tls, files);
    assert_eq!(admin(&["--cert-dir=/c", "--tls-cert-file=c", "--tls-private-key-file=k"]).tls, files);
}

#[test]
fn controllers_can_use_their_own_service_accounts() {
    let identities = config(&["--use-service-account-credentials"]).manager.client.identities;
    assert_eq!(identities, Identities::service_accounts());
}

#[test]
fn coordinated_election_is_requested_by_flag_or_gate() {
    let coordinated = Some(CoordinatedConfig::new(env!("CARGO_PKG_VERSION")));
    for line in [
        &["--leader-elect-coordinated"][..],
        &["--feature-gates=CoordinatedLeaderElection=true"],
        &["--feature-gates=AllBeta=true,MaxUnavailableStatefulSet=false", "--leader-elect-coordinated=true"],
    ] {
        assert_eq!(election(line).coordinated, coordinated, "{line:?}");
    }
    for gates in [
        "--feature-gates=AllBeta=true,MaxUnavailableStatefulSet=false",
        "--feature-gates=CoordinatedLeaderElection=false",
    ] {
        assert_eq!(config(&[gates, "--leader-elect=false"]).manager.election, None, "{gates}");
    }
    let file = "featureGates: {MaxUnavailableStatefulSet: false}";
    assert!(
        read(&["--config=f", "--feature-gates=AllBeta=true"], file).is_ok(),
        "both sources count together"
    );
    // A file with all settings contains the field with `false`.
    let fields =
        "generic: {leaderElection: {coordinated: false}}\nfeatureGates: {CoordinatedLeaderElection: true}";
    let by_gate = read(&["--config=f"], fields).expect("valid").manager.election;
    assert_eq!(by_gate.expect("on by default").coordinated, coordinated);
    let line = ["--config=f", "--feature-gates=CoordinatedLeaderElection=false"];
    let off = read(&line, fields).expect("valid").manager.election;
    assert_eq!(off.expect("on by default").coordinated, None);
}

#[test]
fn gates_of_the_flag_override_gates_of_the_file_one_by_one() {
    let fields = "featureGates: {PodDeletionCost: false, DeploymentReplicaSetTerminatingReplicas: false}";
    let line = [
        "--config=f",
        "--feature-gates=PodDeletionCost=false",
        "--feature-gates= kube:PodDeletionCost = true ,",
    ];
    let Config { manager, controllers, .. } = read(&line, fields).expect("valid");
    assert!(controllers.pod_deletion_cost && !controllers.terminating_replicas);
    let gates = "DeploymentReplicaSetTerminatingReplicas=false,PodDeletionCost=true";
    assert_eq!(manager.flags["feature-gates"], gates);
}

#[test]
fn process_shows_its_settings() {
    let manager = config(&["--concurrent-rc-syncs=9", "--feature-gates=PodDeletionCost=false"]).manager;
    assert_eq!(manager.flags["concurrent-rc-syncs"], "9");
    let file = &manager.configuration["config.windlass.dev"];
    assert_eq!(file["replicationController"]["concurrentRCSyncs"], 9);
    assert_eq!(file["featureGates"]["PodDeletionCost"], false);
}

#[test]
fn caches_contain_the_configured_namespaces() {
    assert_eq!(config(&[]).manager.cache.namespaces, None);
    let some = config(&["--watch-namespaces=blue", "--watch-namespaces=green"]).manager.cache.namespaces;
    let names: Vec<_> = some.expect("configured").current().into_iter().collect();
    assert_eq!(names, ["blue", "green"]);
}

#[test]
fn flags_in_the_documentation_exist() {
    const PAGE: &str = include_str!("../../../../docs/running.md");
    // Pages with flags of several programs; only their commands that start with `windlass` are checked.
    const OTHER_PAGES: [&str; 3] = [
        include_str!("../../../../docs/alerts.md"),
        include_str!("../../../../docs/differences-from-kube-controller-manager.md"),
        include_str!("../../../../docs/helm.md"),
    ];
    let implemented = command_line::flag_names();
    let is_other = |line: &&str| ["cargo ", "kubeadm "].iter().any(|tool| line.starts_with(tool));
    let commands = OTHER_PAGES.iter().flat_map(|page| page.lines());
    let commands = commands.filter(|line| line.trim_start().starts_with("windlass "));
    let lines = PAGE.lines().filter(|line| !is_other(line)).chain(commands);
    let words = lines.flat_map(|line| line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')));
    let named: Vec<_> = words.filter_map(|word| word.strip_prefix("--")).collect();
    assert!(named.len() > 5, "the page names flags");
    for name in named.into_iter().filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase())) {
        assert!(implemented.iter().any(|flag| flag == name), "--{name} does not exist");
    }
}

/// Flags, fields, and the start and a part of the error about them.
const CONTRADICTIONS: &[(&[&str], &str, &str, &str)] = &[
    (&["--watch-namespaces="], "", "--watch-namespaces=: the list is empty; ", "leave the flag out"),
    (
        &["--watch-namespaces=a,b,a"],
        "",
        "--watch-namespaces=a,b,a: \"a\" is listed twice; ",
        "remove one entry",
    ),
    (
        &["--watch-namespaces=a", "--watch-namespaces=a"],
        "",
        "--watch-namespaces=a,a: \"a\" is listed twice; ",
        "remove one entry",
    ),
    (
        &[],
        "generic: {watchNamespaces: [a, a]}",
        "f.yaml:3:28: generic.watchNamespaces=a,a: \"a\" is listed twice; ",
        "",
    ),
    (
        &["--watch-namespaces=Blue"],
        "",
        "--watch-namespaces=Blue: \"Blue\" is not the name of a namespace; ",
        "lowercase",
    ),
    (
        &["--leader-elect-renew-deadline=15s"],
        "",
        "--leader-elect-renew-deadline=15s: ",
        "; shorten it, or lengthen --leader-elect-lease-duration",
    ),
    (
        &["--leader-elect-lease-duration=10s"],
        "",
        "--leader-elect-lease-duration=10s: ",
        "; lengthen it, or shorten --leader-elect-renew-deadline",
    ),
    (
        &["--leader-elect-lease-duration=10500ms"],
        "",
        "--leader-elect-lease-duration=10500ms: ",
        "whole number of seconds",
    ),
    (
        &["--leader-elect-renew-deadline=1s", "--leader-elect-retry-period=200ms"],
        "",
        "--leader-elect-retry-period=200ms: ",
        "2s longer than the retry period (200ms), to leave time for writes; shorten it, or lengthen --leader-elect-renew-deadline",
    ),
    (
        &["--leader-elect-renew-deadline=40s"],
        "generic: {leaderElection: {leaseDuration: 30s}}",
        "--leader-elect-renew-deadline=40s: ",
        "; shorten it, or lengthen generic.leaderElection.leaseDuration (line 3)",
    ),
    (
        &[],
        "generic: {leaderElection: {leaseDuration: 5s}}",
        "f.yaml:3:43: generic.leaderElection.leaseDuration=5s: ",
        "; lengthen it, or shorten --leader-elect-renew-deadline",
    ),
    (
        &["--min-resync-period=1ms"],
        "",
        "--min-resync-period=1ms: resyncs would be too frequent; ",
        "write 1s or more",
    ),
    (
        &["--plain-http"],
        "",
        "--plain-http=true: plain HTTP requires a loopback address, and --bind-address is 0.0.0.0; ",
        "--bind-address=127.0.0.1",
    ),
    (
        &["--plain-http"],
        "serving: {bindAddress: 10.0.0.1}",
        "--plain-http=true: plain HTTP requires a loopback address, and serving.bindAddress (line 3) is 10.0.0.1; ",
        "",
    ),
    (
        &["--tls-cert-file=c"],
        "",
        "--tls-cert-file=c: a certificate without a key; ",
        "write --tls-private-key-file too",
    ),
    (
        &["--tls-private-key-file=k"],
        "",
        "--tls-private-key-file=k: a key without a certificate; ",
        "write --tls-cert-file too",
    ),
    (
        &["--plain-http", "--bind-address=::1", "--tls-cert-file=c", "--tls-private-key-file=k"],
        "",
        "--tls-cert-file=c: --plain-http disables TLS and reviews; ",
        "leave one of them out",
    ),
    (
        &["--plain-http", "--bind-address=::1", "--cert-dir=/c"],
        "",
        "--cert-dir=/c: --plain-http disables TLS and reviews; ",
        "",
    ),
    (
        &["--authorization-always-allow-paths=/*"],
        "",
        "--authorization-always-allow-paths=/*: \"/*\" exposes all endpoints without authentication; ",
        "list the paths, or write --bind-address=127.0.0.1",
    ),
    (&["--disable-http2-serving=false"], "", "--disable-http2-serving=false: HTTP/2 is not served; ", ""),
    (
        &["--plain-http", "--bind-address=::1"],
        "authorization: {alwaysAllowPaths: [/metrics]}",
        "f.yaml:3:35: authorization.alwaysAllowPaths=/metrics: --plain-http disables ",
        "",
    ),
    (
        &["--plain-http", "--bind-address=::1", "--authorization-webhook-cache-authorized-ttl=1s"],
        "",
        "--authorization-webhook-cache-authorized-ttl=1s: --plain-http disables ",
        "",
    ),
    (
        &["--secure-port=0", "--plain-http"],
        "",
        "--plain-http=true: --secure-port=0 disables the server; ",
        "",
    ),
    (
        &["--leader-elect=false", "--shards=4"],
        "",
        "--shards=4: --leader-elect=false disables the election; ",
        "",
    ),
    (
        &["--shards=4", "--leader-elect-coordinated"],
        "",
        "--shards=4: --leader-elect-coordinated lets the API server select one leader; ",
        "",
    ),
    (
        &["--shards=4", "--watch-namespaces=blue"],
        "",
        "--shards=4: shards divide all namespaces, and --watch-namespaces selects some; ",
        "leave one of them out",
    ),
    (
        &[],
        "generic: {watchNamespaces: [blue], leaderElection: {shards: 4}}",
        "f.yaml:3:61: generic.leaderElection.shards=4: shards divide all namespaces, and generic.watchNamespaces (line 3) ",
        "leave one of them out",
    ),
    (
        &["--shards=4", "--feature-gates=CoordinatedLeaderElection=true"],
        "",
        "--shards=4: the feature gate CoordinatedLeaderElection lets the API server select one leader; ",
        "",
    ),
    (
        &["--leader-elect=false", "--leader-elect-coordinated"],
        "",
        "--leader-elect-coordinated=true: --leader-elect=false disables the election; ",
        "",
    ),
    (
        &["--leader-elect=false", "--feature-gates=PodDeletionCost=false"],
        "featureGates: {CoordinatedLeaderElection: true}",
        "--leader-elect=false: the feature gate CoordinatedLeaderElection requests an election; ",
        "",
    ),
    (
        &["--leader-elect-coordinated=false", "--feature-gates=AllBeta=true,MaxUnavailableStatefulSet=false"],
        "",
        "--leader-elect-coordinated=false: the feature gate CoordinatedLeaderElection is on; ",
        "",
    ),
    (
        &["--feature-gates=AllAlpha=true"],
        "",
        "--feature-gates=AllAlpha=true: cannot set AllAlpha=true: feature gate \"TaintTolerationComparisonOperators\" is",
        "set TaintTolerationComparisonOperators=false too",
    ),
    (
        &["--feature-gates=LogarithmicScaleDown=true"],
        "featureGates: {LogarithmicScaleDown: false}",
        "f.yaml:3:15: featureGates=LogarithmicScaleDown=false: ",
        "locked to true",
    ),
    (
        &["--controllers=*"],
        "generic: {controllers: [replicaset, foo]}",
        "f.yaml:3:24: generic.controllers=replicaset,foo: \"foo\" is not a controller; ",
        "",
    ),
];

// parity: validate-aggregate
#[test]
fn contradiction_is_reported_with_the_names_that_were_written() {
    for (line, fields, start, part) in CONTRADICTIONS {
        let line: Vec<_> = line.iter().copied().chain(["--config=f.yaml"]).collect();
        let error = read(&line, fields).map(drop).expect_err(start);
        assert!(
            error.starts_with(start) && error.contains(part),
            "{line:?} {fields}\nis       {error}\nexpected {start}{part}"
        );
        assert!(error.contains("; ") && !error.contains('\n'), "{error}");
    }
    let name = format!("--leader-elect-resource-name={}", "a".repeat(64));
    let error = read(&["--shards=4", &name], "").map(drop).expect_err("too long");
    assert!(
        error.starts_with(&format!("{name}: with --shards a name has 63 characters at most; ")),
        "{error}"
    );
}
