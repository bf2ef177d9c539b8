//! The byte budget of one informer, and its accounting.
//!
//! Memory is accounted by the wire size of objects. This size is known before decoding and within a small factor of the
//! memory use. Fields that a transform or a view drops count too, so the budget errs on the safe side. Undecodable
//! objects, which have no body, and the backlogs of slow handlers do not count.
//!
//! Guarantees:
//! - A list that would exceed the budget is canceled at the first object beyond it, before that object is decoded. The
//!   same applies to a watch; its objects count together with the objects queued for the store.
//! - A page larger than the whole budget is not read to its end, if the source can stop.
//! - A list counts until it is in the store or canceled. Concurrent lists of several namespaces count together.
//! - Cached objects stay available at their version. An informer over its budget reports it
//!   ([`UnsyncedReason::OverBudget`](crate::UnsyncedReason::OverBudget), a metric and a log line) and retries slowly:
//!   it recovers when the source shrinks or the budget grows.
//!
//! The cache never holds a part of a selection: a lookup would wrongly report missing objects.
//!
//! While a list replaces another, both are in memory but share all unchanged objects. A replacement counts as the
//! larger of the two.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_metrics::InformerMetrics;
use windlass_object::ObjectKey;

use crate::gauge_share::GaugeShare;
use crate::partition::Partition;

/// Maximum bytes of a page in addition to its objects: kind, version and continue token.
const PAGE_OVERHEAD: u64 = 64 * 1024;

/// The error for an informer that would exceed its byte budget.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "byte budget exceeded: at least {needed} bytes required, byte budget {budget}, {cached} bytes cached; raise the \
     budget or select fewer objects"
)]
pub struct OverBudget {
    /// Bytes in the store.
    pub cached: u64,
    /// Bytes required including the rejected object. More objects can follow it.
    pub needed: u64,
    /// The byte budget.
    pub budget: u64,
}

/// The limit and the accounting of one informer.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    usage: Mutex<BudgetUsage>,
    bytes: GaugeShare,
    metrics: InformerMetrics,
}

#[derive(Debug, Default)]
struct BudgetUsage {
    /// The limit; with `None`, nothing is rejected and single objects are not accounted.
    limit: Option<u64>,
    /// Size and partition of each object.
    sizes: BTreeMap<ObjectKey, (u32, Partition)>,
    /// Usage of each partition, if there are several.
    partitions: BTreeMap<Partition, PartitionUsage>,
    /// Usage of the whole informer.
    total: PartitionUsage,
    lists: BTreeMap<Partition, Lists>,
    /// The last rejection of each partition, until a list of that partition fits.
    exceeded: BTreeMap<Partition, OverBudget>,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct PartitionUsage {
    cached: u64,
    /// Bytes queued by watches and not yet stored.
    queued: u64,
}

/// The lists of one partition that are not stored yet.
#[derive(Debug, Default)]
struct Lists {
    /// Bytes of the list in progress.
    in_progress: Option<u64>,
    /// Complete lists that wait for the store.
    complete: VecDeque<u64>,
}

/// The reservation of a list in progress; dropping it cancels the list.
#[derive(Debug)]
pub(crate) struct ListReservation {
    budget: Arc<ByteBudget>,
    partition: Partition,
}

impl ByteBudget {
    pub(crate) fn new(limit: Option<u64>, metrics: InformerMetrics) -> Self {
        let bytes = GaugeShare::of(&metrics.bytes);
        Self { usage: Mutex::new(BudgetUsage { limit, ..BudgetUsage::default() }), bytes, metrics }
    }

    /// Sets the limit. If there was none, objects stored before are not accounted until they change.
    pub(crate) fn set_limit(&self, limit: Option<u64>) {
        let mut usage = self.lock();
        usage.limit = limit;
        if limit.is_none() {
            usage.clear_cached();
            self.publish(&usage);
        }
    }

    /// Returns the maximum size of a page in bytes; `None` for no limit.
    pub(crate) fn max_page_bytes(&self) -> Option<u64> {
        self.lock().limit.map(|limit| limit.saturating_add(PAGE_OVERHEAD))
    }

    /// Records a page over the maximum size; returns `None` if the limit was removed in the meantime.
    pub(crate) fn reject_page(&self, partition: &Partition) -> Option<OverBudget> {
        let mut usage = self.lock();
        let needed = usage.limit?.saturating_add(1);
        self.metrics.over_budget.inc();
        usage.admit(partition, needed).err()
    }

