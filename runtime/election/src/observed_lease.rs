//! The next action of a replica that does not lead, from the observed Lease and the local time. Pure.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use windlass_env::Instant;
use windlass_object::ResourceVersion;

use crate::record::LeaseRecord;
use crate::written_versions::PreviousHolder;

/// Lease as last received.
#[derive(Clone, Debug)]
pub struct LeaseObservation {
    /// The object. Its version is the precondition of the next write.
    pub lease: Lease,
    /// Election record of the Lease.
    pub record: LeaseRecord,
    /// Local time of receipt of the last *change* of the record. Never earlier than the change, so counting from this
    /// time can only lengthen the wait.
    pub changed_at: Instant,
}

/// Observed state of the Lease.
#[derive(Clone, Debug)]
pub enum ObservedLease {
    /// Not fetched yet.
    Unknown,
    /// The Lease does not exist, and had no holder when it was deleted.
    Absent,
    /// The Lease exists.
    Seen(LeaseObservation),
    /// The Lease was deleted while held. Its holder might not have noticed, and acts until its own deadline.
    Deleted(LeaseObservation),
}

/// Next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionAction {
    /// Fetch the Lease.
    Fetch,
    /// Create the Lease with this replica as the holder.
    Create,
    /// Replace an expired holder, or an empty one.
    TakeOver,
    /// Renew the Lease: it names this replica, which does not lead, because the response to its own write was lost.
    Reclaim,
    /// Release the Lease: it names this replica, which does not lead and can no longer use it. The coordinator does not
    /// write the holder of an expired Lease again when it chooses the same replica, so no replica would lead otherwise.
    Release,
    /// Do not write before this time, unless the Lease changes.
    WaitUntil(Instant),
    /// Wait for a change: the coordinator chooses the holder.
    Follow,
}

impl ObservedLease {
    /// Records a Lease received at `at`. Only a change of the record restarts the expiry.
    pub fn observe(&mut self, lease: Lease, at: Instant) {
        let record = LeaseRecord::from_lease(&lease);
        let changed_at = match self {
            ObservedLease::Seen(last) if last.record == record => last.changed_at,
            ObservedLease::Unknown
            | ObservedLease::Absent
            | ObservedLease::Seen(_)
            | ObservedLease::Deleted(_) => at,
        };
        *self = ObservedLease::Seen(LeaseObservation { lease, record, changed_at });
    }

    /// Records a Lease received at `at`, unless a later state was observed. With several sources the last received
    /// state need not be the newest.
    pub fn observe_newer(&mut self, lease: Lease, at: Instant) {
        let received = lease.metadata.resource_version.as_deref().map(ResourceVersion::new);
        let known = Some(self.version()).filter(|version| !version.is_empty()).map(ResourceVersion::new);
        let is_older = match (received, known) {
            (Some(received), Some(known)) => known.reached(&received) == Some(true),
            _ => false,
        };
        if !is_older {
            self.observe(lease, at);
        }
    }

    /// Records that the Lease does not exist.
    pub fn on_deleted(&mut self) {
        *self = match std::mem::replace(self, ObservedLease::Absent) {
            ObservedLease::Seen(last) | ObservedLease::Deleted(last) if last.record.holder.is_some() => {
                ObservedLease::Deleted(last)
            }
            ObservedLease::Unknown
            | ObservedLease::Absent
            | ObservedLease::Seen(_)
            | ObservedLease::Deleted(_) => ObservedLease::Absent,
        };
    }

    /// Returns the Lease if it exists.
    pub fn seen(&self) -> Option<&LeaseObservation> {
        match self {
            ObservedLease::Seen(observation) => Some(observation),
            ObservedLease::Unknown | ObservedLease::Absent | ObservedLease::Deleted(_) => None,
        }
    }

    /// Returns the last observed record, even if its Lease no longer exists.
    pub fn record(&self) -> Option<&LeaseRecord> {
        match self {
            ObservedLease::Seen(observation) | ObservedLease::Deleted(observation) => {
                Some(&observation.record)
            }
            ObservedLease::Unknown | ObservedLease::Absent => None,
        }
    }

