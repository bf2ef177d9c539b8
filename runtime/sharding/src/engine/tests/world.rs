//! A world for engines: a server of Leases, wires, clocks that run at rates of their own, processes that crash and
//! pause, and a judge who sees every fence in true time.
//!
//! Everything is an event at a moment of true time, in microseconds. What is sent belongs to the wire: it takes effect
//! although its sender is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use windlass_env::{Env, Instant, Rng};
use windlass_object::shard::{Ranges, ShardId};
use windlass_object::{GroupResource, ResourceVersion};

use crate::engine::{Effect, Engine, LeaseUpdate, ListWatchState, Request, RequestTarget, Response};
use windlass_election::ElectionConfig;
use windlass_election::lease::LeaseError;
use windlass_election::lease::{LeaseParams, TimePoint};
use windlass_election::{Predecessor, Written};

pub(super) const SECOND: u64 = 1_000_000;
pub(super) const MILLI: u64 = 1_000;

/// How long a request travels at most.
const LATEST: u64 = 16 * SECOND;

/// After how long everybody has noticed that a replica is gone: a lease, by the slowest clock, and a few requests.
const MISSED: u64 = 20 * SECOND;

/// How a wire treats what passes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// A few milliseconds each way.
    Good,
    /// Answers come late, some not at all.
    AnswersLate,
    /// Requests arrive late, later than any deadline, some not at all.
    ArrivesLate,
    /// Nothing passes; what a watch shows is lost for good.
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
    /// The number of the term that works on each shard, or still does after its fence closed.
    works: BTreeMap<ShardId, u64>,
    /// How long the owner takes to end its work.
    pub(super) drain: (u64, u64),
    resigned: bool,
}

/// A fence as its holder last knew it, by its own clock.
#[derive(Clone, Debug)]
pub(super) struct Fence {
    pub(super) ranges: Ranges,
    deadline: Instant,
}

#[derive(Debug)]
enum Event {
    Wake,
    Arrive { request_id: u64, target: RequestTarget, request: Request, back: Option<u64> },
    Answer { request_id: u64, target: RequestTarget, answer: Response, watch: Option<u64> },
    Shown { watch: u64, told: LeaseUpdate },
    Drained { shard: ShardId, term: u64 },
}

/// Somebody who is shown every write.
struct Watcher {
    id: u64,
    replica: usize,
    last: u64,
    stalled: bool,
}

#[derive(Default)]
struct Server {
    version: u64,
    leases: BTreeMap<String, Lease>,
    log: Vec<(u64, LeaseUpdate)>,
    /// How many of the log were shown to those who watch.
    shown: usize,
}

/// What happened, in figures.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) acquired: u64,
    pub(super) gave_up: u64,
    pub(super) lost: u64,
    pub(super) writes: u64,
    pub(super) conflicts: u64,
    pub(super) told_predecessors: u64,
}

/// For how long hashes had no owner, in true microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    /// Between a holder that gave a shard up and the next, while nothing was the matter with anybody.
    pub(super) hand_overs: Vec<u64>,
    /// In any weather.
    pub(super) longest: u64,
    /// While nothing was the matter with anybody.
    pub(super) in_peace: u64,
}

