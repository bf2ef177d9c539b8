//! A factory with the in-process API server and an access check between them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use windlass_api_server::ApiServerOptions;
use windlass_api_server::faults::{FaultAction, FaultPlan, FaultyServer, RequestSummary};
use windlass_client::{FrameStream, RawClient, RequestError};
use windlass_env::Env;
use windlass_metrics::Metrics;
use windlass_object::{DynamicObjects, RawList, ResourceKind, ResourceVersion, Scope, Verb};

use crate::testing::refusal;
use crate::{
    ApiServerSources, FactoryOptions, InformerFactory, ListRequest, ListerWatcher, NamespaceSet, Selection,
    SharedInformer, SourceProvider, WatchListRequest, WatchRequest,
};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);

pub(super) struct World {
    pub(super) env: Env,
    pub(super) api: FaultyServer,
    pub(super) door: Arc<Door>,
    pub(super) factory: InformerFactory,
}

/// The API server with an access check.
pub(super) struct Door {
    sources: ApiServerSources,
    /// Whether lists are available as streams.
    streams: AtomicBool,
    /// The forbidden lists and watches: verb, resource and namespace.
    shut: Mutex<BTreeSet<(Verb, String, Option<String>)>>,
}

/// A source that passes the access check before each request.
struct Asker {
    door: Arc<Door>,
    what: (String, Option<String>),
    source: Arc<dyn ListerWatcher>,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(FactoryOptions::default())
    }

    /// Creates a world whose factory uses these namespaces.
    pub(super) fn over(namespaces: &NamespaceSet) -> Self {
        Self::with(FactoryOptions { namespaces: Some(namespaces.clone()), ..FactoryOptions::default() })
    }

    pub(super) fn with(options: FactoryOptions) -> Self {
        Self::before(ApiServerOptions::default(), FaultPlan { seed: 1, faults: Vec::new() }, options)
    }

    /// Creates a world with this server and these faults.
    pub(super) fn before(server: ApiServerOptions, plan: FaultPlan, options: FactoryOptions) -> Self {
        let env = Env::virtual_time(1);
        let api = FaultyServer::with(&env, plan, server);
        for namespace in ["a", "b", "c"] {
            api.upsert(&format!("/api/v1/namespaces/{namespace}"), json!({}));
        }
        let client = RawClient::new(kube::Client::new(api.link(), "default"), env.clone());
        let door = Arc::new(Door {
            sources: ApiServerSources::new(client),
            streams: AtomicBool::new(false),
            shut: Mutex::default(),
        });
        let factory = InformerFactory::new(env.clone(), Metrics::new(), options);
        Self { env, api, door, factory }
    }

    pub(super) fn start(&self) {
        self.factory.start(Arc::new(Entrance(Arc::clone(&self.door))));
    }

    pub(super) async fn pass(&self, time: Duration) {
        self.env.sleep(time).await;
    }

    /// Creates or updates a ConfigMap and returns its version.
    pub(super) fn put(&self, namespace: &str, name: &str, value: &str) -> ResourceVersion {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        version(&self.api.upsert(&path, json!({ "data": { "value": value } })))
    }

    pub(super) fn remove(&self, namespace: &str, name: &str) {
        self.api.remove(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}"));
    }

    /// Installs the CRD of widgets.
    pub(super) fn define_widgets(&self) {
        self.api.upsert(&format!("{DEFINITIONS}/widgets.example.com"), definition());
    }

    pub(super) fn undefine_widgets(&self) {
        self.api.delete(&format!("{DEFINITIONS}/widgets.example.com"));
    }

    pub(super) fn put_widget(&self, name: &str) -> ResourceVersion {
        version(&self.api.upsert(&format!("/apis/example.com/v1/namespaces/a/widgets/{name}"), widget()))
    }

    /// Returns the number of requests with this verb on a resource, in one namespace or (empty) over all namespaces.
    pub(super) fn asked(&self, verb: Verb, resource: &str, namespace: &str) -> usize {
        self.requests(verb, resource).iter().filter(|asked| asked.namespace == namespace).count()
    }

    pub(super) fn requests(&self, verb: Verb, resource: &str) -> Vec<Arc<RequestSummary>> {
        let sent = self.api.sent_requests().into_iter();
        sent.filter(|asked| asked.verb == Some(verb) && asked.resource == resource).collect()
    }

    /// Compacts the history of one namespace: its watches expire at the next event and cannot be resumed.
    pub(super) fn compact(&self, namespace: &'static str) {
        let here = move |request: &RequestSummary| request.is_watch() && request.namespace == namespace;
        self.api.inject_fault(move |request| here(request).then_some(FaultAction::WatchExpired));
    }

    pub(super) fn heal(&self) {
        self.api.inject_fault(|_| None);
    }
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

