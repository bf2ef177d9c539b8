//! A user with common operations, and the initial objects of the scripts.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    ConfigMap, EndpointSubset, Endpoints, Namespace, Node, Pod, PodTemplateSpec, Service, ServiceAccount,
};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use windlass_controller::Registration;
use windlass_controllers::{ControllerOptions, registrations};
use windlass_testing::{Cluster, Simulation, Snapshot};

/// Namespace of every script.
pub const NAMESPACE: &str = "shop";

/// Label with the name of a pod of a StatefulSet.
pub const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";

/// Returns a simulation of the controllers of namespaces and nodes.
#[must_use]
pub fn housekeeping_simulation(seed: u64) -> Simulation {
    Simulation::new(seed).resources(["namespaces", "nodes", "serviceaccounts", "configmaps"])
}

/// Returns a simulation with two replicas, whose caches are compared with the server.
pub fn simulation(seed: u64) -> Simulation {
    let resources = [
        "deployments",
        "daemonsets",
        "statefulsets",
        "replicasets",
        "controllerrevisions",
        "services",
        "endpoints",
    ];
    let simulation = Simulation::new(seed).resources(resources);
    simulation.caches_of::<Pod>().caches_of::<ReplicaSet>().caches_of::<Service>().caches_of::<Endpoints>()
}

/// The certificates that the controllers publish.
pub const ROOT_CA: &str = "the root CA";

/// The controllers of namespaces and nodes.
const HOUSEKEEPING: [&str; 4] = [
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "ttl-controller",
    "pod-garbage-collector-controller",
];

/// Returns all other controllers: those of workloads and Services.
pub fn workloads() -> Vec<Registration> {
    select(|name| !HOUSEKEEPING.contains(&name))
}

/// Returns the controllers of namespaces and nodes.
pub fn housekeeping() -> Vec<Registration> {
    select(|name| HOUSEKEEPING.contains(&name))
}

fn select(is_selected: impl Fn(&str) -> bool) -> Vec<Registration> {
    let options = ControllerOptions {
        root_ca: ROOT_CA.into(),
        terminated_pod_gc_threshold: 2,
        ..ControllerOptions::default()
    };
    let all = registrations(&options).into_iter();
    all.filter(|one| is_selected(one.descriptor().name)).collect()
}

/// Creates pods that no node runs: one on a node that does not exist, three that have terminated, and one that is being
/// deleted and has a finalizer. The last one fails, so of the terminated ones one may stay next to it.
///
/// # Panics
/// Panics if a pod cannot be created.
pub async fn collectable_pods(cluster: &Cluster) {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    let create = async |name: &str, node: Option<&str>, finalizers: &[&str]| {
        let pod: Pod = object(json!({
            "metadata": { "name": name, "namespace": NAMESPACE, "finalizers": finalizers },
            "spec": {
                "nodeName": node,
                "schedulerName": "nobody",
                "containers": [{ "name": "main", "image": "web:1" }],
            },
        }));
        cluster.create(&pod).await;
    };
    create("orphan", Some("gone"), &[]).await;
    for name in ["terminated-0", "terminated-1", "terminated-2"] {
        create(name, None, &[]).await;
        let patch = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
        let _gone = pods.patch_status(name, &PatchParams::default(), &patch).await;
    }
    create("unscheduled", None, &["example.com/finalizer"]).await;
    pods.delete("unscheduled", &DeleteParams::default()).await.expect("the pod exists");
}

/// Deletes a ServiceAccount, changes a root CA and the TTL of a node, and removes the finalizer of a pod.
///
/// # Panics
/// Panics if an object does not exist.
pub async fn damage(cluster: &Cluster) {
    cluster
        .add_trace_line("the user deletes an account, changes a root CA and a TTL, and removes a finalizer");
    let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    pods.patch("unscheduled", &PatchParams::default(), &none).await.expect("the pod exists");
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), "blue");
    accounts.delete("default", &DeleteParams::default()).await.expect("the account exists");
    let (maps, nodes): (Api<ConfigMap>, Api<Node>) =
        (Api::namespaced(cluster.client(), "blue"), Api::all(cluster.client()));
    let data = Patch::Merge(json!({ "data": { "ca.crt": "other", "more": "data" } }));
    maps.patch("kube-root-ca.crt", &PatchParams::default(), &data).await.expect("the ConfigMap exists");
    let ttl = Patch::Merge(json!({ "metadata": { "annotations": { "node.alpha.kubernetes.io/ttl": "7" } } }));
    nodes.patch("node-0", &PatchParams::default(), &ttl).await.expect("the node exists");
}

