//! One sync of a DaemonSet: revisions, pods, status.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_controller::{Context, Outcome, ReconcileError, retry};
use windlass_events::NewEvent;
use windlass_object::{LabelSelector, ObjectKey};

use super::apply::{Applier, ApplyError};
use super::backoff::NodeKey;
use super::plan::{Observed, PodPlan, plan};
use super::refresh::refreshed;
use super::revisions::{RevisionSync, Split, hash_of, unused};
use super::rollout::{RolloutError, roll_out};
use super::spec::{Strategy, min_ready_seconds, selects_everything, strategy};
use super::status::{Counts, count};
use super::{DaemonSetController, Writers};
use crate::shared::UNDECODABLE_RECHECK_INTERVAL;
use crate::shared::availability::minimum;
use crate::shared::claims::Claims;
use crate::shared::controller_index::{candidates, might_belong};
use crate::shared::event_reference::event_reference;
use crate::shared::history::Revision;
use crate::shared::history::requests::Revisions;
use crate::shared::owner_events::PodOwner as _;
use crate::shared::pod_view::PodView;
use crate::shared::pods;
use crate::shared::status_write::write_status;

/// Failure to change pods or to delete revisions. The status is written nevertheless.
#[derive(Debug, thiserror::Error)]
enum ChangeError {
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Rollout(#[from] RolloutError),
    #[error("failed to clean up revisions of DaemonSet: {0}")]
    CleanUp(ReconcileError),
}

impl ChangeError {
    /// Returns whether the request was not sent.
    fn was_not_sent(&self) -> bool {
        matches!(self, ChangeError::Apply(error) if error.was_not_sent)
    }
}

/// Result of the processing of the spec.
struct Processed {
    /// Time until a failed pod can be deleted.
    check_in: Option<Duration>,
    result: Result<(), ChangeError>,
}

/// The pods of a DaemonSet.
struct OwnedPods {
    pods: Vec<Arc<PodView>>,
    /// Whether all pods of the DaemonSet are decodable.
    are_complete: bool,
}

/// One DaemonSet during its sync.
struct SyncContext<'a> {
    key: &'a ObjectKey,
    set: &'a DaemonSet,
    selector: &'a LabelSelector,
    cx: &'a Context,
}

impl DaemonSetController {
    /// Syncs one DaemonSet.
    ///
    /// # Errors
    /// The first failure.
    pub(super) async fn sync(
        &self,
        key: &ObjectKey,
        set: &DaemonSet,
        cx: &Context,
    ) -> Result<Outcome, ReconcileError> {
        if selects_everything(set) {
            let note = "This daemon set is selecting all pods. A non-empty selector is required.";
            cx.events().publish(&event_reference(set), &NewEvent::warning("SelectingAll", note));
            return Ok(Outcome::Done);
        }
        // The garbage collector deletes or orphans the revisions and pods of a deleted DaemonSet in any order.
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        let selector = set.pod_selector();
        let selector = selector
            .map_err(|error| retry(format!("failed to construct revisions of DaemonSet: {error}")))?;
        let work = SyncContext { key, set, selector: &selector, cx };
        self.sync_selected(&work).await
    }

    async fn sync_selected(&self, work: &SyncContext<'_>) -> Result<Outcome, ReconcileError> {
        let Some(owned) = self.known_revisions(work) else {
            return Ok(Outcome::RequeueAfter(UNDECODABLE_RECHECK_INTERVAL));
        };
        let owned = work.claims().claim::<Revision, Revision>(owned.iter()).await?;
        let revisions = work.revisions(&self.writers);
        let split = revisions.split(owned).await?;
        let (current, owned) = self.current_revision(work, &revisions, &split).await?;
        let observed = self.observe(work, &owned.pods, hash_of(&current));
        let is_withheld =
            self.withheld.contains(work.key, pods::uid(&work.set.metadata), work.cx.env().now());
        let processed = match is_withheld || !owned.are_complete {
            true => None,
            false => Some(self.process(work, &observed, &revisions, &split, &owned.pods).await),
        };
        let recheck = (!owned.are_complete).then_some(UNDECODABLE_RECHECK_INTERVAL);
        let counts = count(&observed.with_pods(&self.refreshed(work, &owned.pods), work.cx.env().wall()));
        self.finish(work, counts, processed, recheck).await
    }

