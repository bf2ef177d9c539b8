//! Responses and watch events: how each changes the state.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use windlass_election::lease::{LeaseError, WriteContext, WritePurpose};
use windlass_env::Instant;
use windlass_object::ResourceVersion;

use super::message::{Effect, LeaseUpdate, RequestTarget, Response};
use super::state::{Engine, ListWatchState, OwnershipStage, RenewalState};

/// The backoff after a failed deletion of a membership, which is most likely a missing permission.
const DELETION_BACKOFF: Duration = Duration::from_secs(300);

impl Engine {
    /// Processes the response to a request. The response to an abandoned request is ignored: its effect is found out by
    /// fetching the Lease.
    pub(crate) fn on_response(
        &mut self,
        request_id: u64,
        target: RequestTarget,
        response: Response,
        now: Instant,
    ) {
        let Some(request) = self.end_request(request_id, target) else { return };
        if let Response::Failed(failure) = &response {
            self.log_failure(target, failure);
        } else {
            self.clear_failure(target);
        }
        match target {
            RequestTarget::List => self.on_list(response, request.sent, now),
            RequestTarget::Watch => self.on_watch(&response, now),
            RequestTarget::Plan => self.on_plan(response, now),
            RequestTarget::ExpiredMember => {
                // The watch shows the deletion.
                let has_failed = matches!(response, Response::Failed(_));
                let backoff = if has_failed { DELETION_BACKOFF } else { self.params.retry_period };
                self.back_off(target, backoff, now);
            }
            RequestTarget::Membership | RequestTarget::Shard(_) => {
                self.on_lease(target, request.context, response, now);
            }
        }
    }

    /// Processes an event of the watch.
    pub(crate) fn on_watch_event(&mut self, event: LeaseUpdate, now: Instant) {
        let ListWatchState::Open { since } = self.list_watch else { return };
        match event {
            LeaseUpdate::Changed(lease) => self.cache.on_watch_event(lease, now),
            LeaseUpdate::Deleted(lease) => self.cache.on_deleted(&lease, now),
            LeaseUpdate::Progress(version) => self.cache.on_progress(Some(version), now),
            // A watch that ends early is not followed by a list immediately.
            LeaseUpdate::Ended => {
                let not_before = (since + self.params.retry_period).max(now);
                self.list_watch = ListWatchState::Idle { not_before };
            }
        }
    }

    fn on_list(&mut self, response: Response, sent: Instant, now: Instant) {
        self.list_watch = match response {
            Response::Listed(version, leases) => {
                self.cache.on_list(version, leases, sent, now);
                ListWatchState::Listed
            }
            _ => ListWatchState::Idle { not_before: now + self.failure_backoff() },
        };
    }

    fn on_watch(&mut self, response: &Response, now: Instant) {
        self.list_watch = match response {
            Response::Watching => ListWatchState::Open { since: now },
            _ => ListWatchState::Idle { not_before: now + self.failure_backoff() },
        };
    }

    fn on_plan(&mut self, response: Response, now: Instant) {
        match response {
            Response::Written(lease) => self.cache.plan.observe_newer(lease, now),
            // The watch shows the plan that was written first.
            Response::Failed(LeaseError::Conflict) => {
                self.back_off(RequestTarget::Plan, self.params.retry_period, now);
            }
            _ => {
                let backoff = self.failure_backoff();
                self.back_off(RequestTarget::Plan, backoff, now);
            }
        }
    }

    fn on_lease(
        &mut self,
        target: RequestTarget,
        context: Option<WriteContext>,
        response: Response,
        now: Instant,
    ) {
        match response {
            Response::Got(lease) => {
                self.record_previous(target, lease.as_ref());
                self.lease(target).on_fetched_during_watch(lease, now);
            }
            Response::Written(lease) => {
                let Some(context) = context else { return };
                self.record_previous(target, Some(&lease));
                let version = lease.metadata.resource_version.as_deref().map(ResourceVersion::new);
                match self.lease(target).on_response(context, lease, now) {
                    Ok(()) => self.on_written(target, context, version, now),
                    Err(_) => self.on_failure(target, Some(context.purpose), &LeaseError::TooLate, now),
                }
            }
            Response::Failed(failure) => {
                self.on_failure(target, context.map(|context| context.purpose), &failure, now);
            }
            Response::Listed(..) | Response::Watching | Response::Deleted => {}
        }
    }

