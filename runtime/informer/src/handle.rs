//! The handle of a handler that was added.

use std::fmt;
use std::sync::Arc;

use windlass_env::watch_channel::Receiver;

use crate::handler::HandlerFailure;
use crate::processor::{HandlerControl, HandlerState};

/// A call of a handler waits for the end of the handler's calls.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "handler {handler:?} waits in one of its own calls for these to end, which it would do for ever; wait elsewhere"
)]
pub struct SelfWaitError {
    /// Which handler.
    pub handler: String,
}

/// The hold on a handler that was added. Dropping it leaves the handler where it is.
pub struct HandlerHandle {
    name: String,
    state: Receiver<HandlerState>,
    detach: Arc<dyn HandlerControl>,
}

impl HandlerHandle {
    pub(crate) fn new(name: String, state: Receiver<HandlerState>, detach: Arc<dyn HandlerControl>) -> Self {
        Self { name, state, detach }
    }

    /// Whether this handler has been told of the whole initial list.
    pub fn has_synced(&self) -> bool {
        self.state.get() == HandlerState::Synced
    }

    /// Waits until this handler has been told of the whole initial list; `false` if it was removed or ended, or
    /// its informer shut down, before that.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn synced(&self) -> bool {
        let settled = self.state.clone().wait_for(|state| *state != HandlerState::Waiting).await;
        settled == Ok(HandlerState::Synced)
    }

    /// Removes the handler: it is told nothing more, except that a change it is being told of right now may
    /// still be in its hands. What it had not been told yet is dropped. Removing twice is removing once.
    pub fn remove(&self) {
        self.detach.detach();
    }

    /// Waits until the handler is told nothing any more, because it was removed or ended or because its informer was
    /// shut down, and no call of it is running: what it uses can then be taken from it. It has been dropped, unless
    /// its informer was never started.
    ///
    /// # Errors
    ///
    /// [`SelfWaitError`] if a call of this very handler waits, which would never end.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn removed(&self) -> Result<(), SelfWaitError> {
        if self.detach.is_calling_here() {
            return Err(SelfWaitError { handler: self.name.clone() });
        }
        // The cell lives as long as this handle, so the wait ends only when the handler is gone.
        let _gone = self.state.clone().wait_for(|state| *state == HandlerState::Gone).await;
        Ok(())
    }

    /// Why the handler was ended, if it was ended without having been removed.
    pub fn failure(&self) -> Option<HandlerFailure> {
        self.detach.failure()
    }
}

impl fmt::Debug for HandlerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerHandle").field("name", &self.name).field("state", &self.state.get()).finish()
    }
}
