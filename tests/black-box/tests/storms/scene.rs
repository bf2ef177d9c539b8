//! One scenario as it runs: a server, a network with its faults, a manager behind it, and a user who is never struck.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{Endpoints, Pod},
};
use kube::ResourceExt as _;
use windlass_api_server::faults::{Fault, Journal, Network, Plan, What};
use windlass_black_box::{
    fixtures::{LABEL, running, service},
    wait::eventually,
    workload::{Counts, Workload as _},
    world::World,
};
use windlass_env::{Env, Instant};

use crate::{
    evidence::Evidence,
    ground::{Ground, Kind},
    subject::Subject,
};

/// The ReplicaSet, and the Service before it.
const WEB: &str = "web";
/// How many pods there are at first, and at most.
pub(crate) const FEW: i32 = 3;
pub(crate) const MANY: i32 = 8;
/// How many the user leaves in the end.
const REST: i32 = 2;

/// How often the user does something during a storm.
const ROUNDS: i32 = 8;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(450);

/// More records than any scenario makes.
const RECORDS: usize = 100_000;

/// A scenario that runs.
pub(crate) struct Scene {
    pub(crate) ground: Ground,
    network: Network,
    subject: Subject,
    env: Env,
    start: Instant,
    storm_ends: Instant,
    /// How many pods the user has deleted.
    deleted: usize,
    /// How many pods were given an address.
    addresses: u32,
}

/// A fault between two moments, in milliseconds since the manager starts.
pub(crate) fn between(from_ms: u64, until_ms: u64, what: What) -> Fault {
    Fault::during(Duration::from_millis(until_ms), what).from(Duration::from_millis(from_ms))
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

impl Scene {
    /// A manager that starts where a ReplicaSet and a Service wait for it, and these faults.
    pub(crate) async fn open(
        kind: Kind,
        scenario: &str,
        request_timeout: Duration,
        faults: Vec<Fault>,
    ) -> Result<Self> {
        let env = Env::system("storms");
        let ground = Ground::prepare(kind, scenario, &env).await?;
        ground.world.create(&set_of_bound_pods()).await?;
        ground.world.create(&service(WEB, &[80])).await?;

        let start = env.now();
        let since_origin = u64::try_from(start.since_origin().as_millis()).context("uptime")?;
        let later = |fault: Fault| Fault {
            from_ms: fault.from_ms + since_origin,
            until_ms: fault.until_ms + since_origin,
            ..fault
        };
        let plan = Plan { seed: 0, faults: faults.into_iter().map(later).collect() };
        let storm_ends = Instant::ORIGIN + plan.end();
        let network = Network::new(&env, ground.server.clone(), plan, Journal::new(RECORDS, None));
        let subject = Subject::start(&env, &network, &ground.world.namespace, request_timeout)?;
        Ok(Self { ground, network, subject, env, start, storm_ends, deleted: 0, addresses: 0 })
    }

    pub(crate) fn world(&self) -> &World {
        &self.ground.world
    }

    pub(crate) fn evidence(&self) -> Evidence {
        Evidence::of(&self.network)
    }

    /// Waits until so much time has passed since the manager started.
    pub(crate) async fn reach(&self, since_start: Duration) {
        self.env.sleep_until(self.start + since_start).await;
    }

    /// Waits until all faults are over.
    pub(crate) async fn calm(&self) {
        self.env.sleep_until(self.storm_ends).await;
    }

    /// A user who does not care for the weather: from the first fault on asks for more pods and deletes some, and pods
    /// become ready meanwhile.
    pub(crate) async fn busy_user(&mut self) -> Result<()> {
        let first = self.network.plan().faults.iter().map(|fault| fault.from_ms).min().unwrap_or_default();
        self.env.sleep_until(Instant::ORIGIN + Duration::from_millis(first)).await;
        for round in 1..=ROUNDS {
            tokio::time::sleep(BETWEEN_ROUNDS).await;
            self.scale((FEW + round).min(MANY)).await?;
            if round % 3 == 0 {
                self.delete_pods(1).await?;
            }
            self.make_pods_ready().await?;
        }
        Ok(())
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
        eventually("the wanted pods are there", || self.pods(), |pods| pods.len() == count).await?;
        self.make_pods_ready().await?;
        let told = |set: &ReplicaSet| {
            let Counts { replicas: all, fully_labeled, ready, available, observed_generation, .. } =
                set.counts();
            [all, fully_labeled, ready, available].iter().all(|it| *it == replicas)
                && Some(observed_generation) == set.metadata.generation
        };
        eventually("the status says so", || self.world().get::<ReplicaSet>(WEB), told).await?;
        let pods: BTreeSet<_> = self.pods().await?.iter().filter_map(address).collect();
        ensure!(pods.len() == count, "{count} pods are wanted, {} are there and have addresses", pods.len());
        eventually("the Endpoints are the pods", || self.endpoints(), |endpoints| *endpoints == pods).await?;
        self.subject.must_run()
    }

    /// The end of every scenario: fewer pods are wanted, not one too many was ever made, and the manager ends.
    pub(crate) async fn ends(mut self) -> Result<()> {
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
