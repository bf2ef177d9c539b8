//! The whole of an election of shards, without clock, client or task: the time and the answers go in, requests and
//! events come out.
//!
//! [`turn`](Engine::turn) is one function of what is known: it looks at the [`Book`], at the seats held here and at the
//! time, and says what to send, what to tell the owner, and when to look again. Whoever drives it sends the requests and
//! brings the answers, in any order, late or never. `shards.rs` says what it guarantees, and the tests beside it run it
//! against a server, wires and clocks of their own.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use windlass_env::{Instant, Rng};
use windlass_object::ResourceVersion;
use windlass_object::shard::{Division, HeavyNamespace, Ranges, ShardId};

use super::book::Book;
use super::elector::ShardsOverview;
use super::names::{Names, WANTED_ANNOTATION};
use super::plan::Plan;
use crate::decide::View;
use crate::error::{ElectionError, LeaseError, LossReason};
use crate::tenure::{LeaseWrite, Moment, Tenure, Terms, Ticket, Writing};
use crate::written::{Predecessor, Written};

/// How much longer than the retry period a pause may be, drawn anew each time.
const JITTER: f64 = 1.2;

/// How long nothing is swept away after that failed: a missing right, most likely.
const SWEEP_REST: Duration = Duration::from_secs(300);

/// How often a turn may go over its own results. Two passes settle everything known; more would be a circle.
const PASSES: usize = 4;

/// What a request is about. At most one is under way for each.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    List,
    Watch,
    Plan,
    Me,
    Shard(ShardId),
    Sweep,
}

/// What to ask the API server.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    List,
    Watch(Option<ResourceVersion>),
    Get(String),
    Write(Box<LeaseWrite>),
    Delete(Box<Lease>),
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Listed(Option<ResourceVersion>, Vec<Lease>),
    Watching,
    Got(Option<Lease>),
    Written(Lease),
    Deleted,
    Failed(LeaseError),
}

/// What a watch told.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Put(Lease),
    Deleted(Lease),
    Reached(ResourceVersion),
    Ended,
}

/// What is to be done outside.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// Send this, and bring the answer, or a timeout, within this time.
    Send { flight: u64, target: Target, request: Request, within: Duration },
    /// Nothing the watch tells is wanted any more.
    StopWatch,
    /// Open a fence, and tell the owner.
    Acquired { shard: ShardId, ranges: Ranges, deadline: Instant, predecessor: Predecessor },
    /// Move the deadline of its fence.
    Extend { shard: ShardId, deadline: Instant },
    /// Tell the owner to bring its work on the shard to an end.
    GiveUp { shard: ShardId },
    /// Close the fence, and tell the owner.
    Lost { shard: ShardId, reason: LossReason },
}

/// What one look at everything led to.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) effects: Vec<Effect>,
    /// When to look again, if nothing happens before.
    pub(crate) wake: Instant,
}

impl Turn {
    pub(super) fn wait(&mut self, until: Instant) {
        self.wake = self.wake.min(until);
    }
}

/// A shard that this replica has to do with.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) generation: u64,
    pub(super) ranges: Ranges,
    pub(super) stage: Stage,
}

/// How far it is with a shard.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// The claim is under way.
    Claiming,
    /// The Lease is won. The fence stays closed until the book shows every write before the claim, and nobody in them
    /// who may act on the same ranges.
    Claimed { at: Instant, version: Option<ResourceVersion>, look_again: Instant },
    /// The owner works, behind an open fence.
    Open,
    /// The owner has been told to come to an end, and the fence stays open for that.
    Draining { since: Instant },
    /// The lease is lost, the fence closed, and the owner has not said yet that its work has ended.
    Ending { since: Instant },
    /// The work has ended; the Lease is being given back. `since` is when the owner was told to give it up.
    Releasing { written: Option<Written>, since: Instant, begun: Instant },
}

/// A request under way.
#[derive(Debug)]
struct InFlight {
    id: u64,
    sent: Instant,
    ticket: Option<Ticket>,
}

/// The renewals of one Lease held.
#[derive(Debug)]
pub(super) struct Renewing {
    pub(super) due: Instant,
    /// When the attempt under way began.
    pub(super) begun: Option<Instant>,
    /// Whether it had to fetch the Lease already.
    pub(super) looked: bool,
}

