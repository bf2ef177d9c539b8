//! How much one informer may hold, and its books.
//!
//! Memory is counted by what the objects had on the wire: it is known before anything is decoded, and it is within a
//! small factor of what they take up. What a transform or a view drops is counted too, so a budget errs towards
//! safety. Quarantined objects, which hold no body, and what slow handlers have yet to be told are not counted.
//!
//! Guarantees:
//! - A list that would bring the store over its budget is given up at the object that does, before that is decoded. So
//!   is a watch; what it was about to pass on counts together with what still waits for the store.
//! - A page of a list that is longer than the whole budget is not even read to its end, where its source can stop.
//! - A list counts while it is taken in and until it is in the store or given up: of lists of several namespaces at once
//!   each counts what the others have taken in so far.
//! - What is held stays served, as of the version it has. An informer over its budget says so
//!   ([`Lag::OverBudget`](crate::Lag::OverBudget), a metric and a log line), and tries again at a slow pace: it
//!   recovers when its source has shrunk or its budget has grown.
//!
//! It refuses to keep a part of what is selected: a cache with holes would answer "there is none".
//!
//! While a list replaces another both are in memory, but for what they share: all that has not changed. A list that
//! replaces what is held counts as the greater of the two.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_metrics::InformerMetrics;
use windlass_object::ObjectKey;

use crate::partition::Partition;
use crate::share::GaugeShare;

/// What a page says next to its objects, in bytes, at most: its kind, its version, a token.
const BESIDE_OBJECTS: u64 = 64 * 1024;

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
pub(crate) struct ByteBudget {
    ledger: Mutex<BudgetUsage>,
    bytes: GaugeShare,
    metrics: InformerMetrics,
}

#[derive(Debug, Default)]
struct BudgetUsage {
    /// Without one, nothing is refused, and no books are kept of single objects.
    limit: Option<u64>,
    /// How much each object is, and of which part.
    sizes: BTreeMap<ObjectKey, (u32, Partition)>,
    /// What there is of each part, where there are several.
    shelves: BTreeMap<Partition, PartitionUsage>,
    /// What there is of all.
    whole: PartitionUsage,
    lists: BTreeMap<Partition, Lists>,
    /// What was refused, by part, until a list of that part fits.
    refused: BTreeMap<Partition, OverBudget>,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct PartitionUsage {
    held: u64,
    /// What was passed on by watches and has not reached the store.
    queued: u64,
}

/// The lists of one part that are not in the store yet.
#[derive(Debug, Default)]
struct Lists {
    /// What the one that is under way has come to.
    under_way: Option<u64>,
    /// Those that are complete and wait for the store.
    complete: VecDeque<u64>,
}

/// A list that is under way: dropped, it is given up.
#[derive(Debug)]
pub(crate) struct ListReservation {
    budget: Arc<ByteBudget>,
    partition: Partition,
}

impl ByteBudget {
    pub(crate) fn new(limit: Option<u64>, metrics: InformerMetrics) -> Self {
        let bytes = GaugeShare::of(&metrics.bytes);
        Self { ledger: Mutex::new(BudgetUsage { limit, ..BudgetUsage::default() }), bytes, metrics }
    }

    /// Sets the limit. Where there was none, what is held is counted from here on, as it comes in.
    pub(crate) fn limit(&self, limit: Option<u64>) {
        let mut ledger = self.lock();
        ledger.limit = limit;
        if limit.is_none() {
            ledger.forget_what_is_held();
            self.publish(&ledger);
        }
    }

    /// How long a page may be, in bytes, that could be held; `None` for any.
    pub(crate) fn longest_page(&self) -> Option<u64> {
        self.lock().limit.map(|limit| limit.saturating_add(BESIDE_OBJECTS))
    }

    /// Notes that a page was longer than that; `None` if the limit has been lifted meanwhile.
    pub(crate) fn page_too_long(&self, partition: &Partition) -> Option<OverBudget> {
        let mut ledger = self.lock();
        let needed = ledger.limit?.saturating_add(1);
        self.metrics.over_budget.inc();
        ledger.admit(partition, needed).err()
    }

    /// What was refused last of one part, and would be refused again, as far as is known.
    pub(crate) fn refused(&self, partition: &Partition) -> Option<OverBudget> {
        self.lock().refused.get(partition).copied()
    }

