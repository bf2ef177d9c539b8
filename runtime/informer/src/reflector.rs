//! Keeps the objects of one partition of an informer in sync with their source: lists, then watches, forever.
//!
//! Guarantees:
//! - After a failure the reflector resumes from the last version it queued. It relists only if that version is gone.
//!   The next list is consistent wherever the server reports the expiry: at a list, at a later page, at the start of a
//!   watch or during it.
//! - [`state`] selects the next step without side effects. This module has one small function per state.
//! - If the source offers watch-list streams ([`watch_list`]) and they work as specified, the reflector uses them.
//!   Otherwise it lists in pages, within a bounded time.
//! - It retries indefinitely and never busy-loops: no failure repeats without a wait ([`Backoff`]). The only immediate
//!   steps are one fallback to a consistent list or to pages, and a retry when the source recovers from an outage. A
//!   `Retry-After` up to 60 s is honored. A long watch that loses its connection costs only the shortest wait.
//! - A wait after a lost connection ends early when the server answers any request of the process, or when the
//!   reflector is selected to probe the server ([`windlass_client::Reachability`]). After an outage, a request without
//!   a response is sent again, and a watch without data since the outage is reopened.
//! - After a list at a version fails, lists are paged: a single response might be too large to arrive in time.
//! - It does not run ahead of the store by more than the queue's capacity.
//! - A relist request ([`RelistHandle`]) makes the reflector close its watch and list consistently. Requests
//!   coalesce, and requested relists are spaced. Their pages bypass the client's rate limiter.
//!
//! Out of scope: handlers, indexes and readers.

mod failure;
mod heartbeat;
mod ingest;
mod pending_list;
mod relist;
mod state;
#[cfg(test)]
mod tests;
mod watch_list;

use std::cmp::Ordering;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{self, Either};
use windlass_client::{FrameStream, RequestError, RequestProgress, Resumption, VersionMatch};
use windlass_env::{Env, Instant, Rng};
use windlass_metrics::InformerMetrics;
use windlass_object::{Frame, Projection, RawList, ResourceVersion, Verb, WireError};

pub(crate) use self::failure::FailureReporter;
pub use self::failure::{LogWatchErrors, NextAction, WatchErrorHandler, WatchFailure, WatchOperation};
use self::heartbeat::FailedAttempt;
pub(crate) use self::heartbeat::Heartbeat;
use self::ingest::{FrameContent, ObjectIngest};
use self::relist::RelistReceiver;
pub(crate) use self::relist::{RelistHandle, Urgency};
use self::state::{AfterWait, FailureKind, ListConsistency, State, WatchEnd, WatchErrorBudget};
use self::watch_list::WatchListState;
use crate::availability::AvailabilityReporter;
use crate::backoff::{self, Backoff};
use crate::delta_fifo::{DeltaFifo, Item};
use crate::erased::Codec;
use crate::list_watch::{ListRequest, ListerWatcher, WatchRequest};
use crate::object::Object;
use crate::partition::{Partition, RemovalReason};
use crate::settings::IngestOptions;
use crate::store::Store;
use crate::yield_now::yield_now;

/// Objects per page. client-go uses this number, so servers are tuned for it.
const PAGE: u32 = 500;
/// Frames that are processed without yielding or reading the clock: about one millisecond of work.
const CHUNK: usize = 64;
/// Consecutive 429 responses to one page after which the list fails.
const MAX_PAGE_RETRIES: u32 = 10;
/// The minimum wait after a 429: a server that sends `Retry-After: 0` is busy all the same.
const MIN_PAGE_RETRY: Duration = Duration::from_secs(1);
/// The shortest watch timeout: reopening a watch is cheap, but not free.
const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(100);
/// The longest watch timeout: a watch that died silently is detected within minutes. Each timeout is randomized, so
/// that watches opened together do not end together.
const MAX_WATCH_TIMEOUT: Duration = Duration::from_secs(200);

/// Time without a sign of life ([`heartbeat`]) after which a reflector is stuck: two watch timeouts. Every watch ends
/// within one timeout, with or without data. Every other wait is shorter, and a longer list shows signs of life.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(2 * MAX_WATCH_TIMEOUT.as_secs());

