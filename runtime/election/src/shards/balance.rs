//! What the engine decides: who belongs, what is renewed, given up, opened, claimed, given back and swept away. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_env::Instant;
use windlass_object::ResourceVersion;
use windlass_object::shard::{Division, Ranges, ShardId};

use super::engine::{Effect, Engine, Feed, Renewing, Request, Seat, Stage, Target, Turn};
use super::names::{GENERATION_ANNOTATION, RANGES_ANNOTATION, SHARDS_LABEL};
use super::plan::{Plan, generation, ranges};
use super::shares::{takers, targets};
use crate::decide::{Step, View};
use crate::error::ElectionError;
use crate::tenure::{LeaseWrite, Moment, Renewal, Ticket, Writing};

/// How many lease durations a membership that nobody renews is left lying.
const SWEPT_AFTER: u32 = 4;

/// Knowing.
impl Engine {
    /// Keeps the book fed: a list, then a watch from there. A watch that tells nothing of our own renewals has stopped.
    pub(super) fn listen(&mut self, now: Instant, turn: &mut Turn) {
        if let Feed::Open { .. } = self.feed
            && self.book.me.held_until(now).is_some()
        {
            let deaf_at = self.book.heard_at.unwrap_or(now) + self.terms.retry_period * 2;
            if now >= deaf_at {
                self.listen_anew(now, turn);
            } else {
                turn.wait(deaf_at);
            }
        }
        match self.feed {
            Feed::Idle { not_before } if now < not_before => turn.wait(not_before),
            Feed::Idle { .. } => {
                self.feed = Feed::Listing;
                self.send(Target::List, Request::List, self.terms.attempt, now, turn);
            }
            Feed::Listed => {
                self.feed = Feed::Opening;
                let from = self.book.version.clone();
                self.send(Target::Watch, Request::Watch(from), self.terms.attempt, now, turn);
            }
            Feed::Listing | Feed::Opening | Feed::Open { .. } => {}
        }
    }

    fn listen_anew(&mut self, now: Instant, turn: &mut Turn) {
        turn.effects.push(Effect::StopWatch);
        self.feed = Feed::Idle { not_before: now };
        self.again = true;
    }

    /// Whether what is known is recent enough to act on. What is not may only be wrong about who is *not* there: every
    /// write still builds on the state it names.
    fn is_fresh(&self, now: Instant) -> bool {
        self.book.heard_at.is_some_and(|heard| now < heard + self.terms.retry_period * 3)
    }

    /// Whether this replica wants to hold anything. One whose work on a lost shard does not end within a lease duration
    /// makes room: something in it is stuck.
    fn participates(&self, now: Instant, turn: &mut Turn) -> bool {
        let mut stuck = false;
        for seat in self.seats.values() {
            if let Stage::Ending { since } = seat.stage {
                let until = since + self.terms.lease_duration;
                stuck |= now >= until;
                if now < until {
                    turn.wait(until);
                }
            }
        }
        !self.leaving && !stuck
    }

    /// The shards that each member that is heard of holds under the plan, and should hold. Nothing while this replica is
    /// no member. Nothing is kept for one that has fallen silent, though what it holds stays its own until that expires.
    fn shares(
        &self,
        plan: &Plan,
        now: Instant,
    ) -> Option<(BTreeMap<String, usize>, BTreeMap<String, usize>)> {
        let me = &self.terms.identity;
        let mut held: BTreeMap<String, usize> =
            self.book.heard_of(now).into_iter().map(|member| (member, 0)).collect();
        *held.get_mut(me)? = self.active(plan).len();
        for (shard, entry) in &self.book.shards {
            let Some(seen) = entry.tenure.view().seen() else { continue };
            let Some(holder) = seen.record.holder.as_ref().filter(|holder| *holder != me) else { continue };
            let counts = shard.0 < plan.division.len().get()
                && now < self.book.expiry(seen)
                && ranges(&seen.lease.metadata) == *plan.division.ranges(*shard);
            if counts && let Some(held) = held.get_mut(holder) {
                *held += 1;
            }
        }
        let targets = targets(usize::from(plan.division.len().get()), &held);
        Some((held, targets))
    }

