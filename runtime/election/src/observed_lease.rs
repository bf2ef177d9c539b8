//! What a replica that does not lead does next: observed lease and local time in, step out. Pure.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use windlass_env::Instant;
use windlass_object::ResourceVersion;

use crate::record::LeaseRecord;
use crate::written_versions::PreviousHolder;

/// A Lease as last received.
#[derive(Clone, Debug)]
pub struct LeaseObservation {
    /// The object itself: its version is the precondition of the next write.
    pub lease: Lease,
    /// What it says.
    pub record: LeaseRecord,
    /// When, by the local clock, a *change* of the record was last received. Never later than the latest receipt, and
    /// never earlier than the change: so counting from here errs on the side of waiting.
    pub changed_at: Instant,
}

/// What is known of the Lease.
#[derive(Clone, Debug)]
pub enum ObservedLease {
    /// Nothing yet.
    Unknown,
    /// It does not exist, and was not held when it ceased to.
    Absent,
    /// It exists.
    Seen(LeaseObservation),
    /// It was deleted while held. Its holder may not have noticed, and acts until its own deadline.
    Gone(LeaseObservation),
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionAction {
    /// Fetch the Lease.
    Fetch,
    /// Create it, naming ourselves.
    Create,
    /// Write ourselves over a holder whose time is up, or over nobody.
    TakeOver,
    /// Renew it: it names us although we do not lead, because the response to our own write was lost.
    Reclaim,
    /// Give it back: it names us, we do not lead, and we can no longer use it. The coordinator does not write the holder
    /// of an expired Lease again when it chooses the same replica, so no replica would lead otherwise.
    Release,
    /// It is not to be written before then, unless it changes.
    WaitUntil(Instant),
    /// It is for somebody else to decide who holds it: wait until it changes.
    Follow,
}

impl ObservedLease {
    /// Takes in a Lease received at `at`. Only a change of the record moves the moment from which expiry is counted.
    pub fn observe(&mut self, lease: Lease, at: Instant) {
        let record = LeaseRecord::from_lease(&lease);
        let changed_at = match self {
            ObservedLease::Seen(last) if last.record == record => last.changed_at,
            ObservedLease::Unknown
            | ObservedLease::Absent
            | ObservedLease::Seen(_)
            | ObservedLease::Gone(_) => at,
        };
        *self = ObservedLease::Seen(LeaseObservation { lease, record, changed_at });
    }

    /// Takes in a Lease received at `at`, unless a later state of it is known. Where several sources tell of one Lease,
    /// what comes last need not be the newest.
    pub fn observe_newer(&mut self, lease: Lease, at: Instant) {
        let told = lease.metadata.resource_version.as_deref().map(ResourceVersion::new);
        let known = Some(self.version()).filter(|version| !version.is_empty()).map(ResourceVersion::new);
        let is_older = match (told, known) {
            (Some(told), Some(known)) => known.reached(&told) == Some(true),
            _ => false,
        };
        if !is_older {
            self.observe(lease, at);
        }
    }

    /// Takes in that the Lease does not exist.
    pub fn on_deleted(&mut self) {
        *self = match std::mem::replace(self, ObservedLease::Absent) {
            ObservedLease::Seen(last) | ObservedLease::Gone(last) if last.record.holder.is_some() => {
                ObservedLease::Gone(last)
            }
            ObservedLease::Unknown
            | ObservedLease::Absent
            | ObservedLease::Seen(_)
            | ObservedLease::Gone(_) => ObservedLease::Absent,
        };
    }

    /// The Lease if it exists.
    pub fn seen(&self) -> Option<&LeaseObservation> {
        match self {
            ObservedLease::Seen(observation) => Some(observation),
            ObservedLease::Unknown | ObservedLease::Absent | ObservedLease::Gone(_) => None,
        }
    }

    /// The record last seen, whether or not its Lease still exists.
    pub fn record(&self) -> Option<&LeaseRecord> {
        match self {
            ObservedLease::Seen(observation) | ObservedLease::Gone(observation) => Some(&observation.record),
            ObservedLease::Unknown | ObservedLease::Absent => None,
        }
    }

    /// Who holds the Lease, as far as is known.
    pub fn holder(&self) -> Option<&str> {
        self.seen().and_then(|observation| observation.record.holder.as_deref())
    }