/// The list-and-watch loop of one partition of an informer.
pub(crate) struct Reflector {
    informer: Arc<str>,
    partition: Partition,
    source: Arc<dyn ListerWatcher>,
    projection: Projection,
    watch_list: WatchListState,
    fifo: Arc<DeltaFifo<Object>>,
    ingest: ObjectIngest,
    env: Env,
    watch_timeout_rng: Rng,
    backoff: Backoff,
    _rng_streams: RngStreams,
    metrics: InformerMetrics,
    error_budget: WatchErrorBudget,
    failures: FailureReporter,
    /// The last failure, until its next action is known.
    unreported: Option<(WatchOperation, RequestError)>,
    relist_requests: RelistReceiver,
    availability: AvailabilityReporter,
    heartbeat: Heartbeat,
    /// The newest version that was queued.
    last_queued: Option<ResourceVersion>,
    /// Start of the last request.
    last_request_at: Instant,
    /// The furthest page of any list since the last complete list.
    furthest_page: usize,
}

/// The parts of a reflector.
pub(crate) struct ReflectorParams {
    pub(crate) informer: Arc<str>,
    /// The partition of the informer that this reflector follows and its source serves.
    pub(crate) partition: Partition,
    /// Name that separates this reflector's random numbers from those of other reflectors in the same [`Env`].
    pub(crate) stream: String,
    pub(crate) source: Arc<dyn ListerWatcher>,
    pub(crate) codec: Arc<Codec>,
    pub(crate) fifo: Arc<DeltaFifo<Object>>,
    pub(crate) store: Arc<Store<Object>>,
    /// Options of the decoding before the store.
    pub(crate) ingest_options: IngestOptions,
    pub(crate) env: Env,
    pub(crate) metrics: InformerMetrics,
    pub(crate) failures: FailureReporter,
    pub(crate) relist: RelistHandle,
    pub(crate) availability: AvailabilityReporter,
    pub(crate) heartbeat: Heartbeat,
}

/// A complete list.
struct CompletedList {
    items: Vec<Item<Object>>,
    version: ResourceVersion,
}

/// A list that is read in pages.
#[derive(Default)]
struct PagedList {
    items: Vec<Item<Object>>,
    version: Option<ResourceVersion>,
    pages: usize,
    /// Consecutive 429 responses to the current page.
    rejections: u32,
    /// Whether the list was restarted without pages.
    is_unpaged: bool,
}

/// The next step of a list after a failed page.
enum PageStep {
    /// Restart as one unpaged, consistent list: the continue token has expired.
    Restart,
    /// Send the same request again. A busy server that rejects one page keeps the earlier pages valid.
    Repeat {
        wait: Duration,
    },
    Fail(RequestError),
}

impl PagedList {
    fn after_failed_page(&self, error: RequestError, has_token: bool) -> PageStep {
        match error {
            error if error.is_expired() && has_token && !self.is_unpaged => PageStep::Restart,
            RequestError::TooManyRequests { retry_after: Some(wait), .. }
                if has_token && self.rejections < MAX_PAGE_RETRIES =>
            {
                PageStep::Repeat { wait: wait.max(MIN_PAGE_RETRY) }
            }
            error => PageStep::Fail(error),
        }
    }
}

/// Names of a reflector's random-number streams. Dropping the value frees them.
struct RngStreams {
    env: Env,
    names: [String; 2],
}

impl Drop for RngStreams {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| self.env.release_rng(name));
    }
}

impl Reflector {
    pub(crate) fn new(params: ReflectorParams) -> Self {
        let ReflectorParams {
            informer,
            partition,
            stream,
            source,
            codec,
            fifo,
            store,
            ingest_options,
            env,
            metrics,
            failures,
            relist,
            availability,
            heartbeat,
        } = params;
        let rng_streams = RngStreams {
            names: ["watch windows", "backoff"].map(|of| format!("{stream}/{of}")),
            env: env.clone(),
        };
        let [watch_timeout_rng, backoff_rng] = rng_streams.names.each_ref().map(|name| env.rng(name));
        Self {
            ingest: ObjectIngest::new(
                Arc::clone(&informer),
                partition.clone(),
                Arc::clone(&codec),
                store,
                metrics.clone(),
                ingest_options,
            ),
            informer,
            partition,
            source,
            projection: codec.projection,
            watch_list: WatchListState::Enabled,
            fifo,
            watch_timeout_rng,
            backoff: Backoff::new(backoff_rng),
            _rng_streams: rng_streams,
            metrics,
            error_budget: WatchErrorBudget::default(),
            failures,
            unreported: None,
            relist_requests: relist.receiver(&env),
            availability,
            heartbeat,
            last_queued: None,
            last_request_at: env.now(),
            furthest_page: 0,
            env,
        }
    }