    /// The shards of the plan that are held here to stay.
    fn active(&self, plan: &Plan) -> Vec<ShardId> {
        let stays = |seat: &Seat| {
            seat.generation == plan.generation
                && matches!(seat.stage, Stage::Claiming | Stage::Claimed { .. } | Stage::Open)
        };
        self.seats.iter().filter(|(_, seat)| stays(seat)).map(|(shard, _)| *shard).collect()
    }
}

/// Holding.
impl Engine {
    /// Terms whose deadline has passed.
    pub(super) fn notice_losses(&mut self, now: Instant, turn: &mut Turn) {
        if self.book.me.is_held() && self.book.me.held_until(now).is_none() {
            self.book.me.lose();
            self.renewing.remove(&Target::Me);
        }
        let over: Vec<ShardId> = self
            .book
            .shards
            .iter()
            .filter(|(_, shard)| shard.tenure.is_held() && shard.tenure.held_until(now).is_none())
            .map(|(shard, _)| *shard)
            .collect();
        for shard in over {
            self.lost(shard, self.missed_deadline(Target::Shard(shard)), now, turn);
        }
    }

    /// Becomes a member, or ceases to be one.
    pub(super) fn belong(&mut self, at: &Moment, turn: &mut Turn) {
        let within = self.terms.attempt;
        let participates = self.participates(at.now, turn);
        if !participates && self.book.me.is_held() {
            self.book.me.step_down();
            self.renewing.remove(&Target::Me);
        }
        let nothing_to_do = match participates {
            // Who does not hear is told of nothing that is handed over to it.
            true => self.book.me.is_held() || matches!(self.feed, Feed::Idle { .. } | Feed::Listing),
            false => !self.book.me.may_hold(),
        };
        if nothing_to_do || !self.is_free(Target::Me, at.now, turn) {
            return;
        }
        let writing = match self.book.me.step(at.now) {
            Step::Look => return self.look(Target::Me, within, at.now, turn),
            _ if !participates && self.book.me.is_ours() => Writing::Release,
            _ if !participates => {
                self.book.me.settled();
                self.again = true;
                return;
            }
            Step::Create => Writing::First,
            Step::TakeOver => Writing::TakeOver,
            Step::Reclaim => Writing::Reclaim,
            // Another of the same identity, or of the same hash of it.
            Step::WaitUntil(expiry) => return turn.wait(expiry),
            Step::Release | Step::Follow => return,
        };
        self.write(Target::Me, writing, None, within, at, turn);
    }

    pub(super) fn renew_all(&mut self, at: &Moment, turn: &mut Turn) {
        let held: Vec<Target> = self.renewing.keys().copied().collect();
        for target in held {
            self.renew(target, at, turn);
        }
    }

    /// Renews when it is time: over the state last seen or, if that is in doubt, after a look.
    fn renew(&mut self, target: Target, at: &Moment, turn: &mut Turn) {
        let now = at.now;
        let Some(deadline) = self.tenure(target).held_until(now) else { return };
        turn.wait(deadline);
        if !self.is_free(target, now, turn) {
            return;
        }
        let Some(Renewing { due, begun, .. }) = self.renewing.get(&target) else { return };
        if begun.is_none() && now < *due {
            return turn.wait(*due);
        }
        let begun = begun.unwrap_or(now);
        let within = (begun + self.terms.attempt).min(deadline).saturating_duration_since(now);
        let step = self.tenure(target).renewal();
        if let Some(renewing) = self.renewing.get_mut(&target) {
            renewing.begun = Some(begun);
            renewing.looked |= step == Renewal::Look;
        }
        match step {
            Renewal::Look => {
                self.slow.push(target);
                self.look(target, within, now, turn);
            }
            // No coordinator has a say in shards.
            Renewal::Write | Renewal::Yield { .. } => {
                self.write(target, Writing::Renew, None, within, at, turn);
            }
            Renewal::Lost(reason) => match target {
                Target::Shard(shard) => self.lost(shard, reason, now, turn),
                Target::Me | Target::Plan | Target::List | Target::Watch | Target::Sweep => {
                    self.book.me.lose();
                    self.renewing.remove(&Target::Me);
                    self.again = true;
                }
            },
        }
    }
}

