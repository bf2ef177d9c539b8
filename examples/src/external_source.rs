//! An external source: labels Nodes with the rack that they stand in, which only an inventory knows.
//!
//! A controller's caches need not come from the API server: whatever can list its objects and tell what changes is a
//! [`ListerWatcher`](windlass::informer::ListerWatcher). Here it is a [`ChannelSource`], into which the program puts
//! what the inventory says, by a webhook or by asking now and then. Everything after it is as ever: a cache that a
//! lister reads, events that become keys, the initial list that workers wait for.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::core::DynamicObject;
use windlass::informer::{ChannelSource, Lister, Selection};
use windlass::object::{Dynamic, ResourceKind, Scope};
use windlass::prelude::*;

/// The label that names the rack.
pub const RACK: &str = "example.com/rack";

/// The controller.
#[derive(Debug)]
pub struct RackLabels {
    nodes: Lister<Node>,
    machines: Lister<DynamicObject>,
    node: Writer<Node>,
}

/// The controller on this inventory. A machine has the name of its Node, and says `rack`.
pub fn rack_labels(inventory: &ChannelSource) -> Registration {
    Registration::with::<RackLabels>(inventory.clone())
}

/// What the inventory is about. No API server has ever heard of it.
fn machine() -> ResourceKind {
    ResourceKind {
        group: "inventory.example.com".into(),
        version: "v1".into(),
        kind: "Machine".into(),
        plural: "machines".into(),
        scope: Scope::Cluster,
    }
}

impl Controller for RackLabels {
    const NAME: &'static str = "rack-labels";
    type Config = ChannelSource;

    fn setup(setup: &mut Setup, inventory: &ChannelSource) -> Result<Self, SetupError> {
        let source = inventory.selecting(&Selection::default());
        Ok(Self {
            machines: setup.watch_from(source, Dynamic::new(machine())).enqueue(by_self).lister(),
            nodes: setup.primary::<Node>().lister(),
            node: setup.writer::<Node>().patch().build(),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(node) = self.nodes.get(key)? else { return Ok(Outcome::Done) };
        let machine = self.machines.get(key)?;
        let rack = machine.as_ref().and_then(rack_of);
        let label = |node: &mut Node| match rack {
            Some(rack) => drop(node.labels_mut().insert(RACK.to_owned(), rack.to_owned())),
            None => drop(node.labels_mut().remove(RACK)),
        };
        self.node.patch(cx, &node, label).await?;
        Ok(Outcome::Done)
    }
}

fn rack_of(machine: &Arc<DynamicObject>) -> Option<&str> {
    machine.data["rack"].as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use windlass::testing::{Cluster, Snapshot, object};

    use super::*;

    fn standing_in(name: &str, rack: &str) -> Value {
        json!({ "metadata": { "name": name }, "rack": rack })
    }

    fn labelled(now: &Snapshot, name: &str) -> Option<String> {
        now.typed::<Node>(name)?.labels().get(RACK).cloned()
    }

    /// What the data center does: it sets up machines and moves and forgets them, while the cluster runs.
    async fn machines_come_and_move_and_go(cluster: Cluster) {
        let inventory = ChannelSource::new(cluster.env());
        inventory.put(&standing_in("n1", "r1")).expect("an object");
        cluster.run([rack_labels(&inventory)]);
        for name in ["n1", "n2"] {
            cluster.create(&object::<Node>(json!({ "metadata": { "name": name } }))).await;
        }
        let first = |now: &Snapshot| labelled(now, "n1").is_some_and(|rack| rack == "r1");
        cluster.eventually("n1 is found in its rack", first).await;

        inventory.replace([standing_in("n1", "r2"), standing_in("n2", "r1")]).expect("objects");
        let moved = |now: &Snapshot| {
            labelled(now, "n1").is_some_and(|rack| rack == "r2")
                && labelled(now, "n2").is_some_and(|rack| rack == "r1")
        };
        cluster.eventually("both are found in their racks", moved).await;

        inventory.delete(&ObjectKey::cluster("n2"));
        cluster.eventually("n2 is in no rack", |now| labelled(now, "n2").is_none()).await;
    }

    #[windlass::simulation(crashes = all)]
    async fn a_crash_at_any_write_changes_nothing(cluster: Cluster) {
        machines_come_and_move_and_go(cluster).await;
    }

    #[windlass::simulation(minutes = 10, faults = all, plans = 5, resources = ["nodes"], caches = [Node])]
    async fn random_faults_change_nothing(cluster: Cluster) {
        machines_come_and_move_and_go(cluster).await;
    }
}
