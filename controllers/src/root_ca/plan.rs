//! Compares the ConfigMap of a namespace with the desired one. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::NAME;

/// The key of the data.
const CERTIFICATE: &str = "ca.crt";

/// The annotation that describes the ConfigMap to users.
pub(super) const DESCRIPTION: &str = "kubernetes.io/description";

/// The text of the annotation, which is upstream's.
pub(super) const DESCRIPTION_TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// Action for the ConfigMap of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action<'a> {
    /// No change.
    Nothing,
    /// The ConfigMap does not exist.
    Create(Box<ConfigMap>),
    /// The ConfigMap differs.
    Update {
        /// The current object.
        current: &'a ConfigMap,
        /// The desired object.
        desired: Box<ConfigMap>,
    },
}

/// Compares the current with the desired ConfigMap of `namespace`. Nothing is created in a namespace that is not
/// active, because the API server would reject it. Without a CA, published certificates stay: Pods verify the API
/// server with them.
pub(super) fn plan<'a>(
    namespace: &str,
    is_active: bool,
    current: Option<&'a ConfigMap>,
    root_ca: &str,
) -> Action<'a> {
    match current {
        None if !is_active => Action::Nothing,
        None => Action::Create(Box::new(config_map(namespace, root_ca))),
        Some(current) if is_current(current, root_ca) => Action::Nothing,
        Some(current) if root_ca.is_empty() && has_certificates(current) => Action::Nothing,
        Some(current) => {
            let desired = config_map(namespace, root_ca);
            let mut metadata = current.metadata.clone();
            metadata
                .annotations
                .get_or_insert_default()
                .extend(desired.metadata.annotations.unwrap_or_default());
            let desired = ConfigMap { metadata, data: desired.data, ..current.clone() };
            Action::Update { current, desired: Box::new(desired) }
        }
    }
}

fn is_current(current: &ConfigMap, root_ca: &str) -> bool {
    let data = current.data.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()));
    let description =
        current.metadata.annotations.as_ref().and_then(|annotations| annotations.get(DESCRIPTION));
    data.eq([(CERTIFICATE, root_ca)]) && description.is_some_and(|description| !description.is_empty())
}

fn has_certificates(current: &ConfigMap) -> bool {
    let published = current.data.as_ref().and_then(|data| data.get(CERTIFICATE));
    published.is_some_and(|published| !published.is_empty())
}

fn config_map(namespace: &str, root_ca: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(NAME.to_owned()),
            annotations: Some(BTreeMap::from([(DESCRIPTION.to_owned(), DESCRIPTION_TEXT.to_owned())])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(CERTIFICATE.to_owned(), root_ca.to_owned())])),
        ..ConfigMap::default()
    }
}
