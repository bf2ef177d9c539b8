//! Failures between an informer and its source, and their handler.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_client::{MissingPermission, RequestError, missing_permission, one_line};
use windlass_env::catch_panic_sync;
use windlass_object::{ResourceVersion, Verb};

use crate::error::UnsyncedReason;

/// Handler of failures between an informer and its source.
///
/// The handler also receives the next action of the informer, but cannot change it: the informer retries forever. The
/// informer's own task calls the handler, so the handler must return quickly; a panic is caught. The default handler
/// logs failures ([`LogWatchErrors`]). Every `Fn(&WatchFailure)` is a handler.
pub trait WatchErrorHandler: Send + Sync + 'static {
    /// Handles one failure.
    fn failed(&self, failure: &WatchFailure);
}

/// A failure between an informer and its source.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchFailure {
    /// The informer: its kind, and its selection unless it selects everything.
    pub informer: Arc<str>,
    /// The operation that failed.
    pub operation: WatchOperation,
    /// The error.
    pub error: RequestError,
    /// The next action of the informer.
    pub next_action: NextAction,
    /// The wait before the next action.
    pub delay: Duration,
}

/// An operation of an informer that can fail.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum WatchOperation {
    /// Listing in pages.
    List,
    /// Listing by a watch-list stream.
    WatchList,
    /// Opening a watch.
    OpeningWatch,
    /// Reading an open watch.
    Watch,
}

/// The action of an informer after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// Reads everything again: the newest state, or a state that is not older than this version.
    Read {
        /// The version; `None` to read the newest state.
        not_older_than: Option<ResourceVersion>,
    },
    /// Watches from this version; nothing is read again.
    Watch {
        /// The version.
        from: ResourceVersion,
    },
}

/// The default [`WatchErrorHandler`]: writes failures to the log.
#[derive(Copy, Clone, Debug)]
pub struct LogWatchErrors;

impl<F: Fn(&WatchFailure) + Send + Sync + 'static> WatchErrorHandler for F {
    fn failed(&self, failure: &WatchFailure) {
        self(failure);
    }
}

impl WatchErrorHandler for LogWatchErrors {
    fn failed(&self, failure: &WatchFailure) {
        let WatchFailure { informer, operation, error, next_action, delay } = failure;
        // Balancers and proxies cut watches all the time. A watch that resumes at its last version misses nothing.
        if *operation == WatchOperation::Watch
            && matches!((error, next_action), (RequestError::Transport(_), NextAction::Watch { .. }))
        {
            return tracing::debug!(%informer, %error, ?delay, "watch connection lost; resuming");
        }
        if is_retried_by_list(failure) {
            return tracing::debug!(%informer, %error, %next_action, "watch-list failed; listing in pages");
        }
        let error = with_remedy(error);
        tracing::warn!(%informer, %operation, error, %next_action, ?delay, "informer cannot follow its source");
    }
}

/// Returns whether the server rejected a watch-list stream and a list follows at once. If the list fails too, its
/// failure is reported.
fn is_retried_by_list(failure: &WatchFailure) -> bool {
    failure.operation == WatchOperation::WatchList
        && failure.delay.is_zero()
        && failure.error.status().is_some()
}

/// Returns the error in one line, with the remedy if the log can name it.
fn with_remedy(error: &RequestError) -> String {
    if let Some(missing) = missing_permission(error) {
        return for_informer(missing).to_string();
    }
    let line = one_line(error);
    match error.status().map(|status| status.code) {
        Some(401) => format!("{line}; check that the token or the certificate of this process is valid"),
        _ if error.is_not_found() => format!("{}: {line}", UnsyncedReason::Absent),
        _ => line,
    }
}

/// Adds both verbs that an informer requires.
fn for_informer(missing: MissingPermission) -> MissingPermission {
    missing.with_verbs([Verb::List, Verb::Watch])
}

impl fmt::Display for WatchOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WatchOperation::List => "list",
            WatchOperation::WatchList => "watch-list",
            WatchOperation::OpeningWatch | WatchOperation::Watch => "watch",
        })
    }
}

