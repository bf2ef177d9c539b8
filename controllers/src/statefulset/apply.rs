//! Sends the requests of a plan, and records their events.

use std::error::Error;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim, Pod};
use kube::api::DeleteParams;
use windlass_controller::{Context, Writer};
use windlass_events::NewEvent;
use windlass_object::{HasMetadata as _, ObjectKey};

use super::claims::{ClaimOwners, ClaimUser};
use super::events::{Change, claim_event, conflict_event, pod_event};
use super::identity::{update_identity, update_storage};
use super::spec::PodManagement;
use super::status::must_write;
use super::tasks::{ClaimNeed, ClaimWork, Correction, OwnerCheck, Plan, PodWork, Task};
use crate::shared::api_errors::{aggregate, describe, is_already_exists, is_conflict, was_not_sent};
use crate::shared::history::Revision;
use crate::shared::pod_view::PodView;
use crate::shared::pods;
use crate::shared::slow_start::slow_start;

/// Maximum number of attempts to write the status while another client changes the object, as upstream.
const STATUS_ATTEMPTS: usize = 5;

/// Maximum number of attempts to correct a pod while other clients change the pod or its claims, as upstream.
const CORRECTION_ATTEMPTS: usize = 4;

/// The writers of a StatefulSet and its objects.
#[derive(Debug)]
pub(super) struct Writers {
    pub(super) set: Writer<StatefulSet>,
    pub(super) pod: Writer<Pod>,
    pub(super) claim: Writer<PersistentVolumeClaim>,
    pub(super) revision: Writer<Revision>,
}

/// Failure of a sync. The event has the same message.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Failure {
    message: String,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    fn request(error: impl Error + Send + Sync + 'static) -> Self {
        Self { message: describe(&error), source: Some(Box::new(error)) }
    }

    fn in_context(self, message: impl FnOnce(&str) -> String) -> Self {
        Self { message: message(&self.message), source: self.source }
    }

    /// Combines several failures into one; `None` if there are no failures.
    fn combine(failures: Vec<Self>) -> Option<Self> {
        let message = aggregate(failures.iter().map(|failure| failure.message.clone()).collect());
        failures.into_iter().next().map(|first| first.in_context(|_| message))
    }
}

/// One sync of a StatefulSet.
pub(super) struct Applier<'a> {
    pub(super) cx: &'a Context,
    pub(super) key: &'a ObjectKey,
    pub(super) set: &'a StatefulSet,
    /// The subject of events.
    pub(super) regarding: ObjectReference,
    pub(super) writers: &'a Writers,
}

