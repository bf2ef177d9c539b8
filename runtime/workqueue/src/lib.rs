//! Fair, deduplicating, delayed, rate-limited work. Knows nothing of Kubernetes.
//!
//! Guarantees (`docs/guarantees.md` lists conditions, limits and tests):
//! - A key is never handed to two workers at once.
//! - An add during processing is not lost: the key runs once more when its worker is done.
//! - Adds before processing collapse into one.
//! - Keys of one priority and tenant come in the order in which they became ready: first in, first out.
//! - A higher priority comes first, and a low one is never starved: see [Dequeue order](#dequeue-order).
//! - A waiting key is raised by an add with a higher priority; the priority of an add during processing is kept for
//!   the key's next turn.
//! - One tenant cannot starve another: tenants take turns ([`Queue::fair_by`]).
//! - No allocation per add, get and done in steady state, if the key's clone makes none. (A [`Queue::get`] that must
//!   wait for a delayed key makes one, for its timer.)
//! - A delayed add keeps the earliest of the times asked for, and can be cancelled.
//! - A parked key is not handed out until it is released or added, and is then as urgent as the most urgent of its adds.
//! - Draining ends only when nothing is queued and nothing is in flight, and what is queued when the queue shuts down
//!   is still handed out, also when the worker that held it is gone.
//! - By [`default_limiter`], failing keys delay the retry of another key by at most one slot each (100 ms) and 1000 s in
//!   all, and keys that are limited on their own ([`AddOptions::rate_limited_per_key`]) by nothing.
//! - An [`Item`] releases its key when it is dropped, so neither a panic nor a cancelled worker can leak one.
//! - A cancelled [`Queue::get`] takes nothing with it: the key goes to the next who waits.
//!
//! There is no background task. Whoever waits in [`Queue::get`] also waits for the earliest delayed key, and every
//! call first moves the keys that have come due, so that order and metrics are as if a task had done it on time.
//!
//! # Two kinds of delay
//! [`Queue::add_after`] makes an *appointment*: somebody wants a run at that time or, when several ask, at the earliest
//! of their times. [`Queue::add_rate_limited`] asks for a *retry*: a run as soon as the limiter allows. An immediate
//! add supersedes a pending retry, whose run it brings forward, and leaves an appointment standing, because a run
//! that starts now cannot see what the world will look like then. Where a key has both, the earlier time counts and
//! the appointment's rule applies.
//!
//! # Parked keys
//! A worker that finds that its key must wait for something else than time [parks](Item::park) the key, with a reason.
//! The code that observes the end of the reason [releases](Queue::release) the key. Every add of a parked key queues it as
//! well, because the add can be the end of the reason; the next worker decides again.
//!
//! A release finds the keys that are parked by then. A worker therefore parks its key first, and then checks that the
//! reason still holds; if not, it releases the key itself.
//!
//! # Dequeue order
//! A worker receives a key of the highest priority that has keys. Within a priority, tenants take turns. Within a tenant,
//! the key that became ready first comes first. A key that is raised goes to the back of its new priority.
//!
//! Priorities are strict for 10 s. Once the next key of a lower priority has waited longer, while a higher one has keys
//! too, that priority receives every eighth turn. Of several such priorities, the one whose next key has waited longest
//! comes first. So a key of low priority waits for 10 s, and then for at most eight turns per key before it that has
//! waited as long. The higher priority keeps seven turns in eight, however many old keys the lower one has. A key that is
//! raised keeps its age, but younger keys can precede it, so it can wait for another 10 s. Likewise, a tenant whose next key
//! is raised uses its turn, and can delay the tenants after it by up to 10 s and seven turns.
//!
//! What it refuses: bounded length, and workers that get several keys at once. An add never waits and never fails.

mod add;
mod delays;
mod drained;
mod drainers;
mod getter;
mod key;
mod key_status;
mod limiter;
mod meter;
mod park;
mod queue;
mod schedule;
mod shared;
mod slots;
mod state;
mod sync;
mod tenants;
#[cfg(test)]
mod tests;
mod waiters;

pub use crate::add::{AddDelay, AddOptions, Priority};
pub use crate::key::Key;
pub use crate::key_status::{Delayed, KeyStatus, Queued};
pub use crate::limiter::{Exponential, RateLimiter, TokenBucket, default_limiter, per_key_limiter};
pub use crate::park::{ParkReason, Parked};
pub use crate::queue::{Item, Queue};
