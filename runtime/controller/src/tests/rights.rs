//! Controllers whose roles lack something.

use std::sync::atomic::{AtomicBool, Ordering};

use kube::core::Status;

use super::*;

/// A server's refusal of a write that no rule permits.
fn forbidden() -> kube::Error {
    let message = r#"pods is forbidden: User "system:serviceaccount:kube-system:scripted" cannot create resource "pods" in API group "" in the namespace "shop""#;
    let mut status = Status::failure(message, "Forbidden");
    status.code = 403;
    kube::Error::Api(Box::new(status))
}

#[derive(Debug, thiserror::Error)]
#[error("unable to create pods")]
struct Wrapped(#[source] kube::Error);

/// A controller of which the key `needy` needs a right that is there when `granted` says so, as do no others.
fn needy(world: &World, granted: &Arc<AtomicBool>) -> Registration {
    let granted = Arc::clone(granted);
    let wire = |setup: &mut Setup| {
        setup.max_retries(Some(3));
        setup.watch::<ConfigMap>().enqueue(by_self);
    };
    world.scripted(wire, move |key, _| {
        let allowed = key.name() != "needy" || granted.load(Ordering::Relaxed);
        async move { if allowed { Ok(Outcome::Done) } else { Err(retry(Wrapped(forbidden()))) } }
    })
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_write_is_forbidden_is_tried_again_within_half_a_minute_however_long_it_lasts() {
    let (world, granted) = (World::with(&["needy", "modest"]), Arc::new(AtomicBool::new(false)));
    let _workers = world.start_with(needy(&world, &granted)).await;
    world.pass(3600).await;
    let times = world.diary.times("needy");
    let gaps = gaps(&times);
    assert!(gaps.iter().all(|gap| *gap <= Duration::from_secs(30)), "{gaps:?}");
    assert!(times.len() <= 3600 / 30 + 15, "and it backs off before: {}", times.len());
    assert_eq!(world.diary.times("modest").len(), 1, "who does not need the right is not concerned");

    granted.store(true, Ordering::Relaxed);
    world.pass(31).await;
    let reconciled = world.diary.times("needy").len();
    assert_eq!(reconciled, times.len() + 1, "done at the first try after the rule came back");
    world.pass(3600).await;
    assert_eq!(world.diary.times("needy").len(), reconciled);
}

#[test]
fn what_a_role_lacks_is_found_however_the_controller_wraps_it() {
    for error in [
        ReconcileError::from(forbidden()),
        retry(Wrapped(forbidden())),
        retry(format!("[{}, something else]", Wrapped(forbidden()).0)),
        terminal(forbidden()),
    ] {
        let told = error.denial().map(|denial| denial.to_string());
        let expected = "system:serviceaccount:kube-system:scripted may not create pods in namespace shop; add to a role \
                        there, or to a cluster role: - { apiGroups: [\"\"], resources: [\"pods\"], verbs: [create] }";
        assert_eq!(told.as_deref(), Some(expected), "{error:?}");
    }
    assert_eq!(retry("another failure").denial(), None);
}
