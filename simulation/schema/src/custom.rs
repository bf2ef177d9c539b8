//! Custom kinds: what a CustomResourceDefinition (v1) makes of itself, and of the objects of its kind.
//!
//! Guarantees:
//! - [`CustomKind::from_definition`] refuses what upstream refuses, field by field and in its words; schemas must be
//!   structural.
//! - [`CustomVersion::decode`], [`CustomVersion::apply_defaults`] and [`CustomVersion::validate`], in this order, are what
//!   upstream does to an object before it is stored.
//! - Nothing that a schema says is passed over in silence: rules in CEL (`x-kubernetes-validations`) are not evaluated,
//!   and [`CustomKind::unchecked_rules`] names each; formats that nobody knows are named by [`CustomKind::warnings`].
//!
//! It refuses conversion by webhook, and to judge what takes more than one definition: names that another one has taken,
//! and what an update may change.

mod definition;
mod error;
mod format;
mod rule;
mod structural;
#[cfg(test)]
mod tests;
mod validate;
mod version;

pub use self::{
    definition::{CustomKind, accepted_status, default_definition},
    error::FieldError,
    version::{CustomVersion, PrinterColumn, Scale},
};
