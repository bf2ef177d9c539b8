//! The metadata of an object: of a full object, or compact in a view.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::Resource;
use kube::core::ObjectMeta;

use crate::{ObjectHeader, ObjectKey, ResourceVersion, Uid};

/// An object that a cache can hold: a full object, or a [view](crate::view).
pub trait HasMetadata: Send + Sync + 'static {
    /// Returns the metadata.
    fn metadata(&self) -> MetadataRef<'_>;
}

impl<K: Resource + Send + Sync + 'static> HasMetadata for K {
    fn metadata(&self) -> MetadataRef<'_> {
        MetadataRef::Full(self.meta())
    }
}

/// The metadata of an object in one of its two forms.
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use windlass_object::HasMetadata as _;
///
/// let pod: Pod = serde_json::from_str(r#"{"metadata":{"name":"a","labels":{"app":"web"}}}"#)?;
/// assert_eq!(pod.metadata().name(), "a");
/// assert_eq!(pod.metadata().labels().get("app"), Some("web"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Copy, Clone, Debug)]
pub enum MetadataRef<'a> {
    /// All metadata of a full object.
    Full(&'a ObjectMeta),
    /// The metadata of a view.
    Compact(&'a Metadata),
}

/// The metadata in a view. It lacks annotations, `managedFields`, `generateName` and the grace period of a deletion.
/// Objects with equal labels, owners or finalizers share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Namespace and name, UID and version.
    pub header: ObjectHeader,
    /// The labels.
    pub labels: StringMap,
    /// The owners.
    pub owners: Arc<[Owner]>,
    /// The finalizers.
    pub finalizers: Arc<[Arc<str>]>,
    /// The version of the spec; `None` for kinds without it.
    pub generation: Option<i64>,
    /// The time of the creation.
    pub creation_timestamp: Option<Time>,
    /// The time at which the deletion takes effect, if it was requested.
    pub deletion_timestamp: Option<Time>,
}

/// An owner of an object, as [`Metadata`] holds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// API version of the owner.
    pub api_version: Arc<str>,
    /// Kind of the owner.
    pub kind: Arc<str>,
    /// Name of the owner.
    pub name: Arc<str>,
    /// UID of the owner.
    pub uid: Uid,
    /// Whether the owner controls the object.
    pub controller: bool,
    /// Whether foreground deletion keeps the owner until the object is deleted.
    pub block_owner_deletion: bool,
}

/// An owner of an object in either form.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OwnerRef<'a> {
    /// API version of the owner.
    pub api_version: &'a str,
    /// Kind of the owner.
    pub kind: &'a str,
    /// Name of the owner.
    pub name: &'a str,
    /// UID of the owner.
    pub uid: &'a str,
    /// Whether the owner controls the object.
    pub controller: bool,
}

/// An immutable map from text to text, ordered by key. Clones share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StringMap(Arc<[(Arc<str>, Arc<str>)]>);

