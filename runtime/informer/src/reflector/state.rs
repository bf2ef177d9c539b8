//! The states of a reflector and their transitions, without side effects.

use std::time::Duration;

use kube::core::response::reason;
use windlass_client::RequestError;
use windlass_object::ResourceVersion;

use super::failure::NextAction;
use crate::backoff::{Backoff, BackoffReason};

/// A watch that ended sooner than this without a change counts as rejected.
const MIN_WATCH: Duration = Duration::from_secs(1);
/// A watch that was open for this long worked, whatever ended it: balancers and proxies close old or idle connections,
/// often many per minute. It is not shorter than the longest backoff step, so a source that breaks every watch does not
/// get more requests.
const LONG_WATCH: Duration = Backoff::MAX;
/// The longest `Retry-After` that is honored. The server can repeat it after that time; a malformed response must not
/// block an informer for hours.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Wait after the source exceeded the byte budget: each attempt reads a part of the list without effect.
const OVER_BUDGET_INTERVAL: Duration = Duration::from_secs(60);

/// The next step of a reflector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Read everything, by a stream if the source offers streams.
    Reading(ListConsistency),
    /// Read everything by a stream that then continues as a watch.
    Streaming(ListConsistency),
    /// Read everything, in pages.
    Listing(ListConsistency),
    /// Watch the changes after this version.
    Watching(ResourceVersion),
    /// Perform a requested relist, in pages. The watch closed for it had reached this version.
    Relisting(ResourceVersion),
    /// Wait for the backoff and for at least this long, then continue.
    BackingOff {
        /// The reason for the wait.
        reason: BackoffReason,
        /// The minimum wait, if any: the capped `Retry-After` of the server, or the interval of an exceeded byte
        /// budget.
        min_wait: Option<Duration>,
        /// The step after the wait.
        then: AfterWait,
    },
}

/// The step after a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AfterWait {
    Read(ListConsistency),
    List(ListConsistency),
    Watch(ResourceVersion),
}

/// Required consistency of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListConsistency {
    /// The newest state, whatever is already cached.
    Consistent,
    /// At least as new as the cached state. Cheaper for the server, and sufficient unless versions were lost.
    NotOlderThan(ResourceVersion),
}

/// The classification of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The requested version is too old or too new for the server: only a consistent list helps.
    VersionUnavailable,
    /// The server requires a later retry.
    Throttled(Option<Duration>),
    /// No API server answered (502, 503 and 504 come from proxies and starting servers), or the connection was lost:
    /// this implies nothing about the objects.
    Unreachable,
    /// The server or its storage had an internal error and does not report any loss.
    InternalError,
    /// The source exceeds the byte budget.
    OverBudget,
    /// Any other failure.
    Other,
}

/// The end of a watch-list stream before its list was complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The source offers no such streams: no request was sent.
    NotOffered,
    /// The server does not support such streams, or does not follow their protocol.
    Broken,
    /// The stream did not deliver its list: no response, the connection was lost, or the stream closed early once.
    CutOff,
    /// A relist was requested before the stream delivered anything.
    RelistRequested,
    /// The source recovered from an outage during which the stream was silent: the stream might be dead.
    SourceRecovered,
    /// It failed.
    Failed(FailureKind),
}

/// Counter of consecutive internal errors of watches, which trigger a relist at a limit.
#[derive(Debug, Default)]
pub(crate) struct WatchErrorBudget {
    internal_errors: u32,
}

/// The end of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchEnd {
    /// The server closed the watch, for example at its timeout.
    Closed {
        /// Time for which the watch was open.
        lasted: Duration,
        /// Whether the watch delivered a change newer than everything before it.
        moved: bool,
    },
    /// The connection was lost after the watch had been open for long.
    LongWatchLost,
    /// A relist was requested, whatever the watch delivered.
    RelistRequested,
    /// The source recovered from an outage during which the watch was silent: the watch might be dead.
    SourceRecovered,
    /// It failed.
    Failed(FailureKind),
}

