//! Whose turn it is among the keys that wait: pure, over the numbers of slots and tenants.
//!
//! A *level* holds the keys of one priority, a *lane* those of one tenant in one level, first in, first out. The lanes
//! of a level form a ring and take turns. The highest level that has keys is served. A lower one whose next key has
//! waited for [`AGED_AFTER`] is served every [`AGED_SHARE`]th turn, so that it does not starve. A next key that is raised is
//! its tenant's turn, so that no tenant whose keys are raised starves another one.

use std::time::Duration;

use windlass_env::Instant;

use crate::slots::NONE;
use crate::{Priority, Queued};

/// How long a level's next key waits before the level claims turns. Ten seconds cover the bursts that priorities exist
/// for, and are short compared with the minutes after which users notice a delay.
pub(crate) const AGED_AFTER: Duration = Duration::from_secs(10);

/// A claim is granted every so many turns: a small part of the workers, and enough for progress.
pub(crate) const AGED_SHARE: u32 = 8;

/// How many levels are kept when they are empty.
const LEVELS_KEPT: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// By slot.
    links: Vec<Link>,
    lanes: Vec<TenantQueue>,
    /// By tenant: its first lane.
    first_lanes: Vec<usize>,
    /// The highest priority first.
    levels: Vec<PriorityLevel>,
    ready: usize,
    /// How many turns in a row have passed over a claim.
    passed_over: u32,
}

/// A key's place in its lane.
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
    /// Neighbors in the ring of its level, while it has keys.
    before: usize,
    after: usize,
    /// The next lane of the same tenant.
    sibling: usize,
}

#[derive(Debug)]
struct PriorityLevel {
    priority: Priority,
    /// The lane that is served next.
    current: usize,
    ready: usize,
}

/// Whose turn it is. Valid until the schedule changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextKey {
    level: usize,
    passed_over: u32,
    pub(crate) slot: usize,
}

/// A key that has waited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedEntry {
    pub(crate) added: Instant,
    pub(crate) priority: Priority,
}

impl Schedule {
    /// How many keys wait.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// How many keys wait with each priority, the highest first. Levels that have emptied may still show.
    pub(crate) fn depths(&self) -> impl Iterator<Item = (Priority, usize)> {
        self.levels.iter().map(|level| (level.priority, level.ready))
    }

    /// Puts the key in `slot` at the back of its tenant's lane.
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

    /// Moves a waiting key to the back of a higher level; one that is as high already stays where it is. Returns
    /// whether it moved. It keeps its age.
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

    /// A waiting key waits no more.
    pub(crate) fn withdraw(&mut self, slot: usize) {
        let level = self.level(self.lanes[self.links[slot].lane].priority);
        self.unlink(level, slot);
    }

    /// Since when a waiting key waits, and how urgently.
    pub(crate) fn waiting(&self, slot: usize) -> Queued {
        let Link { added, lane, .. } = self.links[slot];
        Queued { since: added, priority: self.lanes[lane].priority }
    }

    /// Whose turn it is at `now`.
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

    /// Takes the key whose turn it is out of its lane.
    #[inline]
    pub(crate) fn take(&mut self, turn: NextKey) -> QueuedEntry {
        let NextKey { level, passed_over, slot } = turn;
        let Link { added, lane, .. } = self.links[slot];
        self.passed_over = passed_over;
        self.unlink(level, slot);
        self.pass(level, lane);
        QueuedEntry { added, priority: self.lanes[lane].priority }
    }

    /// A lane that still has keys has had its turn.
    #[inline]
    fn pass(&mut self, level: usize, lane: usize) {
        if self.lanes[lane].head != NONE {
            self.levels[level].current = self.lanes[lane].after;
        }
    }

    /// The level below `top` whose next key has waited longest, if that is long enough.
    fn claim(&self, top: usize, now: Instant) -> Option<usize> {
        let below = self.levels.iter().enumerate().skip(top + 1).filter(|(_, level)| level.ready > 0);
        let aged = below.map(|(level, _)| (self.links[self.next_of(level)].added, level));
        let (added, level) = aged.min()?;
        (now - added >= AGED_AFTER).then_some(level)
    }

    /// The key that a level hands out next.
    #[inline]
    fn next_of(&self, level: usize) -> usize {
        self.lanes[self.levels[level].current].head
    }

    /// Takes a key out of its lane, and the lane out of the ring when it was the last.
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

    /// A lane that has got its first key is served when all others have been.
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

    /// The lane of a tenant's keys of one priority. An empty one may change its priority, so that a tenant has no
    /// more lanes than it ever had priorities at once.
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

    /// The level of a priority, made if there is none.
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
