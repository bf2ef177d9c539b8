//! Leading by shards: every replica acts, each on the keys of the shards that it holds.
//!
//! It is the second kind of leadership. All controllers start at once, on every replica, over caches of the shards that
//! are held; one that holds none is idle and ready. A shard then comes and goes while they run:
//!
//! | told | what is done, in this order |
//! |---|---|
//! | acquired | its objects join the caches; each controller waits until its own caches have them and show what the predecessor wrote; its keys are let in |
//! | to give it up | no key of it begins any more; running reconciles end; its objects leave the caches; the Lease is given back with what was written |
//! | lost | the same, and nothing of it can be written: its fence is closed already |
//! | to stop | nothing is acquired any more; all is drained as without shards; all Leases are given back together |
//!
//! Guarantees:
//! - What a reconcile writes leaves behind the fence of its key's shard. What belongs to no key, such as events, leaves
//!   while any shard is held.
//! - A key that comes while its shard is being taken over is kept until it is let in.
//! - A loss ends the work on one shard, and the process goes on with the others: a reconcile that its fence has stopped
//!   has ended by the time the shard may be acquired again, and nothing of it is remembered.
//! - Leases are renewed by a task put aside, whatever workers do to their threads.
//!
//! A namespaced key is in the shard of its namespace, and a key without one in the shard that a namespace of its name would
//! be in. It is not the uid that counts, as for caches and API servers, since a key must be in one shard before its object
//! exists, after it is gone, and when another of that name follows. So a controller has to see every object of a kind
//! without namespaces ([`windlass_informer::Selection::of_every_shard`]): work is divided, caches are not. One that watches
//! such a kind in the shards that are held is refused, for its caches would be divided otherwise than its keys. Whoever
//! takes a shard over queues the keys that caches of every shard have of it.
//!
//! What it refuses: runnables that need the leader, for there is none.

mod page;
mod seat;
mod survey;
mod table;
#[cfg(test)]
mod threads;
mod weights;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{self, BoxFuture, Either};
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use windlass_client::{RawClient, one_line};
use windlass_controller::{Prepared, Steward};
use windlass_election::shards::{Proposal, ShardElector, ShardEvent, ShardsOverview};
use windlass_election::{ElectionError, LeaseLost, LossReason, Predecessor, Written};
use windlass_env::cell::Observer;
use windlass_env::{Aside, Env};
use windlass_informer::{InformerFactory, ShardSet, Shards};
use windlass_object::shard::{Ranges, ShardId};
use windlass_object::{ObjectKey, Scope};

use self::seat::Seat;
use self::survey::{Found, Survey};
use self::table::{Held, hash_of};
use crate::error::ManagerError;
use crate::race::first;
use crate::takeover::{Takeover, merged};

pub(crate) use self::page::{add_page, held};
pub(crate) use self::table::Table;

/// How often caches that hold up a shard are told of.
const TELL_INTERVAL: Duration = Duration::from_secs(30);

/// What controllers and their leadership have in common. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Sharers {
    pub(crate) table: Table,
    pub(crate) set: ShardSet,
    roster: Arc<Roster>,
}

/// The controllers that work.
#[derive(Default)]
struct Roster {
    stewards: Mutex<Vec<Steward>>,
    joined: Notify,
}

impl Sharers {
    /// A controller works from now on. Before this is told, nobody would wait for its reconciles.
    pub(crate) fn enlist(&self, steward: Steward) {
        self.roster.lock().push(steward);
        self.roster.joined.notify_one();
    }
}

impl Roster {
    fn stewards(&self) -> Vec<Steward> {
        self.lock().clone()
    }

    /// Returns what all controllers have written; `None` if the outcome of a write is unknown.
    fn written(&self) -> Option<Written> {
        self.lock().iter().map(Steward::written).fold(Some(Written::new()), merged)
    }

    /// Nothing else runs under this lock, so poison cannot mean a broken list.
    fn lock(&self) -> MutexGuard<'_, Vec<Steward>> {
        self.stewards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part in an election of shards, and the work that comes and goes with it.
pub(crate) struct Sharing {
    env: Env,
    sharers: Sharers,
    survey: Survey,
    lease: String,
    seat: Seat,
    view: Observer<ShardsOverview>,
    /// How many controllers have been told of the shards that are held.
    greeted: usize,
    /// The process is on its way out.
    leaving: bool,
    moves: FuturesUnordered<BoxFuture<'static, Moved>>,
}

/// Something that was waited for has happened.
enum Moved {
    /// Nothing that matters any more.
    Nothing,
    /// A controller has a shard's keys.
    Opened(ShardId),
    /// No reconcile of a shard runs any more.
    Retired(ShardId),
    /// A shard was given back.
    Released(ShardId, Result<(), ElectionError>),
    /// What there is was looked at.
    Surveyed(Found),
    /// A division was proposed.
    Proposed(Proposal),
}

impl Sharing {
    /// A part that has not begun; `lease` is what people call the election.
    pub(crate) fn new(
        aside: Aside,
        elector: ShardElector,
        lease: String,
        sharers: Sharers,
        factory: InformerFactory,
        reader: RawClient,
    ) -> Self {
        let env = reader.env().clone();
        let view = elector.overview();
        let (seat, moves) = (Seat::new(aside, elector), FuturesUnordered::new());
        let survey = Survey::new(env.clone(), factory, reader);
        Self { env, sharers, survey, lease, seat, view, greeted: 0, leaving: false, moves }
    }

