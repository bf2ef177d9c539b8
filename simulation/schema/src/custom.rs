//! Custom kinds: validates a CustomResourceDefinition (v1) and the objects of its kind.
//!
//! Guarantees:
//! - [`CustomKind::from_definition`] rejects the same fields as upstream, with the same messages; schemas must be
//!   structural.
//! - [`CustomVersion::decode`], [`CustomVersion::apply_defaults`] and [`CustomVersion::validate`], in this order, are
//!   upstream's steps before an object is stored.
//! - [`CustomKind::warnings`] lists unknown formats.
//!
//! The expressions of validation rules (`x-kubernetes-validations`) are neither compiled nor evaluated. Conversion
//! webhooks are not supported. Conflicts of names between several CRDs are not checked.

mod correlated;
mod definition;
mod error;
mod format;
mod rule;
mod rules;
mod scale;
mod structural;
#[cfg(test)]
mod tests;
mod validate;
mod version;

pub use self::{
    correlated::{Correlated, PreviousItems},
    definition::{CustomKind, accepted_status, default_definition},
    error::FieldError,
    rules::rule_field,
    scale::Scale,
    version::{CustomVersion, PrinterColumn},
};