    /// Runs until dropped.
    ///
    /// # Cancel safety
    /// Can be dropped at any await; everything queued so far is complete.
    pub(crate) async fn run(mut self) {
        let mut state = State::Reading(ListConsistency::Consistent);
        self.heartbeat.beat(self.env.now());
        loop {
            state = match state {
                State::Reading(consistency) => self.choose_list_method(consistency),
                State::Streaming(consistency) => self.stream(consistency).await,
                State::Listing(consistency) => self.list(consistency).await,
                State::Watching(version) => self.watch(version).await,
                State::Relisting(version) => self.relist(version).await,
                State::BackingOff { reason, min_wait, then } => self.back_off(reason, min_wait, then).await,
            };
            if !matches!(state, State::BackingOff { .. }) {
                self.report_failure(&state, Duration::ZERO);
            }
        }
    }

    async fn list(&mut self, consistency: ListConsistency) -> State {
        self.metrics.lists.inc();
        let ticket = self.relist_requests.begin_list();
        self.availability.on_list_started();
        let fetched = self.fetch(&consistency).await;
        self.relist_requests.end_list();
        match fetched {
            Ok(Some(listing)) => self.replace(&consistency, listing, ticket),
            Ok(None) => {
                self.ingest.cancel_list();
                State::Listing(ListConsistency::Consistent)
            }
            Err(error) => {
                self.ingest.cancel_list();
                self.metrics.list_errors.inc();
                self.report(WatchOperation::List, &error);
                self.on_list_failed(&error, ticket);
                // Objects that were removed from the cache set no lower bound for the next list.
                let held = self.last_queued.is_some();
                let consistency = if held { consistency } else { ListConsistency::Consistent };
                state::after_failed_list(consistency, FailureKind::of(&error))
            }
        }
    }

    /// Performs a requested relist. If the source rejects the list, the watch resumes: it might still work.
    async fn relist(&mut self, version: ResourceVersion) -> State {
        let next = self.list(ListConsistency::Consistent).await;
        match next {
            State::BackingOff { reason: backoff::BackoffReason::Rejected, min_wait, .. }
                if !self.relist_requests.has_urgent() =>
            {
                let now = self.env.now();
                let wait = self.backoff.after_failure(backoff::BackoffReason::Rejected, now);
                self.relist_requests.postpone(now + wait.max(min_wait.unwrap_or_default()));
                State::Watching(version)
            }
            next => next,
        }
    }

    /// Handles a failed list that began when `ticket` was read. If the kind is no longer served, its objects are
    /// removed. A 404 or 403 response grants the requested relist if the cache is empty. No other failure
    /// grants it.
    fn on_list_failed(&mut self, error: &RequestError, ticket: u64) {
        let gone = self.availability.on_rejected(Verb::List, error, self.env.now());
        if gone && self.last_queued.take().is_some() {
            tracing::warn!(informer = %self.informer, "kind no longer served; removing its objects");
            self.fifo.remove_partition(self.partition.clone(), RemovalReason::Unserved);
        }
        let answered = error.is_not_found() || error.is_forbidden();
        if self.last_queued.is_none() && answered {
            self.relist_requests.grant(ticket, self.fifo.end());
        }
    }

    fn replace(&mut self, consistency: &ListConsistency, listing: CompletedList, ticket: u64) -> State {
        let CompletedList { items, version } = listing;
        let next = state::after_list(consistency, version.clone());
        if !matches!(next, State::Watching(_)) {
            tracing::warn!(informer = %self.informer, %version, "list is older than the last known version; relisting");
            return next;
        }
        let consistent = *consistency == ListConsistency::Consistent;
        self.ingest.complete_list();
        self.fifo.replace(&self.partition, items, version.clone(), consistent);
        if consistent {
            self.relist_requests.grant(ticket, self.fifo.end());
        }
        self.last_queued = Some(version);
        self.furthest_page = 0;
        self.heartbeat.progress().complete_list();
        self.heartbeat.beat(self.env.now());
        self.availability.on_listed();
        self.backoff.healthy(self.env.now());
        self.failures.clear();
        next
    }

