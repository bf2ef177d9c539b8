//! The ServiceAccount controller: maintains the ServiceAccount `default` in every active namespace.
//!
//! Watches namespaces and the ServiceAccounts of that name; creates ServiceAccounts. The API server admits no pod in a
//! namespace without it. The keys are those of the namespaces. An existing ServiceAccount is never changed.

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_controller::{
    Context, Controller, Descriptor, Enqueuer, Outcome, ReconcileError, Setup, SetupError, WriteError, Writer,
};
use windlass_informer::{Event, Lister, NamespaceSet};
use windlass_macros::View;
use windlass_object::{Metadata, ObjectKey};

use crate::ControllerOptions;
use crate::shared::api_errors::{is_already_exists, is_namespace_terminating};
use crate::shared::namespace_view::{NamespaceView, named, namespaces_as_keys};

/// The name of the ServiceAccount.
const NAME: &str = "default";

/// A ServiceAccount. Only its existence is read.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/ServiceAccount", crate = windlass_object)]
struct ServiceAccountView {
    metadata: Metadata,
}

/// The ServiceAccount controller.
#[derive(Debug)]
pub struct ServiceAccountController {
    namespaces: Lister<NamespaceView>,
    accounts: Lister<ServiceAccountView>,
    /// The namespaces to which the process is limited.
    limit: Option<NamespaceSet>,
    writer: Writer<ServiceAccount>,
}

impl Controller for ServiceAccountController {
    const NAME: &'static str = "serviceaccount-controller";
    const DESCRIPTOR: Descriptor = Descriptor::new(Self::NAME)
        .with_aliases(&["serviceaccount"])
        .with_client_name("service-account-controller")
        .with_queue_name("serviceaccount")
        .without_events();
    type Config = ControllerOptions;

    fn setup(setup: &mut Setup, _: &ControllerOptions) -> Result<Self, SetupError> {
        let writer = setup.writer::<ServiceAccount>().create().build();
        let namespaces = namespaces_as_keys(setup);
        let mut watch =
            setup.watch::<ServiceAccountView>().with_selection(named(NAME)).on_event(enqueue_deleted);
        let limit = watch.informer().namespaces().cloned();
        let accounts = watch.lister();
        Ok(Self { namespaces, accounts, limit, writer })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        if self.limit.as_ref().is_some_and(|limit| !limit.contains(key.name())) {
            return Ok(Outcome::Done);
        }
        let namespace = self.namespaces.get(key)?;
        // An undecodable ServiceAccount exists too.
        let exists =
            |name: &str| !matches!(self.accounts.get(&ObjectKey::namespaced(key.name(), name)), Ok(None));
        for name in missing(namespace.as_deref(), &[NAME], exists) {
            self.create(key.name(), name, cx).await?;
        }
        Ok(Outcome::Done)
    }
}

impl ServiceAccountController {
    /// Creates a ServiceAccount, unless another client has created it or the namespace is being deleted.
    async fn create(&self, namespace: &str, name: &str, cx: &Context) -> Result<(), WriteError> {
        let metadata = ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        };
        match self.writer.create(cx, &ServiceAccount { metadata, ..ServiceAccount::default() }).await {
            Ok(_) => Ok(()),
            Err(error) if is_already_exists(&error) || is_namespace_terminating(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns the names that an active namespace lacks. Nothing is created in a namespace that is being deleted.
fn missing<'a>(
    namespace: Option<&NamespaceView>,
    names: &[&'a str],
    exists: impl Fn(&str) -> bool,
) -> Vec<&'a str> {
    match namespace {
        Some(namespace) if namespace.is_active() => {
            names.iter().copied().filter(|name| !exists(name)).collect()
        }
        _ => Vec::new(),
    }
}

/// Enqueues the namespace of a deleted ServiceAccount.
fn enqueue_deleted(event: &Event<std::sync::Arc<ServiceAccountView>>, queue: &Enqueuer) {
    if let Event::Deleted { last, .. } = event
        && let Some(namespace) = last.metadata.header.key.namespace()
    {
        queue.add(ObjectKey::cluster(namespace));
    }
}
