//! The task that takes part in an election of shards, put aside so that no renewal waits for a worker.
//!
//! Orders and events pass through channels; whoever waits for an answer may be dropped, and the order stands. A Lease is
//! given back beside everything else: what happens to other shards is told while a release hangs.

use std::collections::BTreeMap;
use std::future::Future;

use tokio::sync::{mpsc, oneshot};
use windlass_election::shards::{Proposal, ShardElector, ShardEvent};
use windlass_election::{ElectionError, Written};
use windlass_env::{Aside, Task};
use windlass_object::shard::{Division, HeavyNamespace, ShardId};

/// Who takes part.
pub(super) enum Seat {
    /// Nobody yet.
    Resting(Aside, Box<ShardElector>),
    /// A task does.
    Taken(Taken),
    /// Nobody any more.
    Left,
}

pub(super) struct Taken {
    /// Where the task runs: given up, it would be dropped where it stands.
    _aside: Aside,
    orders: mpsc::UnboundedSender<Order>,
    events: mpsc::UnboundedReceiver<ShardEvent>,
    task: Task<()>,
}

enum Order {
    Release { shard: ShardId, written: Option<Written>, done: oneshot::Sender<Result<(), ElectionError>> },
    Propose { division: Division, heavy: Vec<HeavyNamespace>, done: oneshot::Sender<Proposal> },
    Resign,
    Leave { written: Option<Written>, done: oneshot::Sender<Result<(), ElectionError>> },
}

impl Seat {
    pub(super) fn new(aside: Aside, elector: ShardElector) -> Self {
        Self::Resting(aside, Box::new(elector))
    }

    /// Has a task take part, unless one does or did.
    pub(super) fn take(&mut self, lease: &str) {
        let (aside, elector) = match std::mem::replace(self, Self::Left) {
            Self::Resting(aside, elector) => (aside, elector),
            other => return *self = other,
        };
        let (orders, ordered) = mpsc::unbounded_channel();
        let (told, events) = mpsc::unbounded_channel();
        let task = aside.spawn(format!("election of the shards {lease}"), serve(elector, ordered, told));
        *self = Self::Taken(Taken { _aside: aside, orders, events, task });
    }

    /// What happens next; `None` once nobody takes part any more.
    ///
    /// # Cancel safety
    /// Safe: nothing is lost.
    pub(super) async fn event(&mut self) -> Option<ShardEvent> {
        match self {
            Self::Resting(..) => std::future::pending().await,
            Self::Taken(taken) => taken.events.recv().await,
            Self::Left => None,
        }
    }

    /// Gives a shard back; nothing is answered if nobody takes part any more.
    pub(super) fn release(
        &self,
        shard: ShardId,
        written: Option<Written>,
    ) -> impl Future<Output = Option<Result<(), ElectionError>>> + Send + 'static {
        self.order(move |done| Order::Release { shard, written, done })
    }

    /// Wants this division.
    pub(super) fn propose(
        &self,
        division: Division,
        heavy: Vec<HeavyNamespace>,
    ) -> impl Future<Output = Option<Proposal>> + Send + 'static {
        self.order(move |done| Order::Propose { division, heavy, done })
    }

    /// Acquires nothing any more.
    pub(super) fn resign(&self) {
        if let Self::Taken(taken) = self {
            // Nobody is left who could acquire anything otherwise.
            let _told = taken.orders.send(Order::Resign);
        }
    }

    /// Gives everything back; `None` if nobody is left who could.
    pub(super) async fn leave(&mut self, written: Option<Written>) -> Option<Result<(), ElectionError>> {
        if let Self::Resting(..) = self {
            *self = Self::Left;
            return Some(Ok(()));
        }
        let left = self.order(move |done| Order::Leave { written, done }).await;
        if let Self::Taken(taken) = self {
            // How it ended is in the answer.
            let _ended = (&mut taken.task).await;
        }
        *self = Self::Left;
        left
    }

    /// Gives nothing back. Returns once nobody renews.
    pub(super) async fn abandon(&mut self) {
        if let Self::Taken(taken) = self {
            taken.task.abort();
            // How it ended is no matter here.
            let _ended = (&mut taken.task).await;
        }
        *self = Self::Left;
    }

    fn order<T: Send + 'static>(
        &self,
        order: impl FnOnce(oneshot::Sender<T>) -> Order,
    ) -> impl Future<Output = Option<T>> + Send + 'static {
        let (done, answer) = oneshot::channel();
        if let Self::Taken(taken) = self {
            // If nobody takes it, the answer is that there is none.
            let _ordered = taken.orders.send(order(done));
        }
        async move { answer.await.ok() }
    }
}

