use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};
use windlass_macros::View;

use super::*;
use crate::wire::protobuf::Transcoder;
use crate::wire::protobuf::tests::random_object;
use crate::{LabelSelector, Metadata, ObjectHeader, StringMap, Watchable};

#[derive(View, Debug, PartialEq)]
#[view(of = "v1/Pod", crate = windlass_object)]
struct PodView {
    metadata: Metadata,
    #[view(path = "spec.nodeName")]
    node: Option<Arc<str>>,
    #[view(path = "spec.containers")]
    containers: Vec<ContainerView>,
    #[view(path = "status.conditions[Ready]")]
    ready: Option<ConditionView>,
    #[view(path = "status.phase")]
    phase: Arc<str>,
    #[view(path = "metadata.annotations[example.com/cost]")]
    cost: Option<String>,
    #[view(path = "spec.priority")]
    priority: i32,
    #[view(path = "spec.overhead", serde)]
    overhead: BTreeMap<String, Quantity>,
}

#[derive(View, Debug, PartialEq)]
#[view(of = "v1/Pod", at = "spec.containers", crate = windlass_object)]
struct ContainerView {
    #[view(path = "name")]
    name: Arc<str>,
    #[view(path = "ports")]
    ports: Box<[PortView]>,
    #[view(path = "livenessProbe.httpGet.port")]
    probe: Option<IntOrString>,
}

#[derive(View, Debug, PartialEq)]
#[view(of = "v1/Pod", at = "spec.containers.ports", crate = windlass_object)]
struct PortView {
    #[view(path = "containerPort")]
    port: i32,
}

#[derive(View, Debug, PartialEq)]
#[view(of = "v1/Pod", at = "status.conditions", crate = windlass_object)]
struct ConditionView {
    #[view(path = "status")]
    status: Arc<str>,
    #[view(path = "lastTransitionTime")]
    since: Option<Time>,
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": null,
            "labels": {"app": "web", "tier": "front"}, "annotations": {"example.com/cost": "5", "other": "x"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "o", "controller": true},
            ],
            "finalizers": ["example.com/f"], "managedFields": [{"manager": "m"}],
        },
        "spec": {
            "nodeName": "node-1", "overhead": {"cpu": "100m"},
            "containers": [
                {"name": "c", "image": "i", "ports": [{"containerPort": 80, "name": "http"}],
                 "livenessProbe": {"httpGet": {"port": "http"}}, "env": [{"name": "A", "value": "b"}]},
                {"name": "d"},
            ],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1",
            "conditions": [
                {"type": "Initialized", "status": "True"},
                {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:06Z"},
            ],
        },
    })
}

fn decode(object: &Value) -> Result<PodView, DecodeError> {
    ViewObjects::<PodView>::new().decoder().decode(&object.to_string().into())
}

#[test]
fn view_contains_metadata_and_the_values_at_its_paths() {
    let view = decode(&pod()).expect("a view");
    let header = ObjectHeader::of(&serde_json::from_value(pod()["metadata"].clone()).expect("metadata"));
    assert_eq!(view.metadata.header, header);
    let meta = view.metadata();
    assert_eq!((meta.name(), meta.namespace(), meta.generation()), ("a", Some("n"), Some(3)));
    assert!(LabelSelector::from_map(&BTreeMap::from([("app".into(), "web".into())])).matches(meta.labels()));
    let owner = meta.controller().expect("a controller");
    assert_eq!((owner.kind, owner.uid), ("ReplicaSet", "o"));
    assert_eq!(&*view.metadata.finalizers, ["example.com/f".into()]);
    assert!(view.metadata.creation_timestamp.is_some() && meta.deletion_timestamp().is_none());
    assert_eq!(
        (view.node.as_deref(), &*view.phase, view.cost.as_deref()),
        (Some("node-1"), "Running", Some("5"))
    );
    let ready = view.ready.expect("a condition");
    assert_eq!((&*ready.status, ready.since.is_some()), ("False", true));
    assert_eq!(view.containers.len(), 2);
    assert_eq!(
        (view.containers[0].ports[0].port, &view.containers[0].probe),
        (80, &Some(IntOrString::String("http".into())))
    );
    assert_eq!(view.overhead, BTreeMap::from([("cpu".to_owned(), Quantity("100m".into()))]));
}

#[test]
fn absent_values_are_empty() {
    let view = decode(
        &json!({"metadata": {"name": "a"}, "spec": {"nodeName": null, "overhead": null}, "status": null}),
    )
    .expect("a view");
    assert_eq!((view.node, view.containers, view.ready, view.priority), (None, Vec::new(), None, 0));
    assert_eq!((&*view.phase, view.cost, view.metadata.header.uid), ("", None, None));
}

