//! Plans one sync of a Deployment: the requests, in order, and the time of the next check.
//!
//! The plan works on copies of the objects. Each step changes the copies as its request changes the objects, so that
//! later steps are planned on the expected result. A request that fails ends the sync, except an optional update.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use windlass_events::NewEvent;

use super::annotations::rollback_to;
use super::conditions::{self, PROGRESSING, Reason, condition, has_reason};
use super::spec::{Strategy, history_limit, is_paused, progress_deadline, size, strategy};
use super::status::{Sets, TerminatingMode, calculate, calculate_rollout, check_deadline_in, is_complete};
use super::template::{by_creation, position_of_new_set};
use crate::shared::pod_template::TemplateError;

/// The objects at the start of a sync.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub(super) deployment: Deployment,
    /// The ReplicaSets that the Deployment owns.
    pub(super) sets: Vec<ReplicaSet>,
    /// UIDs of the ReplicaSets with pods that have not terminated.
    pub(super) running: BTreeSet<String>,
    pub(super) terminating: TerminatingMode,
    pub(super) now: Timestamp,
}

/// A request of a sync, or an event.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Create a ReplicaSet.
    Create(Box<ReplicaSet>),
    /// Replace size, minimum ready time and annotations of a ReplicaSet, then record the changes of its size.
    Update { set: Box<ReplicaSet>, resized: Vec<Resized>, need: Need },
    /// Delete an old ReplicaSet.
    Delete(Box<ReplicaSet>),
    /// Write status and revision of the Deployment.
    WriteStatus(Box<Deployment>),
    /// Replace template and annotations of the Deployment, then record the event.
    RollBack { deployment: Box<Deployment>, event: Option<NewEvent> },
    /// Record an event for the Deployment.
    Record(NewEvent),
}

/// Whether a sync needs the success of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Required,
    /// Its failure prevents further optional updates, but not the write of the status: a rollout that cannot scale its
    /// old ReplicaSets down must report this and reach its deadline.
    Optional,
}

/// A changed size of a ReplicaSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resized {
    pub(super) from: i32,
    pub(super) to: i32,
}

/// The steps of a sync.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// The status to write if an optional update fails: with the sizes before these updates.
    pub(super) unscaled: Option<Box<DeploymentStatus>>,
    /// Time until the progress deadline must be checked.
    pub(super) check_in: Option<Duration>,
}

/// A Deployment that cannot be synced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    /// The hash of the template is unknown.
    #[error(transparent)]
    Hash(#[from] TemplateError),
    /// The strategy is not known.
    #[error("unexpected deployment strategy type: {0}")]
    Strategy(String),
}

/// Returns the plan of one sync.
///
/// # Errors
/// [`PlanError`] if the Deployment has an unknown strategy, or a template that cannot be hashed.
pub(super) fn plan(observed: Observed) -> Result<Plan, PlanError> {
    let mut planner = Planner::new(observed);
    planner.sync()?;
    Ok(planner.plan)
}

/// The working copies of a sync.
pub(super) struct Planner {
    pub(super) deployment: Deployment,
    /// Ordered by creation.
    pub(super) sets: Vec<ReplicaSet>,
    /// Position of the ReplicaSet with the present template: the oldest, if there are several.
    pub(super) new: Option<usize>,
    running: BTreeSet<String>,
    terminating: TerminatingMode,
    pub(super) now: Timestamp,
    /// The need for the updates that are planned now.
    pub(super) need: Need,
    plan: Plan,
}

impl Planner {
    pub(super) fn new(observed: Observed) -> Self {
        let Observed { deployment, mut sets, running, terminating, now } = observed;
        sets.sort_by(by_creation);
        let new = position_of_new_set(&deployment, &sets);
        Self { deployment, sets, new, running, terminating, now, need: Need::Required, plan: Plan::default() }
    }

