//! The StatefulSet controller: maintains pods with stable names and dedicated claims.
//!
//! Watches StatefulSets, pods, PersistentVolumeClaims and ControllerRevisions. Only changes of StatefulSets and pods
//! cause a sync. Writes pods (creates, deletes, corrects labels, adopts, releases), claims (creates, owner
//! references), ControllerRevisions, and the status of StatefulSets.
//!
//! A pod has the label `controller-revision-hash` with the name of its revision. The controller replaces a pod whose
//! label names another revision. Revisions therefore have exactly the names that kube-controller-manager generates.
//!
//! With ordered management, a pod is created after all pods with lower ordinals are available, and deleted after all
//! pods with higher ordinals have been deleted. A deleted pod is recreated only after it has terminated, because two
//! pods with the same name could use the same volume.
//!
//! It does not act on incomplete data: a StatefulSet that might own an undecodable pod or revision is not synced until
//! the object is readable or deleted. Failed syncs are retried without a limit.

mod apply;
mod claims;
mod events;
mod identity;
mod plan;
mod revision;
mod spec;
mod status;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_controller::{
    Context, Controller, Descriptor, Outcome, ReconcileError, Setup, SetupError, retry,
};
use windlass_gotext::revision_hash;
use windlass_informer::{Index, Lister};
use windlass_object::owner::controller_of;
use windlass_object::{LabelSelector, MetadataRef, ObjectKey, SelectorError, Verb};

use self::apply::{Applier, Writers};
use self::identity::{Version, Versions, is_member};
use self::plan::{Observed, plan};
use self::revision::{present_data, recorded_template, restores};
use self::status::{complete_update, subtract_deleted};
use self::tasks::{CachedClaim, Plan};
use crate::ControllerOptions;
use crate::shared::UNDECODABLE_RECHECK_INTERVAL;
use crate::shared::availability::{minimum, next_status};
use crate::shared::claims::Claims;
use crate::shared::controller_index::{by_controller, candidates, might_belong};
use crate::shared::event_reference::event_reference;
use crate::shared::history::requests::{Revisions, declare};
use crate::shared::history::{HASH_LABEL, HistoryLimit, Match, Revision, find, next_number, sort, surplus};
use crate::shared::owner_events::{PodOwner, selector_of, watch_pods};
use crate::shared::pod_view::PodView;
use crate::shared::pods;
use crate::shared::volume_claim_view::VolumeClaimView;

/// The StatefulSet controller.
#[derive(Debug)]
pub struct StatefulSetController {
    sets: Lister<StatefulSet>,
    pods: Lister<PodView>,
    pods_by_controller: Index<PodView, String>,
    claims: Lister<VolumeClaimView>,
    revisions: Lister<Revision>,
    revisions_by_controller: Index<Revision, String>,
    writers: Writers,
}

impl Controller for StatefulSetController {
    const NAME: &'static str = "statefulset-controller";
    const DESCRIPTOR: Descriptor =
        Descriptor::new(Self::NAME).with_aliases(&["statefulset"]).with_queue_name("statefulset");
    type Config = ControllerOptions;

