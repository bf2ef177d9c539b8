//! Object keys: the namespace and name used in caches, queues and logs.

use std::hash::{Hash, Hasher};
use std::{cmp::Ordering, fmt, str::FromStr, sync::Arc};

use kube::core::ObjectMeta;

/// Namespace and name of an object. At any time a key identifies at most one object of a resource.
///
/// An object that is deleted and recreated has the same key and a different [`Uid`](crate::Uid). Cloning copies one
/// pointer. Keys are ordered by namespace, then by name; keys without a namespace come first.
///
/// # Examples
/// ```
/// use windlass_object::ObjectKey;
///
/// let key = ObjectKey::namespaced("shop", "web");
/// assert_eq!((key.namespace(), key.name()), (Some("shop"), "web"));
/// assert_eq!(key.to_string().parse(), Ok(key));
/// assert_eq!(ObjectKey::cluster("node-1").namespace(), None);
/// ```
#[derive(Clone)]
pub struct ObjectKey {
    /// `namespace/name`, or `name` alone.
    text: Arc<str>,
    /// Index of the name in the text. Zero if the key has no namespace.
    name_start: usize,
}

impl ObjectKey {
    /// Creates the key of a namespaced object.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        Self { text: [namespace, "/", name].concat().into(), name_start: namespace.len() + 1 }
    }

    /// Creates the key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self { text: name.into(), name_start: 0 }
    }

    /// Creates a key from an optional namespace. As in the API, an empty namespace means no namespace.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) if !namespace.is_empty() => Self::namespaced(namespace, name),
            _ => Self::cluster(name),
        }
    }

    /// Creates the key of the object this metadata belongs to.
    ///
    /// Metadata that was not read from a server can lack a name; the key's name is then empty.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    /// Returns the text `namespace/name`, or `name` alone. An API server lists objects in the order of these texts,
    /// which differs from the order of keys if one namespace begins with another.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the namespace; `None` for cluster-scoped objects.
    pub fn namespace(&self) -> Option<&str> {
        Some(&self.text[..self.name_start.checked_sub(1)?])
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.text[self.name_start..]
    }
}

/// Keys of one object are often clones. Comparing two clones does not read their text.
impl PartialEq for ObjectKey {
    fn eq(&self, other: &Self) -> bool {
        let is_clone = Arc::ptr_eq(&self.text, &other.text);
        is_clone || (self.name_start == other.name_start && self.text == other.text)
    }
}

impl Eq for ObjectKey {}

impl Hash for ObjectKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
        self.name_start.hash(state);
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.text, &other.text) {
            return Ordering::Equal;
        }
        if self.name_start == other.name_start {
            return self.text.cmp(&other.text);
        }
        (self.namespace(), self.name()).cmp(&(other.namespace(), other.name()))
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `namespace/name`, or `name` alone.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
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
        if key.name().is_empty() || key.name().contains('/') {
            return Err(ParseObjectKeyError(text.into()));
        }
        Ok(key)
    }
}

/// Error for a text that is neither `name` nor `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an object key; write `name` or `namespace/name`")]
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

        #[test]
        fn keys_are_ordered_by_namespace_then_name(
            a in (proptest::option::of("[ab./-]{0,3}"), "[ab./-]{0,3}"),
            b in (proptest::option::of("[ab./-]{0,3}"), "[ab./-]{0,3}"),
        ) {
            let key = |(namespace, name): &(Option<String>, String)| match namespace {
                Some(namespace) => ObjectKey::namespaced(namespace, name),
                None => ObjectKey::cluster(name),
            };
            prop_assert_eq!(key(&a).cmp(&key(&b)), a.cmp(&b));
            prop_assert_eq!(key(&a) == key(&b), a == b);
            let parts = (key(&a).namespace().map(str::to_owned), key(&a).name().to_owned());
            prop_assert_eq!(parts, a);
        }
    }
}
