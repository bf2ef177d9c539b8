//! Maintains the number of pods of a ReplicaSet or ReplicationController.
//!
//! One sync of one owner:
//!
//! 1. List the owner's pods and the namespace's orphans; adopt and release pods. Stop after a failure, because the
//!    count would be wrong.
//! 2. If the owner is not being deleted, create missing pods or delete surplus pods.
//! 3. Write the status, even if step 2 failed.
//! 4. Requeue when a ready pod becomes available, and periodically while a pod is undecodable.
//!
//! The runtime starts a sync only when the cache of pods reflects all creates and deletes of the previous sync
//! (read-your-writes), so no sync creates or deletes too many pods.
//!
//! Undecodable pods are in no list. An owner that might have such pods neither creates nor deletes pods: with a count
//! that is too low it would create pods indefinitely.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_controller::{Context, Outcome, ReconcileError, Setup, retry};
use windlass_informer::{Index, Lister};
use windlass_metrics::ReplicaSetMetrics;
use windlass_object::owner::controller_reference;
use windlass_object::{LabelSelector, ObjectKey};

use super::UNDECODABLE_RECHECK_INTERVAL;
use super::adoption::claimed;
use super::availability::next_status;
use super::concurrency::join_all;
use super::controller_index::{by_controller, candidates, might_belong};
use super::deletion_ranking::DeletionCostMode;
use super::owner_events::watch_pods;
use super::pod_control::{CreateError, DeleteError};
use super::pod_template::pod_from_template;
use super::pod_view::PodView;
use super::pods;
use super::replica_plan::{Scaling, scale};
use super::replica_status::{OwnedPods, calculate};
use super::replica_work::{SyncContext, Writers};
use super::replicated::{ReplicaOwner, ReplicaStatus};
use super::rest::RestPerPod;
use super::terminating_namespaces::Withheld;

/// Rest of an owner after a sync that neither created nor deleted pods. A sync reads all pods, and each change of one
/// of them causes a sync: the rest limits the reads, and the status is written once for many changes, at most a second
/// late. Changes of the spec and of the number of active pods end the rest.
const REST: RestPerPod = RestPerPod { each: Duration::from_millis(1), most: Duration::from_secs(1) };

/// Settings of one replicated kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaSyncOptions {
    /// Number of owners that are synced concurrently.
    pub(crate) workers: usize,
    /// Whether the status contains the number of terminating pods.
    pub(crate) reports_terminating: bool,
    /// Whether the deletion cost annotation is used.
    pub(crate) cost_mode: DeletionCostMode,
}

/// Controller of one replicated kind.
#[derive(Debug)]
pub(crate) struct ReplicaSync<R: ReplicaOwner> {
    settings: ReplicaSyncOptions,
    owners: Lister<R>,
    siblings: Index<R, String>,
    pods: Lister<PodView>,
    pods_by_controller: Index<PodView, String>,
    writers: Writers<R>,
    withheld: Withheld,
    metrics: ReplicaSetMetrics,
}

/// Failure to correct the number of pods.
#[derive(Debug, thiserror::Error)]
enum ScaleError {
    #[error(transparent)]
    Create(CreateError),
    #[error(transparent)]
    Delete(DeleteError),
}

impl ScaleError {
    /// Returns whether the request was not sent.
    fn was_not_sent(&self) -> bool {
        match self {
            ScaleError::Create(error) => error.was_not_sent(),
            ScaleError::Delete(error) => error.was_not_sent(),
        }
    }
}

impl<R: ReplicaOwner> ReplicaSync<R> {
    /// Declares the watches, requests, handlers and workers.
    pub(crate) fn declare(setup: &mut Setup, settings: ReplicaSyncOptions) -> Self {
        setup.workers(settings.workers);
        let writers = Writers::declare(setup);
        let owners = setup.primary::<R>().lister();
        let pods = watch_pods(setup, &owners);
        Self {
            settings,
            siblings: owners.index(siblings_of),
            owners,
            // All replicated kinds share this index.
            pods_by_controller: pods.index(by_controller),
            pods,
            writers,
            withheld: Withheld::default(),
            metrics: setup.metrics().replicaset(),
        }
    }

    /// Syncs one owner.
    ///
    /// # Errors
    /// The first failure. If both the number of pods and the status failed, the failure of the status.
    pub(crate) async fn sync(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(owner) = self.owners.get(key)? else {
            self.withheld.forget(key);
            return Ok(Outcome::Done);
        };
        let withheld = self.withheld.contains(key, pods::uid(owner.meta()), cx.env().now());
        let selector = match owner.selector() {
            Ok(selector) => selector,
            Err(error) => {
                // A retry cannot fix the selector; the next change of the owner requeues it.
                tracing::error!(
                    %key, kind = %R::kind(&()), %error,
                    "invalid selector; object not reconciled until its spec changes"
                );
                return Ok(Outcome::Done);
            }
        };
        let work = SyncContext::new(key, &*owner, &selector, cx, &self.writers);
        // Checked before and after the read, because an object can become readable or undecodable in between.
        let were_decodable = self.are_pods_decodable(&work, &selector);
        let pods = candidates(&self.pods_by_controller, &*owner);
        let are_decodable = were_decodable && self.are_pods_decodable(&work, &selector);
        let active = work.claim(pods.iter().filter(|pod| pods::is_active(pod))).await?;
        let terminating = self
            .settings
            .reports_terminating
            .then(|| claimed(owner.meta(), &selector, pods.iter().filter(|pod| pods::is_terminating(pod))));
        let scaling = if !withheld && owner.meta().deletion_timestamp.is_none() && are_decodable {
            self.scaling(&work, &active)
        } else {
            Scaling::Enough
        };
        let is_scaling = scaling != Scaling::Enough;
        let scaled = self.scale(&work, scaling).await;
        let available_in = self
            .report(&work, OwnedPods { active: &active, terminating: terminating.as_deref() }, scaled)
            .await?;
        let recheck = (!are_decodable).then_some(UNDECODABLE_RECHECK_INTERVAL);
        // An owner that creates or deletes pods is about to continue.
        if !is_scaling {
            cx.rest_at_least(REST.of(pods.len()));
        }
        let soonest = [recheck, available_in];
        Ok(soonest.into_iter().flatten().min().map_or(Outcome::Done, Outcome::RequeueAfter))
    }

