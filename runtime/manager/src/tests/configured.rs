//! Tests that every setting of a manager is shown in `/configz` or on its own endpoint.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use windlass_admin::{Access, AdminConfig, ComponentInfo, OwnershipReport, Tls};
use windlass_client::Identities;
use windlass_controller::{CacheSync, WebhookCertificates, WebhookConfig};
use windlass_election::{CoordinatedConfig, ElectionConfig};
use windlass_informer::{KindOptions, NamespaceSet, ObjectForm};

use crate::configuration::about;
use crate::feature_gates::{FeatureGate, FeatureGates, FeatureStage};
use crate::{CacheOptions, ControllerSelection, ManagerConfig};

/// Returns a configuration with every optional part.
fn full() -> ManagerConfig {
    let election =
        ElectionConfig { coordinated: Some(CoordinatedConfig::new("1.2.3")), ..ElectionConfig::new("me") };
    let admin = AdminConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let config = ManagerConfig::new("me");
    let client = windlass_client::ClientOptions {
        identities: Identities::service_accounts(),
        ..config.client.clone()
    };
    ManagerConfig {
        election: Some(election),
        shards: NonZeroU16::new(4),
        admin: Some(admin),
        webhooks: Some(WebhookConfig::of_process("sites")),
        cache: CacheOptions { namespaces: Some(NamespaceSet::from_names(["shop"])), ..config.cache.clone() },
        client,
        ..config
    }
}

