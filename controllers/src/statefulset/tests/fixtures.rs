//! StatefulSets, pods and claims for tests.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Value, json};
use windlass_object::{Decoder as _, Representation as _, Watchable as _};

use crate::shared::fixtures::pod_view;
use crate::shared::pod_view::PodView;
use crate::shared::volume_claim_view::VolumeClaimView;
use crate::statefulset::identity::{Version, Versions};

/// Returns the StatefulSet `web` with a claim `data` and these fields in its spec.
pub(super) fn stateful_set(replicas: i32, fields: Value) -> StatefulSet {
    let claim = json!({ "metadata": { "name": "data" }, "spec": {} });
    let mut spec = json!({
        "replicas": replicas, "serviceName": "peers", "selector": { "matchLabels": { "app": "web" } },
        "template": {
            "metadata": { "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "main", "image": "web:1" }] },
        },
        "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } },
        "volumeClaimTemplates": [claim],
    });
    let fields = fields.as_object().expect("fields").clone();
    spec.as_object_mut().expect("a spec").extend(fields);
    let metadata = json!({ "name": "web", "namespace": "default", "uid": "uid-web", "generation": 3 });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).expect("a StatefulSet")
}

/// Returns a pod of the StatefulSet `web` in JSON.
pub(super) fn pod(name: &str, revision: &str, phase: &str, ready: bool) -> Value {
    let labels = json!({
        "app": "web", "statefulset.kubernetes.io/pod-name": name, "controller-revision-hash": revision,
    });
    let claim = json!({ "name": "data", "persistentVolumeClaim": { "claimName": format!("data-{name}") } });
    let condition = json!({
        "type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": "2026-03-01T11:59:00Z",
    });
    json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": labels },
        "spec": { "containers": [], "volumes": [claim] },
        "status": { "phase": phase, "conditions": [condition] },
    })
}

/// Returns a pod by a short text: ordinal, state (`r`eady, `n`ot ready, `p`ending, `f`ailed, `s`ucceeded), `o` for the
/// old or `u` for the update revision, and `-` for a pod that is being deleted.
pub(super) fn short(text: &str) -> Arc<PodView> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (ordinal, rest) = text.split_at(digits);
    let (phase, ready) = match rest.as_bytes().first() {
        Some(b'r') => ("Running", true),
        Some(b'n') => ("Running", false),
        Some(b'p') => ("Pending", false),
        Some(b'f') => ("Failed", false),
        Some(b's') => ("Succeeded", false),
        _ => panic!("no state in {text}"),
    };
    let revision = if rest.contains('o') { "web-old" } else { "web-new" };
    let mut pod = pod(&format!("web-{ordinal}"), revision, phase, ready);
    if rest.ends_with('-') {
        pod["metadata"]["deletionTimestamp"] = json!("2026-03-01T12:00:00Z");
    }
    Arc::new(pod_view(&pod))
}

/// Returns the revisions `web-old` and `web-new`.
pub(super) fn versions(set: &StatefulSet) -> Versions {
    let template = set.spec.clone().expect("a spec").template;
    let version = |name: &str| Version { name: name.to_owned(), template: template.clone() };
    Versions { current: version("web-old"), update: version("web-new") }
}

/// Returns a claim with these owner references.
pub(super) fn claim(name: &str, owners: &Value) -> Arc<VolumeClaimView> {
    let metadata = json!({
        "name": name, "namespace": "default", "uid": format!("uid-{name}"), "ownerReferences": owners,
    });
    let mut decoder = VolumeClaimView::representation().decoder();
    Arc::new(decoder.decode(&json!({ "metadata": metadata }).to_string().into()).expect("a claim"))
}

/// Returns an owner reference.
pub(super) fn owner(api_version: &str, kind: &str, name: &str, uid: &str, controls: bool) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": controls })
}