/// When and how the last fence around a hash closed.
#[derive(Copy, Clone, Debug)]
struct Closed {
    at: u64,
    /// By a holder that had ended its work.
    handed_over: bool,
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
    /// The last fence around each probe, once there was one.
    closed: BTreeMap<u64, Closed>,
    /// Since when nothing is the matter with anybody, or from when on.
    peace: u64,
    /// What the judge objected to.
    pub(super) objections: Vec<String>,
    /// Times at which anything moved.
    pub(super) last_move: u64,
    pub(super) predecessors: Vec<(ShardId, Predecessor)>,
    /// What every term so far acted on, with its number.
    params: Vec<(Ranges, u64)>,
    /// How often an engine looked at everything.
    pub(super) turns: u64,
    /// The server is not there.
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
            objections: Vec::new(),
            last_move: 0,
            predecessors: Vec::new(),
            params: Vec::new(),
            turns: 0,
            outage: false,
        }
    }

    /// Starts a replica whose clock runs at this rate, in per cent.
    pub(super) fn start(&mut self, shards: u16, rate: u64) -> usize {
        let number = self.replicas.len();
        let name = format!("replica-{number}");
        let config = ElectionConfig::new(&name);
        let rng = self.env.incarnation(&name, 0).rng("shards");
        let wanted = NonZeroU16::new(shards).expect("some shards");
        self.replicas.push(Replica {
            engine: Engine::new(LeaseParams::from_config(&config), "windlass", wanted, rng),
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

    /// Everything this replica is shown from now on is lost, without its watch ending.
    pub(super) fn stall(&mut self, replica: usize) {
        for watcher in self.watchers.iter_mut().filter(|watcher| watcher.replica == replica) {
            watcher.stalled = true;
        }
    }

    /// Lets the world go on until this moment.
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

    /// Until when something is the matter with anybody, if nobody does anything before this moment: a write that is late
    /// may still arrive then.
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

    /// Whose open fences contain this hash, now.
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

    /// How many shards each replica that lives works on behind an open fence.
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

    /// A Lease written by somebody else.
    pub(super) fn put(&mut self, lease: Lease) {
        self.server.write(lease, false).expect("it is new");
        self.broadcast();
    }

    pub(super) fn now_of(&self, replica: usize) -> Instant {
        self.local(replica)
    }

    /// Lets an engine look at everything, as after something came from outside.
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

    /// The first moment of true time at which this replica's clock shows that.
    fn when(&self, replica: usize, local: Instant) -> u64 {
        let (numerator, denominator) = self.replicas[replica].rate;
        let micros = u64::try_from(local.since_origin().as_micros()).unwrap_or(u64::MAX);
        let elapsed = micros.saturating_sub(SECOND);
        if elapsed > u64::MAX / 1_000 { u64::MAX } else { (elapsed * denominator).div_ceil(numerator) }
    }

    fn moment(&self, replica: usize) -> TimePoint {
        // Wall clocks are hours apart, and nobody may care.
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

/// What happens.
impl World {
    fn happen(&mut self, number: usize, event: Event) {
        // What has been sent goes on without its sender.
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
            Event::Shown { told, .. } => replica.engine.on_watch_event(told, now),
            Event::Drained { shard, term } => {
                if replica.works.get(&shard) != Some(&term) {
                    return;
                }
                replica.works.remove(&shard);
                self.close(number, shard, true);
                let replica = &mut self.replicas[number];
                let version = ResourceVersion::new(&term.to_string());
                let written = Written::from([(pods(), version)]);
                replica.engine.release(shard, Some(&written), now);
            }
        }
        self.step(number);
    }

    fn step(&mut self, number: usize) {
        self.turns += 1;
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
            Effect::Acquired { shard, ranges, deadline, predecessor } => {
                self.figures.acquired += 1;
                self.figures.told_predecessors += u64::from(predecessor.written().is_some());
                self.judge(number, shard, &ranges);
                self.judge_told(number, shard, &ranges, &predecessor);
                self.note_gaps(&ranges);
                self.predecessors.push((shard, predecessor));
                let term = self.sequence;
                self.params.push((ranges.clone(), term));
                self.last_move = self.now;
                self.replicas[number].works.insert(shard, term);
                self.replicas[number].fences.insert(shard, Fence { ranges, deadline });
            }
            Effect::Extend { shard, deadline } => {
                let now = self.local(number);
                let open = self.replicas[number].fences.get_mut(&shard).filter(|fence| now < fence.deadline);
                match open {
                    Some(fence) => fence.deadline = fence.deadline.max(deadline),
                    None => self.objections.push(format!("{shard} is extended at {number} and not open")),
                }
            }
            Effect::RequestHandoff { shard } => {
                self.figures.gave_up += 1;
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

    /// Takes a fence away, which may have closed by itself before.
    fn close(&mut self, number: usize, shard: ShardId, ended: bool) {
        let Some(fence) = self.replicas[number].fences.remove(&shard) else { return };
        let expired = self.when(number, fence.deadline);
        let handed_over = ended && self.now < expired;
        self.note_closed(&fence.ranges, Closed { at: self.now.min(expired), handed_over });
    }

    fn note_closed(&mut self, ranges: &Ranges, closed: Closed) {
        for probe in probes().into_iter().filter(|probe| ranges.contains(*probe)) {
            let last = self.closed.entry(probe).or_insert(closed);
            if last.at < closed.at {
                *last = closed;
            }
        }
    }

    /// For how long those had no owner that one opens a fence around now.
    fn note_gaps(&mut self, ranges: &Ranges) {
        let fences = |other: usize, replica: &Replica| {
            let expired = |fence: &Fence| (fence.ranges.clone(), self.when(other, fence.deadline));
            replica.fences.values().map(expired).collect::<Vec<_>>()
        };
        let fences = self.replicas.iter().enumerate().flat_map(|(other, replica)| fences(other, replica));
        // Of whoever is paused, nobody has said yet that they have closed.
        for (ranges, at) in fences.filter(|(_, at)| *at <= self.now).collect::<Vec<_>>() {
            self.note_closed(&ranges, Closed { at, handed_over: false });
        }
        for probe in probes().into_iter().filter(|probe| ranges.contains(*probe)) {
            let Some(Closed { at, handed_over }) = self.closed.get(&probe).copied() else {
                continue;
            };
            let since = |begun: u64| self.now.saturating_sub(begun);
            self.gaps.longest = self.gaps.longest.max(since(at));
            self.gaps.in_peace = self.gaps.in_peace.max(since(at.max(self.peace)));
            if handed_over && at >= self.peace {
                self.gaps.hand_overs.push(since(at));
            }
        }
    }

    /// No other open fence may contain any of these hashes.
    fn judge(&mut self, number: usize, shard: ShardId, ranges: &Ranges) {
        for (other, replica) in self.replicas.iter().enumerate() {
            for (held, fence) in &replica.fences {
                if self.local(other) < fence.deadline && fence.ranges.overlaps(ranges) {
                    self.objections.push(format!(
                        "{} us: shard {shard} of replica {number} overlaps shard {held} of replica {other}",
                        self.now
                    ));
                }
            }
        }
    }

    /// Whoever is told what was written is told of the last term on each of these hashes, or of a later one: a term
    /// writes at a version that is its number.
    fn judge_told(&mut self, number: usize, shard: ShardId, ranges: &Ranges, predecessor: &Predecessor) {
        let Some(written) = predecessor.written() else { return };
        let told = written.get(&pods()).and_then(|version| version.as_str().parse().ok()).unwrap_or(0);
        let wrote = |(acted_on, term): &(Ranges, u64)| acted_on.overlaps(ranges).then_some(*term);
        let last = self.params.iter().filter_map(wrote).max().unwrap_or(0);
        if told < last {
            self.objections.push(format!(
                "{} us: shard {shard} of replica {number} is told of term {told}, and term {last} wrote",
                self.now
            ));
        }
    }

    fn send(
        &mut self,
        number: usize,
        request_id: u64,
        target: RequestTarget,
        request: Request,
        within: Duration,
    ) {
        let timeout = self.when(number, self.local(number) + within);
        let answer = Response::Failed(LeaseError::Timeout(within));
        self.at(timeout, number, Event::Answer { request_id, target, answer, watch: None });
        let short = |world: &mut Self| world.between(MILLI, 8 * MILLI);
        let (there, back, lost) = match self.replicas[number].wire {
            Wire::Good => (short(self), Some(short(self)), false),
            Wire::AnswersLate => {
                let back = self.between(SECOND, 8 * SECOND);
                (short(self), Some(back).filter(|_| !self.chance(30)), false)
            }
            Wire::ArrivesLate => (self.between(SECOND, LATEST), Some(short(self)), self.chance(20)),
            Wire::Cut => (0, None, true),
        };
        if !lost {
            self.at(self.now + there, number, Event::Arrive { request_id, target, request, back });
        }
    }

    fn arrive(
        &mut self,
        number: usize,
        request_id: u64,
        target: RequestTarget,
        request: Request,
        back: Option<u64>,
    ) {
        let mut watch = None;
        let answer = if self.outage {
            Response::Failed(LeaseError::Request("503: the server is not there".to_owned()))
        } else if let Request::Watch(from) = &request {
            watch = Some(self.sequence);
            let shown_from = self.now + back.unwrap_or(0);
            self.watch(number, self.sequence, from.as_ref(), shown_from);
            Response::Watching
        } else {
            let written = matches!(request, Request::Write(_));
            let answer = self.server.serve(request).unwrap_or_else(Response::Failed);
            self.figures.writes += u64::from(written);
            self.figures.conflicts += u64::from(matches!(answer, Response::Failed(LeaseError::Conflict)));
            self.broadcast();
            answer
        };
        if let Some(back) = back {
            self.at(self.now + back, number, Event::Answer { request_id, target, answer, watch });
        }
    }

    fn watch(&mut self, replica: usize, id: u64, from: Option<&ResourceVersion>, shown_from: u64) {
        let from: u64 = from.and_then(|version| version.as_str().parse().ok()).unwrap_or(0);
        self.watchers.retain(|watcher| watcher.replica != replica);
        let missed: Vec<LeaseUpdate> = self
            .server
            .log
            .iter()
            .filter(|(version, _)| *version > from)
            .map(|(_, told)| told.clone())
            .collect();
        self.watchers.push(Watcher { id, replica, last: shown_from, stalled: false });
        for told in missed {
            self.show(self.watchers.len() - 1, told);
        }
    }

    /// Shows the newest write to all who watch.
    fn broadcast(&mut self) {
        while let Some(told) = self.server.unshown() {
            for watcher in 0..self.watchers.len() {
                self.show(watcher, told.clone());
            }
        }
    }

    fn show(&mut self, watcher: usize, told: LeaseUpdate) {
        let delay = self.between(MILLI, 8 * MILLI);
        let Watcher { id, replica, last, .. } = self.watchers[watcher];
        let delay = match self.replicas[replica].wire {
            Wire::Cut => {
                self.watchers[watcher].stalled = true;
                delay
            }
            Wire::AnswersLate => delay * 100,
            Wire::Good | Wire::ArrivesLate => delay,
        };
        if !self.watchers[watcher].stalled {
            let at = (self.now + delay).max(last + 1);
            self.watchers[watcher].last = at;
            self.at(at, replica, Event::Shown { watch: id, told });
        }
    }

    /// Ends this replica's watch.
    pub(super) fn end_watch(&mut self, replica: usize) {
        let ended: Vec<u64> = self
            .watchers
            .iter()
            .filter(|watcher| watcher.replica == replica)
            .map(|watcher| watcher.id)
            .collect();
        self.watchers.retain(|watcher| watcher.replica != replica);
        for watch in ended {
            self.at(self.now + MILLI, replica, Event::Shown { watch, told: LeaseUpdate::Ended });
        }
    }
}

impl Server {
    fn serve(&mut self, request: Request) -> Result<Response, LeaseError> {
        Ok(match request {
            Request::List => {
                let version = ResourceVersion::new(&self.version.to_string());
                Response::Listed(Some(version), self.leases.values().cloned().collect())
            }
            Request::Get(name) => Response::Got(self.leases.get(&name).cloned()),
            Request::Write(write) => Response::Written(self.write(write.lease, write.exists)?),
            Request::Delete(lease) => {
                self.delete(&lease)?;
                Response::Deleted
            }
            Request::Watch(_) => Response::Watching,
        })
    }

    fn write(&mut self, mut lease: Lease, exists: bool) -> Result<Lease, LeaseError> {
        let name = lease.metadata.name.clone().expect("named");
        match (self.leases.get(&name), exists) {
            (None, true) => return Err(LeaseError::NotFound(name)),
            (Some(_), false) => return Err(LeaseError::Conflict),
            (Some(current), true) if current.metadata.resource_version != lease.metadata.resource_version => {
                return Err(LeaseError::Conflict);
            }
            (Some(current), true) if *current == lease => {
                return Err(LeaseError::Unchanged(name));
            }
            (Some(_), true) | (None, false) => {}
        }
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.leases.insert(name, lease.clone());
        self.log.push((self.version, LeaseUpdate::Changed(lease.clone())));
        Ok(lease)
    }

    fn delete(&mut self, lease: &Lease) -> Result<(), LeaseError> {
        let name = lease.metadata.name.clone().expect("named");
        let Some(current) = self.leases.get(&name) else { return Ok(()) };
        if current.metadata.resource_version != lease.metadata.resource_version {
            return Err(LeaseError::Conflict);
        }
        let mut gone = self.leases.remove(&name).expect("it was there");
        self.version += 1;
        gone.metadata.resource_version = Some(self.version.to_string());
        self.log.push((self.version, LeaseUpdate::Deleted(gone)));
        Ok(())
    }

    /// The next write that was not shown yet.
    fn unshown(&mut self) -> Option<LeaseUpdate> {
        let (_, told) = self.log.get(self.shown)?;
        self.shown += 1;
        Some(told.clone())
    }
}

/// Hashes spread over the ring, whose owners are asked for.
pub(super) fn probes() -> Vec<u64> {
    (0..32).map(|number| u64::MAX / 32 * number + 17).collect()
}

/// The names of all members that the server knows of.
pub(super) fn members(world: &World) -> BTreeSet<String> {
    let holder = |lease: &Lease| lease.spec.as_ref()?.holder_identity.clone().filter(|name| !name.is_empty());
    let members = world.leases().iter().filter(|(name, _)| name.contains("-member-"));
    members.filter_map(|(_, lease)| holder(lease)).collect()
}

/// What every term writes.
fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}