    /// Fetches every page of a list. Returns `None` if an urgent request arrives that this list cannot grant because it
    /// began earlier: a request that a network partition lost fails only at its deadline, and a takeover cannot wait
    /// for that. If a continue token expires, the list restarts as one unpaged, consistent list.
    async fn fetch(&mut self, consistency: &ListConsistency) -> Result<Option<CompletedList>, RequestError> {
        // Requested relists coalesce, so they are bounded. With the rate limiter, large lists would outlast their
        // callers.
        let unthrottled = self.relist_requests.has_pending();
        let mut request = self.restrict_page(first_page(consistency), unthrottled);
        let mut list = PagedList::default();
        let source = Arc::clone(&self.source);
        loop {
            let has_token = request.continue_token.is_some();
            if !has_token {
                self.ingest.begin_list();
                self.heartbeat.progress().begin_list();
            }
            self.last_request_at = self.env.now();
            let page = send_until_answered(&*source, || source.list(request.clone()));
            let page = unless_overtaken(&self.relist_requests, page).await;
            let Some(page) = page else { return Ok(None) };
            match page {
                Ok(page) => {
                    self.take_page(&page, &mut list).await?;
                    let Some(token) = page.continue_token else { break };
                    request = self.restrict_page(next_page(token), unthrottled);
                }
                Err(error) => match list.after_failed_page(error, has_token) {
                    PageStep::Restart => {
                        list = PagedList { is_unpaged: true, ..PagedList::default() };
                        request = self.restrict_page(ListRequest::default(), unthrottled);
                    }
                    PageStep::Repeat { wait } => {
                        list.rejections += 1;
                        self.heartbeat.beat(self.env.now());
                        let wait = self.env.sleep(wait);
                        if unless_overtaken(&self.relist_requests, wait).await.is_none() {
                            return Ok(None);
                        }
                    }
                    PageStep::Fail(RequestError::BudgetExceeded(_)) => return Err(self.ingest.reject_page()),
                    PageStep::Fail(error) => return Err(error),
                },
            }
            yield_now().await;
        }
        let PagedList { items, version, .. } = list;
        Ok(Some(CompletedList { items, version: version.ok_or_else(unversioned)? }))
    }

    /// Records that a page of a list arrived. A list that always fails at the same page makes no progress.
    fn record_page(&mut self, page: usize) {
        if page > self.furthest_page {
            self.furthest_page = page;
            self.heartbeat.beat(self.env.now());
        }
    }

    /// Restricts a page request to the decoded fields and to the page size that the byte budget allows.
    fn restrict_page(&self, page: ListRequest, unthrottled: bool) -> ListRequest {
        ListRequest {
            projection: self.projection,
            max_bytes: self.ingest.max_page_bytes(),
            unthrottled,
            ..page
        }
    }

    /// Adds a page to the list.
    async fn take_page(&mut self, page: &RawList, list: &mut PagedList) -> Result<(), RequestError> {
        (list.pages, list.rejections) = (list.pages + 1, 0);
        self.record_page(list.pages);
        if list.version.is_none() {
            list.version.clone_from(&page.version);
        }
        // A list older than the queued version begins a new epoch: the server can now have another object at the
        // same version.
        let went_back = list.version.as_ref().is_some_and(|version| self.is_before_last_queued(version));
        let trusted = !went_back && self.ingest.trusts_versions();
        list.items.extend(self.ingest.page(&page.items, trusted).await?);
        Ok(())
    }

    async fn watch(&mut self, version: ResourceVersion) -> State {
        self.metrics.watches.inc();
        let request = WatchRequest {
            version: version.as_str().to_owned(),
            timeout: self.watch_timeout_rng.between(MIN_WATCH_TIMEOUT, MAX_WATCH_TIMEOUT),
            bookmarks: true,
            projection: self.projection,
        };
        let mut reached = version;
        let source = Arc::clone(&self.source);
        self.last_request_at = self.env.now();
        let opened = send_until_answered(&*source, || source.watch(request.clone()));
        let end = match until_relist_due(&self.relist_requests, opened).await {
            Some(Ok(stream)) => self.read_watch(stream, &mut reached).await,
            Some(Err(error)) => self.watch_failed(WatchOperation::OpeningWatch, &error),
            None => WatchEnd::RelistRequested,
        };
        state::after_watch(reached, end)
    }

