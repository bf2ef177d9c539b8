//! Upstream's integration scenarios of the controllers of namespaces and nodes, on a real control plane without
//! kube-controller-manager.
//!
//! All scenarios share one control plane and one subject.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, PodCondition, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use windlass_black_box::implementation::{HOUSEKEEPING_CONTROLLERS, Implementation, Running};
use windlass_black_box::test_namespace::TestNamespace;
use windlass_black_box::wait::{eventually, eventually_within};
use windlass_harness::{ControlPlane, ControlPlaneOptions};

/// Longest time until a pod of a deleted node is deleted: three passes, the quarantine, and a margin.
const ORPHANED: Duration = Duration::from_secs(120);

struct Stage {
    plane: ControlPlane,
    _implementation: Running,
}

static STAGE: OnceCell<Stage> = OnceCell::const_new();

async fn stage() -> Result<&'static Stage> {
    STAGE
        .get_or_try_init(|| async {
            let none: [&str; 0] = [];
            let options = ControlPlaneOptions::default().nodes(0).scheduler(false).upstream_controllers(none);
            let plane = ControlPlane::start(options).await.context("starting the control plane")?;
            // Upstream's TTL controller writes at the next update or resync of a node.
            let args = ["--min-resync-period=1s"];
            let implementation =
                Implementation::chosen()?.start_controllers(&plane, &HOUSEKEEPING_CONTROLLERS, &args).await?;
            Ok(Stage { plane, _implementation: implementation })
        })
        .await
}

/// Creates a namespace and waits until it has its ServiceAccount, without which no pod is admitted.
async fn namespace(scenario: &str) -> Result<TestNamespace> {
    let stage = stage().await?;
    let namespace = stage.plane.namespace(scenario).await?;
    Ok(TestNamespace { client: stage.plane.client().await, namespace })
}