/// The plan.
impl Engine {
    /// Writes the first plan where there is none, and, as the holder of shard 0, the next one.
    pub(super) fn keep_plan(&mut self, at: &Moment, turn: &mut Turn) {
        let now = at.now;
        if self.book.listed_at.is_none()
            || self.leaving
            || self.book.me.held_until(now).is_none()
            || !self.is_fresh(now)
        {
            return;
        }
        if !self.is_open(ShardId(0)) {
            self.wish = None;
        }
        let (metadata, plan) = match &self.book.plan {
            View::Seen(seen) => {
                let Some(plan) = self.next_plan(now) else { return };
                (seen.lease.metadata.clone(), plan)
            }
            View::Unknown | View::Absent | View::Gone(_) => {
                let plan = self.plan.clone().unwrap_or_else(|| self.first_plan());
                (self.plan_metadata(), plan)
            }
        };
        if !self.is_free(Target::Plan, now, turn) {
            return;
        }
        let exists = metadata.resource_version.is_some();
        let lease = plan.into_lease(metadata, &self.terms.identity, at.wall.clone());
        let ticket = Ticket { writing: Writing::First, sent: now };
        let write = Request::Write(Box::new(LeaseWrite { lease, exists, ticket }));
        self.send(Target::Plan, write, self.terms.attempt, now, turn);
    }

    /// Later than that of any shard which is held, should a plan have been deleted that others still go by.
    fn first_plan(&self) -> Plan {
        let seen = self.book.shards.values().filter_map(|shard| shard.tenure.view().seen());
        let last = seen.filter_map(|seen| generation(&seen.lease.metadata)).max().unwrap_or(0);
        Plan { generation: last + 1, division: Division::even(self.wanted), heavy: Vec::new() }
    }

    fn next_plan(&self, now: Instant) -> Option<Plan> {
        let plan = self.plan.as_ref().filter(|_| self.is_open(ShardId(0)))?;
        let generation = plan.generation + 1;
        if let Some(division) = self.number_agreed(plan, now) {
            return Some(Plan { generation, division, heavy: Vec::new() });
        }
        let (division, heavy) = self.wish.clone()?;
        // Where the division stays, what is known of heavy namespaces is told, and nobody has to move.
        let generation = if division == plan.division { plan.generation } else { generation };
        Some(Plan { generation, division, heavy })
    }

    /// An even division by another number, once every live member wants that number.
    fn number_agreed(&self, plan: &Plan, now: Instant) -> Option<Division> {
        let wanted = self.wanted;
        let agreed = self.book.members(now).values().all(|number| *number == Some(wanted.get()));
        (agreed && wanted != plan.division.len()).then(|| Division::even(wanted))
    }

    fn plan_metadata(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.book.names.plan()),
            namespace: Some(self.terms.namespace.clone()),
            labels: Some([(SHARDS_LABEL.to_owned(), self.book.names.prefix().to_owned())].into()),
            ..ObjectMeta::default()
        }
    }
}

/// Sharing.
impl Engine {
    /// Gives up what is not for this replica: everything when it leaves, what another plan divides otherwise, and what
    /// is above its share.
    pub(super) fn balance(&mut self, at: &Moment, turn: &mut Turn) {
        let now = at.now;
        let participates = self.participates(now, turn);
        let plan = self.plan.clone();
        for shard in self.seats.keys().copied().collect::<Vec<_>>() {
            if !participates || plan.as_ref().is_some_and(|plan| !self.fits(shard, plan)) {
                self.give_up(shard, now, turn);
            }
        }
        let Some(plan) = plan.filter(|_| participates && self.is_fresh(now)) else { return };
        let Some((_, targets)) = self.shares(&plan, now) else { return };
        let target = targets.get(&self.terms.identity).copied().unwrap_or(0);
        let mut active = self.active(&plan);
        // What nobody works on yet goes first, then the highest number.
        active.sort_by_key(|shard| (!self.is_open(*shard), *shard));
        while active.len() > target {
            let Some(shard) = active.pop() else { break };
            self.give_up(shard, now, turn);
        }
    }

