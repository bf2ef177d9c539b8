//! Whether a kind can be had at all: one whose definition is not installed, or that must not be read, is waited for
//! and holds up nobody.
//!
//! A server that does not serve a kind answers its list with 404. That is no failure: the definition may come with the
//! next chart. The kind is asked for again, first soon and then about once a minute, with jitter, and at once when
//! somebody says that it is worth a look ([`SharedInformer::look_again`](crate::SharedInformer::look_again)). If it was
//! there and goes, so do its objects; but not for one answer, which a balancer may have made up, nor for two between
//! which something else was answered, or nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_client::{MissingPermission, RequestError};
use windlass_env::Instant;
use windlass_env::watch_channel::{Receiver, Sender, channel};
use windlass_object::{ResourceKind, Rule, Verb};

use crate::partition::Partition;

/// For how long a kind must have been denied before what is held of it is let go. A server that starts, or a balancer
/// that knows no better, may say 404 for a moment.
const GRACE: Duration = Duration::from_secs(10);

/// Whether the source serves a kind, as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KindAvailability {
    /// It has not answered yet.
    #[default]
    Unknown,
    /// It does.
    Served,
    /// It does not: the definition is not installed, or not in this version.
    Absent,
    /// It may, but not to this process.
    Forbidden(MissingPermission),
}

/// What the reflectors of one informer have found. Cheap to clone; clones are one.
#[derive(Clone)]
pub(crate) struct AvailabilityTracker {
    found: Arc<Mutex<BTreeMap<Partition, KindAvailability>>>,
    all: Sender<KindAvailability>,
    /// How many times somebody said that a look is worth while.
    calls: Sender<u64>,
}

/// Where one reflector tells what it finds.
pub(crate) struct AvailabilityReporter {
    board: AvailabilityTracker,
    partition: Partition,
    kind: ResourceKind,
    /// The one namespace that is asked for, if it is one.
    namespace: Option<String>,
    /// Up to which call the reflector has looked.
    seen: u64,
    /// Since when every answer was that the kind is not served.
    absent_since: Option<Instant>,
}

impl AvailabilityTracker {
    pub(crate) fn new() -> Self {
        Self { found: Arc::default(), all: channel(KindAvailability::Unknown).0, calls: channel(0).0 }
    }

    pub(crate) fn sighting(
        &self,
        partition: Partition,
        kind: ResourceKind,
        namespace: Option<String>,
    ) -> AvailabilityReporter {
        self.tell(&partition, KindAvailability::Unknown);
        let (board, seen) = (self.clone(), self.calls.get());
        AvailabilityReporter { board, partition, kind, namespace, seen, absent_since: None }
    }

    /// What is known of all parts together: what keeps any of them from being had comes first.
    pub(crate) fn presence(&self) -> KindAvailability {
        self.all.get()
    }

    pub(crate) fn observe(&self) -> Receiver<KindAvailability> {
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

    pub(crate) fn look_again(&self) {
        self.calls.send_modify(|calls| *calls += 1);
    }

    fn tell(&self, partition: &Partition, presence: KindAvailability) {
        self.change(|found| {
            found.insert(partition.clone(), presence);
        });
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<Partition, KindAvailability>)) {
        let mut found = self.lock();
        change(&mut found);
        let all = found.values().max_by_key(|presence| presence.weight()).cloned().unwrap_or_default();
        if all != self.all.get() {
            self.all.set(all);
        }
    }

    /// No code of others runs under this lock, so poison cannot mean broken findings.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Partition, KindAvailability>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AvailabilityReporter {
    /// A look begins: calls up to here are answered by it.
    pub(crate) fn looks(&mut self) {
        self.seen = self.board.calls.get();
    }

    /// A list arrived. That says nothing about watches, if they are what is forbidden.
    pub(crate) fn listed(&mut self) {
        self.absent_since = None;
        let found = self.board.of(&self.partition);
        if !matches!(found, KindAvailability::Forbidden(MissingPermission { verb: Verb::Watch, .. })) {
            self.found(KindAvailability::Served);
        }
    }

    /// A watch was accepted.
    pub(crate) fn watched(&mut self) {
        self.found(KindAvailability::Served);
    }

    /// The source failed. Whoever could not be asked, or said something else, has not said that the kind is not served.
    pub(crate) fn failed(&mut self, error: &RequestError) {
        if !error.is_not_found() {
            self.absent_since = None;
        }
    }

    /// The source refused. True if the kind has not been served for long enough to believe it.
    pub(crate) fn refused(&mut self, verb: Verb, error: &RequestError, now: Instant) -> bool {
        if error.is_forbidden() {
            self.found(KindAvailability::Forbidden(self.denial(verb)));
        }
        self.failed(error);
        if !error.is_not_found() || verb != Verb::List {
            return false;
        }
        self.found(KindAvailability::Absent);
        let since = *self.absent_since.get_or_insert(now);
        now.saturating_duration_since(since) >= GRACE
    }

    /// Whether the kind cannot be had at the moment, so that a look is worth while when somebody says so.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(self.board.of(&self.partition), KindAvailability::Absent | KindAvailability::Forbidden(_))
    }

    /// Waits until somebody says that a look is worth while.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub(crate) async fn called(&self) {
        let seen = self.seen;
        if self.board.calls.subscribe().wait_for(|calls| *calls > seen).await.is_err() {
            // Nobody is left who could call.
            std::future::pending::<()>().await;
        }
    }

    fn found(&self, presence: KindAvailability) {
        if self.board.of(&self.partition) != presence {
            self.board.tell(&self.partition, presence);
        }
    }

    fn denial(&self, verb: Verb) -> MissingPermission {
        let ResourceKind { group, plural, .. } = &self.kind;
        let rule = Rule::new(group.clone(), plural.clone(), [Verb::List, Verb::Watch]);
        MissingPermission { user: None, verb, namespace: self.namespace.clone(), rule }
    }
}

impl KindAvailability {
    /// How much it keeps an informer from working.
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
        f.debug_tuple("Board").field(&*self.lock()).finish()
    }
}
