//! The stable identity of a pod: its name, its labels and its claims.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume};
use windlass_object::owner::controller_reference;

use super::claims::claim_name;
use super::spec::{UpdateStrategy, claim_templates, service_name, start, strategy};
use crate::shared::history::REVISION_LABEL;
use crate::shared::pod_template::pod_from_template;
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// Label with the name of the pod.
pub(super) const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// Label with the ordinal of the pod.
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// Returns the name of the pod with this ordinal.
pub(super) fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", pods::name(&set.metadata))
}

/// Returns the StatefulSet name and the ordinal in a pod name; `None` if the name has another form. The ordinal is
/// `None` if it exceeds 32 bits.
fn parent_and_ordinal(pod: &str) -> Option<(&str, Option<i32>)> {
    let (parent, digits) = pod.rsplit_once('-')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| (parent, digits.parse().ok()))
}

/// Returns the ordinal in the name of a pod.
pub(super) fn ordinal(pod: &str) -> Option<i32> {
    parent_and_ordinal(pod)?.1
}

/// Returns whether a pod name consists of the name of the StatefulSet and an ordinal.
pub(super) fn is_member(set: &StatefulSet, pod: &str) -> bool {
    parent_and_ordinal(pod).is_some_and(|(parent, _)| parent == pods::name(&set.metadata))
}

/// Returns the name of the pod's revision; empty if the label is missing.
pub(super) fn revision(pod: &PodView) -> &str {
    pod.metadata.labels.get(REVISION_LABEL).unwrap_or_default()
}

/// Returns whether a pod has the name and the labels of a member.
pub(super) fn identity_matches(set: &StatefulSet, pod: &PodView) -> bool {
    let name = pods::name(&pod.metadata);
    is_member(set, name)
        && ordinal(name).is_some_and(|ordinal| pod_name(set, ordinal) == name)
        && pod.metadata.labels.get(POD_NAME_LABEL) == Some(name)
}

/// Returns whether a pod has a volume for each of its claims.
pub(super) fn storage_matches(set: &StatefulSet, pod: &PodView) -> bool {
    let Some(ordinal) = ordinal(pods::name(&pod.metadata)) else { return false };
    claim_templates(set).iter().all(|template| {
        // If several volumes have the same name, the last volume is used, as upstream.
        let volume = pod.volumes.iter().rfind(|volume| *volume.name == *pods::name(&template.metadata));
        let claim = volume.and_then(|volume| volume.claim.as_deref());
        claim.is_some_and(|claim| *claim == claim_name(set, template, ordinal))
    })
}

/// Sets the labels of a member.
pub(super) fn update_identity(pod: &mut Pod, name: &str, ordinal: i32) {
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME_LABEL.to_owned(), name.to_owned());
    labels.insert(POD_INDEX_LABEL.to_owned(), ordinal.to_string());
}

/// Inserts the claims of a pod as its first volumes, and removes other volumes with the same names.
pub(super) fn update_storage(set: &StatefulSet, pod: &mut Pod, ordinal: i32) {
    let templates = claim_templates(set);
    let claims = templates.iter().map(|template| Volume {
        name: pods::name(&template.metadata).to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim_name(set, template, ordinal),
            read_only: None,
        }),
        ..Volume::default()
    });
    let spec = pod.spec.get_or_insert_default();
    let is_replaced =
        |volume: &Volume| templates.iter().any(|template| pods::name(&template.metadata) == volume.name);
    let others = spec.volumes.take().unwrap_or_default().into_iter().filter(|volume| !is_replaced(volume));
    let volumes: Vec<_> = claims.chain(others).collect();
    spec.volumes = (!volumes.is_empty()).then_some(volumes);
}

/// The revisions that new pods of a StatefulSet can have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Versions {
    pub(super) current: Version,
    pub(super) update: Version,
}

/// A revision: its name and its template.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Version {
    pub(super) name: String,
    pub(super) template: PodTemplateSpec,
}

/// Returns a pod to create.
pub(super) fn new_pod(set: &StatefulSet, versions: &Versions, ordinal: i32) -> Pod {
    let version = if is_current(set, ordinal) { &versions.current } else { &versions.update };
    let mut pod = pod_from_template(&version.template, &controller_reference(set));
    let name = pod_name(set, ordinal);
    update_identity(&mut pod, &name, ordinal);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(REVISION_LABEL.to_owned(), version.name.clone());
    pod.metadata.namespace.clone_from(&set.metadata.namespace);
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name.clone());
    let service = service_name(set);
    spec.subdomain = (!service.is_empty()).then(|| service.to_owned());
    pod.metadata.name = Some(name);
    update_storage(set, &mut pod, ordinal);
    pod
}

/// Returns whether a new pod with this ordinal has the current revision instead of the update revision.
fn is_current(set: &StatefulSet, ordinal: i32) -> bool {
    let kept = match strategy(set) {
        UpdateStrategy::RollingUpdate { partition: None } => {
            set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or_default()
        }
        UpdateStrategy::RollingUpdate { partition: Some(kept) }
        | UpdateStrategy::Unknown { partition: Some(kept) } => kept,
        UpdateStrategy::Unknown { partition: None } | UpdateStrategy::OnDelete => return false,
    };
    ordinal < start(set).saturating_add(kept)
}
