//! The namespaces and nodes of a control plane, the operations on them, and their comparable form.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value, json};
use windlass_black_box::fixtures::pairs;
use windlass_black_box::test_namespace::TestNamespace;
use windlass_black_box::wait::TIMEOUT;
use windlass_harness::{ControlPlane, ControlPlaneOptions};

use crate::pods::Pods;

/// The annotation with the TTL of a node.
const TTL: &str = "node.alpha.kubernetes.io/ttl";
const ROOT_CA: &str = "kube-root-ca.crt";

/// Caches are resynced after this time, or up to twice as long. Upstream's TTL controller writes at the next update or
/// resync of a node.
pub(crate) const RESYNC: &str = "--min-resync-period=1s";

/// Time without a change after which the controllers have reacted, although all objects were as desired before.
const QUIET: Duration = Duration::from_millis(700);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the options of a control plane on which only the subject creates accounts and root CAs.
pub(crate) fn options() -> ControlPlaneOptions {
    ControlPlaneOptions::default()
        .nodes(0)
        .scheduler(false)
        // Completes the deletion of namespaces.
        .upstream_controllers(["namespace-controller"])
        // The first plugin taints each new node until a node lifecycle controller finds it ready, and the second one
        // rejects pods of a namespace without an account.
        .api_server_arg("--disable-admission-plugins=TaintNodesByCondition,ServiceAccount")
}

/// The namespaces with a prefix, and the nodes with the same prefix.
pub(crate) struct Objects {
    client: Client,
    prefix: &'static str,
    /// The certificate that every namespace must have.
    root_ca: String,
}

/// A state of the objects.
#[derive(Debug, PartialEq)]
struct Snapshot {
    comparable: Value,
    is_desired: bool,
    versions: BTreeSet<String>,
}

impl Objects {
    pub(crate) async fn new(plane: &ControlPlane, prefix: &'static str) -> Result<Self> {
        let root_ca = std::fs::read_to_string(plane.root_ca())?;
        Ok(Self { client: plane.client().await, prefix, root_ca })
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) fn namespace(&self, name: &str) -> TestNamespace {
        TestNamespace { client: self.client.clone(), namespace: name.to_owned() }
    }

    pub(crate) async fn create_namespace(&self, name: &str) -> Result<()> {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        self.namespaces().create(&PostParams::default(), &namespace).await?;
        Ok(())
    }

