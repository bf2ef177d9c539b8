//! Writes of unknown outcome: one consistent read per collection tells up to which version its caches must get.
//!
//! A write whose answer was lost either happened before the read or not at all, once it had time to settle
//! ([`SETTLING_TIME`]). So a key waits until its caches have reached the version of a read that began after that. However
//! many keys and writes are concerned, a collection is read once at a time, and apart from the workers: a server that does
//! not answer delays no other key.

use std::time::Duration;

use futures_util::future;
use windlass_client::{ListQuery, RawClient, RequestError};
use windlass_env::Env;
use windlass_object::ResourceVersion;

use crate::caches::Caches;
use crate::writes::{Place, SETTLING_TIME, SharedLedger};

/// How long a read may take. A server that answers at all does so in far less.
const READ_TIMEOUT: Duration = Duration::from_secs(3);

/// After how long a read that failed is repeated.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long a controller that stops waits for the outcome of its writes: until they have settled and a read has had its
/// time, and a retry after that.
pub(crate) const STOP_TIMEOUT: Duration =
    Duration::from_secs(SETTLING_TIME.as_secs() + READ_TIMEOUT.as_secs() + RETRY_INTERVAL.as_secs());

/// Resolves the unknown outcomes of one controller.
pub(crate) struct DoubtResolver {
    pub(crate) env: Env,
    pub(crate) ledger: SharedLedger,
    pub(crate) caches: Caches,
    pub(crate) reader: RawClient,
}

impl DoubtResolver {
    /// Runs until dropped.
    ///
    /// # Cancel safety
    /// Can be dropped at any await; a read that was interrupted is repeated by the next run.
    pub(crate) async fn run(self) {
        let mut doubts = self.ledger.doubts();
        loop {
            let next = self.ledger.lock().next_doubt();
            let Some(due) = next else {
                // `self` holds a publisher, so the cell cannot close.
                let _changed = doubts.changed().await;
                continue;
            };
            self.env.sleep_until(due).await;
            let due = self.ledger.lock().due_doubts(self.env.now());
            future::join_all(due.iter().map(|place| self.resolve(place))).await;
            self.ledger.doubts_changed();
        }
    }

    /// Reads one collection, and applies what the read says to every key that waits for it.
    async fn resolve(&self, place: &Place) {
        let sent = self.env.now();
        let read = self.version(place).await;
        let (now, epoch) = (self.env.now(), self.caches.epoch(&place.resource));
        let mut ledger = self.ledger.lock();
        match read {
            Ok(version) => {
                if let Some(version) = &version {
                    ledger.reached(&place.resource, version, epoch);
                }
                ledger.resolve(place, sent, version.as_ref(), now);
            }
            Err(error) => {
                tracing::debug!(resource = %place.resource, %error, "outcome of a write still unknown");
                ledger.postpone(place, now + RETRY_INTERVAL);
            }
        }
    }

    /// Returns the version of the collection now. A list without a version is answered from a quorum; one object is enough,
    /// because the version of the list itself counts. It is sent within the informer's selection, as roles allow. `None` if
    /// no cache can show the collection.
    async fn version(&self, place: &Place) -> Result<Option<ResourceVersion>, RequestError> {
        let Some((_, cache)) = self.caches.showing(place).into_iter().next() else { return Ok(None) };
        let selection = cache.selection();
        let query = ListQuery {
            labels: selection.labels.clone(),
            fields: selection.fields.clone(),
            limit: Some(1),
            // One read per collection and second at most, and a key waits for it.
            unthrottled: true,
            ..ListQuery::default()
        };
        // The collection written to lies within what the cache lists, and whoever may write there may list there.
        let namespace = selection.namespace.as_deref().or(place.namespace());
        let read = self.reader.list(cache.kind(), namespace, &query);
        let list = self.env.timeout(READ_TIMEOUT, read).await.unwrap_or(Err(RequestError::Deadline))?;
        Ok(list.version)
    }
}
