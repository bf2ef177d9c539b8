//! Checks values against the types of built-in kinds: the errors, warnings, dropped fields and conversions of
//! upstream's decoder.
//!
//! Guarantees:
//! - [`parse`] reports duplicate fields, which a parsed value no longer contains.
//! - [`decode`] returns the result of upstream's typed round trip: without unknown fields, nulls, and fields that
//!   `omitempty` omits, and with quantities and times in canonical form.
//! - A second [`decode`] and [`apply_defaults`] change nothing.
//! - Messages have upstream's text. Of several errors, the first by field name is reported; upstream reports the first
//!   by position in the body. Types have their Go names.
//!
//! Semantic checks are not included: required fields, ranges and names belong to the validation of each kind, or to
//! [`crate::custom`].

mod base64;
mod convert;
mod decode;
mod json;
#[cfg(test)]
mod tests;
mod time;

pub use self::{
    convert::conversion_error,
    decode::{apply_defaults, decode, store},
    json::{Parsed, fields_in_order, go_text, kind_of, parse, syntax_error, unrecognized, version_and_kind},
};

/// Field validation level (`fieldValidation`) for unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// The fields are dropped silently.
    Ignore,
    /// The fields are dropped, and the response contains a warning for each.
    #[default]
    Warn,
    /// The request is rejected.
    Strict,
}

/// Result of decoding a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Type errors; any of them rejects the request at every level.
    pub errors: Vec<TypeError>,
    /// Sorted paths of the unknown fields, at most 100; empty with [`Strictness::Ignore`].
    pub unknown_fields: Vec<String>,
}

/// A value that does not match its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TypeError {
    /// Path with indices: `spec.containers[0].name`.
    pub path: String,
    /// Message of upstream's decoder, without the surrounding sentence.
    pub message: String,
    /// Whether the decoder stops at this error: the type has a custom decoder. It continues after other errors, and
    /// reports the first.
    pub ends_decoding: bool,
}

impl Decoded {
    /// Returns the messages to warn about, or to reject the request with under [`Strictness::Strict`], each like
    /// `unknown field "spec.foo"` or `duplicate field "spec.bar"`. `duplicates` is the field of [`Parsed`]. Duplicates
    /// inside an unknown field are not reported. The messages are in the order of the paths `order`, in which the last
    /// occurrence of a path is the duplicate.
    pub fn error_messages(&self, duplicates: &[String], order: &[String]) -> Vec<String> {
        let known = |path: &&String| {
            !self.unknown_fields.iter().any(|unknown| {
                path.strip_prefix(unknown.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            })
        };
        let duplicates = duplicates.iter().filter(known).map(|path| ("duplicate", path));
        let unknown = self.unknown_fields.iter().map(|path| ("unknown", path));
        let mut all: Vec<_> = duplicates.chain(unknown).collect();
        all.sort_by_cached_key(|(_, path)| order.iter().rposition(|it| it == *path));
        all.into_iter().map(|(what, path)| format!("{what} field \"{path}\"")).collect()
    }
}

/// Returns the message that rejects a body of the wrong type: `Pod in version "v1" cannot be handled as a Pod: ...`
/// (400, `BadRequest`). `received` and `version` are those of the body, or of the request if the body does not contain
/// them.
pub fn cannot_be_handled(received: &str, version: &str, kind: &str, why: &str) -> String {
    format!("{received} in version \"{version}\" cannot be handled as a {kind}: {why}")
}

/// Returns the reason for rejecting a body under [`Strictness::Strict`], for [`cannot_be_handled`].
pub fn strict_decoding_error(complaints: &[String]) -> String {
    format!("strict decoding error: {}", complaints.join(", "))
}
