//! Drives the engine: sends its requests, brings it the answers and what the watch tells, and keeps the fences.
//!
//! All that is under way lives in the elector, not in the futures that drive it. Any of these may be dropped at any
//! await, and whichever is polled next goes on; while none is polled nothing is renewed, and fences close by themselves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use k8s_openapi::api::coordination::v1::Lease;
use windlass_client::{FrameStream, RawClient, RequestError};
use windlass_env::cell::{self, Observer, Publisher};
use windlass_env::{Env, Instant};
use windlass_metrics::{ElectionMetrics, Metrics, ShardMetrics};
use windlass_object::shard::{Division, HeavyNamespace, Ranges, ShardId};
use windlass_object::wire::Frame;

use super::config::{ShardsConfig, ShardsConfigError};
use super::engine::{Answer, Effect, Engine, Proposal, Request, Target, Told};
use super::names::Names;
use crate::clocks::Clocks;
use crate::error::{ElectionError, LeaseError, LeaseLost};
use crate::fence::LeaderFence;
use crate::leadership::{HealthCheck, LastRenewal};
use crate::lease_api::{LeaseApi, Watched};
use crate::tenure::{Moment, Terms};
use crate::written::{Predecessor, Written};

#[cfg(test)]
mod tests;

/// Something the owner of the work must know.
#[derive(Clone, Debug)]
pub enum ShardEvent {
    /// Work on the shard may begin, behind this fence, which is open and belongs to this term alone.
    Acquired {
        /// Which shard.
        shard: ShardId,
        /// The hashes that belong to it.
        ranges: Ranges,
        /// Asked before each write.
        fence: Arc<LeaderFence>,
        /// What is known of the writes of whoever acted on these ranges before. Work starts once caches show them.
        predecessor: Predecessor,
    },
    /// Bring the work on the shard to an end, then [release](ShardElector::release) it. Its fence stays open for that.
    GiveUp {
        /// Which shard.
        shard: ShardId,
    },
    /// The shard is lost and its fence closed: end the work at once, then [release](ShardElector::release) it too.
    /// It is not acquired here again before that.
    Lost {
        /// Which shard.
        shard: ShardId,
        /// Why.
        lost: LeaseLost,
    },
    /// A release that was [begun](ShardElector::begin_release) has come to its end.
    Released {
        /// Which shard.
        shard: ShardId,
        /// Whether its Lease was given back; if not, it is taken over when it expires.
        outcome: Result<(), ElectionError>,
    },
}

/// Who shares what, as far as this replica knows. For people: nothing may be decided by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardsOverview {
    /// The number of the plan; 0 before there is one.
    pub generation: u64,
    /// Which shard has which ranges; `None` before there is a plan.
    pub division: Option<Division>,
    /// Namespaces heavier than a fair share, which no division can balance.
    pub heavy: Vec<HeavyNamespace>,
    /// The identities of the members that live.
    pub members: BTreeSet<String>,
    /// Whom the Lease of each shard of the plan names.
    pub holders: BTreeMap<ShardId, Option<String>>,
    /// The shards on which this replica works, or has not said that it stopped.
    pub held: BTreeSet<ShardId>,
}

type Flight = BoxFuture<'static, (u64, Target, Landed)>;

/// What a request brought.
enum Landed {
    Answer(Box<Answer>),
    Stream(Result<FrameStream, RequestError>),
}

/// One replica's part in an election of shards.
pub struct ShardElector {
    env: Env,
    api: LeaseApi,
    label: String,
    engine: Engine,
    names: Names,
    release_on_exit: bool,
    flights: FuturesUnordered<Flight>,
    watch: Option<FrameStream>,
    fences: BTreeMap<ShardId, Term>,
    clocks: Arc<Clocks>,
    renew_deadline: Duration,
    events: VecDeque<ShardEvent>,
    /// Releases whose end is to be told as an event.
    releasing: BTreeSet<ShardId>,
    overview: Publisher<ShardsOverview>,
    last_renewal: LastRenewal,
    health: HealthCheck,
    metrics: Metrics,
    gauges: ShardMetrics,
}

/// An open fence, and the metrics of its Lease.
struct Term {
    fence: Arc<LeaderFence>,
    metrics: ElectionMetrics,
}