impl FailureKind {
    pub(crate) fn of(error: &RequestError) -> Self {
        match error {
            error if error.is_expired() || error.is_too_large_version() => FailureKind::VersionUnavailable,
            RequestError::TooManyRequests { retry_after, .. } => FailureKind::Throttled(*retry_after),
            error if error.is_unanswered() => FailureKind::Unreachable,
            RequestError::BudgetExceeded(_) => FailureKind::OverBudget,
            error if error.status().is_some_and(|status| matches!(status.code, 502..=504)) => {
                FailureKind::Unreachable
            }
            error if error.status().is_some_and(|status| status.reason == reason::INTERNAL_ERROR) => {
                FailureKind::InternalError
            }
            _ => FailureKind::Other,
        }
    }
}

impl StreamEnd {
    /// Classifies the end of a stream by the server's response or the transport error.
    pub(crate) fn of(error: &RequestError) -> Self {
        match (error, error.status().map(|status| status.code)) {
            (RequestError::Unsupported(_), _) => StreamEnd::NotOffered,
            // Something between client and server buffers streams; pages arrive as complete responses.
            (RequestError::Deadline | RequestError::WatchIdle, _) => StreamEnd::CutOff,
            // None of these codes is about the objects: the server did not understand or did not accept this form of
            // request.
            (_, Some(400 | 405 | 406 | 422 | 501)) => StreamEnd::Broken,
            _ => StreamEnd::Failed(FailureKind::of(error)),
        }
    }
}

impl WatchErrorBudget {
    /// Consecutive internal errors that do not trigger a relist. A storage that elects a new leader fails every watch
    /// once or twice and loses nothing; relists of all clients at the same time would overload it.
    const MAX_INTERNAL_ERRORS: u32 = 3;

    /// Classifies the failure of a watch, given the failures before it.
    pub(crate) fn classify(&mut self, kind: FailureKind) -> FailureKind {
        if kind != FailureKind::InternalError {
            return kind;
        }
        self.internal_errors += 1;
        if self.internal_errors <= Self::MAX_INTERNAL_ERRORS { kind } else { FailureKind::Other }
    }

    /// Resets the counter after a new change.
    pub(crate) fn reset(&mut self) {
        self.internal_errors = 0;
    }
}

impl WatchEnd {
    /// Classifies the failure of an open watch by the time for which it was open.
    pub(crate) fn broken(kind: FailureKind, lasted: Duration) -> Self {
        match kind {
            FailureKind::Unreachable if lasted >= LONG_WATCH => WatchEnd::LongWatchLost,
            kind => WatchEnd::Failed(kind),
        }
    }

    /// Returns whether the watch ended normally.
    pub(crate) fn is_healthy(&self) -> bool {
        match self {
            // Replayed changes do not count: a server that replays one old change and closes would get endless
            // requests without a wait.
            WatchEnd::Closed { lasted, moved } => *moved || *lasted >= MIN_WATCH,
            WatchEnd::LongWatchLost
            | WatchEnd::RelistRequested
            | WatchEnd::SourceRecovered
            | WatchEnd::Failed(_) => false,
        }
    }
}

/// Returns the step after a stream that ended before its list was complete.
pub(crate) fn after_stream(consistency: ListConsistency, end: StreamEnd) -> State {
    match end {
        StreamEnd::NotOffered | StreamEnd::Broken => State::Listing(consistency),
        StreamEnd::RelistRequested => State::Listing(ListConsistency::Consistent),
        StreamEnd::SourceRecovered => State::Streaming(consistency),
        // A proxy that limits connection time would cut the next stream at the same point. Pages are short, and only
        // consistent lists are paged.
        StreamEnd::CutOff => {
            back_off(&FailureKind::Unreachable, AfterWait::List(ListConsistency::Consistent))
        }
        // The watch cache is behind even the newest state; consistent pages come from storage.
        StreamEnd::Failed(FailureKind::VersionUnavailable) if consistency == ListConsistency::Consistent => {
            State::Listing(consistency)
        }
        StreamEnd::Failed(
            kind @ (FailureKind::Throttled(_)
            | FailureKind::Unreachable
            | FailureKind::VersionUnavailable
            | FailureKind::OverBudget),
        ) => match after_failed_list(consistency, kind) {
            State::Listing(consistency) => State::Streaming(consistency),
            other => other,
        },
        // Pages might work where the stream fails; if they fail too, their error is clearer.
        StreamEnd::Failed(_) => State::Listing(consistency),
    }
}

