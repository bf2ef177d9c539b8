//! Watch-list streams: lists that arrive as streams and continue as watches, without pages on either side.
//!
//! Objects are decoded as they arrive and kept in a pending list until the source marks its end. The list then replaces
//! the cached objects, like any list. The memory cost is that of the new objects; unchanged objects are shared.
//!
//! Servers have offered such streams and broken the protocol: they never sent the end bookmark, closed the stream, or a
//! proxy ignored the watch-list parameters. So the wait for the next object and the whole stream are bounded. When a
//! bound is exceeded, or when a stream closes early twice in a row, the reflector lists in pages and requests no stream
//! for [`WATCH_LIST_PAUSE`].

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{self, Either};
use windlass_client::{FrameStream, RequestError};
use windlass_env::Instant;
use windlass_object::{Frame, ResourceVersion};

use super::ingest::FrameContent;
use super::pending_list::PendingList;
use super::state::{self, ListConsistency, State, StreamEnd};
use super::{
    CHUNK, CompletedList, MAX_WATCH_TIMEOUT, Reflector, WatchOperation, send_until_answered,
    unless_overtaken, unless_recovered,
};
use crate::delta_fifo::Item;
use crate::list_watch::{WATCH_LIST_PAUSE, WatchListRequest};
use crate::yield_now::yield_now;

/// The longest wait for the next object of the list. Servers first let their cache catch up, for at most three seconds,
/// and then send as fast as the client reads.
const MAX_IDLE: Duration = Duration::from_secs(15);
/// The longest time for the whole list. A longer stream either sends changes instead of the list, or is so large that
/// pages are the better choice.
const MAX_STREAM: Duration = Duration::from_secs(120);
/// The shortest timeout of a stream that continues as a watch: the source must not end the stream while it can still be
/// sending the list.
const MIN_STREAM_WINDOW: Duration = MAX_STREAM.saturating_add(Duration::from_secs(30));

/// The decision whether to request streams.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WatchListState {
    /// The last stream worked, or none was requested yet.
    Enabled,
    /// The last stream closed before its end, as streams of a server that shuts down do.
    Closed,
    /// Not before this time, because the source broke the protocol.
    NotBefore(Instant),
}

impl Reflector {
    /// Selects stream or pages. A requested relist uses pages, because their time is bounded.
    pub(super) fn choose_list_method(&self, consistency: ListConsistency) -> State {
        match self.watch_list {
            _ if self.relist_requests.is_due() => State::Listing(ListConsistency::Consistent),
            WatchListState::NotBefore(until) if self.env.now() < until => State::Listing(consistency),
            WatchListState::Enabled | WatchListState::Closed | WatchListState::NotBefore(_) => {
                State::Streaming(consistency)
            }
        }
    }

    /// Reads everything by a stream, and follows that stream as a watch until its end.
    pub(super) async fn stream(&mut self, consistency: ListConsistency) -> State {
        let ticket = self.relist_requests.begin_list();
        self.availability.on_list_started();
        let end = match self.open(&consistency).await {
            Ok(stream) => self.gather(stream).await,
            Err(end) => Err(end),
        };
        self.relist_requests.end_list();
        match end {
            Ok((listing, stream)) => self.continue_as_watch(&consistency, listing, stream, ticket).await,
            Err(end) => {
                self.ingest.cancel_list();
                self.disable_broken_streams(&end);
                state::after_stream(consistency, end)
            }
        }
    }

    async fn open(&mut self, consistency: &ListConsistency) -> Result<FrameStream, StreamEnd> {
        let request = WatchListRequest {
            not_older_than: match consistency {
                ListConsistency::Consistent => None,
                ListConsistency::NotOlderThan(version) => Some(version.as_str().to_owned()),
            },
            timeout: self.watch_timeout_rng.between(MIN_STREAM_WINDOW, MAX_WATCH_TIMEOUT),
            projection: self.projection,
        };
        let source = Arc::clone(&self.source);
        self.last_request_at = self.env.now();
        let opened = send_until_answered(&*source, || source.watch_list(request.clone()));
        let opened = unless_overtaken(&self.relist_requests, opened).await;
        let opened = opened.ok_or(StreamEnd::RelistRequested)?;
        if !matches!(opened, Err(RequestError::Unsupported(_))) {
            self.metrics.lists.inc();
            self.metrics.watches.inc();
        }
        opened.map_err(|error| self.stream_failed(&error))
    }

