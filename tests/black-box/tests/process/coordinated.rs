//! Coordinated leader election: the API server elects the candidate with the oldest version, and moves the Lease when
//! an older candidate appears. The leading process then finishes its work and exits.

use std::cell::Cell;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use windlass_black_box::audit::{Audit, Write};
use windlass_black_box::control_plane::with_control_plane;
use windlass_black_box::fixtures::LABEL;
use windlass_black_box::implementation::ready;
use windlass_black_box::test_namespace::TestNamespace;
use windlass_black_box::wait::eventually_within;
use windlass_black_box::workload::Workload as _;
use windlass_client::RawClient;
use windlass_election::{CoordinatedConfig, ElectionConfig, ElectionError, Elector, LeaderFence};
use windlass_env::Env;
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess};
use windlass_metrics::Metrics;

/// Timeout of an election. It takes the coordinator some seconds, and a lease duration more after a lost Lease.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The Lease of the binary.
const LEASE: &str = "windlass";

/// Pods of each ReplicaSet.
const PODS: usize = 2;

/// Interval at which ReplicaSets are created.
const ASKED_INTERVAL: Duration = Duration::from_millis(200);

async fn elector(plane: &ControlPlane, lease: &str, identity: &str, version: &str) -> Result<Elector> {
    let (env, client) = (Env::system(identity), plane.client().await);
    let config = ElectionConfig {
        lease_name: lease.to_owned(),
        coordinated: Some(CoordinatedConfig::new(version)),
        ..ElectionConfig::new(identity)
    };
    let raw = RawClient::new(client.clone(), env.clone());
    let fence = LeaderFence::new(env.clone());
    Ok(Elector::new(env, config.resolve("kube-system"), client, raw, fence, &Metrics::new())?)
}

fn quiet() -> ControlPlaneOptions {
    ControlPlaneOptions::default().nodes(0).scheduler(false).upstream_controllers(Vec::<String>::new())
}

/// Returns the options of a control plane with coordinated leader election.
fn electing() -> ControlPlaneOptions {
    quiet()
        .api_server_arg("--feature-gates=CoordinatedLeaderElection=true")
        .api_server_arg("--runtime-config=coordination.k8s.io/v1beta1=true")
}

/// Returns the holder of a Lease, or an empty string.
async fn holder(plane: &ControlPlane, lease: &str) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(plane.client().await, "kube-system");
    let lease = leases.get_opt(lease).await?.unwrap_or_default();
    Ok(lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default())
}

// parity: coordinated-election-lease-candidate
#[tokio::test(flavor = "multi_thread")]
async fn api_server_elects_oldest_candidate_and_moves_lease_to_older_one() -> Result<()> {
    with_control_plane(electing(), async |plane, _| {
        let mut newer = elector(plane, "coordinated", "newer", "1.36.0").await?;
        tokio::time::timeout(TIMEOUT, newer.acquire()).await.context("no replica was elected")??;
        let leases: Api<Lease> = Api::namespaced(plane.client().await, "kube-system");
        let spec = leases.get("coordinated").await?.spec.context("a record")?;
        ensure!(spec.strategy.as_deref() == Some("OldestEmulationVersion"), "{spec:?}");

        let mut older = elector(plane, "coordinated", "older", "1.35.0").await?;
        let mut preferred = newer.preferred();
        let reported = tokio::select! {
            biased;
            lost = newer.hold() => anyhow::bail!("no replica was requested to release it: {lost}"),
            elected = older.acquire() => anyhow::bail!("two lead: {elected:?}"),
            reported = preferred.wait_for(Option::is_some) => reported?,
            () = tokio::time::sleep(TIMEOUT) => anyhow::bail!("the lease was not moved"),
        };
        ensure!(reported.as_deref() == Some("older"), "{reported:?} is preferred");
        ensure!(newer.fence().open_until().is_some(), "there is time left to end the work");
        newer.release(None).await?;
        tokio::time::timeout(TIMEOUT, older.acquire())
            .await
            .context("the older candidate was not elected")??;
        let look = || holder(plane, "coordinated");
        eventually_within(TIMEOUT, "the lease names the older", look, |holder| holder == "older").await?;
        older.release(None).await?;
        Ok(())
    })
    .await
}

/// A process that acts as the user `name`, who has all permissions.
async fn replica(plane: &ControlPlane, name: &str) -> Result<ManagerProcess> {
    let kubeconfig = plane.kubeconfig_for(name, name, Some("system:masters"))?;
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let arguments =
        ["--leader-elect-coordinated", "--kube-api-qps=1000", "--kube-api-burst=1000", &kubeconfig];
    let manager = ManagerProcess::start(plane, &arguments).await?;
    ready(&manager, TIMEOUT).await?;
    Ok(manager)
}

/// ReplicaSets that are created one after the other.
struct Asked {
    namespace: TestNamespace,
    sets: usize,
}

impl Asked {
    async fn ask(&mut self) -> Result<()> {
        self.sets += 1;
        let name = format!("set-{}", self.sets);
        self.namespace.create(&ReplicaSet::new(&name, i32::try_from(PODS)?)).await.map(drop)
    }

    /// Creates ReplicaSets until `during` completes.
    async fn ask_during<T>(&mut self, during: impl Future<Output = Result<T>>) -> Result<T> {
        let over = Cell::new(false);
        let asking = async {
            while !over.get() {
                self.ask().await?;
                tokio::time::sleep(ASKED_INTERVAL).await;
            }
            anyhow::Ok(())
        };
        let during = async {
            let outcome = during.await;
            over.set(true);
            outcome
        };
        let (asked, outcome) = tokio::join!(asking, during);
        asked.and(outcome)
    }