/// The labels of an object in either form; an object without labels has an empty map.
#[derive(Copy, Clone, Debug)]
pub enum Labels<'a> {
    /// The labels of a full object.
    Full(Option<&'a BTreeMap<String, String>>),
    /// The labels of a view.
    Compact(&'a StringMap),
}

impl<'a> MetadataRef<'a> {
    /// Returns the metadata of a full object; `None` for a view.
    pub const fn full(self) -> Option<&'a ObjectMeta> {
        match self {
            MetadataRef::Full(meta) => Some(meta),
            MetadataRef::Compact(_) => None,
        }
    }

    /// Returns key, UID and version.
    pub fn header(self) -> ObjectHeader {
        match self {
            MetadataRef::Full(meta) => ObjectHeader::of(meta),
            MetadataRef::Compact(meta) => meta.header.clone(),
        }
    }

    /// Returns namespace and name.
    pub fn key(self) -> ObjectKey {
        match self {
            MetadataRef::Full(meta) => ObjectKey::of(meta),
            MetadataRef::Compact(meta) => meta.header.key.clone(),
        }
    }

    /// Returns the name; empty if the object has none yet.
    pub fn name(self) -> &'a str {
        match self {
            MetadataRef::Full(meta) => meta.name.as_deref().unwrap_or_default(),
            MetadataRef::Compact(meta) => meta.header.key.name(),
        }
    }

    /// Returns the namespace; `None` for an object of the cluster.
    pub fn namespace(self) -> Option<&'a str> {
        match self {
            MetadataRef::Full(meta) => meta.namespace.as_deref().filter(|it| !it.is_empty()),
            MetadataRef::Compact(meta) => meta.header.key.namespace(),
        }
    }

    /// Returns the UID; `None` if the object has none yet.
    pub fn uid(self) -> Option<&'a str> {
        match self {
            MetadataRef::Full(meta) => meta.uid.as_deref(),
            MetadataRef::Compact(meta) => meta.header.uid.as_ref().map(Uid::as_str),
        }
    }

    /// Returns the resource version; `None` if the object has none yet.
    pub fn resource_version(self) -> Option<&'a str> {
        match self {
            MetadataRef::Full(meta) => meta.resource_version.as_deref(),
            MetadataRef::Compact(meta) => meta.header.version.as_ref().map(ResourceVersion::as_str),
        }
    }

    /// Returns the version of the spec; `None` for kinds without it.
    pub const fn generation(self) -> Option<i64> {
        match self {
            MetadataRef::Full(meta) => meta.generation,
            MetadataRef::Compact(meta) => meta.generation,
        }
    }

    /// Returns the labels.
    pub const fn labels(self) -> Labels<'a> {
        match self {
            MetadataRef::Full(meta) => Labels::Full(meta.labels.as_ref()),
            MetadataRef::Compact(meta) => Labels::Compact(&meta.labels),
        }
    }

    /// Returns the owners.
    pub fn owners(self) -> impl Iterator<Item = OwnerRef<'a>> {
        let (full, compact) = match self {
            MetadataRef::Full(meta) => (meta.owner_references.as_deref().unwrap_or_default(), &[][..]),
            MetadataRef::Compact(meta) => (&[][..], &*meta.owners),
        };
        full.iter().map(OwnerRef::from).chain(compact.iter().map(OwnerRef::from))
    }

    /// Returns the owner that controls the object. API servers allow at most one.
    pub fn controller(self) -> Option<OwnerRef<'a>> {
        self.owners().find(|owner| owner.controller)
    }

    /// Returns the time of the creation; `None` if the object was not stored yet.
    pub const fn creation_timestamp(self) -> Option<&'a Time> {
        match self {
            MetadataRef::Full(meta) => meta.creation_timestamp.as_ref(),
            MetadataRef::Compact(meta) => meta.creation_timestamp.as_ref(),
        }
    }

    /// Returns the time at which the deletion takes effect, if it was requested.
    pub const fn deletion_timestamp(self) -> Option<&'a Time> {
        match self {
            MetadataRef::Full(meta) => meta.deletion_timestamp.as_ref(),
            MetadataRef::Compact(meta) => meta.deletion_timestamp.as_ref(),
        }
    }
}

impl<'a> From<&'a ObjectMeta> for MetadataRef<'a> {
    fn from(meta: &'a ObjectMeta) -> Self {
        MetadataRef::Full(meta)
    }
}

impl<'a> From<&'a Metadata> for MetadataRef<'a> {
    fn from(meta: &'a Metadata) -> Self {
        MetadataRef::Compact(meta)
    }
}

impl<'a> From<&'a OwnerReference> for OwnerRef<'a> {
    fn from(owner: &'a OwnerReference) -> Self {
        let OwnerReference { api_version, kind, name, uid, controller, block_owner_deletion: _ } = owner;
        OwnerRef { api_version, kind, name, uid, controller: *controller == Some(true) }
    }
}

impl<'a> From<&'a Owner> for OwnerRef<'a> {
    fn from(owner: &'a Owner) -> Self {
        let Owner { api_version, kind, name, uid, controller, block_owner_deletion: _ } = owner;
        OwnerRef { api_version, kind, name, uid: uid.as_str(), controller: *controller }
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for StringMap {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(entries: I) -> Self {
        Self::new(entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

impl StringMap {
    /// Creates a map. Of two entries with one key the later one counts.
    pub(crate) fn new(mut entries: Vec<(Arc<str>, Arc<str>)>) -> Self {
        entries.reverse();
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        entries.dedup_by(|(a, _), (b, _)| a == b);
        Self(entries.into())
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(it, _)| (**it).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Returns the entries, ordered by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Returns whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of holders of the map.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl<'a> Labels<'a> {
    /// Returns the value of a label.
    pub fn get(self, key: &str) -> Option<&'a str> {
        match self {
            Labels::Full(labels) => labels?.get(key).map(String::as_str),
            Labels::Compact(labels) => labels.get(key),
        }
    }

    /// Returns the labels, ordered by key.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let (full, compact) = match self {
            Labels::Full(labels) => (labels, None),
            Labels::Compact(labels) => (None, Some(labels)),
        };
        let full = full.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()));
        full.chain(compact.into_iter().flat_map(StringMap::iter))
    }
}

impl PartialEq for Labels<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a> From<Option<&'a BTreeMap<String, String>>> for Labels<'a> {
    fn from(labels: Option<&'a BTreeMap<String, String>>) -> Self {
        Labels::Full(labels)
    }
}

impl<'a> From<&'a StringMap> for Labels<'a> {
    fn from(labels: &'a StringMap) -> Self {
        Labels::Compact(labels)
    }
}

impl<'a> From<&'a BTreeMap<String, String>> for Labels<'a> {
    fn from(labels: &'a BTreeMap<String, String>) -> Self {
        Labels::Full(Some(labels))
    }
}
