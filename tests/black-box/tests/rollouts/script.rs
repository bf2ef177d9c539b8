//! A seeded script of operations on workloads of one kind. The next step depends on the seed and on earlier steps only,
//! never on objects, so that it is equal for all implementations.

mod daemon_set;
mod deployment;
mod stateful_set;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kind::Kind;

/// Names of the workloads of a script.
pub(crate) const NAMES: [&str; 2] = ["a", "b"];

/// An image whose pods never become ready.
pub(crate) const BROKEN: &str = "broken";

/// One step of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Creates a workload; the spec has no selector and no template.
    Create {
        name: &'static str,
        spec: Value,
    },
    /// Applies a strategic merge patch.
    Change {
        name: &'static str,
        patch: Value,
    },
    /// Changes a label of the newest revision, so that the controller no longer selects it.
    ReleaseNewestRevision {
        name: &'static str,
    },
    DeleteNewestRevision {
        name: &'static str,
    },
    /// Deletes the pod with this index in the order of the objects.
    DeletePod {
        name: &'static str,
        index: usize,
    },
    /// Adds the label that a DaemonSet selects to the node with this index, or removes it.
    ToggleNode {
        name: &'static str,
        index: usize,
    },
    /// Deletes the workload without its dependents.
    Orphan {
        name: &'static str,
    },
}

impl Operation {
    pub(crate) fn change_spec(name: &'static str, spec: &Value) -> Self {
        Self::Change { name, patch: json!({ "spec": spec }) }
    }

    pub(crate) fn set_image(name: &'static str, image: &str) -> Self {
        Self::change_spec(name, &json!({ "template": template(image) }))
    }

    pub(crate) fn scale(name: &'static str, replicas: i32) -> Self {
        Self::change_spec(name, &json!({ "replicas": replicas }))
    }

    pub(crate) fn set_history_limit(name: &'static str, limit: i32) -> Self {
        Self::change_spec(name, &json!({ "revisionHistoryLimit": limit }))
    }

    pub(crate) fn annotate(name: &'static str, key: &str, value: &str) -> Self {
        Self::Change { name, patch: json!({ "metadata": { "annotations": { key: value } } }) }
    }
}

/// Returns the patch of a template that sets the image.
fn template(image: &str) -> Value {
    json!({ "spec": { "containers": [{ "name": "main", "image": image }] } })
}

/// State of an existing workload.
#[derive(Debug, Default)]
struct State {
    paused: bool,
    /// Images in the order in which they were set.
    images: Vec<String>,
}

/// A generator of steps.
#[derive(Debug)]
pub(crate) struct Script {
    kind: Kind,
    rng: fastrand::Rng,
    existing: BTreeMap<&'static str, State>,
}

impl Script {
    pub(crate) fn new(kind: Kind, seed: u64) -> Self {
        Self { kind, rng: fastrand::Rng::with_seed(seed), existing: BTreeMap::new() }
    }

    pub(crate) fn next(&mut self) -> Operation {
        let name = NAMES[self.rng.usize(..NAMES.len())];
        let rng = &mut self.rng;
        let Some(state) = self.existing.get_mut(name) else {
            self.existing.insert(name, State::default());
            let spec = match self.kind {
                Kind::Deployment => deployment::spec(rng),
                Kind::StatefulSet => stateful_set::spec(name, rng),
                Kind::DaemonSet => daemon_set::spec(rng),
            };
            return Operation::Create { name, spec };
        };
        let operation = match self.kind {
            Kind::Deployment => deployment::next(name, state, rng),
            Kind::StatefulSet => stateful_set::next(name, state, rng),
            Kind::DaemonSet => daemon_set::next(name, state, rng),
        };
        if matches!(operation, Operation::Orphan { .. }) {
            self.existing.remove(name);
        }
        operation
    }
}

fn image(rng: &mut fastrand::Rng) -> String {
    match rng.u32(..5) {
        0 => BROKEN.to_owned(),
        number => format!("image-{number}"),
    }
}

/// Sets another image.
fn set_image(name: &'static str, state: &mut State, rng: &mut fastrand::Rng) -> Operation {
    let image = image(rng);
    state.images.push(image.clone());
    Operation::set_image(name, &image)
}

/// Sets an earlier image again, so that the controller reuses a revision.
fn roll_back(name: &'static str, state: &mut State) -> Operation {
    state.images.pop();
    Operation::set_image(name, state.images.last().map_or("image-1", String::as_str))
}
