//! Each controller with its own ServiceAccount and the roles that every API server creates for upstream's controllers.
//!
//! The process itself is `system:kube-controller-manager`, by certificate. Its role allows it to read everything and to
//! create ServiceAccounts and tokens, but no write of a controller. Such writes succeed only with another identity.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    core::v1::{Endpoints, Event, Node, Pod, ReplicationController, Service, ServiceAccount},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use windlass_black_box::{
    audit::{Audit, Write},
    control_plane::with_control_plane,
    fixtures,
    implementation::ready,
    test_namespace::TestNamespace,
    wait::eventually,
    workload::Workload as _,
};
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// User of the process.
const PROCESS: &str = "system:kube-controller-manager";

/// Prefix of the users of controllers.
pub(crate) const ACCOUNT: &str = "system:serviceaccount:kube-system:";

/// The resources that each account writes.
const EXPECTED: [(&str, &str); 14] = [
    ("pods", "replicaset-controller"),
    ("pods", "replication-controller"),
    ("pods", "statefulset-controller"),
    ("pods", "daemon-set-controller"),
    ("replicasets", "deployment-controller"),
    ("deployments", "deployment-controller"),
    ("replicasets", "replicaset-controller"),
    ("replicationcontrollers", "replication-controller"),
    ("controllerrevisions", "statefulset-controller"),
    ("statefulsets", "statefulset-controller"),
    ("controllerrevisions", "daemon-set-controller"),
    ("daemonsets", "daemon-set-controller"),
    ("endpoints", "endpoint-controller"),
    ("events", "replicaset-controller"),
];

/// A process on a dedicated control plane.
pub(crate) struct IdentityFixture<'a> {
    pub(crate) plane: &'a ControlPlane,
    pub(crate) audit: &'a Audit,
    pub(crate) namespace: TestNamespace,
    pub(crate) manager: ManagerProcess,
}

pub(crate) async fn with_accounts(body: impl AsyncFnOnce(IdentityFixture<'_>) -> Result<()>) -> Result<()> {
    with_control_plane(ControlPlaneOptions::default().nodes(0).scheduler(false), async |plane, audit| {
        let kubeconfig = plane.kubeconfig_for("process", PROCESS, None)?;
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let args = [kubeconfig.as_str(), "--leader-elect=false", "--use-service-account-credentials=true"];
        let namespace =
            TestNamespace { client: plane.client().await, namespace: plane.namespace("identities").await? };
        let manager = ManagerProcess::start(plane, &args).await?;
        ready(&manager, TIMEOUT).await?;
        body(IdentityFixture { plane, audit, namespace, manager }).await
    })
    .await
}

impl IdentityFixture<'_> {
    pub(crate) fn log(&self) -> Result<String> {
        std::fs::read_to_string(self.manager.log()).context("reading the log")
    }

    fn accounts(&self) -> Api<ServiceAccount> {
        Api::namespaced(self.namespace.client.clone(), "kube-system")
    }

    /// Returns the UID of the ReplicaSet controller's ServiceAccount, if it exists.
    async fn account(&self) -> Result<Option<String>> {
        Ok(self.accounts().get_opt("replicaset-controller").await?.and_then(|account| account.uid()))
    }

    async fn pods_of(&self, owner: &str) -> Result<Vec<Pod>> {
        let mut pods = self.namespace.list::<Pod>().await?;
        pods.retain(|pod| pod.owner_references().iter().any(|reference| reference.name == owner));
        Ok(pods)
    }

    async fn has_pods(&self, owner: &str, count: usize) -> Result<()> {
        let what = format!("{owner} has {count} pods");
        eventually(&what, || self.pods_of(owner), |pods| pods.len() == count).await?;
        Ok(())
    }

    async fn has_endpoints(&self, service: &str) -> Result<()> {
        self.namespace.create(&fixtures::service(service, &[80])).await?;
        let look = || self.namespace.find::<Endpoints>(service);
        eventually(&format!("{service} has Endpoints"), look, Option::is_some).await?;
        Ok(())
    }
}

/// Returns the problem with a write, if there is one. Each controller must write with its own account, and rejections
/// are only allowed if a race can cause them.
fn fault(write: &Write) -> Option<String> {
    let code = write.response_status.map_or(0, |answer| answer.code);
    let user = write.user.username.as_str();
    let by = write.user_agent.rsplit('/').next().unwrap_or_default();
    let (right, accepted) = match (by, write.resource()) {
        // The first token is requested before the ServiceAccount exists.
        ("service-accounts", "serviceaccounts") => (user == PROCESS, matches!(code, 201 | 404)),
        // The API server also deletes the Endpoints of a deleted Service, and can be faster.
        (by, "endpoints") if write.verb == "delete" => {
            (user.strip_prefix(ACCOUNT) == Some(by), matches!(code, 200 | 404))
        }
        // A status update with a conflict is retried.
        (by, _) if is_status(write) => (user.strip_prefix(ACCOUNT) == Some(by), code < 300 || code == 409),
        (by, _) => (user.strip_prefix(ACCOUNT) == Some(by), code < 300),
    };
    (!right || !accepted).then(|| format!("{} {} by {by} as {user}: {code}", write.verb, write.resource()))
}