    /// Returns whether all pods of the owner, and all orphans that it would adopt, can be decoded. Pods that are being
    /// deleted do not matter.
    fn are_pods_decodable(&self, work: &SyncContext<'_, R>, selector: &LabelSelector) -> bool {
        let might_be_ours = |pod: &ObjectMeta| {
            pod.deletion_timestamp.is_none() && might_belong(pod, work.owner.meta(), selector)
        };
        let unreadable = self.pods.check_decodable(work.key.namespace(), might_be_ours).err();
        if let Some(unreadable) = &unreadable {
            tracing::warn!(
                kind = %R::kind(&()), key = %work.key, %unreadable,
                "scaling paused: an undecodable Pod might belong to this object; rechecking in 30 s"
            );
        }
        unreadable.is_none()
    }

    /// Returns the pods to create or delete.
    fn scaling(&self, work: &SyncContext<'_, R>, active: &[Arc<PodView>]) -> Scaling {
        let related = || self.related_pods(work.owner);
        scale(active, work.owner.desired(), related, self.settings.cost_mode, work.cx.env().wall())
    }

    async fn scale(&self, work: &SyncContext<'_, R>, scaling: Scaling) -> Result<(), ScaleError> {
        match scaling {
            Scaling::Enough => Ok(()),
            Scaling::Create(count) => self.create(work, count).await.map_err(ScaleError::Create),
            Scaling::Delete { victims, age_ratios } => {
                age_ratios
                    .into_iter()
                    .for_each(|ratio| self.metrics.sorting_deletion_age_ratio.observe(ratio));
                self.delete(work, &victims).await.map_err(ScaleError::Delete)
            }
        }
    }

    /// Returns the pods that the owner and its siblings select. `None` for an owner without siblings.
    fn related_pods(&self, owner: &R) -> Vec<Arc<PodView>> {
        let Some(group) = siblings_of(owner) else { return Vec::new() };
        let mut related = BTreeMap::new();
        for sibling in self.siblings.get(&group) {
            let Ok(selector) = sibling.selector() else { continue };
            let wanted = self.pods.select(sibling.meta().namespace.as_deref(), &selector);
            related.extend(wanted.into_iter().map(|pod| (pods::uid(&pod.metadata).to_owned(), pod)));
        }
        related.into_values().collect()
    }

    async fn create(&self, work: &SyncContext<'_, R>, count: usize) -> Result<(), CreateError> {
        tracing::debug!(key = %work.key, count, "creating pods");
        let template = work.owner.template().cloned().unwrap_or_default();
        let pod = pod_from_template(&template, &controller_reference(work.owner));
        work.control.create_all(&self.withheld, count, |_| &pod).await
    }

    /// Deletes all victims. Returns the first failure; each failure is recorded as an event.
    async fn delete(&self, work: &SyncContext<'_, R>, victims: &[Arc<PodView>]) -> Result<(), DeleteError> {
        tracing::debug!(key = %work.key, count = victims.len(), "deleting pods");
        let results = join_all(victims.len(), |number| work.control.delete(&victims[number])).await;
        results.into_iter().collect()
    }

    /// Writes the status, and returns the time until a ready pod becomes available.
    async fn report(
        &self,
        work: &SyncContext<'_, R>,
        holdings: OwnedPods<'_>,
        scaled: Result<(), ScaleError>,
    ) -> Result<Option<Duration>, ReconcileError> {
        if scaled.as_ref().is_err_and(ScaleError::was_not_sent) {
            return scaled.map(|()| None).map_err(retry);
        }
        let now = work.cx.env().wall();
        let failed = scaled.as_ref().err().map(ToString::to_string);
        let status = calculate(work.owner, holdings, failed.as_deref(), now);
        let settled = work.write_status(status).await?;
        scaled.map_err(retry)?;

        let minimum = settled.min_ready_seconds();
        let ReplicaStatus { ready, available, .. } = settled.status();
        Ok(next_status(holdings.active, minimum, (ready, available), now, work.cx.env().wall()))
    }
}

/// Returns the sibling group of an owner. A group is within one namespace.
fn siblings_of<R: ReplicaOwner>(owner: &R) -> Option<String> {
    owner.sibling_group().map(|group| format!("{}/{group}", pods::namespace(owner.meta())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_limits_the_pods_read_per_second() {
        let rests = [0, 250, 1_000, 5_000, usize::MAX].map(|pods| REST.of(pods));
        assert_eq!(rests, [0, 250, 1_000, 1_000, 1_000].map(Duration::from_millis));
    }
}
