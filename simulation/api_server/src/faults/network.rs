//! The wires of one world, and the server at their end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use serde_json::Value;
use windlass_env::Env;

use super::asked::Asked;
use super::connection::Bounds;
use super::fate::Threat;
use super::journal::{Happening, Journal, Record, Who};
use super::line::Line;
use super::plan::{Fault, Plan, What};
use crate::body::Body;
use crate::rights::{DenialObserver, Grant};
use crate::server::Used;

/// How long a request may be under way that was sent while there was a stale replica.
const UNDER_WAY: Duration = Duration::from_secs(60);

/// What a network needs of the server at its end.
pub trait Server: Send + Sync + 'static {
    /// Answers a request. Its effect takes place while the future is polled.
    fn answer(&self, request: Request<Bytes>) -> BoxFuture<'static, Response<Body>>;

    /// Another replica of this server, whose cache for watches and for lists at version 0 stops at this moment.
    fn stale(&self) -> Arc<dyn Server>;

    /// Every object there is.
    fn objects(&self) -> Vec<Value>;

    /// The revision of the latest write: as long as it is the same, so is every object. A server that has none to tell
    /// is asked for its objects each time.
    fn revision(&self) -> Option<u64> {
        None
    }

    /// Restricts `user` to these grants: see [`ApiServer::restrict`](crate::ApiServer::restrict). `observer` hears of the
    /// denied requests of all restricted users.
    ///
    /// # Panics
    /// Unless the server can enforce them.
    fn restrict(&self, user: &str, grants: Vec<Grant>, observer: DenialObserver) {
        let _ = observer;
        panic!("this server does not enforce the {} rights of {user}", grants.len());
    }

    /// What users did: see [`ApiServer::used`](crate::ApiServer::used). Empty if the server does not record it.
    fn used(&self) -> BTreeSet<Used> {
        BTreeSet::new()
    }
}

/// The wires of one world. Clones are one network.
#[derive(Clone)]
pub struct Network {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    /// Whose time is true, and whose tasks the wires are.
    pub(super) world: Env,
    pub(super) server: Arc<dyn Server>,
    pub(super) plan: Plan,
    pub(super) journal: Journal,
    requests: AtomicU64,
    writes: Mutex<Writes>,
    /// By the fault's place in the plan.
    stale: Mutex<BTreeMap<usize, Arc<dyn Server>>>,
    /// What there was at one revision.
    seen: Mutex<Option<(u64, Arc<Vec<Value>>)>>,
}

#[derive(Default)]
struct Writes {
    all: u64,
    of: BTreeMap<Arc<str>, u64>,
}

impl Network {
    /// Wires before this server. Stale replicas stop when their time has come, in a task of `world`.
    pub fn new(world: &Env, server: Arc<dyn Server>, plan: Plan, journal: Journal) -> Self {
        let shared = Arc::new(Shared {
            world: world.clone(),
            server,
            plan,
            journal,
            requests: AtomicU64::new(0),
            writes: Mutex::default(),
            stale: Mutex::default(),
            seen: Mutex::default(),
        });
        let stopping = shared.plan.faults.iter().enumerate();
        for (index, fault) in stopping.filter(|(_, fault)| fault.what == What::StaleReplica) {
            let replica = Arc::clone(&shared).stale_replica(index, fault.begins(), fault.ends());
            drop(world.spawn("stale replica", replica));
        }
        Network { shared }
    }

    /// The line of one life of a process: it shares the process's gate, and suffers what the plan says.
    ///
    /// # Panics
    /// If this life has a line already: both would draw the same random numbers.
    pub fn line(&self, sender: &Env) -> Line {
        self.line_within(sender, Duration::MAX)
    }

    /// The same, in a network that delivers fenced writes, and resets, at most `lateness` late: what clocks of different
    /// rates leave between the end of a fence and the end of its lease.
    ///
    /// # Panics
    /// As [`Network::line`].
    pub fn line_within(&self, sender: &Env, lateness: Duration) -> Line {
        Line::new(&self.shared, sender, self.shared.threats(sender), (true, Bounds::within(lateness)))
    }

