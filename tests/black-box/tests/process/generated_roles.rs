//! Runs each controller with the role that `windlass manifests rbac --per-controller` prints for it.
//!
//! With the whole role the controller does all of its work, and the API server denies no request. Without any one verb
//! the log names the missing rule. Each process has its own namespace and ServiceAccount, so that many run at the same
//! time. All objects exist before the process starts, so that no verb depends on the success of another one, except
//! where the controller itself requires an order.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Endpoints, Event, Pod, ReplicationController};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding};
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::{Value, json};
use windlass_black_box::control_plane::with_control_plane;
use windlass_black_box::fixtures;
use windlass_black_box::test_namespace::{Kind, TestNamespace};
use windlass_black_box::wait::{eventually, eventually_within};
use windlass_black_box::workload::Workload;
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess};

use crate::rights::may;

/// Forty processes share the machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Processes at the same time. More of them delay each other on two cores.
const CONCURRENCY: usize = 6;

/// The namespace in the printed roles, which each case replaces.
const PLACEHOLDER: &str = "namespace-of-case";

/// Pods of the workload that grows. The recorder combines Events about it from the tenth on, and then patches them.
const MANY: i32 = 14;

/// Annotation that requests a rollback of a Deployment.
const ROLLBACK: &str = "deprecated.deployment.rollback.to";

/// Endpoints that a policy rejects, so that the controller records an Event again and again.
const REJECTED: &str = "rejected";

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum RoleOwner {
    Deployment,
    ReplicaSet,
    ReplicationController,
    Endpoints,
}

/// One verb of a role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Permission {
    group: String,
    resource: String,
    verb: String,
}

/// The effect of a missing permission.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Effect {
    /// The API server denies the request of this verb, and the log names the rule.
    Denied,
    /// An admission plugin denies the creation of Pods; the log contains its message.
    DeniedOwner,
    /// Only distributions check this permission, so all work is done.
    Unchecked,
}

impl RoleOwner {
    const ALL: [Self; 4] = [Self::Deployment, Self::ReplicaSet, Self::ReplicationController, Self::Endpoints];

    fn name(self) -> &'static str {
        match self {
            Self::Deployment => "deployment-controller",
            Self::ReplicaSet => "replicaset-controller",
            Self::ReplicationController => "replicationcontroller-controller",
            Self::Endpoints => "endpoints-controller",
        }
    }

    /// Returns the printed roles and bindings.
    async fn manifests(self) -> Result<String> {
        let controllers = format!("--controllers={}", self.name());
        let (namespace, watched) =
            (format!("--namespace={PLACEHOLDER}"), format!("--namespaces={PLACEHOLDER}"));
        let words = ["manifests", "rbac", "--per-controller", "--leader-elect=false", "--secure-port=0"];
        let words = [&words[..], &[&*controllers, &*namespace, &*watched]].concat();
        let output = ManagerProcess::command(&words).await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    async fn prepare(self, namespace: &TestNamespace) -> Result<()> {
        match self {
            Self::Deployment => prepare_deployments(namespace).await,
            Self::ReplicaSet => prepare_workloads::<ReplicaSet>(namespace).await,
            Self::ReplicationController => prepare_workloads::<ReplicationController>(namespace).await,
            Self::Endpoints => prepare_endpoints(namespace).await,
        }
    }

    async fn is_done(self, namespace: &TestNamespace) -> Result<bool> {
        match self {
            Self::Deployment => are_deployments_done(namespace).await,
            Self::ReplicaSet => are_workloads_done::<ReplicaSet>(namespace).await,
            Self::ReplicationController => are_workloads_done::<ReplicationController>(namespace).await,
            Self::Endpoints => are_endpoints_done(namespace).await,
        }
    }
}

/// Returns an object of this JSON, with a name.
fn object<K: Kind>(name: &str, mut fields: Value) -> Result<K> {
    fields["metadata"]["name"] = name.into();
    serde_json::from_value(fields).with_context(|| name.to_owned())
}

/// Creates a Deployment without ReplicaSet, one that adopts and scales a ReplicaSet, one with a rollback, one whose
/// history is too long, and one with many ReplicaSets to scale down.
async fn prepare_deployments(namespace: &TestNamespace) -> Result<()> {
    namespace.create(&deployment("new", 1, json!({}))?).await?;
    namespace.create(&replica_set("adopted", "adopt", "image.example/main:1", 0)?).await?;
    namespace.create(&deployment("adopt", 1, json!({}))?).await?;
    let mut rollback = deployment("rollback", 1, json!({}))?;
    rollback.annotations_mut().insert(ROLLBACK.to_owned(), "1".to_owned());
    namespace.create(&rollback).await?;

    let limited = namespace.create(&deployment("limited", 0, json!({ "revisionHistoryLimit": 0 }))?).await?;
    namespace.create(&owned_by(&limited, replica_set("surplus", "limited", "old", 0)?)).await?;
    // As the ReplicaSet controller does, which does not run.
    let observe = |set: &mut ReplicaSet| set.status.get_or_insert_default().observed_generation = Some(1);
    namespace.update_status("surplus", observe).await?;

    let many = deployment("many", 0, json!({ "strategy": { "type": "Recreate" } }))?;
    let many = namespace.create(&many).await?;
    for number in 0..MANY {
        let set = replica_set(&format!("many-{number}"), "many", &format!("old-{number}"), 1)?;
        namespace.create(&owned_by(&many, set)).await?;
    }
    Ok(())
}

