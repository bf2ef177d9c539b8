//! Dequeue order of the queued keys. Pure code over slot and tenant numbers.
//!
//! A *level* holds the keys of one priority. A *queue* holds the keys of one tenant in one level, first in, first out.
//! The queues of a level form a ring and are served in turn. The highest level that has keys is served. A lower level
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
const MAX_IDLE_LEVELS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// By slot.
    links: Vec<Link>,
    queues: Vec<TenantQueue>,
    /// By tenant: its first queue.
    first_queues: Vec<usize>,
    /// Highest priority first.
    levels: Vec<PriorityLevel>,
    ready: usize,
    /// Number of consecutive turns that skipped a claim.
    skipped_claims: u32,
}

/// Links of a key in its queue.
#[derive(Clone, Copy, Debug)]
struct Link {
    added: Instant,
    queue: usize,
    previous: usize,
    next: usize,
}

#[derive(Debug)]
struct TenantQueue {
    priority: Priority,
    tenant: usize,
    head: usize,
    tail: usize,
    /// Neighbors in the ring of the level, while this queue has keys.
    before: usize,
    after: usize,
    /// Next queue of the same tenant.
    sibling: usize,
}

#[derive(Debug)]
struct PriorityLevel {
    priority: Priority,
    /// Queue that is served next.
    current: usize,
    ready: usize,
}