    fn observe<'a>(&self, work: &SyncContext<'a>, pods: &[Arc<PodView>], hash: &'a str) -> Observed<'a> {
        // An undecodable node exists.
        let exists = |node: &str| !matches!(self.nodes.get(&ObjectKey::cluster(node)), Ok(None));
        let observed = Observed::new(work.set, &self.nodes.list(), pods, hash, work.cx.env().wall());
        observed.with_undecodable(exists).with_attempts(work.cx.attempts())
    }

    /// Returns the pods as the cache contains them now. `claimed` are the pods at the start of the sync.
    fn refreshed(&self, work: &SyncContext<'_>, claimed: &[Arc<PodView>]) -> Vec<Arc<PodView>> {
        let cached = candidates(&self.pods_by_controller, work.set);
        refreshed(&work.set.metadata, work.selector, cached, claimed)
    }

    /// Returns the revision of the present template, and the pods.
    ///
    /// Without duplicates, the revision is written before pods are adopted. With duplicates, pods are adopted first,
    /// because they need the label of the remaining revision. Duplicates are kept while a pod is undecodable, because
    /// that pod can have their label.
    async fn current_revision(
        &self,
        work: &SyncContext<'_>,
        revisions: &RevisionSync<'_>,
        split: &Split,
    ) -> Result<(Arc<Revision>, OwnedPods), ReconcileError> {
        if split.duplicates.is_empty() {
            let current = revisions.current(split).await?;
            return Ok((current, self.claim_pods(work).await?));
        }
        let mut owned = self.claim_pods(work).await?;
        if owned.are_complete {
            owned.pods = revisions.remove_duplicates(split, owned.pods).await?;
        }
        Ok((revisions.current(split).await?, owned))
    }

    /// Returns the revisions of the DaemonSet, and the orphans that it might adopt; `None` if a revision is
    /// undecodable.
    fn known_revisions(&self, work: &SyncContext<'_>) -> Option<Vec<Arc<Revision>>> {
        let might_be_ours = |revision: &ObjectMeta| work.might_own(revision);
        let check = || self.revisions.check_decodable(work.key.namespace(), might_be_ours);
        // Checked before and after the read, because an object can become readable or undecodable in between.
        let before = check();
        let revisions = candidates(&self.revisions_by_controller, work.set);
        if let Err(unreadable) = before.and_then(|()| check()) {
            tracing::warn!(
                key = %work.key, %unreadable,
                "rollout paused: an undecodable ControllerRevision might belong to this DaemonSet; rechecking in 30 s"
            );
            return None;
        }
        Some(revisions)
    }

    /// Adopts and releases pods, and returns the owned pods.
    async fn claim_pods(&self, work: &SyncContext<'_>) -> Result<OwnedPods, ReconcileError> {
        let might_be_ours = |pod: &ObjectMeta| work.might_own(pod);
        let check = || self.pods.check_decodable(work.key.namespace(), might_be_ours);
        let before = check();
        let candidates = candidates(&self.pods_by_controller, work.set);
        let complete = before.and_then(|()| check());
        if let Err(unreadable) = &complete {
            tracing::warn!(
                key = %work.key, %unreadable,
                "pods not changed: an undecodable Pod might belong to this DaemonSet; rechecking in 30 s"
            );
        }
        let pods = work.claims().claim::<Pod, PodView>(candidates.iter()).await?;
        Ok(OwnedPods { pods, are_complete: complete.is_ok() })
    }

    /// Creates and deletes pods, then deletes old revisions.
    async fn process(
        &self,
        work: &SyncContext<'_>,
        observed: &Observed<'_>,
        revisions: &RevisionSync<'_>,
        split: &Split,
        pods: &[Arc<PodView>],
    ) -> Processed {
        let now = work.cx.env().now();
        let plan = plan(observed, |node| self.failed_pods.admit(&node_key(work.set, node), now));
        let check_in = plan.check_in;
        let change = async {
            self.change_pods(work, observed, plan).await?;
            let unused = unused(work.set, &split.old, || self.refreshed(work, pods));
            revisions.revisions.delete(&unused).await.map_err(ChangeError::CleanUp)
        };
        Processed { check_in, result: change.await }
    }

