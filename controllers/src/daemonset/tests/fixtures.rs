//! Builders of DaemonSets, nodes and pods, and a cluster in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::{Value, json};

use super::super::backoff::Admission;
use super::super::plan::{Observed, PodPlan, plan};
use super::super::rollout::roll_out;
use super::super::spec::{Strategy, strategy};
use crate::shared::fixtures::{at, node_view, pod_view, ready_condition};
use crate::shared::node_view::NodeView;
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// Hash of pods with the present template.
pub(super) const HASH: &str = "new";

/// Returns a DaemonSet that a user updates by deleting pods, with the fields of `spec`.
pub(super) fn set(spec: Value) -> DaemonSet {
    let mut set = json!({
        "metadata": { "namespace": "default", "name": "agent", "uid": "uid-agent", "generation": 1 },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "updateStrategy": { "type": "OnDelete" },
            "template": {
                "metadata": { "labels": { "app": "agent" } },
                "spec": { "containers": [{ "name": "main", "image": "agent:1" }] },
            },
        },
    });
    merge(&mut set["spec"], spec);
    serde_json::from_value(set).expect("a DaemonSet")
}

/// Returns a DaemonSet whose pods have these fields in their spec.
pub(super) fn with_pod_spec(spec: Value) -> DaemonSet {
    set(json!({ "template": { "spec": spec } }))
}

/// Returns the update strategy without surge.
pub(super) fn unavailable(limit: impl Into<Value>) -> Value {
    let rolling = json!({ "maxUnavailable": limit.into() });
    json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": rolling } })
}

/// Returns the update strategy with surge.
pub(super) fn surge(limit: impl Into<Value>) -> Value {
    let rolling = json!({ "maxUnavailable": 0, "maxSurge": limit.into() });
    json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": rolling } })
}

fn merge(value: &mut Value, change: Value) {
    match (value, change) {
        (Value::Object(members), Value::Object(changes)) => {
            for (key, change) in changes {
                merge(members.entry(key).or_insert(Value::Null), change);
            }
        }
        (value, change) => *value = change,
    }
}

/// Returns a node with labels.
pub(super) fn node(name: &str, labels: Value) -> NodeView {
    node_view(&json!({ "metadata": { "name": name, "labels": labels } }))
}

/// Returns a node with a taint.
pub(super) fn tainted(name: &str, key: &str, effect: &str) -> NodeView {
    let taints = json!([{ "key": key, "effect": effect }]);
    node_view(&json!({ "metadata": { "name": name }, "spec": { "taints": taints } }))
}

/// Returns a pod on a node, with a hash, that was created `age` seconds after the origin.
pub(super) fn pod(name: &str, node: &str, hash: &str, age: i64) -> PodView {
    pod_view(&json!({
        "metadata": {
            "namespace": "default", "name": name, "uid": format!("uid-{name}"),
            "labels": { "app": "agent", "controller-revision-hash": hash },
            "creationTimestamp": at(age).to_string(),
        },
        "spec": { "nodeName": node },
    }))
}

/// Returns a pod that is not bound and was created for a node.
pub(super) fn pinned_pod(name: &str, terms: Value) -> PodView {
    let required = json!({ "nodeSelectorTerms": terms });
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } });
    pod_view(&json!({
        "metadata": { "namespace": "default", "name": name, "labels": { "app": "agent" } },
        "spec": { "affinity": affinity },
    }))
}

/// Returns the pod, ready since `since` seconds after the origin.
pub(super) fn ready(pod: PodView, since: i64) -> PodView {
    PodView { ready: Some(ready_condition("True", Some(at(since)))), ..pod }
}

/// A cluster in which requests take effect immediately. Time is in seconds from the origin.
pub(super) struct Cluster {
    pub(super) set: DaemonSet,
    pub(super) nodes: Vec<Arc<NodeView>>,
    pub(super) pods: BTreeMap<String, PodView>,
    /// Hash of the present template.
    pub(super) hash: String,
    pub(super) now: i64,
    /// Number of failed syncs.
    pub(super) attempts: u32,
    created: usize,
}

impl Cluster {
    /// Returns a cluster with nodes `node-0`, `node-1`, ... and no pods.
    pub(super) fn new(set: DaemonSet, nodes: usize) -> Self {
        let nodes = (0..nodes).map(|number| Arc::new(node(&format!("node-{number}"), json!({}))));
        let (nodes, hash) = (nodes.collect(), HASH.to_owned());
        Self { set, nodes, pods: BTreeMap::new(), hash, now: 0, attempts: 0, created: 0 }
    }

