//! Keeps one selection of one kind in step with its source: list, then watch, forever.
//!
//! Guarantees:
//! - After a loss it continues from the last version it passed on; only if that version is gone does it list
//!   again, and wherever a server says so (at a list, at a later page, at the start of a watch or within it)
//!   the next list is a consistent one.
//! - What it does next is decided in [`state`], without effects; here is one small function per state.
//! - Where its source offers lists as streams ([`watch_list`]) it takes them, as long as the source keeps to what
//!   it offers; otherwise it lists in pages, within a bounded time.
//! - It never gives up and never spins: every failure costs a wait ([`Backoff`]), the server's own wish
//!   included. A watch that worked for a good while before its connection was lost costs hardly any.
//! - A wait after a lost connection ends early when the server answers any request of the process, or when it is this
//!   reflector's turn to find out whether it does ([`windlass_client::Reachability`]). After an outage a request that is still unanswered is
//!   sent again, and a watch that has been silent since is reopened.
//! - A list at a version that fails is read in pages from then on: one answer might be too large to arrive in time.
//! - It does not run ahead of the store by more than the queue's bound.
//! - A request for a fresh list ([`RelistHandle`]) makes it leave its watch and list consistently, whatever the watch sent.
//!   Requests coalesce, and lists on request are spaced. Their pages bypass the client's rate limit.
//!
//! It refuses to know about handlers, indexes and readers.

mod failure;
mod heartbeat;
mod ingest;
mod relist;
mod state;
#[cfg(test)]
mod tests;
mod unavailable_kind;
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

pub(crate) use self::failure::Trouble;
pub use self::failure::{LogWatchErrors, NextAction, WatchErrorHandler, WatchFailure, WatchOperation};
use self::heartbeat::Attempt;
pub(crate) use self::heartbeat::{Heartbeat, millis};
use self::ingest::{FrameContent, ObjectIngest};
use self::relist::RelistReceiver;
pub(crate) use self::relist::{RelistHandle, Urgency};
use self::state::{FailureKind, ListConsistency, Next, State, WatchEnd, WatchErrorBudget};
use self::watch_list::WatchListState;
use crate::availability::AvailabilityReporter;
use crate::backoff::{self, Backoff};
use crate::delta_fifo::{DeltaFifo, Item};
use crate::erased::{Codec, Object};
use crate::list_watch::{ListRequest, ListerWatcher, WatchRequest};
use crate::partition::Partition;
use crate::settings::IngestOptions;
use crate::store::Store;
use crate::sync::yield_now;

/// How many objects a page holds: large enough to be few, small enough for a server to make without strain.
/// The number every other client uses, so servers are tuned for it.
const PAGE: u32 = 500;
/// How many frames are taken without a pause, or a look at the clock: few enough to be done in about a millisecond.
const CHUNK: usize = 64;
/// How often in a row a busy server can turn away one page of a list before the list is given up.
const MAX_TURNED_AWAY: u32 = 10;
/// A server that says "at once" is busy all the same.
const MIN_TURN: Duration = Duration::from_secs(1);
/// A watch lasts at least this long: reopening is cheap, but not free.
const MIN_WINDOW: Duration = Duration::from_secs(100);
/// And less than this, so that a watch that went dead without a word is found out within minutes. Each draws
/// its own, so that watches opened together do not end together.
const MAX_WINDOW: Duration = Duration::from_secs(200);

/// After how long without a sign of life ([`heartbeat`]) a reflector is stuck: two windows. Every watch ends within one window,
/// with or without data. Every other wait is shorter, and a list that takes longer gives signs of life.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(2 * MAX_WINDOW.as_secs());

/// The list-and-watch loop of one informer.
pub(crate) struct Reflector {
    informer: Arc<str>,
    partition: Partition,
    source: Arc<dyn ListerWatcher>,
    extent: Projection,
    streams: WatchListState,
    fifo: Arc<DeltaFifo<Object>>,
    intake: ObjectIngest,
    env: Env,
    windows: Rng,
    backoff: Backoff,
    _chance: RngStreams,
    metrics: InformerMetrics,
    patience: WatchErrorBudget,
    trouble: Trouble,
    /// What went wrong last, until it is known what is done about it.
    untold: Option<(WatchOperation, RequestError)>,
    wishes: RelistReceiver,
    sighting: AvailabilityReporter,
    pulse: Heartbeat,
    /// The newest version that was passed on.
    passed_on: Option<ResourceVersion>,
    /// When the last request was sent.
    sent: Instant,
    /// How many pages the longest list had that failed since the last list that arrived.
    furthest: usize,
}

