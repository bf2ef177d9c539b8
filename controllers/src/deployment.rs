//! The Deployment controller: replaces pods with pods of a new template, by scaling ReplicaSets.
//!
//! Watches Deployments, ReplicaSets and pods. Writes ReplicaSets (creates, scales, annotates, deletes, adopts,
//! releases), the status of Deployments with their revision annotation, and, for a rollback, their template. Of the
//! events of pods it processes only deletions, because a Deployment that recreates its pods waits for them.
//!
//! The name of a new ReplicaSet is a function of the template, so that two replicas cannot create two ReplicaSets for
//! one template. An existing ReplicaSet is found by its template, never by its name.
//!
//! It does not act on incomplete data: a Deployment that might own an undecodable ReplicaSet, or that recreates pods
//! and has an undecodable pod, is not synced until the object is readable or deleted. A key that fails 15 times in a
//! row is dropped until its next change.

mod annotations;
mod apply;
mod conditions;
mod events;
mod plan;
mod revision;
mod scaling;
mod spec;
mod status;
mod template;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_controller::{
    Context, Controller, Descriptor, Outcome, ReconcileError, Setup, SetupError, retry,
};
use windlass_informer::{Index, Lister};
use windlass_object::owner::{controller_of, controller_reference};
use windlass_object::{LabelSelector, ObjectKey, Verb};

use self::apply::{Applier, Optional, Writers};
use self::events::recreating;
use self::plan::{Observed, Plan, plan};
use self::spec::{Strategy, strategy};
use self::status::TerminatingMode;
use crate::ControllerOptions;
use crate::shared::UNDECODABLE_RECHECK_INTERVAL;
use crate::shared::claims::Claims;
use crate::shared::controller_index::{by_controller, candidates, controlled, might_belong};
use crate::shared::event_reference::event_reference;
use crate::shared::owner_events::{PodOwner as _, child_changed};
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// Consecutive failures after which a Deployment is dropped until its next change: the last backoff is 82 s.
const MAX_RETRIES: u32 = 15;

/// Delay before a failed scale-down of an old ReplicaSet is retried, if no change causes a sync before.
const OPTIONAL_RETRY: Duration = Duration::from_secs(10);

/// The Deployment controller.
#[derive(Debug)]
pub struct DeploymentController {
    deployments: Lister<Deployment>,
    sets: Lister<ReplicaSet>,
    sets_by_controller: Index<ReplicaSet, String>,
    pods: Lister<PodView>,
    pods_by_controller: Index<PodView, String>,
    writers: Writers,
    terminating: TerminatingMode,
}

impl Controller for DeploymentController {
    const NAME: &'static str = "deployment-controller";
    const DESCRIPTOR: Descriptor =
        Descriptor::new(Self::NAME).with_aliases(&["deployment"]).with_queue_name("deployment");
    type Config = ControllerOptions;