/// Creates a node with a Ready condition.
async fn create_node(namespace: &TestNamespace, name: &str, ready: &str) -> Result<()> {
    let node = json!({
        "metadata": { "name": name },
        "status": { "conditions": [{ "type": "Ready", "status": ready }] },
    });
    let nodes: Api<Node> = Api::all(namespace.client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    Ok(())
}

async fn delete_node(namespace: &TestNamespace, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(namespace.client.clone());
    nodes.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Creates a pod on a node. `container` contains fields of its container.
async fn create_pod(
    namespace: &TestNamespace,
    node: &str,
    finalizers: &[&str],
    container: &Value,
) -> Result<()> {
    let mut main = json!({ "name": "foo", "image": "bar" });
    main.as_object_mut().context("an object")?.extend(container.as_object().cloned().unwrap_or_default());
    let pod = json!({
        "metadata": { "name": "testpod", "finalizers": finalizers },
        "spec": { "nodeName": node, "containers": [main] },
    });
    namespace.create::<Pod>(&serde_json::from_value(pod)?).await?;
    Ok(())
}

async fn set_phase(namespace: &TestNamespace, phase: &str) -> Result<()> {
    namespace
        .update_status::<Pod>("testpod", |pod| {
            pod.status.get_or_insert_default().phase = Some(phase.to_owned());
        })
        .await?;
    Ok(())
}

/// Waits until the pod is being deleted, returns it, and removes its finalizers.
async fn terminating_pod(namespace: &TestNamespace) -> Result<Pod> {
    let is_terminating =
        |pod: &Option<Pod>| pod.as_ref().is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
    let find = || namespace.find::<Pod>("testpod");
    let pod = eventually_within(ORPHANED, "the pod is being deleted", find, is_terminating).await?;
    namespace.merge::<Pod>("testpod", json!({ "metadata": { "finalizers": null } })).await?;
    pod.context("a pod")
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn disruption_target(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "DisruptionTarget")
}

fn check_disruption_target(pod: &Pod) -> Result<()> {
    let target = disruption_target(pod).context("no condition DisruptionTarget")?;
    ensure!(target.status == "True" && target.observed_generation == Some(1), "{target:?}");
    ensure!(target.reason.as_deref() == Some("DeletionByPodGC"), "{target:?}");
    ensure!(target.message.as_deref() == Some("PodGC: node no longer exists"), "{target:?}");
    ensure!(target.last_transition_time.is_some(), "{target:?}");
    Ok(())
}

/// Upstream's `TestServiceAccountAutoCreate`.
#[tokio::test]
async fn default_service_account_is_created_again() -> Result<()> {
    let namespace = namespace("account").await?;
    let first = namespace.get::<ServiceAccount>("default").await?;
    namespace.delete::<ServiceAccount>("default").await?;
    let is_new = |account: &Option<ServiceAccount>| {
        account.as_ref().is_some_and(|account| account.metadata.uid != first.metadata.uid)
    };
    eventually("a new ServiceAccount", || namespace.find::<ServiceAccount>("default"), is_new).await?;
    Ok(())
}

/// The conformance test `ServiceAccounts should guarantee kube-root-ca.crt exist in any namespace`.
#[tokio::test]
async fn root_ca_is_published_and_restored() -> Result<()> {
    const NAME: &str = "kube-root-ca.crt";
    let namespace = namespace("root-ca").await?;
    let is_published = |map: &Option<ConfigMap>| {
        let data = map.as_ref().and_then(|map| map.data.as_ref());
        data.is_some_and(|data| {
            data.len() == 1 && data["ca.crt"].starts_with("-----BEGIN CERTIFICATE-----\n")
        })
    };
    let find = || namespace.find::<ConfigMap>(NAME);
    let published = eventually("the ConfigMap exists", find, is_published).await?.context("a ConfigMap")?;
    namespace.delete::<ConfigMap>(NAME).await?;
    let is_new = |map: &Option<ConfigMap>| {
        is_published(map) && map.as_ref().is_some_and(|map| map.metadata.uid != published.metadata.uid)
    };
    eventually("the ConfigMap exists again", find, is_new).await?;
    namespace.merge::<ConfigMap>(NAME, json!({ "data": { "ca.crt": "other", "more": "data" } })).await?;
    let restored =
        eventually("the ConfigMap is restored", find, is_published).await?.context("a ConfigMap")?;
    ensure!(restored.data == published.data, "{restored:?}");
    Ok(())
}

/// Upstream's `TestTTLAnnotations`.
#[tokio::test]
async fn ttl_annotations_follow_the_number_of_nodes() -> Result<()> {
    const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";
    let namespace = namespace("ttl").await?;
    let nodes: Api<Node> = Api::all(namespace.client.clone());
    let own = kube::api::ListParams::default().labels("scenario=ttl");
    let create = async |numbers: std::ops::Range<usize>| -> Result<()> {
        for number in numbers {
            let node =
                json!({ "metadata": { "name": format!("ttl-{number}"), "labels": { "scenario": "ttl" } } });
            nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        }
        Ok(())
    };
    let delete = async |numbers: std::ops::Range<usize>| -> Result<()> {
        for number in numbers {
            nodes.delete(&format!("ttl-{number}"), &DeleteParams::default()).await?;
        }
        Ok(())
    };
    let become_equal = async |count: usize, seconds: &str| -> Result<()> {
        let ttls = || async {
            let listed = nodes.list(&own).await?.items.into_iter();
            let ttl = |node: Node| node.metadata.annotations.and_then(|mut it| it.remove(ANNOTATION));
            Ok(listed.map(ttl).collect::<Vec<_>>())
        };
        let is_equal = |ttls: &Vec<Option<String>>| {
            ttls.len() == count && ttls.iter().all(|ttl| ttl.as_deref() == Some(seconds))
        };
        eventually(&format!("{count} nodes have {seconds} s"), ttls, is_equal).await.map(drop)
    };
    // Other scenarios add at most four nodes, so the numbers differ from upstream's by more than that.
    create(0..90).await?;
    become_equal(90, "0").await?;
    create(90..101).await?;
    become_equal(101, "15").await?;
    delete(95..101).await?;
    become_equal(95, "15").await?;
    delete(80..95).await?;
    become_equal(80, "0").await?;
    delete(0..80).await
}

/// Upstream's `TestPodGcOrphanedPodsWithFinalizer`.
#[tokio::test]
async fn orphaned_pods_are_marked_and_deleted() -> Result<()> {
    let mut scenarios = Vec::new();
    for (initial, expected) in [("Pending", "Failed"), ("Succeeded", "Succeeded"), ("Failed", "Failed")] {
        let (namespace, node) =
            (namespace("orphaned").await?, format!("orphaned-{}", initial.to_lowercase()));
        create_node(&namespace, &node, "True").await?;
        create_pod(&namespace, &node, &["test.k8s.io/finalizer"], &json!({})).await?;
        set_phase(&namespace, initial).await?;
        delete_node(&namespace, &node).await?;
        scenarios.push((namespace, initial, expected));
    }
    for (namespace, initial, expected) in scenarios {
        let pod = terminating_pod(&namespace).await?;
        ensure!(phase(&pod) == Some(expected), "{initial}: {:?}", phase(&pod));
        match initial {
            "Pending" => check_disruption_target(&pod)?,
            _ => ensure!(disruption_target(&pod).is_none(), "{initial}: {pod:?}"),
        }
    }
    Ok(())
}

/// Upstream's `TestPodGcForPodsWithDuplicatedFieldKeys`.
#[tokio::test]
async fn orphaned_pods_with_duplicate_keys_are_deleted() -> Result<()> {
    let mut scenarios = Vec::new();
    for container in [
        json!({ "env": [{ "name": "XYZ", "value": "1" }, { "name": "XYZ", "value": "2" }] }),
        json!({ "ports": [{ "containerPort": 93, "hostPort": 9376 }, { "containerPort": 93, "hostPort": 9377 }] }),
    ] {
        let namespace = namespace("duplicate-keys").await?;
        create_pod(&namespace, "non-existing-node", &["test.k8s.io/finalizer"], &container).await?;
        scenarios.push(namespace);
    }
    for namespace in scenarios {
        let pod = terminating_pod(&namespace).await?;
        ensure!(phase(&pod) == Some("Failed"), "{:?}", phase(&pod));
        check_disruption_target(&pod)?;
    }
    Ok(())
}

/// Upstream's `TestTerminatingOnOutOfServiceNode`.
#[tokio::test]
async fn terminating_pods_of_node_out_of_service_are_deleted() -> Result<()> {
    for finalizers in [&["test.k8s.io/finalizer"][..], &[]] {
        let namespace = namespace("out-of-service").await?;
        let node = format!("out-of-service-{}", finalizers.len());
        create_node(&namespace, &node, "False").await?;
        create_pod(&namespace, &node, finalizers, &json!({})).await?;
        set_phase(&namespace, "Running").await?;
        let slowly = DeleteParams::default().grace_period(300);
        namespace.api::<Pod>().delete("testpod", &slowly).await?;
        let taint = json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
        let nodes: Api<Node> = Api::all(namespace.client.clone());
        let patch = Patch::Merge(json!({ "spec": { "taints": taint } }));
        nodes.patch(&node, &PatchParams::default(), &patch).await?;
        let find = || namespace.find::<Pod>("testpod");
        let is_done = |pod: &Option<Pod>| match pod {
            Some(pod) => !finalizers.is_empty() && phase(pod) == Some("Failed"),
            None => finalizers.is_empty(),
        };
        let limit = Duration::from_secs(60);
        let pod = eventually_within(limit, "the pod is marked or deleted", find, is_done).await?;
        if let Some(pod) = pod {
            ensure!(disruption_target(&pod).is_none(), "{pod:?}");
            terminating_pod(&namespace).await?;
        }
        delete_node(&namespace, &node).await?;
    }
    Ok(())
}

/// Every namespace of the start has its objects, also those that the API server creates.
#[tokio::test]
async fn initial_namespaces_have_account_and_root_ca() -> Result<()> {
    let client = stage().await?.plane.client().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut found = 0;
    for namespace in namespaces.list(&kube::api::ListParams::default()).await? {
        let name = namespace.metadata.name.context("a name")?;
        if !["default", "kube-system", "kube-public", "kube-node-lease"].contains(&name.as_str()) {
            continue;
        }
        let namespace = TestNamespace { client: client.clone(), namespace: name };
        eventually("the account", || namespace.find::<ServiceAccount>("default"), Option::is_some).await?;
        eventually("the root CA", || namespace.find::<ConfigMap>("kube-root-ca.crt"), Option::is_some)
            .await?;
        found += 1;
    }
    ensure!(found == 4, "{found} namespaces");
    Ok(())
}