impl fmt::Display for NextAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NextAction::Read { not_older_than: None } => f.write_str("list consistently"),
            NextAction::Read { not_older_than: Some(version) } => write!(f, "list, not older than {version}"),
            NextAction::Watch { from } => write!(f, "watch from {from}"),
        }
    }
}

/// The last unresolved failure of a reflector, and the failure handler of its informer.
#[derive(Clone)]
pub(crate) struct FailureReporter(Arc<Shared>);

struct Shared {
    last: Mutex<Option<String>>,
    handler: Arc<Mutex<Arc<dyn WatchErrorHandler>>>,
}

impl FailureReporter {
    /// Returns a record for another reflector of the same informer: with its own last failure and the same handler.
    pub(crate) fn sibling(&self) -> Self {
        Self(Arc::new(Shared { last: Mutex::default(), handler: Arc::clone(&self.0.handler) }))
    }

    pub(crate) fn get(&self) -> Option<String> {
        lock(&self.0.last).clone()
    }

    /// Replaces the handler. Returns the previous handler for the caller to drop.
    pub(crate) fn replace_handler(&self, handler: Arc<dyn WatchErrorHandler>) -> Arc<dyn WatchErrorHandler> {
        std::mem::replace(&mut *lock(&self.0.handler), handler)
    }

    pub(super) fn set(&self, message: String) {
        *lock(&self.0.last) = Some(message);
    }

    pub(super) fn clear(&self) {
        *lock(&self.0.last) = None;
    }

    /// Calls the handler; returns `false` if it panicked.
    pub(super) fn notify(&self, failure: &WatchFailure) -> bool {
        let handler = Arc::clone(&lock(&self.0.handler));
        catch_panic_sync(|| handler.failed(failure)).is_ok()
    }
}

impl Default for FailureReporter {
    fn default() -> Self {
        let handler: Arc<dyn WatchErrorHandler> = Arc::new(LogWatchErrors);
        Self(Arc::new(Shared { last: Mutex::default(), handler: Arc::new(Mutex::new(handler)) }))
    }
}

impl fmt::Debug for FailureReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FailureReporter").field(&self.get()).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_for_informer_contains_list_and_watch() {
        let message = r#"pods is forbidden: User "me" cannot list resource "pods" in API group "" at the cluster scope"#;
        let missing = missing_permission(&std::io::Error::other(message)).map(for_informer);
        let printed = missing.map(|missing| missing.to_string()).unwrap_or_default();
        assert!(printed.contains("verbs: [list, watch]"), "{printed}");
    }

    #[test]
    fn kind_that_is_not_served_is_logged_with_remedy() {
        let status = windlass_object::wire::status(404, b"404 page not found\n");
        let logged = with_remedy(&RequestError::from_status(status, None));
        assert!(
            logged.starts_with("not served; check that its CRD is installed in this version: "),
            "{logged}"
        );
        assert!(logged.ends_with("404 page not found (404 NotFound)"), "{logged}");
    }

    #[test]
    fn rejected_attempt_is_logged_once() {
        let status = windlass_object::wire::status(403, b"forbidden");
        let rejected = WatchFailure {
            informer: "pods.v1".into(),
            operation: WatchOperation::WatchList,
            error: RequestError::from_status(status, None),
            next_action: NextAction::Read { not_older_than: None },
            delay: Duration::ZERO,
        };
        assert!(is_retried_by_list(&rejected));
        for logged in [
            WatchFailure { operation: WatchOperation::List, ..rejected.clone() },
            WatchFailure { delay: Duration::from_secs(1), ..rejected.clone() },
            WatchFailure { error: RequestError::Unsupported("no bookmark"), ..rejected },
        ] {
            assert!(!is_retried_by_list(&logged), "{logged:?}");
        }
    }

    #[test]
    fn rejected_credentials_are_logged_with_remedy() {
        let body = br#"{"kind":"Status","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
        let logged = with_remedy(&RequestError::from_status(windlass_object::wire::status(401, body), None));
        let expected = "the server rejected the request: Unauthorized (401 Unauthorized); check that the token or the \
                        certificate of this process is valid";
        assert_eq!(logged, expected);
    }
}
