//! Handling of kinds that are not served or not permitted: the reflector reports them, waits, and retries on
//! notification.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{self, Either};
use windlass_client::RequestError;
use windlass_object::Verb;

use super::Reflector;
use crate::partition::RemovalReason;

impl Reflector {
    /// Handles a failed list that began when `ticket` was read. If the kind is no longer served, its objects are
    /// removed. A 404 or 403 response grants the requested relist if the cache is empty. No other failure
    /// grants it.
    pub(super) fn on_list_failed(&mut self, error: &RequestError, ticket: u64) {
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

    /// Waits. For an unavailable kind, the wait ends early on a notification that a retry is worthwhile. The backoff
    /// then resets: a new CustomResourceDefinition is served within moments.
    pub(super) async fn wait(&mut self, wait: Duration) {
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
}
