//! State of one Lease on one replica: last observed record, held or not, and the next write. Pure.
//!
//! An election over one Lease has one [`LeaseState`], sharding has one for each shard. The caller provides the time and
//! the responses, and sends the writes. Guarantees:
//!
//! - A write counts from the time at which it was sent, and only if its response arrives before its deadline.
//! - A write without a response might have taken effect. The state is *stale* until the Lease is fetched, and no write
//!   builds on a stale state.
//! - Each written record differs from the previous record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use windlass_env::{Env, Instant};
use windlass_object::time;

use crate::config::Election;
use crate::error::{LeaseError, LossReason};
use crate::observed_lease::{ElectionAction, ObservedLease, decide, decide_coordinated};
use crate::record::{Claim, LeaseRecord, strictly_after};
use crate::written_versions::{PreviousHolder, WrittenVersions, annotated};

/// The identity and the durations of the Leases of one election.
#[derive(Clone, Debug)]
pub struct LeaseParams {
    /// The namespace of the Leases.
    pub namespace: String,
    /// The holder identity of this replica.
    pub identity: String,
    /// The lease duration as the Lease states it.
    pub lease_seconds: i32,
    /// See [`ElectionConfig::lease_duration`](crate::ElectionConfig::lease_duration).
    pub lease_duration: Duration,
    /// See [`ElectionConfig::renew_deadline`](crate::ElectionConfig::renew_deadline).
    pub renew_deadline: Duration,
    /// See [`ElectionConfig::retry_period`](crate::ElectionConfig::retry_period).
    pub retry_period: Duration,
    /// The timeout of one renewal or request.
    pub attempt: Duration,
    /// Whether the API server's coordinator chooses the holder: then this replica never takes the Lease, and keeps its
    /// strategy.
    pub coordinated: bool,
}

impl LeaseParams {
    /// Returns the parameters of `election`.
    pub fn from_config(Election { namespace, config }: &Election) -> Arc<Self> {
        Arc::new(Self {
            namespace: namespace.clone(),
            identity: config.identity.clone(),
            lease_seconds: config.lease_seconds(),
            lease_duration: config.lease_duration,
            renew_deadline: config.renew_deadline,
            retry_period: config.retry_period,
            attempt: config.attempt(),
            coordinated: config.coordinated.is_some(),
        })
    }
}

/// A point in time on both clocks.
#[derive(Clone, Debug)]
pub struct TimePoint {
    /// Monotonic time, for deadlines.
    pub now: Instant,
    /// Wall time, for the record.
    pub wall: MicroTime,
}

impl TimePoint {
    /// Returns the current time.
    pub fn now(env: &Env) -> Self {
        Self { now: env.now(), wall: time::micros(env.wall()) }
    }
}

/// The purpose of a write.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum WritePurpose {
    /// Create the Lease, which does not exist.
    First,
    /// Take a Lease that has no holder or has expired.
    TakeOver,
    /// Renew a Lease that names this replica although it is not held: a response was lost, or the coordinator wrote it.
    Reclaim,
    /// Renew a held Lease.
    Renew,
    /// Release a held Lease.
    Release,
    /// Clear the holder of an expired Lease, so that this holder can no longer renew it.
    ClearHolder,
}

/// A write of a Lease.
#[derive(Clone, Debug)]
pub struct LeaseWrite {
    /// The new object.
    pub lease: Lease,
    /// Whether the Lease exists and is replaced; otherwise it is created.
    pub exists: bool,
    /// Passed to [`LeaseState::on_response`] with the response.
    pub context: WriteContext,
}

/// The part of a write that its response is processed with.
#[derive(Copy, Clone, Debug)]
pub struct WriteContext {
    /// The purpose of the write.
    pub purpose: WritePurpose,
    /// When the write was sent.
    pub sent: Instant,
}