/// Returns the step after a failed list.
pub(crate) fn after_failed_list(consistency: ListConsistency, kind: FailureKind) -> State {
    match (consistency, kind) {
        // No wait: the request caused the failure, not the server, and a consistent list cannot fail this way again.
        (ListConsistency::NotOlderThan(_), FailureKind::VersionUnavailable) => {
            State::Listing(ListConsistency::Consistent)
        }
        (consistency, kind @ FailureKind::Throttled(_)) => back_off(&kind, AfterWait::Read(consistency)),
        // One unpaged list from the server's memory is the cheapest if it arrives. If it fails, it might be too
        // large to arrive in time and would fail again.
        (_, kind) => back_off(&kind, AfterWait::Read(ListConsistency::Consistent)),
    }
}

/// Returns the step after a complete list.
pub(crate) fn after_list(consistency: &ListConsistency, version: ResourceVersion) -> State {
    match consistency {
        // The server violated the request; only the newest state shows whether it moved back.
        ListConsistency::NotOlderThan(held) if version < *held => State::Listing(ListConsistency::Consistent),
        _ => State::Watching(version),
    }
}

/// Returns the step after a watch that reached `version`.
pub(crate) fn after_watch(version: ResourceVersion, end: WatchEnd) -> State {
    match end {
        WatchEnd::Closed { .. } if end.is_healthy() => State::Watching(version),
        WatchEnd::SourceRecovered => State::Watching(version),
        WatchEnd::Closed { .. } => back_off(&FailureKind::Other, AfterWait::Watch(version)),
        WatchEnd::RelistRequested => State::Relisting(version),
        WatchEnd::LongWatchLost => State::BackingOff {
            reason: BackoffReason::LongWatchLost,
            min_wait: None,
            then: AfterWait::Watch(version),
        },
        WatchEnd::Failed(kind) => {
            let then = match kind {
                FailureKind::VersionUnavailable => AfterWait::Read(ListConsistency::Consistent),
                FailureKind::Throttled(_) | FailureKind::Unreachable | FailureKind::InternalError => {
                    AfterWait::Watch(version)
                }
                // A change that does not fit is not skipped: only a list can show whether everything fits later.
                FailureKind::Other | FailureKind::OverBudget => {
                    AfterWait::Read(ListConsistency::NotOlderThan(version))
                }
            };
            back_off(&kind, then)
        }
    }
}

/// Returns the action to report for the next step, after the wait if the step is a wait.
pub(crate) fn next_action(state: &State) -> NextAction {
    let read = |consistency: &ListConsistency| NextAction::Read {
        not_older_than: match consistency {
            ListConsistency::Consistent => None,
            ListConsistency::NotOlderThan(version) => Some(version.clone()),
        },
    };
    match state {
        State::Reading(consistency)
        | State::Streaming(consistency)
        | State::Listing(consistency)
        | State::BackingOff { then: AfterWait::Read(consistency) | AfterWait::List(consistency), .. } => {
            read(consistency)
        }
        State::Relisting(_) => read(&ListConsistency::Consistent),
        State::Watching(version) | State::BackingOff { then: AfterWait::Watch(version), .. } => {
            NextAction::Watch { from: version.clone() }
        }
    }
}

/// Returns the step after a wait.
pub(crate) fn after_wait(then: AfterWait) -> State {
    match then {
        AfterWait::Read(consistency) => State::Reading(consistency),
        AfterWait::List(consistency) => State::Listing(consistency),
        AfterWait::Watch(version) => State::Watching(version),
    }
}

