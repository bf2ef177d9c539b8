//! Upstream's integration scenarios of DaemonSets. Each scenario has its own nodes, which its DaemonSet selects by a
//! label. The test acts as the kubelets.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec},
    core::v1::{Node, NodeSpec, Pod, Taint, Toleration},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use windlass_black_box::{
    fixtures::{LABEL, controller_of, is_ready, labels, still_pod_spec},
    test_namespace::TestNamespace,
    wait::eventually,
};

use crate::plane::namespace;

const NAME: &str = "agent";
const HASH: &str = "controller-revision-hash";
const SCENARIO: &str = "test.example/scenario";

/// Each scenario holds for both strategies.
const STRATEGIES: [&str; 2] = ["RollingUpdate", "OnDelete"];

/// A DaemonSet and its nodes.
struct Scene {
    namespace: TestNamespace,
}

impl Scene {
    /// Creates a DaemonSet for the nodes of this scenario, with more fields of the spec and of the pod.
    async fn create(scenario: &str, fields: Value, pod_fields: Value) -> Result<Self> {
        let scene = Self { namespace: namespace(scenario).await? };
        let mut pod = json!(still_pod_spec());
        pod["terminationGracePeriodSeconds"] = json!(0);
        pod["nodeSelector"] = json!({ SCENARIO: scene.namespace.namespace });
        extend(&mut pod, &pod_fields)?;
        let mut spec = json!({
            "selector": { "matchLabels": labels() },
            "template": { "metadata": { "labels": labels() }, "spec": pod },
        });
        extend(&mut spec, &fields)?;
        let set = serde_json::from_value(json!({ "metadata": { "name": NAME }, "spec": spec }))?;
        scene.namespace.create::<DaemonSet>(&set).await?;
        Ok(scene)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.namespace.client.clone())
    }

    async fn add_node(&self, suffix: &str, labeled: bool, spec: NodeSpec) -> Result<String> {
        let name = format!("{}-{suffix}", self.namespace.namespace);
        let mut node = Node { spec: Some(spec), ..Node::default() };
        node.metadata.name = Some(name.clone());
        if labeled {
            node.labels_mut().insert(SCENARIO.to_owned(), self.namespace.namespace.clone());
        }
        self.nodes().create(&PostParams::default(), &node).await?;
        Ok(name)
    }

    async fn add_nodes(&self, count: usize) -> Result<()> {
        for number in 0..count {
            self.add_node(&number.to_string(), true, NodeSpec::default()).await?;
        }
        Ok(())
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        self.namespace.pods(LABEL).await
    }

    async fn has_pods(&self, count: usize) -> Result<Vec<Pod>> {
        let active = |pods: &Vec<Pod>| pods.len() == count && pods.iter().all(is_active);
        eventually(&format!("{count} active pods"), || self.pods(), active).await
    }

    /// Makes all pods ready, and waits until the status has this number of ready pods.
    async fn is_ready(&self, count: i32) -> Result<DaemonSet> {
        let step = || async {
            for pod in self.pods().await?.iter().filter(|pod| is_active(pod) && !is_ready(pod)) {
                self.namespace.start_pod(&pod.name_any()).await?;
            }
            self.get().await
        };
        let is_counted = |set: &DaemonSet| {
            let status = set.status.clone().unwrap_or_default();
            status.observed_generation == set.metadata.generation
                && (status.number_ready, status.number_available) == (count, Some(count))
        };
        eventually(&format!("{count} pods are ready"), step, is_counted).await
    }

    async fn get(&self) -> Result<DaemonSet> {
        self.namespace.get(NAME).await
    }

    async fn update(&self, change: impl Fn(&mut DaemonSetSpec)) -> Result<()> {
        self.namespace.update(NAME, |set: &mut DaemonSet| change(set.spec.get_or_insert_default())).await?;
        Ok(())
    }

    async fn revisions(&self) -> Result<Vec<ControllerRevision>> {
        eventually("a revision exists", || self.namespace.list(), |all: &Vec<_>| !all.is_empty()).await
    }

    /// Removes the nodes, because other scenarios run on the same control plane.
    async fn end(self) -> Result<()> {
        let nodes =
            kube::api::ListParams::default().labels(&format!("{SCENARIO}={}", self.namespace.namespace));
        self.nodes().delete_collection(&DeleteParams::default(), &nodes).await?;
        Ok(())
    }
}

fn extend(object: &mut Value, fields: &Value) -> Result<()> {
    let all = object.as_object_mut().context("an object")?;
    all.extend(fields.as_object().cloned().unwrap_or_default());
    Ok(())
}

fn strategy(name: &str) -> Value {
    json!({ "updateStrategy": { "type": name } })
}

fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Failed" | "Succeeded"))
}