    /// Queues the changes of a watch until it ends.
    async fn read_watch(&mut self, mut stream: FrameStream, reached: &mut ResourceVersion) -> WatchEnd {
        self.failures.clear();
        self.availability.on_watch_opened();
        let source = Arc::clone(&self.source);
        let opened = self.env.now();
        self.heartbeat.beat(opened);
        let (mut moved, mut last_data_at, mut count) = (false, opened, 0_usize);
        loop {
            count += 1;
            let next = async {
                self.fifo.space().await;
                until_relist_due(&self.relist_requests, stream.next()).await
            };
            let (next, waited) = with_pending(unless_recovered(&*source, || Some(last_data_at), next)).await;
            let Some(next) = next else { return WatchEnd::SourceRecovered };
            // One clock read is enough for frames that arrive together.
            if waited || count.is_multiple_of(CHUNK) {
                last_data_at = self.env.now();
                self.heartbeat.beat(last_data_at);
            }
            let Some(next) = next else { return WatchEnd::RelistRequested };
            match next {
                Some(Ok(Frame::Error(status))) => {
                    return self
                        .watch_failed(WatchOperation::Watch, &RequestError::from_status(*status, None));
                }
                // Bookmarks do not count as changes: versions advance on a busy server without any change to these
                // objects.
                Some(Ok(Frame::Bookmark { version, .. })) => self.bookmark(version, reached),
                // Future frame types of the API do not describe objects.
                Some(Ok(Frame::Unknown(of_type))) => {
                    tracing::warn!(informer = %self.informer, %of_type, "unknown watch event ignored");
                }
                Some(Ok(frame)) => match self.queue_change(frame, reached) {
                    Ok(newer) => moved |= newer,
                    Err(error) => return self.watch_failed(WatchOperation::Watch, &error),
                },
                Some(Err(error)) => return self.broken(&error, opened),
                None => return self.closed(opened, moved),
            }
            self.backoff.healthy(opened);
        }
    }

    fn bookmark(&mut self, version: ResourceVersion, reached: &mut ResourceVersion) {
        self.fifo.bookmark(&self.partition, version.clone());
        let _forward = self.advance_to(version, reached);
    }

    /// Queues a change and returns whether it is newer than `reached`. A change with an unreadable header fails the
    /// watch, because it could be about any object. For a change of another partition, only its version is used.
    fn queue_change(&mut self, frame: Frame, reached: &mut ResourceVersion) -> Result<bool, RequestError> {
        type Queue = fn(&DeltaFifo<Object>, Item<Object>);
        let (content, queue): (_, Queue) = match frame {
            Frame::Added(raw) => (self.ingest.item(&raw)?, DeltaFifo::add),
            Frame::Modified(raw) => (self.ingest.item(&raw)?, DeltaFifo::update),
            Frame::Deleted(raw) => (self.ingest.deleted(&raw)?, DeltaFifo::delete),
            Frame::Bookmark { .. } | Frame::Error(_) | Frame::Unknown(_) => return Ok(false),
        };
        let version = match content {
            FrameContent::InPartition(item) => {
                let version = item.head.version.clone();
                queue(&self.fifo, item);
                version
            }
            FrameContent::OtherPartition(version) => {
                version.iter().for_each(|it| self.fifo.bookmark(&self.partition, it.clone()));
                version
            }
        };
        Ok(version.is_some_and(|version| self.advance_to(version, reached)))
    }

    /// Advances to `version` and returns whether it is newer. Versions that cannot be compared count as not newer.
    fn advance_to(&mut self, version: ResourceVersion, reached: &mut ResourceVersion) -> bool {
        let order = version.partial_cmp(reached);
        // A server that replays events does not move the next watch back.
        if order != Some(Ordering::Less) {
            *reached = version.clone();
            self.last_queued = Some(version);
        }
        let forward = order == Some(Ordering::Greater);
        if forward {
            self.error_budget.reset();
        }
        forward
    }

