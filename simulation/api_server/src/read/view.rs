//! What a server's watch cache has seen: all there is, or, for a stale one, less.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{self, Either};
use windlass_env::watch_channel::{Receiver, Sender, channel};
use windlass_env::{Env, Rng};

use crate::storage::{Collection, Snapshot, Storage, StorageError};

/// Storage as one server's watch cache sees it.
///
/// A live view sees every write at once. A frozen one sees nothing that was written since, as a replica whose watch
/// on storage hangs: lists and gets at version `0` show the past and watches fall silent, while writes and reads
/// that demand the latest go through. Clones are the same view.
#[derive(Clone)]
pub struct ReadView(Arc<Inner>);

struct Inner {
    storage: Arc<dyn Storage>,
    freshness: Sender<ViewMode>,
    /// From which the length of watches is drawn whose clients did not ask for one.
    chance: Mutex<Rng>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ViewMode {
    Live,
    Frozen {
        at: u64,
        /// How many revisions it may be behind.
        within: u64,
    },
}

impl ReadView {
    /// A view that sees every write. `chance` is a stream of the view's own.
    pub fn live(storage: Arc<dyn Storage>, chance: Rng) -> ReadView {
        ReadView::build(storage, chance, ViewMode::Live)
    }

    /// A view that stays at a revision until it is thawed.
    pub fn frozen(storage: Arc<dyn Storage>, revision: u64, chance: Rng) -> ReadView {
        ReadView::build(storage, chance, ViewMode::Frozen { at: revision, within: u64::MAX })
    }

    /// The storage behind the view.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.0.storage
    }

    /// The revision that the view shows. It does not go back, unless the storage is restored.
    ///
    /// Nobody can stay at what is no longer kept: a frozen view moves on with storage's floor, and watches on it
    /// that have not are told 410.
    pub fn revision(&self) -> u64 {
        let current = self.0.storage.revision();
        match self.0.freshness.get() {
            ViewMode::Live => current,
            ViewMode::Frozen { at, within } => {
                at.max(current.saturating_sub(within)).max(self.0.storage.floor()).min(current)
            }
        }
    }

    /// Whether writes are hidden.
    pub fn is_frozen(&self) -> bool {
        self.0.freshness.get() != ViewMode::Live
    }

    /// Stays at the revision it shows.
    pub fn freeze(&self) {
        self.freeze_within(u64::MAX);
    }

    /// Stays at the revision it shows, but never falls further behind than so many revisions.
    pub fn freeze_within(&self, revisions: u64) {
        let at = self.revision();
        self.0.freshness.set(ViewMode::Frozen { at, within: revisions });
    }

    /// Sees every write again; its watches tell what they missed.
    pub fn thaw(&self) {
        self.0.freshness.set(ViewMode::Live);
    }

    /// How long a watch lasts whose client did not say: between thirty minutes and an hour, as upstream.
    pub(super) fn watch_length(&self) -> Duration {
        const MIN: Duration = Duration::from_secs(30 * 60);
        self.0.chance.lock().unwrap_or_else(PoisonError::into_inner).between(MIN, 2 * MIN)
    }

    pub(super) fn observe_freshness(&self) -> Receiver<ViewMode> {
        self.0.freshness.subscribe()
    }

    /// The collection at the revision that the view shows.
    pub(super) fn shown(&self, collection: &Collection) -> Snapshot {
        loop {
            let at = self.is_frozen().then(|| self.revision());
            // If not, the floor has risen since the view was asked, and the view with it.
            if let Ok(snapshot) = self.0.storage.read(collection, at) {
                return snapshot;
            }
        }
    }

    /// The collection as it was at a revision that the view has seen.
    pub(super) fn exactly(&self, collection: &Collection, revision: u64) -> Result<Snapshot, StorageError> {
        let current = self.revision();
        if revision > current {
            return Err(StorageError::Future { asked: revision, current });
        }
        self.0.storage.read(collection, Some(revision))
    }

    /// Waits until the view shows a revision, and says whether it did so in time.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub(super) async fn reaches(&self, env: &Env, revision: u64, limit: Duration) -> bool {
        if self.revision() >= revision {
            return true;
        }
        let (mut writes, mut freshness) = (self.0.storage.observe(None), self.observe_freshness());
        let wait = async {
            while self.revision() < revision {
                let gone = match future::select(pin!(writes.changed()), pin!(freshness.changed())).await {
                    Either::Left((write, _)) => write.is_err(),
                    Either::Right((freshness, _)) => freshness.is_err(),
                };
                if gone {
                    // Nothing comes any more.
                    future::pending::<()>().await;
                }
            }
        };
        env.timeout(limit, wait).await.is_ok()
    }

    fn build(storage: Arc<dyn Storage>, chance: Rng, freshness: ViewMode) -> ReadView {
        let (freshness, _) = channel(freshness);
        ReadView(Arc::new(Inner { storage, freshness, chance: Mutex::new(chance) }))
    }
}

impl fmt::Debug for ReadView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let freshness = self.0.freshness.get();
        f.debug_struct("ReadView").field("freshness", &freshness).field("storage", &self.0.storage).finish()
    }
}
