//! The identity of an object during its lifetime.

use std::{fmt, sync::Arc};

/// The identity that the server assigns to an object. A recreated object with the same name has a different UID.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(Arc<str>);

impl Uid {
    /// Returns the identity as the API server wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<Arc<str>> for Uid {
    fn from(text: Arc<str>) -> Self {
        Self(text)
    }
}

impl From<String> for Uid {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
