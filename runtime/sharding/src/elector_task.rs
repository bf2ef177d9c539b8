//! The task that runs a [`ShardElector`], on a dedicated thread so that no renewal waits for a worker.
//!
//! Commands and events pass through channels. A caller that drops a reply does not cancel the command. A release does
//! not delay the events of other shards.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;

use tokio::sync::{mpsc, oneshot};
use windlass_election::{ElectionError, WrittenVersions};
use windlass_env::{DedicatedRuntime, Task};
use windlass_object::shard::{HeavyNamespace, ShardId, ShardMap};

use crate::elector::ShardElector;
use crate::engine::ProposalOutcome;
use crate::event::ShardEvent;

/// The state of the task.
pub enum ShardElectorTask {
    /// The task has not started.
    Idle(DedicatedRuntime, Box<ShardElector>),
    /// The task runs.
    Running(RunningElector),
    /// The task has exited.
    Exited,
}

/// A running task.
pub struct RunningElector {
    /// The thread of the task. Dropping it would cancel the task.
    _thread: DedicatedRuntime,
    commands: mpsc::UnboundedSender<Command>,
    events: mpsc::UnboundedReceiver<ShardEvent>,
    task: Task<()>,
}

type Reply<T> = oneshot::Sender<T>;

enum Command {
    Release { shard: ShardId, written: Option<WrittenVersions>, reply: Reply<Result<(), ElectionError>> },
    Propose { shard_map: ShardMap, heavy: Vec<HeavyNamespace>, reply: Reply<ProposalOutcome> },
    StopAcquiring,
    ReleaseAll { written: Option<WrittenVersions>, reply: Reply<Result<(), ElectionError>> },
}

impl ShardElectorTask {
    /// Returns a task that has not started.
    pub fn new(thread: DedicatedRuntime, elector: ShardElector) -> Self {
        Self::Idle(thread, Box::new(elector))
    }

    /// Starts the task, once.
    pub fn start(&mut self, lease: &str) {
        let (thread, elector) = match std::mem::replace(self, Self::Exited) {
            Self::Idle(thread, elector) => (thread, elector),
            other => return *self = other,
        };
        let (commands, received) = mpsc::unbounded_channel();
        let (sender, events) = mpsc::unbounded_channel();
        let task = thread.spawn(format!("election of the shards {lease}"), run(elector, received, sender));
        *self = Self::Running(RunningElector { _thread: thread, commands, events, task });
    }

    /// Waits for the next event; `None` once the task has exited.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub async fn event(&mut self) -> Option<ShardEvent> {
        match self {
            Self::Idle(..) => std::future::pending().await,
            Self::Running(running) => running.events.recv().await,
            Self::Exited => None,
        }
    }

    /// Releases a shard; the reply is `None` if the task has exited.
    pub fn release(
        &self,
        shard: ShardId,
        written: Option<WrittenVersions>,
    ) -> impl Future<Output = Option<Result<(), ElectionError>>> + Send + 'static {
        self.send(move |reply| Command::Release { shard, written, reply })
    }

    /// Proposes a division; the reply is `None` if the task has exited.
    pub fn propose(
        &self,
        shard_map: ShardMap,
        heavy: Vec<HeavyNamespace>,
    ) -> impl Future<Output = Option<ProposalOutcome>> + Send + 'static {
        self.send(move |reply| Command::Propose { shard_map, heavy, reply })
    }

    /// Acquires no more shards.
    pub fn stop_acquiring(&self) {
        if let Self::Running(running) = self {
            // A task that has exited acquires nothing.
            let _sent = running.commands.send(Command::StopAcquiring);
        }
    }

    /// Releases all shards and waits until the task has exited; `None` if it had exited before.
    pub async fn release_all(
        &mut self,
        written: Option<WrittenVersions>,
    ) -> Option<Result<(), ElectionError>> {
        if let Self::Idle(..) = self {
            *self = Self::Exited;
            return Some(Ok(()));
        }
        let released = self.send(move |reply| Command::ReleaseAll { written, reply }).await;
        if let Self::Running(running) = self {
            // The reply contains the outcome.
            let _exited = (&mut running.task).await;
        }
        *self = Self::Exited;
        released
    }

    /// Aborts the task and releases nothing. Returns once no Lease is renewed.
    pub async fn abort(&mut self) {
        if let Self::Running(running) = self {
            running.task.abort();
            // The outcome of an aborted task is not needed.
            let _exited = (&mut running.task).await;
        }
        *self = Self::Exited;
    }

    fn send<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> impl Future<Output = Option<T>> + Send + 'static {
        let (reply, replied) = oneshot::channel();
        if let Self::Running(running) = self {
            // If the task has exited, the dropped sender is the reply.
            let _sent = running.commands.send(command(reply));
        }
        async move { replied.await.ok() }
    }
}

