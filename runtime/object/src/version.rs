//! The order of resource versions.

use std::{cmp::Ordering, fmt};

use crate::short_text::ShortText;

/// The version of an object or of a collection, as the API server wrote it.
///
/// Two versions of the *same* group and resource are compared by length, then by digits. This is numeric order for
/// numbers of any length. A version that is not a positive number without leading zeros is not comparable: it equals
/// only itself and has no order. `"0"` ("any version") and `""` ("the newest") occur only in requests and are not
/// comparable either.
///
/// # Examples
/// ```
/// use windlass_object::ResourceVersion;
///
/// let (old, new) = (ResourceVersion::new("9"), ResourceVersion::new("10"));
/// assert_eq!(new.reached(&old), Some(true));
/// assert_eq!(new.reached(&ResourceVersion::new("a")), None);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(ShortText<22>);

impl ResourceVersion {
    /// Creates a version from this text, comparable or not.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Creates a version from a server response. Returns `None` for `""` and `"0"`: a watch that continues from these
    /// would start at an arbitrary version.
    pub(crate) fn from_response(text: &str) -> Option<Self> {
        (!matches!(text, "" | "0")).then(|| Self::new(text))
    }

    /// Returns the version as the API server wrote it.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns whether this version can be compared with others.
    pub fn is_comparable(&self) -> bool {
        let digits = self.0.as_bytes();
        digits.first().is_some_and(|first| *first != b'0') && digits.iter().all(u8::is_ascii_digit)
    }

    /// Returns whether a store at this version contains all changes up to `wanted`; `None` if they are not comparable.
    pub fn reached(&self, wanted: &ResourceVersion) -> Option<bool> {
        self.partial_cmp(wanted).map(Ordering::is_ge)
    }
}

impl PartialOrd for ResourceVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        if self == other {
            return Some(Ordering::Equal);
        }
        if !self.is_comparable() || !other.is_comparable() {
            return None;
        }
        let (digits, other) = (self.0.as_bytes(), other.0.as_bytes());
        Some(digits.len().cmp(&other.len()).then_with(|| digits.cmp(other)))
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(text: &str) -> ResourceVersion {
        ResourceVersion::new(text)
    }

    proptest! {
        // parity: versions-compared-length-then
        #[test]
        fn versions_are_ordered_numerically(a in 1u128.., b in 1u128..) {
            prop_assert_eq!(version(&a.to_string()).partial_cmp(&version(&b.to_string())), Some(a.cmp(&b)));
        }

        // parity: versions-compared-length-then
        #[test]
        fn versions_beyond_integer_range_are_ordered(digits in "[1-9][0-9]{40,80}") {
            let longer = format!("{digits}0");
            prop_assert!(version(&digits) < version(&longer));
            prop_assert_eq!(version(&digits).reached(&version(&longer)), Some(false));
            prop_assert_eq!(version(&longer).reached(&version(&digits)), Some(true));
        }

        #[test]
        fn malformed_version_is_not_comparable(malformed in "(0[0-9]*|[0-9]*[a-z. +-][0-9]*|)", number in 1u64..) {
            let (malformed, number) = (version(&malformed), version(&number.to_string()));
            prop_assert!(!malformed.is_comparable());
            prop_assert_eq!(malformed.partial_cmp(&number), None);
            prop_assert_eq!(number.reached(&malformed), None);
            prop_assert_eq!(malformed.reached(&malformed.clone()), Some(true));
        }
    }
}
