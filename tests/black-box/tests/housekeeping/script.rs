//! A seeded script of operations on namespaces, nodes and pods. The next step depends on the seed and on earlier steps
//! only, never on objects, so that it is equal for all implementations.

use serde_json::{Value, json};

/// Names of the namespaces.
pub(crate) const NAMESPACES: [&str; 4] = ["script-a", "script-b", "script-c", "script-d"];

/// Numbers of nodes. Neighbors differ by one at the limits at which the TTL changes: below 90 and above 100 nodes, with
/// the [two nodes of the pods](crate::pods). So no other node is added or removed while the TTL changes.
const NODE_COUNTS: [usize; 6] = [40, 87, 88, 98, 99, 130];

/// The first number of nodes with which the TTL grows, and the last with which it shrinks.
const LONG_TTL: usize = 99;
const SHORT_TTL: usize = 87;

/// Steps between two batches of pods, at least.
const STEPS_PER_BATCH: usize = 50;

/// One step of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    CreateNamespace(&'static str),
    DeleteNamespace(&'static str),
    /// Merges a patch into the `default` ServiceAccount.
    ChangeAccount(&'static str, Value),
    DeleteAccount(&'static str),
    /// Merges a patch into the ConfigMap of the root CA.
    ChangeRootCa(&'static str, Value),
    DeleteRootCa(&'static str),
    /// Adds or removes the last nodes. All nodes then have this TTL.
    SetNodes {
        count: usize,
        ttl: &'static str,
    },
    /// Sets or removes the annotation of a node.
    ChangeTtl {
        node: usize,
        value: Value,
    },
    /// Creates pods and changes their nodes.
    CreatePods {
        batch: usize,
        seed: u64,
    },
}

/// A generator of steps.
#[derive(Debug)]
pub(crate) struct Script {
    rng: fastrand::Rng,
    exists: [bool; NAMESPACES.len()],
    /// Index of the number of nodes; `None` at the start, without nodes.
    nodes: Option<usize>,
    ttl: &'static str,
    batches: usize,
    steps_since_batch: usize,
}

impl Script {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            exists: [false; NAMESPACES.len()],
            nodes: None,
            ttl: "0",
            batches: 0,
            steps_since_batch: STEPS_PER_BATCH,
        }
    }

    pub(crate) fn next(&mut self) -> Operation {
        self.steps_since_batch += 1;
        // A batch adds a third node for a moment, which must not change the TTL.
        if self.nodes == Some(0) && self.steps_since_batch > STEPS_PER_BATCH {
            (self.batches, self.steps_since_batch) = (self.batches + 1, 0);
            return Operation::CreatePods { batch: self.batches, seed: self.rng.u64(..) };
        }
        match (self.nodes, self.rng.u32(..10)) {
            (None, _) | (_, 0..3) => self.set_nodes(),
            (Some(index), 3) => self.change_ttl(NODE_COUNTS[index]),
            _ => self.change_namespace(),
        }
    }

    fn set_nodes(&mut self) -> Operation {
        let last = NODE_COUNTS.len() - 1;
        let index = match self.nodes {
            None => 0,
            Some(0) => 1,
            Some(index) if index == last => last - 1,
            Some(index) => index + 1 - 2 * self.rng.usize(..2),
        };
        self.nodes = Some(index);
        let count = NODE_COUNTS[index];
        match count {
            LONG_TTL.. => self.ttl = "15",
            ..=SHORT_TTL => self.ttl = "0",
            _ => {}
        }
        Operation::SetNodes { count, ttl: self.ttl }
    }

    fn change_ttl(&mut self, nodes: usize) -> Operation {
        let values = [json!("7"), json!("soon"), json!(""), Value::Null];
        let value = values[self.rng.usize(..values.len())].clone();
        Operation::ChangeTtl { node: self.rng.usize(..nodes), value }
    }

    fn change_namespace(&mut self) -> Operation {
        let index = self.rng.usize(..NAMESPACES.len());
        let name = NAMESPACES[index];
        if !self.exists[index] {
            self.exists[index] = true;
            return Operation::CreateNamespace(name);
        }
        match self.rng.u32(..9) {
            0 => {
                self.exists[index] = false;
                Operation::DeleteNamespace(name)
            }
            1 | 2 => Operation::DeleteAccount(name),
            3 => Operation::ChangeAccount(name, self.metadata()),
            4 => Operation::DeleteRootCa(name),
            _ => Operation::ChangeRootCa(name, self.root_ca_patch()),
        }
    }

    /// Returns a patch of labels and annotations.
    fn metadata(&mut self) -> Value {
        let value = self.rng.u32(..3).to_string();
        json!({ "metadata": { "labels": { "by": value }, "annotations": { "by": value } } })
    }

    fn root_ca_patch(&mut self) -> Value {
        const DESCRIPTION: &str = "kubernetes.io/description";
        match self.rng.u32(..7) {
            0 => json!({ "data": { "ca.crt": "other" } }),
            1 => json!({ "data": { "ca.crt": null } }),
            2 => json!({ "data": null }),
            3 => json!({ "data": { "more": "data" } }),
            4 => json!({ "metadata": { "annotations": { DESCRIPTION: "other" } } }),
            5 => json!({ "metadata": { "annotations": { DESCRIPTION: null } } }),
            _ => self.metadata(),
        }
    }
}
