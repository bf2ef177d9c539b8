//! The settings of the process: one table, from which the flags, the fields of the file, `--help` and docs/settings.md
//! are made.
//!
//! To add a setting, add a row, use its value in `config`, and regenerate the page: `WRITE_DOCS=1 cargo test -p
//! windlass-controller-manager settings_page`. The name of the row is the name of the flag.
//! Guarantees: a flag overrides the field of the file, and the field overrides the default; feature gates do so one by
//! one. Flags, fields and defaults are those of kube-controller-manager and its configuration; the help of a row states
//! each difference.
//!
//! Relations between settings belong to `config`.

mod controllers;
mod file;
pub(crate) mod gates;
mod invalid;
mod serialize;
mod setting;
mod value;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::LazyLock;

use windlass::client::ClientOptions;

pub(crate) use controllers::{Controllers, built_in};
pub(crate) use file::MAX_SIZE;
pub(crate) use gates::Gates;
pub(crate) use invalid::{InvalidInput, assignment};
pub(crate) use setting::{Setting, SettingSources, SettingValue, Source};
pub(crate) use value::{
    BoundedInt, DurationSetting, Format, LockKind, Namespaces, ObjectName, Rate, Server, UrlPaths, Value,
    ValueShape, Workers,
};

setting::settings! {
    "Cluster" cluster: ClusterSettings {
        /// Path of a kubeconfig file. Without it the process uses the ServiceAccount of its pod.
        kubeconfig: Option<PathBuf> = "", "FILE", "generic.clientConnection.kubeconfig";

        /// URL of the API server; overrides the URL in the kubeconfig. Without --kubeconfig the process sends no
        /// credentials to it, also in a Pod.
        master: Server = "", "URL", "generic.clientConnection.master";

        /// Average requests per second of each controller to the API server, from 0.001 to 1000000; a negative rate
        /// disables the limit.
        kube_api_qps: Rate = "20", "RATE", "generic.clientConnection.qps";

        /// Requests that each controller can send in a burst above the average rate, from 1 to 1000000.
        kube_api_burst: BoundedInt<1, { ClientOptions::MAX_BURST }> = "30", "REQUESTS", "generic.clientConnection.burst";

        /// Name of the process in the managedFields of objects, and the first part of its user agent. With
        /// kube-controller-manager, a swap of both leaves managedFields unchanged. kube-controller-manager has no such
        /// setting.
        field_manager: ObjectName = "windlass", "NAME", "generic.clientConnection.fieldManager";

        /// Each controller uses its own ServiceAccount in kube-system. The process creates a missing ServiceAccount and
        /// requests tokens; it needs `create` on serviceaccounts and serviceaccounts/token.
        use_service_account_credentials: bool = "false", "BOOL", "kubeCloudShared.useServiceAccountCredentials";
    }
    "Controllers" controllers: ControllerSettings {
        /// Controllers to run: '*' enables all that are on by default, 'name' enables a controller, '-name' disables
        /// it. The first entry that names a controller decides.
        controllers: Controllers = "*", "NAMES", "generic.controllers";

        /// Namespaces whose objects are cached and reconciled; without names all. With names, controllers that read
        /// namespaces or nodes run only if --controllers names them. kube-controller-manager has no such setting.
        watch_namespaces: Namespaces = "", "NAMESPACES", "generic.watchNamespaces";

        /// Concurrent reconciles of Deployments, from 1 to 10000.
        concurrent_deployment_syncs: Workers = "5", "WORKERS", "deploymentController.concurrentDeploymentSyncs";

        /// Concurrent reconciles of DaemonSets, from 1 to 10000.
        concurrent_daemonset_syncs: Workers = "2", "WORKERS", "daemonSetController.concurrentDaemonSetSyncs";

        /// Concurrent reconciles of ReplicaSets, from 1 to 10000.
        concurrent_replicaset_syncs: Workers = "5", "WORKERS", "replicaSetController.concurrentRSSyncs";

        /// Concurrent reconciles of ReplicationControllers, from 1 to 10000.
        concurrent_rc_syncs: Workers = "5", "WORKERS", "replicationController.concurrentRCSyncs";

        /// Concurrent reconciles of StatefulSets, from 1 to 10000.
        concurrent_statefulset_syncs: Workers = "5", "WORKERS", "statefulSetController.concurrentStatefulSetSyncs";

        /// Concurrent reconciles of the Endpoints of Services, from 1 to 10000.
        concurrent_endpoint_syncs: Workers = "5", "WORKERS", "endpointController.concurrentEndpointSyncs";

        /// Time in which changes of pods are collected before Endpoints are written; 0s writes immediately.
        endpoint_updates_batch_period: DurationSetting = "0s", "DURATION", "endpointController.endpointUpdatesBatchPeriod";

        /// Terminated Pods that are kept, as a whole number. Beyond it the oldest are deleted; with 0 or less none is
        /// deleted for this reason.
        terminated_pod_gc_threshold: i32 = "12500", "PODS", "podGCController.terminatedPodGCThreshold";

        /// CA of the API server in PEM, for the ConfigMap kube-root-ca.crt of each namespace. Without it the process
        /// publishes the CA of its connection; kube-controller-manager does so only if the kubeconfig contains it.
        root_ca_file: Option<PathBuf> = "", "FILE", "saController.rootCAFile";

        /// Shortest period between two resyncs of a cache, 1s or more; 0s disables resyncs. Each process picks a random
        /// period between this one and twice this one, so that replicas do not resync at the same time.
        min_resync_period: DurationSetting = "12h", "DURATION", "generic.minResyncPeriod";

        /// Delay between the starts of two controllers, which spreads the initial load; 0s starts all immediately.
        controller_start_interval: DurationSetting = "0s", "DURATION", "generic.controllerStartInterval";

        /// Time that running reconciles have to complete after the first signal; 0s waits indefinitely.
        controller_shutdown_timeout: DurationSetting = "10s", "DURATION", "generic.controllerShutdownTimeout";

        /// Threads that run caches and reconciles, from 1 to 1024. More threads need more CPU time for the same work;
        /// use more if one core is busy. Elections have their own thread. kube-controller-manager uses all cores, or
        /// GOMAXPROCS.
        worker_threads: BoundedInt<1, 1024> = "1", "THREADS", "generic.workerThreads";

        /// Feature gates to switch on and off, as `Name=true,Other=false`. The flag overrides the file gate by gate.
        feature_gates: Gates = "", "GATES", "featureGates";
    }
    "Leader election" election: ElectionSettings {
        /// Act only while holding a Lease: one replica acts, and the others are on standby.
        leader_elect: bool = "true", "BOOL", "generic.leaderElection.leaderElect";

        /// Time after the last observed renewal until a standby acquires the Lease.
        leader_elect_lease_duration: DurationSetting = "15s", "DURATION", "generic.leaderElection.leaseDuration";

        /// Time without a successful renewal until the leader stops all work.
        leader_elect_renew_deadline: DurationSetting = "10s", "DURATION", "generic.leaderElection.renewDeadline";

        /// Time between two attempts to acquire or renew the Lease.
        leader_elect_retry_period: DurationSetting = "2s", "DURATION", "generic.leaderElection.retryPeriod";

        /// Kind of object that holds the lock; `leases` is the only one.
        leader_elect_resource_lock: LockKind = "leases", "KIND", "generic.leaderElection.resourceLock";

        /// Name of the Lease. The default differs from kube-controller-manager's, so that both can run in one cluster.
        leader_elect_resource_name: ObjectName = "windlass", "NAME", "generic.leaderElection.resourceName";

        /// Namespace of the Lease.
        leader_elect_resource_namespace: ObjectName = "kube-system", "NAME", "generic.leaderElection.resourceNamespace";

        /// The API server selects the leader among LeaseCandidates. The feature gate CoordinatedLeaderElection requests
        /// the same, as upstream; the API server needs this gate, and coordination.k8s.io/v1beta1.
        leader_elect_coordinated: bool = "false", "BOOL", "generic.leaderElection.coordinated";

        /// Number of shards that the active replicas divide among themselves, up to 256; 0 disables sharding. Use more
        /// shards than replicas. Each shard has a Lease, `<resource name>-shard-<number>`; docs/running.md lists the
        /// permissions.
        shards: BoundedInt<0, 256> = "0", "SHARDS", "generic.leaderElection.shards";
    }
    "Serving" serving: ServingSettings {
        /// Address of the server for health, metrics and debugging; 0.0.0.0 and :: are all addresses of the machine.
        bind_address: IpAddr = "0.0.0.0", "ADDRESS", "serving.bindAddress";

        /// HTTPS port of this server; 0 disables the server. The server authenticates and authorizes clients by
        /// TokenReview and SubjectAccessReview.
        secure_port: BoundedInt<0, 65535> = "10257", "PORT", "serving.securePort";

        /// Directory of the server's certificate and key, kube-controller-manager.crt and .key. If both are missing,
        /// the server generates and writes a self-signed pair; without a directory it does so in memory at each start.
        /// Ignored with --tls-cert-file.
        cert_dir: Option<PathBuf> = "", "DIRECTORY", "serving.certDir";

        /// Certificate of the server in PEM, followed by its chain. The server reloads certificate and key on changes.
        tls_cert_file: Option<PathBuf> = "", "FILE", "serving.tlsCertFile";

        /// Private key of the certificate in PEM.
        tls_private_key_file: Option<PathBuf> = "", "FILE", "serving.tlsPrivateKeyFile";

        /// Serve plain HTTP to any client; for loopback addresses only.
        plain_http: bool = "false", "BOOL", "serving.plainHTTP";

        /// Serve HTTP/1.1 only, which is all that windlass serves: `false` is an error. kube-controller-manager's
        /// default is `false`.
        disable_http2_serving: bool = "true", "BOOL", "serving.disableHTTP2";

        /// Paths that are served without authentication and authorization; a `*` at the end matches every suffix. `/*`
        /// is rejected unless the address is on loopback.
        authorization_always_allow_paths: UrlPaths = "/healthz,/readyz,/livez", "PATHS", "authorization.alwaysAllowPaths";

        /// TTL of cached token reviews that accept the token; 0s disables caching. The default is longer than
        /// kube-controller-manager's 10s, because monitoring that scrapes every 15s would cause a review each time.
        authentication_token_webhook_cache_ttl: DurationSetting = "1m", "DURATION", "authentication.webhook.cacheTTL";

        /// TTL of cached access reviews that allow; 0s disables caching. The default is longer than
        /// kube-controller-manager's 10s for the same reason.
        authorization_webhook_cache_authorized_ttl: DurationSetting =
            "5m", "DURATION", "authorization.webhook.cacheAuthorizedTTL";

        /// TTL of cached reviews that reject: unknown tokens and denied paths; 0s disables caching. The default is
        /// longer than kube-controller-manager's 10s, because a denied client retries immediately.
        authorization_webhook_cache_unauthorized_ttl: DurationSetting =
            "30s", "DURATION", "authorization.webhook.cacheUnauthorizedTTL";
    }
    "Logging" logging: LoggingSettings {
        /// Verbosity: 0 for operators, 4 adds the reasons of events, 6 adds the libraries, 8 logs everything.
        v: BoundedInt<0, 10> = "0", "LEVEL", "logging.verbosity";

        /// `text` for people, `json` for machines. Both go to stderr.
        logging_format: Format = "text", "FORMAT", "logging.format";
    }
}

/// The group, version and kind of the file.
const HEADER: [(&str, &str); 2] =
    [("apiVersion", "config.windlass.dev/v1alpha1"), ("kind", "ControllerManagerConfiguration")];

impl SettingSources {
    /// Adds the fields of a file.
    ///
    /// # Errors
    /// The first part of the file that cannot be used.
    pub(crate) fn add_file(&mut self, name: &str, bytes: &[u8]) -> Result<(), InvalidInput> {
        self.file = file::read(&TABLE, HEADER, name, bytes)?;
        Ok(())
    }
}

impl Settings {
    /// Returns the file that sets all of these values, with help.
    pub(crate) fn to_file(&self) -> String {
        serialize::file(self.rows(), HEADER)
    }

    /// Returns the file as JSON.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serialize::json(self.rows(), HEADER)
    }

    /// Returns the value of every flag.
    pub(crate) fn to_flags(&self) -> BTreeMap<String, String> {
        serialize::flags(self.rows())
    }
}

#[cfg(test)]
mod tests;