    fn closed(&mut self, opened: Instant, moved: bool) -> WatchEnd {
        let end = WatchEnd::Closed { lasted: self.since(opened), moved };
        if end.is_healthy() {
            self.backoff.healthy(opened);
            self.heartbeat.beat(self.env.now());
        }
        end
    }

    /// Handles the failure of an open watch. A long watch that lost its connection is counted and reported, but is not
    /// a fault.
    fn broken(&mut self, error: &RequestError, opened: Instant) -> WatchEnd {
        let end = WatchEnd::broken(FailureKind::of(error), self.since(opened));
        if end != WatchEnd::LongWatchLost {
            return self.watch_failed(WatchOperation::Watch, error);
        }
        self.metrics.watch_errors.inc();
        self.unreported = Some((WatchOperation::Watch, error.clone()));
        self.record_attempt(error);
        end
    }

    fn since(&self, then: Instant) -> Duration {
        self.env.now().saturating_duration_since(then)
    }

    fn watch_failed(&mut self, operation: WatchOperation, error: &RequestError) -> WatchEnd {
        self.metrics.watch_errors.inc();
        self.report(operation, error);
        self.availability.on_rejected(Verb::Watch, error, self.env.now());
        WatchEnd::Failed(self.error_budget.classify(FailureKind::of(error)))
    }

    async fn back_off(
        &mut self,
        reason: backoff::BackoffReason,
        min_wait: Option<Duration>,
        then: AfterWait,
    ) -> State {
        let backoff = self.backoff.after_failure(reason, self.env.now());
        let wait = min_wait.map_or(backoff, |min_wait| backoff.max(min_wait));
        let next = state::after_wait(then);
        self.report_failure(&next, wait);
        match min_wait {
            // Relist requests do not shorten a `Retry-After` or the wait of an exceeded byte budget.
            Some(_) => self.wait_for_recheck(wait).await,
            None if reason == backoff::BackoffReason::Unreachable => {
                self.wait_until_reachable(wait).await;
            }
            None => self.wait_until_relist_due(wait).await,
        }
        next
    }

    /// Waits. For a kind that is not served or not permitted, the wait ends early on a notification that a retry is
    /// worthwhile. The backoff then resets: a new CustomResourceDefinition is served within moments.
    async fn wait_for_recheck(&mut self, wait: Duration) {
        let nap = self.env.sleep(wait);
        if !self.availability.is_blocked() {
            return nap.await;
        }
        let notified = async {
            let called = self.availability.recheck_requested();
            if self.last_queued.is_some() {
                return called.await;
            }
            // Only requests newer than the last attempt, so a source that fails to answer is not overloaded.
            future::select(pin!(called), pin!(self.relist_requests.wait_due_since_list())).await;
        };
        if let Either::Left(_) = future::select(pin!(notified), pin!(nap)).await {
            self.backoff.reset();
        }
    }

    /// Waits, but returns early for a relist request that is newer than the last list: the source might answer by
    /// now, and a takeover after a partition must not wait for a long backoff. Each request ends one wait only, so a
    /// failing source is not overloaded.
    async fn wait_until_relist_due(&mut self, wait: Duration) {
        if self.availability.is_blocked() {
            return self.wait_for_recheck(wait).await;
        }
        let sleep = self.env.sleep(wait);
        future::select(pin!(self.relist_requests.wait_due_since_list()), pin!(sleep)).await;
    }

    /// Waits like [`wait_until_relist_due`](Self::wait_until_relist_due), but also returns early when the source
    /// answers another request, or when this reflector is selected to probe the source.
    async fn wait_until_reachable(&mut self, wait: Duration) {
        let source = Arc::clone(&self.source);
        let Some(reachability) = source.reachability() else { return self.wait_until_relist_due(wait).await };
        let until = self.env.now() + wait;
        let resumed = match future::select(
            pin!(reachability.wait_resumption()),
            pin!(self.wait_until_relist_due(wait)),
        )
        .await
        {
            Either::Left((resumption, _)) => resumption,
            Either::Right(((), _)) => return,
        };
        if let Resumption::Answered { recovered } = resumed {
            let pause = self.backoff.resume_early(recovered);
            let left = until.saturating_duration_since(self.env.now());
            if !pause.is_zero() {
                self.wait_until_relist_due(pause.min(left)).await;
            }
        }
    }

