//! ControllerRevisions of StatefulSets and DaemonSets: each set here requires another verb.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, StatefulSet};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use windlass_black_box::fixtures::controller_of;
use windlass_black_box::test_namespace::{Kind, TestNamespace};
use windlass_black_box::wait::eventually_within;
use windlass_harness::{ControlPlane, ManagerProcess};

use super::{TIMEOUT, object, owned_by};

/// The next name of its revision is taken: the controller reads the other revision, and counts a collision.
const COLLISION: &str = "collision";
/// Its template is that of an old revision, which receives the highest number.
const ROLLBACK: &str = "rollback";
/// It adopts a revision.
const ADOPT: &str = "adopt-revision";
/// It deletes a revision.
const LIMITED: &str = "limited";

/// A kind with ControllerRevisions.
pub(super) trait RevisionOwner: Kind {
    /// Returns a set without pods, with more fields of its spec.
    fn idle(name: &str, fields: Value) -> Result<Self>;
    /// `status.collisionCount`
    fn collisions(&self) -> Option<i32>;
}

/// Revisions that the controllers created in another namespace. Names and data do not depend on the namespace.
pub(super) struct Samples(Vec<ControllerRevision>);

impl Samples {
    /// Runs both controllers as an administrator until the revisions exist.
    pub(super) async fn record(plane: &ControlPlane) -> Result<Self> {
        let (client, name) = (plane.client().await, plane.namespace("samples").await?);
        let namespace = TestNamespace { client, namespace: name.clone() };
        for set in [COLLISION, ROLLBACK] {
            namespace.create(&StatefulSet::idle(set, json!({}))?).await?;
            namespace.create(&DaemonSet::idle(set, json!({}))?).await?;
        }
        let namespaces = format!("--watch-namespaces={name}");
        let controllers = "--controllers=statefulset-controller,daemonset-controller";
        let _process =
            ManagerProcess::start(plane, &["--leader-elect=false", controllers, &namespaces]).await?;
        let look = || namespace.list::<ControllerRevision>();
        let revisions = eventually_within(TIMEOUT, "the revisions exist", look, |all| all.len() == 4).await?;
        Ok(Self(revisions))
    }

    fn of<S: RevisionOwner>(&self, set: &str) -> Result<&ControllerRevision> {
        let kind = S::kind(&());
        let is_owned = |revision: &&ControllerRevision| {
            controller_of(&revision.metadata).is_some_and(|owner| owner.kind == kind && owner.name == set)
        };
        self.0.iter().find(is_owned).with_context(|| format!("no revision of {kind} {set}"))
    }
}

/// Returns a revision that the selector of the set with this name selects.
fn revision(set: &str, number: i64, data: &Value) -> Result<ControllerRevision> {
    let name = format!("{set}-{number}");
    let labels = json!({ "app": set, "controller-revision-hash": name });
    object(&name, json!({ "metadata": { "labels": labels }, "revision": number, "data": data }))
}

pub(super) async fn prepare<S: RevisionOwner>(namespace: &TestNamespace, samples: &Samples) -> Result<()> {
    let other = json!({ "spec": { "template": { "metadata": { "labels": { "app": "other" } } } } });
    namespace.create(&S::idle(ADOPT, json!({}))?).await?;
    namespace.create(&revision(ADOPT, 1, &other)?).await?;

    let limited = namespace.create(&S::idle(LIMITED, json!({ "revisionHistoryLimit": 0 }))?).await?;
    namespace.create(&owned_by(&limited, revision(LIMITED, 1, &other)?)).await?;

    let rollback = namespace.create(&S::idle(ROLLBACK, json!({}))?).await?;
    let data = json!(samples.of::<S>(ROLLBACK)?.data);
    namespace.create(&owned_by(&rollback, revision(ROLLBACK, 1, &data)?)).await?;
    namespace.create(&owned_by(&rollback, revision(ROLLBACK, 2, &other)?)).await?;

    namespace.create(&S::idle(COLLISION, json!({}))?).await?;
    let taken = samples.of::<S>(COLLISION)?.name_any();
    let foreign = object::<ControllerRevision>(&taken, json!({ "revision": 1, "data": other }))?;
    namespace.create(&foreign).await?;
    Ok(())
}

pub(super) async fn are_done<S: RevisionOwner>(namespace: &TestNamespace) -> Result<bool> {
    let revisions = namespace.list::<ControllerRevision>().await?;
    let find = |set: &str, number: i64| {
        let name = format!("{set}-{number}");
        revisions.iter().find(|revision| revision.name_any() == name)
    };
    let is_adopted = find(ADOPT, 1).is_some_and(|it| controller_of(&it.metadata).is_some());
    let is_deleted = find(LIMITED, 1).is_none();
    let is_renumbered = find(ROLLBACK, 1).is_some_and(|it| it.revision == 3);
    let is_counted = namespace.get::<S>(COLLISION).await?.collisions() == Some(1);
    let is_owned =
        |it: &ControllerRevision| controller_of(&it.metadata).is_some_and(|owner| owner.name == COLLISION);
    let has_other_name = revisions.iter().any(is_owned);
    Ok(is_adopted && is_deleted && is_renumbered && is_counted && has_other_name)
}