    fn setup(setup: &mut Setup, options: &ControllerOptions) -> Result<Self, SetupError> {
        setup.workers(options.concurrent_statefulset_syncs);
        // Uncached reads: of the set before an adoption, of pods and claims before a correction.
        setup.uses::<StatefulSet>([Verb::Get]);
        setup.uses::<Pod>([Verb::Get]);
        // The admission plugin OwnerReferencesPermissionEnforcement admits changes of owner references only from
        // clients that have the permission to delete the object.
        setup.uses::<PersistentVolumeClaim>([Verb::Get, Verb::Delete]);
        // References with `blockOwnerDeletion` require the permission to set finalizers on the owner. Claims have such
        // references to sets and to pods.
        let set =
            setup.writer::<StatefulSet>().replace_status().subresource("finalizers", Verb::Update).build();
        let pod = setup.writer::<Pod>().create().update().patch().delete();
        let pod = pod.subresource("finalizers", Verb::Update).build();
        let claim = setup.writer::<PersistentVolumeClaim>().create().update().build();
        let revision = declare(setup);

        let sets = setup.primary::<StatefulSet>().lister();
        let pods = watch_pods(setup, &sets);
        let claims = setup.watch::<VolumeClaimView>().lister();
        let revisions = setup.watch::<Revision>().lister();
        Ok(Self {
            sets,
            pods_by_controller: pods.index(by_controller),
            pods,
            claims,
            revisions_by_controller: revisions.index(by_controller),
            revisions,
            writers: Writers { set, pod, claim, revision },
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        match self.sets.get(key)? {
            Some(set) => self.sync(key, &set, cx).await,
            None => Ok(Outcome::Done),
        }
    }
}

impl PodOwner for StatefulSet {
    fn pod_selector(&self) -> Result<LabelSelector, SelectorError> {
        selector_of(self.spec.as_ref().map(|spec| &spec.selector))
    }

    fn requeue_after_ready(&self) -> Option<Duration> {
        minimum(spec::min_ready_seconds(self))
    }
}

impl StatefulSetController {
    async fn sync(
        &self,
        key: &ObjectKey,
        set: &StatefulSet,
        cx: &Context,
    ) -> Result<Outcome, ReconcileError> {
        let selector = match set.pod_selector() {
            Ok(selector) => selector,
            Err(error) => {
                // A retry cannot fix the selector; the next change of the set requeues it.
                tracing::error!(%key, %error, "invalid selector; StatefulSet not reconciled until its spec changes");
                return Ok(Outcome::Done);
            }
        };
        // Checked before and after the read, because an object can become readable or undecodable in between.
        let were_decodable = self.are_all_decodable(key, set, &selector);
        let mut revisions = candidates(&self.revisions_by_controller, set);
        revisions.retain(|revision| selector.matches(revision.metadata.labels.as_ref()));
        let pods = candidates(&self.pods_by_controller, set);
        if !(were_decodable && self.are_all_decodable(key, set, &selector)) {
            return Ok(Outcome::RequeueAfter(UNDECODABLE_RECHECK_INTERVAL));
        }
        let claims = Claims { key, owner: set, selector: &selector, cx };
        let is_orphan = |revision: &&Arc<Revision>| controller_of(&revision.metadata).is_none();
        let orphans: Vec<_> = revisions.iter().filter(is_orphan).cloned().collect();
        let adopted = claims.adopt_in_order::<Revision, Revision>(&orphans).await?;
        adopted.into_iter().for_each(|metadata| refresh(&mut revisions, metadata));
        let is_ours = |pod: MetadataRef<'_>| is_member(set, pod.name());
        let pods = claims.claim_members::<Pod, PodView>(pods.iter(), is_ours).await?;
        sort(&mut revisions);
        let sync = SyncContext { controller: self, key, set, cx, pods: &pods, revisions: &revisions };
        sync.run().await
    }

    /// Returns whether all pods and revisions of the set, and all orphans that it would adopt, can be decoded.
    fn are_all_decodable(&self, key: &ObjectKey, set: &StatefulSet, selector: &LabelSelector) -> bool {
        let might_be_ours = |object: &ObjectMeta| might_belong(object, &set.metadata, selector);
        let pods = self.pods.check_decodable(key.namespace(), might_be_ours);
        let unreadable =
            pods.and_then(|()| self.revisions.check_decodable(key.namespace(), might_be_ours)).err();
        if let Some(unreadable) = &unreadable {
            tracing::warn!(
                %key, %unreadable,
                "sync paused: an undecodable object might belong to this StatefulSet; rechecking in 30 s"
            );
        }
        unreadable.is_none()
    }

    fn cached_claim(&self, namespace: &str, name: &str) -> CachedClaim {
        match self.claims.get(&ObjectKey::namespaced(namespace, name)) {
            Ok(Some(claim)) => CachedClaim::Present(claim),
            Ok(None) => CachedClaim::Missing,
            Err(error) => CachedClaim::Undecodable(error.to_string()),
        }
    }
}

/// The revisions that the pods must have.
struct Targets {
    current: Arc<Revision>,
    /// The revision of the present template.
    update: Arc<Revision>,
    /// The collision count after the search for `update`.
    collisions: i32,
}

/// One StatefulSet during its sync.
struct SyncContext<'a> {
    controller: &'a StatefulSetController,
    key: &'a ObjectKey,
    set: &'a StatefulSet,
    cx: &'a Context,
    pods: &'a [Arc<PodView>],
    /// The revisions, sorted by number.
    revisions: &'a [Arc<Revision>],
}

impl SyncContext<'_> {
    /// Updates the pods, then deletes old revisions, even if the update failed.
    ///
    /// Upstream also deletes them while the update revision is unknown, and can delete the target of a rollback.
    async fn run(&self) -> Result<Outcome, ReconcileError> {
        let requests = Revisions { cx: self.cx, key: self.key, writer: &self.controller.writers.revision };
        let targets = self.targets(&requests).await?;
        let updated = self.update(&targets).await;
        let in_use = self.revisions_in_use(&targets);
        let limit = HistoryLimit::Unused(spec::history_limit(self.set));
        let old = surplus(self.revisions, |revision| in_use.contains(revision.name()), limit);
        let truncated = requests.delete(&old).await;
        let outcome = updated?;
        truncated?;
        Ok(outcome)
    }

