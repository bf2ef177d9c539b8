//! Phases about memberships: this replica's own, and those of replicas that no longer exist.

use windlass_election::lease::{ElectionAction, LeaseState, TimePoint, WritePurpose};
use windlass_env::Instant;
use windlass_object::shard::ShardId;

use super::message::{EngineOutput, Request, RequestTarget};
use super::state::{Engine, ListWatchState};

/// After how many lease durations an expired membership is deleted.
const DELETED_AFTER: u32 = 4;

/// The next action about the membership of this replica.
enum MembershipAction {
    Fetch,
    Write(WritePurpose),
    WaitUntil(Instant),
    /// There is nothing to release.
    Left,
    Nothing,
}

impl Engine {
    /// Joins the members, or leaves them.
    pub(super) fn join_or_leave(&mut self, at: &TimePoint, output: &mut EngineOutput) {
        let (now, target, within) = (at.now, RequestTarget::Membership, self.params.attempt);
        let participates = self.participates(now, output);
        if !participates && self.cache.membership.is_held() {
            self.cache.membership.step_down();
            self.renewals.remove(&target);
        }
        if !self.changes_membership(participates) || !self.is_free(target, now, output) {
            return;
        }
        match membership_action(&self.cache.membership, participates, now) {
            MembershipAction::Fetch => self.fetch(target, within, now, output),
            MembershipAction::Write(purpose) => self.write(target, purpose, None, within, at, output),
            MembershipAction::WaitUntil(expiry) => output.wait(expiry),
            MembershipAction::Left => {
                self.cache.membership.mark_released();
                self.rerun = true;
            }
            MembershipAction::Nothing => {}
        }
    }

    fn changes_membership(&self, participates: bool) -> bool {
        match participates {
            // A member without a watch would not observe the shards that are released for it.
            true => {
                let is_blind =
                    matches!(self.list_watch, ListWatchState::Idle { .. } | ListWatchState::Listing);
                !self.cache.membership.is_held() && !is_blind
            }
            false => self.cache.membership.may_hold(),
        }
    }

    /// Deletes an expired membership of another replica. Only the holder of shard 0 does, so that replicas do not
    /// compete.
    pub(super) fn delete_expired_member(&mut self, now: Instant, output: &mut EngineOutput) {
        let target = RequestTarget::ExpiredMember;
        if !self.is_active(ShardId(0)) || !self.is_fresh(now) || !self.is_free(target, now, output) {
            return;
        }
        let expired = self.cache.others.values().find_map(|view| {
            let seen = view.seen()?;
            let kept_for = match seen.record.holder {
                Some(_) => seen.record.duration(self.params.lease_duration) * DELETED_AFTER,
                None => self.params.retry_period,
            };
            (now >= seen.changed_at + kept_for).then(|| seen.lease.clone())
        });
        // It stays in the cache until its deletion is observed: a membership that is listed again would look live.
        if let Some(lease) = expired {
            self.send(target, Request::Delete(Box::new(lease)), self.params.attempt, now, output);
        }
    }
}

/// Decides about a membership that does not match whether this replica participates.
fn membership_action(membership: &LeaseState, participates: bool, now: Instant) -> MembershipAction {
    match membership.next_action(now) {
        ElectionAction::Fetch => MembershipAction::Fetch,
        _ if !participates && membership.is_ours() => MembershipAction::Write(WritePurpose::Release),
        _ if !participates => MembershipAction::Left,
        ElectionAction::Create => MembershipAction::Write(WritePurpose::First),
        ElectionAction::TakeOver => MembershipAction::Write(WritePurpose::TakeOver),
        ElectionAction::Reclaim => MembershipAction::Write(WritePurpose::Reclaim),
        // Another replica has the same identity, or the same hash of it.
        ElectionAction::WaitUntil(expiry) => MembershipAction::WaitUntil(expiry),
        ElectionAction::Release | ElectionAction::Follow => MembershipAction::Nothing,
    }
}
