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
    prepare_create: |_, object| {
        custom::reset_status(object);
        Ok(())
    },
    prepare_update: |_, object, _| {
        custom::defaults(object);
        Ok(())
    },
    warnings: |object, old| if old.is_none() { custom::warnings(object) } else { Vec::new() },
    validate: custom::validate,
    validate_update: custom::validate_update,
    after_create: |transaction, object, dry_run| custom::establish(transaction, object, dry_run),
    after_update: |transaction, object, dry_run| custom::establish_changed(transaction, object, dry_run),
    after_delete: |transaction, object| custom::withdraw(transaction, object),
    ..NAMED
};