fn deployment(name: &str, replicas: i32, fields: Value) -> Result<Deployment> {
    let mut spec = replica_set(name, name, "image.example/main:1", replicas)?.spec.map(|spec| json!(spec));
    let all = spec.as_mut().and_then(Value::as_object_mut).context("a spec")?;
    all.extend(fields.as_object().cloned().unwrap_or_default());
    object(name, json!({ "spec": spec }))
}

fn replica_set(name: &str, app: &str, image: &str, replicas: i32) -> Result<ReplicaSet> {
    let labels = fixtures::pairs(&[("app", app)]);
    let mut template = fixtures::template();
    template.metadata.get_or_insert_default().labels = Some(labels.clone());
    fixtures::set_image(&mut template, image);
    let spec = json!({ "replicas": replicas, "selector": { "matchLabels": labels }, "template": template });
    object(name, json!({ "metadata": { "labels": labels }, "spec": spec }))
}

fn owned_by(deployment: &Deployment, mut set: ReplicaSet) -> ReplicaSet {
    let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
    let owner = fixtures::owner("apps/v1", "Deployment", &deployment.name_any(), uid, Some(true), Some(true));
    set.owner_references_mut().push(owner);
    set
}

async fn are_deployments_done(namespace: &TestNamespace) -> Result<bool> {
    let sets = namespace.list::<ReplicaSet>().await?;
    let owner = |set: &ReplicaSet| fixtures::controller_of(&set.metadata).map(|it| it.name.clone());
    let owned =
        |name: &str| sets.iter().filter(|set| owner(set).as_deref() == Some(name)).collect::<Vec<_>>();
    let is_adopted = owned("adopt").iter().any(|set| set.name_any() == "adopted" && set.desired() == 1);
    let is_shortened = !sets.iter().any(|set| set.name_any() == "surplus");
    let are_scaled = owned("many").iter().all(|set| set.desired() == 0);
    let rollback = namespace.get::<Deployment>("rollback").await?;
    let is_processed = !rollback.annotations().contains_key(ROLLBACK);
    let is_done = !owned("new").is_empty() && is_adopted && is_shortened && are_scaled && is_processed;
    Ok(is_done && has_repeated_event(namespace).await?)
}

/// Creates a workload whose Pods are missing, a workload with a Pod too many, and a workload that adopts a Pod.
async fn prepare_workloads<W: Workload>(namespace: &TestNamespace) -> Result<()> {
    for (name, replicas) in [("grow", MANY), ("shrink", 0), ("adopt", 1)] {
        let labels = fixtures::pairs(&[("app", name)]);
        // The selector of a ReplicationController has no field for labels.
        let selector = match W::KIND {
            "ReplicaSet" => json!({ "matchLabels": labels }),
            _ => json!(labels),
        };
        let template = json!({ "metadata": { "labels": labels }, "spec": fixtures::still_pod_spec() });
        let spec = json!({ "replicas": replicas, "selector": selector, "template": template });
        namespace.create(&object::<W>(name, json!({ "spec": spec }))?).await?;
    }
    let pod = |name: &str, app: &str| {
        let metadata = json!({ "labels": { "app": app } });
        object::<Pod>(name, json!({ "metadata": metadata, "spec": fixtures::still_pod_spec() }))
    };
    namespace.create(&pod("orphan", "adopt")?).await?;
    let mut owned = pod("owned", "shrink")?;
    let uid = namespace.get::<W>("shrink").await?.uid();
    let owner = fixtures::owner(W::API_VERSION, W::KIND, "shrink", &uid, Some(true), Some(true));
    owned.owner_references_mut().push(owner);
    namespace.create(&owned).await?;
    Ok(())
}

async fn are_workloads_done<W: Workload>(namespace: &TestNamespace) -> Result<bool> {
    let pods = namespace.list::<Pod>().await?;
    let is_adopted = |pod: &Pod| pod.name_any() == "orphan" && !pod.owner_references().is_empty();
    let is_owned = |pod: &Pod| pod.name_any() == "owned";
    let grown = namespace.get::<W>("grow").await?.counts().replicas;
    let is_done = grown == MANY && pods.iter().any(is_adopted) && !pods.iter().any(is_owned);
    Ok(is_done && has_repeated_event(namespace).await?)
}