    fn setup(setup: &mut Setup, options: &ControllerOptions) -> Result<Self, SetupError> {
        setup.workers(options.concurrent_deployment_syncs);
        setup.max_retries(Some(MAX_RETRIES));
        // An uncached read before the first adoption.
        setup.uses::<Deployment>([Verb::Get]);
        // References with `blockOwnerDeletion` require the permission to set finalizers on the owner.
        let deployment = setup.writer::<Deployment>().update().replace_status();
        let deployment = deployment.subresource("finalizers", Verb::Update).build();
        let set = setup.writer::<ReplicaSet>().create().update().patch().delete().build();

        let deployments = setup.primary::<Deployment>().lister();
        let owners = deployments.clone();
        let sets = setup.watch::<ReplicaSet>().on_event(move |event, queue| {
            child_changed(event, &owners).into_iter().for_each(|key| queue.add(key));
        });
        let sets = sets.lister();
        let (owners, owned) = (deployments.clone(), sets.clone());
        let pods = setup.watch::<PodView>().on_event(move |event, queue| {
            if let Some(deployment) = recreating(event, &owned, &owners) {
                queue.add(ObjectKey::of(&deployment.metadata));
            }
        });
        let pods = pods.lister();
        Ok(Self {
            deployments,
            sets_by_controller: sets.index(by_controller),
            sets,
            pods_by_controller: pods.index(by_controller),
            pods,
            writers: Writers { deployment, set },
            terminating: if options.terminating_replicas {
                TerminatingMode::Reported
            } else {
                TerminatingMode::Omitted
            },
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        // The condition Progressing depends on each status of the ReplicaSets: a Deployment does not rest.
        cx.queue().end_rest(key);
        match self.deployments.get(key)? {
            Some(deployment) => self.sync(key, &deployment, cx).await,
            None => Ok(Outcome::Done),
        }
    }
}

impl DeploymentController {
    async fn sync(
        &self,
        key: &ObjectKey,
        deployment: &Deployment,
        cx: &Context,
    ) -> Result<Outcome, ReconcileError> {
        let selector = deployment.pod_selector();
        let selector = selector
            .map_err(|error| retry(format!("deployment {key} has invalid label selector: {error}")))?;
        // Checked before and after the read, because an object can become readable or undecodable in between.
        let were_decodable = self.are_sets_decodable(key, deployment, &selector);
        let candidates = candidates(&self.sets_by_controller, deployment);
        if !(were_decodable && self.are_sets_decodable(key, deployment, &selector)) {
            return Ok(Outcome::RequeueAfter(UNDECODABLE_RECHECK_INTERVAL));
        }
        let claims = Claims { key, owner: deployment, selector: &selector, cx };
        // An empty selector selects nothing here; the plan reports it.
        let sets = if selector.is_empty() {
            Vec::new()
        } else {
            claims.claim::<ReplicaSet, ReplicaSet>(candidates.iter()).await?
        };
        let running = match strategy(deployment) {
            Strategy::Recreate => self.sets_with_running_pods(key, &sets),
            Strategy::RollingUpdate | Strategy::Unknown => Some(BTreeSet::new()),
        };
        let Some(running) = running else {
            return Ok(Outcome::RequeueAfter(UNDECODABLE_RECHECK_INTERVAL));
        };
        let observed = Observed {
            deployment: deployment.clone(),
            sets: sets.iter().map(|set| (**set).clone()).collect(),
            running,
            terminating: self.terminating,
            now: cx.env().wall(),
        };
        let Plan { steps, unscaled, check_in } = plan(observed).map_err(retry)?;
        let sets = sets.into_iter().map(|set| (pods::name(&set.metadata).to_owned(), set));
        let mut applier = Applier {
            cx,
            key,
            writers: &self.writers,
            cached_sets: &self.sets,
            regarding: event_reference(deployment),
            deployment: deployment.clone(),
            sets: sets.collect::<BTreeMap<_, _>>(),
        };
        let check_in = match applier.apply(steps, unscaled).await? {
            Optional::Succeeded => check_in,
            Optional::Failed => Some(check_in.map_or(OPTIONAL_RETRY, |check| check.min(OPTIONAL_RETRY))),
        };
        Ok(check_in.map_or(Outcome::Done, Outcome::RequeueAfter))
    }

    /// Returns whether all ReplicaSets of the Deployment, and all orphans that it would adopt, can be decoded.
    fn are_sets_decodable(&self, key: &ObjectKey, deployment: &Deployment, selector: &LabelSelector) -> bool {
        let might_be_ours = |set: &ObjectMeta| might_belong(set, &deployment.metadata, selector);
        let unreadable = self.sets.check_decodable(key.namespace(), might_be_ours).err();
        if let Some(unreadable) = &unreadable {
            tracing::warn!(
                %key, %unreadable,
                "rollout paused: an undecodable ReplicaSet might belong to this Deployment; rechecking in 30 s"
            );
        }
        unreadable.is_none()
    }

    /// Returns the UIDs of the ReplicaSets with pods that have not terminated; `None` if such a pod is undecodable.
    fn sets_with_running_pods(&self, key: &ObjectKey, sets: &[Arc<ReplicaSet>]) -> Option<BTreeSet<String>> {
        let uids: BTreeSet<_> = sets.iter().map(|set| pods::uid(&set.metadata)).collect();
        let is_theirs =
            |pod: &ObjectMeta| controller_of(pod).is_some_and(|it| uids.contains(it.uid.as_str()));
        let is_running = |set: &&Arc<ReplicaSet>| {
            let namespace = pods::namespace(&set.metadata);
            let owned = controlled(namespace, (&controller_reference(&***set)).into());
            self.pods_by_controller.get(&owned).iter().any(|pod| !pods::is_terminal(pod))
        };
        let check = || self.pods.check_decodable(key.namespace(), is_theirs);
        let before = check();
        let running = sets.iter().filter(is_running).map(|set| pods::uid(&set.metadata).to_owned()).collect();
        if let Err(unreadable) = before.and_then(|()| check()) {
            tracing::warn!(
                %key, %unreadable,
                "rollout paused: an undecodable Pod belongs to this Deployment; rechecking in 30 s"
            );
            return None;
        }
        Some(running)
    }
}
