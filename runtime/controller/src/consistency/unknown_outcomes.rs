//! Writes of unknown outcome: one consistent read per collection yields the version that its caches must reach.
//!
//! A write without a response has taken effect or never will, once it has settled
//! ([`WriteLog::ambiguous`](windlass_client::WriteLog::ambiguous)). So a key waits until its caches have reached the
//! version of a read that began after that time.
//! A cache of a whole resource needs one read, regardless of the number of keys, namespaces and writes; at most
//! [`MAX_READS`] reads are in flight. They run outside the workers, so a server that does not respond delays no other
//! key.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{self, Either};
use futures_util::{StreamExt as _, stream};
use windlass_client::{ListQuery, RawClient, RequestError};
use windlass_env::Env;
use windlass_object::ResourceVersion;

use crate::consistency::caches::{Cache, CacheId, Caches};
use crate::consistency::write_tracker::{SharedWriteTracker, WrittenCollection};

/// Timeout of a read. A server that selects by fields might have to inspect many objects to find one.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay before a failed read is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of reads in flight.
const MAX_READS: usize = 4;

/// Time that a stopping controller waits for the outcome of its writes. They usually settle within 1 s, and a healthy
/// server answers immediately; after that, a successor that relists its caches is better than one that waits.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Resolves the unknown outcomes of one controller.
pub(crate) struct OutcomeResolver {
    pub(crate) env: Env,
    pub(crate) tracker: SharedWriteTracker,
    pub(crate) caches: Caches,
    pub(crate) reader: RawClient,
}

impl OutcomeResolver {
    /// Runs until dropped.
    ///
    /// # Cancel safety
    /// Can be dropped at any await; an interrupted read is repeated by the next run.
    pub(crate) async fn run(self) {
        let mut changes = self.tracker.outcome_changes();
        loop {
            let next = self.tracker.lock().next_read_at();
            let Some(due) = next else {
                // `self` owns the sender, so the channel cannot close.
                let _changed = changes.changed().await;
                continue;
            };
            // An outcome that settles earlier can become unknown meanwhile.
            let changed = pin!(changes.changed());
            if let Either::Left(_) = future::select(changed, pin!(self.env.sleep_until(due))).await {
                continue;
            }
            let due = self.tracker.lock().due_reads(self.env.now());
            stream::iter(self.reads(due)).for_each_concurrent(MAX_READS, |read| self.resolve(read)).await;
            self.tracker.notify_outcomes_changed();
        }
    }

    /// Returns the reads that resolve the unknown outcomes in these collections. Collections that no cache can reflect
    /// need none.
    fn reads(&self, due: Vec<WrittenCollection>) -> Vec<Read> {
        let mut reads: BTreeMap<(CacheId, Option<String>), Read> = BTreeMap::new();
        for collection in due {
            let Some((id, cache)) = self.caches.caches_of_writes(&collection).into_iter().next() else {
                self.tracker.lock().drop_unknown_outcomes(&collection);
                continue;
            };
            let namespace = match (&cache.selection().namespace, cache.is_by_namespace()) {
                (Some(namespace), _) => Some(namespace.clone()),
                (None, true) => collection.namespace().map(str::to_owned),
                (None, false) => None,
            };
            let read = || Read { cache, namespace: namespace.clone(), collections: Vec::new() };
            reads.entry((id, namespace.clone())).or_insert_with(read).collections.push(collection);
        }
        reads.into_values().collect()
    }

    /// Reads one collection and applies the result to every key that waits for it.
    async fn resolve(&self, read: Read) {
        let sent = self.env.now();
        let newest = |collection: &WrittenCollection| {
            self.caches.newest_version(&collection.resource, collection.location())
        };
        let seen: Vec<_> = read.collections.iter().map(newest).collect();
        let version = self.version(&read).await;
        let (now, mut tracker) = (self.env.now(), self.tracker.lock());
        for (collection, seen) in read.collections.iter().zip(&seen) {
            match &version {
                Ok(version) => {
                    if let Some(version) = version {
                        let epoch = self.caches.epoch(&collection.resource);
                        tracker.record_version(&collection.resource, version, epoch, now);
                        if seen.as_ref().is_some_and(|seen| version < seen) {
                            tracker.left_epoch(&collection.resource, epoch);
                        }
                    }
                    tracker.resolve(collection, sent, version.as_ref(), seen.as_ref(), now);
                }
                Err(error) => {
                    tracing::debug!(resource = %collection.resource, %error, "outcome of a write still unknown");
                    tracker.postpone_read(collection, now + RETRY_INTERVAL);
                }
            }
        }
    }

    /// Returns the current version of the collection. A list without a version is a quorum read; a limit of one object
    /// suffices, because only the version of the list counts. Label selectors are omitted: roles do not depend on them,
    /// and the server would have to search for a matching object. Field selectors stay, because a role can be granted
    /// for one name.
    async fn version(&self, read: &Read) -> Result<Option<ResourceVersion>, RequestError> {
        let query = ListQuery {
            fields: read.cache.selection().fields.clone(),
            limit: Some(1),
            // The number of reads is bounded, and keys wait for them.
            unthrottled: true,
            ..ListQuery::default()
        };
        let list = self.reader.list(read.cache.kind(), read.namespace.as_deref(), &query);
        let list = self.env.timeout(READ_TIMEOUT, list).await.unwrap_or(Err(RequestError::Deadline))?;
        Ok(list.version)
    }
}

/// One consistent read, and the collections whose outcomes it resolves.
struct Read {
    cache: Cache,
    namespace: Option<String>,
    collections: Vec<WrittenCollection>,
}
