//! Dequeue order of the queued keys. Pure code over slot and tenant numbers.
//!
//! A *level* holds the keys of one priority. A *lane* holds the keys of one tenant in one level, first in, first out.
//! The lanes of a level form a ring and are served in turn. The highest level that has keys is served. A lower level
//! whose next key has waited for [`AGED_AFTER`] is served every [`AGED_SHARE`]th turn, so that it does not starve.
//! Raising the next key of a tenant uses its turn, so that a tenant whose keys are raised cannot starve another tenant.

use std::time::Duration;

use windlass_env::Instant;

use crate::slots::NONE;
use crate::{Priority, Queued};

/// Waiting time after which the next key of a level claims turns. Ten seconds cover the bursts that priorities are made
/// for, and are short compared with the minutes after which users notice a delay.
pub(crate) const AGED_AFTER: Duration = Duration::from_secs(10);

/// Share of the turns that a claim receives: one of this number. Small enough to leave most workers to the highest
/// level.
pub(crate) const AGED_SHARE: u32 = 8;

/// Number of levels that are kept when they are empty.
const LEVELS_KEPT: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// By slot.
    links: Vec<Link>,
    lanes: Vec<TenantQueue>,
    /// By tenant: its first lane.
    first_lanes: Vec<usize>,
    /// Highest priority first.
    levels: Vec<PriorityLevel>,
    ready: usize,
    /// Number of consecutive turns that skipped a claim.
    passed_over: u32,
}

/// Links of a key in its lane.
#[derive(Clone, Copy, Debug)]
struct Link {
    added: Instant,
    lane: usize,
    previous: usize,
    next: usize,
}

#[derive(Debug)]
struct TenantQueue {
    priority: Priority,
    tenant: usize,
    head: usize,
    tail: usize,
    /// Neighbors in the ring of the level, while this lane has keys.
    before: usize,
    after: usize,
    /// Next lane of the same tenant.
    sibling: usize,
}

#[derive(Debug)]
struct PriorityLevel {
    priority: Priority,
    /// Lane that is served next.
    current: usize,
    ready: usize,
}

/// Next key to dequeue. Valid until the schedule changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextKey {
    level: usize,
    passed_over: u32,
    pub(crate) slot: usize,
}

/// Queued key that was removed from the schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedEntry {
    pub(crate) added: Instant,
    pub(crate) priority: Priority,
}

impl Schedule {
    /// Returns the number of queued keys.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// Returns the number of queued keys by priority, the highest first. Can contain levels that are empty now.
    pub(crate) fn depths(&self) -> impl Iterator<Item = (Priority, usize)> {
        self.levels.iter().map(|level| (level.priority, level.ready))
    }

    /// Appends the key in `slot` to its tenant's lane.
    #[inline]
    pub(crate) fn push(&mut self, slot: usize, tenant: usize, priority: Priority, added: Instant) {
        let lane = self.lane(tenant, priority);
        let (level, tail) = (self.level(priority), self.lanes[lane].tail);
        let link = Link { added, lane, previous: tail, next: NONE };
        if slot < self.links.len() {
            self.links[slot] = link;
        } else {
            self.links.resize(slot + 1, link);
        }
        self.lanes[lane].tail = slot;
        if tail == NONE {
            self.lanes[lane].head = slot;
            self.join(level, lane);
        } else {
            self.links[tail].next = slot;
        }
        self.levels[level].ready += 1;
        self.ready += 1;
    }

    /// Moves a queued key to the back of a higher level and returns whether it moved. A key of this or a higher
    /// priority stays in its position. The key keeps its age.
    pub(crate) fn raise(&mut self, slot: usize, priority: Priority) -> bool {
        let Link { added, lane, .. } = self.links[slot];
        if self.lanes[lane].priority >= priority {
            return false;
        }
        let tenant = self.lanes[lane].tenant;
        let level = self.level(self.lanes[lane].priority);
        let is_next = self.next_of(level) == slot;
        self.unlink(level, slot);
        if is_next {
            self.pass(level, lane);
        }
        self.push(slot, tenant, priority, added);
        true
    }

    /// Removes a queued key.
    pub(crate) fn withdraw(&mut self, slot: usize) {
        let level = self.level(self.lanes[self.links[slot].lane].priority);
        self.unlink(level, slot);
    }

    /// Returns the enqueue time and the priority of a queued key.
    pub(crate) fn waiting(&self, slot: usize) -> Queued {
        let Link { added, lane, .. } = self.links[slot];
        Queued { since: added, priority: self.lanes[lane].priority }
    }

    /// Returns the key to dequeue at `now`.
    #[inline]
    pub(crate) fn turn(&self, now: Instant) -> Option<NextKey> {
        let top = self.levels.iter().position(|level| level.ready > 0)?;
        let claim = if self.levels[top].ready < self.ready { self.claim(top, now) } else { None };
        let (level, passed_over) = match claim {
            Some(level) if self.passed_over + 1 >= AGED_SHARE => (level, 0),
            Some(_) => (top, self.passed_over + 1),
            None => (top, 0),
        };
        Some(NextKey { level, passed_over, slot: self.next_of(level) })
    }

