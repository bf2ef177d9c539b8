//! Sends the requests of a plan, and records their events.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DeleteParams, PostParams};
use windlass_controller::{Context, ReconcileError, Writer, retry};
use windlass_events::NewEvent;
use windlass_informer::Lister;
use windlass_object::ObjectKey;

use super::annotations::{REVISION, annotation, set_revision};
use super::plan::{Need, Resized, Step};
use super::revision::{created, is_ours, set_creation_failed};
use super::scaling::resized;
use super::spec::name;
use crate::shared::api_errors::{describe, is_already_exists, is_namespace_terminating, was_not_sent};

/// The writers of a Deployment and its ReplicaSets.
#[derive(Debug)]
pub(super) struct Writers {
    pub(super) deployment: Writer<Deployment>,
    pub(super) set: Writer<ReplicaSet>,
}

/// One sync: the newest known versions of the objects.
pub(super) struct Applier<'a> {
    pub(super) cx: &'a Context,
    pub(super) key: &'a ObjectKey,
    pub(super) writers: &'a Writers,
    pub(super) cached_sets: &'a Lister<ReplicaSet>,
    /// The version that was read, for events.
    pub(super) regarding: ObjectReference,
    /// The Deployment as it was read, or as the last write returned it.
    pub(super) deployment: Deployment,
    /// The ReplicaSets by name, as they were read or as the last write returned them.
    pub(super) sets: BTreeMap<String, Arc<ReplicaSet>>,
}

/// The result of the optional updates of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Optional {
    Succeeded,
    Failed,
}

/// Whether the remaining steps can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Continue,
    /// The namespace is terminating: no ReplicaSet can be created, and none is needed.
    Stop,
}