/// How the book is fed.
#[derive(Debug)]
pub(super) enum Feed {
    Idle { not_before: Instant },
    Listing,
    Listed,
    Opening,
    Open { since: Instant },
}

/// What became of a division that was proposed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// It will be written, unless this replica ceases to hold shard 0 before.
    Accepted,
    /// It is what the plan says already.
    Unchanged,
    /// Only the holder of shard 0 proposes.
    NotOurs,
    /// The plan has another number of shards.
    OtherNumber,
}

/// One replica's part in an election of shards.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(super) terms: Arc<Terms>,
    pub(super) wanted: NonZeroU16,
    pub(super) book: Book,
    /// The last plan that could be read, with the version of the Lease it was read from.
    pub(super) plan: Option<Plan>,
    plan_read: Option<String>,
    pub(super) wish: Option<(Division, Vec<HeavyNamespace>)>,
    pub(super) seats: BTreeMap<ShardId, Seat>,
    flights: BTreeMap<Target, InFlight>,
    next_flight: u64,
    rests: BTreeMap<Target, Instant>,
    pub(super) renewing: BTreeMap<Target, Renewing>,
    pub(super) feed: Feed,
    pub(super) leaving: bool,
    /// Releases that came to their end.
    finished: BTreeMap<ShardId, Result<(), ElectionError>>,
    /// How long hand-overs took, from the word to the owner until the Lease was given back.
    hand_overs: Vec<Duration>,
    /// Renewals that had to fetch the Lease first.
    pub(super) slow: Vec<Target>,
    complaints: BTreeMap<Target, String>,
    pending: Vec<Effect>,
    pub(super) again: bool,
    rng: Rng,
}

impl Engine {
    pub(crate) fn new(terms: Arc<Terms>, prefix: &str, wanted: NonZeroU16, rng: Rng) -> Self {
        let mut book = Book::new(Names::new(prefix), terms.clone());
        book.me.annotate(WANTED_ANNOTATION, wanted.to_string());
        Self {
            terms,
            wanted,
            book,
            plan: None,
            plan_read: None,
            wish: None,
            seats: BTreeMap::new(),
            flights: BTreeMap::new(),
            next_flight: 0,
            rests: BTreeMap::new(),
            renewing: BTreeMap::new(),
            feed: Feed::Idle { not_before: Instant::ORIGIN },
            leaving: false,
            finished: BTreeMap::new(),
            hand_overs: Vec::new(),
            slow: Vec::new(),
            complaints: BTreeMap::new(),
            pending: Vec::new(),
            again: false,
            rng,
        }
    }

    /// Looks at everything, and says what to do and when to look again.
    pub(crate) fn turn(&mut self, at: &Moment) -> Turn {
        let mut turn = Turn { effects: std::mem::take(&mut self.pending), wake: Instant::NEVER };
        for _ in 0..PASSES {
            self.again = false;
            turn.wake = Instant::NEVER;
            self.notice_losses(at.now, &mut turn);
            self.read_plan();
            self.listen(at.now, &mut turn);
            self.belong(at, &mut turn);
            self.keep_plan(at, &mut turn);
            self.balance(at, &mut turn);
            self.open_confirmed(at, &mut turn);
            self.claim(at, &mut turn);
            self.undo_strays(at.now, &mut turn);
            self.renew_all(at, &mut turn);
            self.give_back(at, &mut turn);
            self.sweep(at.now, &mut turn);
            if !self.again {
                break;
            }
        }
        turn
    }

    /// Takes in the answer to a request.
    pub(crate) fn answered(&mut self, flight: u64, target: Target, answer: Answer, now: Instant) {
        // A request that was given up may still be answered: what it did is found out by looking.
        let Some(sent) = self.flights.remove(&target) else { return };
        if sent.id != flight {
            self.flights.insert(target, sent);
            return;
        }
        if let Answer::Failed(failure) = &answer {
            self.complain(target, failure);
        } else {
            self.complaints.remove(&target);
        }
        match target {
            Target::List => self.list_answered(answer, sent.sent, now),
            Target::Watch => self.watch_answered(&answer, now),
            Target::Plan => self.plan_answered(answer, now),
            Target::Sweep => {
                // What is gone is shown by the watch before long.
                let failed = matches!(answer, Answer::Failed(_));
                let rest = if failed { SWEEP_REST } else { self.terms.retry_period };
                self.rest(Target::Sweep, rest, now);
            }
            Target::Me | Target::Shard(_) => self.lease_answered(target, sent.ticket, answer, now),
        }
    }

