//! The checks: fences that overlap, previous holders that are outdated, and the times without an owner.

use windlass_election::PreviousHolder;
use windlass_object::shard::{HashRanges, ShardId};

use super::{Closed, Fence, Replica, World, pods, probes};

impl World {
    /// Removes a fence, which might have expired before.
    pub(super) fn close(&mut self, number: usize, shard: ShardId, ended: bool) {
        let Some(fence) = self.replicas[number].fences.remove(&shard) else { return };
        let expired = self.when(number, fence.deadline);
        let handed_off = ended && self.now < expired;
        self.record_closed(&fence.ranges, Closed { at: self.now.min(expired), handed_off });
    }

    fn record_closed(&mut self, ranges: &HashRanges, closed: Closed) {
        for probe in probes().into_iter().filter(|probe| ranges.contains(*probe)) {
            let last = self.closed.entry(probe).or_insert(closed);
            if last.at < closed.at {
                *last = closed;
            }
        }
    }

    /// Records for how long the hashes had no owner around which a fence opens now.
    pub(super) fn record_gaps(&mut self, ranges: &HashRanges) {
        let fences = |other: usize, replica: &Replica| {
            let expired = |fence: &Fence| (fence.ranges.clone(), self.when(other, fence.deadline));
            replica.fences.values().map(expired).collect::<Vec<_>>()
        };
        let fences = self.replicas.iter().enumerate().flat_map(|(other, replica)| fences(other, replica));
        // A paused replica has not reported that its fences have closed.
        for (ranges, at) in fences.filter(|(_, at)| *at <= self.now).collect::<Vec<_>>() {
            self.record_closed(&ranges, Closed { at, handed_off: false });
        }
        for probe in probes().into_iter().filter(|probe| ranges.contains(*probe)) {
            let Some(Closed { at, handed_off }) = self.closed.get(&probe).copied() else {
                continue;
            };
            let since = |begun: u64| self.now.saturating_sub(begun);
            self.gaps.longest = self.gaps.longest.max(since(at));
            self.gaps.in_peace = self.gaps.in_peace.max(since(at.max(self.peace)));
            if handed_off && at >= self.peace {
                self.gaps.handoffs.push(since(at));
            }
        }
    }

    /// Reports another open fence that contains some of these hashes.
    pub(super) fn check_overlaps(&mut self, number: usize, shard: ShardId, ranges: &HashRanges) {
        for (other, replica) in self.replicas.iter().enumerate() {
            for (held, fence) in &replica.fences {
                if self.local(other) < fence.deadline && fence.ranges.overlaps(ranges) {
                    self.violations.push(format!(
                        "{} us: shard {shard} of replica {number} overlaps shard {held} of replica {other}",
                        self.now
                    ));
                }
            }
        }
    }

    /// Reports a previous holder that is not the last term on these hashes, or a later one. The number of a term is the
    /// version that it writes.
    pub(super) fn check_previous_holder(
        &mut self,
        number: usize,
        shard: ShardId,
        ranges: &HashRanges,
        previous_holder: &PreviousHolder,
    ) {
        let Some(written) = previous_holder.written() else { return };
        let known = written.get(&pods()).and_then(|version| version.as_str().parse().ok()).unwrap_or(0);
        let wrote = |(acted_on, term): &(HashRanges, u64)| acted_on.overlaps(ranges).then_some(*term);
        let last = self.terms.iter().filter_map(wrote).max().unwrap_or(0);
        if known < last {
            self.violations.push(format!(
                "{} us: shard {shard} of replica {number} knows term {known}, but term {last} wrote",
                self.now
            ));
        }
    }
}