    /// Records a failure; it is reported once the next action is known.
    fn report(&mut self, operation: WatchOperation, error: &RequestError) {
        self.failures.set(format!("{operation}: {error}"));
        self.unreported = Some((operation, error.clone()));
        self.record_attempt(error);
    }

    /// Records a failed attempt, which is a sign of life unless the attempt should have succeeded.
    fn record_attempt(&self, error: &RequestError) {
        let server_reachable =
            self.source.reachability().is_some_and(|it| it.has_answered_since(self.last_request_at));
        if FailedAttempt::of(error, server_reachable).is_sign_of_life() {
            self.heartbeat.beat(self.env.now());
        }
    }

    /// Reports the recorded failure, if any, and the next action.
    fn report_failure(&mut self, next: &State, delay: Duration) {
        let Some((operation, error)) = self.unreported.take() else { return };
        let next_action = state::next_action(next);
        let failure =
            WatchFailure { informer: Arc::clone(&self.informer), operation, error, next_action, delay };
        if !self.failures.notify(&failure) {
            self.metrics.handler_panics.inc();
        }
    }
}

/// Returns the output of `wait`; `None` if a requested relist is due first.
async fn until_relist_due<T>(requests: &RelistReceiver, wait: impl Future<Output = T>) -> Option<T> {
    if requests.is_due() {
        return None;
    }
    match future::select(pin!(requests.wait_due()), pin!(wait)).await {
        Either::Left(((), _)) => None,
        Either::Right((output, _)) => Some(output),
    }
}

/// Returns the output of `page`; `None` if an urgent request arrives that is newer than the list.
async fn unless_overtaken<T>(requests: &RelistReceiver, page: impl Future<Output = T>) -> Option<T> {
    match future::select(pin!(requests.wait_urgent_since_list()), pin!(page)).await {
        Either::Left(((), _)) => None,
        Either::Right((output, _)) => Some(output),
    }
}

/// Sends a request, and sends it again after an outage if no part of its response has arrived.
async fn send_until_answered<T, F: Future<Output = T>>(
    source: &dyn ListerWatcher,
    mut send: impl FnMut() -> F,
) -> T {
    let last_data_at = || source.progress().and_then(RequestProgress::last_data_at);
    loop {
        if let Some(answer) = unless_recovered(source, last_data_at, send()).await {
            return answer;
        }
    }
}

/// Returns the output of `next`; `None` if the source recovers first from an outage during which no data arrived.
async fn unless_recovered<T>(
    source: &dyn ListerWatcher,
    last_data_at: impl Fn() -> Option<Instant>,
    next: impl Future<Output = T>,
) -> Option<T> {
    match future::select(pin!(next), pin!(recovered(source, last_data_at))).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(((), _)) => None,
    }
}

async fn recovered(source: &dyn ListerWatcher, last_data_at: impl Fn() -> Option<Instant>) {
    match source.reachability() {
        Some(reachability) => reachability.wait_recovered(last_data_at).await,
        None => future::pending().await,
    }
}

/// Returns the output of `step` and whether it was pending.
async fn with_pending<T>(step: impl Future<Output = T>) -> (T, bool) {
    let (mut step, mut waited) = (pin!(step), false);
    let output = poll_fn(|cx| {
        let polled = step.as_mut().poll(cx);
        waited |= polled.is_pending();
        polled
    })
    .await;
    (output, waited)
}

/// Returns the request for the first page of a list. A list at a version is not paged: servers answer it from memory
/// only if it has no limit.
fn first_page(consistency: &ListConsistency) -> ListRequest {
    match consistency {
        ListConsistency::Consistent => ListRequest { limit: Some(PAGE), ..ListRequest::default() },
        ListConsistency::NotOlderThan(version) => ListRequest {
            version: Some(version.as_str().to_owned()),
            version_match: Some(VersionMatch::NotOlderThan),
            ..ListRequest::default()
        },
    }
}

fn next_page(token: String) -> ListRequest {
    ListRequest { limit: Some(PAGE), continue_token: Some(token), ..ListRequest::default() }
}

fn unversioned() -> RequestError {
    let reason = "it has no resource version to watch from".to_owned();
    RequestError::Wire(WireError::Malformed { what: "list", reason })
}
