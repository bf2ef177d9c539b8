//! Plays a script against one subject and records the objects after every step.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{Pod, PodSpec, Service},
};
use kube::{
    ResourceExt,
    api::{DeleteParams, PropagationPolicy},
};
use windlass_black_box::{
    fixtures::{self, controller_of, pairs, running, service},
    test_namespace::TestNamespace,
    wait::TIMEOUT,
    workload::Workload as _,
};

use crate::{
    observe::{COST, Observed, RANK, is_active, rank_of},
    script::{Knowledge, KnownPod, Operation, Script},
};

/// Time without writes, after convergence, that counts as quiet. Upstream reacts 100 times faster.
const QUIET: Duration = Duration::from_millis(300);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// One step of a recording.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) operation: Operation,
    pub(crate) namespace: BTreeMap<String, String>,
}

/// Plays `steps` operations, generated from `seed`, in `namespace`.
pub(crate) async fn play(namespace: &TestNamespace, seed: u64, steps: usize) -> Result<Vec<Step>> {
    let mut player = Player { namespace, known: Knowledge::default(), names: BTreeMap::new(), ranked: 0 };
    let mut script = Script::new(seed);
    let mut recording = Vec::new();
    for _ in 0..steps {
        let operation = script.next(&player.known);
        player.perform(&operation).await?;
        let observed = player.settle(&operation).await?;
        recording.push(Step { operation, namespace: observed.normalised() });
    }
    Ok(recording)
}

struct Player<'a> {
    namespace: &'a TestNamespace,
    known: Knowledge,
    /// Real names by rank.
    names: BTreeMap<String, String>,
    /// Number of assigned ranks.
    ranked: u32,
}