    /// Begins the books of a list of one part. Of each part there is one at a time.
    pub(crate) fn begin_list(self: &Arc<Self>, partition: &Partition) -> ListReservation {
        self.lock().lists.entry(partition.clone()).or_default().under_way = Some(0);
        ListReservation { budget: Arc::clone(self), partition: partition.clone() }
    }

    /// Notes that a part's oldest list that was waiting for the store waits no more.
    pub(crate) fn list_applied(&self, partition: &Partition) {
        self.lock().change_lists(partition, |lists| {
            lists.complete.pop_front();
        });
    }

    /// Notes that there is nothing to list of a part any more.
    pub(crate) fn nothing_to_list(&self, partition: &Partition) {
        self.lock().refused.remove(partition);
    }

    /// Notes that nothing is held for anybody to count any more.
    pub(crate) fn close(&self) {
        self.bytes.set(0);
    }

    /// Takes one object in from a watch.
    pub(crate) fn arrive(
        &self,
        partition: &Partition,
        key: &ObjectKey,
        bytes: u32,
    ) -> Result<(), OverBudget> {
        let mut ledger = self.lock();
        let replaced = ledger.sizes.get(key).map_or(0, |(bytes, _)| *bytes);
        let there = ledger.whole.held + ledger.whole.queued + ledger.listed_beside(None);
        let needed = there + u64::from(bytes) - u64::from(replaced);
        ledger.admit(partition, needed).inspect_err(|_| self.metrics.over_budget.inc())?;
        ledger.shelve(partition, |shelf| shelf.queued += u64::from(bytes));
        Ok(())
    }

    /// Notes that an object from a watch has left the queue.
    pub(crate) fn leave_queue(&self, partition: &Partition, bytes: u32) {
        self.lock().shelve(partition, |shelf| shelf.queued = shelf.queued.saturating_sub(u64::from(bytes)));
    }

    /// Notes what the store holds of an object now.
    pub(crate) fn hold(&self, partition: &Partition, key: &ObjectKey, bytes: u32) {
        let mut ledger = self.lock();
        if ledger.limit.is_some() {
            let before = ledger.sizes.insert(key.clone(), (bytes, partition.clone()));
            if let Some((before, part)) = before {
                ledger.shelve(&part, |shelf| shelf.held -= u64::from(before));
            }
            ledger.shelve(partition, |shelf| shelf.held += u64::from(bytes));
            self.publish(&ledger);
        }
    }

    /// Notes that the store does not hold an object any more.
    pub(crate) fn release(&self, key: &ObjectKey) {
        let mut ledger = self.lock();
        if let Some((before, part)) = ledger.sizes.remove(key) {
            ledger.shelve(&part, |shelf| shelf.held -= u64::from(before));
            self.publish(&ledger);
        }
    }

    fn publish(&self, ledger: &BudgetUsage) {
        self.bytes.set(ledger.whole.held);
    }

    /// No code of others runs under this lock, so poison cannot mean broken books.
    fn lock(&self) -> MutexGuard<'_, BudgetUsage> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ListReservation {
    /// Takes one more object into the list.
    pub(crate) fn list(&self, bytes: u32) -> Result<(), OverBudget> {
        let mut ledger = self.budget.lock();
        let mut listed = u64::from(bytes);
        ledger.change_lists(&self.partition, |lists| {
            listed += lists.under_way.unwrap_or_default();
            lists.under_way = Some(listed);
        });
        // What is queued of the part is in the store, or was, by the time the list gets there.
        let own = ledger.shelf(&self.partition);
        let whole = ledger.whole;
        let elsewhere = (whole.held - own.held) + (whole.queued - own.queued);
        let needed = elsewhere + listed + ledger.listed_beside(Some(&self.partition));
        ledger.admit(&self.partition, needed).inspect_err(|_| self.budget.metrics.over_budget.inc())
    }

    /// Takes an object out of the list again, which is told again or is gone.
    pub(crate) fn take_back(&self, bytes: u32) {
        self.budget.lock().change_lists(&self.partition, |lists| {
            lists.under_way = lists.under_way.map(|listed| listed.saturating_sub(u64::from(bytes)));
        });
    }

    /// The list fits. It counts until [`ByteBudget::list_applied`].
    pub(crate) fn complete(self) {
        let mut ledger = self.budget.lock();
        ledger.refused.remove(&self.partition);
        ledger.change_lists(&self.partition, |lists| lists.complete.extend(lists.under_way.take()));
    }
}

impl Drop for ListReservation {
    fn drop(&mut self) {
        self.budget.lock().change_lists(&self.partition, |lists| lists.under_way = None);
    }
}

impl BudgetUsage {
    fn admit(&mut self, partition: &Partition, needed: u64) -> Result<(), OverBudget> {
        let Some(budget) = self.limit.filter(|budget| needed > *budget) else { return Ok(()) };
        let refusal = OverBudget { held: self.whole.held, needed, budget };
        self.refused.insert(partition.clone(), refusal);
        Err(refusal)
    }

