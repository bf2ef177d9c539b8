//! Watch of the Lease, with a pause after each failure.
//!
//! A standby with a watch observes a release immediately. After a failure, the elector waits for a jittered pause,
//! fetches the Lease and opens the watch again. The worst case is therefore polling.

use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use windlass_client::{FrameStream, RequestError};
use windlass_env::{Env, Instant};
use windlass_object::wire::Frame;

use crate::error::LeaseError;
use crate::lease_api::{LeaseApi, WatchScope, decode};

/// Event for a standby.
#[derive(Debug)]
pub(crate) enum LeaseEvent {
    /// The Lease changed to this state.
    Changed(Box<Lease>),
    /// The Lease was deleted.
    Deleted,
    /// The watch might have missed events: fetch the Lease.
    Lost,
}

/// The watch and its state.
pub(crate) struct LeaseWatch {
    env: Env,
    name: String,
    state: State,
    last_failure: Option<String>,
}

enum State {
    /// Not open.
    Idle,
    /// Open since this time.
    Open { stream: FrameStream, since: Instant },
    /// Must not be opened before this time.
    BackingOff(Instant),
}

/// Reason for the end of a watch.
#[derive(Debug, thiserror::Error)]
enum WatchEndReason {
    #[error("the watch ended")]
    Stream,
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error("the server ended the watch: {0}")]
    Server(String),
    #[error("{0}")]
    Lease(#[from] LeaseError),
}

impl LeaseWatch {
    pub(crate) fn new(env: Env, name: &str) -> Self {
        Self { env, name: name.to_owned(), state: State::Idle, last_failure: None }
    }

    /// Waits for the next event. A new watch continues from `version`; after a failure it pauses for `pause`.
    ///
    /// # Cancel safety
    ///
    /// No event is lost: an interrupted open is repeated, and a frame that was not returned stays in the stream.
    pub(crate) async fn next(&mut self, api: &LeaseApi, version: &str, pause: Duration) -> LeaseEvent {
        loop {
            match &mut self.state {
                State::Idle => match api.watch(WatchScope::Name(&self.name), version).await {
                    Ok(stream) => self.state = State::Open { stream, since: self.env.now() },
                    Err(error) => self.back_off(self.env.now() + pause, &error.into()),
                },
                State::Open { stream, since } => match to_event(stream.next().await, &self.name) {
                    Ok(Some(event)) => {
                        self.last_failure = None;
                        return event;
                    }
                    Ok(None) => {}
                    Err(end) => {
                        // Reopens a long watch immediately, and a watch that ended immediately only after a pause.
                        let until = *since + pause;
                        self.back_off(until, &end);
                    }
                },
                State::BackingOff(until) => {
                    self.env.sleep_until(*until).await;
                    self.state = State::Idle;
                    return LeaseEvent::Lost;
                }
            }
        }
    }

    /// Closes the watch. The next one continues from the latest version.
    pub(crate) fn stop(&mut self) {
        self.state = State::Idle;
    }

    fn back_off(&mut self, until: Instant, end: &WatchEndReason) {
        self.state = State::BackingOff(until);
        let text = end.to_string();
        match end {
            WatchEndReason::Stream => tracing::debug!("watch of the lease ended"),
            WatchEndReason::Request(_) | WatchEndReason::Server(_) | WatchEndReason::Lease(_)
                if self.last_failure.as_ref() == Some(&text) => {}
            WatchEndReason::Request(_) | WatchEndReason::Server(_) | WatchEndReason::Lease(_) => {
                tracing::warn!(error = %text, "cannot watch the lease; polling");
                self.last_failure = Some(text);
            }
        }
    }
}

/// Returns the event of a frame; `None` if it concerns another Lease.
fn to_event(
    frame: Option<Result<Frame, RequestError>>,
    name: &str,
) -> Result<Option<LeaseEvent>, WatchEndReason> {
    match frame.ok_or(WatchEndReason::Stream)?? {
        Frame::Added(raw) | Frame::Modified(raw) => {
            let lease = decode(&raw)?;
            Ok(is_named(&lease, name).then(|| LeaseEvent::Changed(Box::new(lease))))
        }
        Frame::Deleted(raw) => {
            let lease = decode(&raw)?;
            Ok(is_named(&lease, name).then_some(LeaseEvent::Deleted))
        }
        Frame::Bookmark { .. } | Frame::Unknown(_) => Ok(None),
        Frame::Error(status) => Err(WatchEndReason::Server(status.message)),
    }
}

/// Returns whether this is the requested Lease, for servers that ignore the field selector.
fn is_named(lease: &Lease, name: &str) -> bool {
    lease.metadata.name.as_deref() == Some(name)
}