    /// Collects the list up to its end bookmark.
    async fn gather(&mut self, mut stream: FrameStream) -> Result<(CompletedList, FrameStream), StreamEnd> {
        let mut pending = PendingList::default();
        self.ingest.begin_list();
        let trusted = self.ingest.trusts_versions();
        let mut now = self.env.now();
        let deadline = now + MAX_STREAM;
        let (mut last_object_at, mut count) = (now, 0_usize);
        loop {
            count += 1;
            // A source that always has a frame ready never makes the reflector wait, so the wait below cannot detect
            // the deadline.
            if now >= deadline {
                return Err(self.stream_failed(&NO_END));
            }
            let until = deadline.min(last_object_at + MAX_IDLE);
            let frame = self.next_before(until, last_object_at, &mut stream).await?;
            now = self.env.now();
            match frame {
                Frame::Bookmark { version, initial_events_end: true } => {
                    self.watch_list = WatchListState::Enabled;
                    let items = pending.into_items();
                    return Ok((CompletedList { items, version }, stream));
                }
                // An ordinary watch sends bookmarks, too, so they prove nothing.
                Frame::Bookmark { .. } | Frame::Unknown(_) => {}
                Frame::Error(status) => {
                    return Err(self.stream_failed(&RequestError::from_status(*status, None)));
                }
                frame => {
                    last_object_at = now;
                    let taken = self.take(frame, trusted, &mut pending);
                    taken.map_err(|error| self.stream_failed(&error))?;
                }
            }
            if count.is_multiple_of(CHUNK) {
                yield_now().await;
            }
        }
    }

    /// Returns the next frame; fails if it does not arrive before `until`.
    async fn next_before(
        &mut self,
        until: Instant,
        last_object_at: Instant,
        stream: &mut FrameStream,
    ) -> Result<Frame, StreamEnd> {
        let asleep = pin!(self.env.sleep_until(until));
        let source = Arc::clone(&self.source);
        let next = unless_recovered(&*source, || Some(last_object_at), future::select(stream.next(), asleep));
        let next = unless_overtaken(&self.relist_requests, next).await.ok_or(StreamEnd::RelistRequested)?;
        let next = next.ok_or(StreamEnd::SourceRecovered)?;
        match next {
            Either::Left((Some(Ok(frame)), _)) => Ok(frame),
            Either::Left((Some(Err(error)), _)) => Err(match self.stream_failed(&error) {
                StreamEnd::Failed(state::FailureKind::Unreachable) => StreamEnd::CutOff,
                end => end,
            }),
            Either::Left((None, _)) => Err(self.closed_early()),
            Either::Right(_) => Err(self.stream_failed(&NO_END)),
        }
    }

    /// Handles a stream that closed before its end. A server that shuts down gracefully does that once; a second time
    /// means that the server does not follow the protocol.
    fn closed_early(&mut self) -> StreamEnd {
        let end = self.stream_failed(&NO_END);
        if self.watch_list == WatchListState::Closed {
            return end;
        }
        self.watch_list = WatchListState::Closed;
        StreamEnd::CutOff
    }

    /// Adds or removes one object. Changes that arrive during the list are final.
    fn take(&mut self, frame: Frame, trusted: bool, pending: &mut PendingList) -> Result<(), RequestError> {
        match frame {
            Frame::Added(raw) | Frame::Modified(raw) => {
                if let FrameContent::InPartition(item) = self.ingest.streamed_item(&raw, trusted, pending)? {
                    pending.insert(item);
                }
            }
            Frame::Deleted(raw) => {
                let FrameContent::InPartition(Item { head: gone, .. }) = self.ingest.deleted(&raw)? else {
                    return Ok(());
                };
                if let Some(item) = pending.get(&gone.key) {
                    self.ingest.release(item);
                    pending.remove(&gone.key);
                }
            }
            Frame::Bookmark { .. } | Frame::Unknown(_) | Frame::Error(_) => {}
        }
        Ok(())
    }

    /// Replaces the cached objects with the complete list and follows the stream as a watch.
    async fn continue_as_watch(
        &mut self,
        consistency: &ListConsistency,
        listing: CompletedList,
        stream: FrameStream,
        ticket: u64,
    ) -> State {
        let mut reached = listing.version.clone();
        if self.is_before_last_queued(&reached) {
            // The server moved back, so objects taken to be unchanged can differ. Only a list with that knowledge
            // from its start is trusted.
            return State::Listing(ListConsistency::Consistent);
        }
        match self.replace(consistency, listing, ticket) {
            State::Watching(_) => {}
            distrust => return distrust,
        }
        let end = self.read_watch(stream, &mut reached).await;
        state::after_watch(reached, end)
    }

    pub(super) fn is_before_last_queued(&self, version: &ResourceVersion) -> bool {
        self.last_queued.as_ref().is_some_and(|passed_on| version < passed_on)
    }

    fn stream_failed(&mut self, error: &RequestError) -> StreamEnd {
        let end = StreamEnd::of(error);
        // A source without streams did not fail, unless it began a stream.
        if end != StreamEnd::NotOffered || *error == NO_END {
            self.metrics.list_errors.inc();
            self.report(WatchOperation::WatchList, error);
            self.availability.on_failed(error);
        }
        if *error == NO_END { StreamEnd::Broken } else { end }
    }

    fn disable_broken_streams(&mut self, end: &StreamEnd) {
        if *end == StreamEnd::Broken {
            self.watch_list = WatchListState::NotBefore(self.env.now() + WATCH_LIST_PAUSE);
            self.source.watch_list_failed();
        }
    }
}

/// The error for a stream that ended, stalled or continued without an end bookmark.
const NO_END: RequestError =
    RequestError::Unsupported("the server did not send the bookmark that ends a watch-list stream");