    /// Returns the last rejection of a partition, if it still applies.
    pub(crate) fn exceeded(&self, partition: &Partition) -> Option<OverBudget> {
        self.lock().exceeded.get(partition).copied()
    }

    /// Begins the reservation of a list. Each partition has one list at a time.
    pub(crate) fn begin_list(self: &Arc<Self>, partition: &Partition) -> ListReservation {
        self.lock().lists.entry(partition.clone()).or_default().in_progress = Some(0);
        ListReservation { budget: Arc::clone(self), partition: partition.clone() }
    }

    /// Records that the oldest complete list of a partition is stored.
    pub(crate) fn list_applied(&self, partition: &Partition) {
        self.lock().change_lists(partition, |lists| {
            lists.complete.pop_front();
        });
    }

    /// Clears the rejection of a partition that has nothing left to list.
    pub(crate) fn clear_exceeded(&self, partition: &Partition) {
        self.lock().exceeded.remove(partition);
    }

    /// Resets the gauge when the informer stops.
    pub(crate) fn close(&self) {
        self.bytes.set(0);
    }

    /// Reserves the bytes of an object from a watch.
    pub(crate) fn reserve_queued(
        &self,
        partition: &Partition,
        key: &ObjectKey,
        bytes: u32,
    ) -> Result<(), OverBudget> {
        let mut usage = self.lock();
        let replaced = usage.sizes.get(key).map_or(0, |(bytes, _)| *bytes);
        let used = usage.total.cached + usage.total.queued + usage.list_excess(None);
        let needed = used + u64::from(bytes) - u64::from(replaced);
        usage.admit(partition, needed).inspect_err(|_| self.metrics.over_budget.inc())?;
        usage.change_usage(partition, |partition_usage| partition_usage.queued += u64::from(bytes));
        Ok(())
    }

    /// Records that an object from a watch has left the queue.
    pub(crate) fn leave_queue(&self, partition: &Partition, bytes: u32) {
        self.lock().change_usage(partition, |partition_usage| {
            partition_usage.queued = partition_usage.queued.saturating_sub(u64::from(bytes));
        });
    }

    /// Records the stored size of an object.
    pub(crate) fn add_cached(&self, partition: &Partition, key: &ObjectKey, bytes: u32) {
        let mut usage = self.lock();
        if usage.limit.is_some() {
            let before = usage.sizes.insert(key.clone(), (bytes, partition.clone()));
            if let Some((before, part)) = before {
                usage.change_usage(&part, |partition_usage| partition_usage.cached -= u64::from(before));
            }
            usage.change_usage(partition, |partition_usage| partition_usage.cached += u64::from(bytes));
            self.publish(&usage);
        }
    }

    /// Records that an object is no longer stored.
    pub(crate) fn release(&self, key: &ObjectKey) {
        let mut usage = self.lock();
        if let Some((before, part)) = usage.sizes.remove(key) {
            usage.change_usage(&part, |partition_usage| partition_usage.cached -= u64::from(before));
            self.publish(&usage);
        }
    }

    fn publish(&self, usage: &BudgetUsage) {
        self.bytes.set(usage.total.cached);
    }

    /// Locks the accounting. No foreign code runs under this lock, so a poisoned lock is still consistent.
    fn lock(&self) -> MutexGuard<'_, BudgetUsage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ListReservation {
    /// Adds an object to the list.
    pub(crate) fn list(&self, bytes: u32) -> Result<(), OverBudget> {
        let mut usage = self.budget.lock();
        let mut listed = u64::from(bytes);
        usage.change_lists(&self.partition, |lists| {
            listed += lists.in_progress.unwrap_or_default();
            lists.in_progress = Some(listed);
        });
        // Queued objects of this partition are stored before the list is, so the list replaces them.
        let own = usage.partition_usage(&self.partition);
        let whole = usage.total;
        let elsewhere = (whole.cached - own.cached) + (whole.queued - own.queued);
        let needed = elsewhere + listed + usage.list_excess(Some(&self.partition));
        usage.admit(&self.partition, needed).inspect_err(|_| self.budget.metrics.over_budget.inc())
    }

    /// Removes an object that was replaced or deleted during the list.
    pub(crate) fn subtract(&self, bytes: u32) {
        self.budget.lock().change_lists(&self.partition, |lists| {
            lists.in_progress = lists.in_progress.map(|listed| listed.saturating_sub(u64::from(bytes)));
        });
    }