    /// Removes the key from its lane.
    #[inline]
    pub(crate) fn take(&mut self, turn: NextKey) -> QueuedEntry {
        let NextKey { level, passed_over, slot } = turn;
        let Link { added, lane, .. } = self.links[slot];
        self.passed_over = passed_over;
        self.unlink(level, slot);
        self.pass(level, lane);
        QueuedEntry { added, priority: self.lanes[lane].priority }
    }

    /// Ends the turn of a lane that still has keys.
    #[inline]
    fn pass(&mut self, level: usize, lane: usize) {
        if self.lanes[lane].head != NONE {
            self.levels[level].current = self.lanes[lane].after;
        }
    }

    /// Returns the level below `top` whose next key has waited longest, if it has waited for [`AGED_AFTER`].
    fn claim(&self, top: usize, now: Instant) -> Option<usize> {
        let below = self.levels.iter().enumerate().skip(top + 1).filter(|(_, level)| level.ready > 0);
        let aged = below.map(|(level, _)| (self.links[self.next_of(level)].added, level));
        let (added, level) = aged.min()?;
        (now - added >= AGED_AFTER).then_some(level)
    }

    /// Returns the key that a level serves next.
    #[inline]
    fn next_of(&self, level: usize) -> usize {
        self.lanes[self.levels[level].current].head
    }

    /// Removes a key from its lane, and an empty lane from the ring.
    #[inline]
    fn unlink(&mut self, level: usize, slot: usize) {
        let Link { lane, previous, next, .. } = self.links[slot];
        match previous {
            NONE => self.lanes[lane].head = next,
            _ => self.links[previous].next = next,
        }
        match next {
            NONE => self.lanes[lane].tail = previous,
            _ => self.links[next].previous = previous,
        }
        self.levels[level].ready -= 1;
        self.ready -= 1;
        if self.lanes[lane].head == NONE {
            self.leave(level, lane);
        }
    }

    /// Adds a lane with its first key to the ring, behind all others.
    #[inline]
    fn join(&mut self, level: usize, lane: usize) {
        let current = self.levels[level].current;
        let (before, after) = match current {
            NONE => (lane, lane),
            _ => (self.lanes[current].before, current),
        };
        let joining = &mut self.lanes[lane];
        (joining.before, joining.after) = (before, after);
        self.lanes[before].after = lane;
        self.lanes[after].before = lane;
        if current == NONE {
            self.levels[level].current = lane;
        }
    }

    #[inline]
    fn leave(&mut self, level: usize, lane: usize) {
        let TenantQueue { before, after, .. } = self.lanes[lane];
        self.lanes[before].after = after;
        self.lanes[after].before = before;
        let current = &mut self.levels[level].current;
        if after == lane {
            *current = NONE;
        } else if *current == lane {
            *current = after;
        }
    }

    /// Returns the lane for a tenant and a priority. Empty lanes are reused with another priority, so that a tenant has
    /// no more lanes than it had priorities at the same time.
    #[inline]
    fn lane(&mut self, tenant: usize, priority: Priority) -> usize {
        if tenant >= self.first_lanes.len() {
            self.first_lanes.resize(tenant + 1, NONE);
        }
        let (mut lane, mut empty) = (self.first_lanes[tenant], NONE);
        while lane != NONE && self.lanes[lane].priority != priority {
            if self.lanes[lane].head == NONE {
                empty = lane;
            }
            lane = self.lanes[lane].sibling;
        }
        let found = if lane == NONE { empty } else { lane };
        if found == NONE {
            return self.open(tenant, priority);
        }
        if self.lanes[found].head == NONE {
            self.lanes[found].priority = priority;
        }
        found
    }

    fn open(&mut self, tenant: usize, priority: Priority) -> usize {
        let sibling = std::mem::replace(&mut self.first_lanes[tenant], self.lanes.len());
        self.lanes.push(TenantQueue {
            priority,
            tenant,
            head: NONE,
            tail: NONE,
            before: NONE,
            after: NONE,
            sibling,
        });
        self.lanes.len() - 1
    }

    /// Returns the level of a priority, and creates it if necessary.
    #[inline]
    fn level(&mut self, priority: Priority) -> usize {
        let place = |levels: &[PriorityLevel]| levels.binary_search_by(|level| priority.cmp(&level.priority));
        if let Ok(found) = place(&self.levels) {
            return found;
        }
        if self.levels.len() >= LEVELS_KEPT {
            self.levels.retain(|level| level.ready > 0);
        }
        let at = place(&self.levels).unwrap_or_else(|at| at);
        self.levels.insert(at, PriorityLevel { priority, current: NONE, ready: 0 });
        at
    }
}
