//! What a Lease says about who leads, and the four ways in which it is rewritten. Pure.
//!
//! The times in a record are for people and for telling one renewal from the next. Nothing in this crate compares
//! them with a local clock.

use std::time::Duration;

use jiff::ToSpan as _;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// The election's part of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Who holds it; `None` when nobody does, which a Lease writes as an empty name.
    pub holder: Option<String>,
    /// How long others wait after seeing a change; `None` if the Lease does not say.
    pub duration_seconds: Option<i32>,
    /// When the holder took it, by the holder's wall clock.
    pub acquired: Option<MicroTime>,
    /// When the holder last renewed it, by the holder's wall clock.
    pub renewed: Option<MicroTime>,
    /// How often it has changed hands.
    pub transitions: i32,
    /// By what rule the API server's coordinator chooses the holder; `None` where it does not choose.
    pub strategy: Option<String>,
    /// To whom the coordinator wants the holder to make room.
    pub preferred: Option<String>,
}

/// Who writes a record, and when.
#[derive(Clone, Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) identity: &'a str,
    pub(crate) duration_seconds: i32,
    pub(crate) now: MicroTime,
    /// The strategy to write: that of the record before in a coordinated election, none in any other.
    pub(crate) strategy: Option<String>,
    /// To whom the coordinator wants this holder to make room: what the record before says, for a holder that is about to.
    pub(crate) preferred: Option<String>,
}

impl LeaseRecord {
    /// Reads the record of a Lease; a Lease without a spec is one that nobody holds.
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

    /// The record of a Lease that did not exist.
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

    /// The record after the claimant took the lease from whoever held it: one transition more, acquired now.
    pub(crate) fn taken_over(&self, claim: &Claim<'_>) -> Self {
        Self { transitions: self.transitions.saturating_add(1), ..Self::first(claim) }
    }

    /// The record after the claimant renewed its own lease: transitions and the time of acquisition stay.
    pub(crate) fn renewed(&self, claim: &Claim<'_>) -> Self {
        let acquired = self.acquired.clone().or_else(|| Some(claim.now.clone()));
        Self { transitions: self.transitions, acquired, ..Self::first(claim) }
    }

    /// The record after its holder gave the lease back. One second is the least duration a Lease may state; nobody
    /// waits for it, since nobody holds it.
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

    /// How long others wait after seeing a change of this record. It is the *holder's* duration that counts, since
    /// the holder's deadline was chosen with it; only a record that states none is given `unstated`.
    pub fn duration(&self, unstated: Duration) -> Duration {
        match self.duration_seconds {
            Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
            None => unstated,
        }
    }

    /// Whether the record names this identity.
    pub fn is_held_by(&self, identity: &str) -> bool {
        self.holder.as_deref() == Some(identity)
    }

    /// The record as a spec.
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

/// The time to write next: the wall's, or one microsecond after the last time written if the wall stood still or
/// stepped back. Thus no renewal ever equals the one before.
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
    fn record_survives_the_way_through_a_lease() {
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
    fn released_lease_is_written_with_an_empty_name_and_one_second() {
        let spec = LeaseRecord::first(&claim("a", 5)).released(at(8)).into_spec();
        assert_eq!(spec.holder_identity.as_deref(), Some(""));
        assert_eq!(spec.lease_duration_seconds, Some(1));
    }

    #[test]
    fn time_written_grows_even_if_the_wall_clock_steps_back() {
        assert_eq!(strictly_after(at(100), None), at(100));
        assert_eq!(strictly_after(at(100), Some(&at(99))), at(100));
        assert_eq!(strictly_after(at(100), Some(&at(100))), at(101));
        assert_eq!(strictly_after(at(40), Some(&at(101))), at(102));
    }

    #[test]
    fn holders_duration_counts_and_ours_only_where_it_states_none() {
        let ours = Duration::from_secs(15);
        let mut record = LeaseRecord::first(&Claim { duration_seconds: 60, ..claim("a", 1) });
        assert_eq!(record.duration(ours), Duration::from_secs(60));
        record.duration_seconds = None;
        assert_eq!(record.duration(ours), ours);
    }
}