impl Player<'_> {
    async fn perform(&mut self, operation: &Operation) -> Result<()> {
        match operation {
            Operation::CreateSet { app, replicas } => self.create_set(app, *replicas).await,
            Operation::Scale { app, replicas } => self.scale(app, *replicas).await,
            Operation::OrphanSet { app } => self.orphan_set(app).await,
            Operation::RelabelTemplate { app, tier } => self.relabel_template(app, tier).await,
            Operation::CreatePod { app } => self.create_pod(app).await,
            Operation::DeletePod { rank } => self.namespace.delete::<Pod>(&self.names[rank]).await,
            Operation::RelabelPod { rank, app } => self.relabel_pod(rank, *app).await,
            Operation::SetReady { rank, ready } => self.set_ready(rank, *ready).await,
            Operation::Fail { rank } => self.fail(rank).await,
            Operation::CreateService { app, publish_not_ready } => {
                self.create_service(app, *publish_not_ready).await
            }
            Operation::DeleteService { app } => self.delete_service(app).await,
        }
    }

    async fn create_set(&mut self, app: &'static str, replicas: i32) -> Result<()> {
        let mut set = ReplicaSet::new(app, replicas);
        let labels = Some(pairs(&[("app", app)]));
        set.spec.get_or_insert_default().selector.match_labels = labels.clone();
        let template = set.template_mut();
        template.metadata.get_or_insert_default().labels = labels;
        bind(template.spec.get_or_insert_default());
        self.namespace.create(&set).await?;
        self.known.sets.insert(app, replicas);
        Ok(())
    }

    async fn scale(&mut self, app: &'static str, replicas: i32) -> Result<()> {
        self.namespace.update::<ReplicaSet>(app, |set| set.set_desired(replicas)).await?;
        self.known.sets.insert(app, replicas);
        Ok(())
    }

    async fn orphan_set(&mut self, app: &'static str) -> Result<()> {
        let orphan =
            DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
        self.namespace.api::<ReplicaSet>().delete(app, &orphan).await?;
        self.known.sets.remove(app);
        Ok(())
    }

    async fn relabel_template(&mut self, app: &str, tier: &str) -> Result<()> {
        let labels = pairs(&[("app", app), ("tier", tier)]);
        self.namespace
            .update::<ReplicaSet>(app, |set| {
                set.template_mut().metadata.get_or_insert_default().labels = Some(labels.clone());
            })
            .await?;
        Ok(())
    }

    async fn create_pod(&mut self, app: &str) -> Result<()> {
        self.ranked += 1;
        let rank = format!("made-{}", self.ranked);
        let mut pod = fixtures::pod(&rank);
        pod.metadata.labels = Some(pairs(&[("app", app)]));
        pod.metadata.annotations = Some(self.marks(&rank));
        bind(pod.spec.get_or_insert_default());
        self.namespace.create(&pod).await?;
        Ok(())
    }

    async fn relabel_pod(&mut self, rank: &str, app: Option<&'static str>) -> Result<()> {
        let labels = pairs(&[("app", app.unwrap_or("elsewhere"))]);
        self.namespace
            .update::<Pod>(&self.names[rank], |pod| pod.metadata.labels = Some(labels.clone()))
            .await?;
        Ok(())
    }

    async fn set_ready(&mut self, rank: &str, ready: bool) -> Result<()> {
        let ip = address_of(rank);
        self.namespace
            .update_status::<Pod>(&self.names[rank], |pod| pod.status = Some(running(&[&ip], Some(ready))))
            .await?;
        self.known.pods.entry(rank.to_owned()).or_default().ready = ready;
        Ok(())
    }

    async fn fail(&mut self, rank: &str) -> Result<()> {
        self.namespace
            .update_status::<Pod>(&self.names[rank], |pod| {
                pod.status.get_or_insert_default().phase = Some("Failed".to_owned());
            })
            .await?;
        self.known.pods.entry(rank.to_owned()).or_default().failed = true;
        Ok(())
    }

    async fn create_service(&mut self, app: &'static str, publish_not_ready: bool) -> Result<()> {
        let mut made = service(app, &[80]);
        let spec = made.spec.get_or_insert_default();
        spec.selector = Some(pairs(&[("app", app)]));
        spec.publish_not_ready_addresses = Some(publish_not_ready);
        self.namespace.create(&made).await?;
        self.known.services.insert(app, publish_not_ready);
        Ok(())
    }

    async fn delete_service(&mut self, app: &'static str) -> Result<()> {
        self.namespace.delete::<Service>(app).await?;
        self.known.services.remove(app);
        Ok(())
    }

    /// Waits for quiet, assigns ranks to new pods, waits for quiet again, and records the objects.
    async fn settle(&mut self, operation: &Operation) -> Result<Observed> {
        loop {
            let observed = self.quiet(operation).await?;
            if !self.rank_new_pods(&observed).await? {
                self.take_stock(&observed);
                return Ok(observed);
            }
        }
    }

    async fn quiet(&self, operation: &Operation) -> Result<Observed> {
        let started = Instant::now();
        let mut last = Observed::now(self.namespace).await?;
        let mut quiet_since = Instant::now();
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let observed = Observed::now(self.namespace).await?;
            if observed.fingerprint() != last.fingerprint() || !self.is_settled(&observed) {
                quiet_since = Instant::now();
            }
            last = observed;
            if quiet_since.elapsed() >= QUIET {
                return Ok(last);
            }
            if started.elapsed() > TIMEOUT {
                bail!("after {operation:?} the objects did not come to rest: {:#?}", last.normalised());
            }
        }
    }

    /// Returns whether the objects have settled: ReplicaSets have their pods, deleted ReplicaSets are gone and their
    /// pods released, and every Service has its Endpoints.
    fn is_settled(&self, observed: &Observed) -> bool {
        let sets: Vec<String> = observed.sets.iter().map(ResourceExt::name_any).collect();
        let endpoints: Vec<String> = observed.endpoints.iter().map(ResourceExt::name_any).collect();
        let uids: Vec<_> = observed.sets.iter().filter_map(ResourceExt::uid).collect();
        let owners_live = observed
            .pods
            .iter()
            .filter_map(|pod| controller_of(&pod.metadata))
            .all(|owner| uids.contains(&owner.uid));
        observed.has_converged()
            && owners_live
            && sets == self.known.sets.keys().copied().collect::<Vec<_>>()
            && endpoints == self.known.services.keys().copied().collect::<Vec<_>>()
            && observed.pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_none())
    }

    /// Assigns ranks to new pods. A controller created them, and they differ only in their names.
    async fn rank_new_pods(&mut self, observed: &Observed) -> Result<bool> {
        let mut any = false;
        for pod in observed.pods.iter().filter(|pod| !pod.annotations().contains_key(RANK)) {
            self.ranked += 1;
            let owner = controller_of(&pod.metadata).map(|owner| owner.name.clone()).unwrap_or_default();
            let marks = self.marks(&format!("{owner}-{}", self.ranked));
            self.namespace
                .update::<Pod>(&pod.name_any(), |pod| {
                    pod.metadata.annotations = Some(marks.clone());
                })
                .await?;
            any = true;
        }
        Ok(any)
    }

    fn marks(&self, rank: &str) -> BTreeMap<String, String> {
        pairs(&[(RANK, rank), (COST, &self.ranked.to_string())])
    }

    fn take_stock(&mut self, observed: &Observed) {
        let mut before = std::mem::take(&mut self.known.pods);
        self.names = observed.pods.iter().map(|pod| (rank_of(pod), pod.name_any())).collect();
        for pod in &observed.pods {
            let rank = rank_of(pod);
            let known = before.remove(&rank).unwrap_or(KnownPod { ready: false, failed: !is_active(pod) });
            self.known.pods.insert(rank, known);
        }
    }
}

/// Binds pods to a node without a kubelet, without a grace period: only the script changes them, and they are deleted
/// immediately.
fn bind(spec: &mut PodSpec) {
    spec.node_name = Some("no-such-node".to_owned());
    spec.termination_grace_period_seconds = Some(0);
}

/// Returns an address derived from a rank, so that equal ranks have equal addresses in every run.
fn address_of(rank: &str) -> String {
    let number: u32 = rank.rsplit('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(0);
    format!("10.9.{}.{}", number / 250, number % 250 + 1)
}
