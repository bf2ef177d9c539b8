//! Pod templates: the pods that are built from them, and their hash.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use windlass_gotext::DumpError;
use windlass_object::names::is_dns_subdomain;

/// Maximum length of the name of an API object, in bytes.
pub(crate) const MAX_NAME: usize = 253;

/// Failure to hash a template.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TemplateError {
    /// The template is not JSON.
    #[error("cannot encode the pod template: {0}")]
    Encode(#[from] serde_json::Error),
    /// The template cannot be printed as text.
    #[error("cannot hash the pod template: {0}")]
    Dump(#[from] DumpError),
}

/// Returns the hash of a template and of the number of collisions.
///
/// # Errors
/// [`TemplateError`].
pub(crate) fn template_hash(
    template: &PodTemplateSpec,
    collisions: Option<i32>,
) -> Result<String, TemplateError> {
    Ok(windlass_gotext::template_hash(&serde_json::to_value(template)?, collisions)?)
}

/// Returns a pod to create, with the labels, annotations, finalizers and spec of the template. The server appends five
/// random characters to a prefix that contains the owner's name.
pub(crate) fn pod_from_template(template: &PodTemplateSpec, owner: &OwnerReference) -> Pod {
    let given = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        generate_name: Some(name_prefix(&owner.name)),
        labels: given.labels,
        annotations: given.annotations,
        finalizers: given.finalizers,
        owner_references: Some(vec![owner.clone()]),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: Some(template.spec.clone().unwrap_or_default()), status: None }
}

/// Returns the name prefix of an owner's pods. It ends with a dash if that can begin a valid name.
pub(crate) fn name_prefix(owner: &str) -> String {
    let prefix = format!("{owner}-");
    if is_valid_prefix(&prefix) { prefix } else { owner.to_owned() }
}

/// Returns whether a prefix can begin the name of a pod. As upstream, the prefix must be a DNS subdomain after `a`
/// replaces its final dash and the character before the dash.
fn is_valid_prefix(prefix: &str) -> bool {
    let completed = prefix.strip_suffix('-').map_or_else(
        || prefix.to_owned(),
        |stem| format!("{}a", &stem[..stem.char_indices().last().map_or(0, |(last, _)| last)]),
    );
    is_dns_subdomain(&completed)
}

#[cfg(test)]
mod tests {
    use super::{name_prefix, pod_from_template};
    use crate::shared::fixtures::labels;
    use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

    #[test]
    fn pod_has_metadata_and_spec_but_not_name_of_template() {
        let owner = OwnerReference {
            kind: "ReplicaSet".into(),
            name: "web".into(),
            uid: "1".into(),
            ..Default::default()
        };
        let template = PodTemplateSpec {
            metadata: Some(ObjectMeta {
                name: Some("ignored".into()),
                namespace: Some("ignored".into()),
                labels: Some(labels(&[("app", "web")])),
                annotations: Some(labels(&[("note", "kept")])),
                finalizers: Some(vec!["example.com/hold".into()]),
                ..ObjectMeta::default()
            }),
            spec: Some(PodSpec { node_name: Some("node".into()), ..PodSpec::default() }),
        };
        let pod = pod_from_template(&template, &owner);
        assert_eq!(pod.metadata.generate_name.as_deref(), Some("web-"));
        assert_eq!((&pod.metadata.name, &pod.metadata.namespace), (&None, &None));
        assert_eq!(pod.metadata.owner_references, Some(vec![owner]));
        let given = template.metadata.expect("metadata");
        assert_eq!(pod.metadata.labels, given.labels);
        assert_eq!(pod.metadata.annotations, given.annotations);
        assert_eq!(pod.metadata.finalizers, given.finalizers);
        assert_eq!(pod.spec, template.spec);
    }

    #[test]
    fn prefix_ends_in_dash_if_name_stays_valid() {
        let long = "a".repeat(253);
        for (owner, prefix) in
            [("web", "web-"), ("web.v1", "web.v1-"), ("a", "a-"), (long.as_str(), &format!("{long}-"))]
        {
            assert_eq!(name_prefix(owner), prefix);
        }
        for owner in ["Web", "web_1", &"a".repeat(254)] {
            assert_eq!(name_prefix(owner), owner);
        }
    }
}
