//! The part of an informer that one reflector follows.
//!
//! An informer of everything, or of one namespace, has one part. One that holds many namespaces
//! ([`NamespaceSet`](crate::NamespaceSet)) has a part for each: every part is listed and watched for itself and comes to
//! its own version, and a list of one part says nothing about the objects of another.

use std::fmt;
use std::sync::Arc;

use windlass_object::ObjectKey;

/// Which part. The parts of one informer do not overlap: it is either whole or consists of namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Partition {
    /// All of it.
    Whole,
    /// What is in this namespace.
    Namespace(Arc<str>),
}

/// Why everything in a part went at once.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The namespace is not selected any more.
    Deselected,
    /// The source does not serve the kind any more, so there is nothing of it.
    Unserved,
}

impl Partition {
    /// The namespace, if the part is one.
    pub fn namespace(&self) -> Option<&Arc<str>> {
        match self {
            Partition::Whole => None,
            Partition::Namespace(namespace) => Some(namespace),
        }
    }

    /// Whether an object of that key belongs to this part.
    pub fn holds(&self, key: &ObjectKey) -> bool {
        self.namespace().is_none_or(|namespace| key.namespace() == Some(namespace))
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Partition::Whole => f.write_str("everything"),
            Partition::Namespace(namespace) => write!(f, "namespace {namespace}"),
        }
    }
}
