//! The wires of one world, and the server at their end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use windlass_env::Env;

use super::connection::Bounds;
use super::journal::{Journal, ProcessId, RecordKind};
use super::link::Link;
use super::plan::FaultPlan;
use super::server::Server;
use super::shared::Shared;

/// The wires of one world. Clones are one network.
#[derive(Clone)]
pub struct Network {
    pub(super) shared: Arc<Shared>,
}

impl Network {
    /// Wires before this server. Stale replicas stop when their time has come, in a task of `world`.
    pub fn new(world: &Env, server: Arc<dyn Server>, plan: FaultPlan, journal: Journal) -> Self {
        let shared = Arc::new(Shared::new(world, server, plan, journal));
        shared.keep_stale_replicas();
        Network { shared }
    }

    /// The line of one life of a process: it shares the process's gate, and suffers what the plan says.
    ///
    /// # Panics
    /// If this life has a line already: both would draw the same random numbers.
    pub fn line(&self, sender: &Env) -> Link {
        self.line_within(sender, Duration::MAX)
    }

    /// The same, in a network that delivers fenced writes, and resets, at most `lateness` late: what clocks of different
    /// rates leave between the end of a fence and the end of its lease.
    ///
    /// # Panics
    /// As [`Network::link`].
    pub fn line_within(&self, sender: &Env, lateness: Duration) -> Link {
        Link::new(&self.shared, sender, self.shared.threats(sender), (true, Bounds::within(lateness)))
    }

    /// A line that no fault strikes, for the user who looks on. Its writes are not counted.
    ///
    /// # Panics
    /// As [`Network::link`].
    pub fn reliable_link(&self, sender: &Env) -> Link {
        Link::new(&self.shared, sender, Vec::new(), (false, Bounds::default()))
    }

    /// How many writes left processes so far, without leases and events.
    pub fn writes(&self) -> u64 {
        self.shared.writes()
    }

    /// What goes wrong here.
    pub fn plan(&self) -> &FaultPlan {
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
        self.shared.objects()
    }

    /// Adds a note to the journal.
    pub fn note(&self, who: &Env, text: impl Into<String>) {
        let who = ProcessId { instance: who.instance().into(), life: who.incarnation() };
        self.shared.record(who, RecordKind::Note(text.into()));
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("plan", &self.shared.plan).finish_non_exhaustive()
    }
}
