//! Desired objects of a Site, as pure functions: no clock, no client, no await.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, PodSpec, PodTemplateSpec, Service, ServicePort, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use super::{DIRECTORY, DIRECTORY_NAMESPACE, Site, SiteStatus};

/// Returns the key of the Site's line in the directory.
pub(super) fn line(site: &Site) -> String {
    format!("{}.{}", site.namespace().unwrap_or_default(), site.name_any())
}

/// Returns the value of that line while the Site exists.
pub(super) fn address(site: &Site) -> String {
    format!("{}.{}.svc", site.name_any(), site.namespace().unwrap_or_default())
}

/// Returns the status for the observed Deployment.
pub(super) fn status(site: &Site, deployment: &Deployment) -> SiteStatus {
    SiteStatus {
        ready_replicas: deployment.status.as_ref().and_then(|it| it.ready_replicas).unwrap_or_default(),
        observed_generation: site.metadata.generation.unwrap_or_default(),
    }
}

/// Returns the Deployment. The caller sets its name, namespace and owner.
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

/// Returns the Service. The caller sets its name, namespace and owner.
pub(super) fn service(site: &Site) -> Service {
    let spec = ServiceSpec {
        selector: Some([("site".to_owned(), site.name_any())].into()),
        ports: Some(vec![ServicePort { port: 80, ..ServicePort::default() }]),
        ..ServiceSpec::default()
    };
    Service { spec: Some(spec), ..Service::default() }
}

/// Returns the apply configuration of one directory line. The apply removes the line if `address` is `None`.
pub(super) fn entry(line: String, address: Option<String>) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(DIRECTORY.into()),
        namespace: Some(DIRECTORY_NAMESPACE.into()),
        ..ObjectMeta::default()
    };
    let data = address.map(|address| [(line, address)].into());
    ConfigMap { metadata, data, ..ConfigMap::default() }
}
