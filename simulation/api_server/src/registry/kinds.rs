//! What sets one kind apart from the others: a table of facts and functions.

mod batch;
mod cluster;
mod config;
mod definitions;
mod intervals;
mod pod_spec;
mod pods;
mod policy;
mod schedule;
mod services;
mod slices;
pub(crate) mod subresource_update;
mod volumes;
mod workloads;

use serde_json::Value;
use windlass_schema::ResourceInfo;

use super::invalid::FieldErrors;
use super::names::{self, NameRule};
use super::served::ServedResources;
use super::value;
use super::writer::WriteTransaction;
use crate::status::Status;

/// What becomes of dependents if the deletion does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// They are deleted after their owner.
    Delete,
    /// They lose their owner.
    Orphan,
    /// The garbage collector does not know the kind.
    Unsupported,
}

/// Where a field stands.
pub(crate) type Path = &'static [&'static str];

/// What a kind does before a new object is validated.
type Prepare = fn(&mut WriteTransaction<'_>, &mut Value) -> Result<(), Status>;
/// What a kind says of an object next to what it was.
type Compare = fn(&Value, &Value, &mut FieldErrors);
/// What follows from a write.
type Follow = fn(&mut WriteTransaction<'_>, &Value, bool) -> Result<(), Status>;

/// The facts and functions of one kind.
pub(crate) struct Kind {
    /// Which names are well formed.
    pub(crate) name: NameRule,
    /// The parts whose change makes a new generation. None means that the kind has no generations.
    pub(crate) generation: &'static [Path],
    /// Whether an update may leave the version out.
    pub(crate) unconditional_update: bool,
    /// Whether an update of what is not there creates it.
    pub(crate) create_on_update: bool,
    /// What becomes of dependents.
    pub(crate) dependents: Dependents,
    /// Whether a deletion is answered with the object.
    pub(crate) returns_deleted: bool,
    /// The grace period of a deletion, for kinds that have one.
    pub(crate) grace: Option<fn(&Value, Option<i64>) -> i64>,
    /// Whether a new object may come with a status.
    pub(crate) born_with_status: bool,
    /// What writes of the status leave as it is, next to the spec.
    pub(crate) kept_by_status: &'static [Path],
    /// Puts in what depends on other fields.
    pub(crate) defaults: fn(&mut Value),
    /// What admission changes, before the name is known.
    pub(crate) admit: Prepare,
    /// What a new object gets, once name and UID are known.
    pub(crate) prepare_create: Prepare,
    /// What an update gets, or loses.
    pub(crate) prepare_update: fn(&mut WriteTransaction<'_>, &mut Value, &Value) -> Result<(), Status>,
    /// What a write of the status gets, or loses. The text is the time.
    pub(crate) prepare_status: fn(&mut Value, &Value, &str),
    /// What a creation is warned of.
    pub(crate) warnings: fn(&Value) -> Vec<String>,
    /// What is wrong with a new object.
    pub(crate) validate: fn(&Value, &mut FieldErrors),
    /// What is wrong with an update.
    pub(crate) validate_update: Compare,
    /// What is wrong with a write of the status.
    pub(crate) validate_status: Compare,
    /// What follows from a creation.
    pub(crate) after_create: Follow,
    /// What follows from an update.
    pub(crate) after_update: Follow,
    /// What follows from a deletion.
    pub(crate) after_delete: fn(&mut WriteTransaction<'_>, &Value) -> Result<(), Status>,
}

/// A kind without anything of its own.
const PLAIN: Kind = Kind {
    name: names::path_name,
    generation: &[],
    unconditional_update: true,
    create_on_update: false,
    dependents: Dependents::Delete,
    returns_deleted: false,
    grace: None,
    born_with_status: false,
    kept_by_status: &[],
    defaults: |_| {},
    admit: |_, _| Ok(()),
    prepare_create: |_, _| Ok(()),
    prepare_update: |_, _, _| Ok(()),
    prepare_status: |_, _, _| {},
    warnings: |_| Vec::new(),
    validate: |_, _| {},
    validate_update: |_, _, _| {},
    validate_status: |_, _, _| {},
    after_create: |_, _, _| Ok(()),
    after_update: |_, _, _| Ok(()),
    after_delete: |_, _| Ok(()),
};

/// A kind with a name as DNS has them.
const NAMED: Kind = Kind { name: names::subdomain_name, ..PLAIN };

/// Custom kinds.
static CUSTOM: Kind = Kind { unconditional_update: false, ..NAMED };

static OTHER: Kind = PLAIN;
static OTHER_NAMED: Kind = NAMED;
static CREATED_BY_UPDATE: Kind = Kind { create_on_update: true, ..PLAIN };
static VERSIONED: Kind = Kind { unconditional_update: false, ..NAMED };
static SPECIFIED: Kind = Kind { generation: &[&["spec"]], ..NAMED };
static WEBHOOKS: Kind = Kind { generation: &[&["webhooks"]], unconditional_update: false, ..NAMED };
static POLICIES: Kind = Kind { generation: &[&["spec"]], unconditional_update: false, ..NAMED };

/// What the kind of a resource does.
pub(crate) fn kind_of(served: &ServedResources, resource: &ResourceInfo) -> &'static Kind {
    match served.definition(resource) {
        Some(_) => &CUSTOM,
        None => of(&resource.group, &resource.plural),
    }
}

/// The kind of a built-in resource.
fn of(group: &str, plural: &str) -> &'static Kind {
    match (group, plural) {
        ("", "pods") => &pods::PODS,
        ("", "replicationcontrollers") => &workloads::REPLICATION_CONTROLLERS,
        ("", "podtemplates") => &workloads::POD_TEMPLATES,
        ("", "services") => &services::SERVICES,
        ("", "endpoints") => &slices::ENDPOINTS,
        ("", "namespaces") => &cluster::NAMESPACES,
        ("", "nodes") => &cluster::NODES,
        ("", "resourcequotas") => &cluster::RESOURCE_QUOTAS,
        ("", "limitranges") => &CREATED_BY_UPDATE,
        ("", "configmaps") => &config::CONFIG_MAPS,
        ("", "secrets") => &config::SECRETS,
        ("", "serviceaccounts") => &config::SERVICE_ACCOUNTS,
        ("", "persistentvolumes") => &volumes::PERSISTENT_VOLUMES,
        ("", "persistentvolumeclaims") => &volumes::PERSISTENT_VOLUME_CLAIMS,
        ("" | "events.k8s.io", "events") => &policy::EVENTS,
        ("apps", "replicasets") => &workloads::REPLICA_SETS,
        ("apps", "deployments") => &workloads::DEPLOYMENTS,
        ("apps", "daemonsets") => &workloads::DAEMON_SETS,
        ("apps", "statefulsets") => &workloads::STATEFUL_SETS,
        ("apps", "controllerrevisions") => &workloads::CONTROLLER_REVISIONS,
        ("batch", "jobs") => &batch::JOBS,
        ("batch", "cronjobs") => &batch::CRON_JOBS,
        ("policy", "poddisruptionbudgets") => &policy::DISRUPTION_BUDGETS,
        ("autoscaling", "horizontalpodautoscalers") => &policy::AUTOSCALERS,
        ("coordination.k8s.io", "leases") => &policy::LEASES,
        ("discovery.k8s.io", "endpointslices") => &slices::ENDPOINT_SLICES,
        ("scheduling.k8s.io", "priorityclasses") => &cluster::PRIORITY_CLASSES,
        ("apiextensions.k8s.io", "customresourcedefinitions") => &definitions::DEFINITIONS,
        ("storage.k8s.io", "storageclasses" | "volumeattributesclasses") => &volumes::CLASSES,
        ("storage.k8s.io", "csidrivers" | "csinodes" | "volumeattachments") => &volumes::CONDITIONAL,
        ("storage.k8s.io", "csistoragecapacities") | ("node.k8s.io", "runtimeclasses") => &VERSIONED,
        ("networking.k8s.io", "networkpolicies") => &policy::NETWORK_POLICIES,
        ("networking.k8s.io", "ingresses" | "ingressclasses") => &SPECIFIED,
        ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io", _) => &SPECIFIED,
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => &WEBHOOKS,
        ("admissionregistration.k8s.io", _) => &POLICIES,
        ("rbac.authorization.k8s.io", _) => &CREATED_BY_UPDATE,
        ("networking.k8s.io" | "certificates.k8s.io" | "apiregistration.k8s.io", _) => &OTHER_NAMED,
        _ => &OTHER,
    }
}

impl Kind {
    /// Whether objects count their generations.
    pub(crate) fn has_generation(&self) -> bool {
        !self.generation.is_empty()
    }

    /// Drops what a new object may not come with.
    pub(crate) fn reset_for_create(&self, object: &mut Value, has_status: bool) {
        if has_status && !self.born_with_status {
            value::remove(object, &["status"]);
        }
    }
}

/// The path of a field as refusals have it.
pub(crate) fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// Numbers that may not be negative.
pub(crate) fn not_negative(object: &Value, path: &str, fields: &[&str], errors: &mut FieldErrors) {
    for field in fields {
        errors.not_negative(join(path, field), value::integer(object, &[field]));
    }
}

/// What has one of a few values.
pub(crate) fn one_of(object: &Value, path: &str, field: &str, known: &[&str], errors: &mut FieldErrors) {
    let found = value::text(object, &[field]);
    if !known.contains(&found) {
        errors.not_supported(join(path, field), found, known);
    }
}