/// A change of one setting, by its name, which must be visible.
type Change = (&'static str, fn(&mut ManagerConfig));

const OTHER: Duration = Duration::from_secs(12_345);

fn elected(config: &mut ManagerConfig) -> &mut ElectionConfig {
    config.election.as_mut().expect("elected")
}

fn coordinated(config: &mut ManagerConfig) -> &mut CoordinatedConfig {
    elected(config).coordinated.as_mut().expect("coordinated")
}

fn served(config: &mut ManagerConfig) -> &mut AdminConfig {
    config.admin.as_mut().expect("served")
}

fn webhooks(config: &mut ManagerConfig) -> &mut WebhookConfig {
    config.webhooks.as_mut().expect("served")
}

fn gates() -> FeatureGates {
    let (stage, since) = (FeatureStage::Beta, "v1.0");
    FeatureGates::new([FeatureGate { name: "Gate", stage, default: true, locked: false, since }])
        .expect("one")
}

/// A change for each setting, by the path of its field. A path with private fields covers all of them.
const CHANGES: &[Change] = &[
    ("name", |config| config.name = "other".to_owned()),
    ("identity", |config| config.identity = "other".to_owned()),
    ("controllers", |config| config.controllers = ControllerSelection::parse(["*", "-other"])),
    ("election", |config| config.election = None),
    ("election.lease_name", |config| elected(config).lease_name = "other".to_owned()),
    ("election.lease_namespace", |config| elected(config).lease_namespace = Some("other".to_owned())),
    ("election.identity", |config| elected(config).identity = "other".to_owned()),
    ("election.lease_duration", |config| elected(config).lease_duration = OTHER),
    ("election.renew_deadline", |config| elected(config).renew_deadline = OTHER),
    ("election.retry_period", |config| elected(config).retry_period = OTHER),
    ("election.release_on_exit", |config| elected(config).release_on_exit = false),
    ("election.coordinated", |config| elected(config).coordinated = None),
    ("election.coordinated.binary_version", |config| coordinated(config).binary_version = "9.9.9".to_owned()),
    ("election.coordinated.emulation_version", |config| {
        coordinated(config).emulation_version = "0.9.9".to_owned();
    }),
    ("shards", |config| config.shards = NonZeroU16::new(7)),
    ("admin", |config| config.admin = None),
    ("admin.address", |config| served(config).address = ([127, 0, 0, 9], 99).into()),
    ("admin.tls", |config| served(config).tls = Tls::Plain),
    ("admin.tls", |config| {
        served(config).tls = Tls::Persisted { folder: PathBuf::from("/other"), name: "pair".to_owned() };
    }),
    ("admin.tls", |config| {
        served(config).tls = Tls::Files { certificate: PathBuf::from("/crt"), key: PathBuf::from("/key") };
    }),
    ("admin.access", |config| served(config).access = Access::Anonymous),
    ("admin.access.always_allow", |config| {
        reviewed(config, |allow, _, _, _| allow.push("/other".to_owned()));
    }),
    ("admin.access.authentication_ttl", |config| reviewed(config, |_, ttl, _, _| *ttl = OTHER)),
    ("admin.access.allow_ttl", |config| reviewed(config, |_, _, ttl, _| *ttl = OTHER)),
    ("admin.access.deny_ttl", |config| reviewed(config, |_, _, _, ttl| *ttl = OTHER)),
    ("webhooks", |config| config.webhooks = None),
    ("webhooks.address", |config| webhooks(config).address = ([127, 0, 0, 9], 98).into()),
    ("webhooks.certificates", |config| {
        let (certificate, key) = (PathBuf::from("/crt"), PathBuf::from("/key"));
        webhooks(config).certificates = WebhookCertificates::Files { certificate, key };
    }),
    ("webhooks.certificates.secret", |config| {
        webhooks(config).certificates = WebhookCertificates::Rotated { secret: "other".to_owned() };
    }),
    ("webhooks.service", |config| webhooks(config).service = "other".to_owned()),
    ("webhooks.configuration", |config| webhooks(config).configuration = "other".to_owned()),
    ("webhooks.url", |config| webhooks(config).url = Some("https://127.0.0.1:9".to_owned())),
    ("webhooks.client_ca", |config| webhooks(config).client_ca = Some(PathBuf::from("/ca"))),
    ("webhooks.linger", |config| webhooks(config).linger = OTHER),
    ("flags", |config| drop(config.flags.insert("other".to_owned(), "1".to_owned()))),
    ("configuration", |config| drop(config.configuration.insert("other".to_owned(), json!(1)))),
    ("feature_gates", |config| config.feature_gates = gates()),
    ("cache.namespaces", |config| config.cache.namespaces = None),
    ("cache.namespaces", |config| config.cache.namespaces = Some(NamespaceSet::from_names(["other"]))),
    ("client.qps", |config| config.client.qps = 12.5),
    ("client.burst", |config| config.client.burst = 77),
    ("client.user_agent", |config| config.client.user_agent = "other".to_owned()),
    ("client.request_timeout", |config| config.client.request_timeout = OTHER),
    ("client.connect_timeout", |config| config.client.connect_timeout = OTHER),
    ("client.unacknowledged_timeout", |config| config.client.unacknowledged_timeout = OTHER),
    ("client.identities", |config| config.client.identities = Identities::Shared),
    ("client.format", |config| config.client.format = windlass_client::WireFormat::Json),
    ("client.identities.namespace", |config| {
        config.client.identities = Identities::ServiceAccounts { namespace: "other".to_owned() };
    }),
    ("cache.resync", |config| config.cache.resync = OTHER),
    ("cache.selectors.labels", |config| config.cache.selectors.labels = Some("other".to_owned())),
    ("cache.selectors.fields", |config| config.cache.selectors.fields = Some("other".to_owned())),
    ("cache.keep_managed_fields", |config| config.cache.keep_managed_fields = true),
    ("cache.form", |config| config.cache.form = ObjectForm::Decoded),
    ("cache.byte_budget", |config| config.cache.byte_budget = Some(77)),
    ("cache.watch_crds", |config| config.cache.watch_crds = true),
    ("cache.kinds", |config| {
        config.cache.kind(KindOptions::<ConfigMap>::new());
    }),
    ("start_interval", |config| config.start_interval = OTHER),
    ("shutdown_timeout", |config| config.shutdown_timeout = OTHER),
    ("cache_sync", |config| config.cache_sync = CacheSync::Within(OTHER)),
    ("api_server_wait", |config| config.api_server_wait = OTHER),
    ("worker_stuck_after", |config| config.worker_stuck_after = OTHER),
    ("event_cache_size", |config| config.event_cache_size = 77),
];

/// There is only one strategy, which is shown. A connection for tests is not a setting.
const UNCHANGED: [&str; 3] =
    ["client.fence_allowance", "election.coordinated.strategy", "webhooks.in_process"];

fn reviewed(
    config: &mut ManagerConfig,
    change: impl FnOnce(&mut Vec<String>, &mut Duration, &mut Duration, &mut Duration),
) {
    let Access::Delegated { always_allow, authentication_ttl, allow_ttl, deny_ttl } =
        &mut served(config).access
    else {
        panic!("reviewed");
    };
    change(always_allow, authentication_ttl, allow_ttl, deny_ttl);
}

/// Returns the content of the endpoints for a configuration.
fn shown(config: &ManagerConfig) -> Value {
    let ComponentInfo { component, flags, configuration, ownership: _ } =
        about(config, config.election("default").as_ref(), OwnershipReport::default());
    json!([component, flags, configuration])
}

/// Returns the paths of all fields of a configuration, from its `Debug` output.
fn fields(config: &ManagerConfig) -> BTreeSet<String> {
    let (mut above, mut paths) = (Vec::<(usize, String)>::new(), BTreeSet::new());
    for line in format!("{config:#?}").lines() {
        let text = line.trim_start();
        let is_name = |name: &&str| {
            name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        };
        let Some(name) = text.split_once(": ").map(|(name, _)| name).filter(is_name) else { continue };
        let depth = line.len() - text.len();
        above.retain(|(before, _)| *before < depth);
        above.push((depth, name.to_owned()));
        let path: Vec<&str> = above.iter().map(|(_, name)| name.as_str()).collect();
        paths.insert(path.join("."));
    }
    paths
}

// parity: configz-component
#[test]
fn every_setting_of_a_manager_is_shown() {
    let plain = shown(&full());
    let mut seen = vec![plain];
    for (field, change) in CHANGES {
        let mut config = full();
        change(&mut config);
        let changed = shown(&config);
        assert!(!seen.contains(&changed), "{field} is not shown: {changed}");
        seen.push(changed);
    }
}

// parity: configz-component
#[test]
fn every_field_of_the_configuration_has_a_test() {
    let paths = fields(&full());
    assert!(paths.contains("client.identities.namespace") && paths.len() > 40, "{paths:?}");
    let known: BTreeSet<&str> = CHANGES.iter().map(|(field, _)| *field).chain(UNCHANGED).collect();
    let has_known_below = |path: &str| known.iter().any(|field| field.starts_with(&format!("{path}.")));
    let is_private = |path: &str| {
        known.iter().any(|field| {
            path.strip_prefix(field).is_some_and(|rest| rest.starts_with('.')) && !has_known_below(field)
        })
    };
    let forgotten: Vec<&String> = paths
        .iter()
        .filter(|path| !known.contains(path.as_str()) && !has_known_below(path) && !is_private(path))
        .collect();
    assert_eq!(forgotten, Vec::<&String>::new(), "these fields have no test in CHANGES");
}

#[test]
fn namespace_of_lease_is_shown_when_it_is_the_default() {
    let shown = &shown(&ManagerConfig::new("me"))[2]["manager.windlass.dev"];
    assert_eq!(shown["leaderElection"]["resourceNamespace"], "default");
}

#[test]
fn election_and_identities_are_shown() {
    let shown = &shown(&full())[2]["manager.windlass.dev"];
    assert_eq!(shown["leaderElection"]["releaseOnExit"], true);
    let coordinated = json!({
        "binaryVersion": "1.2.3", "emulationVersion": "1.2.3", "strategy": "OldestEmulationVersion",
    });
    assert_eq!(shown["leaderElection"]["coordinated"], coordinated);
    assert_eq!(shown["clientConnection"]["identities"], json!({ "serviceAccountsIn": "kube-system" }));
    assert_eq!(shown["controllers"], json!(["*"]));
}