/// Next key to dequeue. Valid until the schedule changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextKey {
    level: usize,
    skipped_claims: u32,
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

    /// Appends the key in `slot` to its tenant's queue.
    #[inline]
    pub(crate) fn push(&mut self, slot: usize, tenant: usize, priority: Priority, added: Instant) {
        let queue = self.queue_for(tenant, priority);
        let (level, tail) = (self.level(priority), self.queues[queue].tail);
        let link = Link { added, queue, previous: tail, next: NONE };
        if slot < self.links.len() {
            self.links[slot] = link;
        } else {
            self.links.resize(slot + 1, link);
        }
        self.queues[queue].tail = slot;
        if tail == NONE {
            self.queues[queue].head = slot;
            self.link_queue(level, queue);
        } else {
            self.links[tail].next = slot;
        }
        self.levels[level].ready += 1;
        self.ready += 1;
    }

    /// Moves a queued key to the back of a higher level and returns whether it moved. A key of this or a higher
    /// priority stays in its position. The key keeps its age.
    pub(crate) fn raise(&mut self, slot: usize, priority: Priority) -> bool {
        let Link { added, queue, .. } = self.links[slot];
        if self.queues[queue].priority >= priority {
            return false;
        }
        let tenant = self.queues[queue].tenant;
        let level = self.level(self.queues[queue].priority);
        let is_next = self.next_of(level) == slot;
        self.unlink(level, slot);
        if is_next {
            self.pass(level, queue);
        }
        self.push(slot, tenant, priority, added);
        true
    }

    /// Removes a queued key.
    pub(crate) fn remove(&mut self, slot: usize) {
        let level = self.level(self.queues[self.links[slot].queue].priority);
        self.unlink(level, slot);
    }

    /// Returns the enqueue time and the priority of a queued key.
    pub(crate) fn queued(&self, slot: usize) -> Queued {
        let Link { added, queue, .. } = self.links[slot];
        Queued { since: added, priority: self.queues[queue].priority }
    }

    /// Returns the key to dequeue at `now`.
    #[inline]
    pub(crate) fn next_key(&self, now: Instant) -> Option<NextKey> {
        let top = self.levels.iter().position(|level| level.ready > 0)?;
        let claim = if self.levels[top].ready < self.ready { self.claim(top, now) } else { None };
        let (level, skipped_claims) = match claim {
            Some(level) if self.skipped_claims + 1 >= AGED_SHARE => (level, 0),
            Some(_) => (top, self.skipped_claims + 1),
            None => (top, 0),
        };
        Some(NextKey { level, skipped_claims, slot: self.next_of(level) })
    }

    /// Removes the key from its queue.
    #[inline]
    pub(crate) fn take(&mut self, next_key: NextKey) -> QueuedEntry {
        let NextKey { level, skipped_claims, slot } = next_key;
        let Link { added, queue, .. } = self.links[slot];
        self.skipped_claims = skipped_claims;
        self.unlink(level, slot);
        self.pass(level, queue);
        QueuedEntry { added, priority: self.queues[queue].priority }
    }

    /// Ends the turn of a queue that still has keys.
    #[inline]
    fn pass(&mut self, level: usize, queue: usize) {
        if self.queues[queue].head != NONE {
            self.levels[level].current = self.queues[queue].after;
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
        self.queues[self.levels[level].current].head
    }

    /// Removes a key from its queue, and an empty queue from the ring.
    #[inline]
    fn unlink(&mut self, level: usize, slot: usize) {
        let Link { queue, previous, next, .. } = self.links[slot];
        match previous {
            NONE => self.queues[queue].head = next,
            _ => self.links[previous].next = next,
        }
        match next {
            NONE => self.queues[queue].tail = previous,
            _ => self.links[next].previous = previous,
        }
        self.levels[level].ready -= 1;
        self.ready -= 1;
        if self.queues[queue].head == NONE {
            self.unlink_queue(level, queue);
        }
    }

    /// Adds a queue with its first key to the ring, behind all others.
    #[inline]
    fn link_queue(&mut self, level: usize, queue: usize) {
        let current = self.levels[level].current;
        let (before, after) = match current {
            NONE => (queue, queue),
            _ => (self.queues[current].before, current),
        };
        let joining = &mut self.queues[queue];
        (joining.before, joining.after) = (before, after);
        self.queues[before].after = queue;
        self.queues[after].before = queue;
        if current == NONE {
            self.levels[level].current = queue;
        }
    }

    #[inline]
    fn unlink_queue(&mut self, level: usize, queue: usize) {
        let TenantQueue { before, after, .. } = self.queues[queue];
        self.queues[before].after = after;
        self.queues[after].before = before;
        let current = &mut self.levels[level].current;
        if after == queue {
            *current = NONE;
        } else if *current == queue {
            *current = after;
        }
    }

    /// Returns the queue for a tenant and a priority. Empty queues are reused with another priority, so that a tenant
    /// has no more queues than it had priorities at the same time.
    #[inline]
    fn queue_for(&mut self, tenant: usize, priority: Priority) -> usize {
        if tenant >= self.first_queues.len() {
            self.first_queues.resize(tenant + 1, NONE);
        }
        let (mut queue, mut empty) = (self.first_queues[tenant], NONE);
        while queue != NONE && self.queues[queue].priority != priority {
            if self.queues[queue].head == NONE {
                empty = queue;
            }
            queue = self.queues[queue].sibling;
        }
        let found = if queue == NONE { empty } else { queue };
        if found == NONE {
            return self.open(tenant, priority);
        }
        if self.queues[found].head == NONE {
            self.queues[found].priority = priority;
        }
        found
    }

    fn open(&mut self, tenant: usize, priority: Priority) -> usize {
        let sibling = std::mem::replace(&mut self.first_queues[tenant], self.queues.len());
        self.queues.push(TenantQueue {
            priority,
            tenant,
            head: NONE,
            tail: NONE,
            before: NONE,
            after: NONE,
            sibling,
        });
        self.queues.len() - 1
    }

    /// Returns the level of a priority, and creates it if necessary.
    #[inline]
    fn level(&mut self, priority: Priority) -> usize {
        let place = |levels: &[PriorityLevel]| levels.binary_search_by(|level| priority.cmp(&level.priority));
        if let Ok(found) = place(&self.levels) {
            return found;
        }
        if self.levels.len() >= MAX_IDLE_LEVELS {
            self.levels.retain(|level| level.ready > 0);
        }
        let at = place(&self.levels).unwrap_or_else(|at| at);
        self.levels.insert(at, PriorityLevel { priority, current: NONE, ready: 0 });
        at
    }
}