    /// Applies the plan. If it changes no pods, applies the next step of a rolling update.
    async fn change_pods(
        &self,
        work: &SyncContext<'_>,
        observed: &Observed<'_>,
        plan: PodPlan,
    ) -> Result<(), ChangeError> {
        if !plan.is_empty() {
            self.apply(work, observed, plan).await?;
        } else if strategy(work.set) == Strategy::RollingUpdate {
            self.apply(work, observed, roll_out(observed)?).await?;
        }
        Ok(())
    }

    async fn apply(
        &self,
        work: &SyncContext<'_>,
        observed: &Observed<'_>,
        plan: PodPlan,
    ) -> Result<(), ApplyError> {
        let SyncContext { key, set, cx, .. } = *work;
        let applier = Applier::new(cx, key, &self.writers.pod, set, observed.hash, &self.withheld);
        applier.apply(&plan.limited()).await
    }

    /// Writes the status, and returns the outcome of the sync. `processed` is `None` if the spec was not processed.
    async fn finish(
        &self,
        work: &SyncContext<'_>,
        counts: Counts,
        processed: Option<Processed>,
        recheck: Option<Duration>,
    ) -> Result<Outcome, ReconcileError> {
        let generation = processed.as_ref().and(Some(work.set.metadata.generation.unwrap_or_default()));
        let (check_in, result) = processed.map_or((None, Ok(())), |it| (it.check_in, it.result));
        if result.as_ref().is_err_and(ChangeError::was_not_sent) {
            return result.map(|()| Outcome::Done).map_err(retry);
        }
        let reported = self.report(work, counts, generation).await;
        // As upstream, a failed status write schedules no check of ready pods; its retry does.
        let available = reported.is_ok().then(|| work.available_in(counts)).flatten();
        let soonest = [check_in, recheck, available].into_iter().flatten().min();
        let failed = match (result, reported) {
            (Ok(()), Ok(())) => return Ok(soonest.map_or(Outcome::Done, Outcome::RequeueAfter)),
            (Ok(()), Err(status_error)) => status_error,
            (Err(error), Ok(())) => retry(error),
            (Err(error), Err(status_error)) => {
                // The retry of the failed change writes the status again.
                tracing::warn!(key = %work.key, error = %status_error, "status of a failed sync not written");
                retry(error)
            }
        };
        // The backoff of the retry can be longer than this delay.
        if let Some(soonest) = soonest {
            work.cx.queue().with_priority(work.cx.priority()).add_after(work.key.clone(), soonest);
        }
        Err(failed)
    }

    /// Writes the status, if it changed.
    async fn report(
        &self,
        work: &SyncContext<'_>,
        counts: Counts,
        processed: Option<i64>,
    ) -> Result<(), ReconcileError> {
        if counts.is_reported(work.set, processed) {
            return Ok(());
        }
        let change = |set: &mut DaemonSet| counts.write(set.status.get_or_insert_default(), processed);
        write_status(work.cx, work.key, &self.writers.set, work.set, change).await?;
        Ok(())
    }
}

impl<'a> SyncContext<'a> {
    fn revisions(&self, writers: &'a Writers) -> RevisionSync<'a> {
        let Self { key, set, cx, .. } = *self;
        let revisions = Revisions { cx, key, writer: &writers.revision };
        RevisionSync { cx, key, set, sets: &writers.set, revisions }
    }

    fn claims(&self) -> Claims<'_, DaemonSet> {
        Claims { key: self.key, owner: self.set, selector: self.selector, cx: self.cx }
    }

    /// Returns the time until ready pods are available; `None` if all ready pods are available.
    fn available_in(&self, counts: Counts) -> Option<Duration> {
        minimum(min_ready_seconds(self.set)).filter(|_| counts.ready != counts.available)
    }

    fn might_own(&self, child: &ObjectMeta) -> bool {
        might_belong(child, &self.set.metadata, self.selector)
    }
}

fn node_key(set: &DaemonSet, node: &Arc<str>) -> NodeKey {
    let generation = set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or_default();
    NodeKey { uid: pods::uid(&set.metadata).into(), generation, node: Arc::clone(node) }
}