impl ShardElector {
    /// A part that has not begun. `client` should have connections of its own and no rate limit, `watch` may be shared.
    ///
    /// # Errors
    ///
    /// A configuration that does not [validate](ShardsConfig::validate).
    ///
    /// # Panics
    ///
    /// If one `env` is given to two electors of the same shards, whose random pauses would be the same.
    pub fn new(
        env: Env,
        config: ShardsConfig,
        client: kube::Client,
        watch: RawClient,
        metrics: &Metrics,
    ) -> Result<Self, ShardsConfigError> {
        config.validate()?;
        let ShardsConfig { election, shards } = config;
        let names = Names::new(&election.lease_name);
        let rng = env.rng(&format!("shards/{}/{}", election.lease_namespace, election.lease_name));
        let last_renewal = LastRenewal::default();
        let lease = format!("{}/{}-shard-*", election.lease_namespace, election.lease_name);
        Ok(Self {
            api: LeaseApi::new(env.clone(), client, watch, &election),
            label: names.selector(),
            engine: Engine::new(Terms::of(&election), &election.lease_name, shards, rng),
            names,
            release_on_exit: election.release_on_exit,
            flights: FuturesUnordered::new(),
            watch: None,
            fences: BTreeMap::new(),
            clocks: Arc::new(Clocks::new(env.clone(), election.allowance())),
            renew_deadline: election.renew_deadline,
            events: VecDeque::new(),
            releasing: BTreeSet::new(),
            overview: cell::cell(ShardsOverview::default()).0,
            health: last_renewal.health(env.clone(), lease, election.lease_duration),
            last_renewal,
            gauges: metrics.shards(&election.lease_name),
            metrics: metrics.clone(),
            env,
        })
    }

    /// Takes part until there is something to tell. Run it beside the work, again and again: what is held is renewed
    /// while this runs, or [`release`](Self::release), or [`leave`](Self::leave).
    ///
    /// # Cancel safety
    ///
    /// Safe: whatever is under way goes on with the next call.
    pub async fn next(&mut self) -> ShardEvent {
        loop {
            let wake = self.act();
            self.tell_released();
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            self.wait(wake).await;
        }
    }

    /// Gives a shard back: its work has ended. `written` is what this term wrote, for the successor to wait for; `None`
    /// says nothing, and the successor reads everything anew. The fence closes before the first await. Other shards are
    /// renewed meanwhile; what happens to them is told by [`next`](Self::next).
    ///
    /// # Errors
    ///
    /// The Lease could not be given back within the renew deadline, and is taken over when it expires.
    ///
    /// # Cancel safety
    ///
    /// Safe: the release goes on with the next call of anything.
    pub async fn release(&mut self, shard: ShardId, written: Option<&Written>) -> Result<(), ElectionError> {
        self.close(shard);
        self.engine.release(shard, written, self.env.now());
        loop {
            let wake = self.act();
            if let Some(outcome) = self.engine.finished(shard) {
                return outcome;
            }
            self.wait(wake).await;
        }
    }

    /// Begins what [`release`](Self::release) does and waits for nothing: [`next`](Self::next) goes on with it beside
    /// everything else, and tells its end as [`ShardEvent::Released`]. The fence closes at once.
    pub fn begin_release(&mut self, shard: ShardId, written: Option<&Written>) {
        self.close(shard);
        self.engine.release(shard, written, self.env.now());
        self.releasing.insert(shard);
    }

    /// From now on nothing is acquired, membership ends, and [`next`](Self::next) tells to give up every shard held: the
    /// first half of an orderly end.
    pub fn resign(&mut self) {
        self.engine.resign();
    }

    /// The second half, after all work has ended: membership ends, and what is still held is given back with what was
    /// written. Bounded by the renew deadline. Where the configuration says not to release on exit, Leases are left to
    /// expire.
    ///
    /// # Errors
    ///
    /// The first Lease that could not be given back. It is taken over when it expires.
    ///
    /// # Cancel safety
    ///
    /// Safe: fences close before the first await, and calling it again continues.
    pub async fn leave(&mut self, written: Option<&Written>) -> Result<(), ElectionError> {
        self.resign();
        self.events.clear();
        let (mut occupied, now) = (self.engine.occupied(), self.env.now());
        for shard in occupied.iter().copied() {
            self.close(shard);
        }
        if !self.release_on_exit {
            return Ok(());
        }
        for shard in occupied.iter().copied() {
            self.engine.release(shard, written, now);
        }
        // What is being given back already is awaited with the rest.
        occupied.extend(std::mem::take(&mut self.releasing));
        let until = now + self.engine.terms().renew_deadline;
        let mut outcome = Ok(());
        loop {
            let wake = self.act();
            occupied.retain(|shard| match self.engine.finished(*shard) {
                Some(ended) => {
                    outcome = std::mem::replace(&mut outcome, Ok(())).and(ended);
                    false
                }
                None => true,
            });
            if self.engine.has_left() || self.env.now() >= until {
                break;
            }
            self.wait(wake.min(until)).await;
        }
        let within = self.engine.terms().renew_deadline;
        if self.engine.has_left() {
            outcome
        } else {
            outcome.and(Err(ElectionError::ReleaseTimedOut { within }))
        }
    }

