//! What a reflector does about a kind that is not served, or not to it: it says so, waits, and looks again when told.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{self, Either};
use windlass_client::RequestError;
use windlass_object::Verb;

use super::Reflector;
use crate::partition::RemovalReason;

impl Reflector {
    /// A list that began when `ticket` was read was refused. Of a kind that is not served any more nothing is kept. Who
    /// says that there is nothing to list, or nothing for us, has given the fresh look that was asked for; who fails in
    /// another way, or does not answer, has not.
    pub(super) fn list_refused(&mut self, error: &RequestError, ticket: u64) {
        let gone = self.sighting.refused(Verb::List, error, self.env.now());
        if gone && self.passed_on.take().is_some() {
            tracing::warn!(informer = %self.informer, "the kind is not served any more; its objects are let go");
            self.fifo.empty(self.partition.clone(), RemovalReason::Unserved);
        }
        let answered = error.is_not_found() || error.is_forbidden();
        if self.passed_on.is_none() && answered {
            self.wishes.grant(ticket, self.fifo.end());
        }
    }

    /// Waits, for a kind that cannot be had only until somebody says that a look is worth while. The ramp then starts
    /// again: a definition that has just been made is served in a moment.
    pub(super) async fn rest(&mut self, wait: Duration) {
        let nap = self.env.sleep(wait);
        if !self.sighting.is_blocked() {
            return nap.await;
        }
        let told = async {
            let called = self.sighting.called();
            if self.passed_on.is_some() {
                return called.await;
            }
            // Only a wish that is younger than the last look: who fails to answer is not asked again and again for one.
            future::select(pin!(called), pin!(self.wishes.opened_since_look())).await;
        };
        if let Either::Left(_) = future::select(pin!(told), pin!(nap)).await {
            self.backoff.forget();
        }
    }
}