    /// What is known of the writes of whoever had the Lease before it is taken in this state. A record that names a
    /// holder was not released, whatever is annotated next to it.
    pub fn predecessor(&self) -> PreviousHolder {
        match self.seen() {
            Some(seen) if seen.record.holder.is_none() => PreviousHolder::from_released(&seen.lease.metadata),
            _ => PreviousHolder::Unreported,
        }
    }

    /// The version from which a watch continues; empty if there is none.
    pub fn version(&self) -> &str {
        match self {
            ObservedLease::Seen(last) | ObservedLease::Gone(last) => {
                last.lease.metadata.resource_version.as_deref().unwrap_or("")
            }
            ObservedLease::Unknown | ObservedLease::Absent => "",
        }
    }
}

/// What a replica named `me` that does not lead does at `now`. `unstated` is the duration assumed for a record that
/// states none.
pub(crate) fn decide(view: &ObservedLease, me: &str, unstated: Duration, now: Instant) -> ElectionAction {
    match view {
        ObservedLease::Unknown => ElectionAction::Fetch,
        ObservedLease::Absent => ElectionAction::Create,
        ObservedLease::Gone(last) if last.record.is_held_by(me) => ElectionAction::Create,
        ObservedLease::Gone(last) => once_expired(last, unstated, now, ElectionAction::Create),
        ObservedLease::Seen(last) if last.record.holder.is_none() => ElectionAction::TakeOver,
        ObservedLease::Seen(last) if last.record.is_held_by(me) => ElectionAction::Reclaim,
        ObservedLease::Seen(last) => once_expired(last, unstated, now, ElectionAction::TakeOver),
    }
}

/// The same where the API server's coordinator decides: nothing is taken, and only what was given is held. A Lease that
/// names `me` may be used until it expires, unless another replica is preferred. Otherwise it is released, one lease
/// duration of ours after it was observed.
pub(crate) fn decide_coordinated(
    view: &ObservedLease,
    me: &str,
    unstated: Duration,
    now: Instant,
) -> ElectionAction {
    match view {
        ObservedLease::Unknown => ElectionAction::Fetch,
        ObservedLease::Seen(last) => {
            if !last.record.is_held_by(me) {
                return ElectionAction::Follow;
            }
            let stated = last.record.duration(unstated);
            // The coordinator states a shorter duration than replicas do. A write of its previous holder, who may be
            // ourselves, can take effect for as long as that one stated.
            let release_at = last.changed_at + stated.max(unstated);
            if last.record.preferred.is_none() && now < last.changed_at + stated {
                ElectionAction::Reclaim
            } else if now < release_at {
                ElectionAction::WaitUntil(release_at)
            } else {
                ElectionAction::Release
            }
        }
        ObservedLease::Absent | ObservedLease::Gone(_) => ElectionAction::Follow,
    }
}

fn once_expired(
    last: &LeaseObservation,
    unstated: Duration,
    now: Instant,
    then: ElectionAction,
) -> ElectionAction {
    let expiry = last.changed_at + last.record.duration(unstated);
    if now < expiry { ElectionAction::WaitUntil(expiry) } else { then }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Claim;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use windlass_env::Env;

    const OURS: Duration = Duration::from_secs(15);

    fn lease(holder: &str, duration_seconds: i32, renewed_micros: i64) -> Lease {
        let now = MicroTime(Timestamp::from_microsecond(renewed_micros).expect("in range"));
        let record = LeaseRecord::first(&Claim {
            identity: holder,
            duration_seconds,
            now,
            strategy: None,
            preferred: None,
        });
        Lease { spec: Some(record.into_spec()), ..Lease::default() }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A moment to count from; the decision itself never asks a clock.
    fn start() -> Instant {
        Env::virtual_time(1).now()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_unknown_is_looked_at_and_what_is_absent_created() {
        assert_eq!(decide(&ObservedLease::Unknown, "me", OURS, start()), ElectionAction::Fetch);
        assert_eq!(decide(&ObservedLease::Absent, "me", OURS, start()), ElectionAction::Create);
    }

    // parity: test-try-acquire-or-renew-leases-no
    #[tokio::test(start_paused = true)]
    async fn another_holder_is_waited_for_by_the_duration_it_states() {
        let (mut view, t0) = (ObservedLease::Unknown, start());
        view.observe(lease("other", 60, 1), t0);
        assert_eq!(decide(&view, "me", OURS, t0 + seconds(59)), ElectionAction::WaitUntil(t0 + seconds(60)));
        assert_eq!(decide(&view, "me", OURS, t0 + seconds(60)), ElectionAction::TakeOver);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_changed_record_prolongs_the_wait() {
        let (mut view, t0) = (ObservedLease::Unknown, start());
        view.observe(lease("other", 15, 1), t0);
        let mut touched = lease("other", 15, 1);
        touched.metadata.resource_version = Some("7".to_owned());
        view.observe(touched, t0 + seconds(10));
        assert_eq!(view.version(), "7");
        assert_eq!(decide(&view, "me", OURS, t0 + seconds(11)), ElectionAction::WaitUntil(t0 + seconds(15)));
        view.observe(lease("other", 15, 2), t0 + seconds(12));
        assert_eq!(decide(&view, "me", OURS, t0 + seconds(15)), ElectionAction::WaitUntil(t0 + seconds(27)));
    }

    #[tokio::test(start_paused = true)]
    async fn released_lease_is_taken_and_our_own_reclaimed_at_once() {
        let (mut view, t0) = (ObservedLease::Unknown, start());
        view.observe(lease("", 15, 1), t0);
        assert_eq!(decide(&view, "me", OURS, t0), ElectionAction::TakeOver);
        view.observe(lease("me", 15, 2), t0);
        assert_eq!(decide(&view, "me", OURS, t0), ElectionAction::Reclaim);
    }

    #[tokio::test(start_paused = true)]
    async fn lease_deleted_while_held_is_created_only_after_it_would_have_expired() {
        let (mut view, t0) = (ObservedLease::Unknown, start());
        view.observe(lease("other", 15, 1), t0);
        view.on_deleted();
        view.on_deleted();
        assert_eq!(decide(&view, "me", OURS, t0 + seconds(14)), ElectionAction::WaitUntil(t0 + seconds(15)));
        assert_eq!(decide(&view, "me", OURS, t0 + seconds(15)), ElectionAction::Create);
        assert_eq!(decide(&view, "other", OURS, t0), ElectionAction::Create);
    }

    // parity: test-try-coordinated-renew, coordinated-election-lease-candidate
    #[tokio::test(start_paused = true)]
    async fn where_a_coordinator_decides_nothing_is_taken_and_only_what_was_given_is_held() {
        let (mut view, t0) = (ObservedLease::Unknown, start());
        let step = |view: &ObservedLease, now| decide_coordinated(view, "me", OURS, now);
        assert_eq!(step(&view, t0), ElectionAction::Fetch);
        assert_eq!(step(&ObservedLease::Absent, t0), ElectionAction::Follow);
        view.observe(lease("", 15, 1), t0);
        assert_eq!(step(&view, t0), ElectionAction::Follow, "nobody holds it, and it is not ours to take");
        view.observe(lease("other", 15, 2), t0);
        assert_eq!(
            step(&view, t0 + seconds(99)),
            ElectionAction::Follow,
            "it has expired, and is not ours to take"
        );
        view.observe(lease("me", 5, 3), t0);
        assert_eq!(step(&view, t0 + seconds(4)), ElectionAction::Reclaim);
        assert_eq!(
            step(&view, t0 + seconds(5)),
            ElectionAction::WaitUntil(t0 + seconds(15)),
            "its time is up"
        );
        assert_eq!(step(&view, t0 + seconds(15)), ElectionAction::Release);
        let mut ending = lease("me", 5, 4);
        ending.spec.get_or_insert_default().preferred_holder = Some("other".to_owned());
        view.observe(ending, t0);
        assert_eq!(step(&view, t0), ElectionAction::WaitUntil(t0 + seconds(15)), "another is to have it");
        assert_eq!(step(&view, t0 + seconds(15)), ElectionAction::Release);
        view.on_deleted();
        assert_eq!(step(&view, t0), ElectionAction::Follow);
    }

    #[tokio::test(start_paused = true)]
    async fn lease_deleted_while_nobody_held_it_is_created_at_once() {
        let (mut view, t0) = (ObservedLease::Unknown, start());
        view.observe(lease("", 15, 1), t0);
        view.on_deleted();
        assert_eq!(decide(&view, "me", OURS, t0), ElectionAction::Create);
    }
}