/// Creates a Service without Endpoints, Endpoints that differ, Endpoints without Service, and a Service whose Endpoints
/// the policy rejects.
async fn prepare_endpoints(namespace: &TestNamespace) -> Result<()> {
    for name in ["new", "outdated", REJECTED] {
        namespace.create(&fixtures::service(name, &[80])).await?;
    }
    let subsets = json!([{ "addresses": [{ "ip": "10.1.2.3" }], "ports": [{ "port": 80 }] }]);
    for name in ["outdated", "left"] {
        namespace.create(&object::<Endpoints>(name, json!({ "subsets": subsets }))?).await?;
    }
    Ok(())
}

async fn are_endpoints_done(namespace: &TestNamespace) -> Result<bool> {
    let endpoints = namespace.list::<Endpoints>().await?;
    let names: Vec<_> = endpoints.iter().map(ResourceExt::name_any).collect();
    let is_updated = |endpoints: &Endpoints| endpoints.subsets.as_ref().is_none_or(Vec::is_empty);
    Ok(names == ["new", "outdated"]
        && endpoints.iter().all(is_updated)
        && has_repeated_event(namespace).await?)
}

/// Returns whether an Event was patched.
async fn has_repeated_event(namespace: &TestNamespace) -> Result<bool> {
    let events = namespace.list::<Event>().await?;
    Ok(events.iter().any(|event| event.count > Some(1)))
}

/// One process: a controller whose role lacks a permission, or has all.
struct Case<'a> {
    plane: &'a ControlPlane,
    controller: RoleOwner,
    manifests: &'a str,
    missing: Option<Permission>,
}

impl Case<'_> {
    fn effect(&self) -> Effect {
        match &self.missing {
            None => Effect::Unchecked,
            Some(missing) if missing.resource == "endpoints/restricted" => Effect::Unchecked,
            Some(missing) if missing.resource.ends_with("/finalizers") => Effect::DeniedOwner,
            Some(_) => Effect::Denied,
        }
    }

    /// Runs the process and checks the effect; an error names the controller and the missing permission.
    async fn check(self) -> Result<()> {
        let outcome = self.run().await;
        outcome.with_context(|| format!("{:?} without {:?}", self.controller, self.missing))
    }

    async fn run(&self) -> Result<()> {
        let (client, name) = (self.plane.client().await, self.plane.namespace("role").await?);
        let namespace = TestNamespace { client, namespace: name.clone() };
        let user = format!("system:serviceaccount:{name}:windlass");
        self.grant(&namespace, &user).await.context("granting the role")?;
        self.controller.prepare(&namespace).await?;
        let kubeconfig = self.plane.kubeconfig_for(&name, &user, None)?;
        let arguments = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--controllers={}", self.controller.name()),
            format!("--namespaces={name}"),
            "--leader-elect=false".to_owned(),
        ];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let process = ManagerProcess::start(self.plane, &arguments).await?;
        let log = || std::fs::read_to_string(process.log()).context("reading the log");
        let reported = |text: String| {
            let log = &log;
            async move {
                let reported = async || Ok(log()?.replace('\\', "").contains(&text));
                let what = format!("the log contains {text:?}");
                eventually_within(TIMEOUT, &what, reported, |reported| *reported).await
            }
        };
        match (self.effect(), &self.missing) {
            (Effect::Denied, Some(missing)) => reported(missing.message(&user, &name)).await.map(drop),
            (Effect::DeniedOwner, _) => reported("cannot set blockOwnerDeletion".to_owned()).await.map(drop),
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

    /// Creates the printed roles and bindings, without the missing permission, and waits until they are in effect.
    async fn grant(&self, namespace: &TestNamespace, user: &str) -> Result<()> {
        let mut granted = BTreeSet::new();
        for object in objects(&self.manifests.replace(PLACEHOLDER, &namespace.namespace))? {
            let options = PostParams::default();
            match object["kind"].as_str() {
                Some("Role") => {
                    let mut role: Role = serde_json::from_value(object)?;
                    let rules = role.rules.take().unwrap_or_default();
                    let permissions = rules.iter().flat_map(permissions);
                    granted.extend(permissions.filter(|it| Some(it) != self.missing.as_ref()));
                    role.rules = Some(granted.iter().map(Permission::rule).collect());
                    namespace.api::<Role>().create(&options, &role).await?;
                }
                Some("RoleBinding") => {
                    let binding: RoleBinding = serde_json::from_value(object)?;
                    namespace.api::<RoleBinding>().create(&options, &binding).await?;
                }
                Some("ServiceAccount") => {}
                other => anyhow::bail!("the role of {} contains a {other:?}", self.controller.name()),
            }
        }
        let any = granted.first().context("the role is empty")?;
        let allowed = || may(self.plane, user, any.attributes(&namespace.namespace));
        eventually("the role is in effect", allowed, |allowed| *allowed).await?;
        Ok(())
    }
}

