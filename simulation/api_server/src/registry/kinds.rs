//! Strategies of kinds: a table of properties and functions.

mod addresses;
mod batch;
mod classes;
mod cluster;
mod config;
mod definitions;
mod ingresses;
mod intervals;
mod limits;
mod pod_spec;
mod pods;
mod policy;
mod rbac;
mod schedule;
mod service_accounts;
mod services;
mod slices;
pub(crate) mod subresource_update;
mod volumes;
mod warnings;
mod webhooks;
mod workloads;

use serde_json::Value;
use windlass_schema::ResourceInfo;

use super::invalid::{FieldErrors, join};
use super::names::{self, NameRule};
use super::served::ServedResources;
use super::value;
use super::writer::WriteTransaction;
use crate::status::Status;

/// The default deletion propagation to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// Dependents are deleted after their owner.
    Delete,
    /// Dependents lose their owner reference.
    Orphan,
    /// The garbage collector does not support the kind.
    Unsupported,
}

/// The validation of metadata by a kind, in addition to the validation of all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetadataRules {
    /// The kind validates metadata.
    Own,
    /// The kind validates metadata, except that it accepts finalizers without a domain.
    AnyFinalizer,
    /// The kind has no rules for metadata.
    Common,
}

/// The position of the metadata in the validation of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetadataOrder {
    /// Before the kind's own rules.
    First,
    /// Not at all.
    Never,
    /// The function of the kind validates it.
    ByKind,
}

/// The path of a field.
pub(crate) type Path = &'static [&'static str];

