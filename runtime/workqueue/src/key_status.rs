//! Status of one key, for `explain`.

use windlass_env::Instant;

use crate::{Parked, Priority};

/// Status of a key. All fields are `None` if the queue does not have the key. Several fields can be set: a key in
/// progress can have a scheduled add.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyStatus {
    /// Set if the key waits for a worker, or for the end of its processing to be requeued.
    pub queued: Option<Queued>,
    /// End of the rest of a queued key: it was added before the end of the [rest](crate::Item::rest) that its worker
    /// set.
    pub resting_until: Option<Instant>,
    /// Start of the processing, if the key is in progress.
    pub processing: Option<Instant>,
    /// Set if the key is delayed.
    pub delayed: Option<Delayed>,
    /// Set if the key is parked, or will be when its worker is done.
    pub parked: Option<Parked>,
}

/// Status of a queued key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Time at which the key was enqueued.
    pub since: Instant,
    /// Priority of the key.
    pub priority: Priority,
}

/// Status of a delayed key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Delayed {
    /// Time at which the key is enqueued.
    pub at: Instant,
    /// Whether the delay is a retry; otherwise it is a scheduled add.
    pub is_retry: bool,
}