    /// Returns the names of the revisions to keep.
    fn revisions_in_use(&self, targets: &Targets) -> BTreeSet<String> {
        let targets = [&targets.current, &targets.update].map(|revision| revision.name().to_owned());
        targets.into_iter().chain(self.pods.iter().map(|pod| identity::revision(pod).to_owned())).collect()
    }

    /// Returns the revisions that the pods must have.
    async fn targets(&self, requests: &Revisions<'_>) -> Result<Targets, ReconcileError> {
        let status = self.set.status.clone().unwrap_or_default();
        let mut collisions = status.collision_count.unwrap_or_default();
        let update = self.update_revision(requests, &mut collisions).await?;
        let recorded =
            |revision: &&Arc<Revision>| status.current_revision.as_deref() == Some(revision.name());
        let current = Arc::clone(self.revisions.iter().find(recorded).unwrap_or(&update));
        Ok(Targets { current, update, collisions })
    }

    async fn update_revision(
        &self,
        requests: &Revisions<'_>,
        collisions: &mut i32,
    ) -> Result<Arc<Revision>, ReconcileError> {
        let data = present_data(self.set).map_err(retry)?;
        let number = next_number(self.revisions);
        match find(self.revisions, &data) {
            Match::Latest(latest) => return Ok(latest),
            Match::Earlier(earlier) => return requests.renumber(&earlier, number).await,
            Match::Missing => {}
        }
        if let Some(latest) = self.revisions.last().filter(|latest| restores(latest, &data)) {
            return Ok(Arc::clone(latest));
        }
        let template = spec::template(self.set);
        let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
        let hash = revision_hash(&data, Some(*collisions));
        let revision = Revision::new(self.set, labels, data, number).map_err(retry)?;
        requests.create_named_by_data(revision.with_label(HASH_LABEL, &hash), collisions).await
    }

    async fn update(&self, targets: &Targets) -> Result<Outcome, ReconcileError> {
        let versions = Versions { current: version(&targets.current)?, update: version(&targets.update)? };
        let now = self.cx.env().wall();
        let planned = self.plan(&versions, targets.collisions, now);
        let applier = Applier {
            cx: self.cx,
            key: self.key,
            set: self.set,
            regarding: event_reference(self.set),
            writers: &self.controller.writers,
        };
        let applied = applier.apply(&planned).await;
        let mut status = planned.status;
        subtract_deleted(&mut status, *applied.as_ref().unwrap_or(&0));
        complete_update(self.set, &mut status);
        let written = applier.write_status(&status).await;
        if let (Err(_), Err(error)) = (&applied, &written) {
            tracing::warn!(key = %self.key, %error, "status of a failed sync not written");
        }
        applied.map_err(retry)?;
        written.map_err(retry)?;
        Ok(self.available_in(&status, now).map_or(Outcome::Done, Outcome::RequeueAfter))
    }

    fn plan(&self, versions: &Versions, collisions: i32, now: Timestamp) -> Plan {
        let namespace = pods::namespace(&self.set.metadata);
        let claim = |name: &str| self.controller.cached_claim(namespace, name);
        plan(&Observed { set: self.set, versions, collisions, pods: self.pods, claim: &claim, now })
    }

    /// Returns the time until the next ready pod becomes available; `None` if all ready pods are available.
    fn available_in(&self, status: &StatefulSetStatus, evaluated_at: Timestamp) -> Option<Duration> {
        let [ready, available] =
            [status.ready_replicas, status.available_replicas].map(Option::unwrap_or_default);
        let (minimum, now) = (spec::min_ready_seconds(self.set), self.cx.env().wall());
        next_status(self.pods, minimum, (ready, available), evaluated_at, now)
    }
}

/// Replaces the metadata of an adopted revision, because a write with the cached version would conflict.
fn refresh(revisions: &mut [Arc<Revision>], adopted: ObjectMeta) {
    if let Some(revision) = revisions.iter_mut().find(|revision| revision.metadata.uid == adopted.uid) {
        Arc::make_mut(revision).metadata = adopted;
    }
}

fn version(revision: &Revision) -> Result<Version, ReconcileError> {
    let template = recorded_template(revision).map_err(retry)?;
    Ok(Version { name: revision.name().to_owned(), template })
}
