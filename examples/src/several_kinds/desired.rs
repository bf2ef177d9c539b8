//! What to do about a Site, given what there is. No clock, no client, no await.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, PodSpec, PodTemplateSpec, Service, ServicePort, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use windlass::prelude::*;

use super::{DIRECTORY, DIRECTORY_NAMESPACE, FINALIZER, Site, SiteStatus};

/// What there is of a Site.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Its Deployment.
    pub(super) deployment: Option<Arc<Deployment>>,
    /// Its Service.
    pub(super) service: Option<Arc<Service>>,
    /// Its line in the directory.
    pub(super) line: Option<String>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Let the Site have these finalizers, if it is still at that version.
    Finalizers {
        /// The version that was seen.
        version: Option<String>,
        /// All that are to be there.
        finalizers: Vec<String>,
    },
    /// Apply its Deployment.
    Deploy(Box<Deployment>),
    /// Apply its Service.
    Expose(Box<Service>),
    /// Apply its line of the directory; one without data takes the line out.
    Enter(Box<ConfigMap>),
    /// Tell how it is.
    Report(SiteStatus),
}

/// What is to be done, in this order: the finalizer is there before what it guards, and goes after it.
pub(super) fn plan(site: &Site, seen: &Seen) -> Vec<Step> {
    if site.metadata.deletion_timestamp.is_some() {
        return farewell(site, seen);
    }
    let mut steps = Vec::new();
    let mut finalizers = site.finalizers().to_vec();
    if !finalizers.iter().any(|it| it == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
        steps.push(Step::Finalizers { version: site.resource_version(), finalizers });
    }
    if seen.deployment.as_ref().is_none_or(|found| differs(found, site)) {
        steps.push(Step::Deploy(Box::new(deployment_of(site))));
    }
    if seen.service.is_none() {
        steps.push(Step::Expose(Box::new(service_of(site))));
    }
    let address = address_of(site);
    if seen.line.as_ref() != Some(&address) {
        steps.push(Step::Enter(Box::new(entry_of(site, Some(address)))));
    }
    let status = status_of(site, seen);
    if site.status.as_ref() != Some(&status) {
        steps.push(Step::Report(status));
    }
    steps
}

/// The key of a Site's line in the directory.
pub(super) fn line_of(key: &ObjectKey) -> String {
    format!("{}.{}", key.namespace().unwrap_or_default(), key.name())
}

fn farewell(site: &Site, seen: &Seen) -> Vec<Step> {
    if !site.finalizers().iter().any(|it| it == FINALIZER) {
        return Vec::new();
    }
    let mut steps = Vec::new();
    if seen.line.is_some() {
        steps.push(Step::Enter(Box::new(entry_of(site, None))));
    }
    let finalizers = site.finalizers().iter().filter(|it| *it != FINALIZER).cloned().collect();
    steps.push(Step::Finalizers { version: site.resource_version(), finalizers });
    steps
}

fn status_of(site: &Site, seen: &Seen) -> SiteStatus {
    let ready = seen.deployment.as_ref().and_then(|found| found.status.as_ref()?.ready_replicas);
    SiteStatus {
        ready_replicas: ready.unwrap_or_default(),
        observed_generation: site.metadata.generation.unwrap_or_default(),
    }
}

/// Whether a Deployment is not what the Site asks for. What the server defaults is not looked at.
fn differs(found: &Deployment, site: &Site) -> bool {
    let spec = found.spec.as_ref();
    let pod = spec.and_then(|spec| spec.template.spec.as_ref());
    let image = pod.and_then(|pod| pod.containers.first()?.image.as_ref());
    image != Some(&site.spec.image) || spec.and_then(|spec| spec.replicas) != Some(site.spec.replicas)
}

fn address_of(site: &Site) -> String {
    format!("{}.{}.svc", site.name_any(), site.namespace().unwrap_or_default())
}

fn deployment_of(site: &Site) -> Deployment {
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
    Deployment { metadata: owned_by(site), spec: Some(spec), ..Deployment::default() }
}

fn service_of(site: &Site) -> Service {
    let spec = ServiceSpec {
        selector: Some([("site".to_owned(), site.name_any())].into()),
        ports: Some(vec![ServicePort { port: 80, ..ServicePort::default() }]),
        ..ServiceSpec::default()
    };
    Service { metadata: owned_by(site), spec: Some(spec), ..Service::default() }
}

fn entry_of(site: &Site, address: Option<String>) -> ConfigMap {
    let key = ObjectKey::of(&site.metadata);
    let metadata = ObjectMeta {
        name: Some(DIRECTORY.into()),
        namespace: Some(DIRECTORY_NAMESPACE.into()),
        ..ObjectMeta::default()
    };
    let data = address.map(|address| [(line_of(&key), address)].into());
    ConfigMap { metadata, data, ..ConfigMap::default() }
}

fn owned_by(site: &Site) -> ObjectMeta {
    ObjectMeta {
        name: site.metadata.name.clone(),
        namespace: site.metadata.namespace.clone(),
        owner_references: Some(vec![controller_reference(site)]),
        ..ObjectMeta::default()
    }
}
