//! Watches: deliver the current state if requested, and then every change.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, Either};
use futures_util::{Stream, stream};
use windlass_env::watch_channel::Receiver;
use windlass_env::{Env, Instant};

use super::list::{FRESH_WITHIN, RETRY_SECONDS};
use super::version::{self, forbidden, invalid_options, unknown_match};
use super::view::ViewMode;
use super::{ReadView, Selection};
use crate::status::Status;
use crate::storage::{Collection, StorageError, Stored, Transition};

/// Watch parameters of a request. An empty field was not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// Version after which changes are delivered.
    pub resource_version: String,
    /// Interpretation of the version; only together with `send_initial_events`.
    pub resource_version_match: String,
    /// Whether the client accepts bookmarks.
    pub bookmarks: bool,
    /// Whether the current state is delivered first.
    pub send_initial_events: Option<bool>,
    /// Duration of the watch; by default between thirty minutes and an hour, as upstream.
    pub timeout: Option<Duration>,
}

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// The object is new, or newly selected.
    Added(Arc<Stored>),
    /// The object changed.
    Modified(Arc<Stored>),
    /// The object was deleted or is no longer selected. Contains its last selected state at the version of that
    /// change.
    Deleted(Arc<Stored>),
    /// All changes up to a version have been delivered.
    Bookmark {
        /// Version.
        revision: u64,
        /// Whether this bookmark ends the initial state (`k8s.io/initial-events-end`).
        initial_end: bool,
    },
    /// The watch failed and ends.
    Error(Status),
}

/// The starting point of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// Current state, once the view has reached this revision.
    Present { at_least: u64 },
    /// Changes after a revision.
    After(u64),
}

/// The state of a watch.
enum Phase {
    Starting(Start),
    /// All changes up to `delivered` have been delivered. Bookmarks are sent once the view is past `start`. For a live
    /// view it is enough to have reached `start`: other clients of a real server always write, so idle watches get
    /// bookmarks too.
    Following {
        start: u64,
        delivered: u64,
    },
    Ended,
}

struct Watch {
    env: Env,
    view: ReadView,
    collection: Collection,
    selection: Selection,
    phase: Phase,
    bookmarks: bool,
    next_bookmark: Option<Instant>,
    deadline: Instant,
    pending: VecDeque<WatchEvent>,
    writes: Receiver<u64>,
    freshness: Receiver<ViewMode>,
    /// Reused between waits: arming a timer costs more than polling it.
    timer: Option<(Instant, Timer)>,
}

type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Interval of bookmarks, as upstream.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// Time between the last bookmark and the end of a watch, as upstream. It keeps the gap before the next watch small.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// Number of changes fetched at once: enough for throughput, and few enough that a slow client does not retain
/// history.
const BATCH: usize = 64;

/// Watches a collection.
///
/// As upstream, a version that is no longer kept or not reached results in an error event, the only event of the
/// watch.
///
/// # Errors
/// 422 for invalid options, 500 (as upstream) for an invalid version.
pub fn watch(
    env: &Env,
    view: &ReadView,
    collection: &Collection,
    selection: Selection,
    options: &WatchOptions,
) -> Result<impl Stream<Item = WatchEvent> + Send + use<>, Status> {
    options.check()?;
    let options = options.clone().with_defaults();
    let start = options.start(view)?;
    let length = options.timeout.filter(|it| !it.is_zero()).unwrap_or_else(|| view.watch_length());
    let now = env.now();
    let mut watch = Watch {
        env: env.clone(),
        view: view.clone(),
        collection: collection.clone(),
        selection,
        phase: Phase::Starting(start),
        bookmarks: options.bookmarks,
        next_bookmark: None,
        deadline: now + length,
        pending: VecDeque::new(),
        writes: view.storage().observe(Some(collection)),
        freshness: view.observe_freshness(),
        timer: None,
    };
    watch.schedule_bookmark(now);
    Ok(stream::unfold(watch, |mut watch| async move { Some((watch.next().await?, watch)) }))
}

impl WatchOptions {
    fn check(&self) -> Result<(), Status> {
        const FIELD: &str = "resourceVersionMatch";
        let (mut causes, wanted) = (Vec::new(), &*self.resource_version_match);
        let unfit = wanted != "NotOlderThan";
        if self.send_initial_events.is_some() && unfit {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(forbidden(FIELD, why));
        }
        if !wanted.is_empty() && self.send_initial_events.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(forbidden(FIELD, why));
        }
        if !wanted.is_empty() && unfit {
            causes.push(unknown_match(wanted, &["NotOlderThan"]));
        }
        invalid_options(causes)
    }

    /// Fills in defaults: a watch without a version begins with the current state.
    fn with_defaults(mut self) -> WatchOptions {
        if self.send_initial_events.is_none() && matches!(&*self.resource_version, "" | "0") {
            self.send_initial_events = Some(true);
        }
        self
    }

    fn start(&self, view: &ReadView) -> Result<Start, Status> {
        let asked = version::parse(&self.resource_version).map_err(version::unexpected)?;
        let asked = if self.resource_version.is_empty() { view.storage().revision() } else { asked };
        Ok(match (self.send_initial_events, asked) {
            (Some(true), at_least) => Start::Present { at_least },
            (_, 0) => Start::After(view.revision()),
            (_, after) => Start::After(after),
        })
    }
}