    /// What there is of a part.
    fn shelf(&self, partition: &Partition) -> PartitionUsage {
        if *partition == Partition::Whole {
            return self.whole;
        }
        self.shelves.get(partition).copied().unwrap_or_default()
    }

    /// By how much the lists of all parts, or of all but one, exceed what they are going to replace.
    fn listed_beside(&self, own: Option<&Partition>) -> u64 {
        let others = self.lists.iter().filter(|(partition, _)| Some(*partition) != own);
        let excess = |(partition, lists): (&Partition, &Lists)| {
            let greatest = lists.complete.iter().chain(&lists.under_way).max();
            greatest.copied().unwrap_or_default().saturating_sub(self.shelf(partition).held)
        };
        others.map(excess).sum()
    }

    /// Changes what there is of a part, and of all.
    fn shelve(&mut self, partition: &Partition, change: impl Fn(&mut PartitionUsage)) {
        change(&mut self.whole);
        if *partition == Partition::Whole {
            return;
        }
        match self.shelves.get_mut(partition) {
            Some(shelf) => change(shelf),
            None => change(self.shelves.entry(partition.clone()).or_default()),
        }
        if self.shelves.get(partition) == Some(&PartitionUsage::default()) {
            self.shelves.remove(partition);
        }
    }

    fn change_lists(&mut self, partition: &Partition, change: impl FnOnce(&mut Lists)) {
        let lists = self.lists.entry(partition.clone()).or_default();
        change(lists);
        if lists.under_way.is_none() && lists.complete.is_empty() {
            self.lists.remove(partition);
        }
    }

    fn forget_what_is_held(&mut self) {
        self.sizes.clear();
        self.whole.held = 0;
        self.shelves.values_mut().for_each(|shelf| shelf.held = 0);
        self.shelves.retain(|_, shelf| *shelf != PartitionUsage::default());
    }
}

#[cfg(test)]
mod tests {
    use windlass_metrics::Metrics;

    use super::*;

    fn budget(limit: impl Into<Option<u64>>) -> Arc<ByteBudget> {
        Arc::new(ByteBudget::new(limit.into(), Metrics::new().informer("", "v1", "configmaps")))
    }

    fn of(namespace: &str) -> Partition {
        Partition::Namespace(namespace.into())
    }

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::namespaced(namespace, name)
    }

    fn parts() -> [Partition; 2] {
        ["a", "b"].map(|name| Partition::Namespace(name.into()))
    }

    fn held(budget: &ByteBudget) -> (u64, i64) {
        (budget.lock().whole.held, budget.metrics.bytes.get())
    }

    #[test]
    fn what_changes_counts_once_and_what_goes_counts_no_more() {
        let budget = budget(100);
        budget.hold(&of("a"), &key("a", "x"), 60);
        budget.hold(&of("a"), &key("a", "x"), 50);
        assert_eq!(held(&budget), (50, 50));
        budget.release(&key("a", "x"));
        budget.release(&key("a", "x"));
        assert_eq!(held(&budget), (0, 0));
        assert!(budget.lock().shelves.is_empty(), "a namespace without objects takes no room");
    }

    #[test]
    fn object_may_come_if_it_fits_together_with_what_waits_and_without_what_it_replaces() {
        let budget = budget(100);
        budget.hold(&of("a"), &key("a", "x"), 60);
        assert_eq!(budget.arrive(&Partition::Whole, &key("a", "x"), 90), Ok(()));
        let refusal = OverBudget { held: 60, needed: 151, budget: 100 };
        assert_eq!(budget.arrive(&Partition::Whole, &key("a", "y"), 1), Err(refusal));
        assert_eq!((budget.refused(&Partition::Whole), budget.metrics.over_budget.get()), (Some(refusal), 1));
        budget.leave_queue(&Partition::Whole, 90);
        assert_eq!(budget.arrive(&Partition::Whole, &key("a", "y"), 40), Ok(()));
    }