    /// Takes in what the watch told.
    pub(crate) fn told(&mut self, told: Told, now: Instant) {
        let Feed::Open { since } = self.feed else { return };
        match told {
            Told::Put(lease) => self.book.shown(lease, now),
            Told::Deleted(lease) => self.book.deleted(&lease, now),
            Told::Reached(version) => self.book.reached(Some(version), now),
            // A watch that ran for a while is followed by a list at once; one that ended at birth is not.
            Told::Ended => {
                let not_before = (since + self.terms.retry_period).max(now);
                self.feed = Feed::Idle { not_before };
            }
        }
    }

    /// The owner's work on a shard has ended.
    pub(crate) fn release(&mut self, shard: ShardId, written: Option<&Written>, now: Instant) {
        self.finished.remove(&shard);
        let Some(seat) = self.seats.get_mut(&shard) else {
            self.finished.insert(shard, Ok(()));
            return;
        };
        let since = match seat.stage {
            Stage::Open | Stage::Ending { .. } => now,
            Stage::Draining { since } => since,
            // The owner never had it: whatever became of the claim is undone.
            Stage::Claiming | Stage::Claimed { .. } => return self.give_up_claim(shard, now),
            Stage::Releasing { .. } => return,
        };
        seat.stage = Stage::Releasing { written: written.cloned(), since, begun: now };
        self.give_way(shard);
    }

    /// From now on nothing is acquired, membership ends, and the owner is told to give up what it holds.
    pub(crate) fn resign(&mut self) {
        self.leaving = true;
    }

    /// What came of a release, once.
    pub(crate) fn finished(&mut self, shard: ShardId) -> Option<Result<(), ElectionError>> {
        self.finished.remove(&shard)
    }

    /// Whether nothing of the cluster is this replica's any more, as far as is known.
    pub(crate) fn has_left(&self) -> bool {
        self.leaving && self.seats.is_empty() && !self.book.me.may_hold()
    }

    /// The shards on which the owner works, or has not said that it stopped.
    pub(crate) fn occupied(&self) -> Vec<ShardId> {
        let works =
            |stage: &Stage| matches!(stage, Stage::Open | Stage::Draining { .. } | Stage::Ending { .. });
        self.seats.iter().filter(|(_, seat)| works(&seat.stage)).map(|(shard, _)| *shard).collect()
    }

    /// A fence was found closed that should have been open.
    pub(crate) fn fence_closed(&mut self, shard: ShardId, now: Instant) {
        let mut turn = Turn { effects: Vec::new(), wake: Instant::NEVER };
        self.lost(shard, self.missed_deadline(Target::Shard(shard)), now, &mut turn);
        self.pending.append(&mut turn.effects);
    }

    /// Whether another turn has something to do at once.
    pub(crate) fn has_more_to_do(&self) -> bool {
        !self.pending.is_empty()
    }

    /// How long hand-overs took that ended since this was asked last.
    pub(crate) fn hand_overs(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.hand_overs)
    }

    /// The renewals since this was asked last that had to fetch the Lease first.
    pub(crate) fn slow_renewals(&mut self) -> Vec<Target> {
        std::mem::take(&mut self.slow)
    }

    /// Wants this division instead of the plan's.
    pub(crate) fn propose(&mut self, division: Division, mut heavy: Vec<HeavyNamespace>) -> Proposal {
        // As a plan that is read has them.
        heavy.sort_by(|one, other| one.name.cmp(&other.name));
        let Some(plan) = self.plan.as_ref().filter(|_| self.is_open(ShardId(0))) else {
            return Proposal::NotOurs;
        };
        if division.len() != plan.division.len() {
            return Proposal::OtherNumber;
        }
        if plan.division == division && plan.heavy == heavy {
            self.wish = None;
            return Proposal::Unchanged;
        }
        self.wish = Some((division, heavy));
        Proposal::Accepted
    }

    pub(super) fn is_open(&self, shard: ShardId) -> bool {
        self.seats.get(&shard).is_some_and(|seat| matches!(seat.stage, Stage::Open))
    }
}

