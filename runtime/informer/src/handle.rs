//! The handle of a handler that was added to an informer.

use std::fmt;
use std::sync::Arc;

use windlass_env::watch_channel::Receiver;

use crate::handler::HandlerFailure;
use crate::processor::{HandlerControl, HandlerState};

/// A call to a handler waits for the removal of the same handler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("handler {handler:?} cannot wait for its own removal: the wait would deadlock; wait in another task")]
pub struct SelfWaitError {
    /// The name of the handler.
    pub handler: String,
}

/// A handle to a handler that was added to an informer. Dropping it does not remove the handler.
pub struct HandlerHandle {
    name: String,
    state: Receiver<HandlerState>,
    control: Arc<dyn HandlerControl>,
}

impl HandlerHandle {
    pub(crate) fn new(name: String, state: Receiver<HandlerState>, control: Arc<dyn HandlerControl>) -> Self {
        Self { name, state, control }
    }

    /// Returns whether this handler has received the whole initial list and has not been removed.
    pub fn has_synced(&self) -> bool {
        self.state.get() == HandlerState::Synced
    }

    /// Waits until this handler has received the whole initial list. Returns `false` if the handler was removed or its
    /// informer was stopped before that.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn synced(&self) -> bool {
        let settled = self.state.clone().wait_for(|state| *state != HandlerState::Waiting).await;
        settled == Ok(HandlerState::Synced)
    }

    /// Removes the handler. It receives no further events and its pending events are dropped. A call in
    /// progress might still be running. Removing a handler twice has no effect.
    pub fn remove(&self) {
        self.control.detach();
    }

    /// Waits until the handler receives no further events, because it was removed or its informer was stopped, and no
    /// call of it is running. After that, resources that the handler uses can be freed. The handler itself has been
    /// dropped, unless its informer was never started.
    ///
    /// # Errors
    ///
    /// [`SelfWaitError`] if the handler itself calls this: the wait would never return.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn removed(&self) -> Result<(), SelfWaitError> {
        if self.control.is_calling_here() {
            return Err(SelfWaitError { handler: self.name.clone() });
        }
        // The channel lives as long as this handle, so the wait returns only when the handler is removed.
        let _gone = self.state.clone().wait_for(|state| *state == HandlerState::Stopped).await;
        Ok(())
    }

    /// Returns why the informer removed the handler, if it did.
    pub fn failure(&self) -> Option<HandlerFailure> {
        self.control.failure()
    }
}

impl fmt::Debug for HandlerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerHandle").field("name", &self.name).field("state", &self.state.get()).finish()
    }
}
