//! The settings of the process: one table, from which come flags, the file, `--help`, the documentation and what is
//! shown of a running process.
//!
//! Guarantees: a row of the table is all there is to write for a setting to have a flag, a field of the same default, and
//! help with default and unit; whoever gives a value first decides, in the order command line, file, table, and of feature
//! gates so for each name; every value knows who gave it; a file's value is checked even where a flag overrides it. Names and defaults of flags are
//! kube-controller-manager's, and fields are shaped like its configuration's, wherever it has them; a row that differs
//! says why in its help.
//!
//! It refuses to know what settings mean for each other: that is `config`'s.

mod file;
mod kinds;
mod raw;
mod table;
mod written;

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass::client::ClientOptions;

pub(crate) use file::{InvalidFile, LONGEST, read as read_file};
pub(crate) use kinds::{
    Address, FilePath, Format, Kind, Lock, Names, ObjectName, Period, Rate, Server, Shape, Switches,
    UrlPaths, Whole, Workers, malformed_switch,
};
pub(crate) use raw::{InvalidSetting, Origin, Place, Raw, Word, Wrong, quoted, shown};
pub(crate) use table::Setting;

/// The group and version of the file.
pub(crate) const API_VERSION: &str = "config.windlass.dev/v1alpha1";

/// The kind of the file.
pub(crate) const KIND: &str = "ControllerManagerConfiguration";

