//! What a replica that does not lead does next: observed lease and local time in, step out. Pure.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use windlass_env::Instant;
use windlass_object::ResourceVersion;

use crate::record::Record;
use crate::written::Predecessor;

/// A Lease as last received.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    /// The object itself: its version is the precondition of the next write.
    pub(crate) lease: Lease,
    /// What it says.
    pub(crate) record: Record,
    /// When, by the local clock, a *change* of the record was last received. Never later than the latest receipt, and
    /// never earlier than the change: so counting from here errs on the side of waiting.
    pub(crate) changed_at: Instant,
}

/// What is known of the Lease.
#[derive(Clone, Debug)]
pub(crate) enum View {
    /// Nothing yet.
    Unknown,
    /// It does not exist, and was not held when it ceased to.
    Absent,
    /// It exists.
    Seen(Observation),
    /// It was deleted while held. Its holder may not have noticed, and acts until its own deadline.
    Gone(Observation),
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Fetch the Lease.
    Look,
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

impl View {
    /// Takes in a Lease received at `at`. Only a change of the record moves the moment from which expiry is counted.
    pub(crate) fn observe(&mut self, lease: Lease, at: Instant) {
        let record = Record::of(&lease);
        let changed_at = match self {
            View::Seen(last) if last.record == record => last.changed_at,
            View::Unknown | View::Absent | View::Seen(_) | View::Gone(_) => at,
        };
        *self = View::Seen(Observation { lease, record, changed_at });
    }

    /// Takes in a Lease received at `at`, unless a later state of it is known. Where several sources tell of one Lease,
    /// what comes last need not be the newest.
    pub(crate) fn observe_newer(&mut self, lease: Lease, at: Instant) {
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
    pub(crate) fn vanished(&mut self) {
        *self = match std::mem::replace(self, View::Absent) {
            View::Seen(last) | View::Gone(last) if last.record.holder.is_some() => View::Gone(last),
            View::Unknown | View::Absent | View::Seen(_) | View::Gone(_) => View::Absent,
        };
    }

    /// The Lease if it exists.
    pub(crate) fn seen(&self) -> Option<&Observation> {
        match self {
            View::Seen(observation) => Some(observation),
            View::Unknown | View::Absent | View::Gone(_) => None,
        }
    }

    /// The record last seen, whether or not its Lease still exists.
    pub(crate) fn record(&self) -> Option<&Record> {
        match self {
            View::Seen(observation) | View::Gone(observation) => Some(&observation.record),
            View::Unknown | View::Absent => None,
        }
    }

    /// Who holds the Lease, as far as is known.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.seen().and_then(|observation| observation.record.holder.as_deref())
    }

    /// What is known of the writes of whoever had the Lease before it is taken in this state. A record that names a
    /// holder was not released, whatever is annotated beside it.
    pub(crate) fn predecessor(&self) -> Predecessor {
        match self.seen() {
            Some(seen) if seen.record.holder.is_none() => Predecessor::of_released(&seen.lease.metadata),
            _ => Predecessor::Silent,
        }
    }

