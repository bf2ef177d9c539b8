//! Rests of keys whose sync reads or writes all pods, and that each change of a pod enqueues.

use std::time::Duration;

/// A rest that grows with the number of pods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestPerPod {
    /// Rest for each pod.
    pub(crate) each: Duration,
    pub(crate) most: Duration,
}

impl RestPerPod {
    /// Returns the rest for this number of pods.
    pub(crate) fn of(self, pods: usize) -> Duration {
        self.each.saturating_mul(u32::try_from(pods).unwrap_or(u32::MAX)).min(self.most)
    }
}