    /// Takes part from now on.
    pub(crate) fn begin(&mut self) {
        self.seat.take(&self.lease);
    }

    /// Runs `work` while shards come and go beside it.
    ///
    /// # Errors
    /// When nobody takes part in the election any more. `work` is dropped where it stands then.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ManagerError> {
        match first(self.go_on(), work).await {
            Either::Left(failure) => Err(failure),
            Either::Right(done) => Ok(done),
        }
    }

    /// Nothing is acquired any more. What is held is renewed, and kept until [`Self::leave`].
    pub(crate) fn resign(&mut self) {
        self.leaving = true;
        self.seat.resign();
    }

    /// Gives everything back that is held, after all work has ended.
    pub(crate) async fn leave(&mut self, written: Option<Written>) -> Result<(), ManagerError> {
        self.leaving = true;
        match self.seat.leave(written).await {
            Some(left) => Ok(left?),
            None => Err(self.failure()),
        }
    }

    /// Takes part no more, and gives nothing back: Leases expire.
    pub(crate) async fn abandon(&mut self) {
        self.leaving = true;
        self.seat.abandon().await;
    }

    /// Lets shards come and go; returns when that ends.
    ///
    /// # Cancel safety
    /// What is under way goes on with the next call.
    async fn go_on(&mut self) -> ManagerError {
        loop {
            tokio::select! {
                biased;
                event = self.seat.event() => match event {
                    Some(event) => self.told(event),
                    // A process that is no more learns nothing.
                    None if !self.env.alive() => future::pending().await,
                    None => return self.failure(),
                },
                Ok(view) = self.view.changed() => {
                    self.survey.divided(view.division.as_ref());
                    self.sharers.table.show(view);
                }
                () = self.sharers.roster.joined.notified() => self.greet(),
                Some(moved) = self.moves.next(), if !self.moves.is_empty() => self.moved(moved),
            }
        }
    }

    fn told(&mut self, event: ShardEvent) {
        match event {
            // What is won or to be given up now is given back with everything else.
            _ if self.leaving => {}
            ShardEvent::Acquired { shard, ranges, fence, predecessor } => {
                let held = Held::new(ranges.clone(), fence, predecessor);
                self.join(shard, ranges, held);
            }
            ShardEvent::GiveUp { shard } => self.part_with(shard),
            ShardEvent::Lost { shard, lost } => {
                tracing::warn!(%shard, %lost, "lost a shard: its work ends, and that on other shards goes on");
                self.sharers.table.lose(shard);
                self.part_with(shard);
            }
            // Told to whoever asked for it.
            ShardEvent::Released { .. } => {}
        }
    }

    /// Lets the objects of a shard into the caches, and each controller begin once its own are complete.
    fn join(&mut self, shard: ShardId, ranges: Ranges, held: Held) {
        // Known before any of its objects is, so that no key is refused.
        self.sharers.table.join(shard, held.clone());
        if let Err(overlap) = self.sharers.set.join(shard, ranges) {
            // An election never has that. Nobody would see the shard's objects: better given back than held in vain.
            tracing::error!(%shard, error = one_line(&overlap), "a shard cannot be worked on");
            return self.part_with(shard);
        }
        for steward in self.sharers.roster.stewards() {
            self.open(shard, &held, steward);
        }
        if shard == ShardId(0) {
            self.survey.divided(self.view.get().division.as_ref());
            let look = self.survey.begin(held.over);
            self.moves.push(Box::pin(async move { look.await.map_or(Moved::Nothing, Moved::Surveyed) }));
        }
    }

    /// Lets new controllers begin with what is held.
    fn greet(&mut self) {
        let stewards = self.sharers.roster.stewards();
        let held = self.sharers.table.working();
        for steward in stewards.get(self.greeted..).unwrap_or_default() {
            held.iter().for_each(|(shard, held)| self.open(*shard, held, steward.clone()));
        }
        self.greeted = stewards.len();
    }

