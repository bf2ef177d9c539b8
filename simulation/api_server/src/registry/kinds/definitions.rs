//! Strategy of CustomResourceDefinitions, whose writes change the served kinds.

use super::super::custom;
use super::super::names;
use super::{Kind, NAMED};

/// Strategy of CustomResourceDefinitions.
pub(super) static DEFINITIONS: Kind = Kind {
    metadata: super::MetadataRules::AnyFinalizer,
    name: names::subdomain_name,
    generation: &[&["spec"]],
    unconditional_update: false,
    defaults: custom::defaults,
    prepare_create: |transaction, object| custom::accept(transaction, object),
    prepare_update: |transaction, object, _| custom::accept(transaction, object),
    warnings: |object, old| if old.is_none() { custom::warnings(object) } else { Vec::new() },
    validate: custom::validate,
    validate_update: custom::validate_update,
    after_create: |transaction, object, dry_run| custom::serve(transaction, object, dry_run),
    after_update: |transaction, object, dry_run| custom::serve_changed(transaction, object, dry_run),
    after_delete: |transaction, object| custom::withdraw(transaction, object),
    ..NAMED
};