fn widget() -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget" })
}

fn version(object: &Value) -> ResourceVersion {
    ResourceVersion::new(object["metadata"]["resourceVersion"].as_str().expect("a version"))
}

pub(super) fn widgets() -> DynamicObjects {
    DynamicObjects::new(ResourceKind {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
        scope: Scope::Namespaced,
    })
}

/// Returns the objects of an informer of ConfigMaps as `namespace/name=value`. Objects that the server creates in every
/// namespace are left out.
pub(super) fn held(informer: &SharedInformer<ConfigMap>) -> Vec<String> {
    let ours = informer.lister().list().into_iter().filter(|map| map.data.is_some());
    ours.filter_map(|map| {
        let value = map.data.as_ref()?.get("value")?.clone();
        let meta = &map.metadata;
        Some(format!("{}/{}={value}", meta.namespace.as_deref()?, meta.name.as_deref()?))
    })
    .collect()
}

impl Door {
    /// Forbids this in one namespace, or over all namespaces.
    pub(super) fn shut(&self, verb: Verb, resource: &str, namespace: Option<&str>) {
        self.lock(|shut| shut.insert((verb, resource.to_owned(), namespace.map(str::to_owned))));
    }

    /// Makes lists available as streams.
    pub(super) fn offer_streams(&self) {
        self.streams.store(true, Ordering::Relaxed);
    }

    pub(super) fn open(&self) {
        self.lock(BTreeSet::clear);
    }

    fn check(
        &self,
        verb: Verb,
        (resource, namespace): &(String, Option<String>),
    ) -> Result<(), RequestError> {
        let shut = self.lock(|shut| shut.contains(&(verb, resource.clone(), namespace.clone())));
        if shut { Err(refusal(403, "Forbidden")) } else { Ok(()) }
    }

    fn lock<T>(&self, act: impl FnOnce(&mut BTreeSet<(Verb, String, Option<String>)>) -> T) -> T {
        act(&mut self.shut.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Entrance(Arc<Door>);

impl SourceProvider for Entrance {
    fn source(&self, kind: &ResourceKind, selection: &Selection) -> Arc<dyn ListerWatcher> {
        let what = (kind.plural.to_string(), selection.namespace.clone());
        Arc::new(Asker { door: Arc::clone(&self.0), what, source: self.0.sources.source(kind, selection) })
    }
}

#[async_trait]
impl ListerWatcher for Asker {
    async fn list(&self, request: ListRequest) -> Result<RawList, RequestError> {
        self.door.check(Verb::List, &self.what)?;
        self.source.list(request).await
    }

    async fn watch_list(&self, request: WatchListRequest) -> Result<FrameStream, RequestError> {
        if !self.door.streams.load(Ordering::Relaxed) {
            return Err(RequestError::Unsupported("the access check rejects streams"));
        }
        self.door.check(Verb::Watch, &self.what)?;
        self.source.watch_list(request).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<FrameStream, RequestError> {
        self.door.check(Verb::Watch, &self.what)?;
        self.source.watch(request).await
    }
}

/// Sends a request without a client and returns the status code.
pub(super) fn code(world: &World, path: &str) -> u16 {
    world.api.request(&Method::GET, path, None).0
}
