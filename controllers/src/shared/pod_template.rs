//! The pod that a template and an owner describe.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// The longest name an API object can have, in bytes.
const MAX_NAME: usize = 253;

/// A pod to be created: its labels, annotations, finalizers and spec are the template's, its name is left to the
/// server, which appends a few random characters to a prefix made from the owner's name.
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

/// What the server is asked to begin the names of an owner's pods with. A dash sets the random part off, where that still
/// makes a name.
pub(crate) fn name_prefix(owner: &str) -> String {
    let prefix = format!("{owner}-");
    if makes_a_name(&prefix) { prefix } else { owner.to_owned() }
}

/// Whether a prefix can be completed to the name of a pod: it is a DNS subdomain, where a dash at its end stands
/// for what is yet to come.
fn makes_a_name(prefix: &str) -> bool {
    let completed = prefix.strip_suffix('-').map_or_else(
        || prefix.to_owned(),
        |stem| format!("{}a", &stem[..stem.char_indices().last().map_or(0, |(last, _)| last)]),
    );
    completed.len() <= MAX_NAME && completed.split('.').all(is_dns_label)
}

fn is_dns_label(label: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = label.as_bytes();
    bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::{name_prefix, pod_from_template};
    use crate::shared::fixtures::labels;
    use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

    #[test]
    fn pod_takes_from_its_template_what_describes_it_and_nothing_that_identifies_it() {
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
    fn prefix_ends_in_a_dash_where_a_name_can_follow() {
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