    /// Whether the plan still gives this seat's ranges to its shard. A plan that does is taken over as it is.
    fn fits(&mut self, shard: ShardId, plan: &Plan) -> bool {
        let Some(seat) = self.seats.get_mut(&shard) else { return true };
        // What is being given back was not held under this plan.
        if seat.generation == plan.generation || matches!(seat.stage, Stage::Releasing { .. }) {
            return true;
        }
        let same = shard.0 < plan.division.len().get() && *plan.division.ranges(shard) == seat.ranges;
        if same {
            seat.generation = plan.generation;
            self.tenure(Target::Shard(shard)).annotate(GENERATION_ANNOTATION, plan.generation.to_string());
        }
        same
    }

    fn give_up(&mut self, shard: ShardId, now: Instant, turn: &mut Turn) {
        let Some(seat) = self.seats.get_mut(&shard) else { return };
        match seat.stage {
            Stage::Open => {
                seat.stage = Stage::Draining { since: now };
                turn.effects.push(Effect::GiveUp { shard });
            }
            Stage::Claimed { .. } => self.give_up_claim(shard, now),
            Stage::Claiming | Stage::Draining { .. } | Stage::Ending { .. } | Stage::Releasing { .. } => {}
        }
    }

    /// Gives back what nobody works on, as it was found: those before may still be at work elsewhere, or have written
    /// what is not known here yet.
    pub(super) fn give_up_claim(&mut self, shard: ShardId, now: Instant) {
        let before = self.book.shard(shard).undone();
        let written = before.as_ref().and_then(|(_, _, before)| before.written().cloned());
        if let Some((generation, ranges, _)) = before {
            let tenure = self.tenure(Target::Shard(shard));
            tenure.annotate(GENERATION_ANNOTATION, generation.to_string());
            tenure.annotate(RANGES_ANNOTATION, ranges.to_string());
        }
        if let Some(seat) = self.seats.get_mut(&shard) {
            seat.stage = Stage::Releasing { written, since: now, begun: now };
        }
        self.give_way(shard);
    }

    /// Opens what was claimed, once the book shows every write before the claim and nobody in them who may act on the
    /// same ranges. Whoever is in the way and out of time is written over, so that it cannot come back.
    pub(super) fn open_confirmed(&mut self, at: &Moment, turn: &mut Turn) {
        let now = at.now;
        for shard in self.seats.keys().copied().collect::<Vec<_>>() {
            let Some(Seat {
                ranges,
                generation,
                stage: Stage::Claimed { at: claimed_at, version, look_again },
            }) = self.seats.get(&shard).cloned()
            else {
                continue;
            };
            if !self.has_confirmed(version.as_ref(), claimed_at) {
                if now < look_again {
                    turn.wait(look_again);
                } else if let Feed::Open { .. } = self.feed {
                    self.listen_anew(now, turn);
                }
                continue;
            }
            let tenure = &self.book.shard(shard).tenure;
            let Some(deadline) = tenure.held_until(now) else { continue };
            if !self.is_clear(shard, &ranges, now, turn) {
                self.retire_all(shard, &ranges, at, turn);
                continue;
            }
            let predecessor = self.book.predecessor(shard, &ranges, generation);
            self.book.shard(shard).acts();
            if let Some(seat) = self.seats.get_mut(&shard) {
                seat.stage = Stage::Open;
            }
            turn.effects.push(Effect::Acquired { shard, ranges, deadline, predecessor });
            // The holder of shard 0 may have a plan to write.
            self.again = true;
        }
    }

    fn has_confirmed(&self, claim: Option<&ResourceVersion>, claimed_at: Instant) -> bool {
        let by_version =
            self.book.version.as_ref().zip(claim).and_then(|(known, claim)| known.reached(claim));
        by_version.unwrap_or(false) || self.book.list_sent_at.is_some_and(|sent| sent > claimed_at)
    }

