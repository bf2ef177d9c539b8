//! What there is in the cluster at one moment, reduced to what is shown.
//!
//! It is read from the storage of the server in this process: a snapshot costs nothing, and nobody is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;
use windlass_api_server::storage::{Collection, Storage, Stored};

/// How far a pod has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Created, and on no node yet.
    Waiting,
    /// On a node, and not ready.
    Starting,
    /// Ready for traffic.
    Ready,
    /// Deleted, and not gone yet.
    Ending,
    /// Its containers have ended for good.
    Over,
}

/// A pod as the demo shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodView {
    pub(super) node: Option<String>,
    pub(super) address: Option<String>,
    pub(super) stage: Stage,
}

/// A ReplicaSet as the demo shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SetView {
    /// How many pods it is to have.
    pub(super) wanted: u64,
    /// How many its status reports.
    pub(super) reported: u64,
    /// How many of those are ready.
    pub(super) ready: u64,
}

/// The cluster at one moment. Names are `namespace/name`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Observed {
    /// The revision of the last write.
    pub(super) revision: u64,
    pub(super) sets: BTreeMap<String, SetView>,
    pub(super) pods: BTreeMap<String, PodView>,
    /// Ready addresses, by Endpoints.
    pub(super) addresses: BTreeMap<String, BTreeSet<String>>,
    pub(super) nodes: usize,
}

impl Observed {
    /// The cluster as `storage` has it now. Nothing is read as long as nothing is written.
    ///
    /// # Errors
    /// When the storage cannot be read.
    pub(super) fn renewed(self, storage: &dyn Storage) -> Result<Self> {
        if storage.revision() == self.revision {
            return Ok(self);
        }
        Ok(Self {
            revision: storage.revision(),
            // Effects before their causes, so that none is seen without its cause.
            addresses: read(storage, "", "endpoints", ready_addresses)?,
            pods: read(storage, "", "pods", pod)?,
            sets: read(storage, "apps", "replicasets", set)?,
            nodes: read(storage, "", "nodes", |_| ())?.len(),
        })
    }

    /// How many pods are in each stage.
    pub(super) fn stages(&self) -> BTreeMap<Stage, usize> {
        let mut stages = BTreeMap::new();
        for pod in self.pods.values() {
            *stages.entry(pod.stage).or_default() += 1;
        }
        stages
    }

    /// How many pods are in that stage.
    pub(super) fn count(&self, stage: Stage) -> usize {
        self.pods.values().filter(|pod| pod.stage == stage).count()
    }
}

fn read<T>(
    storage: &dyn Storage,
    group: &str,
    resource: &str,
    view: impl Fn(&Value) -> T,
) -> Result<BTreeMap<String, T>> {
    let snapshot = storage.read(&Collection::new(group, resource), None)?;
    let name = |stored: &Arc<Stored>| match &*stored.key.namespace {
        "" => stored.key.name.to_string(),
        namespace => format!("{namespace}/{}", stored.key.name),
    };
    Ok(snapshot.objects.values().map(|stored| (name(stored), view(&stored.value.read()))).collect())
}

fn set(set: &Value) -> SetView {
    let number = |path: &str| set.pointer(path).and_then(Value::as_u64).unwrap_or_default();
    SetView {
        wanted: number("/spec/replicas"),
        reported: number("/status/replicas"),
        ready: number("/status/readyReplicas"),
    }
}

fn pod(pod: &Value) -> PodView {
    let text = |path: &str| pod.pointer(path).and_then(Value::as_str).map(str::to_owned);
    PodView { node: text("/spec/nodeName"), address: text("/status/podIP"), stage: stage(pod) }
}

fn stage(pod: &Value) -> Stage {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let is_ready = conditions.into_iter().flatten().any(|it| it["type"] == "Ready" && it["status"] == "True");
    let phase = pod.pointer("/status/phase").and_then(Value::as_str);
    match (pod.pointer("/metadata/deletionTimestamp"), phase) {
        (Some(_), _) => Stage::Ending,
        (None, Some("Succeeded" | "Failed")) => Stage::Over,
        (None, _) if is_ready => Stage::Ready,
        (None, _) if pod.pointer("/spec/nodeName").is_some() => Stage::Starting,
        (None, _) => Stage::Waiting,
    }
}

fn ready_addresses(endpoints: &Value) -> BTreeSet<String> {
    let subsets = endpoints["subsets"].as_array().into_iter().flatten();
    let addresses = subsets.flat_map(|subset| subset["addresses"].as_array().into_iter().flatten());
    addresses.filter_map(|address| address["ip"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_is_being_deleted_is_ending_however_ready_it_is() {
        let ready = json!({ "spec": { "nodeName": "node-0" }, "status": {
            "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
        } });
        assert_eq!(stage(&ready), Stage::Ready);
        let mut ending = ready.clone();
        ending["metadata"] = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        assert_eq!(stage(&ending), Stage::Ending);
        assert_eq!(stage(&json!({ "spec": { "nodeName": "node-0" } })), Stage::Starting);
        assert_eq!(stage(&json!({})), Stage::Waiting);
        assert_eq!(stage(&json!({ "status": { "phase": "Failed" } })), Stage::Over);
    }

    #[test]
    fn only_ready_addresses_count() {
        let endpoints = json!({ "subsets": [
            { "addresses": [{ "ip": "10.0.0.1" }], "notReadyAddresses": [{ "ip": "10.0.0.9" }] },
            { "addresses": [{ "ip": "10.0.0.2" }] },
        ] });
        assert_eq!(ready_addresses(&endpoints), BTreeSet::from(["10.0.0.1".into(), "10.0.0.2".into()]));
    }
}