/// Takes part until it is told to leave, or nobody listens any more.
async fn serve(
    mut elector: Box<ShardElector>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    told: mpsc::UnboundedSender<ShardEvent>,
) {
    let mut releases = BTreeMap::new();
    loop {
        // Whoever gave an order may have stopped listening: the answer is no matter then.
        tokio::select! {
            biased;
            order = orders.recv() => match order {
                Some(Order::Release { shard, written, done }) => {
                    elector.begin_release(shard, written.as_ref());
                    releases.insert(shard, done);
                }
                Some(Order::Propose { division, heavy, done }) => {
                    let _heard = done.send(elector.propose(division, heavy));
                }
                Some(Order::Resign) => elector.resign(),
                Some(Order::Leave { written, done }) => {
                    let _heard = done.send(elector.leave(written.as_ref()).await);
                    return;
                }
                None => return,
            },
            event = elector.next() => match event {
                ShardEvent::Released { shard, outcome } => {
                    let _heard = releases.remove(&shard).map(|done: oneshot::Sender<_>| done.send(outcome));
                }
                event => if told.send(event).is_err() {
                    return;
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;
    use std::time::Duration;

    use serde_json::json;
    use windlass_api_server::faults::{Plan, Scene, What};
    use windlass_api_server::{ApiServer, ApiServerOptions};
    use windlass_client::RawClient;
    use windlass_election::ElectionConfig;
    use windlass_election::shards::ShardsConfig;
    use windlass_env::Env;
    use windlass_metrics::Metrics;

    use super::*;

    /// On real time, where the task has a thread of its own: under virtual time there is none to be given up.
    #[tokio::test]
    async fn whoever_takes_part_on_a_thread_of_its_own_does_so_until_it_leaves() {
        let env = Env::system("seat");
        let client = kube::Client::new(ApiServer::new(&env, ApiServerOptions::default()), "default");
        let reader = RawClient::new(client.clone(), env.clone());
        let config = ShardsConfig { election: ElectionConfig::new("seat"), shards: NonZeroU16::MIN };
        let elector = ShardElector::new(env.clone(), config, client, reader, &Metrics::new());
        let mut seat = Seat::new(env.aside("seat").expect("a thread"), elector.expect("a valid election"));
        seat.take("windlass");
        let event = env.timeout(Duration::from_secs(60), seat.event()).await;
        assert!(matches!(event, Ok(Some(ShardEvent::Acquired { .. }))), "{event:?}");
        assert!(matches!(seat.leave(None).await, Some(Ok(()))), "it is given back");
    }

    /// While the Lease of one shard is being given back and the server does not answer, another is lost.
    #[tokio::test(start_paused = true)]
    async fn what_happens_to_other_shards_is_told_while_a_release_hangs() {
        const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
        let env = Env::virtual_time(1);
        let scene = Scene::new(&env, Plan { seed: 1, faults: Vec::new() });
        let one = env.incarnation("one", 0);
        let client = kube::Client::new(scene.line(), "default");
        let reader = RawClient::new(client.clone(), one.clone());
        let shards = NonZeroU16::new(2).expect("some");
        let config = ShardsConfig { election: ElectionConfig::new("one"), shards };
        let elector = ShardElector::new(one.clone(), config, client, reader, &Metrics::new());
        let mut seat = Seat::new(one.aside("seat").expect("a thread"), elector.expect("a valid election"));
        seat.take("windlass");
        for _ in 0..2 {
            assert!(matches!(seat.event().await, Some(ShardEvent::Acquired { .. })));
        }
        scene.meddle(|asked| {
            let hangs = asked.name == "windlass-shard-0" && asked.is_write();
            hangs.then_some(What::RequestLost { silently: true })
        });
        let begun = env.now();
        let released = seat.release(ShardId(0), None);
        scene.put(&format!("{LEASES}/windlass-shard-1"), json!({ "spec": { "holderIdentity": "other" } }));
        let event = env.timeout(Duration::from_secs(3), seat.event()).await;
        assert!(matches!(event, Ok(Some(ShardEvent::Lost { shard: ShardId(1), .. }))), "{event:?}");
        assert!(matches!(released.await, Some(Err(_))), "it cannot be given back");
        assert!(env.now().saturating_duration_since(begun) >= Duration::from_secs(9), "and hung until then");
        scene.meddle(|_| None);
        seat.abandon().await;
        one.kill();
    }
}