    /// Completes the list. It counts until [`ByteBudget::list_applied`].
    pub(crate) fn complete(self) {
        let mut usage = self.budget.lock();
        usage.exceeded.remove(&self.partition);
        usage.change_lists(&self.partition, |lists| lists.complete.extend(lists.in_progress.take()));
    }
}

impl Drop for ListReservation {
    fn drop(&mut self) {
        self.budget.lock().change_lists(&self.partition, |lists| lists.in_progress = None);
    }
}

impl BudgetUsage {
    fn admit(&mut self, partition: &Partition, needed: u64) -> Result<(), OverBudget> {
        let Some(budget) = self.limit.filter(|budget| needed > *budget) else { return Ok(()) };
        let refusal = OverBudget { cached: self.total.cached, needed, budget };
        self.exceeded.insert(partition.clone(), refusal);
        Err(refusal)
    }

    /// Returns the usage of a partition.
    fn partition_usage(&self, partition: &Partition) -> PartitionUsage {
        if *partition == Partition::Whole {
            return self.total;
        }
        self.partitions.get(partition).copied().unwrap_or_default()
    }

    /// Returns by how much the lists of all partitions, or of all but one, exceed the objects they replace.
    fn list_excess(&self, own: Option<&Partition>) -> u64 {
        let others = self.lists.iter().filter(|(partition, _)| Some(*partition) != own);
        let excess = |(partition, lists): (&Partition, &Lists)| {
            let greatest = lists.complete.iter().chain(&lists.in_progress).max();
            greatest.copied().unwrap_or_default().saturating_sub(self.partition_usage(partition).cached)
        };
        others.map(excess).sum()
    }

    /// Changes the usage of a partition and of the whole.
    fn change_usage(&mut self, partition: &Partition, change: impl Fn(&mut PartitionUsage)) {
        change(&mut self.total);
        if *partition == Partition::Whole {
            return;
        }
        match self.partitions.get_mut(partition) {
            Some(partition_usage) => change(partition_usage),
            None => change(self.partitions.entry(partition.clone()).or_default()),
        }
        if self.partitions.get(partition) == Some(&PartitionUsage::default()) {
            self.partitions.remove(partition);
        }
    }

    fn change_lists(&mut self, partition: &Partition, change: impl FnOnce(&mut Lists)) {
        let lists = self.lists.entry(partition.clone()).or_default();
        change(lists);
        if lists.in_progress.is_none() && lists.complete.is_empty() {
            self.lists.remove(partition);
        }
    }

    fn clear_cached(&mut self) {
        self.sizes.clear();
        self.total.cached = 0;
        self.partitions.values_mut().for_each(|partition_usage| partition_usage.cached = 0);
        self.partitions.retain(|_, partition_usage| *partition_usage != PartitionUsage::default());
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
        (budget.lock().total.cached, budget.metrics.bytes.get())
    }

    #[test]
    fn changed_object_counts_once_and_deleted_object_not_at_all() {
        let budget = budget(100);
        budget.add_cached(&of("a"), &key("a", "x"), 60);
        budget.add_cached(&of("a"), &key("a", "x"), 50);
        assert_eq!(held(&budget), (50, 50));
        budget.release(&key("a", "x"));
        budget.release(&key("a", "x"));
        assert_eq!(held(&budget), (0, 0));
        assert!(budget.lock().partitions.is_empty(), "no entry for a namespace without objects");
    }

    #[test]
    fn object_fits_next_to_queued_bytes_and_instead_of_its_old_state() {
        let budget = budget(100);
        budget.add_cached(&of("a"), &key("a", "x"), 60);
        assert_eq!(budget.reserve_queued(&Partition::Whole, &key("a", "x"), 90), Ok(()));
        let refusal = OverBudget { cached: 60, needed: 151, budget: 100 };
        assert_eq!(budget.reserve_queued(&Partition::Whole, &key("a", "y"), 1), Err(refusal));
        assert_eq!(
            (budget.exceeded(&Partition::Whole), budget.metrics.over_budget.get()),
            (Some(refusal), 1)
        );
        budget.leave_queue(&Partition::Whole, 90);
        assert_eq!(budget.reserve_queued(&Partition::Whole, &key("a", "y"), 40), Ok(()));
    }

