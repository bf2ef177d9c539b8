//! The publisher of the root CA: maintains the ConfigMap `kube-root-ca.crt` in every namespace.
//!
//! Watches namespaces and the ConfigMaps of that name; creates and updates ConfigMaps. Pods verify the API server with
//! it: the kubelet adds it to the volume of each ServiceAccount token. The keys are those of the namespaces.
//!
//! The data is replaced as a whole. The description is added if it is missing; a description of another client stays
//! while the data is unchanged.

mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use windlass_controller::{
    Context, Controller, Descriptor, Enqueuer, Outcome, ReconcileError, Setup, SetupError, WriteError, Writer,
};
use windlass_informer::{Event, Lister, NamespaceSet};
use windlass_metrics::RootCaMetrics;
use windlass_object::ObjectKey;

use self::plan::{Action, plan};
use crate::ControllerOptions;
use crate::shared::api_errors::{is_namespace_terminating, is_not_found, status_code};
use crate::shared::namespace_view::{NamespaceView, named, namespaces_as_keys};

/// The name of the ConfigMap.
const NAME: &str = "kube-root-ca.crt";

/// The publisher of the root CA.
#[derive(Debug)]
pub struct RootCaPublisherController {
    namespaces: Lister<NamespaceView>,
    config_maps: Lister<ConfigMap>,
    /// The namespaces to which the process is limited.
    limit: Option<NamespaceSet>,
    writer: Writer<ConfigMap>,
    root_ca: Arc<str>,
    metrics: RootCaMetrics,
}

impl Controller for RootCaPublisherController {
    const NAME: &'static str = "root-ca-certificate-publisher-controller";
    const DESCRIPTOR: Descriptor = Descriptor::new(Self::NAME)
        .with_aliases(&["root-ca-cert-publisher"])
        .with_client_name("root-ca-cert-publisher")
        .with_queue_name("root_ca_cert_publisher")
        .without_events();
    type Config = ControllerOptions;

    fn setup(setup: &mut Setup, options: &ControllerOptions) -> Result<Self, SetupError> {
        let metrics = setup.metrics().root_ca();
        let writer = setup.writer::<ConfigMap>().create().update().build();
        let namespaces = namespaces_as_keys(setup);
        let mut watch = setup.watch::<ConfigMap>().with_selection(named(NAME)).on_event(enqueue_changed);
        let limit = watch.informer().namespaces().cloned();
        let config_maps = watch.lister();
        let root_ca = Arc::clone(&options.root_ca);
        Ok(Self { namespaces, config_maps, limit, writer, root_ca, metrics })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        if self.limit.as_ref().is_some_and(|limit| !limit.contains(key.name())) {
            return Ok(Outcome::Done);
        }
        let started = cx.env().now();
        let current = self.config_maps.get(&ObjectKey::namespaced(key.name(), NAME))?;
        let namespace = self.namespaces.get(key)?;
        let is_active = namespace.is_some_and(|namespace| namespace.is_active());
        let published =
            self.publish(plan(key.name(), is_active, current.as_deref(), &self.root_ca), cx).await;
        let code = published.as_ref().err().map_or(200, |error| status_code(error).unwrap_or(500));
        self.metrics.observe(code, cx.env().now() - started);
        Ok(published.map(|()| Outcome::Done)?)
    }

    fn started(&self, _: &Enqueuer) {
        if self.root_ca.is_empty() {
            tracing::warn!(
                "no CA of the API server; kube-root-ca.crt keeps its certificates, and new namespaces get an empty one; \
                 set --root-ca-file"
            );
        }
    }
}

impl RootCaPublisherController {
    /// Sends the request for the planned action.
    ///
    /// # Errors
    /// If the request fails. A create in a namespace that is deleted or being deleted is not a failure.
    async fn publish(&self, action: Action<'_>, cx: &Context) -> Result<(), WriteError> {
        match action {
            Action::Nothing => Ok(()),
            Action::Create(config_map) => match self.writer.create(cx, &config_map).await {
                Ok(_) => Ok(()),
                Err(error) if is_not_found(&error) || is_namespace_terminating(&error) => Ok(()),
                Err(error) => Err(error),
            },
            Action::Update { current, desired } => {
                self.writer.update(cx, current, |config_map| config_map.clone_from(&desired)).await.map(drop)
            }
        }
    }
}

/// Enqueues the namespace of a changed or deleted ConfigMap. The namespaces of the initial list are enqueued anyway.
fn enqueue_changed(event: &Event<Arc<ConfigMap>>, queue: &Enqueuer) {
    let namespace = match event {
        Event::Added { .. } => return,
        Event::Updated { new, .. } => &new.metadata.namespace,
        Event::Deleted { last, .. } => &last.metadata.namespace,
    };
    if let Some(namespace) = namespace {
        queue.add(ObjectKey::cluster(namespace));
    }
}
