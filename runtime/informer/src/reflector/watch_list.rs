//! Lists that come as streams and continue as watches: the server makes no pages, and the reader holds none.
//!
//! What arrives is decoded at once and kept aside until the source says that this was all; then it replaces what is
//! held, as any list does. So the memory this takes is that of the objects, and of those that are held already and
//! did not change it takes none.
//!
//! Servers have promised such streams and not kept the promise: they never said that this was all, or closed, or let
//! a proxy take the question for another. So there is a bound to everything: to the silence before the next object,
//! and to the whole. Beyond it everything is listed in pages, and no stream asked for in a good while. So it is when a
//! stream closes too early for the second time in a row.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{self, Either};
use windlass_client::{FrameStream, RequestError};
use windlass_env::Instant;
use windlass_object::{Frame, ObjectKey, ResourceVersion};

use super::ingest::FrameContent;
use super::state::{self, ListConsistency, State, StreamEnd};
use super::{
    CHUNK, CompletedList, MAX_WINDOW, Reflector, WatchOperation, answered, unless_overtaken, unless_recovered,
};
use crate::delta_fifo::Item;
use crate::erased::Object;
use crate::list_watch::{STREAMLESS, WatchListRequest};
use crate::sync::yield_now;

/// How long a stream may be silent before it has told everything. Servers first let their cache catch up, which they
/// do for three seconds at most, and then send as fast as they are read.
const MAX_SILENCE: Duration = Duration::from_secs(15);
/// How long a stream may take to tell everything. One that continues and on tells news, and not what there was; and
/// what takes longer than this because there is so much of it can still come in pages.
const MAX_STREAM: Duration = Duration::from_secs(120);
/// A stream that continues as a watch lasts at least this long: the source must not end it for its age while it may still
/// be telling what there is.
const MIN_STREAM_WINDOW: Duration = MAX_STREAM.saturating_add(Duration::from_secs(30));

/// Whether the source is asked for streams.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WatchListState {
    /// Nothing speaks against it.
    Untried,
    /// Nothing but that the last one closed before its end: a server that shuts down does that, too.
    Closed,
    /// Not before then: it disappointed.
    NotBefore(Instant),
}

/// A list by a stream that is not complete.
type Pending = BTreeMap<ObjectKey, Item<Object>>;

impl Reflector {
    /// Whether to read by a stream or in pages. A request for a fresh list is seen to in pages: these are bounded.
    pub(super) fn choose(&self, freshness: ListConsistency) -> State {
        match self.streams {
            _ if self.wishes.are_open() => State::Listing(ListConsistency::Consistent),
            WatchListState::NotBefore(until) if self.env.now() < until => State::Listing(freshness),
            WatchListState::Untried | WatchListState::Closed | WatchListState::NotBefore(_) => {
                State::Streaming(freshness)
            }
        }
    }

    /// Reads everything by a stream, and follows that stream on to its end.
    pub(super) async fn stream(&mut self, freshness: ListConsistency) -> State {
        let ticket = self.wishes.look();
        self.sighting.looks();
        let end = match self.open(&freshness).await {
            Ok(stream) => self.gather(stream).await,
            Err(end) => Err(end),
        };
        self.wishes.looked();
        match end {
            Ok((listing, stream)) => self.go_on(&freshness, listing, stream, ticket).await,
            Err(end) => {
                self.intake.give_up_list();
                self.disappointed(&end);
                state::after_stream(freshness, end)
            }
        }
    }

    async fn open(&mut self, freshness: &ListConsistency) -> Result<FrameStream, StreamEnd> {
        let request = WatchListRequest {
            not_older_than: match freshness {
                ListConsistency::Consistent => None,
                ListConsistency::NotOlderThan(version) => Some(version.as_str().to_owned()),
            },
            timeout: self.windows.between(MIN_STREAM_WINDOW, MAX_WINDOW),
            extent: self.extent,
        };
        let source = Arc::clone(&self.source);
        self.sent = self.env.now();
        let opened = answered(&*source, || source.watch_list(request.clone()));
        let opened = unless_overtaken(&self.wishes, opened).await;
        let opened = opened.ok_or(StreamEnd::Distrusted)?;
        if !matches!(opened, Err(RequestError::Unsupported(_))) {
            self.metrics.lists.inc();
            self.metrics.watches.inc();
        }
        opened.map_err(|error| self.stream_failed(&error))
    }