/// Runs the elector until it has released all shards, or the receiver of its events is dropped.
async fn run(
    mut elector: Box<ShardElector>,
    mut commands: mpsc::UnboundedReceiver<Command>,
    events: mpsc::UnboundedSender<ShardEvent>,
) {
    let mut releases: BTreeMap<ShardId, Reply<_>> = BTreeMap::new();
    loop {
        // The receiver of a reply can have been dropped.
        tokio::select! {
            biased;
            command = commands.recv() => match command {
                Some(Command::Release { shard, written, reply }) => {
                    elector.begin_release(shard, written.as_ref());
                    releases.insert(shard, reply);
                }
                Some(Command::Propose { shard_map, heavy, reply }) => {
                    let _received = reply.send(elector.propose(shard_map, heavy));
                }
                Some(Command::StopAcquiring) => elector.stop_acquiring(),
                Some(Command::ReleaseAll { written, reply }) => {
                    let _received = reply.send(elector.release_all(written.as_ref()).await);
                    return;
                }
                None => return,
            },
            event = elector.next() => match event {
                ShardEvent::Released { shard, outcome } => {
                    let _received = releases.remove(&shard).map(|reply| reply.send(outcome));
                }
                event => if events.send(event).is_err() {
                    return;
                },
            },
        }
    }
}

impl fmt::Debug for ShardElectorTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle(..) => "ShardElectorTask(idle)",
            Self::Running(_) => "ShardElectorTask(running)",
            Self::Exited => "ShardElectorTask(exited)",
        })
    }
}

impl fmt::Debug for RunningElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningElector").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;
    use std::time::Duration;

    use serde_json::json;
    use windlass_api_server::faults::{FaultAction, FaultPlan, FaultyServer};
    use windlass_api_server::{ApiServer, ApiServerOptions};
    use windlass_client::RawClient;
    use windlass_election::ElectionConfig;
    use windlass_env::Env;
    use windlass_metrics::Metrics;

    use super::*;
    use crate::config::ShardsConfig;

    /// Uses real time, because dedicated threads exist only there.
    #[tokio::test]
    async fn task_on_its_own_thread_runs_until_it_releases_all() {
        let env = Env::system("seat");
        let client = kube::Client::new(ApiServer::new(&env, ApiServerOptions::default()), "default");
        let reader = RawClient::new(client.clone(), env.clone());
        let config = ShardsConfig {
            election: ElectionConfig::new("seat").resolve("kube-system"),
            shards: NonZeroU16::MIN,
        };
        let elector = ShardElector::new(env.clone(), config, client, reader, &Metrics::new());
        let mut task = ShardElectorTask::new(
            env.dedicated_runtime("seat").expect("a thread"),
            elector.expect("a valid election"),
        );
        task.start("windlass");
        let event = env.timeout(Duration::from_secs(60), task.event()).await;
        assert!(matches!(event, Ok(Some(ShardEvent::Acquired { .. }))), "{event:?}");
        assert!(matches!(task.release_all(None).await, Some(Ok(()))), "it is released");
    }

    /// While the release of one shard waits for the server, another shard is lost.
    #[tokio::test(start_paused = true)]
    async fn events_of_other_shards_arrive_while_release_hangs() {
        const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
        let env = Env::virtual_time(1);
        let scene = FaultyServer::new(&env, FaultPlan { seed: 1, faults: Vec::new() });
        let one = env.with_incarnation("one", 0);
        let client = kube::Client::new(scene.link(), "default");
        let reader = RawClient::new(client.clone(), one.clone());
        let shards = NonZeroU16::new(2).expect("some");
        let config = ShardsConfig { election: ElectionConfig::new("one").resolve("kube-system"), shards };
        let elector = ShardElector::new(one.clone(), config, client, reader, &Metrics::new());
        let mut task = ShardElectorTask::new(
            one.dedicated_runtime("seat").expect("a thread"),
            elector.expect("a valid election"),
        );
        task.start("windlass");
        for _ in 0..2 {
            assert!(matches!(task.event().await, Some(ShardEvent::Acquired { .. })));
        }
        scene.inject_fault(|request| {
            let hangs = request.name == "windlass-shard-0" && request.is_write();
            hangs.then_some(FaultAction::RequestLost { silently: true })
        });
        let begun = env.now();
        let released = task.release(ShardId(0), None);
        scene.upsert(&format!("{LEASES}/windlass-shard-1"), json!({ "spec": { "holderIdentity": "other" } }));
        let event = env.timeout(Duration::from_secs(3), task.event()).await;
        assert!(matches!(event, Ok(Some(ShardEvent::Lost { shard: ShardId(1), .. }))), "{event:?}");
        assert!(matches!(released.await, Some(Err(_))), "it cannot be released");
        assert!(env.now().saturating_duration_since(begun) >= Duration::from_secs(9), "and hung until then");
        scene.inject_fault(|_| None);
        task.abort().await;
        one.kill();
    }
}
