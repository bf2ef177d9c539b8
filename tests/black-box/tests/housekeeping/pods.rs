//! Batches of pods on nodes that exist, that are out of service, and that do not exist.
//!
//! The collector deletes them in passes, and quarantines a missing node before. So the pods are compared only at the
//! end, when several passes have changed nothing.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};
use windlass_black_box::test_namespace::TestNamespace;

/// Pods of a batch.
const PODS: usize = 40;

/// The pods that the collector keeps although they have terminated; all others are deleted, oldest first.
pub(crate) const TERMINATED_PODS: usize = 2;

/// Time until the collector has seen a missing node in two passes, with its quarantine in between: 20 s, 40 s, 20 s,
/// and a margin for a busy machine.
const CERTAIN: Duration = Duration::from_secs(95);

/// Time without a change after that: two passes. A pod that fails in one pass can be one too many in the next.
const QUIET: Duration = Duration::from_secs(45);

/// Time after which changes count as endless.
const MAX_CHANGES: Duration = Duration::from_secs(240);

/// Prefix of the names of the nodes. These exist after a batch:
const NODES: &str = "pods-";
const HEALTHY: &str = "pods-healthy";
const OUT_OF_SERVICE: &str = "pods-out-of-service";
/// This one is deleted after the pods are created.
const DELETED: &str = "pods-deleted";
/// This one never existed.
const MISSING: &str = "pods-missing";

/// The pods of all batches.
#[derive(Debug)]
pub(crate) struct Pods {
    namespace: TestNamespace,
    last_batch: Option<Instant>,
}

impl Pods {
    pub(crate) fn new(namespace: TestNamespace) -> Self {
        Self { namespace, last_batch: None }
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.namespace.client.clone())
    }

    /// Returns whether the node belongs to the pods.
    pub(crate) fn owns(node: &Node) -> bool {
        node.name_any().starts_with(NODES)
    }

    /// Creates the nodes that all batches share.
    pub(crate) async fn create_nodes(&self) -> Result<()> {
        self.create_node(HEALTHY, "True").await?;
        self.create_node(OUT_OF_SERVICE, "False").await?;
        let taint = json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
        let patch = Patch::Merge(json!({ "spec": { "taints": taint } }));
        self.nodes().patch(OUT_OF_SERVICE, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn create_node(&self, name: &str, ready: &str) -> Result<()> {
        let node = json!({
            "metadata": { "name": name },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] },
        });
        self.nodes().create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        Ok(())
    }

    /// Creates pods one after another, so that they are in the same order for all implementations, and deletes a node.
    pub(crate) async fn create_batch(&mut self, batch: usize, seed: u64) -> Result<()> {
        let mut rng = fastrand::Rng::with_seed(seed);
        self.create_node(DELETED, "True").await?;
        for number in 0..PODS {
            self.create_pod(&format!("pod-{batch:02}-{number:02}"), &mut rng).await?;
        }
        self.nodes().delete(DELETED, &DeleteParams::default()).await?;
        self.last_batch = Some(Instant::now());
        Ok(())
    }

    async fn create_pod(&self, name: &str, rng: &mut fastrand::Rng) -> Result<()> {
        let nodes = [Some(HEALTHY), Some(OUT_OF_SERVICE), Some(DELETED), Some(MISSING), None];
        let phases = ["Pending", "Running", "Succeeded", "Failed"];
        let (node, phase) = (nodes[rng.usize(..nodes.len())], phases[rng.usize(..phases.len())]);
        let finalizers = if rng.bool() { &["test.example/finalizer"][..] } else { &[] };
        let pod = json!({
            "metadata": { "name": name, "finalizers": finalizers },
            "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "image" }] },
        });
        self.namespace.create::<Pod>(&serde_json::from_value(pod)?).await?;
        let change = |pod: &mut Pod| pod.status.get_or_insert_default().phase = Some(phase.to_owned());
        let changed = self.namespace.update_status::<Pod>(name, change).await;
        // A pass can delete the pod at any time.
        if changed.is_err() && self.namespace.find::<Pod>(name).await?.is_some() {
            changed.context("setting the phase")?;
        }
        if rng.u32(..3) == 0 {
            let slowly = DeleteParams::default().grace_period(300);
            match self.namespace.api::<Pod>().delete(name, &slowly).await {
                Err(kube::Error::Api(refusal)) if refusal.code == 404 => {}
                deleted => drop(deleted?),
            }
        }
        Ok(())
    }

    /// Waits until the collector has nothing to do, and returns the remaining pods.
    pub(crate) async fn settle(&self) -> Result<Value> {
        let Some(begun) = self.last_batch else { return Ok(json!({})) };
        let mut last = self.comparable().await?;
        let started = Instant::now();
        let mut unchanged_since = started;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let pods = self.comparable().await?;
            if pods != last {
                unchanged_since = Instant::now();
                last = pods;
            }
            if begun.elapsed() >= CERTAIN && unchanged_since.elapsed() >= QUIET {
                return Ok(last);
            }
            ensure!(started.elapsed() < MAX_CHANGES, "the pods do not settle: {last}");
        }
    }

    async fn comparable(&self) -> Result<Value> {
        let pods = self.namespace.api::<Pod>().list(&ListParams::default()).await?;
        let pods = pods.items.into_iter().map(|pod| (pod.name_any(), comparable(pod)));
        Ok(Value::Object(pods.collect::<Map<_, _>>()))
    }
}

/// Returns the parts of a pod that the collector can change.
fn comparable(pod: Pod) -> Value {
    let is_deleting = pod.metadata.deletion_timestamp.is_some();
    let status = pod.status.unwrap_or_default();
    let mut conditions = json!(status.conditions.unwrap_or_default());
    for condition in conditions.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.remove("lastTransitionTime");
    }
    json!({
        "isDeleting": is_deleting,
        "graceSeconds": pod.metadata.deletion_grace_period_seconds,
        "finalizers": pod.metadata.finalizers,
        "phase": status.phase,
        "reason": status.reason,
        "message": status.message,
        "conditions": conditions,
    })
}
