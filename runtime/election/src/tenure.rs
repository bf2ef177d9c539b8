//! One replica's dealings with one Lease: what is known of it, whether it is held, and what is written next. Pure.
//!
//! Every election of this crate, of one Lease or of many, is made of tenures; what differs is who sends their requests
//! and who waits. A tenure is told the time and the answers, and keeps three rules:
//!
//! - A write counts from the moment at which it was sent, and only if its answer came before the time it grants was over.
//! - A write whose answer is not known may have taken effect. Until the Lease has been fetched, what is known of it is
//!   *stale*, and no write builds on it.
//! - Every record it writes differs from the one before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use windlass_env::{Env, Instant};
use windlass_object::time;

use crate::config::ElectionConfig;
use crate::decide::{Step, View, decide, decide_coordinated};
use crate::error::{LeaseError, LossReason};
use crate::record::{Claim, Record, strictly_after};
use crate::written::{Predecessor, Written, annotated};

/// Under what name leases are held here, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) namespace: String,
    pub(crate) identity: String,
    pub(crate) lease_seconds: i32,
    pub(crate) lease_duration: Duration,
    pub(crate) renew_deadline: Duration,
    pub(crate) retry_period: Duration,
    /// How long one attempt to renew, or one request, may take.
    pub(crate) attempt: Duration,
    /// Whether somebody else decides who holds the lease: then it is never taken, and its strategy is kept.
    pub(crate) coordinated: bool,
}

impl Terms {
    pub(crate) fn of(config: &ElectionConfig) -> Arc<Self> {
        Arc::new(Self {
            namespace: config.lease_namespace.clone(),
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

/// A moment, for deadlines and for the record.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    pub(crate) wall: MicroTime,
}

impl Moment {
    pub(crate) fn of(env: &Env) -> Self {
        Self { now: env.now(), wall: time::micros(env.wall()) }
    }
}

/// What a write is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// The Lease does not exist: create it.
    First,
    /// Nobody holds it any more: take it.
    TakeOver,
    /// It names this replica, which does not hold it: an answer was lost, or somebody else elected it.
    Reclaim,
    /// Hold it for longer.
    Renew,
    /// Give it back.
    Release,
    /// Its holder's time is up: write that nobody holds it, so that the holder cannot renew it any more.
    Retire,
}

/// A write of a Lease as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct LeaseWrite {
    /// The object to be.
    pub(crate) lease: Lease,
    /// Whether the Lease exists: replaced, else created.
    pub(crate) exists: bool,
    pub(crate) ticket: Ticket,
}

/// What has to be known of a write when its answer comes.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Ticket {
    pub(crate) writing: Writing,
    pub(crate) sent: Instant,
}

/// What a holder does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// Fetch the Lease first: it was written by somebody, or perhaps by us.
    Look,
    /// Renew it.
    Write,
    /// Renew it while the work comes to its end, then give it back: a coordinator wants another to hold it.
    Yield {
        /// Whom it wants.
        preferred: String,
    },
    /// It names another, or nobody.
    Lost(LossReason),
}

/// One Lease, as one replica deals with it.
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    terms: Arc<Terms>,
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    view: View,
    stale: bool,
    may_hold: bool,
    deadline: Option<Instant>,
    predecessor: Predecessor,
    /// Until when those may act whose names another's was written over, by what was seen of them.
    displaced_until: Option<Instant>,
    /// The last time written, so that the next is later.
    stamped: Option<MicroTime>,
}