    /// Returns the observed holder.
    pub fn holder(&self) -> Option<&str> {
        self.seen().and_then(|observation| observation.record.holder.as_deref())
    }

    /// Returns the reported writes of the previous holder, if this replica takes the Lease in this state. A record with
    /// a holder was not released, so its annotation is ignored.
    pub fn previous_holder(&self) -> PreviousHolder {
        match self.seen() {
            Some(seen) if seen.record.holder.is_none() => PreviousHolder::from_released(&seen.lease.metadata),
            _ => PreviousHolder::Unreported,
        }
    }

    /// Returns the version from which a watch continues; empty if there is none.
    pub fn version(&self) -> &str {
        match self {
            ObservedLease::Seen(last) | ObservedLease::Deleted(last) => {
                last.lease.metadata.resource_version.as_deref().unwrap_or("")
            }
            ObservedLease::Unknown | ObservedLease::Absent => "",
        }
    }
}

/// Returns the next action at `now` of a replica `me` that does not lead. `unstated` is the duration for records
/// without one.
pub(crate) fn decide(observed: &ObservedLease, me: &str, unstated: Duration, now: Instant) -> ElectionAction {
    match observed {
        ObservedLease::Unknown => ElectionAction::Fetch,
        ObservedLease::Absent => ElectionAction::Create,
        ObservedLease::Deleted(last) if last.record.is_held_by(me) => ElectionAction::Create,
        ObservedLease::Deleted(last) => once_expired(last, unstated, now, ElectionAction::Create),
        ObservedLease::Seen(last) if last.record.holder.is_none() => ElectionAction::TakeOver,
        ObservedLease::Seen(last) if last.record.is_held_by(me) => ElectionAction::Reclaim,
        ObservedLease::Seen(last) => once_expired(last, unstated, now, ElectionAction::TakeOver),
    }
}