    #[test]
    fn list_replaces_what_is_held_in_its_own_part_and_counts_beside_the_others() {
        let budget = budget(100);
        let [a, b] = parts();
        budget.hold(&of("a"), &key("a", "x"), 60);
        budget.hold(&of("b"), &key("b", "x"), 30);
        let tally = budget.begin_list(&a);
        assert_eq!(tally.list(70), Ok(()));
        assert!(tally.list(1).is_err());
        drop(tally);
        budget.nothing_to_list(&b);
        assert!(budget.refused(&a).is_some(), "what does not fit elsewhere still does not");
        budget.begin_list(&a).complete();
        assert_eq!(budget.refused(&a), None);
        assert!(budget.begin_list(&Partition::Whole).list(100).is_ok());
    }

    #[test]
    fn lists_of_several_parts_at_once_fit_together_or_not_at_all() {
        let budget = budget(100);
        let [a, b] = parts();
        let (of_a, of_b) = (budget.begin_list(&a), budget.begin_list(&b));
        assert_eq!(of_a.list(60), Ok(()));
        assert!(of_b.list(60).is_err());
        // A list that is complete counts until it is in the store, and then as what is held.
        of_a.complete();
        drop(of_b);
        assert!(budget.begin_list(&b).list(60).is_err());
        assert!(budget.arrive(&b, &key("b", "x"), 41).is_err());
        budget.hold(&of("a"), &key("a", "x"), 60);
        budget.list_applied(&a);
        assert!(budget.begin_list(&b).list(41).is_err());
        assert!(budget.begin_list(&b).list(40).is_ok());
        assert!(budget.lock().lists.is_empty());
    }

    #[test]
    fn list_that_is_given_up_makes_room_for_others() {
        let budget = budget(100);
        let [a, b] = parts();
        let of_a = budget.begin_list(&a);
        assert_eq!(of_a.list(60), Ok(()));
        drop(of_a);
        assert_eq!(budget.begin_list(&b).list(100), Ok(()));
    }

    #[test]
    fn parts_that_are_listed_anew_at_once_count_once_each() {
        let budget = budget(100);
        let [a, b] = parts();
        budget.hold(&of("a"), &key("a", "x"), 50);
        budget.hold(&of("b"), &key("b", "x"), 50);
        let (of_a, of_b) = (budget.begin_list(&a), budget.begin_list(&b));
        assert_eq!((of_a.list(50), of_b.list(50)), (Ok(()), Ok(())));
    }

    #[test]
    fn what_waits_of_other_parts_counts_beside_a_list() {
        let budget = budget(100);
        let [a, b] = parts();
        assert_eq!(budget.arrive(&b, &key("b", "x"), 30), Ok(()));
        assert_eq!(budget.arrive(&a, &key("a", "x"), 30), Ok(()));
        let tally = budget.begin_list(&a);
        assert_eq!(tally.list(70), Ok(()), "what waits of its own it replaces");
        assert!(tally.list(1).is_err());
    }

    #[test]
    fn without_a_limit_nothing_is_refused_and_no_books_are_kept_of_objects() {
        let budget = budget(None);
        budget.hold(&of("a"), &key("a", "x"), u32::MAX);
        assert_eq!(budget.arrive(&Partition::Whole, &key("a", "y"), u32::MAX), Ok(()));
        assert_eq!(budget.begin_list(&Partition::Whole).list(u32::MAX), Ok(()));
        assert!(budget.lock().sizes.is_empty());
        budget.leave_queue(&Partition::Whole, u32::MAX);
        budget.limit(Some(10));
        assert!(budget.arrive(&Partition::Whole, &key("a", "y"), 11).is_err());
    }

    #[test]
    fn books_are_true_after_a_time_without_a_limit() {
        let budget = budget(100);
        budget.hold(&of("a"), &key("a", "x"), 60);
        assert_eq!(budget.arrive(&Partition::Whole, &key("a", "y"), 40), Ok(()));
        budget.limit(None);
        assert_eq!(held(&budget), (0, 0), "what is not counted is not told either");
        budget.release(&key("a", "x"));
        budget.leave_queue(&Partition::Whole, 40);
        assert_eq!(budget.arrive(&Partition::Whole, &key("a", "z"), 30), Ok(()));
        budget.limit(Some(100));
        let refusal = OverBudget { held: 0, needed: 101, budget: 100 };
        assert_eq!(budget.arrive(&Partition::Whole, &key("a", "x"), 71), Err(refusal), "thirty wait");
        budget.leave_queue(&Partition::Whole, 30);
        assert_eq!(budget.arrive(&Partition::Whole, &key("a", "x"), 100), Ok(()));
    }
}
