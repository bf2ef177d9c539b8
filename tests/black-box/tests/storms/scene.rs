//! One scenario as it runs: a server, a network with its faults, a manager behind it, and a user who is never struck.

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
    wait::{TIMEOUT, eventually_within},
    workload::{Counts, Workload as _},
    world::TestNamespace,
};
use windlass_env::Env;

use crate::{
    evidence::FaultEvidence,
    ground::{Kind, TestServer},
    subject::Subject,
};

/// The ReplicaSet, and the Service before it.
const WEB: &str = "web";
/// How many pods there are at first, and at most.
pub(crate) const FEW: i32 = 3;
pub(crate) const MANY: i32 = 8;
/// How many the user leaves in the end.
const REST: i32 = 2;

/// How often the user does something in each part of a storm, at least.
const ROUNDS: u32 = 3;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(450);

/// How long it may take for everything to come right: who was refused for a while asks again after another while, up
/// to half a minute later.
pub(crate) const RECOVERY: Duration = Duration::from_secs(90);

/// More records than any scenario makes.
const RECORDS: usize = 100_000;

/// A scenario that runs.
pub(crate) struct ScenarioRun {
    pub(crate) ground: TestServer,
    network: Network,
    subject: Subject,
    /// How often the user has done something.
    rounds: u32,
    /// How many pods the user has deleted.
    deleted: usize,
    /// How many pods were given an address.
    addresses: u32,
}

/// What must have been hit this often before a part of a storm is over.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) hits: fn(&FaultEvidence) -> usize,
    pub(crate) enough: usize,
}

/// The ReplicaSet. Its pods have a node from the start, without which no pod could ever be ready, and nobody's kubelet
/// needs time to stop them.
fn set_of_bound_pods() -> ReplicaSet {
    let mut set = ReplicaSet::new(WEB, FEW);
    let pod = set.template_mut().spec.get_or_insert_default();
    pod.node_name = Some("no-such-node".to_owned());
    pod.termination_grace_period_seconds = Some(0);
    set
}

impl ScenarioRun {
    /// A manager that leads and has done a first piece of work: a ReplicaSet and a Service waited for it.
    pub(crate) async fn open(kind: Kind, scenario: &str, request_timeout: Duration) -> Result<Self> {
        let env = Env::system("storms");
        let ground = TestServer::prepare(kind, scenario, &env).await?;
        ground.world.create(&set_of_bound_pods()).await?;
        ground.world.create(&service(WEB, &[80])).await?;
        let network =
            Network::new(&env, ground.server.clone(), FaultPlan::quiet(0), Journal::new(RECORDS, None));
        let subject = Subject::start(&env, &network, &ground.world.namespace, request_timeout)?;
        let mut scene = Self { ground, network, subject, rounds: 0, deleted: 0, addresses: 0 };
        scene.settles(FEW).await?;
        Ok(scene)
    }

    pub(crate) fn world(&self) -> &TestNamespace {
        &self.ground.world
    }

    pub(crate) fn evidence(&self) -> FaultEvidence {
        FaultEvidence::of(&self.network)
    }

    /// The manager's line to the server.
    pub(crate) fn line(&self) -> &Link {
        self.subject.line()
    }

    /// One part of a storm, which takes the place of the part before: `choose` says what goes wrong, request by request
    /// and event by event, until all targets were hit often enough since it began. Meanwhile a user who does not care
    /// for the weather works on.
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

    /// The storm is over.
    pub(crate) fn calm(&self) {
        self.line().inject_fault(|_| None);
    }

    /// The user asks for more pods or deletes one, and pods become ready.
    async fn round(&mut self) -> Result<()> {
        tokio::time::sleep(BETWEEN_ROUNDS).await;
        self.rounds += 1;
        self.scale(FEW.saturating_add_unsigned(self.rounds).min(MANY)).await?;
        if self.rounds % 3 == 1 {
            self.delete_pods(1).await?;
        }
        self.make_pods_ready().await
    }

    /// Asks for so many pods.
    pub(crate) async fn scale(&self, replicas: i32) -> Result<()> {
        self.world().update::<ReplicaSet>(WEB, |set| set.set_desired(replicas)).await.map(drop)
    }

    /// Deletes so many pods, as far as there are any.
    pub(crate) async fn delete_pods(&mut self, count: usize) -> Result<()> {
        for pod in self.pods().await?.into_iter().take(count) {
            self.world().delete::<Pod>(&pod.name_any()).await?;
            self.deleted += 1;
        }
        Ok(())
    }

    /// Plays the kubelet of every pod that is not ready yet.
    pub(crate) async fn make_pods_ready(&mut self) -> Result<()> {
        for pod in self.pods().await?.iter().filter(|pod| address(pod).is_none()) {
            self.addresses += 1;
            let address = format!("10.200.0.{}", self.addresses);
            let world = self.world();
            let name = pod.name_any();
            let ready = world
                .update_status::<Pod>(&name, |pod| pod.status = Some(running(&[&address], Some(true))))
                .await;
            // One that is gone needs no kubelet; who made it go is judged by the count in the end.
            if ready.is_err() && world.find::<Pod>(&name).await?.is_some() {
                ready?;
            }
        }
        Ok(())
    }

    /// Waits until there are so many pods and no more, all ready, and until status and Endpoints say just that.
    pub(crate) async fn settles(&mut self, replicas: i32) -> Result<()> {
        self.settled(replicas).await.with_context(|| format!("{replicas} pods\n{}", self.evidence().story()))
    }

    async fn settled(&mut self, replicas: i32) -> Result<()> {
        let count = usize::try_from(replicas)?;
        eventually_within(RECOVERY, "the wanted pods are there", || self.pods(), |pods| pods.len() == count)
            .await?;
        self.make_pods_ready().await?;
        let told = |set: &ReplicaSet| {
            let Counts { replicas: all, fully_labeled, ready, available, observed_generation, .. } =
                set.counts();
            [all, fully_labeled, ready, available].iter().all(|it| *it == replicas)
                && Some(observed_generation) == set.metadata.generation
        };
        eventually_within(RECOVERY, "the status says so", || self.world().get::<ReplicaSet>(WEB), told)
            .await?;
        let pods: BTreeSet<_> = self.pods().await?.iter().filter_map(address).collect();
        ensure!(pods.len() == count, "{count} pods are wanted, {} are there and have addresses", pods.len());
        eventually_within(
            RECOVERY,
            "the Endpoints are the pods",
            || self.endpoints(),
            |endpoints| *endpoints == pods,
        )
        .await?;
        self.subject.must_run()
    }

    /// The end of every scenario: fewer pods are wanted, not one too many was ever made, and the manager ends.
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
            "{} pods were made and {needed} were needed\n{}",
            made.len(),
            evidence.story()
        );
        for pod in self.pods().await? {
            ensure!(made.contains(&pod.uid().unwrap_or_default()), "who made {}?", pod.name_any());
        }
        self.subject.end().await
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        self.world().pods(LABEL).await
    }

    /// The ready addresses that the Service leads to.
    async fn endpoints(&self) -> Result<BTreeSet<String>> {
        let endpoints = self.world().find::<Endpoints>(WEB).await?;
        let subsets = endpoints.and_then(|it| it.subsets).into_iter().flatten();
        Ok(subsets.flat_map(|it| it.addresses.unwrap_or_default()).map(|it| it.ip).collect())
    }
}

fn address(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.pod_ip.clone()
}
