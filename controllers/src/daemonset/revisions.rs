//! The revisions of a DaemonSet: one for each template.
//!
//! The revision of the present template has the highest number; a rollback raises the number of an old revision. A
//! revision and its pods have the same hash in their labels.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use serde_json::json;
use windlass_controller::{Context, ReconcileError, Writer, retry};
use windlass_gotext::{Numbers, revision_data};
use windlass_object::ObjectKey;

use super::node_pods::target_node;
use super::spec::history_limit;
use crate::shared::history::requests::{Creation, Revisions};
use crate::shared::history::{HistoryLimit, REVISION_LABEL, Revision, has_data, next_number, sort, surplus};
use crate::shared::pod_template::{TemplateError, template_hash};
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// The revisions of a DaemonSet by template.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Split {
    /// The revision of the present template with the highest number.
    pub(super) current: Option<Arc<Revision>>,
    /// Other revisions of the present template. Two concurrent processes can create them.
    pub(super) duplicates: Vec<Arc<Revision>>,
    /// Revisions of other templates, sorted.
    pub(super) old: Vec<Arc<Revision>>,
}

/// Returns the data of the revision of the present template.
///
/// # Errors
/// If the template cannot be encoded.
pub(super) fn data(set: &DaemonSet) -> Result<String, TemplateError> {
    let template = set.spec.as_ref().map(|spec| &spec.template);
    Ok(revision_data(&serde_json::to_value(template)?, Numbers::Integer)?)
}

/// Splits the revisions by their data.
pub(super) fn split(mut revisions: Vec<Arc<Revision>>, data: &str) -> Split {
    sort(&mut revisions);
    let (mut duplicates, old): (Vec<_>, Vec<_>) =
        revisions.into_iter().partition(|revision| has_data(revision, data));
    Split { current: duplicates.pop(), duplicates, old }
}

/// Returns the hash of a revision; empty if it has none.
pub(super) fn hash_of(revision: &Revision) -> &str {
    let labels = revision.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(REVISION_LABEL)).map(String::as_str).unwrap_or_default()
}

/// Returns the old revisions to delete: those beyond the limit that no pod has. Calls `pods` only if there are more
/// revisions than the limit.
pub(super) fn unused(
    set: &DaemonSet,
    old: &[Arc<Revision>],
    pods: impl FnOnce() -> Vec<Arc<PodView>>,
) -> Vec<Arc<Revision>> {
    if old.len() <= usize::try_from(history_limit(set)).unwrap_or_default() {
        return Vec::new();
    }
    let pods = pods();
    let with_node = pods.iter().filter(|pod| target_node(pod).is_some());
    let hashes: BTreeSet<_> = with_node.filter_map(|pod| pod.metadata.labels.get(REVISION_LABEL)).collect();
    let is_in_use = |revision: &Revision| hashes.contains(hash_of(revision));
    surplus(old, is_in_use, HistoryLimit::Total(history_limit(set)))
}

/// The requests about the revisions of one DaemonSet during its sync.
pub(super) struct RevisionSync<'a> {
    pub(super) cx: &'a Context,
    pub(super) key: &'a ObjectKey,
    pub(super) set: &'a DaemonSet,
    pub(super) sets: &'a Writer<DaemonSet>,
    pub(super) revisions: Revisions<'a>,
}

