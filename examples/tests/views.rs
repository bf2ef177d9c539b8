//! A view of Pods, as `docs/writing-a-controller.md` shows it.

use std::sync::Arc;

use serde_json::json;
use windlass::View;
use windlass::object::{Decoder as _, HasMetadata as _, Metadata, Representation as _, Watchable as _};
use windlass::prelude::*;

#[derive(View)]
#[view(of = "v1/Pod")]
struct PodOnNode {
    metadata: Metadata,
    #[view(path = "spec.nodeName")]
    node: Option<Arc<str>>,
    #[view(path = "status.conditions[Ready].status")]
    ready: Option<Arc<str>>,
    #[view(path = "spec.containers")]
    containers: Vec<ContainerImage>,
}

#[derive(View)]
#[view(of = "v1/Pod", at = "spec.containers")]
struct ContainerImage {
    #[view(path = "image")]
    image: Arc<str>,
}

fn declare(setup: &mut Setup) -> Lister<PodOnNode> {
    setup.watch::<PodOnNode>().lister()
}

#[test]
fn view_contains_the_named_fields() {
    let _: fn(&mut Setup) -> Lister<PodOnNode> = declare;
    let pod = json!({
        "metadata": { "name": "web-1", "namespace": "shop" },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "web", "image": "web:1" }] },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    let pod = PodOnNode::representation().decoder().decode(&pod.to_string().into()).expect("a Pod");
    assert_eq!(pod.metadata().name(), "web-1");
    assert_eq!((pod.node.as_deref(), pod.ready.as_deref()), (Some("node-1"), Some("True")));
    assert_eq!(pod.containers.iter().map(|container| &*container.image).collect::<Vec<_>>(), ["web:1"]);
}