    fn sync(&mut self) -> Result<(), PlanError> {
        if self.selects_everything() {
            self.report_selecting_all();
            return Ok(());
        }
        if self.deployment.metadata.deletion_timestamp.is_some() {
            self.sync_revision();
            self.report();
            return Ok(());
        }
        self.set_paused_condition();
        if is_paused(&self.deployment) {
            self.sync_size();
            return Ok(());
        }
        if rollback_to(&self.deployment).is_some() {
            return self.roll_back();
        }
        self.sync_revision();
        if self.is_scaling_event() {
            self.sync_size();
            return Ok(());
        }
        match strategy(&self.deployment) {
            Strategy::RollingUpdate => self.roll_out(),
            Strategy::Recreate => self.recreate(),
            Strategy::Unknown => {
                let spec = self.deployment.spec.as_ref();
                let found = spec.and_then(|spec| spec.strategy.as_ref()?.type_.clone());
                Err(PlanError::Strategy(found.unwrap_or_default()))
            }
        }
    }

    fn selects_everything(&self) -> bool {
        self.deployment.spec.as_ref().is_some_and(|spec| {
            let selector = &spec.selector;
            selector.match_labels.as_ref().is_none_or(|labels| labels.is_empty())
                && selector.match_expressions.as_ref().is_none_or(|expressions| expressions.is_empty())
        })
    }

    fn report_selecting_all(&mut self) {
        let note = "This deployment is selecting all pods. A non-empty selector is required.";
        self.push(Step::Record(NewEvent::warning("SelectingAll", note)));
        let generation = self.deployment.metadata.generation;
        let status = self.deployment.status.get_or_insert_default();
        if status.observed_generation < generation {
            status.observed_generation = generation;
            self.write_status();
        }
    }

    /// Records a pause or its end, so that the time of a pause does not count for the progress deadline.
    fn set_paused_condition(&mut self) {
        if progress_deadline(&self.deployment).is_none() {
            return;
        }
        let is_paused = is_paused(&self.deployment);
        let status = self.deployment.status.get_or_insert_default();
        let current = conditions::get(status, PROGRESSING);
        if has_reason(current, Reason::DeadlineExceeded) {
            return;
        }
        let was_paused = has_reason(current, Reason::Paused);
        let (reason, message) = match (is_paused, was_paused) {
            (true, false) => (Reason::Paused, "Deployment is paused"),
            (false, true) => (Reason::Resumed, "Deployment is resumed"),
            _ => return,
        };
        conditions::set(status, condition(PROGRESSING, "Unknown", reason, message, self.now));
        self.write_status();
    }

    /// Scales during a pause or after a change of the size, without progress of the rollout.
    fn sync_size(&mut self) {
        self.sync_revision();
        self.scale();
        if is_paused(&self.deployment) && rollback_to(&self.deployment).is_none() {
            self.clean_up();
        }
        self.report();
    }

    /// Replaces the old ReplicaSets step by step.
    fn roll_out(&mut self) -> Result<(), PlanError> {
        self.ensure_new_set()?;
        if !self.grow_new_set() {
            self.plan.unscaled = Some(Box::new(self.with_sets(calculate_rollout)));
            if !self.shrink_old_sets() {
                self.clean_up_if_complete();
            }
        }
        self.report_rollout();
        Ok(())
    }

    /// Replaces the old ReplicaSets when their pods have stopped.
    fn recreate(&mut self) -> Result<(), PlanError> {
        let mut scaled = false;
        for index in self.active_old_sets() {
            scaled |= self.resize(index, 0);
        }
        if scaled || self.old_pods_run() {
            self.report_rollout();
            return Ok(());
        }
        self.ensure_new_set()?;
        self.fill_new_set();
        self.clean_up_if_complete();
        self.report_rollout();
        Ok(())
    }

    /// Returns whether pods of old ReplicaSets exist, according to the ReplicaSets or to the pods.
    fn old_pods_run(&self) -> bool {
        let old: Vec<_> = self.old_sets().collect();
        let counted = old.iter().any(|set| set.status.as_ref().is_some_and(|status| status.replicas > 0));
        let is_running =
            |set: &&ReplicaSet| set.metadata.uid.as_ref().is_some_and(|uid| self.running.contains(uid));
        counted || old.iter().any(is_running)
    }

