//! Runs each controller with the role that `windlass manifests rbac --per-controller` prints for it.
//!
//! With the whole role the controller does all of its work, and the API server denies no request. Without any one verb
//! the log names the missing rule. Each process has its own namespace and ServiceAccount, so that many run at the same
//! time. All objects exist before the process starts, so that no verb depends on the success of another one, except
//! where the controller itself requires an order.

mod cluster;
mod daemon_sets;
mod deployments;
mod endpoints;
mod permissions;
mod revisions;
mod stateful_sets;
mod upstream;
mod workloads;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Event, Pod, ReplicationController};
use serde_json::{Value, json};
use windlass_black_box::control_plane::with_control_plane;
use windlass_black_box::fixtures;
use windlass_black_box::test_namespace::{Kind, TestNamespace};
use windlass_black_box::wait::eventually_within;
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess};

use self::permissions::{Manifests, Permission};
use self::revisions::Samples;

/// Many processes share the machine, and the garbage collector of pods acts on an orphan after a minute.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Processes at the same time. More of them delay each other on two cores.
const CONCURRENCY: usize = 6;

/// Pods of the workload that grows. The recorder combines Events about it from the tenth on, and then patches them.
const MANY: i32 = 14;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum RoleOwner {
    Deployment,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
    DaemonSet,
    Endpoints,
    ServiceAccount,
    RootCa,
    Ttl,
    PodGarbageCollector,
}

/// The effect of a missing permission.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Effect {
    /// The API server denies the request of this verb, and the log names the rule.
    Denied,
    /// An admission plugin denies owner references; the log contains this message.
    DeniedOwner(&'static str),
    /// No request requires this permission here, so all work is done.
    Unused,
}

impl RoleOwner {
    /// Controllers that can be limited to namespaces.
    const OF_NAMESPACES: [Self; 6] = [
        Self::Deployment,
        Self::ReplicaSet,
        Self::ReplicationController,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Endpoints,
    ];

    /// Controllers of the whole cluster.
    const OF_CLUSTER: [Self; 4] = [Self::ServiceAccount, Self::RootCa, Self::Ttl, Self::PodGarbageCollector];

    fn name(self) -> &'static str {
        match self {
            Self::Deployment => "deployment-controller",
            Self::ReplicaSet => "replicaset-controller",
            Self::ReplicationController => "replicationcontroller-controller",
            Self::StatefulSet => "statefulset-controller",
            Self::DaemonSet => "daemonset-controller",
            Self::Endpoints => "endpoints-controller",
            Self::ServiceAccount => "serviceaccount-controller",
            Self::RootCa => "root-ca-certificate-publisher-controller",
            Self::Ttl => "ttl-controller",
            Self::PodGarbageCollector => "pod-garbage-collector-controller",
        }
    }

    /// Returns the arguments of its process.
    fn arguments(self, namespace: &str) -> Vec<String> {
        let controllers = format!("--controllers={}", self.name());
        let scope = match self {
            Self::PodGarbageCollector => Some("--terminated-pod-gc-threshold=1".to_owned()),
            _ => (!Self::OF_CLUSTER.contains(&self)).then(|| format!("--watch-namespaces={namespace}")),
        };
        [controllers, "--leader-elect=false".to_owned()].into_iter().chain(scope).collect()
    }

    async fn namespace(self, plane: &ControlPlane) -> Result<TestNamespace> {
        let namespace = match Self::OF_CLUSTER.contains(&self) {
            true => cluster::namespace(plane).await?,
            false => plane.namespace("role").await?,
        };
        Ok(TestNamespace { client: plane.client().await, namespace })
    }

    async fn prepare(self, case: &Case<'_>, namespace: &TestNamespace) -> Result<()> {
        let samples = || case.samples.context("recorded revisions");
        match self {
            Self::Deployment => deployments::prepare(namespace).await,
            Self::ReplicaSet => workloads::prepare::<ReplicaSet>(namespace).await,
            Self::ReplicationController => workloads::prepare::<ReplicationController>(namespace).await,
            Self::StatefulSet => stateful_sets::prepare(namespace, samples()?).await,
            Self::DaemonSet => daemon_sets::prepare(namespace, samples()?).await,
            Self::Endpoints => endpoints::prepare(namespace).await,
            Self::ServiceAccount => Ok(()),
            Self::RootCa => cluster::publish_wrong_ca(namespace).await,
            Self::Ttl => cluster::add_node(namespace).await,
            Self::PodGarbageCollector => cluster::add_garbage(namespace).await,
        }
    }

    async fn is_done(self, namespace: &TestNamespace) -> Result<bool> {
        match self {
            Self::Deployment => deployments::are_done(namespace).await,
            Self::ReplicaSet => workloads::are_done::<ReplicaSet>(namespace).await,
            Self::ReplicationController => workloads::are_done::<ReplicationController>(namespace).await,
            Self::StatefulSet => stateful_sets::are_done(namespace).await,
            Self::DaemonSet => daemon_sets::are_done(namespace).await,
            Self::Endpoints => endpoints::are_done(namespace).await,
            Self::ServiceAccount => cluster::has_service_account(namespace).await,
            Self::RootCa => cluster::has_right_ca(namespace).await,
            Self::Ttl => cluster::has_ttl(namespace).await,
            Self::PodGarbageCollector => cluster::is_garbage_collected(namespace).await,
        }
    }
}

