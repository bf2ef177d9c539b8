//! The states of a reflector, and what follows from what. No effects here.

use std::time::Duration;

use kube::core::response::reason;
use windlass_client::RequestError;
use windlass_object::{ResourceVersion, WireError};

use super::failure::NextAction;
use crate::backoff::{Backoff, BackoffReason};

/// A stream that ended sooner than this without news is no better than a refusal.
const MIN_WATCH: Duration = Duration::from_secs(1);
/// A stream that was open this long worked, whatever ended it: balancers and proxies cut what is old or idle, many
/// of them every minute. Not shorter than the longest step of the ramp, so that a source that breaks every watch
/// is not asked more often for it.
const LONG_WATCH: Duration = Backoff::MAX;
/// The longest wait a server can ask for. It asks on its own behalf and wants relief, not silence: beyond this it
/// may as well say so again, and a broken answer must not silence an informer for hours.
const MAX_WISH: Duration = Duration::from_secs(60);

/// How long a source that is too large is left alone: it is read in part each time for nothing.
const NO_ROOM_PACE: Duration = Duration::from_secs(60);

/// What a reflector is about to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Read everything, by a stream if the source offers one.
    Reading(ListConsistency),
    /// Read everything, by a stream that then continues as a watch.
    Streaming(ListConsistency),
    /// Read everything, in pages.
    Listing(ListConsistency),
    /// Follow what changes after this version.
    Watching(ResourceVersion),
    /// Read everything on request, in pages. The watch that was closed for it had reached this version.
    Refreshing(ResourceVersion),
    /// Wait as long as the ramp says and at least this long, then continue.
    BackingOff {
        /// Which ramp.
        trouble: BackoffReason,
        /// What the server asked for, if it did, within reason.
        at_least: Option<Duration>,
        /// What comes then.
        then: Next,
    },
}

/// What follows a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Read(ListConsistency),
    List(ListConsistency),
    Watch(ResourceVersion),
}

/// How new a list has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListConsistency {
    /// The newest there is, whatever is already held.
    Consistent,
    /// At least as new as what is already held. Cheaper for the server, and enough unless versions were lost.
    NotOlderThan(ResourceVersion),
}

/// What a failure is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The version asked for is too old or too new for the server: only a consistent list helps.
    VersionUnavailable,
    /// The server wants to be asked later.
    Throttled(Option<Duration>),
    /// No server answered (502, 503 and 504 come from proxies and starting servers), or the connection was lost: nothing
    /// follows about the objects.
    Unreachable,
    /// The server, or its storage, stumbled, and does not say that anything was lost.
    Stumbled,
    /// What the source has is more than may be held.
    NoRoom,
    /// Anything else.
    Other,
}

/// How a stream ended that was to be a list, before the list was complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The source offers no such streams: nothing was asked.
    NotOffered,
    /// The server does not know of such streams, or does not do what they promise.
    Broken,
    /// The connection was lost after the server had agreed.
    CutOff,
    /// Somebody asked for a fresh look, and there was nothing to see yet.
    Distrusted,
    /// The source recovered from an outage in which the stream was silent: it might not have survived.
    Doubted,
    /// It failed.
    Failed(FailureKind),
}

/// How often in a row a watch may stumble before everything is read again.
#[derive(Debug, Default)]
pub(crate) struct WatchErrorBudget {
    stumbles: u32,
}

/// How a watch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchEnd {
    /// The server closed it, as it does when the time is up.
    Closed {
        /// How long it was open.
        lasted: Duration,
        /// Whether it told of a change newer than everything before it.
        moved: bool,
    },
    /// It was open for a good while, and then the connection was lost.
    CutOff,
    /// Somebody asked for a fresh look, whatever it told.
    Distrusted,
    /// The source recovered from an outage in which the watch was silent: it might not have survived.
    Doubted,
    /// It failed.
    Failed(FailureKind),
}

