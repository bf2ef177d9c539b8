//! Strategy of CustomResourceDefinitions, whose writes change the served kinds.

use super::super::custom;
use super::super::names;
use super::{Kind, NAMED};

/// Strategy of CustomResourceDefinitions.
pub(super) static DEFINITIONS: Kind = Kind {
    name: names::subdomain_name,
    generation: &[&["spec"]],
    unconditional_update: false,
    defaults: custom::defaults,
    prepare_create: |writer, object| custom::accept(writer, object),
    prepare_update: |writer, object, _| custom::accept(writer, object),
    warnings: custom::warnings,
    validate: custom::validate,
    validate_update: custom::validate_update,
    after_create: |writer, object, dry_run| custom::serve(writer, object, dry_run),
    after_update: |writer, object, dry_run| custom::serve_changed(writer, object, dry_run),
    after_delete: |writer, object| custom::withdraw(writer, object),
    ..NAMED
};