    fn open(&mut self, shard: ShardId, held: &Held, steward: Steward) {
        let (env, table, held) = (self.env.clone(), self.sharers.table.clone(), held.clone());
        let all = self.sharers.roster.clone();
        self.moves.push(Box::pin(async move {
            let ready = ready(&env, shard, &steward, &held.predecessor);
            if let Either::Right(true) = first(held.over.cancelled(), ready).await
                && table.open(shard, &held, steward.name(), all.lock().len())
            {
                steward.let_in();
                steward.replay(|key| held.has(key));
                return Moved::Opened(shard);
            }
            Moved::Nothing
        }));
    }

    /// Ends the work on a shard; it is given back afterwards.
    fn part_with(&mut self, shard: ShardId) {
        let Some(ranges) = self.sharers.table.close(shard) else { return };
        let stewards = self.sharers.roster.stewards();
        self.moves.push(Box::pin(async move {
            let gone = |key: &ObjectKey| ranges.contains(hash_of(key));
            future::join_all(stewards.iter().map(|steward| steward.retire(gone))).await;
            // Whoever reads after this reads every write, though the answer to one may have been lost.
            future::join_all(stewards.iter().map(Steward::writes_settled)).await;
            Moved::Retired(shard)
        }));
    }

    fn moved(&mut self, moved: Moved) {
        match moved {
            Moved::Nothing => {}
            Moved::Opened(shard) => tracing::debug!(%shard, "a controller works on a shard"),
            Moved::Retired(shard) => self.give_back(shard),
            Moved::Released(shard, Ok(())) => tracing::info!(%shard, "gave a shard back"),
            Moved::Released(shard, Err(error)) => {
                tracing::warn!(%shard, error = one_line(&error), "a shard is left to expire");
            }
            Moved::Surveyed(found) => self.surveyed(found),
            Moved::Proposed(proposal) => tracing::debug!(?proposal, "proposed a division by weight"),
        }
    }

    /// No reconcile of the shard runs any more.
    fn give_back(&mut self, shard: ShardId) {
        if self.leaving {
            return;
        }
        // Before the Lease is: whoever is the next to hold these hashes may be this replica.
        self.sharers.set.leave(shard);
        let Some(left) = self.sharers.table.leave(shard) else { return };
        // Without versions the next holder lists its caches again.
        let written = match (left.lost, left.is_caught_up()) {
            (true, _) => None,
            (false, true) => self.sharers.roster.written(),
            // A controller here still waited for what the last holder wrote, so the next one must.
            (false, false) => merged(self.sharers.roster.written(), left.predecessor.written().cloned()),
        };
        let released = self.seat.release(shard, written);
        self.moves.push(Box::pin(async move {
            released.await.map_or(Moved::Nothing, |released| Moved::Released(shard, released))
        }));
    }

    /// Proposes what a look led to, and looks again later.
    fn surveyed(&mut self, found: Found) {
        if let Some((division, heavy)) = self.survey.weigh(&found) {
            let proposed = self.seat.propose(division, heavy);
            self.moves.push(Box::pin(async move { proposed.await.map_or(Moved::Nothing, Moved::Proposed) }));
        }
        let look = self.survey.go_on(found);
        self.moves.push(Box::pin(async move { look.await.map_or(Moved::Nothing, Moved::Surveyed) }));
    }

    fn failure(&self) -> ManagerError {
        let source = LeaseLost { reason: LossReason::NotHeld };
        ManagerError::LeaseLost { lease: self.lease.clone(), source }
    }
}

/// Waits until a controller may begin with a shard; `false` if one of its caches has ended.
async fn ready(env: &Env, shard: ShardId, steward: &Steward, predecessor: &Predecessor) -> bool {
    loop {
        match env.timeout(TELL_INTERVAL, steward.caches_synced()).await {
            Ok(true) => break,
            Ok(false) => return false,
            Err(_) => {
                tracing::warn!(%shard, controller = steward.name(), "waiting for caches of a shard");
            }
        }
    }
    let takeover = Takeover::new(env.clone(), steward.caches(), predecessor);
    takeover.caught_up(steward.name(), |_| true).await;
    true
}

/// Refuses controllers whose keys and caches would be divided in different ways.
///
/// # Errors
/// The first of them, with the kind.
pub(crate) fn check(prepared: &[Prepared], factory: &InformerFactory) -> Result<(), ManagerError> {
    let shared: BTreeMap<_, ()> = factory.kinds().into_iter().map(|kind| (kind, ())).collect();
    for one in prepared {
        let watches = one.declaration().watches.into_iter().filter(|watch| shared.contains_key(watch));
        let mut unshareable = watches
            .filter(|(kind, selection)| kind.scope == Scope::Cluster && selection.shards == Shards::Held);
        if let Some((kind, _)) = unshareable.next() {
            return Err(ManagerError::Unshareable { controller: one.descriptor().name, kind });
        }
    }
    Ok(())
}

impl fmt::Debug for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharing").field("lease", &self.lease).finish_non_exhaustive()
    }
}