#[test]
fn object_with_a_value_of_another_type_is_undecodable() {
    let mut decoder = ViewObjects::<PodView>::new().decoder();
    for (pointer, value) in [
        ("/spec/nodeName", json!(7)),
        ("/spec", json!("s3cr3t")),
        ("/spec/containers", json!({})),
        ("/status/conditions", json!("x")),
        ("/metadata/name", json!("")),
        ("/metadata/labels", json!([])),
        ("/metadata/finalizers", json!([null])),
        ("/metadata/ownerReferences", json!([null])),
    ] {
        let mut broken = pod();
        *broken.pointer_mut(pointer).expect("a value") = value;
        let error = decoder.decode(&broken.to_string().into()).expect_err(pointer).to_string();
        assert!(error.starts_with("cannot decode Pod: ") && !error.contains("s3cr3t"), "{pointer}: {error}");
    }
    assert!(decoder.decode(&r#"{"metadata":{"name":"a"}"#.into()).is_err(), "truncated");
    assert!(decoder.decode(&pod().to_string().into()).is_ok(), "the decoder is used again");
}

#[test]
fn view_of_a_custom_resource_reads_its_annotations_and_conditions() {
    #[derive(View)]
    #[view(of = k8s_openapi::api::core::v1::Service, crate = windlass_object)]
    struct Custom {
        metadata: Metadata,
        #[view(path = "metadata.annotations[example.com/size]")]
        size: Option<String>,
        #[view(path = "status.conditions[Ready].reason")]
        reason: Option<String>,
    }
    let annotations = json!({"example.com/size": "5", "other": "x"});
    let status = json!({"conditions": [{"type": "Ready", "reason": "Up"}]});
    let object = json!({"metadata": {"name": "a", "annotations": annotations}, "status": status});
    let decoded = ViewObjects::<Custom>::new().decoder().decode(&object.to_string().into());
    let Custom { metadata, size, reason } = decoded.expect("a view");
    assert_eq!(
        (metadata.header.key.name(), size.as_deref(), reason.as_deref()),
        ("a", Some("5"), Some("Up"))
    );
}

#[test]
fn equal_values_share_memory() {
    let mut decoder = ViewObjects::<PodView>::new().decoder();
    let mut next = || decoder.decode(&pod().to_string().into()).expect("a view");
    let (a, b) = (next(), next());
    assert!(Arc::ptr_eq(&a.phase, &b.phase) && Arc::ptr_eq(&a.metadata.owners, &b.metadata.owners));
    let first = |view: &PodView| view.metadata.labels.iter().next().map(|(key, _)| key.as_ptr());
    assert_eq!(first(&a), first(&b));
}

/// Fields of every type, at values that random objects have.
#[derive(View, Debug, PartialEq)]
#[view(of = "v1/Pod", crate = windlass_object)]
struct RandomView {
    metadata: Metadata,
    #[view(path = "metadata.annotations[a]")]
    note: Option<Arc<str>>,
    #[view(path = "metadata.annotations")]
    notes: BTreeMap<String, String>,
    #[view(path = "metadata.managedFields", serde)]
    managed: Value,
    #[view(path = "spec.hostNetwork")]
    host_network: bool,
    #[view(path = "spec.activeDeadlineSeconds")]
    deadline: Option<i64>,
    #[view(path = "spec.securityContext.supplementalGroups")]
    groups: Vec<i64>,
    #[view(path = "spec.nodeSelector")]
    selector: StringMap,
    #[view(path = "spec.overhead", serde)]
    overhead: BTreeMap<String, Quantity>,
    #[view(path = "spec.containers")]
    containers: Vec<ContainerView>,
    #[view(path = "spec.schedulingGates", serde)]
    gates: Value,
    #[view(path = "status.conditions[a]")]
    condition: Option<ConditionView>,
    #[view(path = "status.conditions[1Gi].reason")]
    reason: Option<Box<str>>,
    #[view(path = "status.startTime")]
    start: Option<Time>,
    #[view(path = "status", serde)]
    status: Value,
}

#[test]
fn equal_objects_in_json_and_in_protobuf_decode_to_equal_views() {
    let mut decoder = ViewObjects::<RandomView>::new().decoder();
    let mut decoded = 0;
    for seed in 0..2000 {
        let object = random_object("v1", "Pod", seed);
        let mut json = Vec::new();
        if Transcoder::new().object(&object, &mut json).is_err() {
            continue;
        }
        let direct = decoder.decode(&object.into());
        let text = String::from_utf8_lossy(&json).into_owned();
        let converted = decoder.decode(&json.into());
        decoded += usize::from(direct.is_ok());
        assert_eq!(direct.as_ref().ok(), converted.as_ref().ok(), "{seed}: {direct:?} {converted:?} {text}");
    }
    assert!(decoded > 300, "{decoded}");
}

#[test]
fn embedded_json_in_protobuf_is_read_like_json() {
    #[derive(View, Debug, PartialEq)]
    #[view(of = "apps/v1/ControllerRevision", crate = windlass_object)]
    struct Revision {
        metadata: Metadata,
        #[view(path = "data")]
        data: StringMap,
        #[view(path = "data", serde)]
        value: Option<Value>,
    }
    let mut decoder = ViewObjects::<Revision>::new().decoder();
    let mut decoded = 0;
    for seed in 0..200 {
        let object = random_object("apps/v1", "ControllerRevision", seed);
        let mut json = Vec::new();
        if Transcoder::new().object(&object, &mut json).is_ok() {
            let (direct, converted) = (decoder.decode(&object.into()), decoder.decode(&json.into()));
            decoded += usize::from(direct.is_ok());
            assert_eq!(direct.ok(), converted.ok(), "{seed}");
        }
    }
    assert!(decoded > 20, "{decoded}");
}

#[test]
fn view_is_a_representation_of_its_kind() {
    let views = PodView::representation();
    assert_eq!((views.kind(), views.is_compactable()), (PodView::kind(), false));
    assert_eq!(PodView::kind().kind, "Pod");
}

#[test]
fn shape_reads_values_of_its_type_only() {
    assert!(<Option<Arc<str>> as ViewField>::SHAPE.reads(&Shape::Text));
    assert!(String::SHAPE.reads(&Shape::Time) && !i32::SHAPE.reads(&Shape::Text));
    assert!(Vec::<String>::SHAPE.reads(&Shape::List(&Shape::Text)));
    assert!(!Vec::<String>::SHAPE.reads(&Shape::List(&Shape::Integer)));
    assert!(!ContainerView::SHAPE.reads(&ConditionView::SHAPE));
}
