//! Upstream's cases of `TestServiceAccountCreation`. The ServiceAccounts to maintain are `default` and `managed`.

use super::missing;
use crate::shared::fixtures::namespace_view;

#[test]
fn missing_accounts_are_those_of_active_namespaces() {
    // Phase of the namespace, existing ServiceAccounts, created ServiceAccounts.
    let cases: [(Option<&str>, &[&str], &[&str]); 10] = [
        (Some("Active"), &[], &["default", "managed"]),
        (Some("Active"), &["managed"], &["default"]),
        (Some("Active"), &["default"], &["managed"]),
        (Some("Active"), &["default", "managed"], &[]),
        (Some("Active"), &["default", "managed", "other-unmanaged"], &[]),
        (Some("Active"), &["other-unmanaged"], &["default", "managed"]),
        (Some("Terminating"), &[], &[]),
        (Some("Terminating"), &["managed"], &[]),
        (Some(""), &[], &[]),
        (None, &[], &[]),
    ];
    for (phase, existing, expected) in cases {
        let namespace = phase.map(|phase| namespace_view("shop", phase));
        let created = missing(namespace.as_ref(), &["default", "managed"], |name| existing.contains(&name));
        assert_eq!(created, expected, "{phase:?} with {existing:?}");
    }
}