impl FailureKind {
    pub(crate) fn of(error: &RequestError) -> Self {
        match error {
            error if error.is_expired() || error.is_too_large_version() => FailureKind::VersionUnavailable,
            RequestError::TooManyRequests { retry_after, .. } => FailureKind::Throttled(*retry_after),
            RequestError::ConnectionRefused(_)
            | RequestError::Transport(_)
            | RequestError::Deadline
            | RequestError::Silent => FailureKind::Unreachable,
            // The connection was cut in the middle of a frame; what was cut off comes again.
            RequestError::Wire(WireError::Truncated { .. }) => FailureKind::Unreachable,
            RequestError::NoRoom(_) => FailureKind::NoRoom,
            error if error.status().is_some_and(|status| matches!(status.code, 502..=504)) => {
                FailureKind::Unreachable
            }
            error if error.status().is_some_and(|status| status.reason == reason::INTERNAL_ERROR) => {
                FailureKind::Stumbled
            }
            _ => FailureKind::Other,
        }
    }
}

impl StreamEnd {
    /// How it ended, by what the server said or the connection did.
    pub(crate) fn of(error: &RequestError) -> Self {
        match (error, error.status().map(|status| status.code)) {
            (RequestError::Unsupported(_), _) => StreamEnd::NotOffered,
            // Something between us and the server keeps streams back; pages are answered in one piece.
            (RequestError::Deadline | RequestError::Silent, _) => StreamEnd::CutOff,
            // Not a word of these codes is about the objects: the question was not understood, or not allowed to be
            // put like that.
            (_, Some(400 | 405 | 406 | 422 | 501)) => StreamEnd::Broken,
            _ => StreamEnd::Failed(FailureKind::of(error)),
        }
    }
}

impl WatchErrorBudget {
    /// How many times in a row a stumble is only that. A storage that elects a new leader makes every watch stumble,
    /// once or twice, and loses nothing; reading everything again, for everybody at once, is what it needs least.
    const STUMBLES: u32 = 3;

    /// What a watch failed at, given what it failed at before.
    pub(crate) fn consider(&mut self, fault: FailureKind) -> FailureKind {
        if fault != FailureKind::Stumbled {
            return fault;
        }
        self.stumbles += 1;
        if self.stumbles <= Self::STUMBLES { fault } else { FailureKind::Other }
    }

    /// Something new has been heard.
    pub(crate) fn restore(&mut self) {
        self.stumbles = 0;
    }
}

impl WatchEnd {
    /// How a watch ended that had been accepted and was open for so long when it broke.
    pub(crate) fn broken(fault: FailureKind, lasted: Duration) -> Self {
        match fault {
            FailureKind::Unreachable if lasted >= LONG_WATCH => WatchEnd::CutOff,
            fault => WatchEnd::Failed(fault),
        }
    }

    /// Whether the watch did what watches do.
    pub(crate) fn is_healthy(&self) -> bool {
        match self {
            // What was told before proves nothing: who replays one old change and closes would be asked again
            // without end and without a wait.
            WatchEnd::Closed { lasted, moved } => *moved || *lasted >= MIN_WATCH,
            WatchEnd::CutOff | WatchEnd::Distrusted | WatchEnd::Doubted | WatchEnd::Failed(_) => false,
        }
    }
}

/// A stream that was to be a list ended before the list was complete.
pub(crate) fn after_stream(freshness: ListConsistency, end: StreamEnd) -> State {
    match end {
        StreamEnd::NotOffered | StreamEnd::Broken => State::Listing(freshness),
        StreamEnd::Distrusted => State::Listing(ListConsistency::Consistent),
        StreamEnd::Doubted => State::Streaming(freshness),
        // What cuts connections after a while would cut the next stream at the same place; pages are short, and only
        // consistent lists come in pages.
        StreamEnd::CutOff => back_off(&FailureKind::Unreachable, Next::List(ListConsistency::Consistent)),
        // Even the newest state is too new for the cache that streams come from; pages come from further behind.
        StreamEnd::Failed(FailureKind::VersionUnavailable) if freshness == ListConsistency::Consistent => {
            State::Listing(freshness)
        }
        StreamEnd::Failed(
            fault @ (FailureKind::Throttled(_)
            | FailureKind::Unreachable
            | FailureKind::VersionUnavailable
            | FailureKind::NoRoom),
        ) => match after_failed_list(freshness, fault) {
            State::Listing(freshness) => State::Streaming(freshness),
            other => other,
        },
        // Pages may work where the stream does not; if they do not, they say why in words that people know.
        StreamEnd::Failed(_) => State::Listing(freshness),
    }
}