    /// Wants this division instead of the plan's, and reports these namespaces as too heavy to balance. Only the holder
    /// of shard 0 is heard; its next calls write the plan, and every replica moves what has moved, drained.
    pub fn propose(&mut self, division: Division, heavy: Vec<HeavyNamespace>) -> Proposal {
        self.engine.propose(division, heavy)
    }

    /// Who shares what, as it changes.
    pub fn overview(&self) -> Observer<ShardsOverview> {
        self.overview.observe()
    }

    /// A check that fails once shards are held here whose leases have not been renewed for their duration and 20 s more,
    /// and nobody has given them up: whoever should call [`next`](Self::next) is stuck.
    pub fn health(&self) -> HealthCheck {
        self.health.clone()
    }
}

/// Going on.
impl ShardElector {
    /// Does what is to be done now, and says when to look again.
    fn act(&mut self) -> Instant {
        loop {
            self.clocks.compare();
            let turn = self.engine.turn(&Moment::of(&self.env));
            for effect in turn.effects {
                self.perform(effect);
            }
            if !self.engine.has_more_to_do() {
                self.show();
                return turn.wake;
            }
        }
    }

    /// Tells of releases that came to their end, before what happened to their shards since.
    fn tell_released(&mut self) {
        let (engine, events) = (&mut self.engine, &mut self.events);
        self.releasing.retain(|shard| match engine.finished(*shard) {
            Some(outcome) => {
                events.push_front(ShardEvent::Released { shard: *shard, outcome });
                false
            }
            None => true,
        });
    }

    /// Waits for one thing to happen, or until then.
    async fn wait(&mut self, until: Instant) {
        let wake = self.env.sleep_until(until);
        let (flights, watch) = (&mut self.flights, &mut self.watch);
        tokio::select! {
            biased;
            Some((flight, target, landed)) = flights.next(), if !flights.is_empty() => {
                self.land(flight, target, landed);
            }
            frame = next_frame(watch) => self.hear(frame),
            () = wake => {}
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Send { flight, target, request, within } => {
                if let Request::Watch(_) = request {
                    self.watch = None;
                }
                let (env, api, label) = (self.env.clone(), self.api.clone(), self.label.clone());
                self.flights.push(Box::pin(async move {
                    let sent = env.timeout(within, send(&api, &label, request)).await;
                    let timeout = || Landed::Answer(Box::new(Answer::Failed(LeaseError::Timeout(within))));
                    (flight, target, sent.unwrap_or_else(|_| timeout()))
                }));
            }
            Effect::StopWatch => self.watch = None,
            Effect::Acquired { shard, ranges, deadline, predecessor } => {
                self.acquired(shard, ranges, deadline, predecessor);
            }
            Effect::Extend { shard, deadline } => {
                let sent = self.sent(deadline);
                let open = self.fences.get(&shard).is_some_and(|term| term.fence.extend(sent, deadline));
                if !open {
                    self.engine.fence_closed(shard, self.env.now());
                }
            }
            Effect::GiveUp { shard } => self.events.push_back(ShardEvent::GiveUp { shard }),
            Effect::Lost { shard, reason } => {
                self.close(shard);
                let lease = self.names.shard(shard);
                tracing::warn!(%lease, %reason, "stopped leading");
                self.events.push_back(ShardEvent::Lost { shard, lost: LeaseLost { reason } });
            }
        }
    }