table::settings! {
    "Cluster" cluster: ClusterSettings {
        /// Path to a kubeconfig file. Without it the service account of the pod is used.
        kubeconfig: FilePath = "" in "FILE" at "generic.clientConnection.kubeconfig";

        /// Address of the API server; overrides the one in the kubeconfig.
        master: Server = "" in "URL" at "generic.clientConnection.master";

        /// Requests per second each controller may send to the API server, on average: 0.001 to 1000000. Negative lifts
        /// the limit.
        kube_api_qps: Rate = "20" in "RATE" at "generic.clientConnection.qps";

        /// Requests each controller may send at once, before the average counts.
        kube_api_burst: Whole<1, { ClientOptions::MOST_BURST }> = "30" in "REQUESTS" at "generic.clientConnection.burst";

        /// Each controller acts as a ServiceAccount of its own in kube-system, which is made if it is missing.
        use_service_account_credentials: bool = "false" in "BOOL" at "kubeCloudShared.useServiceAccountCredentials";
    }
    "Controllers" controllers: ControllerSettings {
        /// Controllers to run: '*' stands for all that are enabled by default, 'name' enables one, '-name' disables one;
        /// the first that names a controller decides.
        controllers: Names = "*" in "NAMES" at "generic.controllers";

        /// ReplicaSets reconciled at the same time.
        concurrent_replicaset_syncs: Workers = "5" in "WORKERS" at "replicaSetController.concurrentRSSyncs";

        /// ReplicationControllers reconciled at the same time.
        concurrent_rc_syncs: Workers = "5" in "WORKERS" at "replicationController.concurrentRCSyncs";

        /// Services whose Endpoints are reconciled at the same time.
        concurrent_endpoint_syncs: Workers = "5" in "WORKERS" at "endpointController.concurrentEndpointSyncs";

        /// How long changes of pods are gathered before Endpoints are written; 0s writes at once.
        endpoint_updates_batch_period: Period = "0s" in "DURATION"
            at "endpointController.endpointUpdatesBatchPeriod";

        /// Shortest time between two full passes over a cache; 0s makes none. Each process draws its own period,
        /// between this one and twice this one, so that replicas do not pass together. At least 1s, unless it is 0s.
        min_resync_period: Period = "12h" in "DURATION" at "generic.minResyncPeriod";

        /// Time between the starts of two controllers, to spread the first load; 0s starts all at once.
        controller_start_interval: Period = "0s" in "DURATION" at "generic.controllerStartInterval";

        /// How long work in flight may take to end after the first signal; 0s waits for as long as it takes.
        controller_shutdown_timeout: Period = "10s" in "DURATION" at "generic.controllerShutdownTimeout";

        /// Switches features on and off, as `Name=true,Other=false`. A flag decides on those that it names, and the file on
        /// all others.
        feature_gates: Switches = "" in "GATES" at "featureGates";
    }
    "Leader election" election: ElectionSettings {
        /// Act only while holding a lease, so that of several replicas one works and the others stand by.
        leader_elect: bool = "true" in "BOOL" at "generic.leaderElection.leaderElect";

        /// How long a standby waits after the last renewal it saw before it takes over.
        leader_elect_lease_duration: Period = "15s" in "DURATION" at "generic.leaderElection.leaseDuration";

        /// How long the leader goes on without a successful renewal before it stops all work.
        leader_elect_renew_deadline: Period = "10s" in "DURATION" at "generic.leaderElection.renewDeadline";

        /// Time between two attempts to acquire or renew the lease.
        leader_elect_retry_period: Period = "2s" in "DURATION" at "generic.leaderElection.retryPeriod";

        /// Kind of object that holds the lock; `leases` is the only one.
        leader_elect_resource_lock: Lock = "leases" in "KIND" at "generic.leaderElection.resourceLock";

        /// Name of the Lease. Not kube-controller-manager's own, so that both can run in one cluster.
        leader_elect_resource_name: ObjectName = "windlass" in "NAME" at "generic.leaderElection.resourceName";

        /// Namespace of the Lease.
        leader_elect_resource_namespace: ObjectName = "kube-system" in "NAME"
            at "generic.leaderElection.resourceNamespace";

        /// Let the API server choose the leader among LeaseCandidates. The feature gate CoordinatedLeaderElection asks for
        /// the same, as upstream; the API server needs that gate, and coordination.k8s.io/v1beta1.
        leader_elect_coordinated: bool = "false" in "BOOL" at "generic.leaderElection.coordinated";

        /// Into how many shards replicas divide the namespaces, so that each acts on a fair share of them; 0 for one
        /// replica that acts on all. Each shard has a Lease, `<resource name>-shard-<number>`.
        shards: Whole<0, 256> = "0" in "SHARDS" at "generic.leaderElection.shards";
    }
    "Serving" serving: ServingSettings {
        /// Address on which health, metrics and debugging pages are served; 0.0.0.0 and :: stand for all of this machine.
        bind_address: Address = "0.0.0.0" in "ADDRESS" at "serving.bindAddress";

        /// Port of that server, which speaks HTTPS and asks the API server who may read what; 0 turns it off.
        secure_port: Whole<0, 65535> = "10257" in "PORT" at "serving.securePort";

        /// Directory where the certificate of that server is kept, with its key, as kube-controller-manager.crt and .key:
        /// what is there is used, and where neither is, a self-signed pair is made and written. Without it one is made at
        /// each start and kept in memory. Not looked at where --tls-cert-file is given.
        cert_dir: FilePath = "" in "DIRECTORY" at "serving.certDir";

        /// Certificate of that server in PEM, the chain below it; both files are read again when they change.
        tls_cert_file: FilePath = "" in "FILE" at "serving.tlsCertFile";

        /// Private key of that certificate, in PEM.
        tls_private_key_file: FilePath = "" in "FILE" at "serving.tlsPrivateKeyFile";

        /// Speak plain HTTP to whoever asks; for loopback addresses only.
        plain_http: bool = "false" in "BOOL" at "serving.plainHTTP";

        /// Serve HTTP/1.1 only. The default differs from kube-controller-manager's `false`, because one HTTP/2 connection
        /// can carry many requests at the same time.
        disable_http2_serving: bool = "true" in "BOOL" at "serving.disableHTTP2";

        /// Paths that are served without asking who reads them; a `*` at the end stands for all that follows.
        authorization_always_allow_paths: UrlPaths = "/healthz,/readyz,/livez" in "PATHS"
            at "authorization.alwaysAllowPaths";

        /// How long it is remembered whose a token is; 0s asks every time. Longer than kube-controller-manager's 10s, as
        /// monitoring that reads every 15s would be asked about every time.
        authentication_token_webhook_cache_ttl: Period = "1m" in "DURATION" at "authentication.webhook.cacheTTL";

        /// How long it is remembered that somebody may read a path; 0s asks every time. Longer than
        /// kube-controller-manager's 10s, for the same reason.
        authorization_webhook_cache_authorized_ttl: Period = "5m" in "DURATION"
            at "authorization.webhook.cacheAuthorizedTTL";

        /// How long it is remembered that somebody may not; 0s asks every time. Longer than kube-controller-manager's
        /// 10s: whoever is refused tries again at once.
        authorization_webhook_cache_unauthorized_ttl: Period = "30s" in "DURATION"
            at "authorization.webhook.cacheUnauthorizedTTL";
    }
    "Logging" logging: LoggingSettings {
        /// How much is logged: 0 what an operator needs, 4 why things happen, 6 the libraries too, 8 everything.
        v: Whole<0, 10> = "0" in "LEVEL" at "logging.verbosity";

        /// `text` for people, `json` for machines. Either goes to stderr.
        logging_format: Format = "text" in "FORMAT" at "logging.format";
    }
}

/// A value, and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Given<T> {
    pub(crate) value: T,
    setting: &'static Setting,
    /// As it was written, for messages.
    raw: Raw,
    origin: Origin,
    /// What the file says of it, where a flag is given too.
    overridden: Option<Box<Self>>,
}

impl<T: Kind> Given<T> {
    /// What to say if this value cannot be used.
    pub(crate) fn refuse(
        &self,
        problem: impl std::fmt::Display,
        remedy: impl std::fmt::Display,
    ) -> InvalidSetting {
        self.wrong(Wrong::new(problem, remedy))
    }

    /// The same, where a word of the value may be to blame.
    pub(crate) fn wrong(&self, wrong: Wrong) -> InvalidSetting {
        let source = wrong.culprit.as_ref().map_or(self, |word| self.source_of(word));
        InvalidSetting::new(source.setting, &source.raw, &source.origin, wrong)
    }

    /// Whether it stands on the command line.
    pub(crate) fn is_flag(&self) -> bool {
        self.origin == Origin::Flag
    }

