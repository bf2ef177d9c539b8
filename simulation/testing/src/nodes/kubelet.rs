//! Simulates the containers of every pod that is bound to a simulated node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use kube::api::DeleteParams;
use windlass_controller::{Context, Controller, Outcome, ReconcileError, Setup, SetupError, Writer, retry};
use windlass_informer::{Event, Lister};
use windlass_object::ObjectKey;

use super::addresses::Addresses;
use super::lifecycle::{self, PodAction};
use super::{NodeOptions, PLAYED};

/// The kubelets of all nodes.
#[derive(Debug)]
pub(super) struct Kubelet {
    options: NodeOptions,
    pods: Lister<Pod>,
    nodes: Lister<Node>,
    writer: Writer<Pod>,
    addresses: Arc<Addresses>,
}

impl Kubelet {
    fn played_node(&self, pod: &Pod) -> Option<Arc<Node>> {
        let name = pod.spec.as_ref()?.node_name.as_deref()?;
        self.nodes.get_lossy(&ObjectKey::cluster(name)).filter(|node| is_played(node))
    }

    async fn act(&self, pod: &Pod, host: &str, cx: &Context) -> Result<Outcome, ReconcileError> {
        let now = cx.env().wall();
        match lifecycle::next(pod, &self.options, now) {
            PodAction::Nothing => Ok(Outcome::Done),
            PodAction::Wait(left) => Ok(Outcome::RequeueAfter(left)),
            PodAction::Run { restarts } => {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                let address = self.addresses.of(uid).ok_or_else(|| retry("no pod address is free"))?;
                self.report(pod, lifecycle::run(pod, restarts, address, host, now), cx).await
            }
            PodAction::End { exit_code } => self.report(pod, lifecycle::end(pod, exit_code, now), cx).await,
            PodAction::Remove => {
                self.writer.delete(cx, pod, &DeleteParams::default().grace_period(0)).await?;
                Ok(Outcome::Done)
            }
        }
    }

    async fn report(&self, pod: &Pod, status: PodStatus, cx: &Context) -> Result<Outcome, ReconcileError> {
        self.writer.update_status(cx, pod, |pod| pod.status = Some(status)).await?;
        Ok(Outcome::Done)
    }
}

impl Controller for Kubelet {
    const NAME: &'static str = "node-kubelet";
    type Config = NodeOptions;

    fn setup(setup: &mut Setup, options: &NodeOptions) -> Result<Self, SetupError> {
        setup.workers(options.workers);
        let writer = setup.writer::<Pod>().delete().patch_status().build();
        let addresses = Arc::new(Addresses::default());
        let theirs = Arc::clone(&addresses);
        // Addresses are recorded before pods are queued, so that a pod keeps its address across a restart.
        let pods = setup.primary::<Pod>().on_event(move |event, _| note(&theirs, event)).lister();
        let nodes = setup.watch::<Node>().lister();
        Ok(Self { options: options.clone(), pods, nodes, writer, addresses })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.pods.get(key)? else { return Ok(Outcome::Done) };
        match self.played_node(&pod) {
            Some(node) => self.act(&pod, &host_of(&node), cx).await,
            None => Ok(Outcome::Done),
        }
    }
}

fn note(addresses: &Addresses, event: &Event<Arc<Pod>>) {
    let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
    match event {
        Event::Deleted { last, .. } => addresses.release(&uid(last)),
        Event::Added { .. } | Event::Updated { .. } => {
            let pod = event.object();
            let Some(status) = &pod.status else { return };
            if let Some(address) = status.pod_ip.as_deref().and_then(|ip| ip.parse().ok()) {
                addresses.seen(&uid(pod), address);
            }
        }
    }
}

fn is_played(node: &Node) -> bool {
    node.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(PLAYED))
}

fn host_of(node: &Node) -> String {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let internal = addresses.filter(|it| it.type_ == "InternalIP").map(|it| it.address.clone()).next();
    internal.unwrap_or_default()
}
