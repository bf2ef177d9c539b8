//! The configuration in effect, as `/configz` shows it.
//!
//! Taken apart by name, so that whoever adds a setting says whether and how it is shown. Nothing in it is a secret:
//! credentials are not part of a manager's configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_controller::CacheSync;

use super::config::{Access, AdminConfig, Tls};
use super::status::About;
use crate::config::ManagerConfig;
use crate::holdings::Holdings;

/// What the manager's part is called.
const MANAGER: &str = "manager.windlass.dev";

impl About {
    /// What a manager of this configuration tells that holds this.
    pub(crate) fn of(config: &ManagerConfig, holdings: Holdings) -> Self {
        let mut configuration = config.configuration.clone();
        configuration.insert(MANAGER.to_owned(), manager(config));
        Self { component: config.name.clone(), flags: config.flags.clone(), configuration, holdings }
    }
}

fn manager(config: &ManagerConfig) -> Value {
    let ManagerConfig {
        name,
        identity,
        controllers,
        election,
        groups,
        shards,
        admin,
        flags: _,
        // A part of its own.
        configuration: _,
        feature_gates,
        namespaces,
        client,
        resync,
        start_interval,
        shutdown_timeout,
        cache_sync,
        api_server_wait,
        worker_stuck_after,
        remembered_events,
    } = config;
    json!({
        "name": name,
        "identity": identity,
        "controllers": format!("{controllers:?}"),
        "leaderElection": election.as_ref().map(|election| json!({
            "resourceNamespace": election.lease_namespace,
            "resourceName": election.lease_name,
            "leaseDuration": text(election.lease_duration),
            "renewDeadline": text(election.renew_deadline),
            "retryPeriod": text(election.retry_period),
        })),
        "leaderElectionGroups": groups.iter().map(|group| (group.name.clone(), group.controllers.clone())).collect::<BTreeMap<_, _>>(),
        "shards": shards,
        "featureGates": feature_gates.iter().map(|(gate, on)| (gate.name, on)).collect::<BTreeMap<_, _>>(),
        "admin": admin.as_ref().map(self::admin),
        "namespaces": namespaces.as_ref().map(|namespaces| namespaces.current()),
        "clientConnection": {
            "qps": client.qps,
            "burst": client.burst,
            "userAgent": client.user_agent,
            "requestTimeout": text(client.request_timeout),
            "connectTimeout": text(client.connect_timeout),
        },
        "minResyncPeriod": text(*resync),
        "controllerStartInterval": text(*start_interval),
        "controllerShutdownTimeout": text(*shutdown_timeout),
        "cacheSyncTimeout": match cache_sync {
            CacheSync::Forever => Value::Null,
            CacheSync::Within(limit) => text(*limit),
        },
        "apiServerWait": text(*api_server_wait),
        "workerStuckAfter": text(*worker_stuck_after),
        "rememberedEvents": remembered_events,
    })
}

fn admin(config: &AdminConfig) -> Value {
    let AdminConfig { address, tls, access, http2 } = config;
    json!({
        "address": address.to_string(),
        "tls": match tls {
            Tls::Plain | Tls::SelfSigned => json!(tls.to_string()),
            Tls::Kept { folder, name } => json!({ "folder": folder, "name": name }),
            Tls::Files { certificate, key } => json!({ "certificate": certificate, "key": key }),
        },
        "access": match access {
            Access::Open => json!("open"),
            Access::Reviewed { always_allow, authentication_ttl, allow_ttl, deny_ttl } => json!({
                "alwaysAllowPaths": always_allow,
                "authenticationTTL": text(*authentication_ttl),
                "allowTTL": text(*allow_ttl),
                "denyTTL": text(*deny_ttl),
            }),
        },
        "http2": http2,
    })
}

fn text(duration: Duration) -> Value {
    json!(format!("{duration:?}"))
}