/// Returns an object of this JSON, with a name.
fn object<K: Kind>(name: &str, mut fields: Value) -> Result<K> {
    fields["metadata"]["name"] = name.into();
    serde_json::from_value(fields).with_context(|| name.to_owned())
}

/// Returns a spec with a selector and a template of pods with the label `app`.
fn pod_owner_spec(app: &str) -> Value {
    let labels = json!({ "app": app });
    let template = json!({ "metadata": { "labels": labels }, "spec": fixtures::still_pod_spec() });
    json!({ "selector": { "matchLabels": labels }, "template": template })
}

/// Returns a pod with the label `app`.
fn pod(name: &str, app: &str) -> Result<Pod> {
    let metadata = json!({ "labels": { "app": app } });
    object(name, json!({ "metadata": metadata, "spec": fixtures::still_pod_spec() }))
}

/// Returns the child with a reference to its controller.
fn owned_by<O: Kind, C: Kind>(owner: &O, mut child: C) -> C {
    let (name, uid) = (owner.meta().name.as_deref(), owner.meta().uid.as_deref());
    let (name, uid) = (name.unwrap_or_default(), uid.unwrap_or_default());
    let (version, kind) = (O::api_version(&()), O::kind(&()));
    let owner = fixtures::owner(&version, &kind, name, uid, Some(true), Some(true));
    child.meta_mut().owner_references.get_or_insert_default().push(owner);
    child
}

/// Returns whether an Event was patched.
async fn has_repeated_event(namespace: &TestNamespace) -> Result<bool> {
    let events = namespace.list::<Event>().await?;
    Ok(events.iter().any(|event| event.count > Some(1)))
}

/// One process: a controller whose role lacks a permission, or has all.
struct Case<'a> {
    plane: &'a ControlPlane,
    /// Recorded revisions, for the controllers that have some.
    samples: Option<&'a Samples>,
    controller: RoleOwner,
    manifests: &'a Manifests,
    missing: Option<Permission>,
}

