//! Versions and UIDs as they are kept by the ten thousand: numbers where they are such, as a server's own always are.

use std::sync::Arc;

/// A resource version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    #[default]
    None,
    Number(u64),
    Other(Arc<str>),
}

/// A UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Identity {
    #[default]
    None,
    Uuid(u128),
    Other(Arc<str>),
}

impl Version {
    pub(crate) fn of(text: Option<&str>) -> Self {
        let Some(text) = text else { return Self::None };
        let number = text.parse().ok().filter(|_| !text.starts_with(['0', '+']));
        number.map_or_else(|| Self::Other(text.into()), Self::Number)
    }

    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Number(number) => Some(number.to_string()),
            Self::Other(text) => Some(text.to_string()),
        }
    }
}

impl Identity {
    pub(crate) fn of(text: Option<&str>) -> Self {
        let Some(text) = text else { return Self::None };
        uuid(text).map_or_else(|| Self::Other(text.into()), Self::Uuid)
    }

    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Uuid(number) => {
                let hex = format!("{number:032x}");
                Some([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
            }
            Self::Other(text) => Some(text.to_string()),
        }
    }
}

/// The number that a UUID spells in its usual form; none for any other text.
fn uuid(text: &str) -> Option<u128> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 {
        return None;
    }
    bytes.iter().enumerate().try_fold(0, |number, (at, byte)| match (at, byte) {
        (8 | 13 | 18 | 23, b'-') => Some(number),
        (8 | 13 | 18 | 23, _) => None,
        (_, b'0'..=b'9') => Some(number << 4 | u128::from(byte - b'0')),
        (_, b'a'..=b'f') => Some(number << 4 | u128::from(byte - b'a' + 10)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_told_as_it_was() {
        for text in ["1", "18446744073709551615", "18446744073709551616", "0", "007", "+5", "", "opaque"] {
            assert_eq!(Version::of(Some(text)).text().as_deref(), Some(text));
        }
        let uids = ["3ce2b2d4-6b0e-4f8e-9f43-0a1b2c3d4e5f", "00000000-0000-0000-0000-000000000000"];
        let others =
            ["3CE2B2D4-6b0e-4f8e-9f43-0a1b2c3d4e5f", "3ce2b2d4-6b0e-4f8e-9f43-0a1b2c3d4e5", "1", "", "é"];
        for text in uids.into_iter().chain(others) {
            assert_eq!(Identity::of(Some(text)).text().as_deref(), Some(text));
        }
        assert!(uids.into_iter().all(|text| matches!(Identity::of(Some(text)), Identity::Uuid(_))));
        assert_eq!((Version::of(None).text(), Identity::of(None).text()), (None, None));
    }
}