    /// A line that no fault strikes, for the user who looks on. Its writes are not counted.
    ///
    /// # Panics
    /// As [`Network::line`].
    pub fn sound_line(&self, sender: &Env) -> Line {
        Line::new(&self.shared, sender, Vec::new(), (false, Bounds::default()))
    }

    /// How many writes left processes so far, without leases and events.
    pub fn writes(&self) -> u64 {
        self.shared.writes().all
    }

    /// What goes wrong here.
    pub fn plan(&self) -> &Plan {
        &self.shared.plan
    }

    /// The journal of this network.
    pub fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    /// The server at the end.
    pub fn server(&self) -> &Arc<dyn Server> {
        &self.shared.server
    }

    /// Every object there is at the server now.
    pub fn objects(&self) -> Arc<Vec<Value>> {
        let Some(revision) = self.shared.server.revision() else {
            return Arc::new(self.shared.server.objects());
        };
        let mut seen = self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match &*seen {
            Some((at, objects)) if *at == revision => Arc::clone(objects),
            _ => {
                let objects = Arc::new(self.shared.server.objects());
                *seen = Some((revision, Arc::clone(&objects)));
                objects
            }
        }
    }

    /// Adds a note to the journal.
    pub fn note(&self, who: &Env, text: impl Into<String>) {
        let who = Who { instance: who.instance().into(), life: who.life() };
        self.shared.record(who, Happening::Note(text.into()));
    }
}

impl Shared {
    pub(super) fn now(&self) -> Duration {
        self.world.now().since_origin()
    }

    pub(super) fn record(&self, who: Who, what: Happening) {
        self.journal.record(Record { at: self.now(), who, what });
    }

    pub(super) fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts a write; tells whether its sender dies of it, and whether it takes effect nevertheless.
    pub(super) fn count_write(&self, instance: &Arc<str>, asked: &Asked) -> Option<bool> {
        if !asked.is_work() {
            return None;
        }
        let mut writes = self.writes();
        writes.all += 1;
        let all = writes.all;
        let own = writes.of.entry(Arc::clone(instance)).or_default();
        *own += 1;
        let own = *own;
        drop(writes);
        self.plan.faults.iter().find_map(|fault| {
            let What::CrashAtWrite { write, after_effect } = fault.what else { return None };
            let count = if fault.instance.is_some() { own } else { all };
            (fault.concerns(instance) && count == write).then_some(after_effect)
        })
    }

    /// The server that answers, given the stale replica that was drawn.
    pub(super) fn server_for(&self, stale: Option<usize>) -> Arc<dyn Server> {
        let replicas = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        let replica = stale.and_then(|index| replicas.get(&index));
        Arc::clone(replica.unwrap_or(&self.server))
    }

    /// Keeps a replica that stops at `from`, with what there was then, for as long as requests may reach it.
    async fn stale_replica(self: Arc<Self>, index: usize, from: Duration, until: Duration) {
        let replicas = || self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        self.world.sleep_until(windlass_env::Instant::ORIGIN + from).await;
        let replica = self.server.stale();
        replicas().insert(index, replica);
        self.world.sleep_until(windlass_env::Instant::ORIGIN + until + UNDER_WAY).await;
        replicas().remove(&index);
    }

    fn threats(&self, sender: &Env) -> Vec<Threat> {
        let mut taken: BTreeMap<String, u64> = BTreeMap::new();
        let concerned =
            self.plan.faults.iter().enumerate().filter(|(_, fault)| fault.concerns(sender.instance()));
        concerned
            .map(|(index, fault)| {
                // Named after its content, not its place: taking one fault out of a plan leaves the draws of the
                // others alone. Equal faults are told apart by a number.
                let content = fault.to_string();
                let twins = taken.entry(content.clone()).or_default();
                *twins += 1;
                let rng = self.stream(sender, &format!("fault {twins} {content}"));
                Threat { index, fault: Fault::clone(fault), rng }
            })
            .collect()
    }

    /// A stream of the world's, so that the sender's own draws are what they would be without faults.
    pub(super) fn stream(&self, sender: &Env, what: &str) -> windlass_env::Rng {
        self.world.rng(&format!("wire of {}/{}: {what}", sender.instance(), sender.life()))
    }

    fn writes(&self) -> MutexGuard<'_, Writes> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("plan", &self.shared.plan).finish_non_exhaustive()
    }
}
