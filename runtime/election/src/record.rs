//! The election record of a Lease, and the four ways to rewrite it. Pure.
//!
//! The times in a record are for users, and make renewals distinguishable. This crate never compares them with a local
//! clock.

use std::time::Duration;

use jiff::ToSpan as _;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// Election fields of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Holder; `None` if there is none, which a Lease states as an empty name.
    pub holder: Option<String>,
    /// Waiting time of standbys after a change; `None` if the Lease does not state it.
    pub duration_seconds: Option<i32>,
    /// Time of the takeover, by the holder's wall clock.
    pub acquired: Option<MicroTime>,
    /// Time of the last renewal, by the holder's wall clock.
    pub renewed: Option<MicroTime>,
    /// Number of changes of the holder.
    pub transitions: i32,
    /// Rule by which the API server's coordinator chooses the holder; `None` without a coordinator.
    pub strategy: Option<String>,
    /// Identity that the coordinator prefers over the holder.
    pub preferred: Option<String>,
}

/// Author and time of a record.
#[derive(Clone, Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) identity: &'a str,
    pub(crate) duration_seconds: i32,
    pub(crate) now: MicroTime,
    /// Strategy to write: the previous one in a coordinated election, and `None` otherwise.
    pub(crate) strategy: Option<String>,
    /// Preferred holder to write, copied from the previous record while this holder stops its work.
    pub(crate) preferred: Option<String>,
}

impl LeaseRecord {
    /// Reads the record of a Lease. A Lease without a spec has no holder.
    pub fn from_lease(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        Self {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration_seconds: spec.lease_duration_seconds,
            acquired: spec.acquire_time,
            renewed: spec.renew_time,
            transitions: spec.lease_transitions.unwrap_or(0),
            strategy: spec.strategy.filter(|strategy| !strategy.is_empty()),
            preferred: spec.preferred_holder.filter(|preferred| !preferred.is_empty()),
        }
    }

    /// Returns the first record of a new Lease.
    pub(crate) fn first(claim: &Claim<'_>) -> Self {
        Self {
            holder: Some(claim.identity.to_owned()),
            duration_seconds: Some(claim.duration_seconds),
            acquired: Some(claim.now.clone()),
            renewed: Some(claim.now.clone()),
            transitions: 0,
            strategy: claim.strategy.clone(),
            preferred: claim.preferred.clone(),
        }
    }

    /// Returns the record after a takeover: one more transition, acquired now.
    pub(crate) fn taken_over(&self, claim: &Claim<'_>) -> Self {
        Self { transitions: self.transitions.saturating_add(1), ..Self::first(claim) }
    }

    /// Returns the record after a renewal: transitions and acquire time do not change.
    pub(crate) fn renewed(&self, claim: &Claim<'_>) -> Self {
        let acquired = self.acquired.clone().or_else(|| Some(claim.now.clone()));
        Self { transitions: self.transitions, acquired, ..Self::first(claim) }
    }

    /// Returns the record after a release. One second is the minimum duration of a Lease. No replica waits for it,
    /// because the record has no holder.
    pub(crate) fn released(&self, now: MicroTime) -> Self {
        Self {
            holder: None,
            duration_seconds: Some(1),
            acquired: Some(now.clone()),
            renewed: Some(now),
            transitions: self.transitions,
            strategy: None,
            preferred: None,
        }
    }

    /// Returns the waiting time of standbys after a change. This is the *holder's* duration, because the holder chose
    /// its deadline with it. `unstated` applies to records without a duration.
    pub fn duration(&self, unstated: Duration) -> Duration {
        match self.duration_seconds {
            Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
            None => unstated,
        }
    }

    /// Returns whether the record names this identity.
    pub fn is_held_by(&self, identity: &str) -> bool {
        self.holder.as_deref() == Some(identity)
    }

    /// Converts the record to a spec.
    pub(crate) fn into_spec(self) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.holder.unwrap_or_default()),
            lease_duration_seconds: self.duration_seconds,
            acquire_time: self.acquired,
            renew_time: self.renewed,
            lease_transitions: Some(self.transitions),
            strategy: self.strategy,
            preferred_holder: self.preferred,
        }
    }
}

/// Returns the time to write next: the wall time, or one microsecond after the last written time if the wall clock did
/// not advance. No two renewals are therefore equal.
pub(crate) fn strictly_after(wall: MicroTime, last: Option<&MicroTime>) -> MicroTime {
    let earliest = last.and_then(|last| last.0.checked_add(1.microsecond()).ok());
    match earliest {
        Some(earliest) if earliest > wall.0 => MicroTime(earliest),
        _ => wall,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn at(micros: i64) -> MicroTime {
        MicroTime(Timestamp::from_microsecond(micros).expect("in range"))
    }

    fn claim(identity: &str, micros: i64) -> Claim<'_> {
        Claim { identity, duration_seconds: 15, now: at(micros), strategy: None, preferred: None }
    }

    fn lease(record: LeaseRecord) -> Lease {
        Lease { spec: Some(record.into_spec()), ..Lease::default() }
    }

    // parity: test-lease-spec-to-leader-election
    #[test]
    fn record_round_trips_through_lease() {
        let record = LeaseRecord::first(&claim("a", 5)).taken_over(&claim("b", 9));
        assert_eq!(LeaseRecord::from_lease(&lease(record.clone())), record);
    }

    #[test]
    fn take_over_counts_a_transition_and_a_renewal_does_not() {
        let first = LeaseRecord::first(&claim("a", 5));
        let renewed = first.renewed(&claim("a", 7));
        assert_eq!(
            (renewed.transitions, &renewed.acquired, &renewed.renewed),
            (0, &Some(at(5)), &Some(at(7)))
        );
        let taken = renewed.taken_over(&claim("b", 9));
        assert_eq!((taken.transitions, &taken.acquired, &taken.renewed), (1, &Some(at(9)), &Some(at(9))));
    }

    // parity: test-release-lease-leases
    #[test]
    fn released_record_has_empty_holder_and_one_second() {
        let spec = LeaseRecord::first(&claim("a", 5)).released(at(8)).into_spec();
        assert_eq!(spec.holder_identity.as_deref(), Some(""));
        assert_eq!(spec.lease_duration_seconds, Some(1));
    }

    #[test]
    fn written_time_increases_if_wall_clock_steps_back() {
        assert_eq!(strictly_after(at(100), None), at(100));
        assert_eq!(strictly_after(at(100), Some(&at(99))), at(100));
        assert_eq!(strictly_after(at(100), Some(&at(100))), at(101));
        assert_eq!(strictly_after(at(40), Some(&at(101))), at(102));
    }

    #[test]
    fn own_duration_applies_only_to_records_without_one() {
        let ours = Duration::from_secs(15);
        let mut record = LeaseRecord::first(&Claim { duration_seconds: 60, ..claim("a", 1) });
        assert_eq!(record.duration(ours), Duration::from_secs(60));
        record.duration_seconds = None;
        assert_eq!(record.duration(ours), ours);
    }
}