impl Tenure {
    pub(crate) fn new(terms: Arc<Terms>, name: impl Into<String>) -> Self {
        Self {
            terms,
            name: name.into(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            view: View::Unknown,
            stale: true,
            may_hold: false,
            deadline: None,
            predecessor: Predecessor::Silent,
            displaced_until: None,
            stamped: None,
        }
    }

    /// The same, with this label on the Lease from the next write on.
    pub(crate) fn labelled(mut self, label: &str, value: &str) -> Self {
        self.labels.insert(label.to_owned(), value.to_owned());
        self
    }

    /// Annotates the Lease with this from the next write on.
    pub(crate) fn annotate(&mut self, annotation: &str, value: String) {
        self.annotations.insert(annotation.to_owned(), value);
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Whether the Lease must be fetched before the next write.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale
    }

    /// Whether the Lease may name us: it did when it was seen last, or a write was sent and not undone since.
    pub(crate) fn may_hold(&self) -> bool {
        self.may_hold || self.is_ours()
    }

    /// Until when it is held; `None` if it is not, or if that has passed.
    pub(crate) fn held_until(&self, now: Instant) -> Option<Instant> {
        self.deadline.filter(|deadline| now < *deadline)
    }

    /// Whether it is held as far as is known, be the deadline past or not.
    pub(crate) fn is_held(&self) -> bool {
        self.deadline.is_some()
    }

    /// What is known of whoever held it before; for the term that the last claim began.
    pub(crate) fn predecessor(&self) -> &Predecessor {
        &self.predecessor
    }

    /// Whether somebody else holds it, as far as is known, or this replica does.
    pub(crate) fn is_led(&self, now: Instant) -> bool {
        let others = self.view.seen().is_some_and(|seen| {
            let is_others = seen.record.holder.as_ref().is_some_and(|holder| *holder != self.terms.identity);
            is_others && now < seen.changed_at + seen.record.duration(self.terms.lease_duration)
        });
        others || self.held_until(now).is_some()
    }

    /// What one who does not hold it does next.
    pub(crate) fn step(&self, now: Instant) -> Step {
        if self.stale {
            return Step::Look;
        }
        self.apparent(now)
    }

    /// What one who does not hold it would do by what was seen last, however that was learned.
    pub(crate) fn apparent(&self, now: Instant) -> Step {
        let decide = if self.terms.coordinated { decide_coordinated } else { decide };
        let step = decide(&self.view, &self.terms.identity, self.terms.lease_duration, now);
        // A coordinator judges by wall clocks whose time is up; here that is believed once the local clock agrees.
        match self.displaced_until {
            Some(until) if self.terms.coordinated && now < until => match step {
                Step::Reclaim | Step::Release => Step::WaitUntil(until),
                _ => step,
            },
            _ => step,
        }
    }

    /// What its holder does next, when it is time. A Lease that is gone is ours to write again.
    pub(crate) fn renewal(&self) -> Renewal {
        if self.stale {
            return Renewal::Look;
        }
        let Some(observation) = self.view.seen() else {
            return if self.terms.coordinated { Renewal::Lost(LossReason::Blanked) } else { Renewal::Write };
        };
        match observation.record.holder.as_deref() {
            Some(holder) if holder != self.terms.identity => {
                Renewal::Lost(LossReason::Taken { holder: holder.to_owned() })
            }
            Some(_) => match observation.record.preferred.clone().filter(|_| self.terms.coordinated) {
                Some(preferred) => Renewal::Yield { preferred },
                None => Renewal::Write,
            },
            None => Renewal::Lost(LossReason::Blanked),
        }
    }

    /// Takes in the Lease, or that there is none, as fetched now.
    pub(crate) fn looked(&mut self, lease: Option<Lease>, now: Instant) {
        self.take_in(|view| match lease {
            Some(lease) => view.observe(lease, now),
            None => view.vanished(),
        });
        self.stale = false;
    }

    /// The same where a watch runs beside the request, and may have told of a later state already.
    pub(crate) fn looked_beside_a_watch(&mut self, lease: Option<Lease>, now: Instant) {
        self.take_in(|view| match lease {
            Some(lease) => view.observe_newer(lease, now),
            None => view.vanished(),
        });
        self.stale = false;
    }

    /// Takes in a state of the Lease that a watch told. What is stale stays so: a watch may be behind our own write.
    pub(crate) fn sighted(&mut self, lease: Lease, now: Instant) {
        self.take_in(|view| view.observe_newer(lease, now));
    }

    /// Keeps until when a holder may act whose name another's was written over.
    fn take_in(&mut self, news: impl FnOnce(&mut View)) {
        let before = match &self.view {
            View::Seen(last) | View::Gone(last) => {
                let expiry = last.changed_at + last.record.duration(self.terms.lease_duration);
                last.record.holder.clone().map(|holder| (holder, expiry))
            }
            View::Unknown | View::Absent => None,
        };
        news(&mut self.view);
        let Some((before, expiry)) = before else { return };
        let after = self.view.record().and_then(|record| record.holder.as_ref());
        if before != self.terms.identity && after.is_some_and(|after| *after != before) {
            self.displaced_until = self.displaced_until.max(Some(expiry));
        }
    }

    /// Forgets what was seen, of a server that went back to an earlier state: who holds it stays its holder until its
    /// deadline, and looks before it writes.
    pub(crate) fn forget(&mut self) {
        self.view = View::Unknown;
        self.stale = true;
    }

    /// Takes in that the Lease was deleted.
    pub(crate) fn vanished(&mut self) {
        self.view.vanished();
    }

    /// The Lease must be fetched before the next write.
    pub(crate) fn doubt(&mut self) {
        self.stale = true;
    }

    /// The write for this purpose over what was last seen. From now on its effect is in doubt, until
    /// [`landed`](Self::landed).
    pub(crate) fn begin(&mut self, writing: Writing, written: Option<&Written>, at: &Moment) -> LeaseWrite {
        match writing {
            Writing::First => self.predecessor = Predecessor::Silent,
            // Kept before the write, whose answer may be lost: a lease that is reclaimed was taken from the same.
            Writing::TakeOver => self.predecessor = self.view.predecessor(),
            Writing::Reclaim | Writing::Renew | Writing::Release | Writing::Retire => {}
        }
        let record = self.record(writing, at);
        self.stale = true;
        self.may_hold |= writing != Writing::Retire;
        let exists = self.view.seen().is_some();
        let lease = Lease { metadata: self.metadata(writing, written), spec: Some(record.into_spec()) };
        LeaseWrite { lease, exists, ticket: Ticket { writing, sent: at.now } }
    }

    /// Takes in the answer to a write that succeeded.
    ///
    /// # Errors
    /// [`LeaseError::TooLate`] if the time it would have granted is over.
    pub(crate) fn landed(&mut self, ticket: Ticket, lease: Lease, now: Instant) -> Result<(), LeaseError> {
        self.view.observe_newer(lease, now);
        self.stale = false;
        let deadline = ticket.sent + self.terms.renew_deadline;
        match ticket.writing {
            Writing::First | Writing::TakeOver | Writing::Reclaim if deadline > now => {
                self.deadline = Some(deadline);
            }
            Writing::Renew if self.held_until(now).is_some() => {
                self.deadline = self.deadline.max(Some(deadline));
            }
            Writing::First | Writing::TakeOver | Writing::Reclaim | Writing::Renew => {
                return Err(LeaseError::TooLate);
            }
            Writing::Release | Writing::Retire => {
                self.may_hold = false;
                self.deadline = None;
            }
        }
        Ok(())
    }

    /// It is not held any more, whatever the Lease says.
    pub(crate) fn lose(&mut self) {
        self.deadline = None;
        self.stale = true;
        self.predecessor = Predecessor::Silent;
    }

    /// The holder stops holding it, and knows what it knows.
    pub(crate) fn step_down(&mut self) {
        self.deadline = None;
    }

    /// The Lease, fetched a moment ago, does not name us: there is nothing to give back.
    pub(crate) fn settled(&mut self) {
        self.may_hold = false;
    }

    /// The observation over which a release may write: one that names us.
    pub(crate) fn is_ours(&self) -> bool {
        self.view.seen().is_some_and(|seen| seen.record.is_held_by(&self.terms.identity))
    }

    fn record(&mut self, writing: Writing, at: &Moment) -> Record {
        let now = self.stamp(&at.wall);
        let previous = self.view.record().cloned();
        let given = previous.as_ref().filter(|_| self.terms.coordinated);
        let strategy = given.and_then(|given| given.strategy.clone());
        let preferred = given.filter(|_| writing == Writing::Renew).and_then(|given| given.preferred.clone());
        let claim = Claim {
            identity: &self.terms.identity,
            duration_seconds: self.terms.lease_seconds,
            now: now.clone(),
            strategy,
            preferred,
        };
        match (writing, previous) {
            (Writing::First, _) | (Writing::TakeOver | Writing::Reclaim | Writing::Renew, None) => {
                Record::first(&claim)
            }
            (Writing::TakeOver, Some(previous)) => previous.taken_over(&claim),
            (Writing::Reclaim | Writing::Renew, Some(previous)) => previous.renewed(&claim),
            (Writing::Release | Writing::Retire, Some(previous)) => previous.released(now),
            (Writing::Release | Writing::Retire, None) => Record::first(&claim).released(now),
        }
    }

    /// A time for the record: the wall's, but later than any we wrote, and than any the Lease has under our name.
    fn stamp(&mut self, wall: &MicroTime) -> MicroTime {
        let ours = self.view.record().filter(|record| record.is_held_by(&self.terms.identity));
        let seen = ours.and_then(|record| record.renewed.clone());
        let stamp = strictly_after(wall.clone(), self.stamped.clone().max(seen).as_ref());
        self.stamped = Some(stamp.clone());
        stamp
    }

    /// What stands there stays, save what is ours to say.
    fn metadata(&self, writing: Writing, written: Option<&Written>) -> ObjectMeta {
        let current = match self.view.seen() {
            Some(seen) => seen.lease.metadata.clone(),
            None => ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.terms.namespace.clone()),
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
        // What a silent holder left there is still true of it.
        if writing != Writing::Retire {
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

    fn at(second: u64) -> Moment {
        let wall = Timestamp::from_second(i64::try_from(second).expect("small")).expect("in range");
        Moment { now: Instant::ORIGIN + Duration::from_secs(second), wall: MicroTime(wall) }
    }

    fn tenure(coordinated: bool) -> Tenure {
        let mut terms = (*Terms::of(&ElectionConfig::new("baz"))).clone();
        terms.coordinated = coordinated;
        Tenure::new(Arc::new(terms), "bar")
    }

    fn lease(holder: Option<&str>, seconds: Option<i32>) -> Option<Lease> {
        let spec = LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: seconds,
            ..LeaseSpec::default()
        };
        Some(Lease { spec: Some(spec), ..Lease::default() })
    }

    #[test]
    fn each_state_of_a_lease_is_created_taken_over_reclaimed_or_left_alone() {
        let wait = |second| Step::WaitUntil(Instant::ORIGIN + Duration::from_secs(second));
        // What was seen at second 10, when, what is done, and how often the lease has then changed hands.
        let cases = [
            ("no object", None, 10, Step::Create, Some(0)),
            ("an object without a record", Some(Lease::default()), 10, Step::TakeOver, Some(1)),
            ("led, as it states for 3 s", lease(Some("bing"), Some(3)), 12, wait(13), None),
            ("the same when these are over", lease(Some("bing"), Some(3)), 13, Step::TakeOver, Some(1)),
            ("nobody's", lease(None, None), 10, Step::TakeOver, Some(1)),
            ("released", lease(Some(""), Some(1)), 10, Step::TakeOver, Some(1)),
            ("led, and seen long ago", lease(Some("bing"), None), 999, Step::TakeOver, Some(1)),
            ("led, and just seen", lease(Some("bing"), None), 10, wait(25), None),
            ("ours", lease(Some("baz"), None), 10, Step::Reclaim, Some(0)),
        ];
        for (what, seen, second, step, transitions) in cases {
            let mut tenure = tenure(false);
            tenure.looked(seen, at(10).now);
            assert_eq!(tenure.step(at(second).now), step, "{what}");
            let writing = match step {
                Step::Create => Writing::First,
                Step::TakeOver => Writing::TakeOver,
                Step::Reclaim => Writing::Reclaim,
                Step::Look | Step::Release | Step::WaitUntil(_) | Step::Follow => continue,
            };
            let write = tenure.begin(writing, None, &at(second));
            let record = Record::of(&write.lease);
            assert_eq!(
                (record.holder.as_deref(), Some(record.transitions)),
                (Some("baz"), transitions),
                "{what}"
            );
            tenure.landed(write.ticket, write.lease, at(second).now).expect("in time");
            assert!(tenure.held_until(at(second).now).is_some(), "{what}");
        }
    }

    #[test]
    fn a_lease_that_a_coordinator_gave_is_renewed_with_its_strategy_until_another_is_preferred() {
        let given = |preferred: Option<&str>| {
            let mut lease = lease(Some("baz"), Some(5)).expect("a lease");
            let spec = lease.spec.get_or_insert_default();
            spec.strategy = Some("OldestEmulationVersion".to_owned());
            spec.preferred_holder = preferred.map(str::to_owned);
            Some(lease)
        };
        let mut tenure = tenure(true);
        tenure.looked(given(None), at(1).now);
        assert_eq!(tenure.step(at(2).now), Step::Reclaim);
        let write = tenure.begin(Writing::Reclaim, None, &at(2));
        let spec = write.lease.spec.clone().expect("a record");
        assert_eq!(spec.strategy.as_deref(), Some("OldestEmulationVersion"));
        assert!(spec.acquire_time.is_some() && spec.lease_duration_seconds == Some(15));
        tenure.landed(write.ticket, write.lease, at(2).now).expect("in time");
        assert_eq!(tenure.renewal(), Renewal::Write);
        tenure.looked(given(Some("bing")), at(3).now);
        assert_eq!(tenure.renewal(), Renewal::Yield { preferred: "bing".to_owned() });
        let write = tenure.begin(Writing::Renew, None, &at(3));
        let spec = write.lease.spec.clone().expect("a record");
        assert_eq!(spec.preferred_holder.as_deref(), Some("bing"), "who waits for it goes on waiting");
        tenure.landed(write.ticket, write.lease, at(3).now).expect("in time");
        tenure.looked(None, at(4).now);
        assert_eq!(tenure.renewal(), Renewal::Lost(LossReason::Blanked), "it is not created here");
    }

    #[test]
    fn an_answer_counts_only_before_the_time_that_it_grants_is_over() {
        let mut tenure = tenure(false);
        tenure.looked(None, at(1).now);
        let write = tenure.begin(Writing::First, None, &at(1));
        assert!(tenure.is_stale() && tenure.may_hold());
        let late = tenure.landed(write.ticket, write.lease, at(11).now);
        assert_eq!(late, Err(LeaseError::TooLate));
        assert!(!tenure.is_held() && tenure.may_hold());
    }

    #[test]
    fn a_lease_that_was_deleted_and_holds_no_write_of_ours_is_nothing_to_give_back() {
        let mut tenure = tenure(false);
        tenure.looked(lease(Some("baz"), None), at(1).now);
        assert!(tenure.may_hold());
        tenure.vanished();
        assert!(!tenure.may_hold());
    }

    #[test]
    fn what_a_coordinator_took_from_another_is_used_once_that_one_is_out_of_time_by_our_clock() {
        let wait = |second| Step::WaitUntil(Instant::ORIGIN + Duration::from_secs(second));
        let mut tenure = tenure(true);
        tenure.looked(lease(Some("bing"), Some(15)), at(1).now);
        tenure.sighted(lease(Some("bong"), Some(5)).expect("a lease"), at(2).now);
        tenure.sighted(lease(Some("baz"), Some(5)).expect("a lease"), at(14).now);
        assert_eq!(tenure.step(at(15).now), wait(16), "its first holder may act, whoever came between");
        assert_eq!(tenure.step(at(16).now), Step::Reclaim);
        let mut displaced = tenure.clone();
        displaced.sighted(lease(Some("baz"), Some(1)).expect("a lease"), at(14).now);
        assert_eq!(displaced.step(at(16).now), wait(29), "nor is it given to another before");
        assert_eq!(displaced.step(at(29).now), Step::Release);
        tenure.sighted(lease(Some("bing"), Some(15)).expect("a lease"), at(20).now);
        tenure.sighted(lease(None, None).expect("a lease"), at(21).now);
        tenure.sighted(lease(Some("baz"), Some(5)).expect("a lease"), at(22).now);
        assert_eq!(tenure.step(at(22).now), Step::Reclaim, "it was released");
    }
}