// parity: dynamic-controller-client-builder, anonymous-client-config
#[tokio::test]
async fn controllers_work_with_separate_accounts_and_upstream_roles() -> Result<()> {
    with_accounts(async |scene| {
        let namespace = &scene.namespace;
        namespace.create(&ReplicaSet::new("set", 3)).await?;
        namespace.create(&ReplicationController::new("controller", 2)).await?;
        scene.has_endpoints("service").await?;
        scene.has_pods("set", 3).await?;
        scene.has_pods("controller", 2).await?;
        namespace.update::<ReplicaSet>("set", |set| set.set_desired(1)).await?;
        scene.has_pods("set", 1).await?;
        let look = || namespace.get::<ReplicaSet>("set");
        eventually("the status has one replica", look, |set| set.counts().replicas == 1).await?;
        namespace.create(&fixtures::deployment("rollout", 1)).await?;
        let look = || namespace.get::<Deployment>("rollout");
        let updated = |it: &Deployment| it.status.as_ref().and_then(|status| status.updated_replicas);
        eventually("the rollout has a pod", look, |it| updated(it) == Some(1)).await?;
        let nodes: Api<Node> = Api::all(namespace.client.clone());
        nodes.create(&PostParams::default(), &fixtures::node("node")).await?;
        sets_are_counted(namespace).await?;
        namespace.delete::<Service>("service").await?;
        eventually("no Endpoints are left", || namespace.find::<Endpoints>("service"), Option::is_none)
            .await?;
        let events = || namespace.list::<Event>();
        eventually("the Events exist", events, |events| {
            events.iter().any(|it| has_reason(it, "SuccessfulDelete"))
        })
        .await?;

        let writes = scene.audit.all_writes("windlass/")?;
        let faults: Vec<String> = writes.iter().filter_map(fault).collect();
        ensure!(faults.is_empty(), "{faults:#?}");
        for (resource, account) in EXPECTED {
            let user = format!("{ACCOUNT}{account}");
            let wrote =
                writes.iter().any(|write| write.resource() == resource && write.user.username == user);
            ensure!(wrote, "{user} wrote no {resource}");
        }
        let tokens = writes.iter().filter(|write| is_token(write)).count();
        ensure!(tokens == 6, "one token for each controller, not {tokens}");
        Ok(())
    })
    .await
}

/// Creates a StatefulSet and a DaemonSet for one node, and waits until their status counts their pods.
pub(crate) async fn sets_are_counted(namespace: &TestNamespace) -> Result<()> {
    namespace.create(&fixtures::stateful_set("stateful", 1)).await?;
    namespace.create(&fixtures::daemon_set("daemon")).await?;
    let replicas = |it: &StatefulSet| it.status.as_ref().map(|status| status.replicas);
    let look = || namespace.get::<StatefulSet>("stateful");
    eventually("the StatefulSet has a pod", look, |it| replicas(it) == Some(1)).await?;
    let scheduled = |it: &DaemonSet| it.status.as_ref().map(|status| status.current_number_scheduled);
    let look = || namespace.get::<DaemonSet>("daemon");
    eventually("the DaemonSet has a pod", look, |it| scheduled(it) == Some(1)).await?;
    Ok(())
}

fn has_reason(event: &Event, reason: &str) -> bool {
    event.reason.as_deref() == Some(reason)
}

/// Returns whether a write changes a status, not a specification.
fn is_status(write: &Write) -> bool {
    write.object_ref.as_ref().is_some_and(|target| target.subresource == "status")
}

/// Returns whether a write issues a token.
fn is_token(write: &Write) -> bool {
    let target = write.object_ref.clone().unwrap_or_default();
    target.subresource == "token" && write.response_status.is_some_and(|answer| answer.code == 201)
}

// parity: account-read-before-each
#[tokio::test]
async fn deleted_service_account_is_recreated_and_its_controller_continues() -> Result<()> {
    with_accounts(async |scene| {
        let (namespace, accounts) = (&scene.namespace, scene.accounts());
        namespace.create(&ReplicaSet::new("first", 1)).await?;
        scene.has_pods("first", 1).await?;
        let before = scene.account().await?;
        accounts.delete("replicaset-controller", &DeleteParams::default()).await?;
        // The API server accepts the old token for some more seconds; until then work continues with it.
        for number in 0..60 {
            let name = format!("later-{number}");
            namespace.create(&ReplicaSet::new(&name, 1)).await?;
            scene.has_pods(&name, 1).await?;
            let now = scene.account().await?;
            if now.is_some() {
                ensure!(now != before, "the ServiceAccount must have a new UID");
                return Ok(());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        anyhow::bail!("the ServiceAccount was not recreated within a minute")
    })
    .await
}
