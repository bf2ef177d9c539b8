//! Values against the types of built-in kinds: what upstream's decoder refuses, warns of, drops and rewrites.
//!
//! Guarantees:
//! - [`parse`] finds what a parsed value no longer shows: fields that stand twice.
//! - [`decode`] leaves a value as it would come out of upstream's typed round trip: no unknown fields, no nulls, nothing
//!   that `omitempty` leaves out, quantities and times in their one form.
//! - [`decode`] and then [`apply_defaults`] a second time change nothing.
//! - The texts are upstream's. Where several things are wrong, the first in order of field names is told, upstream's
//!   being the first in the order of the body; types are named as Go names them, except that enumerations are `string`.
//!
//! It refuses to judge what values mean: required fields, ranges and names are each kind's validation, or
//! [`crate::custom`].

mod base64;
mod decode;
mod json;
mod quantity;
#[cfg(test)]
mod tests;
mod time;

pub use self::{
    decode::{apply_defaults, decode},
    json::{Parsed, kind_of, parse, unrecognized, version_and_kind},
    quantity::canonical_quantity,
};

/// `fieldValidation`: what becomes of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// They are dropped in silence.
    Ignore,
    /// They are dropped, and the answer carries a warning for each.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

/// What was found in a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// What does not fit the type; any refuses the request, whatever the strictness.
    pub errors: Vec<TypeError>,
    /// The paths of the unknown fields, in order, at most a hundred; none under [`Strictness::Ignore`].
    pub unknown_fields: Vec<String>,
}

/// A value that does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TypeError {
    /// Where, with indices: `spec.containers[0].name`.
    pub path: String,
    /// What upstream's decoder says, without the sentence around it.
    pub message: String,
}

impl Decoded {
    /// What is to be warned of, or refused under [`Strictness::Strict`], each as `unknown field "spec.foo"` or
    /// `duplicate field "spec.bar"`; `duplicates` are those of [`Parsed`]. What stands twice inside of an unknown field
    /// is not told.
    pub fn error_messages(&self, duplicates: &[String]) -> Vec<String> {
        let known = |path: &&String| {
            !self.unknown_fields.iter().any(|unknown| {
                path.strip_prefix(unknown.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            })
        };
        let duplicates = duplicates.iter().filter(known).map(|path| format!("duplicate field \"{path}\""));
        let unknown = self.unknown_fields.iter().map(|path| format!("unknown field \"{path}\""));
        duplicates.chain(unknown).collect()
    }
}

/// The message with which a body is refused that does not fit its type:
/// `Pod in version "v1" cannot be handled as a Pod: ...`; 400, `BadRequest`. `received` and `version` are those of the
/// body, or of the request where the body names none.
pub fn cannot_be_handled(received: &str, version: &str, kind: &str, why: &str) -> String {
    format!("{received} in version \"{version}\" cannot be handled as a {kind}: {why}")
}

/// Why a body is refused under [`Strictness::Strict`], for [`cannot_be_handled`].
pub fn strict_decoding_error(complaints: &[String]) -> String {
    format!("strict decoding error: {}", complaints.join(", "))
}