impl Watch {
    async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            match self.phase {
                Phase::Starting(start) => self.start(start).await,
                Phase::Following { start, delivered } => self.follow(start, delivered).await,
                Phase::Ended => return None,
            }
        }
    }

    async fn start(&mut self, start: Start) {
        match start {
            Start::After(revision) => {
                self.phase = Phase::Following { start: revision, delivered: revision };
            }
            Start::Present { at_least } => {
                if !self.view.reaches(&self.env, at_least, FRESH_WITHIN).await {
                    let current = self.view.revision();
                    return self.fail(Status::too_large_resource_version(at_least, current, RETRY_SECONDS));
                }
                self.queue_current_state();
            }
        }
    }

    fn queue_current_state(&mut self) {
        let snapshot = self.view.shown(&self.collection);
        let (revision, selection) = (snapshot.revision, &self.selection);
        let selected = selection.range(&snapshot.objects, None).filter(|it| selection.selects(it));
        self.pending.extend(selected.map(|it| WatchEvent::Added(Arc::clone(it))));
        if self.bookmarks {
            self.pending.push_back(WatchEvent::Bookmark { revision, initial_end: true });
        }
        self.phase = Phase::Following { start: revision, delivered: revision };
    }

    async fn follow(&mut self, start: u64, delivered: u64) {
        let now = self.env.now();
        // A restored storage assigns versions again, so its changes do not continue this watch.
        if now >= self.deadline || self.writes.is_closed() {
            self.phase = Phase::Ended;
            return;
        }
        let through = self.view.revision();
        let changes = match self.view.storage().changes(&self.collection, delivered, through, BATCH) {
            Ok(changes) => changes,
            Err(error) => return self.fail(refuse(&error)),
        };
        let delivered = match changes.last() {
            Some(last) if changes.len() == BATCH => last.revision(),
            _ => delivered.max(through),
        };
        self.phase = Phase::Following { start, delivered };
        self.pending.extend(changes.iter().filter_map(|it| event_for(&self.selection, it)));
        if !self.pending.is_empty() || changes.len() == BATCH {
            return;
        }
        if self.next_bookmark.is_some_and(|at| at <= now) {
            self.schedule_bookmark(now);
            if through > start || (through == start && !self.view.is_frozen()) {
                self.pending.push_back(WatchEvent::Bookmark { revision: delivered, initial_end: false });
            }
            return;
        }
        self.wait().await;
    }

    /// Waits for a write, a change of the view, or the next deadline.
    async fn wait(&mut self) {
        let due = self.next_bookmark.map_or(self.deadline, |it| it.min(self.deadline));
        if self.timer.as_ref().is_none_or(|(at, _)| *at != due) {
            self.timer = Some((due, Box::pin(self.env.sleep_until(due))));
        }
        let Some((_, timer)) = &mut self.timer else { return };
        let (write, freshness) = (pin!(self.writes.changed()), pin!(self.freshness.changed()));
        let news = future::select(write, freshness);
        let gone = match future::select(news, timer).await {
            Either::Left((Either::Left((write, _)), _)) => write.is_err(),
            Either::Left((Either::Right((freshness, _)), _)) => freshness.is_err(),
            Either::Right(((), _)) => {
                self.timer = None;
                false
            }
        };
        if gone {
            self.phase = Phase::Ended;
        }
    }

    fn schedule_bookmark(&mut self, now: Instant) {
        if !self.bookmarks {
            return;
        }
        let regular = now + BOOKMARK_INTERVAL;
        let last = self.deadline.checked_sub(BOOKMARK_BEFORE_END);
        self.next_bookmark = Some(last.map_or(regular, |it| it.min(regular))).filter(|it| *it > now);
    }

    fn fail(&mut self, status: Status) {
        self.pending.push_back(WatchEvent::Error(status));
        self.phase = Phase::Ended;
    }
}

fn refuse(error: &StorageError) -> Status {
    match error {
        StorageError::Compacted { asked, floor } => {
            Status::expired(format!("too old resource version: {asked} ({floor})"))
        }
        other => Status::internal(other),
    }
}

/// Converts a change to an event of a watch with this selection.
fn event_for(selection: &Selection, transition: &Transition) -> Option<WatchEvent> {
    let was = transition.before().is_some_and(|it| selection.matches(it));
    let is = !matches!(transition, Transition::Removed { .. }) && selection.matches(transition.now());
    match (was, is) {
        (false, false) => None,
        (false, true) => Some(WatchEvent::Added(Arc::clone(transition.now()))),
        (true, true) => Some(WatchEvent::Modified(Arc::clone(transition.now()))),
        (true, false) => Some(WatchEvent::Deleted(transition.leaving())),
    }
}
