//! Object keys: the namespace and name used in caches, queues and logs.

use std::{fmt, str::FromStr, sync::Arc};

use kube::core::ObjectMeta;

/// Namespace and name of an object. At any time a key identifies at most one object of a resource.
///
/// An object that is deleted and recreated has the same key and a different [`Uid`](crate::Uid). Cloning copies two
/// pointers. Keys are ordered by namespace, then by name; keys without a namespace come first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    namespace: Option<Arc<str>>,
    name: Arc<str>,
}

impl ObjectKey {
    /// Creates the key of a namespaced object.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        Self { namespace: Some(namespace.into()), name: name.into() }
    }

    /// Creates the key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self { namespace: None, name: name.into() }
    }

    /// Creates a key from an optional namespace. As in the API, an empty namespace means no namespace.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        Self { namespace: namespace.filter(|it| !it.is_empty()).map(Into::into), name: name.into() }
    }

    /// Creates the key of the object this metadata belongs to.
    ///
    /// Metadata that was not read from a server can lack a name; the key's name is then empty.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    /// Returns the namespace; `None` for cluster-scoped objects.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// `namespace/name`, or `name` alone.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The same as `Display`: quotes and field names would only add noise to log lines.
impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ObjectKey {
    type Err = ParseObjectKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let key = match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() => Self::namespaced(namespace, name),
            Some(_) => return Err(ParseObjectKeyError(text.into())),
            None => Self::cluster(text),
        };
        if key.name.is_empty() || key.name.contains('/') {
            return Err(ParseObjectKeyError(text.into()));
        }
        Ok(key)
    }
}

/// Error for a text that is neither `name` nor `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an object key: write `name` or `namespace/name`")]
pub struct ParseObjectKeyError(String);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn empty_namespace_means_none() {
        assert_eq!(ObjectKey::new(Some(""), "node-1"), ObjectKey::cluster("node-1"));
    }

    // parity: keys-namespace-name-object
    #[test]
    fn malformed_key_text_is_rejected() {
        for text in ["", "/", "a/", "/a", "a/b/c"] {
            assert!(text.parse::<ObjectKey>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn cluster_scoped_keys_sort_before_namespaced_keys() {
        assert!(ObjectKey::cluster("z") < ObjectKey::namespaced("a", "a"));
        assert!(ObjectKey::namespaced("a", "z") < ObjectKey::namespaced("b", "a"));
    }

    proptest! {
        // parity: indexer-thread, keys-namespace-name-object, test-object-names
        #[test]
        fn printed_key_parses_back(namespace in proptest::option::of("[a-z0-9-]{1,20}"), name in "[a-z0-9.-]{1,30}") {
            let key = ObjectKey::new(namespace.as_deref(), &name);
            prop_assert_eq!(key.to_string().parse::<ObjectKey>().unwrap(), key);
        }
    }
}