    async fn served(&self) -> Result<()> {
        let all = |pods: &Vec<_>| pods.len() == self.sets * PODS;
        eventually_within(TIMEOUT, "all pods are created", || self.namespace.pods(LABEL), all).await.map(drop)
    }
}

/// Waits until `older` is elected and the leading process has exited, and returns its exit status.
async fn handed_over(older: &mut Elector, leader: &ManagerProcess) -> Result<ExitStatus> {
    let (elected, ended) =
        tokio::join!(tokio::time::timeout(TIMEOUT, older.acquire()), leader.wait_exit(TIMEOUT));
    elected.context("the older candidate was not elected")??;
    ended
}

// parity: test-try-coordinated-renew, coordinated-election-lease-candidate
#[tokio::test(flavor = "multi_thread")]
async fn process_stops_gracefully_when_lease_moves_and_another_takes_over() -> Result<()> {
    with_control_plane(electing(), async |plane, audit| {
        let namespace =
            TestNamespace { client: plane.client().await, namespace: plane.namespace("moved").await? };
        let mut asked = Asked { namespace, sets: 0 };
        let one = replica(plane, "one").await?;
        let look = || holder(plane, LEASE);
        let first = eventually_within(TIMEOUT, "one leads", look, |holder| !holder.is_empty()).await?;
        let two = replica(plane, "two").await?;
        asked.ask().await?;
        asked.served().await?;

        let mut older = elector(plane, LEASE, "older", "0.0.1").await?;
        let status = asked.ask_during(handed_over(&mut older, &one)).await?;
        ensure!(status.code() == Some(1), "it ended with {status}");
        let log = std::fs::read_to_string(one.log())?;
        let said = "kube-system/windlass was handed off to older, which the API server's coordinator prefers";
        ensure!(log.contains(said), "the log does not contain the reason:\n{log}");
        ensure!(two.exited().is_none(), "the standby process must keep running");

        // The older candidate stops renewing its LeaseCandidate.
        older.release(None).await?;
        drop(older);
        let another = |holder: &String| !["", "older", &first].contains(&holder.as_str());
        eventually_within(TIMEOUT, "two leads", look, another).await?;
        asked.ask().await?;
        asked.served().await?;
        two.terminate();
        let status = two.wait_exit(TIMEOUT).await?;
        ensure!(status.success(), "it ended with {status}");
        every_write_was_the_leaders(audit, asked.sets)
    })
    .await
}

/// Checks that the first leader did not write after its release, that the standby did not write before the release by
/// the older candidate, and that each pod was created once.
fn every_write_was_the_leaders(audit: &Audit, sets: usize) -> Result<()> {
    let all = audit.all_writes("")?;
    let releases: Vec<&Write> = all.iter().filter(|write| is_release(write)).collect();
    let [of_one, of_older, of_two] = releases[..] else {
        anyhow::bail!("expected three releases of the Lease: {releases:#?}")
    };
    ensure!(of_one.user.username == "one" && of_two.user.username == "two", "{releases:#?}");
    ensure!(of_older.user.username != "one" && of_older.user.username != "two", "{of_older:#?}");
    let by =
        |user: &'static str| all.iter().filter(move |write| write.user.username == user && is_work(write));
    for (user, from, until) in [("one", None, of_one), ("two", Some(of_older), of_two)] {
        let early = |write: &&Write| {
            from.is_some_and(|from| write.request_received_timestamp < from.request_received_timestamp)
        };
        let late = |write: &&Write| write.stage_timestamp > until.request_received_timestamp;
        let (early, late) = (by(user).find(early), by(user).find(late));
        ensure!(early.is_none() && late.is_none(), "{user} wrote too early {early:#?} or too late {late:#?}");
        ensure!(by(user).count() > 0, "{user} sent no writes");
    }
    let pods = |verb: &str| {
        let done = |write: &&Write| write.verb == verb && write.resource() == "pods" && write.succeeded();
        all.iter().filter(done).count()
    };
    let (made, deleted) = (pods("create"), pods("delete"));
    ensure!((made, deleted) == (sets * PODS, 0), "{made} pods created and {deleted} deleted for {sets} sets");
    Ok(())
}

/// Returns whether a write releases the Lease.
fn is_release(write: &Write) -> bool {
    let lease = &write.response_object;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    write.resource() == "leases"
        && write.succeeded()
        && lease["metadata"]["name"] == LEASE
        && holder.is_empty()
}

/// Returns whether a write belongs to a reconcile. Events, Leases and LeaseCandidates are written in the background.
fn is_work(write: &Write) -> bool {
    !matches!(write.resource(), "leases" | "leasecandidates" | "events")
}

// parity: coordinated-election-lease-candidate
#[tokio::test(flavor = "multi_thread")]
async fn api_server_without_coordinated_election_is_reported_as_error() -> Result<()> {
    with_control_plane(quiet(), async |plane, _| {
        let mut elector = elector(plane, "coordinated", "alone", "1.36.0").await?;
        let refused = tokio::time::timeout(TIMEOUT, elector.acquire()).await.context("it waits")?;
        let Err(refused @ ElectionError::NotCoordinated { .. }) = refused else {
            anyhow::bail!("{refused:?}")
        };
        ensure!(refused.to_string().contains("CoordinatedLeaderElection"), "{refused}");
        Ok(())
    })
    .await
}