/// A list failed.
pub(crate) fn after_failed_list(freshness: ListConsistency, fault: FailureKind) -> State {
    match (freshness, fault) {
        // Asked at once, for the question was at fault and not the server; the new one cannot fail that way
        // again.
        (ListConsistency::NotOlderThan(_), FailureKind::VersionUnavailable) => {
            State::Listing(ListConsistency::Consistent)
        }
        (freshness, fault @ FailureKind::Throttled(_)) => back_off(&fault, Next::Read(freshness)),
        // The whole at once, from the server's memory, is the cheapest list if it arrives. If it does not, it might be too
        // large to arrive in time, and would fail the same way again.
        (_, fault) => back_off(&fault, Next::Read(ListConsistency::Consistent)),
    }
}

/// A list arrived.
pub(crate) fn after_list(freshness: &ListConsistency, version: ResourceVersion) -> State {
    match freshness {
        // The server broke its word; only the newest state can tell whether it went back in time.
        ListConsistency::NotOlderThan(held) if version < *held => State::Listing(ListConsistency::Consistent),
        _ => State::Watching(version),
    }
}

/// A watch that had come to `version` ended.
pub(crate) fn after_watch(version: ResourceVersion, end: WatchEnd) -> State {
    match end {
        WatchEnd::Closed { .. } if end.is_healthy() => State::Watching(version),
        WatchEnd::Doubted => State::Watching(version),
        WatchEnd::Closed { .. } => back_off(&FailureKind::Other, Next::Watch(version)),
        WatchEnd::Distrusted => State::Refreshing(version),
        WatchEnd::CutOff => {
            State::BackingOff { trouble: BackoffReason::CutOff, at_least: None, then: Next::Watch(version) }
        }
        WatchEnd::Failed(fault) => {
            let then = match fault {
                FailureKind::VersionUnavailable => Next::Read(ListConsistency::Consistent),
                FailureKind::Throttled(_) | FailureKind::Unreachable | FailureKind::Stumbled => {
                    Next::Watch(version)
                }
                // What does not fit is not skipped: only a list can tell whether all of it fits by then.
                FailureKind::Other | FailureKind::NoRoom => {
                    Next::Read(ListConsistency::NotOlderThan(version))
                }
            };
            back_off(&fault, then)
        }
    }
}

/// What is done next about a failure: once it has been waited, if that is what comes first.
pub(crate) fn step(state: &State) -> NextAction {
    let read = |freshness: &ListConsistency| NextAction::Read {
        not_older_than: match freshness {
            ListConsistency::Consistent => None,
            ListConsistency::NotOlderThan(version) => Some(version.clone()),
        },
    };
    match state {
        State::Reading(freshness)
        | State::Streaming(freshness)
        | State::Listing(freshness)
        | State::BackingOff { then: Next::Read(freshness) | Next::List(freshness), .. } => read(freshness),
        State::Refreshing(_) => read(&ListConsistency::Consistent),
        State::Watching(version) | State::BackingOff { then: Next::Watch(version), .. } => {
            NextAction::Watch { from: version.clone() }
        }
    }
}

/// A wait is over.
pub(crate) fn after_wait(then: Next) -> State {
    match then {
        Next::Read(freshness) => State::Reading(freshness),
        Next::List(freshness) => State::Listing(freshness),
        Next::Watch(version) => State::Watching(version),
    }
}