/// A user that writes the objects that controllers reconcile.
#[derive(Clone, Debug)]
pub struct User {
    cluster: Cluster,
}

impl User {
    /// Returns the user of this cluster.
    pub fn of(cluster: &Cluster) -> Self {
        User { cluster: cluster.clone() }
    }

    /// Creates the namespace of every script.
    pub async fn namespace(&self) {
        let namespace: Namespace = object(json!({ "metadata": { "name": NAMESPACE } }));
        self.cluster.create(&namespace).await;
    }

    /// Creates a ReplicaSet with this number of pods, labeled `app=<app>` and `set=<name>`.
    pub async fn replica_set(&self, name: &str, app: &str, replicas: i32) {
        self.cluster.create(&replica_set(name, app, replicas)).await;
    }

    /// Creates a Deployment with this number of pods, labeled `app=<name>` and `set=<name>`.
    pub async fn deployment(&self, name: &str, replicas: i32) {
        let spec = replica_set(name, name, replicas).spec;
        let deployment: Deployment = object(json!({
            "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
        }));
        self.cluster.create(&deployment).await;
    }

    /// Creates a StatefulSet with this number of pods, labeled `app=<name>` and `set=<name>`, each with a claim.
    pub async fn stateful_set(&self, name: &str, replicas: i32) {
        let claim = json!({
            "metadata": { "name": "data" },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        });
        let mut spec = json!(replica_set(name, name, replicas).spec);
        spec["volumeClaimTemplates"] = json!([claim]);
        let set: StatefulSet = object(json!({
            "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
        }));
        self.cluster.create(&set).await;
    }

    /// Creates a DaemonSet, whose pods are labeled `app=<name>` and `set=<name>`.
    pub async fn daemon_set(&self, name: &str) {
        let mut spec = json!(replica_set(name, name, 0).spec);
        spec["replicas"].take();
        let set: DaemonSet = object(json!({
            "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
        }));
        self.cluster.create(&set).await;
    }

    /// Changes the image and the number of replicas of a Deployment.
    pub async fn roll_out(&self, name: &str, image: &str, replicas: i32) {
        self.cluster.add_trace_line(format!("the user rolls out {image} with {replicas} replicas"));
        let change = |deployment: &mut Deployment| {
            let spec = deployment.spec.get_or_insert_default();
            spec.replicas = Some(replicas);
            set_image(&mut spec.template, image);
        };
        self.change(name, change).await;
    }

    /// Changes the image and the number of replicas of a StatefulSet.
    pub async fn roll_out_in_order(&self, name: &str, image: &str, replicas: i32) {
        self.cluster.add_trace_line(format!("the user rolls out {image} with {replicas} replicas"));
        let change = |set: &mut StatefulSet| {
            let spec = set.spec.get_or_insert_default();
            spec.replicas = Some(replicas);
            set_image(&mut spec.template, image);
        };
        self.change(name, change).await;
    }

    /// Changes the image of a DaemonSet.
    pub async fn roll_out_on_nodes(&self, name: &str, image: &str) {
        self.cluster.add_trace_line(format!("the user rolls out {image} on all nodes"));
        let change = |set: &mut DaemonSet| set_image(&mut set.spec.get_or_insert_default().template, image);
        self.change(name, change).await;
    }

    /// Sets the limit of old revisions of the workloads of the script `no_histories`.
    pub async fn keep_no_old_revisions(&self) {
        let keep_none =
            |it: &mut Deployment| it.spec.get_or_insert_default().revision_history_limit = Some(0);
        self.change("web", keep_none).await;
        let keep_none =
            |it: &mut StatefulSet| it.spec.get_or_insert_default().revision_history_limit = Some(0);
        self.change("db", keep_none).await;
    }