/// What a reflector is made of.
pub(crate) struct ReflectorParams {
    pub(crate) informer: Arc<str>,
    /// What of the informer this reflector follows, and its source gives.
    pub(crate) partition: Partition,
    /// Tells this reflector's random numbers from those of any other in the same [`Env`].
    pub(crate) stream: String,
    pub(crate) source: Arc<dyn ListerWatcher>,
    pub(crate) codec: Arc<Codec>,
    pub(crate) fifo: Arc<DeltaFifo<Object>>,
    pub(crate) store: Arc<Store<Object>>,
    /// What stands between the bytes of an object and the store.
    pub(crate) admission: IngestOptions,
    pub(crate) env: Env,
    pub(crate) metrics: InformerMetrics,
    pub(crate) trouble: Trouble,
    pub(crate) refresh: RelistHandle,
    pub(crate) sighting: AvailabilityReporter,
    pub(crate) pulse: Heartbeat,
}

/// A list that arrived completely.
struct CompletedList {
    items: Vec<Item<Object>>,
    version: ResourceVersion,
}

/// The names of a reflector's streams of random numbers, which take room as long as it is there.
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
    pub(crate) fn new(parts: ReflectorParams) -> Self {
        let ReflectorParams {
            informer,
            partition,
            stream,
            source,
            codec,
            fifo,
            store,
            admission,
            env,
            metrics,
            trouble,
            refresh,
            sighting,
            pulse,
        } = parts;
        let extent = codec.extent;
        let name = Arc::clone(&informer);
        let (part, counted) = (partition.clone(), metrics.clone());
        let intake = ObjectIngest::new(name, part, &codec, store, counted, admission);
        let chance = RngStreams {
            names: ["watch windows", "backoff"].map(|of| format!("{stream}/{of}")),
            env: env.clone(),
        };
        let [windows, backoff] = chance.names.each_ref().map(|name| env.rng(name));
        let backoff = Backoff::new(backoff);
        let wishes = refresh.wishes(&env);
        let sent = env.now();
        Self {
            informer,
            partition,
            source,
            extent,
            streams: WatchListState::Untried,
            fifo,
            intake,
            env,
            windows,
            backoff,
            _chance: chance,
            metrics,
            patience: WatchErrorBudget::default(),
            trouble,
            untold: None,
            wishes,
            sighting,
            pulse,
            passed_on: None,
            sent,
            furthest: 0,
        }
    }

    /// Runs until dropped.
    ///
    /// # Cancel safety
    /// May be dropped at any await; what was passed on is whole.
    pub(crate) async fn run(mut self) {
        let mut state = State::Reading(ListConsistency::Consistent);
        self.pulse.beat(self.env.now());
        loop {
            state = match state {
                State::Reading(freshness) => self.choose(freshness),
                State::Streaming(freshness) => self.stream(freshness).await,
                State::Listing(freshness) => self.list(freshness).await,
                State::Watching(version) => self.watch(version).await,
                State::Refreshing(version) => self.refresh(version).await,
                State::BackingOff { trouble, at_least, then } => self.back_off(trouble, at_least, then).await,
            };
            if !matches!(state, State::BackingOff { .. }) {
                self.announce(&state, Duration::ZERO);
            }
        }
    }

    async fn list(&mut self, freshness: ListConsistency) -> State {
        self.metrics.lists.inc();
        let ticket = self.wishes.look();
        self.sighting.looks();
        let fetched = self.fetch(&freshness).await;
        self.wishes.looked();
        match fetched {
            Ok(Some(listing)) => self.replace(&freshness, listing, ticket),
            Ok(None) => {
                self.intake.give_up_list();
                State::Listing(ListConsistency::Consistent)
            }
            Err(error) => {
                self.intake.give_up_list();
                self.metrics.list_errors.inc();
                self.report(WatchOperation::List, &error);
                self.list_refused(&error, ticket);
                // What is not held any more cannot be what a list must not be older than.
                let held = self.passed_on.is_some();
                let freshness = if held { freshness } else { ListConsistency::Consistent };
                state::after_failed_list(freshness, FailureKind::of(&error))
            }
        }
    }

    /// Lists on request. If the source rejects the list, the watch continues: it might work.
    async fn refresh(&mut self, version: ResourceVersion) -> State {
        let next = self.list(ListConsistency::Consistent).await;
        match next {
            State::BackingOff { trouble: backoff::BackoffReason::Refused, at_least, .. }
                if !self.wishes.are_urgent() =>
            {
                let now = self.env.now();
                let wait = self.backoff.after_failure(backoff::BackoffReason::Refused, now);
                self.wishes.postpone(now + wait.max(at_least.unwrap_or_default()));
                State::Watching(version)
            }
            next => next,
        }
    }

    fn replace(&mut self, freshness: &ListConsistency, listing: CompletedList, ticket: u64) -> State {
        let CompletedList { items, version } = listing;
        let next = state::after_list(freshness, version.clone());
        if !matches!(next, State::Watching(_)) {
            tracing::warn!(informer = %self.informer, %version, "a list is older than it may be; reading the newest");
            return next;
        }
        let consistent = *freshness == ListConsistency::Consistent;
        self.intake.list_fits();
        self.fifo.replace(&self.partition, items, version.clone(), consistent);
        if consistent {
            self.wishes.grant(ticket, self.fifo.end());
        }
        self.passed_on = Some(version);
        self.furthest = 0;
        self.pulse.progress().list_arrived();
        self.pulse.beat(self.env.now());
        self.sighting.listed();
        self.backoff.healthy(self.env.now());
        self.trouble.clear();
        next
    }

    /// Fetches every page of a list; `None` if an urgent request comes that this list cannot grant because it began
    /// earlier. A request that was lost in a partition is not answered before its deadline, for which a takeover cannot
    /// wait. A page whose token has expired turns the whole into one unpaged, consistent list.
    async fn fetch(&mut self, freshness: &ListConsistency) -> Result<Option<CompletedList>, RequestError> {
        // Coalescing bounds lists on request; at the limiter's pace a large list would take longer than its readers wait.
        let unthrottled = self.wishes.are_pending();
        let mut request = self.fitting(first_page(freshness), unthrottled);
        let (mut items, mut version, mut unpaged) = (Vec::new(), None, false);
        let source = Arc::clone(&self.source);
        let (mut pages, mut turned_away) = (0, 0);
        loop {
            let token_in_use = request.continue_token.is_some();
            if !token_in_use {
                self.intake.begin_list();
                self.pulse.progress().list_begins();
            }
            self.sent = self.env.now();
            let page = answered(&*source, || source.list(request.clone()));
            let page = unless_overtaken(&self.wishes, page).await;
            let Some(page) = page else { return Ok(None) };
            match page {
                Ok(page) => {
                    (pages, turned_away) = (pages + 1, 0);
                    self.get_to_page(pages);
                    version = version.or_else(|| page.version.clone());
                    self.take_page(&page, version.as_ref(), &mut items).await?;
                    let Some(token) = page.continue_token else { break };
                    request = self.fitting(next_page(token), unthrottled);
                }
                Err(error) if error.is_expired() && token_in_use && !unpaged => {
                    unpaged = true;
                    version = None;
                    items.clear();
                    request = self.fitting(ListRequest::default(), unthrottled);
                }
                // A busy server that turns a page away does not take back those before it.
                Err(RequestError::TooManyRequests { retry_after: Some(wait), .. })
                    if token_in_use && turned_away < MAX_TURNED_AWAY =>
                {
                    turned_away += 1;
                    self.pulse.beat(self.env.now());
                    let wait = self.env.sleep(wait.max(MIN_TURN));
                    if unless_overtaken(&self.wishes, wait).await.is_none() {
                        return Ok(None);
                    }
                }
                Err(RequestError::NoRoom(_)) => return Err(self.intake.page_too_long()),
                Err(error) => return Err(error),
            }
            yield_now().await;
        }
        Ok(Some(CompletedList { items, version: version.ok_or_else(unversioned)? }))
    }

    /// Notes that a page of a list arrived. A list that fails at the same page every time gets nowhere.
    fn get_to_page(&mut self, page: usize) {
        if page > self.furthest {
            self.furthest = page;
            self.pulse.beat(self.env.now());
        }
    }

    /// Asks for no more of each object than is decoded, and for no page that could not be held anyway.
    fn fitting(&self, page: ListRequest, unthrottled: bool) -> ListRequest {
        ListRequest { extent: self.extent, most_bytes: self.intake.longest_page(), unthrottled, ..page }
    }

    async fn take_page(
        &mut self,
        page: &RawList,
        version: Option<&ResourceVersion>,
        items: &mut Vec<Item<Object>>,
    ) -> Result<(), RequestError> {
        // A list from before what was passed on begins a new epoch: what is held at a version may not be what
        // the server now has at that version.
        let went_back = version.is_some_and(|version| self.is_before_what_was_passed_on(version));
        let trusted = !went_back && self.intake.trusts(&self.partition);
        items.extend(self.intake.page(&page.items, trusted).await?);
        Ok(())
    }

    async fn watch(&mut self, version: ResourceVersion) -> State {
        self.metrics.watches.inc();
        let request = WatchRequest {
            version: version.as_str().to_owned(),
            timeout: self.windows.between(MIN_WINDOW, MAX_WINDOW),
            bookmarks: true,
            extent: self.extent,
        };
        let mut reached = version;
        let source = Arc::clone(&self.source);
        self.sent = self.env.now();
        let opened = answered(&*source, || source.watch(request.clone()));
        let end = match unless_asked(&self.wishes, opened).await {
            Some(Ok(stream)) => self.follow(stream, &mut reached).await,
            Some(Err(error)) => self.watch_failed(WatchOperation::OpeningWatch, &error),
            None => WatchEnd::Distrusted,
        };
        state::after_watch(reached, end)
    }

    /// Passes on what a watch tells, until it ends.
    async fn follow(&mut self, mut stream: FrameStream, reached: &mut ResourceVersion) -> WatchEnd {
        self.trouble.clear();
        self.sighting.watched();
        let source = Arc::clone(&self.source);
        let opened = self.env.now();
        self.pulse.beat(opened);
        let (mut moved, mut heard) = (false, opened);
        for count in 1_usize.. {
            let next = async {
                self.fifo.space().await;
                unless_asked(&self.wishes, stream.next()).await
            };
            let (next, waited) = noting_waits(unless_recovered(&*source, || Some(heard), next)).await;
            let Some(next) = next else { return WatchEnd::Doubted };
            // Of frames that come together one look at the clock is enough.
            if waited || count.is_multiple_of(CHUNK) {
                heard = self.env.now();
                self.pulse.beat(heard);
            }
            let Some(next) = next else { return WatchEnd::Distrusted };
            match next {
                Some(Ok(Frame::Error(status))) => {
                    return self
                        .watch_failed(WatchOperation::Watch, &RequestError::from_status(*status, None));
                }
                // Versions move by themselves on a busy server, so a bookmark is no news.
                Some(Ok(Frame::Bookmark { version, .. })) => self.bookmark(version, reached),
                // What the API may say one day, in frames of its own kind, is not about the objects.
                Some(Ok(Frame::Unknown(of_type))) => {
                    tracing::warn!(informer = %self.informer, %of_type, "a watch tells of something unknown; it is passed over");
                }
                Some(Ok(frame)) => match self.pass_on(frame, reached) {
                    Ok(newer) => moved |= newer,
                    Err(error) => return self.watch_failed(WatchOperation::Watch, &error),
                },
                Some(Err(error)) => return self.broken(&error, opened),
                None => return self.closed(opened, moved),
            }
            self.backoff.healthy(opened);
        }
        self.closed(opened, moved)
    }

    fn bookmark(&mut self, version: ResourceVersion, reached: &mut ResourceVersion) {
        self.fifo.bookmark(&self.partition, version.clone());
        let _forward = self.moved_to(version, reached);
    }

    /// Passes a change on, and says whether it is newer than what was reached. One whose head cannot be read
    /// could be about any object, so it fails the watch. Of one that is of another part only its version is news.
    fn pass_on(&mut self, frame: Frame, reached: &mut ResourceVersion) -> Result<bool, RequestError> {
        type Queue = fn(&DeltaFifo<Object>, Item<Object>);
        let (told, queue): (_, Queue) = match frame {
            Frame::Added(raw) => (self.intake.item(&raw)?, DeltaFifo::add),
            Frame::Modified(raw) => (self.intake.item(&raw)?, DeltaFifo::update),
            Frame::Deleted(raw) => (self.intake.deleted(&raw)?, DeltaFifo::delete),
            Frame::Bookmark { .. } | Frame::Error(_) | Frame::Unknown(_) => return Ok(false),
        };
        let version = match told {
            FrameContent::Ours(item) => {
                let version = item.head.version.clone();
                queue(&self.fifo, item);
                version
            }
            FrameContent::Foreign(version) => {
                version.iter().for_each(|it| self.fifo.bookmark(&self.partition, it.clone()));
                version
            }
        };
        Ok(version.is_some_and(|version| self.moved_to(version, reached)))
    }

    /// Whether that is forward; of versions that cannot be compared nobody knows.
    fn moved_to(&mut self, version: ResourceVersion, reached: &mut ResourceVersion) -> bool {
        let order = version.partial_cmp(reached);
        // A server that repeats itself does not send the next watch back in time.
        if order != Some(Ordering::Less) {
            *reached = version.clone();
            self.passed_on = Some(version);
        }
        let forward = order == Some(Ordering::Greater);
        if forward {
            self.patience.restore();
        }
        forward
    }

    fn closed(&mut self, opened: Instant, moved: bool) -> WatchEnd {
        let end = WatchEnd::Closed { lasted: self.since(opened), moved };
        if end.is_healthy() {
            self.backoff.healthy(opened);
            self.pulse.beat(self.env.now());
        }
        end
    }

    /// An open watch broke. One that was cut off after a good while is counted and told, but is no cause for concern.
    fn broken(&mut self, error: &RequestError, opened: Instant) -> WatchEnd {
        let end = WatchEnd::broken(FailureKind::of(error), self.since(opened));
        if end != WatchEnd::CutOff {
            return self.watch_failed(WatchOperation::Watch, error);
        }
        self.metrics.watch_errors.inc();
        self.untold = Some((WatchOperation::Watch, error.clone()));
        self.note_attempt(error);
        end
    }

    fn since(&self, then: Instant) -> Duration {
        self.env.now().saturating_duration_since(then)
    }

    fn watch_failed(&mut self, during: WatchOperation, error: &RequestError) -> WatchEnd {
        self.metrics.watch_errors.inc();
        self.report(during, error);
        self.sighting.refused(Verb::Watch, error, self.env.now());
        WatchEnd::Failed(self.patience.consider(FailureKind::of(error)))
    }

    async fn back_off(
        &mut self,
        trouble: backoff::BackoffReason,
        at_least: Option<Duration>,
        then: Next,
    ) -> State {
        let ramp = self.backoff.after_failure(trouble, self.env.now());
        let wait = at_least.map_or(ramp, |at_least| ramp.max(at_least));
        let next = state::after_wait(then);
        self.announce(&next, wait);
        match at_least {
            // A server that says when it may be asked again is not pressed.
            Some(_) => self.rest(wait).await,
            None if trouble == backoff::BackoffReason::Unreachable => {
                self.rest_unless_answered(wait).await;
            }
            None => self.rest_unless_asked(wait).await,
        }
        next
    }

    /// Waits, but no longer once somebody asks for a look that begins after the last one did: the source may answer by
    /// now, and who takes over after a partition cannot wait for the end of a ramp that the partition made long. One
    /// wish is good for one look, so a source that continues failing is not pressed.
    async fn rest_unless_asked(&mut self, wait: Duration) {
        if self.sighting.is_blocked() {
            return self.rest(wait).await;
        }
        let nap = self.env.sleep(wait);
        future::select(pin!(self.wishes.opened_since_look()), pin!(nap)).await;
    }

    /// Waits as [`rest_unless_asked`](Self::rest_unless_asked), but no longer once the source answers somebody, or once it
    /// is this reflector's turn to find out whether it does.
    async fn rest_unless_answered(&mut self, wait: Duration) {
        let source = Arc::clone(&self.source);
        let Some(reachability) = source.reachability() else { return self.rest_unless_asked(wait).await };
        let until = self.env.now() + wait;
        let resumed =
            match future::select(pin!(reachability.resumption()), pin!(self.rest_unless_asked(wait))).await {
                Either::Left((resumption, _)) => resumption,
                Either::Right(((), _)) => return,
            };
        if let Resumption::Answered { recovered } = resumed {
            let pause = self.backoff.resume_early(recovered);
            let left = until.saturating_duration_since(self.env.now());
            if !pause.is_zero() {
                self.rest_unless_asked(pause.min(left)).await;
            }
        }
    }

    /// Notes what went wrong; it is told once it is known what is done about it.
    fn report(&mut self, during: WatchOperation, error: &RequestError) {
        self.trouble.set(format!("{during}: {error}"));
        self.untold = Some((during, error.clone()));
        self.note_attempt(error);
    }

    /// Notes that an attempt failed, which is a sign of life unless it should not have.
    fn note_attempt(&self, error: &RequestError) {
        let answers = self.source.reachability().is_some_and(|it| it.has_answered_since(self.sent));
        if Attempt::of(error, answers).is_life() {
            self.pulse.beat(self.env.now());
        }
    }

    /// Tells what went wrong, if something did, and what comes next.
    fn announce(&mut self, next: &State, after: Duration) {
        let Some((during, error)) = self.untold.take() else { return };
        let next = state::step(next);
        let failure = WatchFailure { informer: Arc::clone(&self.informer), during, error, next, after };
        if !self.trouble.announce(&failure) {
            self.metrics.handler_panics.inc();
        }
    }
}

