//! A running scenario: a server, a network with faults, a manager, and a user whose requests have no faults.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{Endpoints, Pod},
};
use kube::ResourceExt as _;
use windlass_api_server::faults::{FaultAction, FaultPlan, Journal, Link, Network, RequestSummary};
use windlass_black_box::{
    fixtures::{LABEL, running, service},
    test_namespace::TestNamespace,
    wait::{TIMEOUT, eventually_within},
    workload::{Counts, Workload as _},
};
use windlass_env::Env;

use crate::{
    evidence::FaultEvidence,
    ground::{Kind, TestServer},
    subject::Subject,
};

/// Name of the ReplicaSet and of its Service.
const WEB: &str = "web";
/// Number of pods at the start.
pub(crate) const FEW: i32 = 3;
/// Maximum number of pods.
pub(crate) const MANY: i32 = 8;
/// Number of pods at the end.
const REST: i32 = 2;

/// Minimum number of user actions in each part of a storm.
const ROUNDS: u32 = 3;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(450);

/// Timeout of the recovery. After repeated failures a retry can wait up to 30 s.
pub(crate) const RECOVERY: Duration = Duration::from_secs(90);

/// Capacity of the journal, larger than any scenario needs.
const RECORDS: usize = 100_000;

/// A running scenario.
pub(crate) struct ScenarioRun {
    pub(crate) ground: TestServer,
    network: Network,
    subject: Subject,
    /// Number of user actions.
    rounds: u32,
    /// Number of pods deleted by the user.
    deleted: usize,
    /// Number of pods that received an address.
    addresses: u32,
}

/// The number of hits that ends a part of a storm.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) hits: fn(&FaultEvidence) -> usize,
    pub(crate) enough: usize,
}

/// Returns the ReplicaSet. Its pods are bound to a node, so that they can become ready, and have no grace period,
/// because no kubelet stops them.
fn set_of_bound_pods() -> ReplicaSet {
    let mut set = ReplicaSet::new(WEB, FEW);
    let pod = set.template_mut().spec.get_or_insert_default();
    pod.node_name = Some("no-such-node".to_owned());
    pod.termination_grace_period_seconds = Some(0);
    set
}

impl ScenarioRun {
    /// Starts a manager and waits until it leads and has reconciled a ReplicaSet and a Service.
    pub(crate) async fn open(kind: Kind, scenario: &str, request_timeout: Duration) -> Result<Self> {
        let env = Env::system("storms");
        let ground = TestServer::prepare(kind, scenario, &env).await?;
        ground.namespace.create(&set_of_bound_pods()).await?;
        ground.namespace.create(&service(WEB, &[80])).await?;
        let network = Network::new(
            &env,
            ground.server.clone(),
            FaultPlan::without_faults(0),
            Journal::new(RECORDS, None),
        );
        let subject = Subject::start(&env, &network, &ground.namespace.namespace, request_timeout)?;
        let mut scene = Self { ground, network, subject, rounds: 0, deleted: 0, addresses: 0 };
        scene.settles(FEW).await?;
        Ok(scene)
    }

    pub(crate) fn namespace(&self) -> &TestNamespace {
        &self.ground.namespace
    }

    pub(crate) fn evidence(&self) -> FaultEvidence {
        FaultEvidence::of(&self.network)
    }

    /// Returns the manager's link to the server.
    pub(crate) fn line(&self) -> &Link {
        self.subject.line()
    }

    /// Runs one part of a storm, which replaces the previous part. `choose` returns the fault of each request and
    /// event. The part ends when all targets have enough hits. Meanwhile the user keeps changing objects.
    pub(crate) async fn storm(
        &mut self,
        choose: impl FnMut(&RequestSummary) -> Option<FaultAction> + Send + 'static,
        targets: &[Target],
    ) -> Result<()> {
        let evidence = self.evidence();
        let wanted: Vec<_> = targets.iter().map(|it| (it, (it.hits)(&evidence) + it.enough)).collect();
        let (began, rounds_before) = (Instant::now(), self.rounds);
        self.line().inject_fault(choose);
        loop {
            self.round().await?;
            let evidence = self.evidence();
            let missed = wanted.iter().find(|(it, wanted)| (it.hits)(&evidence) < *wanted);
            match missed {
                None if self.rounds >= rounds_before + ROUNDS => return Ok(()),
                Some((it, _)) if began.elapsed() > TIMEOUT => {
                    let Target { name, enough, .. } = it;
                    bail!("not {enough} {name} after {TIMEOUT:?}\n{}", evidence.story())
                }
                _ => {}
            }
        }
    }