impl Applier<'_> {
    /// Sends the requests of the plan, up to the first group with a failure. Returns the number of replaced pods.
    pub(super) async fn apply(&self, plan: &Plan) -> Result<i32, Failure> {
        for group in &plan.groups {
            match plan.management {
                PodManagement::Ordered => self.process_in_order(group).await?,
                PodManagement::Parallel => self.process_concurrently(group).await?,
            }
        }
        match &plan.replaced {
            Some(pod) => self.delete(pod).await.map(|()| 1),
            None => Ok(0),
        }
    }

    async fn process_in_order(&self, group: &[PodWork]) -> Result<(), Failure> {
        for work in group {
            self.process(work).await?;
        }
        Ok(())
    }

    async fn process_concurrently(&self, group: &[PodWork]) -> Result<(), Failure> {
        let failures = slow_start(group.len(), |index| async move {
            match group.get(index) {
                Some(work) => self.process(work).await,
                None => Ok(()),
            }
        });
        failures.await.into_iter().next().map_or(Ok(()), Err)
    }

    async fn process(&self, work: &PodWork) -> Result<(), Failure> {
        for task in work {
            match task {
                Task::Create { pod, claims } => self.create(pod, claims).await?,
                Task::ProvideClaims { user, claims } => self.provide_claims(user, claims).await?,
                Task::Correct(correction) => self.correct(correction).await?,
                Task::CorrectOwners { user, owners } => self.correct_owners(user, owners).await?,
                Task::Delete(pod) => self.delete(pod).await?,
            }
        }
        Ok(())
    }

    async fn create(&self, pod: &Pod, claims: &ClaimWork) -> Result<(), Failure> {
        let name = pods::name(&pod.metadata);
        let ordinal = super::identity::ordinal(name).unwrap_or_default();
        let user = ClaimUser { name: name.to_owned(), uid: String::new(), ordinal };
        self.record_if_failed(Change::Create, name, self.create_claims(name, &claims.needs).await)?;
        let created = self.writers.pod.create(self.cx, pod).await;
        if let Err(error) = &created
            && (is_already_exists(error) || was_not_sent(error))
        {
            return created.map(drop).map_err(Failure::request);
        }
        self.record_if_failed(Change::Update, name, self.correct_owners(&user, &claims.owners).await)?;
        let created = created.map(drop).map_err(Failure::request);
        self.record_outcome(Change::Create, name, &created);
        created
    }

    async fn provide_claims(&self, user: &ClaimUser, claims: &ClaimWork) -> Result<(), Failure> {
        self.create_claims(&user.name, &claims.needs).await?;
        self.record_if_failed(Change::Update, &user.name, self.correct_owners(user, &claims.owners).await)
    }

    /// Creates the missing claims of a pod. Continues with the next claim after a failure.
    async fn create_claims(&self, pod: &str, needs: &[ClaimNeed]) -> Result<(), Failure> {
        let mut failures = Vec::new();
        for need in needs {
            match need {
                ClaimNeed::Create(claim) => failures.extend(self.create_claim(pod, claim).await.err()),
                ClaimNeed::Terminating(claim) => {
                    failures.push(Failure::new(format!("pvc {claim} is being deleted")));
                }
                ClaimNeed::Undecodable { claim, reason } => {
                    self.record(&claim_event(claim, pod, self.name(), Some(reason)));
                    failures.push(Failure::new(format!("failed to retrieve PVC {claim}: {reason}")));
                }
            }
        }
        Failure::combine(failures).map_or(Ok(()), Err)
    }

    async fn create_claim(&self, pod: &str, claim: &PersistentVolumeClaim) -> Result<(), Failure> {
        let name = pods::name(&claim.metadata);
        let created = self.writers.claim.create(self.cx, claim).await;
        let failure = match &created {
            Ok(_) => None,
            Err(error) if is_already_exists(error) || was_not_sent(error) => {
                return created.map(drop).map_err(|error| failed_to_create(name, error));
            }
            Err(error) => Some(describe(error)),
        };
        self.record(&claim_event(name, pod, self.name(), failure.as_deref()));
        created.map(drop).map_err(|error| failed_to_create(name, error))
    }

    async fn correct(&self, correction: &Correction) -> Result<(), Failure> {
        let Correction { user, identity, storage, claims } = correction;
        let provided = match storage {
            true => self.create_claims(&user.name, &claims.needs).await,
            false => Ok(()),
        };
        self.record_if_failed(Change::Update, &user.name, provided)?;
        let mut conflicts = 0;
        let mut can_retry = |failure: &Failure| {
            conflicts += usize::from(is_conflict(failure));
            is_conflict(failure) && conflicts < CORRECTION_ATTEMPTS
        };
        // Each attempt reads the object again. As upstream, each conflict of a claim is recorded as an event.
        loop {
            let corrected = self.correct_owners(user, &claims.owners).await;
            match self.record_if_failed(Change::Update, &user.name, corrected) {
                Err(failure) if can_retry(&failure) => {}
                corrected => break corrected?,
            }
        }
        let updated = loop {
            match self.update_pod(user, *identity, *storage).await {
                Err(failure) if can_retry(&failure) => {}
                updated => break updated,
            }
        };
        self.record_outcome(Change::Update, &user.name, &updated);
        updated
    }

    async fn update_pod(&self, user: &ClaimUser, identity: bool, storage: bool) -> Result<(), Failure> {
        let live =
            self.cx.get_live::<Pod>(&self.key_in_namespace(&user.name)).await.map_err(Failure::request)?;
        let live = live.filter(|pod| pods::uid(&pod.metadata) == user.uid);
        let Some(live) = live else {
            return Err(Failure::new(format!("pods {:?} not found", user.name)));
        };
        let updated = self.writers.pod.update(self.cx, &live, |pod| {
            if identity {
                update_identity(pod, &user.name, user.ordinal);
            }
            if storage {
                update_storage(self.set, pod, user.ordinal);
            }
        });
        updated.await.map(drop).map_err(Failure::request)
    }

    /// Corrects the owner references of claims, up to the first failure.
    async fn correct_owners(&self, user: &ClaimUser, owners: &[OwnerCheck]) -> Result<(), Failure> {
        for owner in owners {
            match owner {
                OwnerCheck::Known { claim, has_conflict, must_update } => {
                    let name = pods::name(&claim.metadata);
                    if *has_conflict {
                        self.record(&conflict_event(name));
                    }
                    if *must_update {
                        let updated = self.update_owners(user, name, pods::uid(&claim.metadata)).await;
                        updated.map_err(|failure| {
                            failure.in_context(|reason| {
                                format!("could not update claim {name} for delete policy ownerRefs: {reason}")
                            })
                        })?;
                    }
                }
                OwnerCheck::Undecodable { claim, reason } => {
                    let pod = &user.name;
                    return Err(Failure::new(format!(
                        "Could not retrieve claim {claim} for {pod} when checking PVC deletion policy: {reason}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Changes the owner references in the present version of a claim, because the cache contains only parts of them.
    async fn update_owners(&self, user: &ClaimUser, claim: &str, uid: &str) -> Result<(), Failure> {
        let live = self.cx.get_live::<PersistentVolumeClaim>(&self.key_in_namespace(claim)).await;
        let live = live.map_err(Failure::request)?.filter(|live| pods::uid(&live.metadata) == uid);
        let Some(live) = live else {
            return Err(Failure::new(format!("persistentvolumeclaims {claim:?} not found")));
        };
        let owners = ClaimOwners { set: self.set, pod: user };
        if owners.are_current(live.metadata()) {
            return Ok(());
        }
        let references = live.metadata.owner_references.clone().unwrap_or_default();
        let updated = owners.updated(live.metadata(), &references);
        let updated = self.writers.claim.update(self.cx, &live, |claim| {
            claim.metadata.owner_references = (!updated.is_empty()).then_some(updated);
        });
        updated.await.map(drop).map_err(Failure::request)
    }

    /// Deletes a pod. A pod that is already deleted is not a failure.
    async fn delete(&self, pod: &PodView) -> Result<(), Failure> {
        let deleted = self.writers.pod.delete_view(self.cx, pod, &DeleteParams::default()).await;
        let deleted = deleted.map(drop).map_err(Failure::request);
        self.record_outcome(Change::Delete, pods::name(&pod.metadata), &deleted);
        deleted
    }

    /// Writes the status if it changed. After a conflict, writes it to the present version.
    pub(super) async fn write_status(&self, status: &StatefulSetStatus) -> Result<(), Failure> {
        if !must_write(self.set, status) {
            return Ok(());
        }
        let mut current = self.set.clone();
        let mut attempts = 1;
        loop {
            let written = self.writers.set.update_status(self.cx, &current, |set| {
                set.status = Some(status.clone());
            });
            let Err(error) = written.await else { return Ok(()) };
            if !is_conflict(&error) || attempts == STATUS_ATTEMPTS {
                return Err(Failure::request(error));
            }
            attempts += 1;
            let live = self.cx.get_live::<StatefulSet>(self.key).await.map_err(Failure::request)?;
            // Another StatefulSet with the same name has its own status.
            match live.filter(|live| live.metadata.uid == self.set.metadata.uid) {
                Some(live) => current = live,
                None => return Err(Failure::request(error)),
            }
        }
    }

    fn key_in_namespace(&self, name: &str) -> ObjectKey {
        ObjectKey::namespaced(self.key.namespace().unwrap_or_default(), name)
    }

    fn name(&self) -> &str {
        self.key.name()
    }

    /// Records an event if the result is a failure.
    fn record_if_failed(
        &self,
        change: Change,
        pod: &str,
        result: Result<(), Failure>,
    ) -> Result<(), Failure> {
        if result.is_err() {
            self.record_outcome(change, pod, &result);
        }
        result
    }

    /// Records an event, unless the request was not sent.
    fn record_outcome(&self, change: Change, pod: &str, result: &Result<(), Failure>) {
        let failure = result.as_ref().err();
        if failure.is_none_or(|failure| !was_not_sent(failure)) {
            let message = failure.map(|failure| failure.message.as_str());
            self.record(&pod_event(change, pod, self.name(), message));
        }
    }

    fn record(&self, event: &NewEvent) {
        self.cx.events().publish(&self.regarding, event);
    }
}

fn failed_to_create(claim: &str, error: impl Error + Send + Sync + 'static) -> Failure {
    Failure::request(error).in_context(|reason| format!("failed to create PVC {claim}: {reason}"))
}
