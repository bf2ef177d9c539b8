//! Polling: labels each Node with its rack, which an external inventory reports.
//!
//! The API server sends no event when a machine moves, so the controller polls the inventory every minute. The result
//! is a cache like any other: workers wait for the first result, and a key is enqueued when its value appears, changes
//! or disappears.

use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use windlass::prelude::*;

/// The label that names the rack.
pub const RACK: &str = "example.com/rack";

/// The controller.
#[derive(Debug)]
pub struct RackLabels {
    nodes: Lister<Node>,
    node: Writer<Node>,
    racks: PollCache<String>,
}

impl Controller for RackLabels {
    const NAME: &'static str = "rack-labels";
    type Config = Inventory;

    fn setup(setup: &mut Setup, inventory: &Inventory) -> Result<Self, SetupError> {
        let (minute, inventory) = (Timer::every(Duration::from_secs(60)), inventory.clone());
        Ok(Self {
            nodes: setup.primary::<Node>().when(labels_changed()).lister(),
            node: setup.writer::<Node>().patch().build(),
            racks: setup.poll("inventory", minute, move |_| inventory.clone().racks()),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(node) = self.nodes.get(key)? else { return Ok(Outcome::Done) };
        let label = |node: &mut Node| match self.racks.get(key) {
            Some(rack) => drop(node.labels_mut().insert(RACK.into(), rack.to_string())),
            None => drop(node.labels_mut().remove(RACK)),
        };
        self.node.patch(cx, &node, label).await?;
        Ok(Outcome::Done)
    }
}

/// Inventory of a data center, in memory. A real inventory is queried over the network.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    racks: BTreeMap<ObjectKey, String>,
    is_down: bool,
}

impl Inventory {
    /// Moves the machine of a Node to a rack, or removes it from all racks.
    pub fn place(&self, node: &str, rack: Option<&str>) {
        self.change(|state| match rack {
            Some(rack) => drop(state.racks.insert(ObjectKey::cluster(node), rack.to_owned())),
            None => drop(state.racks.remove(&ObjectKey::cluster(node))),
        });
    }

    /// Makes [`racks`](Self::racks) fail while `is_down` is true.
    pub fn fail(&self, is_down: bool) {
        self.change(|state| state.is_down = is_down);
    }

    /// Returns the rack of each Node.
    pub fn racks(self) -> Ready<Result<BTreeMap<ObjectKey, String>, io::Error>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        ready(match state.is_down {
            true => Err(io::Error::other("the inventory is down")),
            false => Ok(state.racks.clone()),
        })
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass::testing::{Cluster, Snapshot, object};

    use super::*;

    fn rack_of(now: &Snapshot, name: &str) -> Option<String> {
        now.get::<Node>(name)?.labels().get(RACK).cloned()
    }

    /// Script: adds, moves and removes machines while the cluster runs.
    async fn machines_are_added_moved_and_removed(cluster: Cluster) {
        let inventory = Inventory::default();
        inventory.place("n1", Some("r1"));
        cluster.run([Registration::controller_with::<RackLabels>(inventory.clone())]);
        for name in ["n1", "n2"] {
            cluster.create(&object::<Node>(json!({ "metadata": { "name": name } }))).await;
        }
        let is_in = |name: &'static str, rack: &'static str| {
            move |now: &Snapshot| rack_of(now, name).as_deref() == Some(rack)
        };
        cluster.eventually("n1 is in its rack", is_in("n1", "r1")).await;

        inventory.fail(true);
        cluster.advance(Duration::from_secs(120)).await;
        assert!(is_in("n1", "r1")(&cluster.snapshot()), "the last answer stays");
        inventory.place("n1", Some("r2"));
        inventory.place("n2", Some("r1"));
        inventory.fail(false);
        cluster.eventually("n1 is in its new rack", is_in("n1", "r2")).await;
        cluster.eventually("n2 is in its rack", is_in("n2", "r1")).await;

        inventory.place("n2", None);
        cluster.eventually("n2 is in no rack", |now| rack_of(now, "n2").is_none()).await;
    }

    #[windlass::simulation(crashes = all)]
    async fn labels_are_right_after_a_crash_at_any_write(cluster: Cluster) {
        machines_are_added_moved_and_removed(cluster).await;
    }

    #[windlass::simulation(minutes = 10, faults = all, plans = 5, resources = ["nodes"], caches = [Node])]
    async fn labels_are_right_after_random_faults(cluster: Cluster) {
        machines_are_added_moved_and_removed(cluster).await;
    }
}
