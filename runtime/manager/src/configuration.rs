//! The configuration in effect, as `/configz` shows it.
//!
//! Structs are destructured by field name, so that a new setting does not compile until it is shown or omitted
//! explicitly. The configuration of a manager contains no secrets: credentials are not part of it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_admin::{Access, AdminConfig, ComponentInfo, OwnershipReport, Tls};
use windlass_client::{ClientOptions, Identities, WireFormat};
use windlass_controller::{CacheSync, WebhookCertificates, WebhookConfig};
use windlass_election::{CoordinatedConfig, Election, ElectionConfig};

use windlass_informer::{ObjectForm, Selectors};

use crate::cache::CacheOptions;
use crate::config::ManagerConfig;

/// The name of the manager's section.
const MANAGER: &str = "manager.windlass.dev";

/// Returns the component information for a manager with this configuration. `election` is the configured election with
/// its namespace.
pub(crate) fn about(
    config: &ManagerConfig,
    election: Option<&Election>,
    ownership: OwnershipReport,
) -> ComponentInfo {
    let mut configuration = config.configuration.clone();
    configuration.insert(MANAGER.to_owned(), manager(config, election));
    ComponentInfo { component: config.name.clone(), flags: config.flags.clone(), configuration, ownership }
}

fn manager(config: &ManagerConfig, resolved: Option<&Election>) -> Value {
    let ManagerConfig {
        name,
        identity,
        controllers,
        // Shown below with its namespace.
        election: _,
        shards,
        admin,
        webhooks,
        // Served on `/flagz`.
        flags: _,
        // Separate sections.
        configuration: _,
        feature_gates,
        cache,
        client,
        start_interval,
        shutdown_timeout,
        cache_sync,
        api_server_wait,
        worker_stuck_after,
        event_cache_size,
    } = config;
    json!({
        "name": name,
        "identity": identity,
        "controllers": controllers.entries(),
        "leaderElection": resolved.map(election),
        "shards": shards,
        "featureGates": feature_gates.iter().map(|(gate, on)| (gate.name, on)).collect::<BTreeMap<_, _>>(),
        "admin": admin.as_ref().map(self::admin),
        "webhooks": webhooks.as_ref().map(self::webhooks),
        "cache": self::cache(cache),
        "clientConnection": self::client(client),
        "controllerStartInterval": text(*start_interval),
        "controllerShutdownTimeout": text(*shutdown_timeout),
        "cacheSyncTimeout": match cache_sync {
            CacheSync::Forever => Value::Null,
            CacheSync::Within(limit) => text(*limit),
        },
        "apiServerWait": text(*api_server_wait),
        "workerStuckAfter": text(*worker_stuck_after),
        "rememberedEvents": event_cache_size,
    })
}

fn webhooks(config: &WebhookConfig) -> Value {
    // `in_process` is a test's connection and not a setting.
    let WebhookConfig { address, certificates, service, configuration, url, client_ca, linger, .. } = config;
    json!({
        "address": address,
        "certificates": match certificates {
            WebhookCertificates::Rotated { secret } => json!({ "secret": secret }),
            WebhookCertificates::Files { certificate, key } => json!({ "certificate": certificate, "key": key }),
        },
        "service": service,
        "configuration": configuration,
        "url": url,
        "clientCa": client_ca,
        "linger": text(*linger),
    })
}

fn cache(cache: &CacheOptions) -> Value {
    let Selectors { labels, fields } = &cache.selectors;
    json!({
        "namespaces": cache.namespaces.as_ref().map(|namespaces| namespaces.current()),
        "labelSelector": labels,
        "fieldSelector": fields,
        "minResyncPeriod": text(cache.resync),
        "keepManagedFields": cache.keep_managed_fields,
        "objectForm": match cache.form {
            ObjectForm::Compact => "compact",
            ObjectForm::Decoded => "decoded",
        },
        "byteBudget": cache.byte_budget,
        "watchCrds": cache.watch_crds,
        "kindsWithOptions": cache.kinds.resources().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn election(Election { namespace, config }: &Election) -> Value {
    let ElectionConfig {
        lease_name,
        lease_namespace: _,
        identity,
        lease_duration,
        renew_deadline,
        retry_period,
        release_on_exit,
        coordinated,
    } = config;
    json!({
        "resourceNamespace": namespace,
        "resourceName": lease_name,
        "identity": identity,
        "leaseDuration": text(*lease_duration),
        "renewDeadline": text(*renew_deadline),
        "retryPeriod": text(*retry_period),
        "releaseOnExit": release_on_exit,
        "coordinated": coordinated.as_ref().map(self::coordinated),
    })
}

fn coordinated(config: &CoordinatedConfig) -> Value {
    let CoordinatedConfig { binary_version, emulation_version, strategy } = config;
    json!({
        "binaryVersion": binary_version,
        "emulationVersion": emulation_version,
        "strategy": strategy.as_str(),
    })
}

fn client(options: &ClientOptions) -> Value {
    let ClientOptions {
        qps,
        burst,
        user_agent,
        request_timeout,
        connect_timeout,
        unacknowledged_timeout,
        // With the election: see there.
        fence_allowance: _,
        identities,
        format,
    } = options;
    json!({
        "qps": qps,
        "burst": burst,
        "userAgent": user_agent,
        "requestTimeout": text(*request_timeout),
        "connectTimeout": text(*connect_timeout),
        "unacknowledgedTimeout": text(*unacknowledged_timeout),
        "identities": match identities {
            Identities::Shared => json!("shared"),
            Identities::ServiceAccounts { namespace } => json!({ "serviceAccountsIn": namespace }),
        },
        "format": match format {
            WireFormat::Protobuf => "protobuf",
            WireFormat::Json => "json",
        },
    })
}

fn admin(config: &AdminConfig) -> Value {
    let AdminConfig { address, tls, access } = config;
    json!({
        "address": address.to_string(),
        "tls": match tls {
            Tls::Plain | Tls::SelfSigned => json!(tls.to_string()),
            Tls::Persisted { folder, name } => json!({ "folder": folder, "name": name }),
            Tls::Files { certificate, key } => json!({ "certificate": certificate, "key": key }),
        },
        "access": match access {
            Access::Anonymous => json!("open"),
            Access::Delegated { always_allow, authentication_ttl, allow_ttl, deny_ttl } => json!({
                "alwaysAllowPaths": always_allow,
                "authenticationTTL": text(*authentication_ttl),
                "allowTTL": text(*allow_ttl),
                "denyTTL": text(*deny_ttl),
            }),
        },
    })
}

fn text(duration: Duration) -> Value {
    json!(format!("{duration:?}"))
}