    fn clean_up_if_complete(&mut self) {
        if is_complete(&self.deployment, &self.deployment.status.clone().unwrap_or_default()) {
            self.clean_up();
        }
    }

    /// Deletes old ReplicaSets without pods, oldest revision first, beyond the history limit.
    fn clean_up(&mut self) {
        let Some(limit) = history_limit(&self.deployment) else { return };
        let mut kept: Vec<_> = self.old_indices();
        kept.retain(|index| self.sets[*index].metadata.deletion_timestamp.is_none());
        let surplus = kept.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        for index in self.by_revision(kept).into_iter().take(surplus) {
            let set = &self.sets[index];
            let status = set.status.clone().unwrap_or_default();
            let is_behind = set.metadata.generation > status.observed_generation;
            if status.replicas == 0 && size(set) == 0 && !is_behind {
                self.push(Step::Delete(Box::new(set.clone())));
            }
        }
    }

    /// Sorts ReplicaSets, which are in the order of their creation, by revision. One with a malformed revision follows
    /// the one that was created before it, because upstream compares it by its creation.
    fn by_revision(&self, mut indices: Vec<usize>) -> Vec<usize> {
        let mut previous = 0;
        let mut revision = |index: &usize| {
            previous = super::annotations::revision(&self.sets[*index]).unwrap_or(previous);
            previous
        };
        let revisions: BTreeMap<usize, i64> = indices.iter().map(|index| (*index, revision(index))).collect();
        indices.sort_by_key(|index| revisions[index]);
        indices
    }

    /// Writes the status, if it changed.
    fn report(&mut self) {
        let status = self.with_sets(calculate);
        if self.deployment.status.as_ref() != Some(&status) {
            self.deployment.status = Some(status);
            self.write_status();
        }
    }

    /// Writes the status with its progress, if it changed; otherwise plans the check of the deadline.
    fn report_rollout(&mut self) {
        let status = self.with_sets(calculate_rollout);
        if self.deployment.status.as_ref() == Some(&status) {
            self.plan.check_in = check_deadline_in(&self.deployment, &status, self.now);
        } else {
            self.deployment.status = Some(status);
            self.write_status();
        }
    }

    fn with_sets<T>(
        &self,
        compute: impl FnOnce(&Deployment, Sets<'_>, TerminatingMode, Timestamp) -> T,
    ) -> T {
        let old: Vec<_> = self.old_sets().collect();
        let new = self.new.map(|index| &self.sets[index]);
        compute(&self.deployment, Sets { new, old: &old }, self.terminating, self.now)
    }

    /// Adds a write of the status. A write that directly follows another replaces it.
    pub(super) fn write_status(&mut self) {
        let written = Step::WriteStatus(Box::new(self.deployment.clone()));
        match self.plan.steps.last_mut() {
            Some(last @ Step::WriteStatus(_)) => *last = written,
            _ => self.plan.steps.push(written),
        }
    }

    pub(super) fn push(&mut self, step: Step) {
        self.plan.steps.push(step);
    }

    /// Adds an update of a ReplicaSet. An update that directly follows another of the same ReplicaSet replaces it.
    pub(super) fn push_update(&mut self, index: usize, resized: Option<Resized>) {
        let set = Box::new(self.sets[index].clone());
        match self.plan.steps.last_mut() {
            Some(Step::Update { set: last, resized: earlier, need })
                if last.metadata.name == set.metadata.name && *need == self.need =>
            {
                earlier.extend(resized);
                *last = set;
            }
            _ => self.plan.steps.push(Step::Update {
                set,
                resized: resized.into_iter().collect(),
                need: self.need,
            }),
        }
    }

    pub(super) fn old_indices(&self) -> Vec<usize> {
        (0..self.sets.len()).filter(|index| Some(*index) != self.new).collect()
    }

    pub(super) fn old_sets(&self) -> impl Iterator<Item = &ReplicaSet> {
        self.sets.iter().enumerate().filter(|(index, _)| Some(*index) != self.new).map(|(_, set)| set)
    }
}