    /// Stops injecting faults.
    pub(crate) fn calm(&self) {
        self.line().inject_fault(|_| None);
    }

    /// Performs one user action: scales up or deletes a pod. New pods become ready.
    async fn round(&mut self) -> Result<()> {
        tokio::time::sleep(BETWEEN_ROUNDS).await;
        self.rounds += 1;
        self.scale(FEW.saturating_add_unsigned(self.rounds).min(MANY)).await?;
        if self.rounds % 3 == 1 {
            self.delete_pods(1).await?;
        }
        self.make_pods_ready().await
    }

    /// Sets the desired number of pods.
    pub(crate) async fn scale(&self, replicas: i32) -> Result<()> {
        self.namespace().update::<ReplicaSet>(WEB, |set| set.set_desired(replicas)).await.map(drop)
    }

    /// Deletes at most `count` pods.
    pub(crate) async fn delete_pods(&mut self, count: usize) -> Result<()> {
        for pod in self.pods().await?.into_iter().take(count) {
            self.namespace().delete::<Pod>(&pod.name_any()).await?;
            self.deleted += 1;
        }
        Ok(())
    }

    /// Acts as the kubelet for every pod that is not ready.
    pub(crate) async fn make_pods_ready(&mut self) -> Result<()> {
        for pod in self.pods().await?.iter().filter(|pod| address(pod).is_none()) {
            self.addresses += 1;
            let address = format!("10.200.0.{}", self.addresses);
            let namespace = self.namespace();
            let name = pod.name_any();
            let ready = namespace
                .update_status::<Pod>(&name, |pod| pod.status = Some(running(&[&address], Some(true))))
                .await;
            // A deleted pod needs no kubelet; the final count detects wrong deletions.
            if ready.is_err() && namespace.find::<Pod>(&name).await?.is_some() {
                ready?;
            }
        }
        Ok(())
    }

    /// Waits until exactly `replicas` pods exist and are ready, and status and Endpoints match.
    pub(crate) async fn settles(&mut self, replicas: i32) -> Result<()> {
        self.settled(replicas).await.with_context(|| format!("{replicas} pods\n{}", self.evidence().story()))
    }

    async fn settled(&mut self, replicas: i32) -> Result<()> {
        let count = usize::try_from(replicas)?;
        eventually_within(RECOVERY, "the desired pods exist", || self.pods(), |pods| pods.len() == count)
            .await?;
        self.make_pods_ready().await?;
        let is_reported = |set: &ReplicaSet| {
            let Counts { replicas: all, fully_labeled, ready, available, observed_generation, .. } =
                set.counts();
            [all, fully_labeled, ready, available].iter().all(|it| *it == replicas)
                && Some(observed_generation) == set.metadata.generation
        };
        eventually_within(
            RECOVERY,
            "the status matches",
            || self.namespace().get::<ReplicaSet>(WEB),
            is_reported,
        )
        .await?;
        let pods: BTreeSet<_> = self.pods().await?.iter().filter_map(address).collect();
        ensure!(pods.len() == count, "{count} pods are desired, {} exist and have addresses", pods.len());
        eventually_within(
            RECOVERY,
            "the Endpoints match the pods",
            || self.endpoints(),
            |endpoints| *endpoints == pods,
        )
        .await?;
        self.subject.must_run()
    }

    /// Ends a scenario: scales down, checks that no unneeded pod was created, and stops the manager.
    pub(crate) async fn ends(mut self) -> Result<()> {
        self.scale(MANY).await?;
        self.settles(MANY).await?;
        self.scale(REST).await?;
        self.settles(REST).await?;

        let evidence = self.evidence();
        let made = evidence.pods_made();
        let needed = usize::try_from(MANY)? + self.deleted;
        ensure!(
            made.len() == needed,
            "{} pods were created and {needed} were needed\n{}",
            made.len(),
            evidence.story()
        );
        for pod in self.pods().await? {
            ensure!(
                made.contains(&pod.uid().unwrap_or_default()),
                "{} was not created through the network",
                pod.name_any()
            );
        }
        self.subject.end().await
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        self.namespace().pods(LABEL).await
    }

    /// Returns the ready addresses of the Service.
    async fn endpoints(&self) -> Result<BTreeSet<String>> {
        let endpoints = self.namespace().find::<Endpoints>(WEB).await?;
        let subsets = endpoints.and_then(|it| it.subsets).into_iter().flatten();
        Ok(subsets.flat_map(|it| it.addresses.unwrap_or_default()).map(|it| it.ip).collect())
    }
}

fn address(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.pod_ip.clone()
}
