//! Cleanup of a controller whose start fails, is dropped or never happens.

use std::fmt;

use futures_util::FutureExt as _;
use futures_util::future;
use windlass_env::TaskGroup;
use windlass_informer::InformerFactory;

use crate::enqueue::trigger::Trigger;

/// The parts of a controller that outlive a failed start: its own informers, its polls, and the triggers that buffer
/// keys for it. Returned by [`PreparedController::cleanup`](crate::host::PreparedController::cleanup) for callers that
/// might drop its start.
#[derive(Clone)]
pub struct Cleanup {
    pub(crate) controller: &'static str,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) informers: Vec<InformerFactory>,
    pub(crate) polls: TaskGroup,
}

impl Cleanup {
    /// Stops all parts: triggers reject keys, and the controller's own informers and polls have stopped when this
    /// returns. For a running controller call it after its [`Workers`](crate::host::Workers) have ended; then it has no
    /// effect.
    ///
    /// # Cancel safety
    /// All parts have received the stop signal at the first await; calling it again waits for the rest.
    pub async fn finish(&self) {
        self.triggers.iter().for_each(|trigger| trigger.abandon(self.controller));
        self.polls.abort();
        let informers = future::join_all(self.informers.iter().map(InformerFactory::shutdown));
        future::join(informers, self.polls.ended()).await;
    }

    /// Sends the stop signal to all parts without waiting.
    pub fn begin(&self) {
        // The first poll shuts the informers down; the rest only waits for their tasks.
        let _waited_for_by_others = self.finish().now_or_never();
    }
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cleanup")
            .field("controller", &self.controller)
            .field("triggers", &self.triggers)
            .field("informers", &self.informers.len())
            .finish()
    }
}
