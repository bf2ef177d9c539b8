//! A simulated world of engines: a server of Leases, a network, clocks that run at different rates, processes that
//! crash and pause, and checks that compare all fences in true time.
//!
//! Everything is an event at a point of true time, in microseconds. A request belongs to the network once it is sent:
//! it takes effect even if its sender has crashed.

mod checks;
mod network;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use windlass_election::lease::{LeaseParams, TimePoint};
use windlass_election::{ElectionConfig, PreviousHolder, WrittenVersions};
use windlass_env::{Env, Instant, Rng};
use windlass_object::shard::{HashRanges, ShardId};
use windlass_object::{GroupResource, ResourceVersion};

use self::network::Watcher;
use self::server::Server;
use crate::engine::{Effect, Engine, LeaseUpdate, ListWatchState, Request, RequestTarget, Response};

pub(super) const SECOND: u64 = 1_000_000;
pub(super) const MILLI: u64 = 1_000;

/// The maximum time from sending a request until it arrives.
const LATEST: u64 = 16 * SECOND;

/// The time after which all replicas have detected a crash: a lease duration by the slowest clock, and a few requests.
const MISSED: u64 = 20 * SECOND;

/// The condition of the link between a replica and the server.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// A few milliseconds each way.
    Good,
    /// Responses are late, and some are lost.
    ResponsesLate,
    /// Requests arrive later than any deadline, and some are lost.
    RequestsLate,
    /// All requests and responses are lost, and watch events are never repeated.
    Cut,
}

/// One process.
pub(super) struct Replica {
    pub(super) name: String,
    pub(super) engine: Engine,
    pub(super) alive: bool,
    pub(super) wire: Wire,
    rate: (u64, u64),
    paused_until: u64,
    watch: Option<u64>,
    wake: u64,
    pub(super) fences: BTreeMap<ShardId, Fence>,
    /// The term whose work on each shard has not stopped, even if its fence has closed.
    works: BTreeMap<ShardId, u64>,
    /// The minimum and the maximum time in which the owner stops its work.
    pub(super) drain: (u64, u64),
    resigned: bool,
}

/// A fence by the clock of its holder.
#[derive(Clone, Debug)]
pub(super) struct Fence {
    pub(super) ranges: HashRanges,
    deadline: Instant,
}

#[derive(Debug)]
enum Event {
    Wake,
    Arrive { request_id: u64, target: RequestTarget, request: Request, back: Option<u64> },
    Answer { request_id: u64, target: RequestTarget, answer: Response, watch: Option<u64> },
    Shown { watch: u64, lease_update: LeaseUpdate },
    Drained { shard: ShardId, term: u64 },
}

/// Counts of events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) acquired: u64,
    pub(super) drained: u64,
    pub(super) lost: u64,
    pub(super) writes: u64,
    pub(super) conflicts: u64,
    pub(super) known_predecessors: u64,
}

/// The times in which hashes had no owner, in true microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    /// Between a holder that released a shard and the next holder, without faults.
    pub(super) handoffs: Vec<u64>,
    /// With or without faults.
    pub(super) longest: u64,
    /// Without faults.
    pub(super) in_peace: u64,
}

/// When and how the last fence around a hash closed.
#[derive(Copy, Clone, Debug)]
struct Closed {
    at: u64,
    /// The holder had stopped its work.
    handed_off: bool,
}