/// The next action of a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenewAction {
    /// Fetch the Lease first: the state is stale.
    Fetch,
    /// Renew it.
    Write,
    /// Renew it until the work has stopped, then release it: the coordinator prefers another holder.
    Yield {
        /// The preferred identity.
        preferred: String,
    },
    /// The Lease names another holder, or none.
    Lost(LossReason),
}

/// The state of one Lease on one replica.
#[derive(Clone, Debug)]
pub struct LeaseState {
    params: Arc<LeaseParams>,
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    observed: ObservedLease,
    stale: bool,
    may_hold: bool,
    deadline: Option<Instant>,
    previous_holder: PreviousHolder,
    /// Time until which a holder can act whose name was overwritten.
    displaced_until: Option<Instant>,
    /// The last time written, so that the next is later.
    stamped: Option<MicroTime>,
}

impl LeaseState {
    /// Returns the state of the Lease `name`, which is not known yet.
    pub fn new(params: Arc<LeaseParams>, name: impl Into<String>) -> Self {
        Self {
            params,
            name: name.into(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            observed: ObservedLease::Unknown,
            stale: true,
            may_hold: false,
            deadline: None,
            previous_holder: PreviousHolder::Unreported,
            displaced_until: None,
            stamped: None,
        }
    }

    /// Adds a label to the Lease from the next write on.
    pub fn with_label(mut self, label: &str, value: &str) -> Self {
        self.labels.insert(label.to_owned(), value.to_owned());
        self
    }

    /// Sets an annotation of the Lease from the next write on.
    pub fn annotate(&mut self, annotation: &str, value: String) {
        self.annotations.insert(annotation.to_owned(), value);
    }

    /// Returns the name of the Lease.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the last observed Lease.
    pub fn observed(&self) -> &ObservedLease {
        &self.observed
    }

    /// Returns whether the Lease must be fetched before the next write.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// Returns whether the Lease might name this replica: the last observed Lease does, or an earlier write might have
    /// taken effect.
    pub fn may_hold(&self) -> bool {
        self.may_hold || self.is_ours()
    }

    /// Returns until when this replica holds the Lease; `None` if it does not, or the deadline has passed.
    pub fn held_until(&self, now: Instant) -> Option<Instant> {
        self.deadline.filter(|deadline| now < *deadline)
    }

    /// Returns whether a deadline is set, even if it has passed.
    pub fn is_held(&self) -> bool {
        self.deadline.is_some()
    }

    /// Returns the previous holder of the current term.
    pub fn previous_holder(&self) -> &PreviousHolder {
        &self.previous_holder
    }

    /// Returns whether any replica holds the Lease, as far as is known.
    pub fn is_led(&self, now: Instant) -> bool {
        let others = self.observed.seen().is_some_and(|seen| {
            let is_others = seen.record.holder.as_ref().is_some_and(|holder| *holder != self.params.identity);
            is_others && now < seen.changed_at + seen.record.duration(self.params.lease_duration)
        });
        others || self.held_until(now).is_some()
    }

    /// Returns the next action of a replica that does not hold the Lease.
    pub fn next_action(&self, now: Instant) -> ElectionAction {
        if self.stale {
            return ElectionAction::Fetch;
        }
        self.apparent(now)
    }

    /// Returns the next action by the last observed Lease, even if the state is stale.
    pub fn apparent(&self, now: Instant) -> ElectionAction {
        let decide = if self.params.coordinated { decide_coordinated } else { decide };
        let step = decide(&self.observed, &self.params.identity, self.params.lease_duration, now);
        // The coordinator checks expiry by wall clocks. Its decision is used when the local clock agrees.
        match self.displaced_until {
            Some(until) if self.params.coordinated && now < until => match step {
                ElectionAction::Reclaim | ElectionAction::Release => ElectionAction::WaitUntil(until),
                _ => step,
            },
            _ => step,
        }
    }

    /// Returns the next action of the holder when a renewal is due. A holder creates a deleted Lease again.
    pub fn renew_action(&self) -> RenewAction {
        if self.stale {
            return RenewAction::Fetch;
        }
        let Some(observation) = self.observed.seen() else {
            return if self.params.coordinated {
                RenewAction::Lost(LossReason::HolderCleared)
            } else {
                RenewAction::Write
            };
        };
        match observation.record.holder.as_deref() {
            Some(holder) if holder != self.params.identity => {
                RenewAction::Lost(LossReason::OtherHolder { holder: holder.to_owned() })
            }
            Some(_) => match observation.record.preferred.clone().filter(|_| self.params.coordinated) {
                Some(preferred) => RenewAction::Yield { preferred },
                None => RenewAction::Write,
            },
            None => RenewAction::Lost(LossReason::HolderCleared),
        }
    }

    /// Records the fetched Lease; `None` if it does not exist.
    pub fn on_fetched(&mut self, lease: Option<Lease>, now: Instant) {
        self.apply_observed(|observed| match lease {
            Some(lease) => observed.observe(lease, now),
            None => observed.on_deleted(),
        });
        self.stale = false;
    }

    /// Records the fetched Lease while a watch is open, which might have shown a later state already.
    pub fn on_fetched_during_watch(&mut self, lease: Option<Lease>, now: Instant) {
        self.apply_observed(|observed| match lease {
            Some(lease) => observed.observe_newer(lease, now),
            None => observed.on_deleted(),
        });
        self.stale = false;
    }

    /// Records a state of the Lease from a watch event. A stale state stays stale: a watch can lag behind a write of
    /// this replica.
    pub fn on_watch_event(&mut self, lease: Lease, now: Instant) {
        self.apply_observed(|observed| observed.observe_newer(lease, now));
    }

    /// Records the time until which the previous holder can act if its name is overwritten.
    fn apply_observed(&mut self, news: impl FnOnce(&mut ObservedLease)) {
        let before = match &self.observed {
            ObservedLease::Seen(last) | ObservedLease::Deleted(last) => {
                let expiry = last.changed_at + last.record.duration(self.params.lease_duration);
                last.record.holder.clone().map(|holder| (holder, expiry))
            }
            ObservedLease::Unknown | ObservedLease::Absent => None,
        };
        news(&mut self.observed);
        let Some((before, expiry)) = before else { return };
        let after = self.observed.record().and_then(|record| record.holder.as_ref());
        if before != self.params.identity && after.is_some_and(|after| *after != before) {
            self.displaced_until = self.displaced_until.max(Some(expiry));
        }
    }

    /// Clears the observed Lease after the server went back to an earlier version. A holder keeps its deadline, and
    /// fetches the Lease before it writes.
    pub fn clear(&mut self) {
        self.observed = ObservedLease::Unknown;
        self.stale = true;
    }

    /// Records that the Lease was deleted.
    pub fn on_deleted(&mut self) {
        self.observed.on_deleted();
    }

    /// Makes the state stale.
    pub fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// Returns a write on top of the last observed Lease. The state is stale until
    /// [`on_response`](Self::on_response).
    pub fn begin(
        &mut self,
        purpose: WritePurpose,
        written: Option<&WrittenVersions>,
        at: &TimePoint,
    ) -> LeaseWrite {
        match purpose {
            // A Lease that was deleted had a holder, whose writes are not reported.
            WritePurpose::First => {
                self.previous_holder = match self.observed {
                    ObservedLease::Absent => PreviousHolder::Absent,
                    ObservedLease::Unknown | ObservedLease::Seen(_) | ObservedLease::Deleted(_) => {
                        PreviousHolder::Unreported
                    }
                };
            }
            // Stored before the write, because the response can be lost: a reclaimed lease has the same previous
            // holder.
            WritePurpose::TakeOver => self.previous_holder = self.observed.previous_holder(),
            WritePurpose::Reclaim
            | WritePurpose::Renew
            | WritePurpose::Release
            | WritePurpose::ClearHolder => {}
        }
        let record = self.record(purpose, at);
        self.stale = true;
        self.may_hold |= purpose != WritePurpose::ClearHolder;
        let exists = self.observed.seen().is_some();
        let lease = Lease { metadata: self.metadata(purpose, written), spec: Some(record.into_spec()) };
        LeaseWrite { lease, exists, context: WriteContext { purpose, sent: at.now } }
    }

    /// Records the response of a successful write.
    ///
    /// # Errors
    /// [`LeaseError::TooLate`] if the deadline that the write would have set has passed.
    pub fn on_response(
        &mut self,
        context: WriteContext,
        lease: Lease,
        now: Instant,
    ) -> Result<(), LeaseError> {
        self.observed.observe_newer(lease, now);
        self.stale = false;
        let deadline = context.sent + self.params.renew_deadline;
        match context.purpose {
            WritePurpose::First | WritePurpose::TakeOver | WritePurpose::Reclaim if deadline > now => {
                self.deadline = Some(deadline);
            }
            WritePurpose::Renew if self.held_until(now).is_some() => {
                self.deadline = self.deadline.max(Some(deadline));
            }
            WritePurpose::First | WritePurpose::TakeOver | WritePurpose::Reclaim | WritePurpose::Renew => {
                return Err(LeaseError::TooLate);
            }
            WritePurpose::Release | WritePurpose::ClearHolder => {
                self.may_hold = false;
                self.deadline = None;
            }
        }
        Ok(())
    }

    /// Ends the term: the lease is lost, whatever the Lease states.
    pub fn lose(&mut self) {
        self.deadline = None;
        self.stale = true;
        self.previous_holder = PreviousHolder::Unreported;
    }

    /// Ends the term of a holder that is about to release the Lease.
    pub fn step_down(&mut self) {
        self.deadline = None;
    }

    /// Records that the fetched Lease does not name this replica, so there is nothing to release.
    pub fn mark_released(&mut self) {
        self.may_hold = false;
    }

    /// Returns whether the last observed Lease names this replica.
    pub fn is_ours(&self) -> bool {
        self.observed.seen().is_some_and(|seen| seen.record.is_held_by(&self.params.identity))
    }

    fn record(&mut self, purpose: WritePurpose, at: &TimePoint) -> LeaseRecord {
        let now = self.next_renew_time(&at.wall);
        let previous = self.observed.record().cloned();
        let given = previous.as_ref().filter(|_| self.params.coordinated);
        let strategy = given.and_then(|given| given.strategy.clone());
        let preferred =
            given.filter(|_| purpose == WritePurpose::Renew).and_then(|given| given.preferred.clone());
        let claim = Claim {
            identity: &self.params.identity,
            duration_seconds: self.params.lease_seconds,
            now: now.clone(),
            strategy,
            preferred,
        };
        match (purpose, previous) {
            (WritePurpose::First, _)
            | (WritePurpose::TakeOver | WritePurpose::Reclaim | WritePurpose::Renew, None) => {
                LeaseRecord::first(&claim)
            }
            (WritePurpose::TakeOver, Some(previous)) => previous.taken_over(&claim),
            (WritePurpose::Reclaim | WritePurpose::Renew, Some(previous)) => previous.renewed(&claim),
            (WritePurpose::Release | WritePurpose::ClearHolder, Some(previous)) => previous.released(now),
            (WritePurpose::Release | WritePurpose::ClearHolder, None) => {
                LeaseRecord::first(&claim).released(now)
            }
        }
    }

    /// Returns a time for the record: the wall time, but later than any time that this replica wrote or the Lease
    /// contains.
    fn next_renew_time(&mut self, wall: &MicroTime) -> MicroTime {
        let ours = self.observed.record().filter(|record| record.is_held_by(&self.params.identity));
        let seen = ours.and_then(|record| record.renewed.clone());
        let stamp = strictly_after(wall.clone(), self.stamped.clone().max(seen).as_ref());
        self.stamped = Some(stamp.clone());
        stamp
    }

    /// Returns the metadata of the next write. Keeps the fields of other clients.
    fn metadata(&self, purpose: WritePurpose, written: Option<&WrittenVersions>) -> ObjectMeta {
        let current = match self.observed.seen() {
            Some(seen) => seen.lease.metadata.clone(),
            None => ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.params.namespace.clone()),
                ..ObjectMeta::default()
            },
        };
        let mut metadata = annotated(&current, written);
        let add = |to: &mut Option<BTreeMap<String, String>>, from: &BTreeMap<String, String>| {
            if !from.is_empty() {
                to.get_or_insert_default()
                    .extend(from.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
        };
        add(&mut metadata.labels, &self.labels);
        // The annotation of an expired holder is still valid.
        if purpose != WritePurpose::ClearHolder {
            add(&mut metadata.annotations, &self.annotations);
        }
        metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use k8s_openapi::api::coordination::v1::LeaseSpec;

    fn at(second: u64) -> TimePoint {
        let wall = Timestamp::from_second(i64::try_from(second).expect("small")).expect("in range");
        TimePoint { now: Instant::ORIGIN + Duration::from_secs(second), wall: MicroTime(wall) }
    }

    fn tenure(coordinated: bool) -> LeaseState {
        let mut params =
            (*LeaseParams::from_config(&crate::ElectionConfig::new("baz").resolve("kube-system"))).clone();
        params.coordinated = coordinated;
        LeaseState::new(Arc::new(params), "bar")
    }

    fn lease(holder: Option<&str>, seconds: Option<i32>) -> Option<Lease> {
        let spec = LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: seconds,
            ..LeaseSpec::default()
        };
        Some(Lease { spec: Some(spec), ..Lease::default() })
    }

    // parity: test-try-acquire-or-renew-leases-no, test-try-acquire-or-renew-leases-others
    #[test]
    fn next_action_matches_observed_lease() {
        let wait = |second| ElectionAction::WaitUntil(Instant::ORIGIN + Duration::from_secs(second));
        // Columns: case, observed Lease, time of the check, action, transitions after the write.
        let cases = [
            ("no object", None, 10, ElectionAction::Create, Some(0)),
            ("an object without a record", Some(Lease::default()), 10, ElectionAction::TakeOver, Some(1)),
            ("led, as it states for 3 s", lease(Some("bing"), Some(3)), 12, wait(13), None),
            ("the same after 3 s", lease(Some("bing"), Some(3)), 13, ElectionAction::TakeOver, Some(1)),
            ("without holder", lease(None, None), 10, ElectionAction::TakeOver, Some(1)),
            ("released", lease(Some(""), Some(1)), 10, ElectionAction::TakeOver, Some(1)),
            ("led, and seen long ago", lease(Some("bing"), None), 999, ElectionAction::TakeOver, Some(1)),
            ("led, and just seen", lease(Some("bing"), None), 10, wait(25), None),
            ("ours", lease(Some("baz"), None), 10, ElectionAction::Reclaim, Some(0)),
        ];
        for (what, seen, second, step, transitions) in cases {
            let mut tenure = tenure(false);
            tenure.on_fetched(seen, at(10).now);
            assert_eq!(tenure.next_action(at(second).now), step, "{what}");
            let purpose = match step {
                ElectionAction::Create => WritePurpose::First,
                ElectionAction::TakeOver => WritePurpose::TakeOver,
                ElectionAction::Reclaim => WritePurpose::Reclaim,
                ElectionAction::Fetch
                | ElectionAction::Release
                | ElectionAction::WaitUntil(_)
                | ElectionAction::Follow => continue,
            };
            let write = tenure.begin(purpose, None, &at(second));
            let record = LeaseRecord::from_lease(&write.lease);
            assert_eq!(
                (record.holder.as_deref(), Some(record.transitions)),
                (Some("baz"), transitions),
                "{what}"
            );
            tenure.on_response(write.context, write.lease, at(second).now).expect("in time");
            assert!(tenure.held_until(at(second).now).is_some(), "{what}");
        }
    }

    // parity: test-try-coordinated-renew
    #[test]
    fn coordinated_lease_is_renewed_until_another_is_preferred() {
        let given = |preferred: Option<&str>| {
            let mut lease = lease(Some("baz"), Some(5)).expect("a lease");
            let spec = lease.spec.get_or_insert_default();
            spec.strategy = Some("OldestEmulationVersion".to_owned());
            spec.preferred_holder = preferred.map(str::to_owned);
            Some(lease)
        };
        let mut tenure = tenure(true);
        tenure.on_fetched(given(None), at(1).now);
        assert_eq!(tenure.next_action(at(2).now), ElectionAction::Reclaim);
        let write = tenure.begin(WritePurpose::Reclaim, None, &at(2));
        let spec = write.lease.spec.clone().expect("a record");
        assert_eq!(spec.strategy.as_deref(), Some("OldestEmulationVersion"));
        assert!(spec.acquire_time.is_some() && spec.lease_duration_seconds == Some(15));
        tenure.on_response(write.context, write.lease, at(2).now).expect("in time");
        assert_eq!(tenure.renew_action(), RenewAction::Write);
        tenure.on_fetched(given(Some("bing")), at(3).now);
        assert_eq!(tenure.renew_action(), RenewAction::Yield { preferred: "bing".to_owned() });
        let write = tenure.begin(WritePurpose::Renew, None, &at(3));
        let spec = write.lease.spec.clone().expect("a record");
        assert_eq!(spec.preferred_holder.as_deref(), Some("bing"), "the preferred holder is kept");
        tenure.on_response(write.context, write.lease, at(3).now).expect("in time");
        tenure.on_fetched(None, at(4).now);
        assert_eq!(
            tenure.renew_action(),
            RenewAction::Lost(LossReason::HolderCleared),
            "only the coordinator creates it"
        );
    }

    #[test]
    fn response_after_its_deadline_does_not_count() {
        let mut tenure = tenure(false);
        tenure.on_fetched(None, at(1).now);
        let write = tenure.begin(WritePurpose::First, None, &at(1));
        assert!(tenure.is_stale() && tenure.may_hold());
        let late = tenure.on_response(write.context, write.lease, at(11).now);
        assert_eq!(late, Err(LeaseError::TooLate));
        assert!(!tenure.is_held() && tenure.may_hold());
    }

    #[test]
    fn deleted_lease_needs_no_release() {
        let mut tenure = tenure(false);
        tenure.on_fetched(lease(Some("baz"), None), at(1).now);
        assert!(tenure.may_hold());
        tenure.on_deleted();
        assert!(!tenure.may_hold());
    }

    #[test]
    fn coordinated_lease_is_used_after_previous_holder_expires() {
        let wait = |second| ElectionAction::WaitUntil(Instant::ORIGIN + Duration::from_secs(second));
        let mut tenure = tenure(true);
        tenure.on_fetched(lease(Some("bing"), Some(15)), at(1).now);
        tenure.on_watch_event(lease(Some("bong"), Some(5)).expect("a lease"), at(2).now);
        tenure.on_watch_event(lease(Some("baz"), Some(5)).expect("a lease"), at(14).now);
        assert_eq!(
            tenure.next_action(at(15).now),
            wait(16),
            "its first holder can act, regardless of later holders"
        );
        assert_eq!(tenure.next_action(at(16).now), ElectionAction::Reclaim);
        let mut displaced = tenure.clone();
        displaced.on_watch_event(lease(Some("baz"), Some(1)).expect("a lease"), at(14).now);
        assert_eq!(displaced.next_action(at(16).now), wait(29), "it is not released earlier either");
        assert_eq!(displaced.next_action(at(29).now), ElectionAction::Release);
        tenure.on_watch_event(lease(Some("bing"), Some(15)).expect("a lease"), at(20).now);
        tenure.on_watch_event(lease(None, None).expect("a lease"), at(21).now);
        tenure.on_watch_event(lease(Some("baz"), Some(5)).expect("a lease"), at(22).now);
        assert_eq!(tenure.next_action(at(22).now), ElectionAction::Reclaim, "it was released");
    }
}
