//! How a key is to be queued: how urgently, and when.

use std::time::Duration;

/// How urgent a key is. A higher number comes first; keys of one priority come in the order in which they became
/// ready. Any number will do, but every level in use costs a look per get: use few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub i32);

impl Priority {
    /// Before everything that comes by itself: what somebody is waiting for.
    pub const HIGH: Priority = Priority(100);

    /// Changes as they happen.
    pub const NORMAL: Priority = Priority(0);

    /// What nobody waits for: initial lists, resyncs. The number is controller-runtime's.
    pub const LOW: Priority = Priority(-100);
}

/// How a key is to be queued, for [`Queue::add_with`](crate::Queue::add_with).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// How urgent it is.
    pub priority: Priority,
    /// When it is to be queued.
    pub when: AddDelay,
}

/// When a key is to be queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddDelay {
    /// Now.
    #[default]
    Now,
    /// Once this long has passed, or at the earlier time at which it is due already.
    After(Duration),
    /// As soon as the limiter allows. Counts as an attempt.
    RateLimited,
    /// As soon as the key's own failures allow, and after this long at the latest. Counts as an attempt, and draws on
    /// nothing that keys share: for a key that waits for something that is no fault of its own.
    RateLimitedPerKey(Duration),
    /// Once this long has passed, at least 5 ms. Counts as an attempt, and draws on nothing that keys share: for a key
    /// that failed and whose server said when to try again.
    RetryAfter(Duration),
}

impl AddOptions {
    /// At once, with normal priority.
    pub fn now() -> AddOptions {
        AddOptions::default()
    }

    /// After `delay`, with normal priority.
    pub fn after(delay: Duration) -> AddOptions {
        AddOptions { when: AddDelay::After(delay), ..AddOptions::default() }
    }

    /// As soon as the limiter allows, with normal priority.
    pub fn rate_limited() -> AddOptions {
        AddOptions { when: AddDelay::RateLimited, ..AddOptions::default() }
    }

    /// As soon as the key's own failures allow, after `max` at the latest, with normal priority.
    pub fn rate_limited_per_key(max: Duration) -> AddOptions {
        AddOptions { when: AddDelay::RateLimitedPerKey(max), ..AddOptions::default() }
    }

    /// After `delay`, as another attempt of a key that failed, with normal priority.
    pub fn retry_after(delay: Duration) -> AddOptions {
        AddOptions { when: AddDelay::RetryAfter(delay), ..AddOptions::default() }
    }

    /// The same with another priority.
    #[must_use]
    pub fn priority(self, priority: Priority) -> AddOptions {
        AddOptions { priority, ..self }
    }
}
