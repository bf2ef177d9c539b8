//! Upstream, then Windlass, then upstream maintain the same namespaces, nodes and pods. A newcomer writes nothing while
//! nothing changes, and repairs objects afterwards. Windlass uses upstream's field manager.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt as _;
use serde_json::json;
use windlass_black_box::audit::Audit;
use windlass_black_box::control_plane::with_control_plane;
use windlass_black_box::implementation::{
    HOUSEKEEPING_CLIENTS, HOUSEKEEPING_CONTROLLERS, Implementation, Running,
};
use windlass_black_box::test_namespace::TestNamespace;
use windlass_black_box::wait::eventually_within;
use windlass_harness::ControlPlane;

use crate::objects::{Objects, RESYNC, options};

const PREFIX: &str = "swap-";
const NAMESPACES: usize = 30;

/// With 90 to 100 nodes a new manager, of either implementation, writes a shorter TTL than its predecessor, because
/// this range continues the last TTL.
const NODES: usize = 101;
const TTL: &str = "15";

/// Time in which a newcomer must not write: the first two passes of the collector, and many resyncs.
const REST: Duration = Duration::from_secs(25);

/// Longest time until the collector has begun a pass, and a margin for a busy machine.
const PASS: Duration = Duration::from_secs(60);

/// The field manager of both implementations.
const MANAGER: &str = "kube-controller-manager";

/// Prefixes of the user agents of Windlass with this field manager, and of upstream.
const WINDLASS: &str = concat!("kube-controller-manager/", env!("CARGO_PKG_VERSION"), "/");
const UPSTREAM: &str = "kube-controller-manager/v1.";

struct Swap<'a> {
    plane: &'a ControlPlane,
    audit: &'a Audit,
    objects: Objects,
}

impl Swap<'_> {
    async fn start(&self, implementation: Implementation) -> Result<Running> {
        let arguments = match implementation {
            Implementation::Windlass => &[RESYNC, "--field-manager=kube-controller-manager"][..],
            Implementation::Upstream => &[RESYNC],
        };
        implementation.start_controllers(self.plane, &HOUSEKEEPING_CONTROLLERS, arguments).await
    }

    /// Starts an implementation next to resting objects, checks that it writes nothing, and that it repairs objects.
    async fn newcomer(&self, implementation: Implementation) -> Result<Running> {
        let user_agent = match implementation {
            Implementation::Windlass => WINDLASS,
            Implementation::Upstream => UPSTREAM,
        };
        let before = self.audit.writes(user_agent, &HOUSEKEEPING_CLIENTS)?.len();
        let running = self.start(implementation).await?;
        tokio::time::sleep(REST).await;
        let writes = self.audit.writes(user_agent, &HOUSEKEEPING_CLIENTS)?.split_off(before);
        ensure!(writes.is_empty(), "{implementation:?} wrote to objects at rest: {writes:#?}");
        self.repairs(implementation).await?;
        Ok(running)
    }

    /// Damages one object of each controller, and waits until it is repaired.
    async fn repairs(&self, implementation: Implementation) -> Result<()> {
        let name = self.namespace(implementation as usize);
        let namespace = self.objects.namespace(&name);
        self.objects.delete_account(&name).await?;
        self.objects.change_root_ca(&name, &json!({ "data": { "ca.crt": "other" } })).await?;
        self.objects.change_ttl(0, &json!("7")).await?;
        self.objects.settle(TTL).await?;
        collected_pod(&namespace).await?;
        let map = namespace.get::<ConfigMap>("kube-root-ca.crt").await?;
        let node = self.objects.nodes().get(&format!("{PREFIX}node-000")).await?;
        for managed in [map.managed_fields(), node.managed_fields()] {
            let managers: Vec<_> = managed.iter().filter_map(|it| it.manager.as_deref()).collect();
            let has_other = managers.iter().any(|it| it.starts_with("windlass"));
            ensure!(managers.contains(&MANAGER) && !has_other, "{managers:?}");
        }
        Ok(())
    }

    fn namespace(&self, index: usize) -> String {
        format!("{PREFIX}{index}")
    }

    /// Creates the objects, some with metadata of other clients, and pods with which nothing is to be done.
    async fn begin(&self) -> Result<()> {
        for index in 0..NAMESPACES {
            self.objects.create_namespace(&self.namespace(index)).await?;
        }
        self.objects.set_nodes(NODES).await?;
        self.objects.settle(TTL).await?;
        for index in (0..NAMESPACES).step_by(3) {
            let (name, patch) =
                (self.namespace(index), json!({ "metadata": { "labels": { "by": "user" } } }));
            self.objects.change_account(&name, &patch).await?;
            self.objects.change_root_ca(&name, &patch).await?;
            for phase in ["Running", "Succeeded", "Failed"] {
                let (namespace, pod) = (self.objects.namespace(&name), phase.to_lowercase());
                create_pod(&namespace, &pod, &format!("{PREFIX}node-{index:03}")).await?;
                let set = |it: &mut Pod| it.status.get_or_insert_default().phase = Some(phase.to_owned());
                namespace.update_status::<Pod>(&pod, set).await?;
            }
        }
        self.objects.settle(TTL).await.map(drop)
    }
}

async fn create_pod(namespace: &TestNamespace, name: &str, node: &str) -> Result<()> {
    let pod = json!({
        "metadata": { "name": name },
        "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "image" }] },
    });
    namespace.create::<Pod>(&serde_json::from_value(pod)?).await.map(drop)
}

/// Creates a pod without a node that is being deleted, waits until the collector marks it as failed, and removes its
/// finalizer.
async fn collected_pod(namespace: &TestNamespace) -> Result<()> {
    let pod = json!({
        "metadata": { "name": "unscheduled", "finalizers": ["test.example/finalizer"] },
        "spec": { "containers": [{ "name": "main", "image": "image" }] },
    });
    namespace.create::<Pod>(&serde_json::from_value(pod)?).await?;
    namespace.delete::<Pod>("unscheduled").await?;
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    let has_failed = |pod: &Option<Pod>| pod.as_ref().and_then(phase).as_deref() == Some("Failed");
    let find = || namespace.find::<Pod>("unscheduled");
    eventually_within(PASS, "the pod has failed", find, has_failed).await?;
    namespace.merge::<Pod>("unscheduled", json!({ "metadata": { "finalizers": null } })).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomer_writes_nothing_at_rest_and_repairs_objects() -> Result<()> {
    with_control_plane(options(), async |plane, audit| {
        let swap = Swap { plane, audit, objects: Objects::new(plane, PREFIX).await? };
        let upstream = swap.start(Implementation::Upstream).await?;
        swap.begin().await?;
        drop(upstream);
        let windlass = swap.newcomer(Implementation::Windlass).await?;
        drop(windlass);
        swap.newcomer(Implementation::Upstream).await.map(drop)
    })
    .await
}