/// Requests.
impl Engine {
    /// Whether a request about this may be sent now. If one must be waited for, the turn knows until when.
    pub(super) fn is_free(&self, target: Target, now: Instant, turn: &mut Turn) -> bool {
        if self.flights.contains_key(&target) {
            return false;
        }
        match self.rests.get(&target) {
            Some(until) if now < *until => {
                turn.wait(*until);
                false
            }
            _ => true,
        }
    }

    pub(super) fn send(
        &mut self,
        target: Target,
        request: Request,
        within: Duration,
        now: Instant,
        turn: &mut Turn,
    ) {
        let ticket = match &request {
            Request::Write(write) => Some(write.ticket),
            Request::List | Request::Watch(_) | Request::Get(_) | Request::Delete(_) => None,
        };
        self.next_flight += 1;
        let flight = self.next_flight;
        self.rests.remove(&target);
        self.flights.insert(target, InFlight { id: flight, sent: now, ticket });
        turn.effects.push(Effect::Send { flight, target, request, within });
    }

    /// Fetches the Lease of a membership or of a shard.
    pub(super) fn look(&mut self, target: Target, within: Duration, now: Instant, turn: &mut Turn) {
        let name = self.tenure(target).name().to_owned();
        self.send(target, Request::Get(name), within, now, turn);
    }

    /// Writes it.
    pub(super) fn write(
        &mut self,
        target: Target,
        writing: Writing,
        written: Option<&Written>,
        within: Duration,
        at: &Moment,
        turn: &mut Turn,
    ) {
        let write = self.tenure(target).begin(writing, written, at);
        self.send(target, Request::Write(Box::new(write)), within, at.now, turn);
    }

    pub(super) fn tenure(&mut self, target: Target) -> &mut Tenure {
        match target {
            Target::Shard(shard) => &mut self.book.shard(shard).tenure,
            Target::Me | Target::Plan | Target::List | Target::Watch | Target::Sweep => &mut self.book.me,
        }
    }

    pub(super) fn rest(&mut self, target: Target, pause: Duration, now: Instant) {
        self.rests.insert(target, now + pause);
    }

    pub(super) fn pause(&mut self) -> Duration {
        self.rng.jitter(self.terms.retry_period, JITTER)
    }

    /// A short while by which those that want the same at the same moment are kept apart.
    fn spread(&mut self) -> Duration {
        self.rng.between(Duration::from_millis(1), self.terms.retry_period / 20)
    }

    /// Forgets whatever request about the shard is under way, whose effect then has to be found out.
    pub(super) fn give_way(&mut self, shard: ShardId) {
        let target = Target::Shard(shard);
        self.renewing.remove(&target);
        self.rests.remove(&target);
        let was_written = self.flights.remove(&target).is_some_and(|flight| flight.ticket.is_some());
        let tenure = self.tenure(target);
        tenure.step_down();
        if was_written {
            tenure.doubt();
        }
    }

    /// A seat whose Lease was given back, or could not be.
    pub(super) fn finish(&mut self, shard: ShardId, outcome: Result<(), ElectionError>, now: Instant) {
        if let Some(Seat { stage: Stage::Releasing { since, .. }, .. }) = self.seats.remove(&shard)
            && outcome.is_ok()
        {
            self.hand_overs.push(now.saturating_duration_since(since));
        }
        self.finished.insert(shard, outcome);
        self.again = true;
    }

    /// The lease of a shard is lost: the owner is told if it works on it.
    pub(super) fn lost(&mut self, shard: ShardId, reason: LossReason, now: Instant, turn: &mut Turn) {
        self.give_way(shard);
        self.tenure(Target::Shard(shard)).lose();
        self.again = true;
        let Some(seat) = self.seats.get_mut(&shard) else { return };
        match seat.stage {
            Stage::Open | Stage::Draining { .. } => {
                seat.stage = Stage::Ending { since: now };
                turn.effects.push(Effect::Lost { shard, reason });
            }
            Stage::Claiming | Stage::Claimed { .. } => {
                self.seats.remove(&shard);
            }
            Stage::Ending { .. } | Stage::Releasing { .. } => {}
        }
    }

    pub(super) fn missed_deadline(&self, target: Target) -> LossReason {
        LossReason::Deadline {
            within: self.terms.renew_deadline,
            last_error: self.complaints.get(&target).cloned().unwrap_or_else(|| "nobody renewed".to_owned()),
        }
    }

