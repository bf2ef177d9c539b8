//! The identity of an object during its lifetime.

use std::fmt;

use crate::short_text::ShortText;

/// The identity that the server assigns to an object. A recreated object with the same name has a different UID.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(ShortText<38>);

impl Uid {
    /// Returns the identity as the API server wrote it.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Uid {
    fn from(text: String) -> Self {
        Self(text.as_str().into())
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
