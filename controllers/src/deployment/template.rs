//! Comparison and hash of pod templates, and the new ReplicaSet.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use windlass_gotext::equal_templates;
use windlass_object::owner::controller_reference;

use super::spec::{min_ready_seconds, name};
use crate::shared::non_zero;
use crate::shared::pod_template::{MAX_NAME, TemplateError, template_hash};
use crate::shared::pods;

/// Label with the hash of the template.
pub(super) const HASH_LABEL: &str = "pod-template-hash";

/// A template without its hash label, to compare with many others.
struct ComparedTemplate {
    template: PodTemplateSpec,
    /// Computed for the first template that is not literally equal; `None` if the template has no JSON form.
    json: OnceCell<Option<Value>>,
}

impl ComparedTemplate {
    fn new(template: &PodTemplateSpec) -> Self {
        Self { template: without_hash(template), json: OnceCell::new() }
    }

    /// Returns whether another template is semantically equal without its hash label.
    fn equals(&self, other: &PodTemplateSpec) -> bool {
        let other = without_hash(other);
        if self.template == other {
            return true;
        }
        let json = self.json.get_or_init(|| serde_json::to_value(&self.template).ok());
        match (json, serde_json::to_value(&other)) {
            (Some(json), Ok(other)) => equal_templates(json, &other),
            _ => false,
        }
    }
}

/// Returns whether two templates are semantically equal without their hash labels.
pub(super) fn equal_ignoring_hash(one: &PodTemplateSpec, other: &PodTemplateSpec) -> bool {
    ComparedTemplate::new(one).equals(other)
}

/// Returns a template without its hash label.
pub(super) fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
        labels.remove(HASH_LABEL);
    }
    template
}

/// Returns the template of a Deployment.
pub(super) fn template(deployment: &Deployment) -> PodTemplateSpec {
    deployment.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default()
}

/// Returns the position of the first ReplicaSet with the template of the Deployment.
pub(super) fn position_of_new_set(deployment: &Deployment, sets: &[ReplicaSet]) -> Option<usize> {
    let wanted = ComparedTemplate::new(&deployment.spec.as_ref()?.template);
    let missing = PodTemplateSpec::default();
    let has_template = |set: &ReplicaSet| {
        let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
        wanted.equals(template.unwrap_or(&missing))
    };
    sets.iter().position(has_template)
}

/// Returns the order by creation, then by name.
pub(super) fn by_creation(one: &ReplicaSet, other: &ReplicaSet) -> Ordering {
    let created = |set: &ReplicaSet| pods::created(&set.metadata);
    created(one).cmp(&created(other)).then_with(|| name(one).cmp(name(other)))
}

/// Returns the ReplicaSet of the present template, without replicas and annotations.
pub(super) fn new_set(deployment: &Deployment) -> Result<ReplicaSet, TemplateError> {
    let mut template = template(deployment);
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let hash = template_hash(&template, collisions)?;
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH_LABEL.to_owned(), hash.clone());
    let labels: BTreeMap<_, _> = labels.clone();
    let mut selector = deployment.spec.as_ref().map(|spec| spec.selector.clone()).unwrap_or_default();
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
    let min_ready = min_ready_seconds(deployment);
    Ok(ReplicaSet {
        metadata: ObjectMeta {
            name: Some(set_name(deployment.metadata.name.as_deref().unwrap_or_default(), &hash)),
            namespace: deployment.metadata.namespace.clone(),
            owner_references: Some(vec![controller_reference(deployment)]),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(0),
            min_ready_seconds: non_zero(min_ready),
            selector,
            template: Some(template),
        }),
        status: None,
    })
}

/// Returns the name of the ReplicaSet with this hash.
pub(super) fn set_name(deployment: &str, hash: &str) -> String {
    let longest = MAX_NAME.saturating_sub(hash.len() + 1);
    // Names of Deployments are ASCII.
    let kept = deployment.get(..longest).unwrap_or(deployment);
    format!("{kept}-{hash}")
}
