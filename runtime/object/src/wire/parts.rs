//! The parts of lists and objects that are known without decoding objects, in any format.

use std::fmt;

use bytes::Bytes;
use kube::core::ObjectMeta;

use crate::{ObjectKey, ResourceVersion, Uid};

/// The fields of an object that are known without decoding it. They are sufficient to isolate or delete the object and
/// to select its shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectHeader {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The UID, if it is readable.
    pub uid: Option<Uid>,
    /// The resource version, if it is readable; `"0"` and `""` count as absent.
    pub version: Option<ResourceVersion>,
}

impl ObjectHeader {
    /// Creates a header from metadata. It equals the header that [`object_header`](super::object_header) reads from the
    /// bytes of the object.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            key: ObjectKey::of(meta),
            uid: meta.uid.as_deref().map(Into::into),
            version: meta.resource_version.as_deref().and_then(ResourceVersion::from_response),
        }
    }
}

/// One page of a list, split into items that are not decoded.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RawList {
    /// The version of the collection.
    pub version: Option<ResourceVersion>,
    /// The token of the next page; `None` on the last page.
    pub continue_token: Option<String>,
    /// The number of items on later pages, if the server reports it.
    pub remaining: Option<u64>,
    /// The objects. They lack `apiVersion` and `kind`, except those of custom resources.
    pub items: Vec<Bytes>,
}

/// Prints the number of items instead of the items.
impl fmt::Debug for RawList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawList")
            .field("version", &self.version)
            .field("continue_token", &self.continue_token)
            .field("remaining", &self.remaining)
            .field("items", &self.items.len())
            .finish()
    }
}