    #[test]
    fn list_replaces_own_partition_and_adds_to_others() {
        let budget = budget(100);
        let [a, b] = parts();
        budget.add_cached(&of("a"), &key("a", "x"), 60);
        budget.add_cached(&of("b"), &key("b", "x"), 30);
        let reservation = budget.begin_list(&a);
        assert_eq!(reservation.list(70), Ok(()));
        assert!(reservation.list(1).is_err());
        drop(reservation);
        budget.clear_exceeded(&b);
        assert!(budget.exceeded(&a).is_some(), "other partitions keep their rejection");
        budget.begin_list(&a).complete();
        assert_eq!(budget.exceeded(&a), None);
        assert!(budget.begin_list(&Partition::Whole).list(100).is_ok());
    }

    #[test]
    fn concurrent_lists_share_the_budget() {
        let budget = budget(100);
        let [a, b] = parts();
        let (of_a, of_b) = (budget.begin_list(&a), budget.begin_list(&b));
        assert_eq!(of_a.list(60), Ok(()));
        assert!(of_b.list(60).is_err());
        // A complete list counts as a list until it is stored, and as stored objects after that.
        of_a.complete();
        drop(of_b);
        assert!(budget.begin_list(&b).list(60).is_err());
        assert!(budget.reserve_queued(&b, &key("b", "x"), 41).is_err());
        budget.add_cached(&of("a"), &key("a", "x"), 60);
        budget.list_applied(&a);
        assert!(budget.begin_list(&b).list(41).is_err());
        assert!(budget.begin_list(&b).list(40).is_ok());
        assert!(budget.lock().lists.is_empty());
    }

    #[test]
    fn canceled_list_releases_its_reservation() {
        let budget = budget(100);
        let [a, b] = parts();
        let of_a = budget.begin_list(&a);
        assert_eq!(of_a.list(60), Ok(()));
        drop(of_a);
        assert_eq!(budget.begin_list(&b).list(100), Ok(()));
    }

    #[test]
    fn concurrent_relists_count_each_partition_once() {
        let budget = budget(100);
        let [a, b] = parts();
        budget.add_cached(&of("a"), &key("a", "x"), 50);
        budget.add_cached(&of("b"), &key("b", "x"), 50);
        let (of_a, of_b) = (budget.begin_list(&a), budget.begin_list(&b));
        assert_eq!((of_a.list(50), of_b.list(50)), (Ok(()), Ok(())));
    }

    #[test]
    fn queued_bytes_of_other_partitions_count_with_a_list() {
        let budget = budget(100);
        let [a, b] = parts();
        assert_eq!(budget.reserve_queued(&b, &key("b", "x"), 30), Ok(()));
        assert_eq!(budget.reserve_queued(&a, &key("a", "x"), 30), Ok(()));
        let reservation = budget.begin_list(&a);
        assert_eq!(reservation.list(70), Ok(()), "the list replaces its own queued objects");
        assert!(reservation.list(1).is_err());
    }

    #[test]
    fn unlimited_budget_rejects_nothing_and_tracks_no_objects() {
        let budget = budget(None);
        budget.add_cached(&of("a"), &key("a", "x"), u32::MAX);
        assert_eq!(budget.reserve_queued(&Partition::Whole, &key("a", "y"), u32::MAX), Ok(()));
        assert_eq!(budget.begin_list(&Partition::Whole).list(u32::MAX), Ok(()));
        assert!(budget.lock().sizes.is_empty());
        budget.leave_queue(&Partition::Whole, u32::MAX);
        budget.set_limit(Some(10));
        assert!(budget.reserve_queued(&Partition::Whole, &key("a", "y"), 11).is_err());
    }

    #[test]
    fn accounting_is_correct_after_limit_is_set_again() {
        let budget = budget(100);
        budget.add_cached(&of("a"), &key("a", "x"), 60);
        assert_eq!(budget.reserve_queued(&Partition::Whole, &key("a", "y"), 40), Ok(()));
        budget.set_limit(None);
        assert_eq!(held(&budget), (0, 0), "the gauge excludes unaccounted objects");
        budget.release(&key("a", "x"));
        budget.leave_queue(&Partition::Whole, 40);
        assert_eq!(budget.reserve_queued(&Partition::Whole, &key("a", "z"), 30), Ok(()));
        budget.set_limit(Some(100));
        let refusal = OverBudget { cached: 0, needed: 101, budget: 100 };
        assert_eq!(
            budget.reserve_queued(&Partition::Whole, &key("a", "x"), 71),
            Err(refusal),
            "30 bytes are queued"
        );
        budget.leave_queue(&Partition::Whole, 30);
        assert_eq!(budget.reserve_queued(&Partition::Whole, &key("a", "x"), 100), Ok(()));
    }
}
