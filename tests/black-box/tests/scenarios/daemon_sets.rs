//! Upstream's integration scenarios of DaemonSets. Each scenario has its own nodes, which its DaemonSet selects by a
//! label. The test acts as the kubelets.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec},
    core::v1::{Node, NodeCondition, NodeSpec, NodeStatus, Pod, Taint, Toleration},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use windlass_black_box::{
    fixtures::{LABEL, controller_of, is_ready, labels, pairs, still_pod_spec},
    test_namespace::TestNamespace,
    wait::eventually,
};

use crate::plane::namespace;

const NAME: &str = "agent";
const HASH: &str = "controller-revision-hash";
/// The label of the nodes that a DaemonSet selects, with its namespace as value.
const SCENARIO: &str = "test.example/scenario";
/// The label of all nodes of a scenario.
const CREATOR: &str = "test.example/creator";
const FINALIZER: &str = "test.example/hold";

/// Each scenario holds for both strategies.
const STRATEGIES: [&str; 2] = ["RollingUpdate", "OnDelete"];

/// A DaemonSet and its nodes.
struct Scene {
    namespace: TestNamespace,
}

impl Scene {
    async fn without_set(scenario: &str) -> Result<Self> {
        Ok(Self { namespace: namespace(scenario).await? })
    }

    /// Returns a DaemonSet for the nodes of this scenario, with more fields of the spec and of the pod.
    fn set(&self, fields: &Value, pod_fields: &Value) -> Result<DaemonSet> {
        let mut pod = json!(still_pod_spec());
        pod["terminationGracePeriodSeconds"] = json!(0);
        pod["nodeSelector"] = json!({ SCENARIO: self.namespace.namespace });
        extend(&mut pod, pod_fields)?;
        let mut spec = json!({
            "selector": { "matchLabels": labels() },
            "template": { "metadata": { "labels": labels() }, "spec": pod },
        });
        extend(&mut spec, fields)?;
        Ok(serde_json::from_value(json!({ "metadata": { "name": NAME }, "spec": spec }))?)
    }

    async fn create(scenario: &str, fields: Value, pod_fields: Value) -> Result<Self> {
        let scene = Self::without_set(scenario).await?;
        scene.namespace.create(&scene.set(&fields, &pod_fields)?).await?;
        Ok(scene)
    }

