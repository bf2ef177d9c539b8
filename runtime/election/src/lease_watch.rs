//! Hearing of changes of the Lease: a watch, and a pause wherever it fails.
//!
//! A standby that watches learns of a release at once. A watch that fails is not insisted on: after a jittered pause
//! the Lease is fetched, and the watch tried again, so that the worst case is polling.

use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use windlass_client::{FrameStream, RequestError};
use windlass_env::{Env, Instant};
use windlass_object::wire::Frame;

use crate::error::LeaseError;
use crate::lease_api::{LeaseApi, WatchScope, decode};

/// What a standby learned.
#[derive(Debug)]
pub(crate) enum LeaseEvent {
    /// The Lease is now like this.
    Changed(Box<Lease>),
    /// The Lease was deleted.
    Deleted,
    /// The watch cannot tell what happened since: fetch.
    Lost,
}

/// The watch, in whatever state it is.
pub(crate) struct LeaseWatch {
    env: Env,
    name: String,
    state: State,
    complaint: Option<String>,
}

enum State {
    /// To be opened.
    Idle,
    /// Running, since then.
    Open { stream: FrameStream, since: Instant },
    /// Not to be opened before then.
    Resting(Instant),
}

/// Why a watch ended.
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
        Self { env, name: name.to_owned(), state: State::Idle, complaint: None }
    }

    /// The next thing learned. `version` is where a watch that has to be opened continues, `pause` how long to rest
    /// if that fails.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost: a watch that was being opened is opened again, and a frame that was not returned is still in
    /// the stream.
    pub(crate) async fn next(&mut self, api: &LeaseApi, version: &str, pause: Duration) -> LeaseEvent {
        loop {
            match &mut self.state {
                State::Idle => match api.watch(WatchScope::Name(&self.name), version).await {
                    Ok(stream) => self.state = State::Open { stream, since: self.env.now() },
                    Err(error) => self.rest(self.env.now() + pause, &error.into()),
                },
                State::Open { stream, since } => match sighting(stream.next().await, &self.name) {
                    Ok(Some(sighting)) => {
                        self.complaint = None;
                        return sighting;
                    }
                    Ok(None) => {}
                    Err(end) => {
                        // A watch that ran for a while is reopened at once; one that ended at birth is not.
                        let until = *since + pause;
                        self.rest(until, &end);
                    }
                },
                State::Resting(until) => {
                    self.env.sleep_until(*until).await;
                    self.state = State::Idle;
                    return LeaseEvent::Lost;
                }
            }
        }
    }

    /// Ends the watch, if one is running. The next one starts from what is then known.
    pub(crate) fn stop(&mut self) {
        self.state = State::Idle;
    }

    fn rest(&mut self, until: Instant, end: &WatchEndReason) {
        self.state = State::Resting(until);
        let complaint = end.to_string();
        match end {
            WatchEndReason::Stream => tracing::debug!("the watch of the lease ended"),
            WatchEndReason::Request(_) | WatchEndReason::Server(_) | WatchEndReason::Lease(_)
                if self.complaint.as_ref() == Some(&complaint) => {}
            WatchEndReason::Request(_) | WatchEndReason::Server(_) | WatchEndReason::Lease(_) => {
                tracing::warn!(error = %complaint, "cannot watch the lease, polling it");
                self.complaint = Some(complaint);
            }
        }
    }
}

/// What a frame tells; nothing if it is about something else.
fn sighting(
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

/// Whether this is the Lease in question, for servers that do not know the field selector.
fn is_named(lease: &Lease, name: &str) -> bool {
    lease.metadata.name.as_deref() == Some(name)
}