    /// Whether nobody else, and no work of our own that has not ended, is on these ranges.
    fn is_clear(&self, shard: ShardId, ranges: &Ranges, now: Instant, turn: &mut Turn) -> bool {
        let ours = self.seats.iter().any(|(number, seat)| {
            let works = matches!(seat.stage, Stage::Open | Stage::Draining { .. } | Stage::Ending { .. });
            *number != shard && works && seat.ranges.overlaps(ranges)
        });
        let theirs = self.book.in_the_way(shard, ranges, now);
        for number in &theirs {
            // One that is out of time is written over, and the answer is worth the next look.
            if let Some(expiry) = self.book.blocked_until(*number, now) {
                turn.wait(expiry);
            }
        }
        !ours && theirs.is_empty()
    }

    /// Takes shards that nobody holds, up to this replica's share.
    pub(super) fn claim(&mut self, at: &Moment, turn: &mut Turn) {
        let now = at.now;
        if !self.participates(now, turn) || !self.is_fresh(now) {
            return;
        }
        let Some(plan) = self.plan.clone() else { return };
        let Some((held, targets)) = self.shares(&plan, now) else { return };
        let me = self.terms.identity.clone();
        let count = |of: &BTreeMap<String, usize>| of.get(&me).copied().unwrap_or(0);
        let mut room = count(&targets).saturating_sub(count(&held));
        let unheld = self.unheld(&plan, now, turn);
        let takers = takers(&unheld, &held, &targets);
        for shard in unheld {
            // Whoever should take it may be slow, or see things differently: it may have come later, and still wait for
            // the last holder's time to be up, which one write ends; or it has fallen silent, and what was kept for it is
            // anybody's before long.
            let moment = self.terms.retry_period / 4;
            let patience = if room == 0 { moment } else { self.terms.retry_period };
            let anybodys = self.book.unheld_since(shard) + patience;
            if takers.get(&shard) != Some(&me) && now < anybodys {
                turn.wait(anybodys);
            } else if room == 0 {
                self.retire(shard, at, turn);
                turn.wait(now + moment);
            } else if self.try_claim(shard, &plan, at, turn) {
                room -= 1;
            }
        }
    }

    fn unheld(&self, plan: &Plan, now: Instant, turn: &mut Turn) -> Vec<ShardId> {
        let mut unheld = Vec::new();
        for shard in (0..plan.division.len().get()).map(ShardId) {
            match self.book.apparent(shard, now) {
                Step::WaitUntil(expiry) => turn.wait(expiry),
                Step::Release | Step::Follow => {}
                _ if self.seats.contains_key(&shard) => {}
                Step::Look | Step::Create | Step::TakeOver | Step::Reclaim => unheld.push(shard),
            }
        }
        unheld
    }

    /// One step towards holding a shard; whether one was taken.
    fn try_claim(&mut self, shard: ShardId, plan: &Plan, at: &Moment, turn: &mut Turn) -> bool {
        let (now, target) = (at.now, Target::Shard(shard));
        let ranges = plan.division.ranges(shard).clone();
        if !self.is_free(target, now, turn) {
            return false;
        }
        if !self.is_clear(shard, &ranges, now, turn) {
            self.retire_all(shard, &ranges, at, turn);
            return false;
        }
        let writing = match self.tenure(target).step(now) {
            Step::Look => {
                self.look(target, self.terms.attempt, now, turn);
                return true;
            }
            Step::Create => Writing::First,
            Step::TakeOver => Writing::TakeOver,
            Step::Reclaim => Writing::Reclaim,
            Step::WaitUntil(expiry) => {
                turn.wait(expiry);
                return false;
            }
            Step::Release | Step::Follow => return false,
        };
        if matches!(writing, Writing::First | Writing::TakeOver) {
            self.book.shard(shard).taking();
        }
        let tenure = self.tenure(target);
        // What a later plan than ours left there must not look as if it had been before.
        let stated = tenure.view().seen().and_then(|seen| generation(&seen.lease.metadata));
        tenure.annotate(GENERATION_ANNOTATION, plan.generation.max(stated.unwrap_or(0)).to_string());
        tenure.annotate(RANGES_ANNOTATION, ranges.to_string());
        self.write(target, writing, None, self.terms.attempt, at, turn);
        self.seats.insert(shard, Seat { generation: plan.generation, ranges, stage: Stage::Claiming });
        true
    }

