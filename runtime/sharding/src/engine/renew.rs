//! The phase that renews all held Leases.

use windlass_election::LossReason;
use windlass_election::lease::{RenewAction, TimePoint, WritePurpose};

use super::message::{EngineOutput, RequestTarget};
use super::state::{Engine, RenewalState};

impl Engine {
    /// Renews the membership and all held shards.
    pub(super) fn renew_all(&mut self, at: &TimePoint, output: &mut EngineOutput) {
        for target in self.renewals.keys().copied().collect::<Vec<_>>() {
            self.renew(target, at, output);
        }
    }

    /// Renews a Lease when it is due. A stale Lease is fetched first.
    fn renew(&mut self, target: RequestTarget, at: &TimePoint, output: &mut EngineOutput) {
        let now = at.now;
        let Some(deadline) = self.lease(target).held_until(now) else { return };
        output.wait(deadline);
        if !self.is_free(target, now, output) {
            return;
        }
        let Some(RenewalState { due, begun, .. }) = self.renewals.get(&target) else { return };
        if begun.is_none() && now < *due {
            return output.wait(*due);
        }
        let begun = begun.unwrap_or(now);
        let within = (begun + self.params.attempt).min(deadline).saturating_duration_since(now);
        let action = self.lease(target).renew_action();
        if let Some(renewal) = self.renewals.get_mut(&target) {
            renewal.begun = Some(begun);
            renewal.fetched |= action == RenewAction::Fetch;
        }
        match action {
            RenewAction::Fetch => {
                self.slow_renewals.push(target);
                self.fetch(target, within, now, output);
            }
            // Shards are never coordinated.
            RenewAction::Write | RenewAction::Yield { .. } => {
                self.write(target, WritePurpose::Renew, None, within, at, output);
            }
            RenewAction::Lost(reason) => self.lose_renewed(target, reason, at, output),
        }
    }

    fn lose_renewed(
        &mut self,
        target: RequestTarget,
        reason: LossReason,
        at: &TimePoint,
        output: &mut EngineOutput,
    ) {
        match target {
            RequestTarget::Shard(shard) => self.lose(shard, reason, at.now, output),
            RequestTarget::Membership
            | RequestTarget::Plan
            | RequestTarget::List
            | RequestTarget::Watch
            | RequestTarget::ExpiredMember => {
                self.cache.membership.lose();
                self.renewals.remove(&RequestTarget::Membership);
                self.rerun = true;
            }
        }
    }
}