impl Permission {
    fn rule(&self) -> PolicyRule {
        PolicyRule {
            api_groups: Some(vec![self.group.clone()]),
            resources: Some(vec![self.resource.clone()]),
            verbs: vec![self.verb.clone()],
            ..PolicyRule::default()
        }
    }

    fn attributes(&self, namespace: &str) -> Value {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        json!({ "verb": self.verb, "group": self.group, "resource": resource, "subresource": subresource,
                "namespace": namespace })
    }

    /// Returns the expected text in the log.
    fn message(&self, user: &str, namespace: &str) -> String {
        let Self { group, resource, verb } = self;
        let dot = if group.is_empty() { "" } else { "." };
        // A cache needs both.
        let verbs = if ["list", "watch"].contains(&verb.as_str()) { "list, watch" } else { verb };
        format!(
            "{user} cannot {verb} {resource}{dot}{group} in namespace {namespace}; add to a Role in {namespace} or to \
             a ClusterRole: - {{ apiGroups: [\"{group}\"], resources: [\"{resource}\"], verbs: [{verbs}] }}"
        )
    }
}

/// Returns each verb of a rule for each resource.
fn permissions(rule: &PolicyRule) -> Vec<Permission> {
    let mut permissions = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                let (group, resource, verb) = (group.clone(), resource.clone(), verb.clone());
                permissions.push(Permission { group, resource, verb });
            }
        }
    }
    permissions
}

fn objects(yaml: &str) -> Result<Vec<Value>> {
    let documents = yaml.split("---\n").filter(|document| !document.trim().is_empty());
    documents.map(|document| Ok(serde_saphyr::from_str(document)?)).collect()
}

/// Rejects the creation of Endpoints with one name.
async fn reject_endpoints(plane: &ControlPlane) -> Result<()> {
    let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["endpoints"] });
    let validation = json!({ "expression": format!("object.metadata.name != '{REJECTED}'") });
    let spec = json!({ "matchConstraints": { "resourceRules": [rule] }, "validations": [validation] });
    let group = "admissionregistration.k8s.io/v1";
    let metadata = json!({ "name": REJECTED });
    let policy = json!({ "apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec });
    let spec = json!({ "policyName": REJECTED, "validationActions": ["Deny"] });
    let binding = json!({ "apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": spec });
    let file = tempfile::NamedTempFile::new()?;
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": [policy, binding] });
    std::fs::write(file.path(), list.to_string())?;
    let path = file.path().to_str().context("the temporary folder is not UTF-8")?;
    plane.kubectl(&["create", "-f", path]).await?;
    let namespace =
        TestNamespace { client: plane.client().await, namespace: plane.namespace("policy").await? };
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let endpoints = object::<Endpoints>(REJECTED, json!({}))?;
    let rejected = async || Ok(namespace.api::<Endpoints>().create(&dry_run, &endpoints).await.is_err());
    eventually("the policy is in effect", rejected, |rejected| *rejected).await.map(drop)
}

/// Streaming lists would replace `list` by `watch`, and the admission plugin is off by default.
fn options() -> ControlPlaneOptions {
    let options = ControlPlaneOptions::default().nodes(0).scheduler(false);
    options
        .api_server_arg("--feature-gates=WatchList=false")
        .api_server_arg("--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_verb_of_a_generated_role_is_needed_and_sufficient() -> Result<()> {
    with_control_plane(options(), async |plane, _| {
        reject_endpoints(plane).await?;
        let mut roles = Vec::new();
        for controller in RoleOwner::ALL {
            roles.push((controller, controller.manifests().await?));
        }
        let mut cases = Vec::new();
        for (controller, manifests) in &roles {
            let case = |missing| Case { plane, controller: *controller, manifests, missing };
            cases.push(case(None));
            for object in objects(manifests)?.into_iter().filter(|object| object["kind"] == "Role") {
                let role: Role = serde_json::from_value(object)?;
                let missing = role.rules.iter().flatten().flat_map(permissions);
                cases.extend(missing.map(|missing| case(Some(missing))));
            }
        }
        ensure!(cases.len() > 30, "{} cases", cases.len());
        let outcomes: Vec<_> =
            stream::iter(cases).map(Case::check).buffer_unordered(CONCURRENCY).collect().await;
        let failures: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        ensure!(failures.is_empty(), "{failures:#?}");
        Ok(())
    })
    .await
}