impl Case<'_> {
    fn effect(&self) -> Effect {
        match &self.missing {
            None => Effect::Unused,
            // Only distributions check it.
            Some(missing) if missing.is_for_subresource("restricted") => Effect::Unused,
            // These controllers publish no Events about cluster-scoped objects.
            Some(missing) if missing.is_for_cluster_events() => Effect::Unused,
            Some(missing) if missing.is_for_subresource("finalizers") => {
                Effect::DeniedOwner("cannot set blockOwnerDeletion")
            }
            // The StatefulSet controller deletes no claims: it changes their owners.
            Some(missing) if missing.is_to("delete", "persistentvolumeclaims") => {
                Effect::DeniedOwner("cannot set an ownerRef on a resource you can't delete")
            }
            Some(_) => Effect::Denied,
        }
    }

    /// Runs the process and checks the effect; an error names the controller and the missing permission.
    async fn check(self) -> Result<()> {
        let outcome = self.run().await;
        outcome.with_context(|| format!("{:?} without {:?}", self.controller, self.missing))
    }

    async fn run(&self) -> Result<()> {
        let namespace = self.controller.namespace(self.plane).await?;
        let name = &namespace.namespace;
        let user = format!("system:serviceaccount:{name}:windlass");
        let granted = self.manifests.grant(self.plane, name, &user, self.missing.as_ref()).await;
        granted.context("granting the role")?;
        self.controller.prepare(self, &namespace).await?;
        let kubeconfig = self.plane.kubeconfig_for(name, &user, None)?;
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let arguments = self.controller.arguments(name);
        let arguments: Vec<&str> = arguments.iter().chain([&kubeconfig]).map(String::as_str).collect();
        let process = ManagerProcess::start(self.plane, &arguments).await?;
        let log = || -> Result<String> {
            Ok(std::fs::read_to_string(process.log()).context("reading the log")?.replace('\\', ""))
        };
        match (self.effect(), &self.missing) {
            (Effect::Denied, Some(missing)) => {
                let reported = async || Ok(log()?.lines().any(|line| missing.is_reported(line, &user, name)));
                eventually_within(TIMEOUT, "the log names the rule", reported, |reported| *reported).await?;
                Ok(())
            }
            (Effect::DeniedOwner(message), _) => {
                let reported = async || Ok(log()?.contains(message));
                eventually_within(TIMEOUT, message, reported, |reported| *reported).await?;
                Ok(())
            }
            _ => {
                let done = || self.controller.is_done(&namespace);
                let done = eventually_within(TIMEOUT, "all work is done", done, |done| *done).await;
                let log = log()?;
                // A denied request is more informative than missing work, so it is reported first.
                ensure!(!log.contains("; add to a "), "a rule is missing: {log}");
                done?;
                let denied = process.metric("windlass_client_requests_total", &["code=\"403\""]).await?;
                ensure!(denied.is_none(), "{denied:?} requests are denied: {log}");
                Ok(())
            }
        }
    }
}

/// Streaming lists would replace `list` by `watch`. The first plugin is off by default, and the second taints nodes
/// that no kubelet reports as ready.
fn options() -> ControlPlaneOptions {
    let options = ControlPlaneOptions::default().nodes(0).scheduler(false);
    options
        .api_server_arg("--feature-gates=WatchList=false")
        .api_server_arg("--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
        .api_server_arg("--disable-admission-plugins=TaintNodesByCondition")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_verb_of_a_generated_role_is_needed_and_sufficient() -> Result<()> {
    with_control_plane(options(), async |plane, _| {
        endpoints::reject_creation(plane).await?;
        daemon_sets::add_nodes(plane).await?;
        let samples = Some(&Samples::record(plane).await.context("recording revisions")?);
        let mut roles = Vec::new();
        for controller in RoleOwner::OF_NAMESPACES {
            roles.push((controller, Manifests::print(controller).await?));
        }
        let mut cases = Vec::new();
        for (controller, manifests) in &roles {
            let case = |missing| Case { plane, samples, controller: *controller, manifests, missing };
            cases.push(case(None));
            cases.extend(manifests.permissions()?.into_iter().map(|missing| case(Some(missing))));
        }
        ensure!(cases.len() > 80, "{} cases", cases.len());
        let outcomes: Vec<_> =
            stream::iter(cases).map(Case::check).buffer_unordered(CONCURRENCY).collect().await;
        let failures: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        ensure!(failures.is_empty(), "{failures:#?}");
        Ok(())
    })
    .await
}

/// The processes of one controller run one after the other, because each works on the objects of all cases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_verb_of_a_role_for_the_cluster_is_needed_and_sufficient() -> Result<()> {
    let none: [&str; 0] = [];
    let options = ControlPlaneOptions::default().nodes(0).scheduler(false).upstream_controllers(none);
    // Streaming lists would replace `list` by `watch`. Without the plugin, a pod needs no ServiceAccount.
    let options = options
        .api_server_arg("--feature-gates=WatchList=false")
        .api_server_arg("--disable-admission-plugins=ServiceAccount");
    with_control_plane(options, async |plane, _| {
        let cases = RoleOwner::OF_CLUSTER.map(async |controller| {
            let manifests = &Manifests::print(controller).await?;
            let missing = manifests.permissions()?.into_iter().map(Some).chain([None]);
            for missing in missing {
                Case { plane, samples: None, controller, manifests, missing }.check().await?;
            }
            anyhow::Ok(())
        });
        try_join_all(cases).await?;
        Ok(())
    })
    .await
}