fn back_off(kind: &FailureKind, then: AfterWait) -> State {
    let (reason, min_wait) = match kind {
        FailureKind::Unreachable => (BackoffReason::Unreachable, None),
        FailureKind::Throttled(wish) => (BackoffReason::Rejected, wish.map(|wish| wish.min(MAX_RETRY_AFTER))),
        FailureKind::OverBudget => (BackoffReason::Rejected, Some(OVER_BUDGET_INTERVAL)),
        FailureKind::VersionUnavailable | FailureKind::InternalError | FailureKind::Other => {
            (BackoffReason::Rejected, None)
        }
    };
    State::BackingOff { reason, min_wait, then }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> ResourceVersion {
        ResourceVersion::new(text)
    }

    fn not_older_than(text: &str) -> ListConsistency {
        ListConsistency::NotOlderThan(version(text))
    }

    fn closed_after(lasted: Duration, moved: bool) -> State {
        after_watch(version("5"), WatchEnd::Closed { lasted, moved })
    }

    fn broken_after(kind: FailureKind, lasted: Duration) -> State {
        after_watch(version("5"), WatchEnd::broken(kind, lasted))
    }

    #[test]
    fn list_at_unavailable_version_is_repeated_consistently() {
        let state = after_failed_list(not_older_than("5"), FailureKind::VersionUnavailable);
        assert_eq!(state, State::Listing(ListConsistency::Consistent));
    }

    #[test]
    fn failed_list_at_version_is_paged_unless_throttled() {
        for kind in [
            FailureKind::Unreachable,
            FailureKind::InternalError,
            FailureKind::Other,
            FailureKind::OverBudget,
        ] {
            let state = after_failed_list(not_older_than("5"), kind.clone());
            assert_eq!(state, back_off(&kind, AfterWait::Read(ListConsistency::Consistent)));
        }
        let busy = FailureKind::Throttled(Some(Duration::from_secs(7)));
        let state = after_failed_list(not_older_than("5"), busy.clone());
        assert_eq!(state, back_off(&busy, AfterWait::Read(not_older_than("5"))));
    }

    // parity: every-exit-list-and, expired-too-large-list
    #[test]
    fn failed_consistent_list_is_repeated_after_backoff() {
        for kind in [
            FailureKind::VersionUnavailable,
            FailureKind::Throttled(None),
            FailureKind::Unreachable,
            FailureKind::Other,
        ] {
            let state = after_failed_list(ListConsistency::Consistent, kind.clone());
            assert_eq!(state, back_off(&kind, AfterWait::Read(ListConsistency::Consistent)));
        }
    }

    #[test]
    fn stale_list_at_version_is_rejected() {
        assert_eq!(
            after_list(&not_older_than("10"), version("9")),
            State::Listing(ListConsistency::Consistent)
        );
        assert_eq!(after_list(&not_older_than("10"), version("10")), State::Watching(version("10")));
        assert_eq!(after_list(&ListConsistency::Consistent, version("9")), State::Watching(version("9")));
    }

    #[test]
    fn healthy_closed_watch_is_resumed_immediately() {
        assert_eq!(closed_after(Duration::from_secs(100), false), State::Watching(version("5")));
        assert_eq!(closed_after(Duration::from_millis(1), true), State::Watching(version("5")));
    }

    #[test]
    fn watch_closed_early_without_change_is_resumed_after_backoff() {
        assert_eq!(
            closed_after(Duration::from_millis(999), false),
            back_off(&FailureKind::Other, AfterWait::Watch(version("5")))
        );
    }

    #[test]
    fn lost_connection_of_long_watch_does_not_raise_backoff() {
        let resumed =
            |reason| State::BackingOff { reason, min_wait: None, then: AfterWait::Watch(version("5")) };
        let almost = LONG_WATCH - Duration::from_millis(1);
        assert_eq!(broken_after(FailureKind::Unreachable, LONG_WATCH), resumed(BackoffReason::LongWatchLost));
        assert_eq!(broken_after(FailureKind::Unreachable, almost), resumed(BackoffReason::Unreachable));
    }

    // parity: stream-410-lists-429, test-no-relist-on-too-many-requests
    #[test]
    fn server_error_counts_for_long_watches_too() {
        for kind in [FailureKind::VersionUnavailable, FailureKind::Throttled(None), FailureKind::Other] {
            let said = after_watch(version("5"), WatchEnd::Failed(kind.clone()));
            assert_eq!(broken_after(kind, LONG_WATCH * 2), said);
        }
    }

    // parity: to-lister-watcher-with-watch-list, watch-list-falls-back, test-to-list-watcher-with-watch-list
    #[test]
    fn unsupported_or_broken_stream_falls_back_to_pages_immediately() {
        for end in [StreamEnd::NotOffered, StreamEnd::Broken, StreamEnd::Failed(FailureKind::Other)] {
            for consistency in [ListConsistency::Consistent, not_older_than("5")] {
                assert_eq!(after_stream(consistency.clone(), end.clone()), State::Listing(consistency));
            }
        }
    }

    // parity: watch-list-falls-back
    #[test]
    fn unavailable_stream_is_retried_after_backoff() {
        for kind in [FailureKind::Throttled(None), FailureKind::Unreachable] {
            let state = after_stream(ListConsistency::Consistent, StreamEnd::Failed(kind.clone()));
            assert_eq!(state, back_off(&kind, AfterWait::Read(ListConsistency::Consistent)));
        }
        let state = after_stream(not_older_than("5"), StreamEnd::Failed(FailureKind::VersionUnavailable));
        assert_eq!(state, State::Streaming(ListConsistency::Consistent));
    }

    // parity: first-list-back-time
    #[test]
    fn stale_watch_cache_falls_back_to_pages() {
        let state =
            after_stream(ListConsistency::Consistent, StreamEnd::Failed(FailureKind::VersionUnavailable));
        assert_eq!(state, State::Listing(ListConsistency::Consistent));
    }

    #[test]
    fn stream_cut_off_before_list_end_falls_back_to_pages_after_backoff() {
        let state = after_stream(not_older_than("5"), StreamEnd::CutOff);
        assert_eq!(state, back_off(&FailureKind::Unreachable, AfterWait::List(ListConsistency::Consistent)));
    }

    #[test]
    fn unanswered_stream_counts_as_cut_off() {
        for error in [RequestError::Deadline, RequestError::WatchIdle] {
            assert_eq!(StreamEnd::of(&error), StreamEnd::CutOff);
        }
    }

    #[test]
    fn internal_errors_trigger_relist_only_after_limit() {
        let mut timeout = WatchErrorBudget::default();
        for _ in 0..2 {
            for _ in 0..WatchErrorBudget::MAX_INTERNAL_ERRORS {
                let kind = timeout.classify(FailureKind::InternalError);
                let state = after_watch(version("5"), WatchEnd::Failed(kind));
                assert_eq!(state, back_off(&FailureKind::InternalError, AfterWait::Watch(version("5"))));
            }
            assert_eq!(timeout.classify(FailureKind::InternalError), FailureKind::Other);
            timeout.reset();
        }
    }

    #[test]
    fn state_caps_retry_after_at_sixty_seconds() {
        for (wish, granted) in [(59, 59), (60, 60), (61, 60), (u64::MAX, 60)] {
            let wish = FailureKind::Throttled(Some(Duration::from_secs(wish)));
            let State::BackingOff { min_wait, .. } = back_off(&wish, AfterWait::Watch(version("5"))) else {
                unreachable!("a failure costs a wait")
            };
            assert_eq!(min_wait, Some(Duration::from_secs(granted)));
        }
    }

    // parity: every-exit-list-and
    #[test]
    fn watch_at_unavailable_version_triggers_consistent_list() {
        let state = after_watch(version("5"), WatchEnd::Failed(FailureKind::VersionUnavailable));
        assert_eq!(
            state,
            back_off(&FailureKind::VersionUnavailable, AfterWait::Read(ListConsistency::Consistent))
        );
    }

    #[test]
    fn throttling_or_lost_connection_resumes_watch_without_list() {
        let wait = Some(Duration::from_secs(7));
        let throttled = after_watch(version("5"), WatchEnd::Failed(FailureKind::Throttled(wait)));
        assert_eq!(throttled, back_off(&FailureKind::Throttled(wait), AfterWait::Watch(version("5"))));
        let unreachable = after_watch(version("5"), WatchEnd::Failed(FailureKind::Unreachable));
        assert_eq!(unreachable, back_off(&FailureKind::Unreachable, AfterWait::Watch(version("5"))));
    }

    #[test]
    fn unknown_watch_failure_triggers_list_at_reached_version() {
        let state = after_watch(version("5"), WatchEnd::Failed(FailureKind::Other));
        assert_eq!(state, back_off(&FailureKind::Other, AfterWait::Read(not_older_than("5"))));
    }
}
