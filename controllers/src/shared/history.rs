//! ControllerRevisions: the recorded pod templates of an owner.
//!
//! A revision is identified by the bytes of its data, so [`Revision`] keeps them as the server sent them, and requests
//! send them unchanged. Decoding and encoding would change these bytes.
//!
//! The functions here are pure; [`requests`] sends the requests.

pub(crate) mod requests;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_object::owner::controller_reference;

use super::pods;

/// Label with the hash of a revision's data.
pub(crate) const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// Label of pods with the hash (DaemonSets) or name (StatefulSets) of their revision.
pub(crate) const REVISION_LABEL: &str = "controller-revision-hash";

/// Maximum length of the owner's part in the name of a revision, in bytes.
const MAX_PREFIX: usize = 223;

/// A ControllerRevision whose data are the bytes that the server sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Revision {
    /// Items of a list omit the API version and the kind, but an update must contain them.
    #[serde(skip_deserializing, default = "api_version")]
    api_version: &'static str,
    #[serde(skip_deserializing, default = "kind")]
    kind: &'static str,
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
    /// The recorded state; null if it is missing.
    #[serde(default = "no_data")]
    pub(crate) data: Box<RawValue>,
    /// The number of the revision.
    #[serde(default)]
    pub(crate) revision: i64,
}

fn api_version() -> &'static str {
    <ControllerRevision as k8s_openapi::Resource>::API_VERSION
}

fn kind() -> &'static str {
    <ControllerRevision as k8s_openapi::Resource>::KIND
}

fn no_data() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

impl Resource for Revision {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        ControllerRevision::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        ControllerRevision::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        ControllerRevision::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        ControllerRevision::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl PartialEq for Revision {
    fn eq(&self, other: &Self) -> bool {
        self.metadata == other.metadata && self.revision == other.revision && has_data(self, other.data())
    }
}

impl Revision {
    /// Returns a revision of `owner` to create, without a name. It has the labels of the template and the annotations
    /// of the owner.
    ///
    /// # Errors
    /// If the data are not JSON.
    pub(crate) fn new<O>(
        owner: &O,
        template_labels: Option<&BTreeMap<String, String>>,
        data: String,
        revision: i64,
    ) -> Result<Self, serde_json::Error>
    where
        O: Resource<DynamicType = ()>,
    {
        let metadata = ObjectMeta {
            namespace: owner.meta().namespace.clone(),
            labels: Some(template_labels.cloned().unwrap_or_default()),
            annotations: owner.meta().annotations.clone(),
            owner_references: Some(vec![controller_reference(owner)]),
            ..ObjectMeta::default()
        };
        let data = RawValue::from_string(data)?;
        Ok(Self { api_version: api_version(), kind: kind(), metadata, data, revision })
    }

    /// Returns the revision with a label.
    pub(crate) fn with_label(mut self, key: &str, value: &str) -> Self {
        self.metadata.labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        self
    }

    /// Returns the name.
    pub(crate) fn name(&self) -> &str {
        pods::name(&self.metadata)
    }

    /// Returns the bytes of the data.
    pub(crate) fn data(&self) -> &str {
        self.data.get()
    }
}

/// Returns whether a revision has exactly these bytes as data.
pub(crate) fn has_data(revision: &Revision, data: &str) -> bool {
    revision.data() == data
}

/// Returns the name of a revision: the name of its owner, truncated to 223 bytes, and a hash.
pub(crate) fn revision_name(owner: &str, hash: &str) -> String {
    // Names of owners are ASCII.
    let kept = owner.get(..MAX_PREFIX).unwrap_or(owner);
    format!("{kept}-{hash}")
}

/// Sorts revisions by number, then by creation, then by name.
pub(crate) fn sort(revisions: &mut [Arc<Revision>]) {
    revisions.sort_by(|one, other| by_number(one, other));
}

fn by_number(one: &Revision, other: &Revision) -> Ordering {
    let created = |revision: &Revision| pods::created(&revision.metadata);
    let numbers = one.revision.cmp(&other.revision);
    numbers.then_with(|| created(one).cmp(&created(other))).then_with(|| one.name().cmp(other.name()))
}

/// Returns the number of the next revision. The revisions are sorted.
pub(crate) fn next_number(sorted: &[Arc<Revision>]) -> i64 {
    sorted.last().map_or(1, |last| last.revision.saturating_add(1))
}

/// The existing revision with given data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Match {
    /// The latest revision.
    Latest(Arc<Revision>),
    /// Only an earlier revision: a rollback raises its number.
    Earlier(Arc<Revision>),
    /// No revision.
    Missing,
}

/// Returns the last revision with these data. The revisions are sorted.
pub(crate) fn find(sorted: &[Arc<Revision>], data: &str) -> Match {
    let found = sorted.iter().rev().find(|revision| has_data(revision, data));
    match (found, sorted.last()) {
        (Some(found), Some(last)) if has_data(last, found.data()) => Match::Latest(Arc::clone(last)),
        (Some(found), _) => Match::Earlier(Arc::clone(found)),
        (None, _) => Match::Missing,
    }
}

/// The number of revisions to keep. Revisions in use are always kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistoryLimit {
    /// In addition to the revisions in use, as for StatefulSets. A negative number means no limit.
    Unused(i32),
    /// Including the revisions in use, as for DaemonSets.
    Total(i32),
}

/// Returns the revisions to delete: the oldest unused revisions, as many as exceed the limit. The revisions are sorted.
pub(crate) fn surplus(
    sorted: &[Arc<Revision>],
    is_in_use: impl Fn(&Revision) -> bool,
    limit: HistoryLimit,
) -> Vec<Arc<Revision>> {
    let unused: Vec<_> = sorted.iter().filter(|revision| !is_in_use(revision)).collect();
    let (counted, kept) = match limit {
        HistoryLimit::Unused(kept) if kept < 0 => return Vec::new(),
        HistoryLimit::Unused(kept) => (unused.len(), kept),
        HistoryLimit::Total(kept) => (sorted.len(), kept),
    };
    let surplus = counted.saturating_sub(usize::try_from(kept).unwrap_or(0));
    unused.into_iter().take(surplus).map(Arc::clone).collect()
}