impl Applier<'_> {
    /// Sends the requests of the steps in order. Returns whether all optional updates succeeded: after a failure of
    /// one, the status is `unscaled`, and no further step is sent.
    ///
    /// # Errors
    /// The first failure of another step. The steps after it are not sent.
    pub(super) async fn apply(
        &mut self,
        steps: Vec<Step>,
        unscaled: Option<Box<DeploymentStatus>>,
    ) -> Result<Optional, ReconcileError> {
        for step in steps {
            let is_optional = matches!(step, Step::Update { need: Need::Optional, .. });
            match self.step(step).await {
                Ok(Progress::Continue) => {}
                Ok(Progress::Stop) => break,
                Err(error) if is_optional => {
                    tracing::warn!(key = %self.key, %error, "old ReplicaSet not scaled down; the next sync retries it");
                    self.report_unscaled(unscaled).await?;
                    return Ok(Optional::Failed);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Optional::Succeeded)
    }

    /// Writes the status after a failure of an optional update, if it changed.
    async fn report_unscaled(&mut self, status: Option<Box<DeploymentStatus>>) -> Result<(), ReconcileError> {
        let status = status.map(|status| *status);
        if status.is_none() || status == self.deployment.status {
            return Ok(());
        }
        let reported = Deployment { status, ..self.deployment.clone() };
        self.write_status(&reported).await
    }

    async fn step(&mut self, step: Step) -> Result<Progress, ReconcileError> {
        match step {
            Step::Create(set) => return self.create(&set).await,
            Step::Update { set, resized, .. } => self.update(&set, resized).await?,
            Step::Delete(set) => {
                self.writers.set.delete(self.cx, &set, &DeleteParams::default()).await?;
            }
            Step::WriteStatus(deployment) => self.write_status(&deployment).await?,
            Step::RollBack { deployment, event } => self.roll_back(&deployment, event).await?,
            Step::Record(event) => self.record(&event),
        }
        Ok(Progress::Continue)
    }

    async fn create(&mut self, set: &ReplicaSet) -> Result<Progress, ReconcileError> {
        let error = match self.writers.set.create(self.cx, set).await {
            Ok(written) => {
                if let Some(event) = created(set) {
                    self.record(&event);
                }
                self.sets.insert(name(set).to_owned(), written.object);
                return Ok(Progress::Continue);
            }
            Err(error) => error,
        };
        if was_not_sent(&error) {
            return Err(error.into());
        }
        if is_already_exists(&error) {
            self.resolve_collision(set).await?;
            return Err(error.into());
        }
        if is_namespace_terminating(&error) {
            return Ok(Progress::Stop);
        }
        let message = format!("Failed to create new replica set {:?}: {}", name(set), describe(&error));
        let mut deployment = self.deployment.clone();
        if set_creation_failed(&mut deployment, &message, self.cx.env().wall())
            && let Err(error) = self.write_status(&deployment).await
        {
            // The failed creation is returned; its retry writes the status again.
            tracing::warn!(key = %self.key, %error, "status of a failed rollout not written");
        }
        self.record(&NewEvent::warning("ReplicaSetCreateError", message));
        Err(error.into())
    }

    /// Counts a collision if another object has the name of the new ReplicaSet, so that the next sync uses another
    /// name. A ReplicaSet of this Deployment with the same template is found by the next sync.
    async fn resolve_collision(&mut self, set: &ReplicaSet) -> Result<(), ReconcileError> {
        let key = ObjectKey::namespaced(self.key.namespace().unwrap_or_default(), name(set));
        let Some(found) = self.cached_sets.get(&key)? else {
            return Err(retry(format!("replicaset.apps {:?} not found", name(set))));
        };
        if is_ours(&self.deployment, &found) {
            return Ok(());
        }
        let mut deployment = self.deployment.clone();
        let status = deployment.status.get_or_insert_default();
        let count = status.collision_count.unwrap_or_default().saturating_add(1);
        status.collision_count = Some(count);
        self.write_status(&deployment).await?;
        tracing::info!(key = %self.key, collisions = count, "hash collision detected; using another name");
        Ok(())
    }

    async fn update(&mut self, set: &ReplicaSet, changes: Vec<Resized>) -> Result<(), ReconcileError> {
        let current = self.sets.get(name(set)).map_or(set, Arc::as_ref);
        let written = self.writers.set.update(self.cx, current, |current| {
            current.metadata.annotations.clone_from(&set.metadata.annotations);
            if let (Some(current), Some(set)) = (&mut current.spec, &set.spec) {
                current.replicas = set.replicas;
                current.min_ready_seconds = set.min_ready_seconds;
            }
        });
        let written = written.await?;
        for change in changes {
            self.record(&resized(set, change));
        }
        self.sets.insert(name(set).to_owned(), written.object);
        Ok(())
    }

    /// Writes status and revision. A [`Writer`] sends no annotations with a status.
    async fn write_status(&mut self, planned: &Deployment) -> Result<(), ReconcileError> {
        let mut written = self.deployment.clone();
        written.status.clone_from(&planned.status);
        if let Some(revision) = annotation(&planned.metadata, REVISION) {
            set_revision(&mut written, revision);
        }
        let api = self.cx.api::<Deployment>(self.key);
        let answer = api.replace_status(self.key.name(), &PostParams::default(), &written).await;
        self.deployment = answer.map_err(ReconcileError::from)?;
        Ok(())
    }

    async fn roll_back(
        &mut self,
        planned: &Deployment,
        event: Option<NewEvent>,
    ) -> Result<(), ReconcileError> {
        let template = planned.spec.as_ref().map(|spec| spec.template.clone());
        let written = self.writers.deployment.update(self.cx, &self.deployment, |deployment| {
            deployment.metadata.annotations.clone_from(&planned.metadata.annotations);
            if let (Some(spec), Some(template)) = (&mut deployment.spec, template) {
                spec.template = template;
            }
        });
        self.deployment = (*written.await?.object).clone();
        if let Some(event) = event {
            self.record(&event);
        }
        Ok(())
    }

    fn record(&self, event: &NewEvent) {
        self.cx.events().publish(&self.regarding, event);
    }
}
