//! Maintains the configured number of ready nodes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::{Value, json};
use windlass_controller::{
    Context, Controller, Enqueuer, Outcome, ReconcileError, Setup, SetupError, WriteError, Writer, terminal,
};
use windlass_informer::Lister;
use windlass_object::ObjectKey;
use windlass_object::time::seconds;

use super::{NodeOptions, PLAYED};

/// First address of the nodes' network.
const HOSTS: u32 = u32::from_be_bytes([172, 18, 0, 2]);

/// Taint of a new node, until it is ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Creates nodes, and recreates deleted nodes.
#[derive(Debug)]
pub(super) struct NodeController {
    count: u32,
    nodes: Lister<Node>,
    writer: Writer<Node>,
}

impl NodeController {
    fn number_of(&self, key: &ObjectKey) -> Option<u32> {
        let number = key.name().strip_prefix("node-")?.parse().ok()?;
        (number < self.count && name_of(number) == key.name()).then_some(number)
    }

    async fn create(&self, number: u32, cx: &Context) -> Result<Outcome, ReconcileError> {
        let node: Node = serde_json::from_value(node_of(number, cx.env().wall())).map_err(terminal)?;
        match self.writer.create(cx, &node).await {
            // The node exists but is not in the cache yet: its event follows.
            Err(WriteError::Request(kube::Error::Api(status))) if status.code == 409 => Ok(Outcome::Done),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(Outcome::Done),
        }
    }
}

impl Controller for NodeController {
    const NAME: &'static str = "node-keeper";
    type Config = NodeOptions;

    fn setup(setup: &mut Setup, options: &NodeOptions) -> Result<Self, SetupError> {
        let nodes = setup.primary::<Node>().lister();
        let writer = setup.writer::<Node>().create().patch().build();
        Ok(Self { count: options.count, nodes, writer })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(number) = self.number_of(key) else { return Ok(Outcome::Done) };
        match self.nodes.get(key)? {
            None => self.create(number, cx).await,
            // The nodes are ready as soon as they exist.
            Some(node) if has_taint(&node) => {
                self.writer.patch(cx, &node, remove_taint).await?;
                Ok(Outcome::Done)
            }
            Some(_) => Ok(Outcome::Done),
        }
    }

    fn started(&self, queue: &Enqueuer) {
        queue.add_all((0..self.count).map(|number| ObjectKey::cluster(&name_of(number))));
    }
}

fn name_of(number: u32) -> String {
    format!("node-{number}")
}

fn is_taint_of_new_node(taint: &Taint) -> bool {
    taint.key == NOT_READY && taint.effect == "NoSchedule"
}

fn has_taint(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(is_taint_of_new_node)
}

fn remove_taint(node: &mut Node) {
    if let Some(taints) = node.spec.as_mut().and_then(|spec| spec.taints.as_mut()) {
        taints.retain(|taint| !is_taint_of_new_node(taint));
    }
}

fn node_of(number: u32, now: Timestamp) -> Value {
    json!({
        "metadata": {
            "name": name_of(number),
            "annotations": { PLAYED: "true" },
            "labels": {
                "kubernetes.io/hostname": name_of(number),
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
        },
        "status": status_of(number, now),
    })
}

fn status_of(number: u32, now: Timestamp) -> Value {
    let room = json!({ "cpu": "64", "memory": "256Gi", "pods": "10000" });
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({
            "type": type_, "status": status, "reason": reason,
            "lastHeartbeatTime": seconds(now), "lastTransitionTime": seconds(now),
        })
    };
    json!({
        "capacity": room,
        "allocatable": room,
        "addresses": [
            { "type": "InternalIP", "address": std::net::Ipv4Addr::from(HOSTS + number).to_string() },
            { "type": "Hostname", "address": name_of(number) },
        ],
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            condition("Ready", "True", "KubeletReady"),
        ],
        "nodeInfo": {
            "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "windlass", "kernelVersion": "",
            "kubeProxyVersion": "", "kubeletVersion": "v1.36.3", "machineID": "", "operatingSystem": "linux",
            "osImage": "windlass", "systemUUID": "",
        },
    })
}