pub(super) struct World {
    pub(super) now: u64,
    pub(super) rng: Rng,
    env: Env,
    queue: BTreeMap<(u64, u64), (usize, Event)>,
    sequence: u64,
    server: Server,
    watchers: Vec<Watcher>,
    pub(super) replicas: Vec<Replica>,
    pub(super) figures: Figures,
    pub(super) gaps: Gaps,
    /// The last fence around each probe.
    closed: BTreeMap<u64, Closed>,
    /// The time since which, or from which, there is no fault.
    peace: u64,
    /// The violations that the checks have found.
    pub(super) violations: Vec<String>,
    /// When a shard last moved.
    pub(super) last_move: u64,
    pub(super) predecessors: Vec<(ShardId, PreviousHolder)>,
    /// The ranges of every term, with its number.
    terms: Vec<(HashRanges, u64)>,
    /// Number of steps that all engines have run.
    pub(super) steps: u64,
    /// The server is unavailable.
    pub(super) outage: bool,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let env = Env::virtual_time(seed);
        Self {
            now: 0,
            rng: env.rng("world"),
            env,
            queue: BTreeMap::new(),
            sequence: 0,
            server: Server::default(),
            watchers: Vec::new(),
            replicas: Vec::new(),
            figures: Figures::default(),
            gaps: Gaps::default(),
            closed: BTreeMap::new(),
            peace: 0,
            violations: Vec::new(),
            last_move: 0,
            predecessors: Vec::new(),
            terms: Vec::new(),
            steps: 0,
            outage: false,
        }
    }

    /// Starts a replica with a clock rate in percent.
    pub(super) fn start(&mut self, shards: u16, rate: u64) -> usize {
        let number = self.replicas.len();
        let name = format!("replica-{number}");
        let election = ElectionConfig::new(&name).resolve("kube-system");
        let rng = self.env.with_incarnation(&name, 0).rng("shards");
        let wanted = NonZeroU16::new(shards).expect("some shards");
        self.replicas.push(Replica {
            engine: Engine::new(LeaseParams::from_config(&election), "windlass", wanted, rng),
            name,
            alive: true,
            wire: Wire::Good,
            rate: (rate, 100),
            paused_until: 0,
            watch: None,
            wake: 0,
            fences: BTreeMap::new(),
            works: BTreeMap::new(),
            drain: (0, 20 * MILLI),
            resigned: false,
        });
        self.at(self.now, number, Event::Wake);
        number
    }

    pub(super) fn crash(&mut self, replica: usize) {
        self.replicas[replica].alive = false;
        self.peace = self.peace.max(self.now + MISSED);
        let shards: Vec<ShardId> = self.replicas[replica].fences.keys().copied().collect();
        shards.into_iter().for_each(|shard| self.close(replica, shard, false));
    }

    pub(super) fn pause(&mut self, replica: usize, during: u64) {
        self.replicas[replica].paused_until = self.now + during;
    }

    pub(super) fn resign(&mut self, replica: usize) {
        self.replicas[replica].engine.stop_acquiring();
        self.replicas[replica].resigned = true;
        self.at(self.now, replica, Event::Wake);
    }

    /// Stalls the watch of a replica: its events are lost, and it does not end.
    pub(super) fn stall(&mut self, replica: usize) {
        for watcher in self.watchers.iter_mut().filter(|watcher| watcher.replica == replica) {
            watcher.stalled = true;
        }
    }

    /// Runs the world until this time.
    pub(super) fn run_until(&mut self, until: u64) {
        self.peace = self.peace.max(self.bad_until(until));
        while let Some((&(at, sequence), _)) = self.queue.first_key_value() {
            if at > until {
                break;
            }
            let (replica, event) = self.queue.remove(&(at, sequence)).expect("it was first");
            self.now = self.now.max(at);
            self.happen(replica, event);
        }
        self.now = until;
    }

    /// Returns until when there is a fault, if no other fault is injected before `until`: a late write can arrive then.
    fn bad_until(&self, until: u64) -> u64 {
        let living = || self.replicas.iter().filter(|replica| replica.alive);
        let cut_off = |watcher: &Watcher| watcher.stalled && self.replicas[watcher.replica].alive;
        if self.outage || living().any(|it| it.wire != Wire::Good) || self.watchers.iter().any(cut_off) {
            return until + LATEST;
        }
        living().map(|replica| replica.paused_until).max().unwrap_or(0)
    }

    pub(super) fn run(&mut self, during: u64) {
        self.run_until(self.now + during);
    }

    /// Returns the replicas with an open fence that contains this hash.
    pub(super) fn owners(&self, hash: u64) -> Vec<usize> {
        let owns = |number: &usize| {
            let replica = &self.replicas[*number];
            replica
                .fences
                .values()
                .any(|fence| self.local(*number) < fence.deadline && fence.ranges.contains(hash))
        };
        (0..self.replicas.len()).filter(owns).collect()
    }

    /// Returns the number of open fences of each live replica.
    pub(super) fn shares(&self) -> Vec<usize> {
        let living = self.replicas.iter().enumerate();
        living
            .filter(|(_, replica)| replica.alive && !replica.resigned)
            .map(|(number, replica)| {
                replica.fences.values().filter(|fence| self.local(number) < fence.deadline).count()
            })
            .collect()
    }

    pub(super) fn leases(&self) -> &BTreeMap<String, Lease> {
        &self.server.leases
    }

    pub(super) fn delete(&mut self, name: &str) {
        if let Some(lease) = self.server.leases.get(name).cloned() {
            self.server.delete(&lease).expect("it is as it is");
            self.broadcast();
        }
    }

    /// Writes a Lease of another client.
    pub(super) fn put(&mut self, lease: Lease) {
        self.server.write(lease, false).expect("it is new");
        self.broadcast();
    }

    pub(super) fn now_of(&self, replica: usize) -> Instant {
        self.local(replica)
    }

    /// Steps an engine, as after an input.
    pub(super) fn nudge(&mut self, replica: usize) {
        self.step(replica);
    }

    pub(super) fn has_left(&self, replica: usize) -> bool {
        self.replicas[replica].engine.has_left()
    }
}

/// Time.
impl World {
    fn local(&self, replica: usize) -> Instant {
        let (numerator, denominator) = self.replicas[replica].rate;
        Instant::ORIGIN + Duration::from_micros(SECOND + self.now * numerator / denominator)
    }

    /// Returns the first true time at which the clock of this replica shows `local`.
    fn when(&self, replica: usize, local: Instant) -> u64 {
        let (numerator, denominator) = self.replicas[replica].rate;
        let micros = u64::try_from(local.since_origin().as_micros()).unwrap_or(u64::MAX);
        let elapsed = micros.saturating_sub(SECOND);
        if elapsed > u64::MAX / 1_000 { u64::MAX } else { (elapsed * denominator).div_ceil(numerator) }
    }

