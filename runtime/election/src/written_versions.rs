//! What a holder tells its successor: up to which versions it has written. Pure.
//!
//! A standby that takes over within milliseconds of a release may read caches that do not show the last writes yet,
//! and would make them a second time. The release therefore names the highest version written of each resource, in an
//! annotation of the Lease; whoever takes the lease from that very record waits for them. A Lease that names a holder
//! never carries the annotation: each of our own writes removes it, and what others leave there is not read.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_object::{GroupResource, ResourceVersion};

/// The annotation: a JSON object from `resource.group` (`pods`, `replicasets.apps`) to a version, in order.
pub const WRITTEN_ANNOTATION: &str = "windlass.dev/written";

/// The highest version written of each resource.
pub type WrittenVersions = BTreeMap<GroupResource, ResourceVersion>;

/// What is known of the writes of whoever held the lease before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PreviousHolder {
    /// Nothing was said: it crashed, or there was none. Its fence closed well before its lease expired, so it has not
    /// written for seconds. (Other software may give a lease back and say nothing; what it wrote is not known.)
    #[default]
    Unreported,
    /// It gave the lease back after its work had ended, and had written up to these versions.
    Released(WrittenVersions),
}

impl PreviousHolder {
    /// What a Lease that nobody holds says of who released it. An annotation that cannot be read says nothing.
    pub fn from_released(metadata: &ObjectMeta) -> Self {
        let annotation = metadata.annotations.as_ref().and_then(|all| all.get(WRITTEN_ANNOTATION));
        match annotation.map(|text| parse(text)) {
            Some(Ok(written)) => Self::Released(written),
            Some(Err(error)) => {
                tracing::debug!(%error, "the released lease carries an annotation that cannot be read: ignored");
                Self::Unreported
            }
            None => Self::Unreported,
        }
    }

    /// Returns the versions that the previous holder left; `None` if it left none.
    pub fn written(&self) -> Option<&WrittenVersions> {
        match self {
            Self::Released(written) => Some(written),
            Self::Unreported => None,
        }
    }
}

/// `metadata` with this annotation, or without any.
pub(crate) fn annotated(metadata: &ObjectMeta, written: Option<&WrittenVersions>) -> ObjectMeta {
    let mut metadata = metadata.clone();
    let annotations = metadata.annotations.get_or_insert_default();
    match written {
        Some(written) => annotations.insert(WRITTEN_ANNOTATION.to_owned(), format(written)),
        None => annotations.remove(WRITTEN_ANNOTATION),
    };
    metadata.annotations = metadata.annotations.filter(|annotations| !annotations.is_empty());
    metadata
}

fn format(written: &WrittenVersions) -> String {
    let text = |(resource, version): (&GroupResource, &ResourceVersion)| {
        (resource.to_string(), version.as_str().to_owned())
    };
    let sorted: BTreeMap<String, String> = written.iter().map(text).collect();
    serde_json::json!(sorted).to_string()
}

fn parse(text: &str) -> Result<WrittenVersions, serde_json::Error> {
    let written: BTreeMap<String, String> = serde_json::from_str(text)?;
    Ok(written.iter().map(|(name, version)| (resource(name), ResourceVersion::new(version))).collect())
}

/// Names of resources hold no dot, so the first one begins the group.
fn resource(name: &str) -> GroupResource {
    let (resource, group) = name.split_once('.').unwrap_or((name, ""));
    GroupResource::new(group.to_owned(), resource.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> WrittenVersions {
        let version = ResourceVersion::new;
        let (pods, sets) = (GroupResource::new("", "pods"), GroupResource::new("apps", "replicasets"));
        let slices = GroupResource::new("discovery.k8s.io", "endpointslices");
        WrittenVersions::from([(sets, version("130")), (pods, version("123")), (slices, version("7"))])
    }

    fn with(annotation: &str) -> ObjectMeta {
        let annotations = [(WRITTEN_ANNOTATION.to_owned(), annotation.to_owned())];
        ObjectMeta { annotations: Some(annotations.into()), ..ObjectMeta::default() }
    }

    #[test]
    fn what_was_written_is_told_as_sorted_json_and_understood() {
        let metadata = annotated(&ObjectMeta::default(), Some(&written()));
        let text = r#"{"endpointslices.discovery.k8s.io":"7","pods":"123","replicasets.apps":"130"}"#;
        assert_eq!(metadata, with(text));
        assert_eq!(PreviousHolder::from_released(&metadata), PreviousHolder::Released(written()));
    }

    #[test]
    fn annotation_that_makes_no_sense_says_nothing() {
        for garbage in ["", "{", "null", "[]", "17", r#"{"pods":123}"#, r#"{"pods":{"a":"b"}}"#] {
            assert_eq!(
                PreviousHolder::from_released(&with(garbage)),
                PreviousHolder::Unreported,
                "{garbage}"
            );
        }
        assert_eq!(PreviousHolder::from_released(&ObjectMeta::default()), PreviousHolder::Unreported);
    }

    #[test]
    fn what_others_annotated_stays_and_ours_goes_with_the_next_write() {
        let mut metadata = with("{}");
        metadata.annotations.get_or_insert_default().insert("theirs".to_owned(), "kept".to_owned());
        let next = annotated(&metadata, None).annotations.expect("theirs");
        assert_eq!(next, BTreeMap::from([("theirs".to_owned(), "kept".to_owned())]));
        assert_eq!(annotated(&with("{}"), None), ObjectMeta::default());
    }
}