    /// Logs a failure, unless it is the one logged last. Losing a race is none.
    fn complain(&mut self, target: Target, failure: &LeaseError) {
        let complaint = failure.to_string();
        if matches!(failure, LeaseError::Conflict) || self.complaints.get(&target) == Some(&complaint) {
            return;
        }
        let election = self.book.names.prefix();
        tracing::warn!(election, ?target, error = %complaint, "a request about the shards' leases failed");
        self.complaints.insert(target, complaint);
    }
}

/// Answers.
impl Engine {
    fn list_answered(&mut self, answer: Answer, sent: Instant, now: Instant) {
        self.feed = match answer {
            Answer::Listed(version, leases) => {
                self.book.listed(version, leases, sent, now);
                Feed::Listed
            }
            _ => Feed::Idle { not_before: now + self.pause() },
        };
    }

    fn watch_answered(&mut self, answer: &Answer, now: Instant) {
        self.feed = match answer {
            Answer::Watching => Feed::Open { since: now },
            _ => Feed::Idle { not_before: now + self.pause() },
        };
    }

    fn plan_answered(&mut self, answer: Answer, now: Instant) {
        match answer {
            Answer::Written(lease) => self.book.plan.observe_newer(lease, now),
            // Whoever wrote first is shown by the watch.
            Answer::Failed(LeaseError::Conflict) => self.rest(Target::Plan, self.terms.retry_period, now),
            _ => {
                let pause = self.pause();
                self.rest(Target::Plan, pause, now);
            }
        }
    }

    fn lease_answered(&mut self, target: Target, ticket: Option<Ticket>, answer: Answer, now: Instant) {
        match answer {
            Answer::Got(lease) => {
                match (&lease, target) {
                    (Some(lease), _) => self.remember(target, lease),
                    (None, Target::Shard(shard)) => self.book.shard(shard).gone(),
                    (None, _) => {}
                }
                self.tenure(target).looked_beside_a_watch(lease, now);
            }
            Answer::Written(lease) => {
                let Some(ticket) = ticket else { return };
                self.remember(target, &lease);
                let version = lease.metadata.resource_version.as_deref().map(ResourceVersion::new);
                match self.tenure(target).landed(ticket, lease, now) {
                    Ok(()) => self.write_landed(target, ticket, version, now),
                    Err(_) => self.request_failed(target, Some(ticket.writing), &LeaseError::TooLate, now),
                }
            }
            Answer::Failed(failure) => {
                self.request_failed(target, ticket.map(|ticket| ticket.writing), &failure, now);
            }
            Answer::Listed(..) | Answer::Watching | Answer::Deleted => {}
        }
    }

    fn remember(&mut self, target: Target, lease: &Lease) {
        if let Target::Shard(shard) = target {
            self.book.shard(shard).remember(lease);
        }
    }

    fn write_landed(
        &mut self,
        target: Target,
        ticket: Ticket,
        version: Option<ResourceVersion>,
        now: Instant,
    ) {
        match ticket.writing {
            Writing::First | Writing::TakeOver | Writing::Reclaim => {
                let due = ticket.sent + self.first_renewal(target);
                self.renewing.insert(target, Renewing { due, begun: None, looked: false });
                if let Target::Shard(shard) = target
                    && let Some(seat) = self.seats.get_mut(&shard)
                {
                    let look_again = now + self.terms.retry_period / 4;
                    seat.stage = Stage::Claimed { at: now, version, look_again };
                }
            }
            Writing::Renew => {
                self.attempt_ended(target, now);
                if let Target::Shard(shard) = target
                    && let Some(seat) = self.seats.get(&shard)
                    && matches!(seat.stage, Stage::Open | Stage::Draining { .. })
                    && let Some(deadline) = self.tenure(target).held_until(now)
                {
                    self.pending.push(Effect::Extend { shard, deadline });
                }
            }
            Writing::Release => {
                if let Target::Shard(shard) = target {
                    self.finish(shard, Ok(()), now);
                }
            }
            Writing::Retire => {}
        }
    }

