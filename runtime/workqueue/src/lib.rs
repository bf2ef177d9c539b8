//! Fair, deduplicating, delayed, rate-limited work. Knows nothing of Kubernetes.
//!
//! Guarantees (`docs/guarantees.md` lists conditions, limits and tests):
//! - A key is never handed to two workers at once.
//! - An add during processing is not lost: the key runs once more when its worker is done.
//! - Adds before processing collapse into one.
//! - Keys of one priority and tenant come in the order in which they became ready: first in, first out.
//! - A higher priority comes first, and a low one is never starved: it ages ([`Ageing`]).
//! - A waiting key is raised by an add with a higher priority; the priority of an add during processing is kept for
//!   the key's next turn.
//! - One tenant cannot starve another: tenants have turns by weight ([`Tenancy`]).
//! - No allocation per add, get and done in steady state, if the key's clone makes none. (A [`Queue::get`] that must
//!   wait for a delayed key makes one, for its timer.)
//! - A delayed add keeps the earliest of the times asked for, and can be cancelled.
//! - A parked key is not handed out until it is released or added, and is then as urgent as the most urgent of its adds.
//! - Draining ends only when nothing is queued and nothing is in flight, and what is queued when the queue shuts down
//!   is still handed out, also when the worker that held it is gone.
//! - By [`default_limiter`], failing keys delay the retry of another key by at most one slot each (100 ms) and 1000 s in
//!   all, and keys that are limited on their own ([`Add::rate_limited_per_key`]) by nothing.
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
//! # Whose turn it is
//! The highest priority that has keys, unless a lower one claims the turn by its age; within the priority, the tenant
//! whose turn it is; within the tenant, the key that became ready first. A key that is raised goes to the back of its
//! new priority but keeps its age.
//!
//! What it refuses: bounded length, and workers that get several keys at once. An add never waits and never fails.

mod add;
mod delays;
mod drained;
mod drainers;
mod getter;
mod key;
mod limiter;
mod meter;
mod options;
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
mod whereabouts;

pub use crate::add::{Add, Priority, When};
pub use crate::key::Key;
pub use crate::limiter::{
    Bucket, Exponential, FastSlow, MaxOf, MaxWait, RateLimiter, default_limiter, per_key_limiter,
};
pub use crate::options::{Ageing, QueueOptions, Tenancy};
pub use crate::park::{ParkReason, Parked};
pub use crate::queue::{Item, Queue};
pub use crate::whereabouts::{Due, Waiting, Whereabouts};
