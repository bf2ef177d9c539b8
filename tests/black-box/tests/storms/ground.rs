//! The servers: a new in-process server per scenario, or a namespace of a shared kube-apiserver.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client,
    api::{ListParams, PostParams, VersionMatch},
};
use tokio::sync::OnceCell;
use windlass_api_server::{
    ApiServer, ApiServerOptions,
    faults::Server,
    storage::{InMemoryStorage, MemoryOptions, Storage},
};
use windlass_black_box::{test_namespace::TestNamespace, wait::eventually};
use windlass_env::Env;
use windlass_harness::{ControlPlane, ControlPlaneOptions};

use crate::remote::Remote;

/// The kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    InTheProcess,
    KubeApiserver,
}

/// A server, and a client that bypasses the faults.
pub(crate) struct TestServer {
    pub(crate) namespace: TestNamespace,
    pub(crate) server: Arc<dyn Server>,
    /// The storage of the in-process server.
    memory: Option<Arc<InMemoryStorage>>,
}

impl TestServer {
    pub(crate) async fn prepare(kind: Kind, scenario: &str, env: &Env) -> Result<Self> {
        match kind {
            Kind::InTheProcess => in_the_process(env).await,
            Kind::KubeApiserver => kube_apiserver(scenario).await,
        }
    }

    /// Compacts the history, and waits until pods cannot be listed at `version` any longer. There must be a write after
    /// `version`.
    pub(crate) async fn forget(&self, version: &str) -> Result<()> {
        if let Some(memory) = &self.memory {
            memory.compact(memory.revision());
        }
        let then = ListParams::default().at(version).matching(VersionMatch::Exact);
        let pods: Api<Pod> = self.namespace.api();
        let refusal = || async {
            match pods.list(&then).await {
                Ok(_) => Ok(None),
                Err(kube::Error::Api(status)) => Ok(Some(status.code)),
                Err(error) => Err(error.into()),
            }
        };
        eventually("history is compacted", refusal, |code| *code == Some(410)).await.map(drop)
    }
}

async fn in_the_process(env: &Env) -> Result<TestServer> {
    let memory = Arc::new(InMemoryStorage::new(MemoryOptions::default()));
    let storage = Some(Arc::clone(&memory) as Arc<dyn Storage>);
    let options = ApiServerOptions { storage, ..ApiServerOptions::default() };
    let server = ApiServer::new(&env.with_incarnation("api-server", 0), options);
    let client = Client::new(server.as_user("user"), "default");
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("storms".to_owned());
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let namespace = TestNamespace { client, namespace: "storms".to_owned() };
    Ok(TestServer { namespace, server: Arc::new(server.as_user("windlass")), memory: Some(memory) })
}

/// The control plane of all scenarios on kube-apiserver. It is never dropped.
static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

/// Keeps the logs of the control plane, if it was started.
pub(crate) fn keep_logs() {
    if let Some(plane) = PLANE.get() {
        plane.keep_logs();
    }
}

async fn kube_apiserver(scenario: &str) -> Result<TestServer> {
    let plane = PLANE.get_or_try_init(start_plane).await?;
    let client = plane.client().await;
    let namespace = plane.namespace(scenario).await?;
    let server = Arc::new(Remote::new(client.clone(), namespace.clone()));
    Ok(TestServer { namespace: TestNamespace { client, namespace }, server, memory: None })
}

async fn start_plane() -> Result<ControlPlane> {
    let options = ControlPlaneOptions::default()
        .nodes(0)
        .scheduler(false)
        .authorization_rbac(false)
        .upstream_controllers(Vec::<String>::new())
        .api_server_arg("--etcd-compaction-interval=1s")
        // A watch cache keeps versions that etcd has compacted, so pods have none. Other kinds are tested with one.
        .api_server_arg("--watch-cache-sizes=pods#0");
    let plane = ControlPlane::start(options).await.context("starting the plane of the storms")?;
    plane.keep_logs_on_panic();
    Ok(plane)
}