/// Returns the outcome of `wait`; `None` if a request for a fresh list is due before that.
async fn unless_asked<T>(wishes: &RelistReceiver, wait: impl Future<Output = T>) -> Option<T> {
    if wishes.are_open() {
        return None;
    }
    match future::select(pin!(wishes.opened()), pin!(wait)).await {
        Either::Left(((), _)) => None,
        Either::Right((come, _)) => Some(come),
    }
}

/// Returns the outcome of `page`; `None` if an urgent request comes that is younger than the list.
async fn unless_overtaken<T>(wishes: &RelistReceiver, page: impl Future<Output = T>) -> Option<T> {
    match future::select(pin!(wishes.overtaken()), pin!(page)).await {
        Either::Left(((), _)) => None,
        Either::Right((come, _)) => Some(come),
    }
}

/// Sends a request, and again after an outage that it has not survived, as far as is known: nothing was heard of its answer.
async fn answered<T, F: Future<Output = T>>(source: &dyn ListerWatcher, mut send: impl FnMut() -> F) -> T {
    let heard = || source.progress().and_then(RequestProgress::heard);
    loop {
        if let Some(answer) = unless_recovered(source, heard, send()).await {
            return answer;
        }
    }
}

/// Returns the outcome of `next`; `None` if the source recovers before that from an outage in which nothing was heard.
async fn unless_recovered<T>(
    source: &dyn ListerWatcher,
    heard: impl Fn() -> Option<Instant>,
    next: impl Future<Output = T>,
) -> Option<T> {
    match future::select(pin!(next), pin!(recovered(source, heard))).await {
        Either::Left((come, _)) => Some(come),
        Either::Right(((), _)) => None,
    }
}

async fn recovered(source: &dyn ListerWatcher, heard: impl Fn() -> Option<Instant>) {
    match source.reachability() {
        Some(reachability) => reachability.recovered(heard).await,
        None => future::pending().await,
    }
}

/// What `step` comes to, and whether it had to wait for that.
async fn noting_waits<T>(step: impl Future<Output = T>) -> (T, bool) {
    let (mut step, mut waited) = (pin!(step), false);
    let come = poll_fn(|cx| {
        let polled = step.as_mut().poll(cx);
        waited |= polled.is_pending();
        polled
    })
    .await;
    (come, waited)
}

/// The first page of a list. A list at a version is asked for in one piece: servers answer it from memory,
/// which they do not do page by page.
fn first_page(freshness: &ListConsistency) -> ListRequest {
    match freshness {
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
    let reason = "it carries no resource version, so nothing can be watched from it".to_owned();
    RequestError::Wire(WireError::Malformed { what: "list", reason })
}