    fn retire_all(&mut self, of: ShardId, ranges: &Ranges, at: &Moment, turn: &mut Turn) {
        for number in self.book.in_the_way(of, ranges, at.now) {
            self.retire(number, at, turn);
        }
    }

    /// Writes that nobody holds a shard whose holder's time is up, where that is in the way of another.
    fn retire(&mut self, shard: ShardId, at: &Moment, turn: &mut Turn) {
        let target = Target::Shard(shard);
        let is_held = self.tenure(target).view().holder().is_some();
        let expired = is_held && self.book.apparent(shard, at.now) == Step::TakeOver;
        if !expired || self.seats.contains_key(&shard) || !self.is_free(target, at.now, turn) {
            return;
        }
        match self.tenure(target).step(at.now) {
            Step::Look => self.look(target, self.terms.attempt, at.now, turn),
            Step::TakeOver => self.write(target, Writing::Retire, None, self.terms.attempt, at, turn),
            Step::Create | Step::Reclaim | Step::Release | Step::WaitUntil(_) | Step::Follow => {}
        }
    }

    /// A shard that may name us although we do not hold it, and did not just claim it, is given back: a write took
    /// effect whose answer was lost or came too late.
    pub(super) fn undo_strays(&mut self, now: Instant, turn: &mut Turn) {
        let strays: Vec<ShardId> = self
            .book
            .shards
            .iter()
            .filter(|(shard, entry)| entry.tenure.may_hold() && !self.seats.contains_key(*shard))
            .map(|(shard, _)| *shard)
            .collect();
        for shard in strays {
            if self.is_free(Target::Shard(shard), now, turn) {
                let stage = Stage::Releasing { written: None, since: now, begun: now };
                self.seats.insert(shard, Seat { generation: 0, ranges: Ranges::none(), stage });
            }
        }
    }

    /// Gives back what the owner has ended its work on.
    pub(super) fn give_back(&mut self, at: &Moment, turn: &mut Turn) {
        let now = at.now;
        for shard in self.seats.keys().copied().collect::<Vec<_>>() {
            let Some(Seat { stage: Stage::Releasing { written, begun, .. }, .. }) = self.seats.get(&shard)
            else {
                continue;
            };
            let within = self.terms.renew_deadline;
            let until = *begun + within;
            let (written, target) = (written.clone(), Target::Shard(shard));
            if now >= until {
                self.finish(shard, Err(ElectionError::ReleaseTimedOut { within }), now);
                continue;
            }
            turn.wait(until);
            let attempt = self.terms.attempt.min(until.saturating_duration_since(now));
            let tenure = self.tenure(target);
            let (may_hold, stale, ours) = (tenure.may_hold(), tenure.is_stale(), tenure.is_ours());
            if !may_hold {
                self.finish(shard, Ok(()), now);
            } else if self.is_free(target, now, turn) {
                match (stale, ours) {
                    (true, _) => self.look(target, attempt, now, turn),
                    (false, true) => {
                        self.write(target, Writing::Release, written.as_ref(), attempt, at, turn);
                    }
                    (false, false) => {
                        self.tenure(target).settled();
                        self.finish(shard, Ok(()), now);
                    }
                }
            }
        }
    }

    /// Deletes memberships that have ended: the holder of shard 0 does, so that not everybody tries.
    pub(super) fn sweep(&mut self, now: Instant, turn: &mut Turn) {
        if !self.is_open(ShardId(0)) || !self.is_fresh(now) || !self.is_free(Target::Sweep, now, turn) {
            return;
        }
        let over = self.book.others.values().find_map(|view| {
            let seen = view.seen()?;
            let left_lying = match seen.record.holder {
                Some(_) => seen.record.duration(self.terms.lease_duration) * SWEPT_AFTER,
                None => self.terms.retry_period,
            };
            (now >= seen.changed_at + left_lying).then(|| seen.lease.clone())
        });
        // Known until it is gone: one that was forgotten and is listed again would look as if it lived.
        if let Some(lease) = over {
            self.send(Target::Sweep, Request::Delete(Box::new(lease)), self.terms.attempt, now, turn);
        }
    }
}