/// Returns the next action in a coordinated election. A Lease that names `me` can be used until it expires, unless
/// another replica is preferred. Otherwise it is released, one lease duration after it was observed.
pub(crate) fn decide_coordinated(
    observed: &ObservedLease,
    me: &str,
    unstated: Duration,
    now: Instant,
) -> ElectionAction {
    match observed {
        ObservedLease::Unknown => ElectionAction::Fetch,
        ObservedLease::Seen(last) => {
            if !last.record.is_held_by(me) {
                return ElectionAction::Follow;
            }
            let stated = last.record.duration(unstated);
            // The coordinator states a shorter duration than replicas do. A write of the previous holder, possibly this
            // replica, can take effect for the duration that this holder stated.
            let release_at = last.changed_at + stated.max(unstated);
            if last.record.preferred.is_none() && now < last.changed_at + stated {
                ElectionAction::Reclaim
            } else if now < release_at {
                ElectionAction::WaitUntil(release_at)
            } else {
                ElectionAction::Release
            }
        }
        ObservedLease::Absent | ObservedLease::Deleted(_) => ElectionAction::Follow,
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

    const IDENTITY: Duration = Duration::from_secs(15);

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

    /// Returns a base for relative times; the decision itself reads no clock.
    fn start() -> Instant {
        Env::virtual_time(1).now()
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_lease_is_fetched_and_absent_lease_is_created() {
        assert_eq!(decide(&ObservedLease::Unknown, "me", IDENTITY, start()), ElectionAction::Fetch);
        assert_eq!(decide(&ObservedLease::Absent, "me", IDENTITY, start()), ElectionAction::Create);
    }

    // parity: test-try-acquire-or-renew-leases-no
    #[tokio::test(start_paused = true)]
    async fn standby_waits_for_duration_stated_by_holder() {
        let (mut observed, t0) = (ObservedLease::Unknown, start());
        observed.observe(lease("other", 60, 1), t0);
        assert_eq!(
            decide(&observed, "me", IDENTITY, t0 + seconds(59)),
            ElectionAction::WaitUntil(t0 + seconds(60))
        );
        assert_eq!(decide(&observed, "me", IDENTITY, t0 + seconds(60)), ElectionAction::TakeOver);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_changed_record_prolongs_the_wait() {
        let (mut observed, t0) = (ObservedLease::Unknown, start());
        observed.observe(lease("other", 15, 1), t0);
        let mut touched = lease("other", 15, 1);
        touched.metadata.resource_version = Some("7".to_owned());
        observed.observe(touched, t0 + seconds(10));
        assert_eq!(observed.version(), "7");
        assert_eq!(
            decide(&observed, "me", IDENTITY, t0 + seconds(11)),
            ElectionAction::WaitUntil(t0 + seconds(15))
        );
        observed.observe(lease("other", 15, 2), t0 + seconds(12));
        assert_eq!(
            decide(&observed, "me", IDENTITY, t0 + seconds(15)),
            ElectionAction::WaitUntil(t0 + seconds(27))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn released_lease_is_taken_and_own_lease_reclaimed() {
        let (mut observed, t0) = (ObservedLease::Unknown, start());
        observed.observe(lease("", 15, 1), t0);
        assert_eq!(decide(&observed, "me", IDENTITY, t0), ElectionAction::TakeOver);
        observed.observe(lease("me", 15, 2), t0);
        assert_eq!(decide(&observed, "me", IDENTITY, t0), ElectionAction::Reclaim);
    }

    #[tokio::test(start_paused = true)]
    async fn lease_deleted_while_held_is_recreated_after_expiry() {
        let (mut observed, t0) = (ObservedLease::Unknown, start());
        observed.observe(lease("other", 15, 1), t0);
        observed.on_deleted();
        observed.on_deleted();
        assert_eq!(
            decide(&observed, "me", IDENTITY, t0 + seconds(14)),
            ElectionAction::WaitUntil(t0 + seconds(15))
        );
        assert_eq!(decide(&observed, "me", IDENTITY, t0 + seconds(15)), ElectionAction::Create);
        assert_eq!(decide(&observed, "other", IDENTITY, t0), ElectionAction::Create);
    }

    // parity: test-try-coordinated-renew, coordinated-election-lease-candidate
    #[tokio::test(start_paused = true)]
    async fn coordinated_replica_holds_only_an_assigned_lease() {
        let (mut observed, t0) = (ObservedLease::Unknown, start());
        let step = |observed: &ObservedLease, now| decide_coordinated(observed, "me", IDENTITY, now);
        assert_eq!(step(&observed, t0), ElectionAction::Fetch);
        assert_eq!(step(&ObservedLease::Absent, t0), ElectionAction::Follow);
        observed.observe(lease("", 15, 1), t0);
        assert_eq!(
            step(&observed, t0),
            ElectionAction::Follow,
            "the Lease has no holder, and only the coordinator assigns it"
        );
        observed.observe(lease("other", 15, 2), t0);
        assert_eq!(
            step(&observed, t0 + seconds(99)),
            ElectionAction::Follow,
            "the Lease has expired, and only the coordinator assigns it"
        );
        observed.observe(lease("me", 5, 3), t0);
        assert_eq!(step(&observed, t0 + seconds(4)), ElectionAction::Reclaim);
        assert_eq!(
            step(&observed, t0 + seconds(5)),
            ElectionAction::WaitUntil(t0 + seconds(15)),
            "the Lease has expired"
        );
        assert_eq!(step(&observed, t0 + seconds(15)), ElectionAction::Release);
        let mut ending = lease("me", 5, 4);
        ending.spec.get_or_insert_default().preferred_holder = Some("other".to_owned());
        observed.observe(ending, t0);
        assert_eq!(
            step(&observed, t0),
            ElectionAction::WaitUntil(t0 + seconds(15)),
            "the coordinator prefers another replica"
        );
        assert_eq!(step(&observed, t0 + seconds(15)), ElectionAction::Release);
        observed.on_deleted();
        assert_eq!(step(&observed, t0), ElectionAction::Follow);
    }

    #[tokio::test(start_paused = true)]
    async fn lease_deleted_without_holder_is_created_immediately() {
        let (mut observed, t0) = (ObservedLease::Unknown, start());
        observed.observe(lease("", 15, 1), t0);
        observed.on_deleted();
        assert_eq!(decide(&observed, "me", IDENTITY, t0), ElectionAction::Create);
    }
}
