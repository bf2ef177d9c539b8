//! Revisions: the new ReplicaSet, its annotations, and rollbacks.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use windlass_events::NewEvent;

use super::annotations::{
    Existence, REVISION, ROLLBACK_TO, annotation, last_revision, max_revision, restore, revision,
    rollback_to, set_on_new_set, set_revision,
};
use super::conditions::{self, PROGRESSING, Reason, condition};
use super::plan::{PlanError, Planner, Step};
use super::spec::{min_ready_seconds, name, progress_deadline, size};
use super::template::{equal_ignoring_hash, new_set, template, without_hash};
use crate::shared::non_zero;

/// Event of a rollback to an unknown revision.
const REVISION_NOT_FOUND: &str = "DeploymentRollbackRevisionNotFound";
/// Event of a rollback to the present template.
const TEMPLATE_UNCHANGED: &str = "DeploymentRollbackTemplateUnchanged";
/// Event of a rollback.
const ROLLED_BACK: &str = "DeploymentRollback";

impl Planner {
    /// Updates the annotations of the new ReplicaSet, if it exists, and the revision of the Deployment.
    pub(super) fn sync_revision(&mut self) {
        let Some(index) = self.new else { return };
        let next = max_revision(self.old_sets()).saturating_add(1);
        let mut set = self.sets[index].clone();
        let min_ready = min_ready_seconds(&self.deployment);
        let is_annotated = set_on_new_set(&self.deployment, &mut set, next, Existence::Existing);
        let spec = set.spec.get_or_insert_default();
        if is_annotated || spec.min_ready_seconds.unwrap_or_default() != min_ready {
            if spec.min_ready_seconds.unwrap_or_default() != min_ready {
                // The server raises the generation with each change of the spec.
                set.metadata.generation = set.metadata.generation.map(|it| it.saturating_add(1));
                spec.min_ready_seconds = non_zero(min_ready);
            }
            self.sets[index] = set;
            self.push_update(index, None);
        }
        let set = &self.sets[index];
        let revision = annotation(&set.metadata, REVISION).unwrap_or_default().to_owned();
        let found = format!("Found new replica set {:?}", name(set));
        let mut is_changed = set_revision(&mut self.deployment, &revision);
        let has_deadline = progress_deadline(&self.deployment).is_some();
        let status = self.deployment.status.get_or_insert_default();
        if has_deadline && conditions::get(status, PROGRESSING).is_none() {
            conditions::set(status, condition(PROGRESSING, "True", Reason::FoundNewSet, found, self.now));
            is_changed = true;
        }
        if is_changed {
            self.write_status();
        }
    }

    /// Creates the ReplicaSet of the present template, if it does not exist.
    ///
    /// # Errors
    /// If the template cannot be hashed.
    pub(super) fn ensure_new_set(&mut self) -> Result<(), PlanError> {
        if self.new.is_some() {
            self.sync_revision();
            return Ok(());
        }
        let next = max_revision(self.sets.iter()).saturating_add(1);
        let mut set = new_set(&self.deployment)?;
        let replicas = self.size_of_new_set(0);
        set.spec.get_or_insert_default().replicas = Some(replicas);
        set_on_new_set(&self.deployment, &mut set, next, Existence::New);
        self.push(Step::Create(Box::new(set.clone())));
        let mut is_changed = set_revision(&mut self.deployment, &next.to_string());
        if progress_deadline(&self.deployment).is_some() {
            let message = format!("Created new replica set {:?}", name(&set));
            let created = condition(PROGRESSING, "True", Reason::NewSetCreated, message, self.now);
            conditions::set(self.deployment.status.get_or_insert_default(), created);
            is_changed = true;
        }
        if is_changed {
            self.write_status();
        }
        self.new = Some(self.sets.len());
        self.sets.push(set);
        Ok(())
    }

    /// Restores the template of the requested revision.
    ///
    /// # Errors
    /// If the template cannot be hashed.
    pub(super) fn roll_back(&mut self) -> Result<(), PlanError> {
        let requested = rollback_to(&self.deployment).unwrap_or_default();
        self.ensure_new_set()?;
        let target = if requested == 0 { last_revision(self.sets.iter()) } else { requested };
        if target == 0 {
            self.reject_rollback(REVISION_NOT_FOUND, "Unable to find last revision.");
            return Ok(());
        }
        let new = self.new.map(|index| &self.sets[index]);
        let found = self.old_sets().chain(new).find(|set| revision(set) == Some(target)).cloned();
        match found {
            Some(set) => self.restore_template(&set, target),
            None => self.reject_rollback(REVISION_NOT_FOUND, "Unable to find the revision to rollback to."),
        }
        Ok(())
    }

    fn restore_template(&mut self, set: &ReplicaSet, revision: i64) {
        let name = self.deployment.metadata.name.clone().unwrap_or_default();
        let wanted = set.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
        if equal_ignoring_hash(&template(&self.deployment), &wanted) {
            let note =
                format!("The rollback revision contains the same template as current deployment {name:?}");
            self.reject_rollback(TEMPLATE_UNCHANGED, &note);
            return;
        }
        if let Some(spec) = &mut self.deployment.spec {
            spec.template = without_hash(&wanted);
        }
        restore(&mut self.deployment, set);
        let note = format!("Rolled back deployment {name:?} to revision {revision}");
        self.finish_rollback(Some(NewEvent::normal(ROLLED_BACK, note)));
    }

    /// Records why the template does not change, and removes the request.
    fn reject_rollback(&mut self, reason: &str, note: &str) {
        self.push(Step::Record(NewEvent::warning(reason, note)));
        self.finish_rollback(None);
    }

    fn finish_rollback(&mut self, event: Option<NewEvent>) {
        if let Some(annotations) = &mut self.deployment.metadata.annotations {
            annotations.remove(ROLLBACK_TO);
        }
        self.push(Step::RollBack { deployment: Box::new(self.deployment.clone()), event });
    }
}

/// Returns the event of a created ReplicaSet; `None` if it has no pods yet.
pub(super) fn created(set: &ReplicaSet) -> Option<NewEvent> {
    let note = format!("Scaled up replica set {} from 0 to {}", name(set), size(set));
    (size(set) > 0).then(|| NewEvent::normal("ScalingReplicaSet", note))
}

/// Changes a Deployment after a failed creation of its ReplicaSet. Returns whether the status must be written.
pub(super) fn set_creation_failed(deployment: &mut Deployment, message: &str, now: jiff::Timestamp) -> bool {
    if progress_deadline(deployment).is_none() {
        return false;
    }
    let failed = condition(PROGRESSING, "False", Reason::SetCreateError, message, now);
    conditions::set(deployment.status.get_or_insert_default(), failed);
    true
}

/// Returns whether an existing ReplicaSet with the name of the new one is the new one. Otherwise its name collides.
pub(super) fn is_ours(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
    let found = set.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
    windlass_object::owner::is_controlled_by(&set.metadata, uid)
        && equal_ignoring_hash(&template(deployment), &found)
}
