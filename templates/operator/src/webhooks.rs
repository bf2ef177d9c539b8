//! Webhooks, which the API server calls before it stores a Site.

use windlass::webhook::{AdmissionError, Hook, Review, Webhooks, deny};

use crate::Site;

/// Denies Sites that cannot be served, and another domain of an existing Site: its entry would remain.
const LIMITS: Hook = Hook::new("limits.sites.example.com");

/// Maximum number of replicas.
const MAX_REPLICAS: i32 = 100;

/// Returns the webhooks of the operator.
pub fn webhooks() -> Webhooks {
    Webhooks::new().validates::<Site>(LIMITS, check_limits)
}

fn check_limits(review: &Review<Site>) -> Result<(), AdmissionError> {
    let Some(site) = review.object() else { return Ok(()) };
    // A Site that an earlier version admitted must keep its way to deletion: finalizers are updates too.
    if review.old_object().is_some_and(|old| old.spec == site.spec) {
        return Ok(());
    }
    if !(0..=MAX_REPLICAS).contains(&site.spec.replicas) {
        let limits = format!("must be between 0 and {MAX_REPLICAS}");
        return Err(deny("the site cannot be served").at("spec.replicas", &limits));
    }
    if !site.spec.domain.contains('.') {
        return Err(deny("the site cannot be found").at("spec.domain", "must contain a dot"));
    }
    if review.old_object().is_some_and(|old| old.spec.domain != site.spec.domain) {
        return Err(deny("the site cannot move").at("spec.domain", "cannot change; create another Site"));
    }
    Ok(())
}
