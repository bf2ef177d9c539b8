//! The versions that a holder wrote, reported to its successor. Pure.
//!
//! A standby that takes over within milliseconds of a release can have caches without the last writes, and would repeat
//! them. The release therefore states the highest written version of each resource in an annotation of the Lease. A
//! replica that takes the Lease in this state waits for these versions. A Lease with a holder never has the annotation:
//! each write of this crate removes it, and annotations next to a holder are ignored.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_object::{GroupResource, ResourceVersion};

/// Annotation with a sorted JSON object from `resource.group` (`pods`, `replicasets.apps`) to a version.
pub const WRITTEN_ANNOTATION: &str = "windlass.dev/written";

/// The highest written version of each resource.
pub type WrittenVersions = BTreeMap<GroupResource, ResourceVersion>;

/// Adds other versions; of each resource the higher version stays.
pub fn merge_written(versions: &mut WrittenVersions, others: &WrittenVersions) {
    for (resource, version) in others {
        let highest = versions.entry(resource.clone()).or_insert_with(|| version.clone());
        if *highest < *version {
            *highest = version.clone();
        }
    }
}

/// Reported writes of the previous holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PreviousHolder {
    /// No report: the holder crashed, or there was none. Its fence closed seconds before its lease expired, so it has
    /// not written since. (Other software might release a Lease without a report; its writes are unknown.)
    #[default]
    Unreported,
    /// There was no Lease, and this replica has not observed one. It has no writes to report to its successor.
    Absent,
    /// The holder released the Lease after its work had stopped, and had written up to these versions.
    Released(WrittenVersions),
}

impl PreviousHolder {
    /// Reads the report in a Lease without a holder. An invalid annotation counts as no report.
    pub fn from_released(metadata: &ObjectMeta) -> Self {
        let annotation = metadata.annotations.as_ref().and_then(|all| all.get(WRITTEN_ANNOTATION));
        match annotation.map(|text| parse(text)) {
            Some(Ok(written)) => Self::Released(written),
            Some(Err(error)) => {
                tracing::debug!(%error, "ignoring invalid annotation of the released lease");
                Self::Unreported
            }
            None => Self::Unreported,
        }
    }

    /// Returns the versions that the previous holder reported; `None` if it reported none.
    pub fn written(&self) -> Option<&WrittenVersions> {
        match self {
            Self::Released(written) => Some(written),
            Self::Unreported | Self::Absent => None,
        }
    }

    /// Returns what a replica adds to its own record, because the caches of its successor can be older than its term:
    /// versions that cover the writes of all holders before. `reflected` contains the versions at which its own caches
    /// reflected these writes, if they have. `None` if the successor must relist its caches too, also if a cache has
    /// reflected them at a lower version than the reported one: no cache reaches that after a restore of the server.
    pub fn record_for_successor(&self, reflected: Option<&WrittenVersions>) -> Option<WrittenVersions> {
        match (self, reflected) {
            (Self::Released(written), None) => Some(written.clone()),
            (Self::Released(written), Some(reflected)) => {
                let is_lower = |(resource, version): (&GroupResource, &ResourceVersion)| {
                    written.get(resource).is_some_and(|reported| version < reported)
                };
                let mut record = written.clone();
                merge_written(&mut record, reflected);
                (!reflected.iter().any(is_lower)).then_some(record)
            }
            (Self::Unreported | Self::Absent, reflected) => reflected.cloned(),
        }
    }
}

/// Returns `metadata` with this annotation, or without it.
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

/// Parses a resource. Resource names contain no dot, so the first dot starts the group.
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
    fn written_versions_round_trip_as_sorted_json() {
        let metadata = annotated(&ObjectMeta::default(), Some(&written()));
        let text = r#"{"endpointslices.discovery.k8s.io":"7","pods":"123","replicasets.apps":"130"}"#;
        assert_eq!(metadata, with(text));
        assert_eq!(PreviousHolder::from_released(&metadata), PreviousHolder::Released(written()));
    }

    #[test]
    fn invalid_annotation_counts_as_no_report() {
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
    fn foreign_annotations_stay_and_own_is_replaced() {
        let mut metadata = with("{}");
        metadata.annotations.get_or_insert_default().insert("theirs".to_owned(), "kept".to_owned());
        let next = annotated(&metadata, None).annotations.expect("theirs");
        assert_eq!(next, BTreeMap::from([("theirs".to_owned(), "kept".to_owned())]));
        assert_eq!(annotated(&with("{}"), None), ObjectMeta::default());
    }
}
