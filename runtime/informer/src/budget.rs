//! How much one informer may hold, and its books.
//!
//! Memory is counted by what the objects had on the wire: it is known before anything is decoded, and it is within a
//! small factor of what they take up. What a transform or a view drops is counted too, so a budget errs towards
//! safety. Quarantined objects, which hold no body, and what slow handlers have yet to be told are not counted.
//!
//! Guarantees:
//! - A list that would bring the store over its budget is given up at the object that does, before that is decoded. So
//!   is a watch; what it was about to pass on counts together with what still waits for the store.
//! - What is held stays served, as of the version it has. An informer over its budget says so
//!   ([`Lag::OverBudget`](crate::Lag::OverBudget), a metric and a log line), and tries again at a slow pace: it
//!   recovers when its source has shrunk or its budget has grown.
//!
//! It refuses to keep a part of what is selected: a cache with holes would answer "there is none".
//!
//! While a list replaces another both are in memory, but for what they share: all that has not changed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use windlass_metrics::InformerMetrics;
use windlass_object::ObjectKey;

use crate::partition::Partition;

/// Stands for "as much as there is".
const UNLIMITED: u64 = u64::MAX;

/// An informer would have to hold more than it may.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "at least {needed} bytes are needed and the byte budget is {budget} ({held} are held): raise the budget, or select \
     fewer objects"
)]
pub struct OverBudget {
    /// How much the store holds.
    pub held: u64,
    /// How much there would be with the object that was refused. There may be more behind it.
    pub needed: u64,
    /// How much there may be.
    pub budget: u64,
}

/// The limit and the books of one informer.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: AtomicU64,
    ledger: Mutex<Ledger>,
    metrics: InformerMetrics,
}

#[derive(Debug, Default)]
struct Ledger {
    sizes: BTreeMap<ObjectKey, u32>,
    held: u64,
    /// What was passed on by watches and has not reached the store.
    queued: u64,
    /// What was refused, by part, until a list of that part fits.
    refused: BTreeMap<Partition, OverBudget>,
}

/// A list that is under way.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Tally {
    /// What is held besides what is being listed anew.
    elsewhere: u64,
    listed: u64,
}

impl Budget {
    pub(crate) fn new(limit: Option<u64>, metrics: InformerMetrics) -> Self {
        Self { limit: AtomicU64::new(limit.unwrap_or(UNLIMITED)), ledger: Mutex::default(), metrics }
    }

    /// Sets the limit. What is held is counted from here on, as it comes in.
    pub(crate) fn limit(&self, limit: Option<u64>) {
        self.limit.store(limit.unwrap_or(UNLIMITED), Ordering::Relaxed);
    }

    /// What was refused last of one part, and would be refused again, as far as is known.
    pub(crate) fn refused(&self, partition: &Partition) -> Option<OverBudget> {
        self.lock().refused.get(partition).copied()
    }

    /// Begins the books of a list of one part.
    pub(crate) fn begin_list(&self, partition: &Partition) -> Tally {
        if self.is_unlimited() {
            return Tally::default();
        }
        let ledger = self.lock();
        let own = partition.namespace().map_or(ledger.held, |namespace| ledger.held_in(namespace));
        Tally { elsewhere: ledger.held - own, listed: 0 }
    }

    /// Takes one more object into a list.
    pub(crate) fn list(
        &self,
        partition: &Partition,
        tally: &mut Tally,
        bytes: u32,
    ) -> Result<(), OverBudget> {
        tally.listed += u64::from(bytes);
        let needed = tally.elsewhere + tally.listed;
        if needed <= self.limit.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(self.refuse(&mut self.lock(), partition, needed))
    }

    /// Notes that a list fits, or that there is nothing to list any more.
    pub(crate) fn list_fits(&self, partition: &Partition) {
        self.lock().refused.remove(partition);
    }

    /// Takes one object in from a watch.
    pub(crate) fn arrive(
        &self,
        partition: &Partition,
        key: &ObjectKey,
        bytes: u32,
    ) -> Result<(), OverBudget> {
        if self.is_unlimited() {
            return Ok(());
        }
        let mut ledger = self.lock();
        let replaced = ledger.sizes.get(key).copied().unwrap_or_default();
        let needed = ledger.held + ledger.queued + u64::from(bytes) - u64::from(replaced);
        if needed > self.limit.load(Ordering::Relaxed) {
            return Err(self.refuse(&mut ledger, partition, needed));
        }
        ledger.queued += u64::from(bytes);
        Ok(())
    }

    /// Notes that an object from a watch has left the queue.
    pub(crate) fn leave_queue(&self, bytes: u32) {
        if !self.is_unlimited() {
            let mut ledger = self.lock();
            ledger.queued = ledger.queued.saturating_sub(u64::from(bytes));
        }
    }