    /// Requests the template before the current one, as old clients do.
    pub async fn roll_back(&self, name: &str) {
        self.cluster.add_trace_line(format!("the user rolls back {name}"));
        let change = |deployment: &mut Deployment| {
            let annotations = deployment.metadata.annotations.get_or_insert_default();
            annotations.insert("deprecated.deployment.rollback.to".to_owned(), "0".to_owned());
        };
        self.change(name, change).await;
    }

    /// Changes the labels of the ReplicaSet with the template of a Deployment, so that the Deployment loses it.
    pub async fn release_new_replica_set(&self, deployment: &str) {
        let world = self.cluster.snapshot();
        let template = json!(world.get::<Deployment>(deployment))["spec"]["template"]["spec"].take();
        let mut sets = world.all("ReplicaSet");
        let new = sets.find(|set| set["spec"]["template"]["spec"] == template).expect("a ReplicaSet");
        let name = new["metadata"]["name"].as_str().expect("a name");
        let change = |set: &mut ReplicaSet| {
            set.metadata.labels.get_or_insert_default().insert("set".into(), "stray".into());
        };
        self.change(name, change).await;
    }

    /// Lets the claims of a StatefulSet go with their pods when it is scaled down.
    pub async fn delete_claims_with_pods(&self, name: &str) {
        let policy = json!({ "whenScaled": "Delete", "whenDeleted": "Retain" });
        let change = |set: &mut StatefulSet| {
            set.spec.get_or_insert_default().persistent_volume_claim_retention_policy =
                Some(object(policy.clone()));
        };
        self.change(name, change).await;
    }

    /// Removes the label with the name of a pod of a StatefulSet.
    pub async fn rename(&self, pod: &str) {
        let change = |pod: &mut Pod| drop(pod.metadata.labels.get_or_insert_default().remove(POD_NAME));
        self.change(pod, change).await;
    }

    /// Waits until all pods of a Deployment have its template and are available.
    pub async fn rolled_out(&self, name: &str) {
        let complete = |deployment: &Deployment| {
            let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
            deployment.status.as_ref().is_some_and(|status| {
                let numbers = [status.replicas, status.updated_replicas, status.available_replicas];
                status.observed_generation == deployment.metadata.generation
                    && numbers.iter().all(|number| *number == wanted)
            })
        };
        self.wait_until_complete(name, complete).await;
    }

    /// Waits until all pods of a StatefulSet have its template and are available.
    pub async fn rolled_out_in_order(&self, name: &str) {
        let complete = |set: &StatefulSet| {
            let wanted = set.spec.as_ref().and_then(|spec| spec.replicas);
            set.status.as_ref().is_some_and(|status| {
                let replicas = Some(status.replicas);
                let numbers = [replicas, status.updated_replicas, status.available_replicas];
                status.observed_generation == set.metadata.generation
                    && status.current_revision == status.update_revision
                    && numbers.iter().all(|number| *number == wanted)
            })
        };
        self.wait_until_complete(name, complete).await;
    }

    /// Waits until this number of nodes have an available pod with the template of a DaemonSet.
    pub async fn rolled_out_on_nodes(&self, name: &str, nodes: i32) {
        let complete = |set: &DaemonSet| {
            set.status.as_ref().is_some_and(|status| {
                let numbers = [
                    Some(status.desired_number_scheduled),
                    Some(status.current_number_scheduled),
                    status.updated_number_scheduled,
                    status.number_available,
                ];
                status.observed_generation == set.metadata.generation
                    && numbers.iter().all(|number| *number == Some(nodes))
            })
        };
        self.wait_until_complete(name, complete).await;
    }

    async fn wait_until_complete<K>(&self, name: &str, is_complete: impl Fn(&K) -> bool)
    where
        K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned,
    {
        let is_complete = |world: &Snapshot| world.get::<K>(name).is_some_and(|it| is_complete(&it));
        self.cluster.eventually(&format!("the rollout of {name} is complete"), is_complete).await;
    }

    /// Creates a Service that selects the pods with these labels.
    pub async fn service(&self, name: &str, selector: Value) {
        let service: Service = object(json!({
            "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": { "selector": selector, "ports": [{ "port": 80, "targetPort": 8080 }] },
        }));
        self.cluster.create(&service).await;
    }

