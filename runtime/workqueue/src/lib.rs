//! A fair, deduplicating work queue with delays and rate limits. It does not depend on Kubernetes.
//!
//! Guarantees (`docs/guarantees.md` lists conditions, limits and tests):
//! - Two workers never process the same key at the same time.
//! - An add during processing is not lost: the key is processed again when its worker is done.
//! - Adds before processing are merged into one.
//! - Keys of one priority and tenant are dequeued in the order in which they became ready (FIFO).
//! - A higher priority is dequeued first, and a low priority is never starved: see [Dequeue order](#dequeue-order).
//! - An add with a higher priority raises a waiting key. The priority of an add during processing applies when the key
//!   is requeued.
//! - One tenant cannot starve another: the queue serves tenants in turn ([`Queue::fair_by`]).
//! - Add, get and done do not allocate in steady state, if cloning a key does not. (A [`Queue::get`] that waits for a
//!   delayed or resting key allocates its timer.)
//! - A delayed add keeps the earliest of the requested times, and can be canceled.
//! - A key with a [rest](Item::rest) that is added during its processing or its rest is dequeued again when the rest is
//!   over, not before, and no add of it is lost. A delayed add that becomes due during the rest ends it.
//! - A parked key is not dequeued until it is released or added. It then has the highest priority of its adds.
//! - After the queue shuts down, queued keys are still dequeued, even if the worker that processed the key before has
//!   exited. Draining completes only when no key is queued or in progress.
//! - With [`default_limiter`], each failing key delays the retry of another key by at most one slot (100 ms), and all
//!   of them by at most 1000 s. They do not delay keys with a per-key limit, see
//!   [`AddOptions::rate_limited_per_key`].
//! - An [`Item`] releases its key when it is dropped, so neither a panic nor a canceled worker can leak a key.
//! - A canceled [`Queue::get`] or [`Item::get_next`] loses no key: the next waiting call receives it.
//!
//! The queue has no background task. A call of [`Queue::get`] that waits also waits for the earliest delayed key. Each
//! call first moves the keys whose delay has expired, so order and metrics are the same as with a task.
//!
//! # Two kinds of delay
//! [`Queue::add_after`] creates a *scheduled add*: the caller needs a run at that time. If there are several, the
//! earliest time applies. [`Queue::add_rate_limited`] requests a *retry*: a run as soon as the limiter allows. An
//! immediate add replaces a pending retry, because its run happens earlier. It does not replace a scheduled add,
//! because a run that starts now cannot observe later changes. If a key has both, the earlier time applies, and the
//! delay counts as a scheduled add.
//!
//! # Parked keys
//! A worker whose key must wait for a condition other than time [parks](Item::park) the key, with a reason. The code
//! that observes the end of the condition [releases](Queue::release) the key. Each add of a parked key enqueues it as
//! well, because the add can end the condition; the next worker decides again.
//!
//! A release affects only the keys that are already parked. A worker therefore parks its key first and then checks that
//! the reason still holds. If not, it releases the key itself.
//!
//! # Dequeue order
//! A worker receives a key of the highest priority that has keys. Within a priority, the queue serves tenants in turn.
//! Within a tenant, the order is FIFO. A raised key goes to the back of its new priority.
//!
//! Priorities are strict for 10 s. After that time, the next key of a lower priority claims every eighth turn while a
//! higher priority has keys. If several priorities have such a claim, the one whose next key has waited longest is
//! served first. A key of low priority therefore waits for 10 s, and then for at most eight turns per key before it
//! that has waited as long. The higher priority keeps seven of eight turns, regardless of the number of old keys with a
//! lower priority. A raised key keeps its age, but younger keys can precede it, so it can wait for another 10 s.
//! Likewise, a tenant whose next key is raised uses its turn, and can delay the tenants after it by up to 10 s and
//! seven turns.
//!
//! The queue has no length limit and no batch dequeue. An add never waits and never fails.

mod add;
mod delays;
mod drain_future;
mod drain_waiters;
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