impl RevisionSync<'_> {
    /// Splits the revisions. A revision without a hash receives its name as the hash, because names are unique.
    ///
    /// # Errors
    /// If a request fails, or the template cannot be encoded.
    pub(super) async fn split(&self, mut owned: Vec<Arc<Revision>>) -> Result<Split, ReconcileError> {
        let data = data(self.set).map_err(retry)?;
        for revision in &mut owned {
            let labels = revision.metadata.labels.as_ref();
            if labels.is_none_or(|labels| !labels.contains_key(REVISION_LABEL)) {
                let name = revision.name().to_owned();
                let label = |revision: &mut Revision| {
                    revision.metadata.labels.get_or_insert_default().insert(REVISION_LABEL.to_owned(), name);
                };
                *revision = self.revisions.update(revision, label).await?;
            }
        }
        Ok(split(owned, &data))
    }

    /// Labels all pods with the hash of the current revision, then deletes the duplicate revisions. Returns the pods
    /// with their new labels.
    ///
    /// # Errors
    /// If a request fails.
    pub(super) async fn remove_duplicates(
        &self,
        split: &Split,
        mut pods: Vec<Arc<PodView>>,
    ) -> Result<Vec<Arc<PodView>>, ReconcileError> {
        let Some(current) = split.current.as_ref().filter(|_| !split.duplicates.is_empty()) else {
            return Ok(pods);
        };
        let hash = hash_of(current);
        for pod in pods.iter_mut().filter(|pod| pod.metadata.labels.get(REVISION_LABEL) != Some(hash)) {
            let patch = json!({ "metadata": { "labels": { REVISION_LABEL: hash } } });
            let api = self.cx.api::<PartialObjectMeta<Pod>>(self.key);
            api.patch(pods::name(&pod.metadata), &PatchParams::default(), &Patch::Merge(patch)).await?;
            *pod = Arc::new(with_hash(pod, hash));
        }
        self.revisions.delete(&split.duplicates).await?;
        Ok(pods)
    }

    /// Returns the revision of the present template. Creates it if it is missing, and raises its number above those of
    /// the old revisions.
    ///
    /// # Errors
    /// If a request fails, or the template cannot be encoded.
    pub(super) async fn current(&self, split: &Split) -> Result<Arc<Revision>, ReconcileError> {
        let number = next_number(&split.old);
        match &split.current {
            Some(current) if current.revision < number => self.revisions.renumber(current, number).await,
            Some(current) => Ok(Arc::clone(current)),
            None => self.create(number).await,
        }
    }

    async fn create(&self, number: i64) -> Result<Arc<Revision>, ReconcileError> {
        let template = self.set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
        let collisions = self.set.status.as_ref().and_then(|status| status.collision_count);
        let hash = template_hash(&template, collisions).map_err(retry)?;
        let labels = template.metadata.and_then(|metadata| metadata.labels);
        let data = data(self.set).map_err(retry)?;
        let mut revision = Revision::new(self.set, labels.as_ref(), data, number).map_err(retry)?;
        revision = revision.with_label(REVISION_LABEL, &hash);
        revision.metadata.name = Some(format!("{}-{hash}", self.key.name()));
        match self.revisions.create(&revision).await? {
            Creation::Created(created) => Ok(created),
            Creation::Exists(existing) if has_data(&existing, revision.data()) => Ok(existing),
            Creation::Exists(_) => {
                self.count_collision(collisions).await?;
                Err(retry(format!("controllerrevisions.apps {:?} already exists", revision.name())))
            }
        }
    }

    /// Counts a collision, unless another process has counted it. The next sync then uses another name.
    async fn count_collision(&self, known: Option<i32>) -> Result<(), ReconcileError> {
        let name = self.key.name();
        let Some(live) = self.cx.get_live::<DaemonSet>(self.key).await? else {
            return Err(retry(format!("daemonsets.apps {name:?} not found")));
        };
        let counted = live.status.as_ref().and_then(|status| status.collision_count);
        if counted != known {
            return Err(retry(format!(
                "found a stale collision count ({}, expected {}) of DaemonSet {name:?} while processing; will retry \
                 until it is updated",
                known.unwrap_or_default(),
                counted.unwrap_or_default(),
            )));
        }
        let count = counted.unwrap_or_default().saturating_add(1);
        let change = |set: &mut DaemonSet| set.status.get_or_insert_default().collision_count = Some(count);
        self.sets.update_status(self.cx, &live, change).await?;
        tracing::info!(key = %self.key, collisions = count, "hash collision detected; using another name");
        Ok(())
    }
}

/// Returns a pod with the hash of a revision.
fn with_hash(pod: &PodView, hash: &str) -> PodView {
    let mut pod = pod.clone();
    let others = pod.metadata.labels.iter().filter(|(key, _)| *key != REVISION_LABEL);
    let labels = others.chain([(REVISION_LABEL, hash)]).collect();
    pod.metadata.labels = labels;
    pod
}