    /// Changes the template.
    pub(super) fn update(&mut self, hash: &str, set: DaemonSet) {
        hash.clone_into(&mut self.hash);
        self.set = set;
    }

    pub(super) fn add(&mut self, pod: PodView) {
        self.pods.insert(pods::name(&pod.metadata).to_owned(), pod);
    }

    pub(super) fn time(&self) -> Timestamp {
        at(self.now)
    }

    /// Returns the plan of a sync. Failed pods can be deleted.
    pub(super) fn plan(&self) -> PodPlan {
        let pods: Vec<_> = self.pods.values().cloned().map(Arc::new).collect();
        let observed = Observed::new(&self.set, &self.nodes, &pods, &self.hash, self.time());
        let observed = observed.with_attempts(self.attempts);
        let plan = plan(&observed, |_| Admission::Delete);
        if plan.is_empty() && strategy(&self.set) == Strategy::RollingUpdate {
            return roll_out(&observed).expect("a plan").limited();
        }
        plan.limited()
    }

    /// Runs one sync, and returns the numbers of created and deleted pods.
    pub(super) fn sync(&mut self) -> (usize, usize) {
        let plan = self.plan();
        plan.delete.iter().for_each(|pod| self.remove(pod));
        plan.create.iter().for_each(|node| self.create(node));
        (plan.create.len(), plan.delete.len())
    }

    /// Runs one sync in which each create or delete on a node fails. Creates are sent in growing batches, up to the
    /// first batch with a failure.
    pub(super) fn sync_with_failures_on(&mut self, failing: &str) {
        let plan = self.plan();
        let (mut rest, mut size, mut is_failed) = (&plan.create[..], 1, false);
        while !rest.is_empty() && !is_failed {
            let (batch, later) = rest.split_at(size.min(rest.len()));
            is_failed = batch.iter().any(|node| &**node == failing);
            batch.iter().filter(|node| &***node != failing).for_each(|node| self.create(node));
            (rest, size) = (later, size * 2);
        }
        let (rejected, accepted): (Vec<_>, Vec<_>) =
            plan.delete.iter().partition(|pod| &*pod.node == failing);
        accepted.into_iter().for_each(|pod| self.remove(pod));
        self.attempts = if is_failed || !rejected.is_empty() { self.attempts + 1 } else { 0 };
    }

    fn remove(&mut self, pod: &PodView) {
        self.pods.remove(pods::name(&pod.metadata));
    }

    fn create(&mut self, node: &str) {
        self.created += 1;
        let name = format!("agent-{:04}", self.created);
        self.add(pod(&name, node, &self.hash.clone(), self.now));
    }

    /// Runs syncs until a sync changes nothing. Returns the numbers of created and deleted pods of the other syncs.
    pub(super) fn syncs(&mut self) -> Vec<(usize, usize)> {
        let mut syncs = Vec::new();
        loop {
            match self.sync() {
                (0, 0) => return syncs,
                sync => syncs.push(sync),
            }
            assert!(syncs.len() < 100, "the syncs do not converge: {syncs:?}");
        }
    }

    /// Changes the readiness of `count` pods to `is_ready`, among the pods for which `applies` returns true.
    pub(super) fn set_ready(
        &mut self,
        is_ready: bool,
        mut count: usize,
        applies: impl Fn(&PodView, &Self) -> bool,
    ) {
        let chosen = |pod: &&PodView| pods::is_ready(pod) != is_ready && applies(pod, self);
        let names: Vec<_> =
            self.pods.values().filter(chosen).map(|pod| pods::name(&pod.metadata).to_owned()).collect();
        for name in names.into_iter().take(count) {
            let status = if is_ready { "True" } else { "False" };
            let condition = ready_condition(status, Some(self.time()));
            self.pods.get_mut(&name).expect("a pod").ready = Some(condition);
            count -= 1;
        }
        assert_eq!(count, 0, "too few pods");
    }

    /// Makes all pods ready.
    pub(super) fn set_all_ready(&mut self) {
        let unready = self.pods.values().filter(|pod| !pods::is_ready(pod)).count();
        self.set_ready(true, unready, |_, _| true);
    }

    /// Returns whether a pod has the present template.
    pub(super) fn is_updated(&self, pod: &PodView) -> bool {
        pod.metadata.labels.get("controller-revision-hash") == Some(&self.hash)
    }
}
