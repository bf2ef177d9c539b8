//! A runnable that counts the Nodes on every replica, whether or not the replica leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use windlass::prelude::*;

/// Stores the number of Nodes every minute.
#[derive(Debug)]
pub struct NodeCount {
    nodes: Lister<Node>,
    count: Arc<AtomicUsize>,
}

impl Runnable for NodeCount {
    const NAME: &'static str = "node-count";
    const RUNS_ON: RunsOn = RunsOn::EveryReplica;
    type Config = Arc<AtomicUsize>;

    fn setup(setup: &mut Setup, count: &Arc<AtomicUsize>) -> Result<Self, SetupError> {
        Ok(Self { nodes: setup.watch::<Node>().lister(), count: Arc::clone(count) })
    }

    async fn run(&self, cx: RunnableContext) -> Result<(), BoxError> {
        while cx.env().timeout(Duration::from_secs(60), cx.stopped()).await.is_err() {
            self.count.store(self.nodes.list().len(), Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass::testing::{Cluster, object};

    use super::*;

    #[windlass::simulation]
    async fn nodes_are_counted_every_minute(cluster: Cluster) {
        let count = Arc::<AtomicUsize>::default();
        cluster.run([Registration::runnable::<NodeCount>(Arc::clone(&count))]);
        for name in ["n1", "n2"] {
            cluster.create(&object::<Node>(json!({ "metadata": { "name": name } }))).await;
        }
        cluster.advance(Duration::from_secs(180)).await;
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}