fn back_off(fault: &FailureKind, then: Next) -> State {
    let (trouble, at_least) = match fault {
        FailureKind::Unreachable => (BackoffReason::Unreachable, None),
        FailureKind::Throttled(wish) => (BackoffReason::Refused, wish.map(|wish| wish.min(MAX_WISH))),
        FailureKind::NoRoom => (BackoffReason::Refused, Some(NO_ROOM_PACE)),
        FailureKind::VersionUnavailable | FailureKind::Stumbled | FailureKind::Other => {
            (BackoffReason::Refused, None)
        }
    };
    State::BackingOff { trouble, at_least, then }
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

    fn broken_after(fault: FailureKind, lasted: Duration) -> State {
        after_watch(version("5"), WatchEnd::broken(fault, lasted))
    }

    #[test]
    fn list_at_an_unavailable_version_is_asked_for_consistently_at_once() {
        let state = after_failed_list(not_older_than("5"), FailureKind::VersionUnavailable);
        assert_eq!(state, State::Listing(ListConsistency::Consistent));
    }

    #[test]
    fn list_at_a_version_that_fails_is_read_in_pages_unless_the_server_was_busy() {
        for fault in
            [FailureKind::Unreachable, FailureKind::Stumbled, FailureKind::Other, FailureKind::NoRoom]
        {
            let state = after_failed_list(not_older_than("5"), fault.clone());
            assert_eq!(state, back_off(&fault, Next::Read(ListConsistency::Consistent)));
        }
        let busy = FailureKind::Throttled(Some(Duration::from_secs(7)));
        let state = after_failed_list(not_older_than("5"), busy.clone());
        assert_eq!(state, back_off(&busy, Next::Read(not_older_than("5"))));
    }

    // parity: every-exit-list-and, expired-too-large-list
    #[test]
    fn consistent_list_that_fails_is_never_repeated_without_a_wait() {
        for fault in [
            FailureKind::VersionUnavailable,
            FailureKind::Throttled(None),
            FailureKind::Unreachable,
            FailureKind::Other,
        ] {
            let state = after_failed_list(ListConsistency::Consistent, fault.clone());
            assert_eq!(state, back_off(&fault, Next::Read(ListConsistency::Consistent)));
        }
    }

    #[test]
    fn list_older_than_it_may_be_is_not_believed() {
        assert_eq!(
            after_list(&not_older_than("10"), version("9")),
            State::Listing(ListConsistency::Consistent)
        );
        assert_eq!(after_list(&not_older_than("10"), version("10")), State::Watching(version("10")));
        assert_eq!(after_list(&ListConsistency::Consistent, version("9")), State::Watching(version("9")));
    }

    #[test]
    fn watch_that_closes_as_it_should_is_resumed_at_once() {
        assert_eq!(closed_after(Duration::from_secs(100), false), State::Watching(version("5")));
        assert_eq!(closed_after(Duration::from_millis(1), true), State::Watching(version("5")));
    }

    #[test]
    fn watch_that_closes_at_once_without_news_is_resumed_after_a_wait() {
        assert_eq!(
            closed_after(Duration::from_millis(999), false),
            back_off(&FailureKind::Other, Next::Watch(version("5")))
        );
    }

    #[test]
    fn lost_connection_climbs_no_ramp_if_the_watch_was_open_for_a_good_while() {
        let resumed =
            |trouble| State::BackingOff { trouble, at_least: None, then: Next::Watch(version("5")) };
        let almost = LONG_WATCH - Duration::from_millis(1);
        assert_eq!(broken_after(FailureKind::Unreachable, LONG_WATCH), resumed(BackoffReason::CutOff));
        assert_eq!(broken_after(FailureKind::Unreachable, almost), resumed(BackoffReason::Unreachable));
    }

    // parity: stream-410-lists-429, test-no-relist-on-too-many-requests
    #[test]
    fn what_a_server_says_counts_however_long_the_watch_was_open() {
        for fault in [FailureKind::VersionUnavailable, FailureKind::Throttled(None), FailureKind::Other] {
            let said = after_watch(version("5"), WatchEnd::Failed(fault.clone()));
            assert_eq!(broken_after(fault, LONG_WATCH * 2), said);
        }
    }

    // parity: to-lister-watcher-with-watch-list, watch-list-falls-back, test-to-list-watcher-with-watch-list
    #[test]
    fn stream_that_is_not_offered_or_keeps_no_promise_gives_way_to_pages_at_once() {
        for end in [StreamEnd::NotOffered, StreamEnd::Broken, StreamEnd::Failed(FailureKind::Other)] {
            for freshness in [ListConsistency::Consistent, not_older_than("5")] {
                assert_eq!(after_stream(freshness.clone(), end.clone()), State::Listing(freshness));
            }
        }
    }

    // parity: watch-list-falls-back
    #[test]
    fn stream_that_could_not_be_had_just_now_is_asked_for_again_after_a_wait() {
        for fault in [FailureKind::Throttled(None), FailureKind::Unreachable] {
            let state = after_stream(ListConsistency::Consistent, StreamEnd::Failed(fault.clone()));
            assert_eq!(state, back_off(&fault, Next::Read(ListConsistency::Consistent)));
        }
        let state = after_stream(not_older_than("5"), StreamEnd::Failed(FailureKind::VersionUnavailable));
        assert_eq!(state, State::Streaming(ListConsistency::Consistent));
    }

    // parity: first-list-back-time
    #[test]
    fn server_whose_cache_has_fallen_behind_is_asked_for_pages() {
        let state =
            after_stream(ListConsistency::Consistent, StreamEnd::Failed(FailureKind::VersionUnavailable));
        assert_eq!(state, State::Listing(ListConsistency::Consistent));
    }

    #[test]
    fn stream_cut_off_before_its_list_was_complete_gives_way_to_pages_after_a_wait() {
        let state = after_stream(not_older_than("5"), StreamEnd::CutOff);
        assert_eq!(state, back_off(&FailureKind::Unreachable, Next::List(ListConsistency::Consistent)));
    }

    #[test]
    fn stream_that_is_never_answered_gives_way_to_pages_after_a_wait() {
        for error in [RequestError::Deadline, RequestError::Silent] {
            assert_eq!(StreamEnd::of(&error), StreamEnd::CutOff);
        }
    }

    #[test]
    fn stumbles_cost_no_list_until_there_are_too_many_in_a_row() {
        let mut patience = WatchErrorBudget::default();
        for _ in 0..2 {
            for _ in 0..WatchErrorBudget::STUMBLES {
                let fault = patience.consider(FailureKind::Stumbled);
                let state = after_watch(version("5"), WatchEnd::Failed(fault));
                assert_eq!(state, back_off(&FailureKind::Stumbled, Next::Watch(version("5"))));
            }
            assert_eq!(patience.consider(FailureKind::Stumbled), FailureKind::Other);
            patience.restore();
        }
    }

    #[test]
    fn no_server_can_ask_for_more_than_a_minute_of_silence() {
        for (wish, granted) in [(59, 59), (60, 60), (61, 60), (u64::MAX, 60)] {
            let wish = FailureKind::Throttled(Some(Duration::from_secs(wish)));
            let State::BackingOff { at_least, .. } = back_off(&wish, Next::Watch(version("5"))) else {
                unreachable!("a fault costs a wait")
            };
            assert_eq!(at_least, Some(Duration::from_secs(granted)));
        }
    }

    // parity: every-exit-list-and
    #[test]
    fn watch_at_an_unavailable_version_leads_to_a_consistent_list() {
        let state = after_watch(version("5"), WatchEnd::Failed(FailureKind::VersionUnavailable));
        assert_eq!(
            state,
            back_off(&FailureKind::VersionUnavailable, Next::Read(ListConsistency::Consistent))
        );
    }

    #[test]
    fn neither_throttling_nor_a_lost_connection_costs_a_list() {
        let wait = Some(Duration::from_secs(7));
        let throttled = after_watch(version("5"), WatchEnd::Failed(FailureKind::Throttled(wait)));
        assert_eq!(throttled, back_off(&FailureKind::Throttled(wait), Next::Watch(version("5"))));
        let unreachable = after_watch(version("5"), WatchEnd::Failed(FailureKind::Unreachable));
        assert_eq!(unreachable, back_off(&FailureKind::Unreachable, Next::Watch(version("5"))));
    }

    #[test]
    fn unknown_failure_of_a_watch_leads_to_a_list_no_older_than_what_is_held() {
        let state = after_watch(version("5"), WatchEnd::Failed(FailureKind::Other));
        assert_eq!(state, back_off(&FailureKind::Other, Next::Read(not_older_than("5"))));
    }
}