    /// Notes what the store holds of an object now.
    pub(crate) fn hold(&self, key: &ObjectKey, bytes: u32) {
        if !self.is_unlimited() {
            let mut ledger = self.lock();
            let before = ledger.sizes.insert(key.clone(), bytes).unwrap_or_default();
            ledger.held = ledger.held + u64::from(bytes) - u64::from(before);
            self.publish(&ledger);
        }
    }

    /// Notes that the store does not hold an object any more.
    pub(crate) fn release(&self, key: &ObjectKey) {
        if !self.is_unlimited() {
            let mut ledger = self.lock();
            let before = ledger.sizes.remove(key).unwrap_or_default();
            ledger.held -= u64::from(before);
            self.publish(&ledger);
        }
    }

    fn is_unlimited(&self) -> bool {
        self.limit.load(Ordering::Relaxed) == UNLIMITED
    }

    fn refuse(&self, ledger: &mut Ledger, partition: &Partition, needed: u64) -> OverBudget {
        let refusal = OverBudget { held: ledger.held, needed, budget: self.limit.load(Ordering::Relaxed) };
        ledger.refused.insert(partition.clone(), refusal);
        self.metrics.over_budget.inc();
        refusal
    }

    fn publish(&self, ledger: &Ledger) {
        self.metrics.bytes.set(i64::try_from(ledger.held).unwrap_or(i64::MAX));
    }

    /// No code of others runs under this lock, so poison cannot mean broken books.
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    fn held_in(&self, namespace: &str) -> u64 {
        let rest = self.sizes.range(ObjectKey::namespaced(namespace, "")..);
        let own = rest.take_while(|(key, _)| key.namespace() == Some(namespace));
        own.map(|(_, bytes)| u64::from(*bytes)).sum()
    }
}

#[cfg(test)]
mod tests {
    use windlass_metrics::Metrics;

    use super::*;

    fn budget(limit: u64) -> Budget {
        Budget::new(Some(limit), Metrics::new().informer("", "v1", "configmaps"))
    }

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::namespaced(namespace, name)
    }

    #[test]
    fn what_changes_counts_once_and_what_goes_counts_no_more() {
        let budget = budget(100);
        budget.hold(&key("a", "x"), 60);
        budget.hold(&key("a", "x"), 50);
        assert_eq!((budget.lock().held, budget.metrics.bytes.get()), (50, 50));
        budget.release(&key("a", "x"));
        budget.release(&key("a", "x"));
        assert_eq!((budget.lock().held, budget.metrics.bytes.get()), (0, 0));
    }

    #[test]
    fn an_object_may_come_if_it_fits_together_with_what_waits_and_without_what_it_replaces() {
        let budget = budget(100);
        budget.hold(&key("a", "x"), 60);
        assert_eq!(budget.arrive(&Partition::Whole, &key("a", "x"), 90), Ok(()));
        let refusal = OverBudget { held: 60, needed: 151, budget: 100 };
        assert_eq!(budget.arrive(&Partition::Whole, &key("a", "y"), 1), Err(refusal));
        assert_eq!((budget.refused(&Partition::Whole), budget.metrics.over_budget.get()), (Some(refusal), 1));
        budget.leave_queue(90);
        assert_eq!(budget.arrive(&Partition::Whole, &key("a", "y"), 40), Ok(()));
    }

    #[test]
    fn a_list_replaces_what_is_held_in_its_own_part_and_counts_beside_the_others() {
        let budget = budget(100);
        let [a, b] = ["a", "b"].map(|name| Partition::Namespace(name.into()));
        budget.hold(&key("a", "x"), 60);
        budget.hold(&key("b", "x"), 30);
        let mut tally = budget.begin_list(&a);
        assert_eq!(budget.list(&a, &mut tally, 70), Ok(()));
        assert!(budget.list(&a, &mut tally, 1).is_err());
        assert!(budget.list(&Partition::Whole, &mut budget.begin_list(&Partition::Whole), 100).is_ok());
        budget.list_fits(&b);
        assert!(budget.refused(&a).is_some(), "what does not fit elsewhere still does not");
        budget.list_fits(&a);
        assert_eq!(budget.refused(&a), None);
    }

    #[test]
    fn without_a_limit_nothing_is_refused_and_no_books_are_kept() {
        let budget = Budget::new(None, Metrics::new().informer("", "v1", "configmaps"));
        budget.hold(&key("a", "x"), u32::MAX);
        assert_eq!(budget.arrive(&Partition::Whole, &key("a", "y"), u32::MAX), Ok(()));
        assert_eq!(
            budget.list(&Partition::Whole, &mut budget.begin_list(&Partition::Whole), u32::MAX),
            Ok(())
        );
        assert!(budget.lock().sizes.is_empty());
        budget.limit(Some(10));
        assert!(budget.arrive(&Partition::Whole, &key("a", "y"), 11).is_err());
    }
}