    /// Sets the desired number of pods of a ReplicaSet.
    pub async fn scale(&self, name: &str, replicas: i32) {
        self.cluster.add_trace_line(format!("the user scales {name} to {replicas}"));
        let change = |set: &mut ReplicaSet| {
            set.spec.get_or_insert_default().replicas = Some(replicas);
        };
        self.change(name, change).await;
    }

    /// Changes the selector of a Service.
    pub async fn select(&self, name: &str, selector: Value) {
        let change = |service: &mut Service| {
            service.spec.get_or_insert_default().selector = Some(object(selector.clone()));
        };
        self.change(name, change).await;
    }

    /// Sets a label on the first ready pod of a ReplicaSet.
    pub async fn relabel_one(&self, set: &str, label: &str, value: &str) {
        let pod = self.ready_pods(&self.cluster.snapshot(), set).into_iter().next();
        let pod = pod.expect("the script waits for a ready pod first");
        let change = |pod: &mut Pod| {
            pod.metadata.labels.get_or_insert_default().insert(label.into(), value.into());
        };
        self.change(&pod, change).await;
    }

    /// Deletes an object.
    pub async fn delete<K>(&self, name: &str)
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        self.cluster.add_trace_line(format!("the user deletes {} {name}", K::kind(&())));
        let api: Api<K> = Api::namespaced(self.cluster.client(), NAMESPACE);
        if let Err(error) = api.delete(name, &DeleteParams::default()).await {
            assert!(matches!(&error, kube::Error::Api(status) if status.code == 404), "{name}: {error}");
        }
    }

    /// Waits until exactly this many pods of a set exist and are ready.
    pub async fn ready(&self, set: &str, count: usize) {
        let what = format!("{count} ready pods of {set}");
        let wanted = |world: &Snapshot| {
            self.ready_pods(world, set).len() == count && pods_of(world, set).count() == count
        };
        self.cluster.eventually(&what, wanted).await;
    }

    /// Waits until a Service has this many ready addresses.
    pub async fn addresses(&self, service: &str, count: usize) {
        let what = format!("{count} addresses of {service}");
        self.cluster.eventually(&what, |world| addresses(world, service) == count).await;
    }

    /// Returns the names of the ready pods of a set.
    pub fn ready_pods(&self, world: &Snapshot, set: &str) -> Vec<String> {
        let ready = pods_of(world, set).filter(|pod| is_ready(pod));
        ready.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect()
    }

    async fn change<K>(&self, name: &str, change: impl Fn(&mut K))
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.cluster.client(), NAMESPACE);
        loop {
            let mut object = api.get(name).await.expect("the object exists");
            change(&mut object);
            match api.replace(name, &PostParams::default(), &object).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
}

fn set_image(template: &mut PodTemplateSpec, image: &str) {
    template.spec.get_or_insert_default().containers[0].image = Some(image.to_owned());
}

fn pods_of<'a>(world: &'a Snapshot, set: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    let set = set.to_owned();
    world.all("Pod").filter(move |pod| pod["metadata"]["labels"]["set"] == json!(set))
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = |it: &Value| it["type"] == json!("Ready") && it["status"] == json!("True");
    conditions.is_some_and(|conditions| conditions.iter().any(ready))
}

fn addresses(world: &Snapshot, service: &str) -> usize {
    let subsets = world.get::<Endpoints>(service).and_then(|endpoints| endpoints.subsets);
    let addresses = |subset: &EndpointSubset| subset.addresses.as_ref().map_or(0, Vec::len);
    subsets.map_or(0, |subsets| subsets.iter().map(addresses).sum())
}

/// Returns a ReplicaSet with this number of pods, in the namespace of every script.
pub fn replica_set(name: &str, app: &str, replicas: i32) -> ReplicaSet {
    let labels = json!({ "app": app, "set": name });
    let container = json!({
        "name": "main", "image": "example/shop", "ports": [{ "containerPort": 8080, "protocol": "TCP" }],
    });
    object(json!({
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
        },
    }))
}

/// Creates an object from JSON.
///
/// # Panics
/// Panics if the JSON does not match the type.
pub fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object of its type")
}
