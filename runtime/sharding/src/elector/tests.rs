//! The elector on an API server in the process: real requests, lists, watches and deletions, in virtual time.

use std::num::NonZeroU16;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use windlass_api_server::{ApiServer, ApiServerOptions};
use windlass_client::{Fence as _, FenceState, RawClient};
use windlass_election::{ElectionConfig, WrittenVersions};
use windlass_env::watch_channel::Receiver;
use windlass_env::{Env, Task};
use windlass_metrics::Metrics;
use windlass_object::shard::{HashRanges, ShardId};
use windlass_object::{GroupResource, ResourceVersion};

use super::{ShardElector, ShardEvent, ShardsOverview};
use crate::{ProposalOutcome, SHARDS_LABEL, ShardsConfig, ShardsConfigError};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn config(identity: &str, shards: u16) -> ShardsConfig {
    let shards = NonZeroU16::new(shards).expect("some");
    ShardsConfig { election: ElectionConfig::new(identity).resolve("kube-system"), shards }
}

fn elector(env: &Env, server: &ApiServer, shards: u16, metrics: &Metrics) -> ShardElector {
    let client = kube::Client::new(server.clone(), "default");
    let raw = RawClient::new(client.clone(), env.clone());
    ShardElector::new(env.clone(), config(env.instance(), shards), client, raw, metrics).expect("valid")
}

/// A process that stops its work on a shard immediately when requested.
struct Process {
    env: Env,
    metrics: Metrics,
    overview: Receiver<ShardsOverview>,
    task: Task<Vec<ShardEvent>>,
    stop: windlass_env::watch_channel::Sender<bool>,
}

impl Process {
    fn start(world: &Env, server: &ApiServer, name: &str, shards: u16) -> Self {
        let (env, metrics) = (world.with_incarnation(name, 0), Metrics::new());
        let mut elector = elector(&env, server, shards, &metrics);
        let overview = elector.overview();
        let (stop, mut stopped) = windlass_env::watch_channel::channel(false);
        let task = env.spawn("shards", async move {
            let mut events = Vec::new();
            loop {
                let event = tokio::select! {
                    biased;
                    _ = stopped.wait_for(|stop| *stop) => break,
                    event = elector.next() => event,
                };
                if let ShardEvent::HandoffRequested { shard } | ShardEvent::Lost { shard, .. } = &event {
                    elector.release(*shard, Some(&written())).await.expect("released");
                }
                events.push(event);
            }
            elector.release_all(Some(&written())).await.expect("left");
            events
        });
        Self { env, metrics, overview, task, stop }
    }

    fn held(&self) -> usize {
        self.overview.get().held.len()
    }
}

fn written() -> WrittenVersions {
    WrittenVersions::from([(GroupResource::new("", "pods"), ResourceVersion::new("7"))])
}

