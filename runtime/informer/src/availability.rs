//! Tracks whether a kind is available. An informer waits for a kind whose CRD is not installed or that it is not
//! permitted to read; other informers are not delayed.
//!
//! A server that does not serve a kind answers its list with 404. That is not a failure: the CRD might be installed
//! later. The informer retries soon at first and then about once a minute, with jitter. It retries immediately after
//! [`Informer::recheck`](crate::Informer::recheck).
//!
//! If the kind was served before, the informer removes its objects after 404 responses for ten seconds, without any
//! other result in between, such as an accepted watch. A single 404 response can come from a load balancer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_client::{MissingPermission, RequestError};
use windlass_env::Instant;
use windlass_env::watch_channel::{Receiver, Sender, channel};
use windlass_object::{ResourceKind, Rule, Verb};

use crate::partition::Partition;

/// The time for which a kind must have been absent before its objects are removed. A server that starts, or a load
/// balancer without a backend, can answer 404 for a short time.
const REMOVAL_DELAY: Duration = Duration::from_secs(10);

/// The availability of a kind at the source, as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KindAvailability {
    /// The source has not answered yet.
    #[default]
    Unknown,
    /// The source serves the kind.
    Served,
    /// The source does not serve the kind: the CRD is not installed, or not in this version.
    Absent,
    /// The source denies this client access to the kind.
    Forbidden(MissingPermission),
}

/// The findings of the reflectors of one informer. Cheap to clone; clones share their state.
#[derive(Clone)]
pub(crate) struct AvailabilityTracker {
    found: Arc<Mutex<BTreeMap<Partition, KindAvailability>>>,
    all: Sender<KindAvailability>,
    /// The number of recheck requests.
    rechecks: Sender<u64>,
}

/// The reporter of one reflector.
pub(crate) struct AvailabilityReporter {
    tracker: AvailabilityTracker,
    partition: Partition,
    kind: ResourceKind,
    /// The namespace of the requests, if they are limited to one.
    namespace: Option<String>,
    /// The number of recheck requests that the last attempt covers.
    seen_rechecks: u64,
    /// The start of the current sequence of 404 responses.
    absent_since: Option<Instant>,
}

impl AvailabilityTracker {
    pub(crate) fn new() -> Self {
        Self { found: Arc::default(), all: channel(KindAvailability::Unknown).0, rechecks: channel(0).0 }
    }

    pub(crate) fn reporter(
        &self,
        partition: Partition,
        kind: ResourceKind,
        namespace: Option<String>,
    ) -> AvailabilityReporter {
        self.record(&partition, KindAvailability::Unknown);
        AvailabilityReporter {
            tracker: self.clone(),
            partition,
            kind,
            namespace,
            seen_rechecks: self.rechecks.get(),
            absent_since: None,
        }
    }

    /// Returns the availability over all partitions: the worst one.
    pub(crate) fn overall(&self) -> KindAvailability {
        self.all.get()
    }

    pub(crate) fn subscribe(&self) -> Receiver<KindAvailability> {
        self.all.subscribe()
    }

    pub(crate) fn of(&self, partition: &Partition) -> KindAvailability {
        self.lock().get(partition).cloned().unwrap_or_default()
    }

    pub(crate) fn forget(&self, partition: &Partition) {
        self.change(|found| {
            found.remove(partition);
        });
    }

    pub(crate) fn request_recheck(&self) {
        self.rechecks.send_modify(|calls| *calls += 1);
    }

    fn record(&self, partition: &Partition, availability: KindAvailability) {
        self.change(|found| {
            found.insert(partition.clone(), availability);
        });
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<Partition, KindAvailability>)) {
        let mut found = self.lock();
        change(&mut found);
        let all =
            found.values().max_by_key(|availability| availability.weight()).cloned().unwrap_or_default();
        if all != self.all.get() {
            self.all.set(all);
        }
    }

    /// No user code runs under this lock, so poison cannot mean broken findings.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Partition, KindAvailability>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AvailabilityReporter {
    /// Records that an attempt starts: it covers all recheck requests so far.
    pub(crate) fn on_list_started(&mut self) {
        self.seen_rechecks = self.tracker.rechecks.get();
    }

    /// Records a successful list. If watches are forbidden, they remain so.
    pub(crate) fn on_listed(&mut self) {
        self.absent_since = None;
        let found = self.tracker.of(&self.partition);
        if !matches!(found, KindAvailability::Forbidden(MissingPermission { verb: Verb::Watch, .. })) {
            self.found(KindAvailability::Served);
        }
    }

    /// Records an accepted watch.
    pub(crate) fn on_watch_opened(&mut self) {
        self.absent_since = None;
        self.found(KindAvailability::Served);
    }

    /// Records a failure of the source. Only a 404 response continues a sequence of 404 responses.
    pub(crate) fn on_failed(&mut self, error: &RequestError) {
        if !error.is_not_found() {
            self.absent_since = None;
        }
    }

    /// Records a denied or unserved request. Returns true if the kind has been absent for long enough to believe it.
    pub(crate) fn on_rejected(&mut self, verb: Verb, error: &RequestError, now: Instant) -> bool {
        if error.is_forbidden() {
            self.found(KindAvailability::Forbidden(self.denial(verb)));
        }
        self.on_failed(error);
        if !error.is_not_found() || verb != Verb::List {
            return false;
        }
        self.found(KindAvailability::Absent);
        let since = *self.absent_since.get_or_insert(now);
        now.saturating_duration_since(since) >= REMOVAL_DELAY
    }

    /// Returns whether the kind is unavailable, so that a recheck request is worth an attempt.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(self.tracker.of(&self.partition), KindAvailability::Absent | KindAvailability::Forbidden(_))
    }

    /// Waits for a recheck request.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub(crate) async fn recheck_requested(&self) {
        let seen = self.seen_rechecks;
        if self.tracker.rechecks.subscribe().wait_for(|calls| *calls > seen).await.is_err() {
            // No sender is left.
            std::future::pending::<()>().await;
        }
    }

    fn found(&self, availability: KindAvailability) {
        if self.tracker.of(&self.partition) != availability {
            self.tracker.record(&self.partition, availability);
        }
    }

    fn denial(&self, verb: Verb) -> MissingPermission {
        let ResourceKind { group, plural, .. } = &self.kind;
        let rule = Rule::new(group.clone(), plural.clone(), [Verb::List, Verb::Watch]);
        MissingPermission { user: None, verb, namespace: self.namespace.clone(), rule }
    }
}

impl KindAvailability {
    /// Returns how severely this state limits an informer.
    fn weight(&self) -> u8 {
        match self {
            KindAvailability::Served => 0,
            KindAvailability::Unknown => 1,
            KindAvailability::Absent => 2,
            KindAvailability::Forbidden(_) => 3,
        }
    }
}

impl fmt::Debug for AvailabilityTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AvailabilityTracker").field(&*self.lock()).finish()
    }
}