    pub(crate) async fn delete_namespace(&self, name: &str) -> Result<()> {
        self.namespaces().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub(crate) async fn change_account(&self, namespace: &str, patch: &Value) -> Result<()> {
        self.namespace(namespace).merge::<ServiceAccount>("default", patch.clone()).await.map(drop)
    }

    pub(crate) async fn delete_account(&self, namespace: &str) -> Result<()> {
        self.namespace(namespace).delete::<ServiceAccount>("default").await
    }

    pub(crate) async fn change_root_ca(&self, namespace: &str, patch: &Value) -> Result<()> {
        self.namespace(namespace).merge::<ConfigMap>(ROOT_CA, patch.clone()).await.map(drop)
    }

    pub(crate) async fn delete_root_ca(&self, namespace: &str) -> Result<()> {
        self.namespace(namespace).delete::<ConfigMap>(ROOT_CA).await
    }

    fn node_name(&self, number: usize) -> String {
        format!("{}node-{number:03}", self.prefix)
    }

    /// Adds or removes the last nodes.
    pub(crate) async fn set_nodes(&self, count: usize) -> Result<()> {
        let existing = self.list_nodes().await?.len();
        let create = async |number: usize| {
            // API servers track the managers of fields only of objects that are created with fields.
            let labels = Some(pairs(&[("test.example/node", "yes")]));
            let metadata = ObjectMeta { name: Some(self.node_name(number)), labels, ..ObjectMeta::default() };
            let node = Node { metadata, ..Node::default() };
            self.nodes().create(&PostParams::default(), &node).await.map(drop)
        };
        let delete = async |number: usize| {
            self.nodes().delete(&self.node_name(number), &DeleteParams::default()).await.map(drop)
        };
        try_join_all((existing..count).map(create)).await?;
        try_join_all((count..existing).map(delete)).await?;
        Ok(())
    }

    pub(crate) async fn change_ttl(&self, number: usize, value: &Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { TTL: value } } }));
        self.nodes().patch(&self.node_name(number), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn list_nodes(&self) -> Result<Vec<Node>> {
        let mut nodes = self.nodes().list(&ListParams::default()).await?.items;
        nodes.retain(|node| !Pods::owns(node) && node.name_any().starts_with(self.prefix));
        Ok(nodes)
    }

    /// Waits until every namespace has its objects, every node has this TTL, and nothing changes. Returns the
    /// comparable form of the objects.
    pub(crate) async fn settle(&self, ttl: &str) -> Result<Value> {
        let mut last = self.snapshot(ttl).await?;
        let (mut unchanged_since, mut quiet_since) = (Instant::now(), Instant::now());
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let now = self.snapshot(ttl).await?;
            if now != last {
                unchanged_since = Instant::now();
            }
            if now != last || !now.is_desired {
                quiet_since = Instant::now();
            }
            last = now;
            if quiet_since.elapsed() >= QUIET {
                return Ok(last.comparable);
            }
            if unchanged_since.elapsed() > TIMEOUT {
                bail!("the objects do not settle, expected TTL {ttl}: {:#}", last.comparable);
            }
        }
    }

    async fn snapshot(&self, ttl: &str) -> Result<Snapshot> {
        let all = ListParams::default();
        let mut snapshot = Snapshot { comparable: json!({}), is_desired: true, versions: BTreeSet::new() };
        let mut objects = Map::new();
        for namespace in self.namespaces().list(&all).await?.items {
            let name = namespace.name_any();
            if !name.starts_with(self.prefix) {
                continue;
            }
            snapshot.versions.extend(namespace.resource_version());
            snapshot.is_desired &= namespace.metadata.deletion_timestamp.is_none();
            let phase = namespace.status.and_then(|status| status.phase);
            objects.insert(format!("namespace {name}"), json!(phase));
            let here = self.namespace(&name);
            let (accounts, maps) = tokio::join!(here.list::<ServiceAccount>(), here.list::<ConfigMap>());
            let (accounts, maps) = (accounts?, maps?);
            snapshot.is_desired &= accounts.iter().any(|it| it.name_any() == "default");
            snapshot.is_desired &= maps.iter().any(|it| it.name_any() == ROOT_CA && self.is_published(it));
            for account in accounts {
                snapshot.versions.extend(account.resource_version());
                let key = format!("account {name}/{}", account.name_any());
                objects.insert(key, metadata(&account.metadata));
            }
            for map in maps {
                snapshot.versions.extend(map.resource_version());
                let key = format!("config map {name}/{}", map.name_any());
                let value = json!({
                    "metadata": metadata(&map.metadata),
                    "published": self.is_published(&map),
                    "data": map.data.iter().flatten().map(|(key, _)| key).collect::<Vec<_>>(),
                });
                objects.insert(key, value);
            }
        }
        for node in self.list_nodes().await? {
            snapshot.versions.extend(node.resource_version());
            snapshot.is_desired &= node.annotations().get(TTL).is_some_and(|it| it == ttl);
            objects.insert(format!("node {}", node.name_any()), metadata(&node.metadata));
        }
        snapshot.comparable = Value::Object(objects);
        Ok(snapshot)
    }

    /// Returns whether the data of the root CA are as desired.
    fn is_published(&self, map: &ConfigMap) -> bool {
        let data = map.data.as_ref();
        data.is_some_and(|data| data.len() == 1 && data.get("ca.crt") == Some(&self.root_ca))
    }
}

fn metadata(metadata: &ObjectMeta) -> Value {
    json!({ "labels": metadata.labels, "annotations": metadata.annotations })
}