    fn record_previous(&mut self, target: RequestTarget, lease: Option<&Lease>) {
        let RequestTarget::Shard(shard) = target else { return };
        let shard = self.cache.shard(shard);
        match lease {
            Some(lease) => shard.record_previous(lease),
            None => shard.on_absent(),
        }
    }

    fn on_written(
        &mut self,
        target: RequestTarget,
        context: WriteContext,
        version: Option<ResourceVersion>,
        now: Instant,
    ) {
        match context.purpose {
            WritePurpose::First | WritePurpose::TakeOver | WritePurpose::Reclaim => {
                self.on_claimed(target, context.sent, version, now);
            }
            WritePurpose::Renew => self.on_renewed(target, now),
            WritePurpose::Release => {
                if let RequestTarget::Shard(shard) = target {
                    self.complete_release(shard, Ok(()), now);
                }
            }
            WritePurpose::ClearHolder => {}
        }
    }

    fn on_claimed(
        &mut self,
        target: RequestTarget,
        sent: Instant,
        version: Option<ResourceVersion>,
        now: Instant,
    ) {
        let due = sent + self.first_renewal_delay(target);
        self.renewals.insert(target, RenewalState { due, begun: None, fetched: false });
        if let RequestTarget::Shard(shard) = target
            && let Some(owned) = self.owned.get_mut(&shard)
        {
            let relist_at = now + self.params.retry_period / 4;
            owned.stage = OwnershipStage::Claimed { at: now, version, relist_at };
        }
    }

    fn on_renewed(&mut self, target: RequestTarget, now: Instant) {
        self.end_renewal_attempt(target, now);
        if let RequestTarget::Shard(shard) = target
            && self.owned.get(&shard).is_some_and(|owned| owned.stage.has_open_fence())
            && let Some(deadline) = self.lease(target).held_until(now)
        {
            self.pending.push(Effect::Extend { shard, deadline });
        }
    }

    fn on_failure(
        &mut self,
        target: RequestTarget,
        purpose: Option<WritePurpose>,
        failure: &LeaseError,
        now: Instant,
    ) {
        let is_conflict = matches!(failure, LeaseError::Conflict | LeaseError::NotFound(_));
        if let Some(renewal) = self.renewals.get(&target) {
            // The first conflict is followed by a fetch and another write, within the same attempt.
            if !(is_conflict && purpose.is_some() && !renewal.fetched) {
                self.end_renewal_attempt(target, now);
            }
            return;
        }
        let backoff = if is_conflict { self.conflict_backoff() } else { self.failure_backoff() };
        let RequestTarget::Shard(shard) = target else { return self.back_off(target, backoff, now) };
        match self.owned.get(&shard).map(|owned| &owned.stage) {
            Some(OwnershipStage::Claiming) => {
                self.owned.remove(&shard);
                self.back_off(target, backoff, now);
            }
            // Another replica waits for the shard, so the backoff is short.
            Some(OwnershipStage::Releasing { .. }) => {
                self.back_off(target, backoff.min(self.params.retry_period / 4), now);
            }
            Some(
                OwnershipStage::Claimed { .. }
                | OwnershipStage::Active
                | OwnershipStage::Draining { .. }
                | OwnershipStage::Lost { .. },
            )
            | None => self.back_off(target, backoff, now),
        }
    }

    fn end_renewal_attempt(&mut self, target: RequestTarget, now: Instant) {
        if let Some(renewal) = self.renewals.get_mut(&target) {
            let begun = renewal.begun.take().unwrap_or(now);
            renewal.due = (begun + self.params.retry_period).max(now);
            renewal.fetched = false;
        }
    }
}