    /// The version from which a watch continues; empty if there is none.
    pub(crate) fn version(&self) -> &str {
        match self {
            View::Seen(last) | View::Gone(last) => {
                last.lease.metadata.resource_version.as_deref().unwrap_or("")
            }
            View::Unknown | View::Absent => "",
        }
    }
}

/// What a replica named `me` that does not lead does at `now`. `unstated` is the duration assumed for a record that
/// states none.
pub(crate) fn decide(view: &View, me: &str, unstated: Duration, now: Instant) -> Step {
    match view {
        View::Unknown => Step::Look,
        View::Absent => Step::Create,
        View::Gone(last) if last.record.is_held_by(me) => Step::Create,
        View::Gone(last) => once_expired(last, unstated, now, Step::Create),
        View::Seen(last) if last.record.holder.is_none() => Step::TakeOver,
        View::Seen(last) if last.record.is_held_by(me) => Step::Reclaim,
        View::Seen(last) => once_expired(last, unstated, now, Step::TakeOver),
    }
}

/// The same where the API server's coordinator decides: nothing is taken, and only what was given is held. A Lease that
/// names `me` may be used until it expires, unless another replica is preferred. Otherwise it is released, one lease
/// duration of ours after it was observed.
pub(crate) fn decide_coordinated(view: &View, me: &str, unstated: Duration, now: Instant) -> Step {
    match view {
        View::Unknown => Step::Look,
        View::Seen(last) => {
            if !last.record.is_held_by(me) {
                return Step::Follow;
            }
            let stated = last.record.duration(unstated);
            // The coordinator states a shorter duration than replicas do. A write of its previous holder, who may be
            // ourselves, can take effect for as long as that one stated.
            let release_at = last.changed_at + stated.max(unstated);
            if last.record.preferred.is_none() && now < last.changed_at + stated {
                Step::Reclaim
            } else if now < release_at {
                Step::WaitUntil(release_at)
            } else {
                Step::Release
            }
        }
        View::Absent | View::Gone(_) => Step::Follow,
    }
}

fn once_expired(last: &Observation, unstated: Duration, now: Instant, then: Step) -> Step {
    let expiry = last.changed_at + last.record.duration(unstated);
    if now < expiry { Step::WaitUntil(expiry) } else { then }
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
        let record = Record::first(&Claim {
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
        assert_eq!(decide(&View::Unknown, "me", OURS, start()), Step::Look);
        assert_eq!(decide(&View::Absent, "me", OURS, start()), Step::Create);
    }

    #[tokio::test(start_paused = true)]
    async fn another_holder_is_waited_for_by_the_duration_it_states() {
        let (mut view, t0) = (View::Unknown, start());
        view.observe(lease("other", 60, 1), t0);
        assert_eq!(decide(&view, "me", OURS, t0 + seconds(59)), Step::WaitUntil(t0 + seconds(60)));
        assert_eq!(decide(&view, "me", OURS, t0 + seconds(60)), Step::TakeOver);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_changed_record_prolongs_the_wait() {
        let (mut view, t0) = (View::Unknown, start());
        view.observe(lease("other", 15, 1), t0);
        let mut touched = lease("other", 15, 1);
        touched.metadata.resource_version = Some("7".to_owned());
        view.observe(touched, t0 + seconds(10));
        assert_eq!(view.version(), "7");
        assert_eq!(decide(&view, "me", OURS, t0 + seconds(11)), Step::WaitUntil(t0 + seconds(15)));
        view.observe(lease("other", 15, 2), t0 + seconds(12));
        assert_eq!(decide(&view, "me", OURS, t0 + seconds(15)), Step::WaitUntil(t0 + seconds(27)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_lease_is_taken_and_our_own_reclaimed_at_once() {
        let (mut view, t0) = (View::Unknown, start());
        view.observe(lease("", 15, 1), t0);
        assert_eq!(decide(&view, "me", OURS, t0), Step::TakeOver);
        view.observe(lease("me", 15, 2), t0);
        assert_eq!(decide(&view, "me", OURS, t0), Step::Reclaim);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_deleted_while_held_is_created_only_after_it_would_have_expired() {
        let (mut view, t0) = (View::Unknown, start());
        view.observe(lease("other", 15, 1), t0);
        view.vanished();
        view.vanished();
        assert_eq!(decide(&view, "me", OURS, t0 + seconds(14)), Step::WaitUntil(t0 + seconds(15)));
        assert_eq!(decide(&view, "me", OURS, t0 + seconds(15)), Step::Create);
        assert_eq!(decide(&view, "other", OURS, t0), Step::Create);
    }

    #[tokio::test(start_paused = true)]
    async fn where_a_coordinator_decides_nothing_is_taken_and_only_what_was_given_is_held() {
        let (mut view, t0) = (View::Unknown, start());
        let step = |view: &View, now| decide_coordinated(view, "me", OURS, now);
        assert_eq!(step(&view, t0), Step::Look);
        assert_eq!(step(&View::Absent, t0), Step::Follow);
        view.observe(lease("", 15, 1), t0);
        assert_eq!(step(&view, t0), Step::Follow, "nobody holds it, and it is not ours to take");
        view.observe(lease("other", 15, 2), t0);
        assert_eq!(step(&view, t0 + seconds(99)), Step::Follow, "it has expired, and is not ours to take");
        view.observe(lease("me", 5, 3), t0);
        assert_eq!(step(&view, t0 + seconds(4)), Step::Reclaim);
        assert_eq!(step(&view, t0 + seconds(5)), Step::WaitUntil(t0 + seconds(15)), "its time is up");
        assert_eq!(step(&view, t0 + seconds(15)), Step::Release);
        let mut ending = lease("me", 5, 4);
        ending.spec.get_or_insert_default().preferred_holder = Some("other".to_owned());
        view.observe(ending, t0);
        assert_eq!(step(&view, t0), Step::WaitUntil(t0 + seconds(15)), "another is to have it");
        assert_eq!(step(&view, t0 + seconds(15)), Step::Release);
        view.vanished();
        assert_eq!(step(&view, t0), Step::Follow);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_deleted_while_nobody_held_it_is_created_at_once() {
        let (mut view, t0) = (View::Unknown, start());
        view.observe(lease("", 15, 1), t0);
        view.vanished();
        assert_eq!(decide(&view, "me", OURS, t0), Step::Create);
    }
}
