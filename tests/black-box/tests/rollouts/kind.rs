//! The kinds of workloads: their API resources and the objects of the tests.

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet},
    core::v1::Pod,
};
use kube::{ResourceExt as _, api::DynamicObject, core::ApiResource};
use serde_json::{Value, json};
use windlass_black_box::fixtures::still_pod_spec;

/// The label of the pods of a workload, with its name.
pub(crate) const APP: &str = "app";

/// The label of a node with the group of DaemonSets that can select it.
pub(crate) const GROUP: &str = "test.example/group";

/// A kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Deployment,
    StatefulSet,
    DaemonSet,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Deployment, Self::StatefulSet, Self::DaemonSet];

    /// Returns the resource of the workloads.
    pub(crate) fn resource(self) -> ApiResource {
        match self {
            Self::Deployment => ApiResource::erase::<Deployment>(&()),
            Self::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
            Self::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
        }
    }

    /// Returns the resource of the objects that record the revisions of a workload.
    pub(crate) fn revision_resource(self) -> ApiResource {
        match self {
            Self::Deployment => ApiResource::erase::<ReplicaSet>(&()),
            Self::StatefulSet | Self::DaemonSet => ApiResource::erase::<ControllerRevision>(&()),
        }
    }

    /// Returns the kind in lowercase, for names.
    pub(crate) fn lowercase(self) -> &'static str {
        match self {
            Self::Deployment => "deployment",
            Self::StatefulSet => "statefulset",
            Self::DaemonSet => "daemonset",
        }
    }

    /// Returns the pointer to the number of pods with the newest revision.
    pub(crate) fn updated_pods(self) -> &'static str {
        match self {
            Self::Deployment | Self::StatefulSet => "/status/updatedReplicas",
            Self::DaemonSet => "/status/updatedNumberScheduled",
        }
    }

    /// Returns a workload whose pods only the test changes; deleted pods disappear at once. A DaemonSet selects the
    /// nodes of `scene` with its [`node_label`].
    pub(crate) fn workload(self, name: &str, spec: &Value, scene: &str) -> DynamicObject {
        let labels = json!({ APP: name });
        let mut pod = json!(still_pod_spec());
        pod["terminationGracePeriodSeconds"] = json!(0);
        // The names of token volumes are random.
        pod["automountServiceAccountToken"] = json!(false);
        match self {
            Self::Deployment | Self::StatefulSet => pod["nodeName"] = json!("no-such-node"),
            Self::DaemonSet => pod["nodeSelector"] = json!({ node_label(name): scene }),
        }
        let mut spec = spec.clone();
        spec["selector"] = json!({ "matchLabels": labels });
        spec["template"] = json!({ "metadata": { "labels": labels }, "spec": pod });
        DynamicObject::new(name, &self.resource()).data(json!({ "spec": spec }))
    }
}

/// Returns the label of the nodes that a DaemonSet selects.
pub(crate) fn node_label(name: &str) -> String {
    format!("test.example/{name}")
}

/// Returns the name of the workload that a pod has in its label.
pub(crate) fn app(pod: &Pod) -> &str {
    pod.labels().get(APP).map_or("", String::as_str)
}
