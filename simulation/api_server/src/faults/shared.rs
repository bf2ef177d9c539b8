//! State that the links of one network share: world, server, plan, journal and write count.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use windlass_env::Env;

use super::effects::ActiveFault;
use super::journal::{Journal, ProcessId, Record, RecordKind};
use super::plan::{Fault, FaultAction, FaultPlan, WriteNumber};
use super::request_summary::RequestSummary;
use super::server::Server;

/// Maximum time in flight of a request that was sent while there was a stale replica.
const UNDER_WAY: Duration = Duration::from_secs(60);

/// The shared state of a network.
pub(super) struct NetworkState {
    /// The world, which has the true time and runs the tasks of the links.
    pub(super) world: Env,
    pub(super) server: Arc<dyn Server>,
    pub(super) plan: FaultPlan,
    pub(super) journal: Journal,
    requests: AtomicU64,
    writes: Mutex<Writes>,
    /// Stale replicas by the fault's index in the plan.
    stale: Mutex<BTreeMap<usize, Arc<dyn Server>>>,
    /// Faults of the calls of webhooks.
    webhook_faults: Mutex<Vec<ActiveFault>>,
    /// All objects at one revision.
    last_objects: Mutex<Option<(u64, Arc<Vec<Value>>)>>,
}

#[derive(Default)]
struct Writes {
    all: u64,
    of: BTreeMap<Arc<str>, u64>,
}

impl NetworkState {
    pub(super) fn new(world: &Env, server: Arc<dyn Server>, plan: FaultPlan, journal: Journal) -> Self {
        let stream = |name: &str| world.rng(&format!("webhooks: {name}"));
        let webhook_faults = Mutex::new(activated(&plan, Fault::affects_webhooks, stream));
        NetworkState {
            world: world.clone(),
            server,
            webhook_faults,
            plan,
            journal,
            requests: AtomicU64::new(0),
            writes: Mutex::default(),
            stale: Mutex::default(),
            last_objects: Mutex::default(),
        }
    }

    /// Starts a task for each stale replica of the plan.
    pub(super) fn keep_stale_replicas(self: &Arc<Self>) {
        let stopping = self.plan.faults.iter().enumerate();
        for (index, fault) in stopping.filter(|(_, fault)| fault.action == FaultAction::StaleReplica) {
            let replica = Arc::clone(self).stale_replica(index, fault.begins(), fault.ends());
            drop(self.world.spawn("stale replica", replica));
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.world.now().since_origin()
    }

    pub(super) fn record(&self, process: ProcessId, kind: RecordKind) {
        self.journal.record(Record { at: self.now(), process, kind });
    }

    pub(super) fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of writes.
    pub(super) fn writes(&self) -> u64 {
        self.counts().all
    }

    /// Counts a write and returns its number; `None` for other requests.
    pub(super) fn count_write(&self, instance: &Arc<str>, request: &RequestSummary) -> Option<WriteNumber> {
        if !request.is_work() {
            return None;
        }
        let mut writes = self.counts();
        writes.all += 1;
        let all = writes.all;
        let own = writes.of.entry(Arc::clone(instance)).or_default();
        *own += 1;
        Some(WriteNumber { all, own: *own })
    }

    /// Returns whether a write takes effect before its sender dies with it; `None` if the sender does not die.
    pub(super) fn dies_at(&self, instance: &str, number: WriteNumber) -> Option<bool> {
        self.plan.faults.iter().find_map(|fault| {
            let FaultAction::CrashAtWrite { write, after_effect } = fault.action else { return None };
            (fault.applies_to(instance) && number.for_fault(fault) == write).then_some(after_effect)
        })
    }

    /// Returns all objects of the server.
    pub(super) fn objects(&self) -> Arc<Vec<Value>> {
        let Some(revision) = self.server.revision() else {
            return Arc::new(self.server.objects());
        };
        let mut last_objects = self.last_objects.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last_objects {
            Some((at, objects)) if *at == revision => Arc::clone(objects),
            _ => {
                let objects = Arc::new(self.server.objects());
                *last_objects = Some((revision, Arc::clone(&objects)));
                objects
            }
        }
    }

    /// Returns the server that answers: the stale replica, or the server itself.
    pub(super) fn server_for(&self, stale: Option<usize>) -> Arc<dyn Server> {
        let replicas = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        let replica = stale.and_then(|index| replicas.get(&index));
        Arc::clone(replica.unwrap_or(&self.server))
    }

    /// Keeps a replica that stops at `from` for as long as requests can reach it.
    async fn stale_replica(self: Arc<Self>, index: usize, from: Duration, until: Duration) {
        let replicas = || self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        self.world.sleep_until(windlass_env::Instant::ORIGIN + from).await;
        let replica = self.server.stale();
        replicas().insert(index, replica);
        self.world.sleep_until(windlass_env::Instant::ORIGIN + until + UNDER_WAY).await;
        replicas().remove(&index);
    }

    pub(super) fn active_faults(&self, sender: &Env) -> Vec<ActiveFault> {
        let concerned = |fault: &Fault| fault.applies_to(sender.instance());
        activated(&self.plan, concerned, |name| self.stream(sender, name))
    }

    /// Returns the fault of a call of a webhook that this instance serves, for a request to this resource.
    pub(super) fn webhook_fault(&self, instance: &str, resource: &str) -> Option<FaultAction> {
        let now = self.now();
        let mut faults = self.webhook_faults.lock().unwrap_or_else(PoisonError::into_inner);
        let matches = |fault: &Fault| {
            let is_of = fault.resource.as_deref().is_none_or(|it| it == resource);
            is_of && fault.is_on(now) && fault.applies_to(instance)
        };
        faults.iter_mut().find_map(|it| {
            let is_injected = matches(&it.fault) && it.is_injected_now();
            is_injected.then(|| it.fault.action.clone())
        })
    }

    /// Returns a random-number stream of the world, so that faults do not change the sender's own random numbers.
    pub(super) fn stream(&self, sender: &Env, name: &str) -> windlass_env::Rng {
        self.world.rng(&format!("wire of {}/{}: {name}", sender.instance(), sender.incarnation()))
    }

    fn counts(&self) -> MutexGuard<'_, Writes> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the faults of a plan that satisfy `concerned`, each with its random-number stream.
fn activated(
    plan: &FaultPlan,
    concerned: impl Fn(&Fault) -> bool,
    stream: impl Fn(&str) -> windlass_env::Rng,
) -> Vec<ActiveFault> {
    let mut taken: BTreeMap<String, u64> = BTreeMap::new();
    let faults = plan.faults.iter().enumerate().filter(|(_, fault)| concerned(fault));
    faults
        .map(|(index, fault)| {
            // Named after the content and not the index, so that removing one fault does not change the random
            // numbers of the others. A number distinguishes equal faults.
            let content = fault.to_string();
            let twins = taken.entry(content.clone()).or_default();
            *twins += 1;
            let rng = stream(&format!("fault {twins} {content}"));
            ActiveFault { index, fault: Fault::clone(fault), rng }
        })
        .collect()
}