    fn moment(&self, replica: usize) -> TimePoint {
        // Wall clocks are hours apart, which must not matter.
        let wall = 1_700_000_000_000_000
            + i64::try_from(self.now).expect("short")
            + 3_600_000_000 * i64::try_from(replica).expect("few");
        TimePoint {
            now: self.local(replica),
            wall: MicroTime(Timestamp::from_microsecond(wall).expect("in range")),
        }
    }

    fn at(&mut self, at: u64, replica: usize, event: Event) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), (replica, event));
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.rng.below(high - low + 1)
    }

    fn chance(&mut self, per_cent: u64) -> bool {
        self.rng.below(100) < per_cent
    }
}

/// Events.
impl World {
    fn happen(&mut self, number: usize, event: Event) {
        // A request that was sent arrives without its sender.
        if let Event::Arrive { request_id, target, request, back } = event {
            return self.arrive(number, request_id, target, request, back);
        }
        let replica = &self.replicas[number];
        if !replica.alive {
            return;
        }
        if replica.paused_until > self.now {
            return self.at(replica.paused_until, number, event);
        }
        let now = self.local(number);
        let replica = &mut self.replicas[number];
        match event {
            Event::Wake if replica.wake > self.now => return,
            Event::Wake | Event::Arrive { .. } => {}
            Event::Answer { request_id, target, answer, watch } => {
                replica.engine.on_response(request_id, target, answer, now);
                if watch.is_some() && matches!(replica.engine.list_watch, ListWatchState::Open { .. }) {
                    replica.watch = watch;
                }
            }
            Event::Shown { watch, .. } if replica.watch != Some(watch) => return,
            Event::Shown { lease_update, .. } => replica.engine.on_watch_event(lease_update, now),
            Event::Drained { shard, term } => {
                if replica.works.get(&shard) != Some(&term) {
                    return;
                }
                replica.works.remove(&shard);
                self.close(number, shard, true);
                let replica = &mut self.replicas[number];
                let version = ResourceVersion::new(&term.to_string());
                let written = WrittenVersions::from([(pods(), version)]);
                replica.engine.release(shard, Some(&written), now);
            }
        }
        self.step(number);
    }

    fn step(&mut self, number: usize) {
        self.steps += 1;
        let moment = self.moment(number);
        let output = self.replicas[number].engine.step(&moment);
        for effect in output.effects {
            self.perform(number, effect);
        }
        let wake = self.when(number, output.wake).max(self.now + 1);
        self.replicas[number].wake = wake;
        if wake < u64::MAX {
            self.at(wake, number, Event::Wake);
        }
    }

    fn perform(&mut self, number: usize, effect: Effect) {
        match effect {
            Effect::Send { request_id, target, request, within } => {
                self.send(number, request_id, target, request, within);
            }
            Effect::StopWatch => self.replicas[number].watch = None,
            Effect::Acquired { shard, ranges, deadline, previous_holder } => {
                self.figures.acquired += 1;
                self.figures.known_predecessors += u64::from(previous_holder.written().is_some());
                self.check_overlaps(number, shard, &ranges);
                self.check_previous_holder(number, shard, &ranges, &previous_holder);
                self.record_gaps(&ranges);
                self.predecessors.push((shard, previous_holder));
                let term = self.sequence;
                self.terms.push((ranges.clone(), term));
                self.last_move = self.now;
                self.replicas[number].works.insert(shard, term);
                self.replicas[number].fences.insert(shard, Fence { ranges, deadline });
            }
            Effect::Extend { shard, deadline } => {
                let now = self.local(number);
                let open = self.replicas[number].fences.get_mut(&shard).filter(|fence| now < fence.deadline);
                match open {
                    Some(fence) => fence.deadline = fence.deadline.max(deadline),
                    None => self.violations.push(format!("{shard} is extended at {number} and not open")),
                }
            }
            Effect::RequestHandoff { shard } => {
                self.figures.drained += 1;
                self.end_work(number, shard);
            }
            Effect::Lost { shard, .. } => {
                self.figures.lost += 1;
                self.close(number, shard, false);
                self.end_work(number, shard);
            }
        }
    }

    fn end_work(&mut self, number: usize, shard: ShardId) {
        self.last_move = self.now;
        let (low, high) = self.replicas[number].drain;
        let after = self.between(low, high);
        if let Some(term) = self.replicas[number].works.get(&shard).copied() {
            self.at(self.now + after, number, Event::Drained { shard, term });
        }
    }
}

/// Returns hashes spread over the ring.
pub(super) fn probes() -> Vec<u64> {
    (0..32).map(|number| u64::MAX / 32 * number + 17).collect()
}

/// Returns the identities of all members on the server.
pub(super) fn members(world: &World) -> BTreeSet<String> {
    let holder = |lease: &Lease| lease.spec.as_ref()?.holder_identity.clone().filter(|name| !name.is_empty());
    let members = world.leases().iter().filter(|(name, _)| name.contains("-member-"));
    members.filter_map(|(_, lease)| holder(lease)).collect()
}

/// Returns the resource that every term writes.
fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}
