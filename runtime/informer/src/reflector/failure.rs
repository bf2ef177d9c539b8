//! What goes wrong between an informer and its source, told to whom it concerns.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_client::{RequestError, one_line_with_rule};
use windlass_env::catch_panic_sync;
use windlass_object::ResourceVersion;

/// Is told of everything that goes wrong between an informer and its source, and of what the informer is about to do.
///
/// It cannot change what that is: the informer never gives up. It is called by the informer's own task, so it should
/// be quick; one that panics is caught. Without one, failures are logged ([`LogWatchErrors`]). Functions are such
/// handlers.
pub trait WatchErrorHandler: Send + Sync + 'static {
    /// This went wrong.
    fn failed(&self, failure: &WatchFailure);
}

/// Something that went wrong between an informer and its source.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchFailure {
    /// The informer: its kind, and what it selects if that is not everything.
    pub informer: Arc<str>,
    /// What it was doing.
    pub during: WatchOperation,
    /// What went wrong.
    pub error: RequestError,
    /// What it does next.
    pub next: NextAction,
    /// After which wait.
    pub after: Duration,
}

/// What an informer was doing when something went wrong.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum WatchOperation {
    /// It listed in pages.
    List,
    /// It listed by a stream.
    WatchList,
    /// It opened a watch.
    OpeningWatch,
    /// It followed a watch that had been open for a while.
    Watch,
}

/// What an informer does after something went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// It reads everything again: the newest state, or one no older than this version.
    Read {
        /// The version, unless the newest state is read.
        not_older_than: Option<ResourceVersion>,
    },
    /// It watches from this version on; nothing is read again.
    Watch {
        /// The version.
        from: ResourceVersion,
    },
}

/// Writes failures to the log: what is done with them unless somebody else is told.
#[derive(Copy, Clone, Debug)]
pub struct LogWatchErrors;

impl<F: Fn(&WatchFailure) + Send + Sync + 'static> WatchErrorHandler for F {
    fn failed(&self, failure: &WatchFailure) {
        self(failure);
    }
}

impl WatchErrorHandler for LogWatchErrors {
    fn failed(&self, failure: &WatchFailure) {
        let WatchFailure { informer, during, error, next, after } = failure;
        // Balancers and proxies cut watches all day: an informer that continues from where it was has missed nothing.
        if *during == WatchOperation::Watch
            && matches!((error, next), (RequestError::Transport(_), NextAction::Watch { .. }))
        {
            return tracing::debug!(%informer, %error, ?after, "a watch was cut off; it is resumed");
        }
        let error = one_line_with_rule(error);
        tracing::warn!(%informer, %during, error, %next, ?after, "an informer cannot follow its source");
    }
}

impl fmt::Display for WatchOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WatchOperation::List => "list",
            WatchOperation::WatchList => "list by a stream",
            WatchOperation::OpeningWatch | WatchOperation::Watch => "watch",
        })
    }
}

impl fmt::Display for NextAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NextAction::Read { not_older_than: None } => f.write_str("list the newest state"),
            NextAction::Read { not_older_than: Some(version) } => write!(f, "list, not older than {version}"),
            NextAction::Watch { from } => write!(f, "watch from {from} on"),
        }
    }
}

/// The last failure that nothing good has followed yet, and who is told of failures.
#[derive(Clone)]
pub(crate) struct Trouble(Arc<Shared>);

struct Shared {
    last: Mutex<Option<String>>,
    handler: Arc<Mutex<Arc<dyn WatchErrorHandler>>>,
}

impl Trouble {
    /// That of another reflector of the same informer: its failures are its own, and the same handler is told of them.
    pub(crate) fn sibling(&self) -> Self {
        Self(Arc::new(Shared { last: Mutex::default(), handler: Arc::clone(&self.0.handler) }))
    }

    pub(crate) fn get(&self) -> Option<String> {
        lock(&self.0.last).clone()
    }

    /// From here on `handler` is told, and nobody else. Returns the one before, for the caller to drop.
    pub(crate) fn tell(&self, handler: Arc<dyn WatchErrorHandler>) -> Arc<dyn WatchErrorHandler> {
        std::mem::replace(&mut *lock(&self.0.handler), handler)
    }

    pub(super) fn set(&self, message: String) {
        *lock(&self.0.last) = Some(message);
    }

    pub(super) fn clear(&self) {
        *lock(&self.0.last) = None;
    }

    /// Tells the handler; `false` if it panicked.
    pub(super) fn announce(&self, failure: &WatchFailure) -> bool {
        let handler = Arc::clone(&lock(&self.0.handler));
        catch_panic_sync(|| handler.failed(failure)).is_ok()
    }
}

impl Default for Trouble {
    fn default() -> Self {
        let handler: Arc<dyn WatchErrorHandler> = Arc::new(LogWatchErrors);
        Self(Arc::new(Shared { last: Mutex::default(), handler: Arc::new(Mutex::new(handler)) }))
    }
}

impl fmt::Debug for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trouble").field(&self.get()).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
