//! What is to be of a Site. No clock, no client, no await.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, PodSpec, PodTemplateSpec, Service, ServicePort, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use super::{DIRECTORY, DIRECTORY_NAMESPACE, Site, SiteStatus};

/// The key of the Site's line in the directory.
pub(super) fn line(site: &Site) -> String {
    format!("{}.{}", site.namespace().unwrap_or_default(), site.name_any())
}

/// What that line says while the Site lives.
pub(super) fn address(site: &Site) -> String {
    format!("{}.{}.svc", site.name_any(), site.namespace().unwrap_or_default())
}

/// The status, given the Deployment as it is.
pub(super) fn status(site: &Site, deployment: &Deployment) -> SiteStatus {
    SiteStatus {
        ready_replicas: deployment.status.as_ref().and_then(|it| it.ready_replicas).unwrap_or_default(),
        observed_generation: site.metadata.generation.unwrap_or_default(),
    }
}

/// The Deployment. Its name, namespace and owner are the Site's.
pub(super) fn deployment(site: &Site) -> Deployment {
    let container =
        Container { name: "site".into(), image: Some(site.spec.image.clone()), ..Container::default() };
    let labels = [("site".to_owned(), site.name_any())].into();
    let spec = DeploymentSpec {
        replicas: Some(site.spec.replicas),
        selector: LabelSelector { match_labels: Some(labels), ..LabelSelector::default() },
        template: PodTemplateSpec {
            metadata: Some(ObjectMeta {
                labels: Some([("site".to_owned(), site.name_any())].into()),
                ..ObjectMeta::default()
            }),
            spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
        },
        ..DeploymentSpec::default()
    };
    Deployment { spec: Some(spec), ..Deployment::default() }
}

/// The Service, likewise.
pub(super) fn service(site: &Site) -> Service {
    let spec = ServiceSpec {
        selector: Some([("site".to_owned(), site.name_any())].into()),
        ports: Some(vec![ServicePort { port: 80, ..ServicePort::default() }]),
        ..ServiceSpec::default()
    };
    Service { spec: Some(spec), ..Service::default() }
}

/// One line of the directory, as one field manager applies it. Without an address its line is removed.
pub(super) fn entry(line: String, address: Option<String>) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(DIRECTORY.into()),
        namespace: Some(DIRECTORY_NAMESPACE.into()),
        ..ObjectMeta::default()
    };
    let data = address.map(|address| [(line, address)].into());
    ConfigMap { metadata, data, ..ConfigMap::default() }
}