    /// What the file says, which is to make sense even where a flag decides.
    pub(crate) fn overridden(&self) -> Option<&Self> {
        self.overridden.as_deref()
    }

    /// Who wrote this word of the value: the file may have written some of them, and a flag the others.
    fn source_of(&self, word: &Word) -> &Self {
        self.overridden().filter(|_| word.place != Place::default()).unwrap_or(self)
    }

    /// What whoever wrote this word of the value calls the setting.
    pub(crate) fn called_by(&self, word: &Word) -> String {
        self.source_of(word).called()
    }

    /// Whether somebody wrote it.
    pub(crate) fn is_given(&self) -> bool {
        self.origin != Origin::Default
    }

    /// Whether it is what it would be if nobody wrote it.
    pub(crate) fn is_default(&self) -> bool {
        let default = worded::<T>(self.setting, &[self.setting.default], Origin::Default);
        default.is_ok_and(|default| default.value == self.value)
    }

    /// What whoever wrote it calls it; the flag if nobody did.
    pub(crate) fn called(&self) -> String {
        match &self.origin {
            Origin::Default | Origin::Flag => format!("--{}", self.setting.name),
            Origin::File(_, Place { line, .. }) => format!("{} (line {line})", self.setting.field),
        }
    }

    fn written(&self) -> (&'static Setting, serde_json::Value) {
        (self.setting, self.value.written())
    }
}

/// Who gives which value, by the names of the flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// The command line, as words of each flag that was given.
    pub(crate) flags: BTreeMap<&'static str, Vec<String>>,
    /// The file, if there is one.
    pub(crate) file: Option<FileValues>,
}

/// What a file says of each setting that it names.
#[derive(Clone, Debug)]
pub(crate) struct FileValues {
    /// What the file is called in messages.
    pub(crate) file: Arc<str>,
    /// By the names of the flags, each with the place where it begins.
    pub(crate) values: BTreeMap<&'static str, (Raw, Place)>,
}

impl Sources {
    /// The first that gives this setting.
    fn given<T: Kind>(&self, setting: &'static Setting) -> Result<Given<T>, InvalidSetting> {
        let file = self.file.as_ref().and_then(|file| {
            let (raw, place) = file.values.get(setting.name)?;
            Some((raw.clone(), Origin::File(Arc::clone(&file.file), *place)))
        });
        let file = file.map(|(raw, origin)| meant::<T>(setting, &raw, raw.clone(), origin)).transpose()?;
        let Some(words) = self.flags.get(setting.name) else {
            return file.map_or_else(|| worded(setting, &[setting.default], Origin::Default), Ok);
        };
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let flag = worded::<T>(setting, &words, Origin::Flag)?;
        let Some(file) = file else { return Ok(flag) };
        Ok(Given { value: flag.value.over(&file.value), overridden: Some(Box::new(file)), ..flag })
    }
}

/// A value as words of a command line give it.
fn worded<T: Kind>(
    setting: &'static Setting,
    words: &[&str],
    origin: Origin,
) -> Result<Given<T>, InvalidSetting> {
    // With the spaces and empty entries that reading leaves out: whoever wrote them is to find them again.
    let written = match setting.shape {
        Shape::Switch | Shape::Number | Shape::Text => last(words),
        Shape::List | Shape::Switches => Raw::Many(words.iter().copied().map(Word::new).collect()),
    };
    match split(setting.shape, words) {
        Ok(raw) => meant(setting, &raw, written, origin),
        Err(wrong) => Err(InvalidSetting::new(setting, &written, &origin, wrong)),
    }
}

/// What a value means that was written like this.
fn meant<T: Kind>(
    setting: &'static Setting,
    value: &Raw,
    written: Raw,
    origin: Origin,
) -> Result<Given<T>, InvalidSetting> {
    match T::read(value) {
        Ok(value) => Ok(Given { value, setting, raw: written, origin, overridden: None }),
        Err(wrong) => Err(InvalidSetting::new(setting, &written, &origin, wrong)),
    }
}

/// The only word that counts where a flag has one value.
fn last(words: &[&str]) -> Raw {
    Raw::One(Word::new(words.last().copied().unwrap_or_default()))
}

/// Words of a command line in the shape of a setting: of single values the last counts, lists are joined.
fn split(shape: Shape, words: &[&str]) -> Result<Raw, Wrong> {
    let parts = |text: &str| text.split(',').filter(|it| !it.is_empty()).map(Word::new).collect::<Vec<_>>();
    Ok(match shape {
        Shape::Switch | Shape::Number | Shape::Text => last(words),
        Shape::List => Raw::Many(words.iter().flat_map(|word| parts(word)).collect()),
        Shape::Switches => {
            let trimmed = words.iter().flat_map(|word| word.split(',')).map(str::trim);
            let named = trimmed.filter(|word| !word.is_empty()).map(|word| {
                let (name, value) = word.split_once('=').ok_or_else(|| malformed_switch(&Word::new(word)))?;
                Ok((Word::new(name.trim()), Word::new(value.trim())))
            });
            Raw::Named(named.collect::<Result<_, Wrong>>()?)
        }
    })
}

#[cfg(test)]
mod tests;