/// A function that changes a new object before validation.
type Prepare = fn(&mut WriteTransaction<'_>, &mut Value) -> Result<(), Status>;
/// A function that validates a new state against the old one.
type Compare = fn(&Value, &Value, &mut FieldErrors);
/// A function that runs after a write.
type Follow = fn(&mut WriteTransaction<'_>, &Value, bool) -> Result<(), Status>;

/// The strategy of one kind.
pub(crate) struct Kind {
    /// Rule for names.
    pub(crate) name: NameRule,
    /// Validation of metadata.
    pub(crate) metadata: MetadataRules,
    /// Position of the metadata in the validation of an update.
    pub(crate) metadata_of_update: MetadataOrder,
    /// Position of the metadata in the validation of a status update.
    pub(crate) metadata_of_status: MetadataOrder,
    /// Fields whose change increments the generation. Empty for kinds without generations.
    pub(crate) generation: &'static [Path],
    /// Whether an update can omit the resource version.
    pub(crate) unconditional_update: bool,
    /// Whether an update creates a missing object.
    pub(crate) create_on_update: bool,
    /// Default deletion propagation.
    pub(crate) dependents: Dependents,
    /// Whether the response to a deletion contains the object.
    pub(crate) returns_deleted: bool,
    /// Grace period of a deletion, for kinds that have one.
    pub(crate) grace: Option<fn(&Value, Option<i64>) -> i64>,
    /// Whether a new object can have a status.
    pub(crate) born_with_status: bool,
    /// Fields that writes of the status do not change, in addition to the spec.
    pub(crate) kept_by_status: &'static [Path],
    /// Sets defaults that depend on other fields.
    pub(crate) defaults: fn(&mut Value),
    /// Changes by admission, before a name is generated.
    pub(crate) admit: Prepare,
    /// Changes of a new object that has name and UID.
    pub(crate) prepare_create: Prepare,
    /// Changes of an updated object.
    pub(crate) prepare_update: fn(&mut WriteTransaction<'_>, &mut Value, &Value) -> Result<(), Status>,
    /// Changes of a status update. The text is the time.
    pub(crate) prepare_status: fn(&mut Value, &Value, &str),
    /// Warnings for a new object, or for an update with its old state.
    pub(crate) warnings: fn(&Value, Option<&Value>) -> Vec<String>,
    /// Validation of a new object.
    pub(crate) validate: fn(&Value, &mut FieldErrors),
    /// Validation of an update.
    pub(crate) validate_update: Compare,
    /// Validation of a status update.
    pub(crate) validate_status: Compare,
    /// Action after a creation.
    pub(crate) after_create: Follow,
    /// Action after an update.
    pub(crate) after_update: Follow,
    /// Action after a deletion.
    pub(crate) after_delete: fn(&mut WriteTransaction<'_>, &Value) -> Result<(), Status>,
}

/// Default strategy.
const PLAIN: Kind = Kind {
    name: names::path_name,
    metadata: MetadataRules::Own,
    metadata_of_update: MetadataOrder::First,
    metadata_of_status: MetadataOrder::First,
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
    warnings: |_, _| Vec::new(),
    validate: |_, _| {},
    validate_update: |_, _, _| {},
    validate_status: |_, _, _| {},
    after_create: |_, _, _| Ok(()),
    after_update: |_, _, _| Ok(()),
    after_delete: |_, _| Ok(()),
};

/// Default strategy for kinds whose names are DNS subdomains.
const NAMED: Kind = Kind { name: names::subdomain_name, ..PLAIN };

/// Strategy of custom kinds.
static CUSTOM: Kind = Kind { unconditional_update: false, ..NAMED };

static OTHER: Kind = PLAIN;
static OTHER_NAMED: Kind = NAMED;
static VERSIONED: Kind = Kind { unconditional_update: false, ..NAMED };
static SPECIFIED: Kind = Kind { generation: &[&["spec"]], ..NAMED };
static POLICIES: Kind = Kind { generation: &[&["spec"]], unconditional_update: false, ..NAMED };

/// Returns the strategy of a resource.
pub(crate) fn kind_of(served: &ServedResources, resource: &ResourceInfo) -> &'static Kind {
    match served.definition(resource) {
        Some(_) => &CUSTOM,
        None => of(&resource.group, &resource.plural),
    }
}

/// Returns the strategy of a built-in resource.
fn of(group: &str, plural: &str) -> &'static Kind {
    match (group, plural) {
        ("", "pods") => &pods::PODS,
        ("", "replicationcontrollers") => &workloads::REPLICATION_CONTROLLERS,
        ("", "podtemplates") => &workloads::POD_TEMPLATES,
        ("", "services") => &services::SERVICES,
        ("", "endpoints") => &slices::ENDPOINTS,
        ("", "namespaces") => &cluster::NAMESPACES,
        ("", "nodes") => &cluster::NODES,
        ("", "resourcequotas") => &limits::RESOURCE_QUOTAS,
        ("", "limitranges") => &limits::LIMIT_RANGES,
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
        ("scheduling.k8s.io", "priorityclasses") => &classes::PRIORITY_CLASSES,
        ("apiextensions.k8s.io", "customresourcedefinitions") => &definitions::DEFINITIONS,
        ("storage.k8s.io", "storageclasses") => &classes::STORAGE_CLASSES,
        ("storage.k8s.io", "volumeattributesclasses") => &classes::VOLUME_ATTRIBUTES_CLASSES,
        ("storage.k8s.io", "csidrivers" | "csinodes" | "volumeattachments") => &volumes::CONDITIONAL,
        ("storage.k8s.io", "csistoragecapacities") | ("node.k8s.io", "runtimeclasses") => &VERSIONED,
        ("networking.k8s.io", "networkpolicies") => &policy::NETWORK_POLICIES,
        ("networking.k8s.io", "ingresses") => &ingresses::INGRESSES,
        ("networking.k8s.io", "ingressclasses") => &SPECIFIED,
        ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io", _) => &SPECIFIED,
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations") => &webhooks::MUTATING,
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations") => &webhooks::VALIDATING,
        ("admissionregistration.k8s.io", _) => &POLICIES,
        ("rbac.authorization.k8s.io", "roles") => &rbac::ROLES,
        ("rbac.authorization.k8s.io", "clusterroles") => &rbac::CLUSTER_ROLES,
        ("rbac.authorization.k8s.io", "rolebindings") => &rbac::ROLE_BINDINGS,
        ("rbac.authorization.k8s.io", "clusterrolebindings") => &rbac::CLUSTER_ROLE_BINDINGS,
        ("networking.k8s.io" | "certificates.k8s.io" | "apiregistration.k8s.io", _) => &OTHER_NAMED,
        _ => &OTHER,
    }
}

impl Kind {
    /// Returns whether objects have a generation.
    pub(crate) fn has_generation(&self) -> bool {
        !self.generation.is_empty()
    }

    /// Removes fields that a new object must not have.
    pub(crate) fn reset_for_create(&self, object: &mut Value, has_status: bool) {
        if has_status && !self.born_with_status {
            value::remove(object, &["status"]);
        }
    }
}

/// Adds errors for negative numbers.
pub(crate) fn not_negative(object: &Value, path: &str, fields: &[&str], errors: &mut FieldErrors) {
    for field in fields {
        errors.not_negative(join(path, field), value::integer(object, &[field]));
    }
}

/// Adds an error unless the field has one of the known values.
pub(crate) fn one_of(object: &Value, path: &str, field: &str, known: &[&str], errors: &mut FieldErrors) {
    let found = value::text(object, &[field]);
    if !known.contains(&found) {
        errors.not_supported(join(path, field), found, known);
    }
}