    /// Creates a DaemonSet with one of the [`STRATEGIES`] and more fields of the pod.
    async fn with_strategy(scenario: &str, name: &str, pod_fields: Value) -> Result<Self> {
        Self::create(&scenario_of(scenario, name), strategy(name), pod_fields).await
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.namespace.client.clone())
    }

    fn node_name(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.namespace.namespace)
    }

    async fn add_node(&self, suffix: &str, labeled: bool, mut node: Node) -> Result<String> {
        let name = self.node_name(suffix);
        node.metadata.name = Some(name.clone());
        for key in [CREATOR, SCENARIO].into_iter().take(1 + usize::from(labeled)) {
            node.labels_mut().insert(key.to_owned(), self.namespace.namespace.clone());
        }
        self.nodes().create(&PostParams::default(), &node).await?;
        Ok(name)
    }

    async fn add_nodes(&self, count: usize) -> Result<()> {
        for number in 0..count {
            self.add_node(&number.to_string(), true, Node::default()).await?;
        }
        Ok(())
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        self.namespace.pods(LABEL).await
    }

    /// Waits until exactly these pods exist, and checks their owner.
    async fn has_pods(&self, count: usize) -> Result<Vec<Pod>> {
        let active = |pods: &Vec<Pod>| pods.len() == count && pods.iter().all(is_active);
        let pods = eventually(&format!("{count} active pods"), || self.pods(), active).await?;
        for pod in &pods {
            let owner = controller_of(&pod.metadata).context("a controller")?;
            ensure!(owner.kind == "DaemonSet" && pod.owner_references().len() == 1, "{:?}", pod.metadata);
        }
        Ok(pods)
    }

    async fn start_pods(&self) -> Result<()> {
        for pod in self.pods().await?.iter().filter(|pod| is_active(pod) && !is_ready(pod)) {
            self.namespace.start_pod(&pod.name_any()).await?;
        }
        Ok(())
    }

    /// Makes pods ready until the DaemonSet is accepted.
    async fn start_until(&self, what: &str, accept: impl Fn(&DaemonSet) -> bool) -> Result<DaemonSet> {
        let step = || async {
            self.start_pods().await?;
            self.get().await
        };
        eventually(what, step, accept).await
    }

    /// Makes all pods ready, and waits until the status has this number of ready pods.
    async fn is_ready(&self, count: i32) -> Result<DaemonSet> {
        self.start_until(&format!("{count} pods are ready"), |set| is_counted(set, count)).await
    }

    /// Makes pods ready until the status has this number of ready pods with the newest template.
    async fn is_updated(&self, count: i32) -> Result<DaemonSet> {
        let is_updated = |set: &DaemonSet| {
            let updated = set.status.as_ref().and_then(|status| status.updated_number_scheduled);
            is_counted(set, count) && updated.unwrap_or(0) == count
        };
        self.start_until(&format!("{count} pods are updated"), is_updated).await
    }

    /// Checks that the active ones of these pods are for exactly these nodes.
    fn targets_are(&self, pods: &[Pod], suffixes: [&str; 3]) -> Result<()> {
        let mut targets: Vec<_> = pods.iter().filter(|pod| is_active(pod)).filter_map(target).collect();
        targets.sort();
        ensure!(targets == suffixes.map(|suffix| self.node_name(suffix)), "{targets:?}");
        Ok(())
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

    /// Waits until a DaemonSet without nodes has no pods, and removes the nodes, because other scenarios run on the
    /// same control plane.
    async fn end(self) -> Result<()> {
        let selector = pairs(&[(SCENARIO, "no-namespace")]);
        let deselect = |spec: &mut DaemonSetSpec| {
            spec.template.spec.get_or_insert_default().node_selector = Some(selector.clone());
        };
        self.update(deselect).await?;
        let step = || async {
            for pod in self.pods().await?.iter().filter(|pod| !pod.finalizers().is_empty()) {
                self.namespace.update::<Pod>(&pod.name_any(), |pod| pod.metadata.finalizers = None).await?;
            }
            Ok((self.get().await?, self.pods().await?))
        };
        let is_empty = |(set, pods): &(DaemonSet, Vec<Pod>)| {
            let status = set.status.clone().unwrap_or_default();
            let numbers = (status.current_number_scheduled, status.number_misscheduled);
            status.observed_generation == set.metadata.generation && numbers == (0, 0) && pods.is_empty()
        };
        eventually("no pod is left", step, is_empty).await?;
        let nodes = ListParams::default().labels(&format!("{CREATOR}={}", self.namespace.namespace));
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

fn scenario_of(scenario: &str, strategy: &str) -> String {
    format!("{scenario}-{}", strategy.to_lowercase())
}

/// Returns whether the newest status has this number of ready and available pods.
fn is_counted(set: &DaemonSet, count: i32) -> bool {
    let status = set.status.clone().unwrap_or_default();
    status.observed_generation == set.metadata.generation
        && (status.number_ready, status.number_available.unwrap_or(0)) == (count, count)
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

fn tainted_with(taint: Taint) -> Node {
    Node { spec: Some(NodeSpec { taints: Some(vec![taint]), ..NodeSpec::default() }), ..Node::default() }
}

fn tainted(key: &str) -> Node {
    tainted_with(taint(key))
}

fn set_condition(node: &mut Node, of_type: &str, status: &str) {
    let condition =
        NodeCondition { type_: of_type.to_owned(), status: status.to_owned(), ..NodeCondition::default() };
    node.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
}

#[tokio::test]
async fn each_selected_node_gets_one_pod() -> Result<()> {
    for name in STRATEGIES {
        let scene = Scene::with_strategy("ds-simple", name, json!({})).await?;
        scene.add_nodes(3).await?;
        scene.add_node("other", false, Node::default()).await?;
        let pods = scene.has_pods(3).await?;
        scene.targets_are(&pods, ["0", "1", "2"])?;
        let set = scene.is_updated(3).await?;
        let status = set.status.unwrap_or_default();
        let numbers = (status.desired_number_scheduled, status.current_number_scheduled);
        ensure!((numbers, status.number_misscheduled) == ((3, 3), 0), "{status:?}");
        // A node that gets the label gets a pod.
        let other = scene.node_name("other");
        let label = json!({ "metadata": { "labels": { SCENARIO: scene.namespace.namespace } } });
        scene.nodes().patch(&other, &PatchParams::default(), &Patch::Merge(label)).await?;
        scene.has_pods(4).await?;
        scene.is_ready(4).await?;
        scene.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn node_that_matches_one_affinity_term_gets_a_pod() -> Result<()> {
    for name in STRATEGIES {
        let scene = Scene::without_set(&scenario_of("ds-affinity", name)).await?;
        let named = scene.node_name("1");
        let requirement =
            |key: &str, value: &str| json!([{ "key": key, "operator": "In", "values": [value] }]);
        let required = json!({ "nodeSelectorTerms": [
            { "matchExpressions": requirement(SCENARIO, &scene.namespace.namespace) },
            { "matchFields": requirement("metadata.name", &named) },
        ] });
        let affinity =
            json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } });
        let set = scene.set(&strategy(name), &json!({ "nodeSelector": null, "affinity": affinity }))?;
        scene.namespace.create(&set).await?;
        for number in 0..6 {
            scene.add_node(&number.to_string(), (2..4).contains(&number), Node::default()).await?;
        }
        let pods = scene.has_pods(3).await?;
        scene.targets_are(&pods, ["1", "2", "3"])?;
        scene.is_ready(3).await?;
        scene.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn terminal_pod_of_a_daemon_set_is_replaced() -> Result<()> {
    for (phase, finalizer) in [("Succeeded", None), ("Failed", None), ("Succeeded", Some(FINALIZER))] {
        for name in STRATEGIES {
            let scenario = format!("ds-{}-{}", phase.to_lowercase(), finalizer.map_or("plain", |_| "held"));
            let scene = Scene::without_set(&scenario_of(&scenario, name)).await?;
            let mut set = scene.set(&strategy(name), &json!({}))?;
            let template = &mut set.spec.get_or_insert_default().template;
            template.metadata.get_or_insert_default().finalizers = finalizer.map(|it| vec![it.to_owned()]);
            scene.namespace.create(&set).await?;
            scene.add_nodes(3).await?;
            let pods = scene.has_pods(3).await?;
            scene.is_ready(3).await?;
            let ended = pods.first().context("a pod")?;
            let end = |pod: &mut Pod| pod.status.get_or_insert_default().phase = Some(phase.to_owned());
            scene.namespace.update_status::<Pod>(&ended.name_any(), end).await?;
            let is_replaced = |pods: &Vec<Pod>| {
                let (active, ended): (Vec<_>, Vec<_>) = pods.iter().partition(|pod| is_active(pod));
                active.len() == 3 && ended.len() == usize::from(finalizer.is_some())
            };
            let pods = eventually("the pod is replaced", || scene.pods(), is_replaced).await?;
            let held = pods.iter().find(|pod| pod.uid() == ended.uid());
            ensure!(held.is_some() == finalizer.is_some(), "{held:?}");
            scene.targets_are(&pods, ["0", "1", "2"])?;
            scene.is_ready(3).await?;
            scene.end().await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn taint_without_toleration_prevents_a_pod_until_it_is_removed() -> Result<()> {
    for name in STRATEGIES {
        let scene = Scene::with_strategy("ds-tainted", name, json!({})).await?;
        let node = scene.add_node("tainted", true, tainted("key")).await?;
        scene.add_nodes(1).await?;
        let pods = scene.has_pods(1).await?;
        ensure!(pods.iter().filter_map(target).eq([scene.node_name("0")]), "{pods:?}");
        scene.is_ready(1).await?;
        let none = json!({ "spec": { "taints": null } });
        scene.nodes().patch(&node, &PatchParams::default(), &Patch::Merge(none)).await?;
        scene.has_pods(2).await?;
        scene.is_ready(2).await?;
        scene.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn node_that_is_not_ready_gets_a_pod() -> Result<()> {
    for name in STRATEGIES {
        let scene = Scene::with_strategy("ds-not-ready", name, json!({})).await?;
        let mut reported = Node::default();
        set_condition(&mut reported, "Ready", "False");
        let reported = scene.add_node("reported", true, reported).await?;
        let conditions = scene.nodes().get(&reported).await?.status.and_then(|status| status.conditions);
        ensure!(conditions.is_some(), "the API server keeps the conditions of a new node");
        let evicting = Taint { effect: "NoExecute".to_owned(), ..taint("node.kubernetes.io/not-ready") };
        scene.add_node("tainted", true, tainted_with(evicting)).await?;
        scene.has_pods(2).await?;
        scene.is_ready(2).await?;
        scene.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn unschedulable_node_and_node_without_network_get_pods() -> Result<()> {
    for name in STRATEGIES {
        let scene = Scene::with_strategy("ds-unschedulable", name, json!({ "hostNetwork": true })).await?;
        let mut unschedulable = tainted("node.kubernetes.io/unschedulable");
        unschedulable.spec.get_or_insert_default().unschedulable = Some(true);
        scene.add_node("unschedulable", true, unschedulable).await?;
        let mut offline = tainted("node.kubernetes.io/network-unavailable");
        set_condition(&mut offline, "Ready", "False");
        set_condition(&mut offline, "NetworkUnavailable", "True");
        scene.add_node("offline", true, offline).await?;
        scene.has_pods(2).await?;
        scene.is_ready(2).await?;
        scene.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn node_with_too_little_memory_gets_a_pod() -> Result<()> {
    for name in STRATEGIES {
        let container = json!({
            "name": "main",
            "image": "image.example/main:1",
            "resources": { "requests": { "memory": "120M", "cpu": "75m" } },
        });
        let scene = Scene::with_strategy("ds-capacity", name, json!({ "containers": [container] })).await?;
        for (suffix, memory) in [("small", "100M"), ("large", "200M")] {
            let resources = json!({ "memory": memory, "cpu": "2", "pods": "100" });
            let status: NodeStatus = serde_json::from_value(json!({ "allocatable": resources }))?;
            scene.add_node(suffix, true, Node { status: Some(status), ..Node::default() }).await?;
        }
        let pods = scene.has_pods(2).await?;
        // A scheduler binds only the pod of the large node.
        let large = scene.node_name("large");
        let bound = pods.iter().find(|pod| target(pod).as_ref() == Some(&large)).context("a pod")?;
        scene.namespace.start_pod(&bound.name_any()).await?;
        let is_started = |set: &DaemonSet| is_counted(set, 1);
        let set = eventually("one pod is ready", || scene.get(), is_started).await?;
        let status = set.status.unwrap_or_default();
        let numbers = (status.desired_number_scheduled, status.current_number_scheduled);
        ensure!((numbers, status.number_unavailable) == ((2, 2), Some(1)), "{status:?}");
        scene.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn status_of_a_daemon_set_is_written_despite_a_failed_create() -> Result<()> {
    for name in STRATEGIES {
        let scene = Scene::with_strategy("ds-quota", name, json!({})).await?;
        scene.namespace.limit("two-pods", "pods", 2).await?;
        scene.add_nodes(5).await?;
        scene.has_pods(2).await?;
        scene.is_ready(2).await?;
        scene.end().await?;
    }
    Ok(())
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
    scene.add_node("second", true, Node::default()).await?;
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

fn tolerates(key: &str) -> Toleration {
    Toleration { key: Some(key.to_owned()), operator: Some("Exists".to_owned()), ..Toleration::default() }
}

/// Returns the keys of the zones that a pod tolerates; the controller adds other tolerations.
fn tolerated_zones(pod: &Pod) -> Vec<&str> {
    let all = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    all.filter_map(|it| it.key.as_deref()).filter(|key| key.starts_with("zone-")).collect()
}

#[tokio::test]
async fn surge_follows_changed_tolerations() -> Result<()> {
    let surge = json!({ "maxSurge": 1, "maxUnavailable": 0 });
    let fields = json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": surge } });
    let phases: [(&[&str], usize, usize); 3] = [
        (&["zone-y", "zone-common"], 4, 4),
        // Two new pods in zone z, one surge pod in the common zone, and the four old pods, which stay until others are
        // available.
        (&["zone-z", "zone-common"], 7, 4),
        // Two new pods in zone y, one surge pod, and the four old pods.
        (&["zone-y", "zone-z", "zone-common"], 7, 6),
    ];
    let pod = json!({ "tolerations": phases[0].0.iter().copied().map(tolerates).collect::<Vec<_>>() });
    let scene = Scene::create("ds-tolerations", fields, pod).await?;
    for zone in ["zone-y", "zone-z", "zone-common"] {
        for number in 0..2 {
            scene.add_node(&format!("{zone}-{number}"), true, tainted(zone)).await?;
        }
    }
    let tolerate = async |zones: &[&str]| {
        let tolerations: Vec<_> = zones.iter().copied().map(tolerates).collect();
        let tolerate = |spec: &mut DaemonSetSpec| {
            spec.template.spec.get_or_insert_default().tolerations = Some(tolerations.clone());
        };
        scene.update(tolerate).await
    };
    for (zones, during, after) in phases {
        tolerate(zones).await?;
        scene.has_pods(during).await?;
        scene.is_updated(i32::try_from(after)?).await?;
        let pods = scene.has_pods(after).await?;
        let is_current = |pod: &Pod| tolerated_zones(pod) == zones;
        ensure!(pods.iter().all(is_current), "not {zones:?}: {pods:#?}");
    }
    tolerate(&[]).await?;
    scene.has_pods(0).await?;
    scene.is_updated(0).await?;
    scene.end().await
}