    /// Takes what there is, up to the bookmark that ends it.
    async fn gather(&mut self, mut stream: FrameStream) -> Result<(CompletedList, FrameStream), StreamEnd> {
        let mut pending = Pending::new();
        self.intake.begin_list();
        let trusted = self.intake.trusts(&self.partition);
        let mut now = self.env.now();
        let deadline = now + MAX_STREAM;
        let mut heard = now;
        for count in 1_usize.. {
            // A source that always has a frame ready is never waited for, so that no wait would notice.
            if now >= deadline {
                return Err(self.stream_failed(&NO_END));
            }
            let until = deadline.min(heard + MAX_SILENCE);
            let frame = self.next_before(until, heard, &mut stream).await?;
            now = self.env.now();
            match frame {
                Frame::Bookmark { version, initial_events_end: true } => {
                    self.streams = WatchListState::Untried;
                    let items = pending.into_values().collect();
                    return Ok((CompletedList { items, version }, stream));
                }
                // A watch that is none of ours tells how far it has come, too: that is no sign of life.
                Frame::Bookmark { .. } | Frame::Unknown(_) => {}
                Frame::Error(status) => {
                    return Err(self.stream_failed(&RequestError::from_status(*status, None)));
                }
                told => {
                    heard = now;
                    let taken = self.take(told, trusted, &mut pending);
                    taken.map_err(|error| self.stream_failed(&error))?;
                }
            }
            if count.is_multiple_of(CHUNK) {
                yield_now().await;
            }
        }
        Err(StreamEnd::Broken)
    }

    /// The next frame, if it comes in time.
    async fn next_before(
        &mut self,
        until: Instant,
        heard: Instant,
        stream: &mut FrameStream,
    ) -> Result<Frame, StreamEnd> {
        let asleep = pin!(self.env.sleep_until(until));
        let source = Arc::clone(&self.source);
        let next = unless_recovered(&*source, || Some(heard), future::select(stream.next(), asleep));
        let next = unless_overtaken(&self.wishes, next).await.ok_or(StreamEnd::Distrusted)?;
        let next = next.ok_or(StreamEnd::Doubted)?;
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

    /// A stream closed before its end. A server that shuts down in good order does that once; one that does it again
    /// knows no better.
    fn closed_early(&mut self) -> StreamEnd {
        let end = self.stream_failed(&NO_END);
        if self.streams == WatchListState::Closed {
            return end;
        }
        self.streams = WatchListState::Closed;
        StreamEnd::CutOff
    }

    /// Takes one object, or takes it away. What changes while it is told has its last word.
    fn take(&mut self, frame: Frame, trusted: bool, pending: &mut Pending) -> Result<(), RequestError> {
        match frame {
            Frame::Added(raw) | Frame::Modified(raw) => {
                if let FrameContent::Ours(item) = self.intake.initial(&raw, trusted, pending)? {
                    pending.insert(item.head.key.clone(), item);
                }
            }
            Frame::Deleted(raw) => {
                let FrameContent::Ours(Item { head: gone, .. }) = self.intake.deleted(&raw)? else {
                    return Ok(());
                };
                if let Some(told) = pending.remove(&gone.key) {
                    self.intake.take_back(&told);
                }
            }
            Frame::Bookmark { .. } | Frame::Unknown(_) | Frame::Error(_) => {}
        }
        Ok(())
    }

    /// The list is complete: it replaces what is held, and the stream continues as a watch.
    async fn go_on(
        &mut self,
        freshness: &ListConsistency,
        listing: CompletedList,
        stream: FrameStream,
        ticket: u64,
    ) -> State {
        let mut reached = listing.version.clone();
        if self.is_before_what_was_passed_on(&reached) {
            // The server went back in time, and what was taken to be held already may be something else now: only a
            // list that says so before it begins can be believed.
            return State::Listing(ListConsistency::Consistent);
        }
        match self.replace(freshness, listing, ticket) {
            State::Watching(_) => {}
            distrust => return distrust,
        }
        let end = self.follow(stream, &mut reached).await;
        state::after_watch(reached, end)
    }

    pub(super) fn is_before_what_was_passed_on(&self, version: &ResourceVersion) -> bool {
        self.passed_on.as_ref().is_some_and(|passed_on| version < passed_on)
    }

    fn stream_failed(&mut self, error: &RequestError) -> StreamEnd {
        let end = StreamEnd::of(error);
        // Who offers no streams has refused nothing, unless it began one.
        if end != StreamEnd::NotOffered || *error == NO_END {
            self.metrics.list_errors.inc();
            self.report(WatchOperation::WatchList, error);
            self.sighting.failed(error);
        }
        if *error == NO_END { StreamEnd::Broken } else { end }
    }

    fn disappointed(&mut self, end: &StreamEnd) {
        if *end == StreamEnd::Broken {
            self.streams = WatchListState::NotBefore(self.env.now() + STREAMLESS);
            self.source.watch_list_failed();
        }
    }
}

/// The stream ended, or fell silent, or continued without end.
const NO_END: RequestError =
    RequestError::Unsupported("the server began a list as a stream and did not say where it ends");