/// Returns the node that the affinity of a pod names.
fn target(pod: &Pod) -> Option<String> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let field = terms.first()?.match_fields.as_ref()?.first()?;
    (field.key == "metadata.name").then(|| field.values.clone()?.into_iter().next()).flatten()
}

fn taint(key: &str) -> Taint {
    Taint { key: key.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() }
}

fn tainted(key: &str) -> NodeSpec {
    NodeSpec { taints: Some(vec![taint(key)]), ..NodeSpec::default() }
}

#[tokio::test]
async fn each_selected_node_gets_one_pod() -> Result<()> {
    for name in STRATEGIES {
        let scenario = format!("ds-simple-{}", name.to_lowercase());
        let scene = Scene::create(&scenario, strategy(name), json!({})).await?;
        scene.add_nodes(3).await?;
        scene.add_node("other", false, NodeSpec::default()).await?;
        let pods = scene.has_pods(3).await?;
        let mut targets: Vec<_> = pods.iter().filter_map(target).collect();
        targets.sort();
        let namespace = &scene.namespace.namespace;
        ensure!(targets == [0, 1, 2].map(|number| format!("{namespace}-{number}")), "{targets:?}");
        let set = scene.is_ready(3).await?;
        let status = set.status.unwrap_or_default();
        let numbers = (status.desired_number_scheduled, status.current_number_scheduled);
        ensure!((numbers, status.number_misscheduled) == ((3, 3), 0), "{status:?}");
        ensure!(status.updated_number_scheduled == Some(3), "{status:?}");
        // A node that gets the label gets a pod.
        let other = format!("{namespace}-other");
        let label = json!({ "metadata": { "labels": { SCENARIO: namespace } } });
        scene.nodes().patch(&other, &PatchParams::default(), &Patch::Merge(label)).await?;
        scene.has_pods(4).await?;
        scene.is_ready(4).await?;
        scene.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn terminal_pod_of_a_daemon_set_is_replaced() -> Result<()> {
    for phase in ["Succeeded", "Failed"] {
        let scenario = format!("ds-terminal-{}", phase.to_lowercase());
        let scene = Scene::create(&scenario, json!({}), json!({})).await?;
        scene.add_nodes(3).await?;
        scene.has_pods(3).await?;
        scene.is_ready(3).await?;
        let ended = scene.pods().await?.first().context("a pod")?.clone();
        let end = |pod: &mut Pod| pod.status.get_or_insert_default().phase = Some(phase.to_owned());
        scene.namespace.update_status::<Pod>(&ended.name_any(), end).await?;
        let is_replaced = |pods: &Vec<Pod>| pods.len() == 3 && pods.iter().all(|it| it.uid() != ended.uid());
        eventually("the pod is replaced", || scene.pods(), is_replaced).await?;
        scene.is_ready(3).await?;
        scene.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn taint_without_toleration_prevents_a_pod_until_it_is_removed() -> Result<()> {
    let scene = Scene::create("ds-tainted", json!({}), json!({})).await?;
    let node = scene.add_node("tainted", true, tainted("key")).await?;
    scene.add_nodes(1).await?;
    scene.has_pods(1).await?;
    scene.is_ready(1).await?;
    let none = json!({ "spec": { "taints": null } });
    scene.nodes().patch(&node, &PatchParams::default(), &Patch::Merge(none)).await?;
    scene.has_pods(2).await?;
    scene.is_ready(2).await?;
    scene.end().await
}

#[tokio::test]
async fn unschedulable_node_and_node_without_network_get_pods() -> Result<()> {
    let scene = Scene::create("ds-unschedulable", json!({}), json!({ "hostNetwork": true })).await?;
    let unschedulable = NodeSpec { unschedulable: Some(true), ..tainted("node.kubernetes.io/unschedulable") };
    scene.add_node("unschedulable", true, unschedulable).await?;
    scene.add_node("offline", true, tainted("node.kubernetes.io/network-unavailable")).await?;
    let evicting = Taint { effect: "NoExecute".to_owned(), ..taint("node.kubernetes.io/not-ready") };
    scene
        .add_node("not-ready", true, NodeSpec { taints: Some(vec![evicting]), ..NodeSpec::default() })
        .await?;
    scene.has_pods(3).await?;
    scene.is_ready(3).await?;
    scene.end().await
}

#[tokio::test]
async fn status_of_a_daemon_set_is_written_despite_a_failed_create() -> Result<()> {
    let scene = Scene::create("ds-quota", json!({}), json!({})).await?;
    scene.namespace.limit("two-pods", "pods", 2).await?;
    scene.add_nodes(5).await?;
    scene.has_pods(2).await?;
    scene.is_ready(2).await?;
    scene.end().await
}

/// Creates a ControllerRevision of the DaemonSet with the data of `of`, and returns its hash.
async fn add_revision(scene: &Scene, of: &ControllerRevision, hash: &str) -> Result<()> {
    let mut revision = of.clone();
    revision.metadata.resource_version = None;
    revision.metadata.uid = None;
    revision.metadata.name = Some(format!("{NAME}-{hash}"));
    revision.labels_mut().insert(HASH.to_owned(), hash.to_owned());
    revision.revision += 1;
    scene.namespace.create(&revision).await?;
    Ok(())
}

#[tokio::test]
async fn duplicate_revision_relabels_the_pods_and_is_the_only_one_left() -> Result<()> {
    let scene = Scene::create("ds-duplicate", json!({}), json!({})).await?;
    scene.add_nodes(1).await?;
    scene.has_pods(1).await?;
    let first = scene.revisions().await?.into_iter().next().context("a revision")?;
    add_revision(&scene, &first, "duplicate").await?;
    scene.add_node("second", true, NodeSpec::default()).await?;
    let relabeled = |pods: &Vec<Pod>| {
        pods.len() == 2 && pods.iter().all(|pod| pod.labels().get(HASH).is_some_and(|it| it == "duplicate"))
    };
    eventually("the pods have the hash of the newer revision", || scene.pods(), relabeled).await?;
    let single = |all: &Vec<ControllerRevision>| {
        let owned = |it: &&ControllerRevision| controller_of(&it.metadata).is_some();
        all.iter().filter(owned).map(kube::ResourceExt::name_any).eq([format!("{NAME}-duplicate")])
    };
    eventually("only the newer revision is left", || scene.revisions(), single).await?;
    scene.end().await
}

#[tokio::test]
async fn taken_name_of_a_revision_is_counted_as_collision() -> Result<()> {
    // A second DaemonSet shows the name that the next revision will have.
    let grace = json!({ "terminationGracePeriodSeconds": 1 });
    let other = Scene::create("ds-next-hash", json!({}), grace).await?;
    let scene = Scene::create("ds-collision", json!({}), json!({})).await?;
    scene.add_nodes(1).await?;
    scene.has_pods(1).await?;
    let mut template = scene.get().await?.spec.context("a spec")?.template;
    template.spec.get_or_insert_default().termination_grace_period_seconds = Some(1);
    other.update(|spec| spec.template = template.clone()).await?;
    let label = |all: &Vec<ControllerRevision>| {
        all.iter().max_by_key(|it| it.revision).and_then(|it| it.labels().get(HASH).cloned())
    };
    let all = eventually("the second revision", || other.revisions(), |all| all.len() == 2).await?;
    let hash = label(&all).context("a hash")?;
    let first = scene.revisions().await?.into_iter().next().context("a revision")?;
    add_revision(&scene, &first, &hash).await?;
    scene.update(|spec| spec.template = template.clone()).await?;
    let updated = |pods: &Vec<Pod>| {
        let grace = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        pods.iter().any(|pod| grace(pod) == Some(1))
    };
    let step = || async {
        scene.is_ready(1).await.ok();
        scene.pods().await
    };
    eventually("a pod has the new template", step, updated).await?;
    let collisions = scene.get().await?.status.and_then(|status| status.collision_count);
    ensure!(collisions == Some(1), "{collisions:?}");
    other.end().await?;
    scene.end().await
}

#[tokio::test]
async fn surge_follows_changed_tolerations() -> Result<()> {
    let exists = |key: &str| Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        ..Toleration::default()
    };
    let surge = json!({ "maxSurge": 1, "maxUnavailable": 0 });
    let fields = json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": surge } });
    let pod = json!({ "tolerations": [exists("zone-y"), exists("zone-common")] });
    let scene = Scene::create("ds-tolerations", fields, pod).await?;
    for (number, zone) in
        ["zone-y", "zone-y", "zone-z", "zone-z", "zone-common", "zone-common"].into_iter().enumerate()
    {
        scene.add_node(&number.to_string(), true, tainted(zone)).await?;
    }
    scene.has_pods(4).await?;
    let set = scene.is_ready(4).await?;
    ensure!(set.status.and_then(|status| status.updated_number_scheduled) == Some(4));
    let changed = vec![exists("zone-z"), exists("zone-common")];
    scene
        .update(|spec| {
            spec.template.spec.get_or_insert_default().tolerations = Some(changed.clone());
        })
        .await?;
    // Two new ones in zone z, one surge in the common zone, and the four old ones, which stay until others are
    // available.
    scene.has_pods(7).await?;
    let is_updated = |set: &DaemonSet| {
        let status = set.status.clone().unwrap_or_default();
        (status.number_ready, status.updated_number_scheduled) == (4, Some(4))
    };
    let step = || async {
        scene.is_ready(4).await.ok();
        scene.get().await
    };
    eventually("all pods have the new tolerations", step, is_updated).await?;
    scene.has_pods(4).await?;
    scene.end().await
}
