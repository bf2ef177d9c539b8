//! Options of an add: priority and delay.

use std::time::Duration;

/// Priority of a key. Higher numbers are dequeued first; keys of one priority in the order in which they became ready.
/// Any number is valid, but each level in use costs a check per get, so use few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub i32);

impl Priority {
    /// For requests that a user waits for. Precedes all automatic work.
    pub const HIGH: Priority = Priority(100);

    /// For changes of objects.
    pub const NORMAL: Priority = Priority(0);

    /// For work without urgency: initial lists, resyncs. The number is the same as in controller-runtime.
    pub const LOW: Priority = Priority(-100);
}

/// Options for [`Queue::add_with`](crate::Queue::add_with): priority and delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// Priority of the key.
    pub priority: Priority,
    /// Time at which the key is enqueued.
    pub when: AddDelay,
}

/// Time at which a key is enqueued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddDelay {
    /// Immediately.
    #[default]
    Now,
    /// After this delay, or at the earlier time at which the key is already due.
    After(Duration),
    /// When the limiter allows. Counts as an attempt.
    RateLimited,
    /// When the per-key limit allows, or after this time at the latest. Counts as an attempt, and uses no budget that
    /// keys share. For keys that wait for a condition outside of their control.
    RateLimitedPerKey(Duration),
    /// After this delay, at least 5 ms. Counts as an attempt, and uses no budget that keys share. For keys that failed
    /// with a retry delay from the server.
    RetryAfter(Duration),
}

impl AddOptions {
    /// Returns options for an immediate add with normal priority.
    pub fn now() -> AddOptions {
        AddOptions::default()
    }

    /// Returns options for an add after `delay`, with normal priority.
    pub fn after(delay: Duration) -> AddOptions {
        AddOptions { when: AddDelay::After(delay), ..AddOptions::default() }
    }

    /// Returns options for an add when the limiter allows, with normal priority.
    pub fn rate_limited() -> AddOptions {
        AddOptions { when: AddDelay::RateLimited, ..AddOptions::default() }
    }

    /// Returns options for an add when the per-key limit allows, after `max` at the latest, with normal priority.
    pub fn rate_limited_per_key(max: Duration) -> AddOptions {
        AddOptions { when: AddDelay::RateLimitedPerKey(max), ..AddOptions::default() }
    }

    /// Returns options for a retry after `delay`, counted as an attempt, with normal priority.
    pub fn retry_after(delay: Duration) -> AddOptions {
        AddOptions { when: AddDelay::RetryAfter(delay), ..AddOptions::default() }
    }

    /// Returns the same options with another priority.
    #[must_use]
    pub fn priority(self, priority: Priority) -> AddOptions {
        AddOptions { priority, ..self }
    }
}
