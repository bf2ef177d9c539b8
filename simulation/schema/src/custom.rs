//! Custom kinds: validates a CustomResourceDefinition (v1) and the objects of its kind.
//!
//! Guarantees:
//! - [`CustomKind::from_definition`] rejects the same fields as upstream, with the same messages; schemas must be
//!   structural.
//! - [`CustomVersion::decode`], [`CustomVersion::apply_defaults`] and [`CustomVersion::validate`], in this order, are
//!   upstream's steps before an object is stored.
//! - Unsupported parts of a schema are reported: CEL rules (`x-kubernetes-validations`) are not evaluated, and
//!   [`CustomKind::unchecked_rules`] lists them; [`CustomKind::warnings`] lists unknown formats.
//!
//! Conversion webhooks are not supported. Checks that involve several CRDs or the previous version of an object are not
//! included: name conflicts and the validation of updates.

mod definition;
mod error;
mod format;
mod rule;
mod scale;
mod structural;
#[cfg(test)]
mod tests;
mod validate;
mod version;

pub use self::{
    definition::{CustomKind, accepted_status, default_definition},
    error::FieldError,
    scale::Scale,
    version::{CustomVersion, PrinterColumn},
};
