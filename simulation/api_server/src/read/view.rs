//! View of storage through a server's watch cache, which can be stale.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{self, Either};
use windlass_env::watch_channel::{Receiver, Sender, channel};
use windlass_env::{Env, Rng};

use crate::storage::{Collection, Snapshot, Storage, StorageError};

/// A server's view of storage, like a watch cache.
///
/// A live view reflects every write immediately. A frozen view reflects no later write, like a replica whose watch on
/// storage hangs. Lists and gets at version `0` then return old data and watches send no events. Writes, and reads
/// that require the latest version, still work. Clones share one view.
#[derive(Clone)]
pub struct ReadView(Arc<Inner>);

struct Inner {
    storage: Arc<dyn Storage>,
    freshness: Sender<ViewMode>,
    /// Random numbers for the duration of watches without a requested timeout.
    chance: Mutex<Rng>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ViewMode {
    Live,
    Frozen {
        at: u64,
        /// Maximum number of revisions that the view lags behind.
        within: u64,
    },
}

impl ReadView {
    /// Creates a view that reflects every write. `chance` must be a stream for this view only.
    pub fn live(storage: Arc<dyn Storage>, chance: Rng) -> ReadView {
        ReadView::build(storage, chance, ViewMode::Live)
    }

    /// Creates a view that is frozen at a revision until it is thawed.
    pub fn frozen(storage: Arc<dyn Storage>, revision: u64, chance: Rng) -> ReadView {
        ReadView::build(storage, chance, ViewMode::Frozen { at: revision, within: u64::MAX })
    }

    /// Returns the storage behind the view.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.0.storage
    }

    /// Returns the revision that the view reflects. It does not decrease unless the storage is restored.
    ///
    /// A frozen view advances with the floor of the storage, because older revisions are no longer kept. Watches that
    /// are behind the floor then fail with 410.
    pub fn revision(&self) -> u64 {
        let current = self.0.storage.revision();
        match self.0.freshness.get() {
            ViewMode::Live => current,
            ViewMode::Frozen { at, within } => {
                at.max(current.saturating_sub(within)).max(self.0.storage.floor()).min(current)
            }
        }
    }

    /// Returns whether the view is frozen.
    pub fn is_frozen(&self) -> bool {
        self.0.freshness.get() != ViewMode::Live
    }

    /// Freezes the view at its current revision.
    pub fn freeze(&self) {
        self.freeze_within(u64::MAX);
    }

    /// Freezes the view at its current revision, but limits its lag to this number of revisions.
    pub fn freeze_within(&self, revisions: u64) {
        let at = self.revision();
        self.0.freshness.set(ViewMode::Frozen { at, within: revisions });
    }

    /// Reflects every write again. Watches deliver the events they missed.
    pub fn thaw(&self) {
        self.0.freshness.set(ViewMode::Live);
    }

    /// Returns the duration of a watch without a requested timeout: between thirty minutes and an hour, as upstream.
    pub(super) fn watch_length(&self) -> Duration {
        const MIN: Duration = Duration::from_secs(30 * 60);
        self.0.chance.lock().unwrap_or_else(PoisonError::into_inner).between(MIN, 2 * MIN)
    }

    pub(super) fn observe_freshness(&self) -> Receiver<ViewMode> {
        self.0.freshness.subscribe()
    }

    /// Returns the collection at the revision of the view.
    pub(super) fn shown(&self, collection: &Collection) -> Snapshot {
        loop {
            let at = self.is_frozen().then(|| self.revision());
            // A failed read means that the floor has risen since the revision was read; the view has risen with it.
            if let Ok(snapshot) = self.0.storage.read(collection, at) {
                return snapshot;
            }
        }
    }

    /// Returns the collection at a revision that the view has reached.
    pub(super) fn exactly(&self, collection: &Collection, revision: u64) -> Result<Snapshot, StorageError> {
        let current = self.revision();
        if revision > current {
            return Err(StorageError::Future { asked: revision, current });
        }
        self.0.storage.read(collection, Some(revision))
    }

    /// Waits until the view reaches a revision, and returns whether it did so in time.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the wait.
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
                    // The storage is closed: no further write can arrive.
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