    fn acquired(&mut self, shard: ShardId, ranges: Ranges, deadline: Instant, predecessor: Predecessor) {
        let lease = self.names.shard(shard);
        let term = Term { fence: LeaderFence::new(self.env.clone()), metrics: self.metrics.election(&lease) };
        // A deadline that passes this very moment is noticed as any other.
        term.fence.watch(Arc::clone(&self.clocks));
        term.fence.open(self.sent(deadline), deadline);
        term.metrics.master_status.set(1);
        tracing::info!(%lease, %ranges, "became leader");
        let fence = term.fence.clone();
        self.fences.insert(shard, term);
        self.events.push_back(ShardEvent::Acquired { shard, ranges, fence, predecessor });
    }

    /// When the write was sent that grants this deadline.
    fn sent(&self, deadline: Instant) -> Instant {
        deadline - self.renew_deadline
    }

    fn close(&mut self, shard: ShardId) {
        if let Some(term) = self.fences.remove(&shard) {
            term.fence.close();
            term.metrics.master_status.set(0);
        }
    }

    fn land(&mut self, flight: u64, target: Target, landed: Landed) {
        let answer = match landed {
            Landed::Answer(answer) => *answer,
            Landed::Stream(Ok(stream)) => {
                self.watch = Some(stream);
                Answer::Watching
            }
            Landed::Stream(Err(error)) => Answer::Failed(LeaseError::Request(error.to_string())),
        };
        self.engine.answered(flight, target, answer, self.env.now());
    }

    fn hear(&mut self, frame: Option<Result<Frame, RequestError>>) {
        let told = match frame {
            Some(Ok(Frame::Added(raw) | Frame::Modified(raw))) => read(&raw).map(Told::Put),
            Some(Ok(Frame::Deleted(raw))) => read(&raw).map(Told::Deleted),
            Some(Ok(Frame::Bookmark { version, .. })) => Some(Told::Reached(version)),
            Some(Ok(Frame::Unknown(_))) => return,
            Some(Ok(Frame::Error(_)) | Err(_)) | None => None,
        };
        if told.is_none() {
            self.watch = None;
        }
        self.engine.told(told.unwrap_or(Told::Ended), self.env.now());
    }

    /// Brings what is shown of the election up to date.
    fn show(&mut self) {
        let now = self.env.now();
        for took in self.engine.hand_overs() {
            self.gauges.hand_over.observe(took.as_secs_f64());
        }
        for target in self.engine.slow_renewals() {
            if let Target::Shard(shard) = target
                && let Some(term) = self.fences.get(&shard)
            {
                term.metrics.slowpath.inc();
            }
        }
        self.last_renewal.set(self.engine.last_renewal(now));
        let overview = self.engine.overview(now);
        self.gauges.held.set(i64::try_from(self.fences.len()).unwrap_or(i64::MAX));
        self.gauges.members.set(i64::try_from(overview.members.len()).unwrap_or(i64::MAX));
        self.gauges.generation.set(i64::try_from(overview.generation).unwrap_or(i64::MAX));
        self.gauges.heavy.set(i64::try_from(overview.heavy.len()).unwrap_or(i64::MAX));
        if self.overview.get() != overview {
            self.overview.set(overview);
        }
    }
}

async fn send(api: &LeaseApi, label: &str, request: Request) -> Landed {
    let answer = match request {
        Request::List => api.list(label).await.map(|(version, leases)| Answer::Listed(version, leases)),
        Request::Watch(version) => {
            let version = version.as_ref().map_or("", |version| version.as_str());
            return Landed::Stream(api.watch(Watched::Label(label), version).await);
        }
        Request::Get(name) => api.get(&name).await.map(Answer::Got),
        Request::Write(write) => api.write(&write).await.map(Answer::Written),
        Request::Delete(lease) => api.delete(&lease).await.map(|()| Answer::Deleted),
    };
    Landed::Answer(Box::new(answer.unwrap_or_else(Answer::Failed)))
}

/// The next frame of the watch; never anything while there is none.
async fn next_frame(watch: &mut Option<FrameStream>) -> Option<Result<Frame, RequestError>> {
    match watch {
        Some(stream) => stream.next().await,
        None => std::future::pending().await,
    }
}

/// A frame that is no Lease ends the watch: the list that follows says what is wrong.
fn read(raw: &[u8]) -> Option<Lease> {
    serde_json::from_slice(raw).ok()
}

impl fmt::Debug for ShardElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardElector")
            .field("election", &self.names.prefix())
            .field("held", &self.fences.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
