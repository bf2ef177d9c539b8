//! The name under which an object is cached, queued and logged.

use std::{fmt, str::FromStr, sync::Arc};

use kube::core::ObjectMeta;

/// Namespace and name of an object: unique among the objects of one resource at one moment.
///
/// An object deleted and created again has the same key and another [`Uid`](crate::Uid). Cloning copies two
/// pointers. Ordered by namespace, then name; objects without a namespace come first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    namespace: Option<Arc<str>>,
    name: Arc<str>,
}

impl ObjectKey {
    /// The key of a namespaced object.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        Self { namespace: Some(namespace.into()), name: name.into() }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self { namespace: None, name: name.into() }
    }

    /// A key from an optional namespace; an empty namespace means none, as it does on the wire.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        Self { namespace: namespace.filter(|it| !it.is_empty()).map(Into::into), name: name.into() }
    }

    /// The key of the object this metadata belongs to.
    ///
    /// Metadata that never came from a server may lack a name; the key's name is then empty.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    /// The namespace; `None` for cluster-scoped objects.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The name.
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

/// The same as `Display`: keys stand in log lines, where quotes and field names are noise.
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

/// The text is neither `name` nor `namespace/name`.
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
    fn text_that_is_no_key_is_refused() {
        for text in ["", "/", "a/", "/a", "a/b/c"] {
            assert!(text.parse::<ObjectKey>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn cluster_scoped_keys_come_before_namespaced_ones() {
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