// parity: holder-all-keys
#[tokio::test(start_paused = true)]
async fn processes_share_shards_and_leave_no_lease_behind() {
    let world = Env::virtual_time(1);
    let server = ApiServer::new(&world.with_incarnation("server", 0), ApiServerOptions::default());
    let first = Process::start(&world, &server, "first", 4);
    world.sleep(seconds(5)).await;
    assert_eq!(first.held(), 4);
    let second = Process::start(&world, &server, "second", 4);
    world.sleep(seconds(5)).await;
    assert_eq!((first.held(), second.held()), (2, 2));
    let seen = second.overview.get();
    assert_eq!(seen, ShardsOverview { held: seen.held.clone(), ..first.overview.get() });
    assert_eq!(seen.members.len(), 2);
    assert_eq!(seen.holders.values().flatten().count(), 4);

    first.stop.set(true);
    let events = first.task.await.expect("it ends");
    world.sleep(Duration::from_millis(100)).await;
    assert_eq!(second.held(), 4, "immediately");
    assert_eq!(events.iter().filter(|event| matches!(event, ShardEvent::HandoffRequested { .. })).count(), 2);
    let text = second.metrics.encode();
    for line in [
        "windlass_shards_held{name=\"windlass\"} 4",
        "windlass_shard_members{name=\"windlass\"} 1",
        "windlass_shard_generation{name=\"windlass\"} 1",
        "leader_election_master_status{name=\"windlass-shard-0\"} 1",
    ] {
        assert!(text.contains(line), "{line}");
    }
    assert!(
        first.metrics.encode().contains("windlass_shard_handoff_duration_seconds_count{name=\"windlass\"} 4")
    );

    world.sleep(seconds(30)).await;
    second.stop.set(true);
    let events = second.task.await.expect("it ends");
    let reports = events.iter().filter(|event| match event {
        ShardEvent::Acquired { previous_holder, .. } => previous_holder.written() == Some(&written()),
        ShardEvent::HandoffRequested { .. } | ShardEvent::Lost { .. } | ShardEvent::Released { .. } => false,
    });
    assert_eq!(reports.count(), 4, "each shard has a report of the previous holder");
    let leases: Api<Lease> = Api::namespaced(kube::Client::new(server, "default"), "kube-system");
    let labeled = ListParams::default().labels(&format!("{SHARDS_LABEL}=windlass"));
    let left = leases.list(&labeled).await.expect("listed").items;
    let held = left.iter().filter(|lease| {
        let spec = lease.spec.as_ref().expect("a record");
        let name = lease.metadata.name.as_deref().expect("a name");
        name != "windlass-shards" && spec.holder_identity.as_deref() != Some("")
    });
    assert_eq!(held.count(), 0);
    assert_eq!(left.len(), 6, "the plan, four shards, and one expired membership");
    second.env.kill();
    first.env.kill();
}

#[tokio::test(start_paused = true)]
async fn each_term_has_its_own_fence_that_release_closes() {
    let world = Env::virtual_time(2);
    let server = ApiServer::new(&world.with_incarnation("server", 0), ApiServerOptions::default());
    let mut elector = elector(&world.with_incarnation("one", 0), &server, 1, &Metrics::new());
    let ShardEvent::Acquired { shard, ranges, fence, .. } = elector.next().await else {
        panic!("nothing else can come first")
    };
    assert!(shard == ShardId(0) && ranges == HashRanges::whole());
    assert_eq!(elector.health()(), Ok(()));
    // A call that is dropped repeatedly, at any await, continues.
    for _ in 0..400 {
        assert!(world.timeout(Duration::from_millis(97), elector.next()).await.is_err());
    }
    assert!(matches!(fence.state(), FenceState::Until(at) if at > world.now() + seconds(7)));
    let same = elector.overview().get().shard_map.expect("a plan");
    assert_eq!(elector.propose(same, Vec::new()), ProposalOutcome::Unchanged);
    elector.release(shard, None).await.expect("released");
    assert!(matches!(fence.state(), FenceState::Closed));
    let ShardEvent::Acquired { fence: second, .. } = elector.next().await else { panic!("it is free") };
    assert!(matches!(fence.state(), FenceState::Closed), "the fence of the first term stays closed");
    assert!(matches!(second.state(), FenceState::Until(_)));

    // The elector is not polled any more: the fence closes at its deadline, and the check reports the error.
    world.sleep(seconds(10)).await;
    assert!(matches!(second.state(), FenceState::Closed));
    world.sleep(seconds(26)).await;
    assert!(elector.health()().expect_err("stuck").contains("windlass-shard-*"));
    assert!(matches!(elector.next().await, ShardEvent::Lost { .. }));
    assert_eq!(elector.health()(), Ok(()));
}

#[test]
fn invalid_shards_config_is_rejected_with_its_reason() {
    let mut coordinated = config("me", 4);
    coordinated.election.config.coordinated = Some(windlass_election::CoordinatedConfig::new("1.0.0"));
    assert_eq!(coordinated.validate(), Err(ShardsConfigError::Coordinated));
    assert_eq!(config("me", 257).validate(), Err(ShardsConfigError::TooMany { shards: 257 }));
    let mut long = config("me", 4);
    long.election.config.lease_name = "a".repeat(64);
    assert!(long.validate().expect_err("too long").to_string().contains("63 characters"));
    assert!(config("", 4).validate().is_err());
    assert_eq!(config("me", 256).validate(), Ok(()));
}