    /// Renewals of shards are spread over the retry period, so that many do not come at once, each on a connection of
    /// its own.
    fn first_renewal(&mut self, target: Target) -> Duration {
        match target {
            Target::Shard(_) => self.rng.between(self.terms.retry_period / 4, self.terms.retry_period),
            Target::Me | Target::Plan | Target::List | Target::Watch | Target::Sweep => {
                self.terms.retry_period
            }
        }
    }

    fn request_failed(
        &mut self,
        target: Target,
        writing: Option<Writing>,
        failure: &LeaseError,
        now: Instant,
    ) {
        let raced = matches!(failure, LeaseError::Conflict | LeaseError::NotFound(_));
        if let Some(renewing) = self.renewing.get(&target) {
            // The first that finds another state looks and writes once more, within the same attempt.
            if !(raced && writing.is_some() && !renewing.looked) {
                self.attempt_ended(target, now);
            }
            return;
        }
        let pause = if raced { self.spread() } else { self.pause() };
        let Target::Shard(shard) = target else { return self.rest(target, pause, now) };
        match self.seats.get(&shard).map(|seat| &seat.stage) {
            Some(Stage::Claiming) => {
                self.seats.remove(&shard);
                self.rest(target, pause, now);
            }
            // Somebody waits for the shard: a failure is not waited out for long.
            Some(Stage::Releasing { .. }) => self.rest(target, pause.min(self.terms.retry_period / 4), now),
            Some(Stage::Claimed { .. } | Stage::Open | Stage::Draining { .. } | Stage::Ending { .. })
            | None => self.rest(target, pause, now),
        }
    }

    fn attempt_ended(&mut self, target: Target, now: Instant) {
        if let Some(renewing) = self.renewing.get_mut(&target) {
            let begun = renewing.begun.take().unwrap_or(now);
            renewing.due = (begun + self.terms.retry_period).max(now);
            renewing.looked = false;
        }
    }

    fn read_plan(&mut self) {
        let View::Seen(seen) = &self.book.plan else { return };
        let version = seen.lease.metadata.resource_version.clone();
        if self.plan.is_some() && self.plan_read == version {
            return;
        }
        match Plan::of(&seen.lease) {
            Ok(plan) => {
                if self.plan.as_ref() != Some(&plan) {
                    let (generation, shards) = (plan.generation, plan.division.len());
                    tracing::info!(
                        election = self.book.names.prefix(),
                        generation,
                        shards,
                        "the plan of shards"
                    );
                }
                // A wish is kept until it is seen to be fulfilled, or cannot be any more.
                self.wish = self.wish.take().filter(|(division, heavy)| {
                    division.len() == plan.division.len()
                        && (*division != plan.division || *heavy != plan.heavy)
                });
                self.plan = Some(plan);
                self.complaints.remove(&Target::Plan);
            }
            // The last plan that made sense still holds.
            Err(complaint) => {
                let lease = self.book.names.plan();
                let complaint =
                    format!("the plan in the lease {lease} cannot be read, delete it: {complaint}");
                self.complain(Target::Plan, &LeaseError::Request(complaint));
            }
        }
        self.plan_read = version;
    }
}

/// What is shown of it.
impl Engine {
    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// When the lease was last renewed whose renewal is the longest ago, of those the owner works under.
    pub(crate) fn last_renewal(&self, now: Instant) -> Option<Instant> {
        let works = |seat: &Seat| matches!(seat.stage, Stage::Open | Stage::Draining { .. });
        let open = self.seats.iter().filter(|(_, seat)| works(seat));
        let deadline = |shard: &ShardId| self.book.shards.get(shard)?.tenure.held_until(now);
        let earliest = open.filter_map(|(shard, _)| deadline(shard)).min()?;
        earliest.checked_sub(self.terms.renew_deadline)
    }

    pub(crate) fn overview(&self, now: Instant) -> ShardsOverview {
        let Some(plan) = &self.plan else { return ShardsOverview::default() };
        let holder = |shard: ShardId| {
            let view = self.book.shards.get(&shard).map(|shard| shard.tenure.view());
            (shard, view.and_then(View::holder).map(str::to_owned))
        };
        ShardsOverview {
            generation: plan.generation,
            division: Some(plan.division.clone()),
            heavy: plan.heavy.clone(),
            members: self.book.members(now).into_keys().collect(),
            holders: (0..plan.division.len().get()).map(ShardId).map(holder).collect(),
            held: self.occupied().into_iter().collect(),
        }
    }
}
