//! The oracle checks every record of the journal and reports violations immediately.
//!
//! It observes the processes from outside and does not depend on their code. Its input: each request with sender and
//! time, its effect at the server with time, and the response.
//!
//! Fencing is checked twice. A write must be sent before the renew deadline after the sender's last renewal. It must
//! take effect before the Lease can expire, and not after another holder wrote the Lease. A sound fence satisfies both
//! conditions at any network delay that its connections permit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use windlass_api_server::faults::{JournalObserver, ProcessId, Record, RecordKind, RequestSummary};
use windlass_env::watch_channel::{Sender, channel};
use windlass_object::Verb;
use windlass_object::shard::{HashRanges, ShardId, hash};

use crate::ownership_gaps::{OwnershipGaps, ShardGapOracle};
use crate::reads::Reads;
use crate::violation::Violation;
use crate::watch_rate::WatchRateOracle;

/// Election parameters of one instance.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Renew deadline in true time, given the rate of the instance's clock.
    pub(crate) deadline: Duration,
    /// Lease duration in true time by the fastest clock: another replica can acquire the Lease afterwards.
    pub(crate) lease_duration: Duration,
    /// Lease of the election; with sharding, the name prefix of the shard Leases.
    pub(crate) lease: LeaseName,
    /// Whether it uses sharding: each write then requires the Lease of its namespace's shard.
    pub(crate) is_sharded: bool,
}

impl Candidate {
    /// Returns whether holding this Lease permits writes.
    fn is_permitted_by(&self, (namespace, name): &LeaseName) -> bool {
        let (own_namespace, own) = &self.lease;
        let shard = name.strip_prefix(own.as_str()).is_some_and(|rest| rest.starts_with("-shard-"));
        namespace == own_namespace && if self.is_sharded { shard } else { name == own }
    }
}

/// Returns whether a Lease with this holder names this incarnation of a process.
fn is_identity_of(holder: &str, process: &ProcessId) -> bool {
    holder == identity(process)
}

/// User agent of the election: it writes the Leases, and records events about them without holding one.
const ELECTION: &str = "leader-election";

/// Namespace and name of a Lease, not necessarily of an election.
pub(crate) type LeaseName = (String, String);

/// Annotation of a shard's Lease with the hash ranges that its holder acts on.
const RANGES_ANNOTATION: &str = "windlass.dev/ranges";
/// Annotation of the plan's Lease with the hash ranges of each shard.
const DIVISION_ANNOTATION: &str = "windlass.dev/division";

/// Checks one simulated world.
pub(crate) struct Oracle {
    state: Mutex<State>,
    found: Sender<Option<Violation>>,
}

#[derive(Default)]
struct State {
    /// Processes under test.
    tested: BTreeSet<Arc<str>>,
    candidates: BTreeMap<Arc<str>, Candidate>,
    last_work: Duration,
    work: u64,
    requests: u64,
    /// Number of creates, by resource, namespace and name prefix.
    created: BTreeMap<String, u64>,
    /// Holder of each Lease as stored by the server.
    holders: BTreeMap<LeaseName, String>,
    watch_rate: WatchRateOracle,
    reads: Reads,
    shard_gaps: ShardGapOracle,
    /// Hash ranges that the holder of each shard Lease acts on.
    ranges: BTreeMap<LeaseName, HashRanges>,
    /// Lease writes in flight, with their sending time and the holder that the server stored.
    leases: BTreeMap<u64, (Duration, Option<(LeaseName, String)>)>,
    /// Sending time of the last answered renewal, by incarnation and Lease.
    renewed: BTreeMap<(ProcessId, LeaseName), Duration>,
    /// Writes in flight, with the Leases under which they were sent.
    writes_in_flight: BTreeMap<u64, Vec<LeaseName>>,
}

/// Returns the election identity of an incarnation.
pub(crate) fn identity(process: &ProcessId) -> String {
    format!("{}-{}", process.instance, process.incarnation)
}

/// Returns the incarnation with this election identity.
fn parse_identity(identity: &str) -> Option<ProcessId> {
    let (instance, life) = identity.rsplit_once('-')?;
    Some(ProcessId { instance: instance.into(), incarnation: life.parse().ok()? })
}

impl Oracle {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Oracle { state: Mutex::default(), found: channel(None).0 })
    }

    /// Starts to count the requests of this instance, and to check its writes if it is a candidate.
    pub(crate) fn add_process(&self, instance: &str, candidate: Option<Candidate>) {
        let mut state = self.lock();
        state.tested.insert(instance.into());
        if let Some(candidate) = candidate {
            state.candidates.insert(instance.into(), candidate);
        }
    }

    /// Passes the oracle of shard ownership to a closure.
    pub(crate) fn with_shard_gaps(&self, visit: impl FnOnce(&mut ShardGapOracle)) {
        visit(&mut self.lock().shard_gaps);
    }

    /// Passes the recorded writes of all keys to a closure.
    pub(crate) fn reads<T>(&self, look: impl FnOnce(&Reads) -> T) -> T {
        look(&self.lock().reads)
    }

    /// Checks for shards without an active holder.
    pub(crate) fn check_shards(&self, at: Duration) {
        let violation = self.lock().shard_gaps.check(at);
        if let Some(violation) = violation {
            self.report(violation);
        }
    }

    /// Returns the ownership gaps of all shards.
    pub(crate) fn ownership_gaps(&self) -> OwnershipGaps {
        self.lock().shard_gaps.gaps()
    }

    /// Reports a violation that was detected elsewhere. Only the first violation is kept.
    pub(crate) fn report(&self, violation: Violation) {
        if self.found.get().is_none() {
            self.found.set(Some(violation));
        }
    }

    /// Waits for the first violation.
    pub(crate) async fn wait_for_violation(&self) -> Violation {
        match self.found.subscribe().wait_for(Option::is_some).await {
            Ok(Some(violation)) => violation,
            _ => std::future::pending().await,
        }
    }

    pub(crate) fn found(&self) -> Option<Violation> {
        self.found.get()
    }

    /// Returns the time of the last write of a process under test, without Leases and events.
    pub(crate) fn last_work(&self) -> Duration {
        self.lock().last_work
    }

    /// Returns the number of these writes.
    pub(crate) fn work(&self) -> u64 {
        self.lock().work
    }

    /// Returns the number of requests of the processes under test, without Leases and watches.
    pub(crate) fn requests(&self) -> u64 {
        self.lock().requests
    }

    /// Returns the number of creates by created object.
    pub(crate) fn created(&self) -> BTreeMap<String, u64> {
        self.lock().created.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JournalObserver for Oracle {
    fn on_record(&self, record: &Record) {
        let violation = self.lock().check_record(record);
        if let Some(violation) = violation {
            self.report(violation);
        }
    }
}

impl State {
    fn check_record(&mut self, record: &Record) -> Option<Violation> {
        let tested = self.tested.contains(&record.process.instance);
        match &record.kind {
            RecordKind::Sent { id, request } if tested => return self.sent(record, *id, request),
            RecordKind::Served { id, request, code, body } => {
                let sent_under = self.writes_in_flight.remove(id);
                self.reads.served(*id, request, *code, body);
                if *code >= 300 {
                    return None;
                }
                if is_lease_write(request) {
                    return self.lease_served(record, *id, request, body);
                }
                if tested && request.verb == Some(Verb::Create) && request.is_work() {
                    *self.created.entry(created(request, body)).or_default() += 1;
                }
                return sent_under.and_then(|leases| self.took_effect(record, request, &leases));
            }
            RecordKind::Answered { id, request, code } if is_lease_write(request) => {
                self.lease_answered(&record.process, *id, *code);
            }
            RecordKind::WatchEventSent { id, frame, .. } if tested => self.watch_rate.on_frame(*id, frame),
            RecordKind::Broken(message) => return Some(Violation::Panicked(message.clone())),
            _ => {}
        }
        None
    }

    fn sent(&mut self, record: &Record, id: u64, request: &RequestSummary) -> Option<Violation> {
        if is_lease_write(request) {
            self.leases.insert(id, (record.at, None));
            return None;
        }
        if request.is_watch() {
            return self.watch_rate.opened(record.at, &record.process, id, request);
        }
        if request.resource != "leases" {
            self.requests += 1;
        }
        if request.is_work() {
            self.last_work = record.at;
            self.work += 1;
            self.reads.sent(id);
            self.fenced(record, id, request, Some(sharding_key(request)))
        } else if request.is_write() {
            // An Event belongs to no shard: any held shard Lease permits it.
            self.fenced(record, id, request, None)
        } else {
            None
        }
    }

    /// Returns the violation of a write by a candidate when it is sent. `sharding_key` is `None` for events.
    fn fenced(
        &mut self,
        record: &Record,
        id: u64,
        request: &RequestSummary,
        sharding_key: Option<&str>,
    ) -> Option<Violation> {
        let candidate = self.candidates.get(&record.process.instance)?;
        let agent = agent(request);
        if agent == ELECTION {
            return None;
        }
        let needed = self.needed(candidate, sharding_key);
        let valid = self.valid(record, &needed, candidate.deadline);
        let violation = if valid.is_empty() {
            Some(unfenced(record, request, self.until(record, &needed, candidate.deadline)))
        } else {
            let holders = self.holders_of(&valid);
            let holds = holders.iter().any(|(_, holder)| is_identity_of(holder, &record.process));
            (!holds).then(|| split_brain(record, request, &holders))
        };
        let sent_under = valid.into_iter().cloned().collect();
        self.writes_in_flight.insert(id, sent_under);
        violation
    }

    /// Returns the violation of a write that takes effect now and was sent under these Leases.
    fn took_effect(
        &self,
        record: &Record,
        request: &RequestSummary,
        sent_under: &[LeaseName],
    ) -> Option<Violation> {
        let candidate = self.candidates.get(&record.process.instance)?;
        let sent_under: Vec<&LeaseName> = sent_under.iter().collect();
        let valid = self.valid(record, &sent_under, candidate.lease_duration);
        if valid.is_empty() {
            return Some(unfenced(
                record,
                request,
                self.until(record, &sent_under, candidate.lease_duration),
            ));
        }
        // The object might belong to another shard by now, whose holder acts on it.
        let now = self.needed(candidate, request.is_work().then(|| sharding_key(request)));
        let holders = self.holders_of(if now.is_empty() { &valid } else { &now });
        // A released Lease has no other holder.
        let held_by_another =
            |(_, holder): &(&LeaseName, &str)| !holder.is_empty() && !is_identity_of(holder, &record.process);
        holders.iter().all(held_by_another).then(|| split_brain(record, request, &holders))
    }

    /// Returns the Leases among `leases` that the sender renewed less than `within` ago.
    fn valid<'l>(&self, record: &Record, leases: &[&'l LeaseName], within: Duration) -> Vec<&'l LeaseName> {
        let is_valid = |lease: &&LeaseName| {
            let renewed = self.renewed.get(&(record.process.clone(), LeaseName::clone(lease)));
            renewed.is_some_and(|renewed| record.at <= *renewed + within)
        };
        leases.iter().copied().filter(is_valid).collect()
    }

    /// Returns the time until which any of these Leases permitted the sender to write.
    fn until(&self, record: &Record, leases: &[&LeaseName], within: Duration) -> Option<Duration> {
        let renewed = leases
            .iter()
            .filter_map(|lease| self.renewed.get(&(record.process.clone(), LeaseName::clone(lease))));
        renewed.max().map(|renewed| *renewed + within)
    }

    fn holders_of<'l>(&'l self, leases: &[&'l LeaseName]) -> Vec<(&'l LeaseName, &'l str)> {
        leases.iter().map(|lease| (*lease, &*self.holders[*lease])).collect()
    }

    /// Returns the Leases that permit a write in this namespace, or to a cluster-scoped object of this name.
    fn needed(&self, candidate: &Candidate, sharding_key: Option<&str>) -> Vec<&LeaseName> {
        let acts_on = |lease: &LeaseName, sharding_key: &str| {
            let ranges = self.ranges.get(lease);
            !candidate.is_sharded || ranges.is_some_and(|ranges| ranges.contains(hash(sharding_key)))
        };
        let serves =
            |lease: &&LeaseName| sharding_key.is_none_or(|sharding_key| acts_on(lease, sharding_key));
        let leases = self.holders.keys().filter(|lease| candidate.is_permitted_by(lease));
        leases.filter(serves).collect()
    }

    fn lease_served(
        &mut self,
        record: &Record,
        id: u64,
        request: &RequestSummary,
        body: &[u8],
    ) -> Option<Violation> {
        let process = &record.process;
        let lease: Value = serde_json::from_slice(body).unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        // The path of a create request does not contain the name.
        let created = lease["metadata"]["name"].as_str().unwrap_or_default();
        let name = if request.name.is_empty() { created } else { &request.name };
        let written = (request.namespace.clone(), name.to_owned());
        let own = self
            .candidates
            .get(&process.instance)
            .is_some_and(|candidate| candidate.is_permitted_by(&written));
        if let Some((_, noted)) = self.leases.get_mut(&id).filter(|_| own) {
            *noted = Some((written.clone(), holder.clone()));
        }
        let violation = self.share_served(record, request, &written, (&holder, &lease));
        if let Some(ranges) = ranges(&lease) {
            self.ranges.insert(written.clone(), ranges);
        }
        self.holders.insert(written, holder);
        violation
    }

    /// Forwards the shard data of a Lease to the oracle of shard ownership.
    fn share_served(
        &mut self,
        record: &Record,
        request: &RequestSummary,
        written: &LeaseName,
        (holder, lease): (&str, &Value),
    ) -> Option<Violation> {
        let candidate =
            self.candidates.get(&record.process.instance).filter(|candidate| candidate.is_sharded)?;
        let (namespace, prefix) = &candidate.lease;
        let rest = written.1.strip_prefix(prefix.as_str()).filter(|_| written.0 == *namespace)?;
        let holder = parse_identity(holder);
        if let Some(number) = rest.strip_prefix("-shard-").and_then(|number| number.parse().ok()) {
            return self.shard_gaps.on_lease(ShardId(number), holder, ranges(lease), record.at);
        }
        if rest == "-shards" {
            let division = lease["metadata"]["annotations"][DIVISION_ANNOTATION].as_str();
            self.shard_gaps.on_plan(division.and_then(|text| text.parse().ok()), record.at);
        } else if rest.starts_with("-member-") {
            let member = self.holders.get(written).and_then(|member| parse_identity(member));
            match (holder, member) {
                (_, Some(member)) if request.verb == Some(Verb::Delete) => self.shard_gaps.on_left(&member),
                (Some(holder), _) => self.shard_gaps.on_joined(&holder, record.at),
                _ => {}
            }
        }
        None
    }

    fn lease_answered(&mut self, process: &ProcessId, id: u64, code: u16) {
        let Some((sent, Some((lease, holder)))) = self.leases.remove(&id) else { return };
        if !self.candidates.contains_key(&process.instance) {
            return;
        }
        if code < 300 && is_identity_of(&holder, process) {
            let renewed = self.renewed.entry((process.clone(), lease)).or_insert(sent);
            *renewed = sent.max(*renewed);
        }
    }
}

fn ranges(lease: &Value) -> Option<HashRanges> {
    lease["metadata"]["annotations"][RANGES_ANNOTATION].as_str()?.parse().ok()
}

/// Returns the sharding key of a write: its namespace, or the name of a cluster-scoped object.
fn sharding_key(request: &RequestSummary) -> &str {
    if request.namespace.is_empty() { &request.name } else { &request.namespace }
}

/// Returns the controller that sent the request.
fn agent(request: &RequestSummary) -> &str {
    request.user_agent.rsplit('/').next().unwrap_or_default()
}

fn unfenced(record: &Record, request: &RequestSummary, until: Option<Duration>) -> Violation {
    let request = format!("{} {}", request.method, request.uri);
    Violation::WriteWithoutLease { process: record.process.to_string(), request, at: record.at, until }
}

fn split_brain(record: &Record, request: &RequestSummary, holders: &[(&LeaseName, &str)]) -> Violation {
    let holders: BTreeSet<&str> = holders.iter().map(|(_, holder)| *holder).collect();
    Violation::SplitBrain {
        process: record.process.to_string(),
        holder: holders.into_iter().collect::<Vec<_>>().join(", "),
        request: format!("{} {}", request.method, request.uri),
        at: record.at,
    }
}

fn is_lease_write(request: &RequestSummary) -> bool {
    request.resource == "leases" && request.is_write()
}

/// Returns the identity of a created object across runs: its `generateName` prefix, or its name.
fn created(request: &RequestSummary, body: &[u8]) -> String {
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    let meta = &object["metadata"];
    let name = meta["generateName"].as_str().or(meta["name"].as_str()).unwrap_or_default();
    format!("{}/{}/{name}", request.resource, request.namespace)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    const LEASE: &str = "windlass";

    /// Returns a state with one candidate for a Lease, or for shards.
    fn state(is_sharded: bool) -> State {
        let candidate = Candidate {
            deadline: Duration::from_secs(10),
            lease_duration: Duration::from_secs(15),
            lease: ("kube-system".into(), LEASE.into()),
            is_sharded,
        };
        let mut state = State::default();
        state.tested.insert("a".into());
        state.candidates.insert("a".into(), candidate);
        state
    }

    fn record(at: u64, what: RecordKind) -> Record {
        Record {
            at: Duration::from_secs(at),
            process: ProcessId { instance: "a".into(), incarnation: 0 },
            kind: what,
        }
    }

    fn request(
        verb: Verb,
        resource: &str,
        (namespace, name): (&str, &str),
        agent: &str,
    ) -> Arc<RequestSummary> {
        Arc::new(RequestSummary {
            method: if verb == Verb::Create { Method::POST } else { Method::PUT },
            uri: format!("/{resource}"),
            verb: Some(verb),
            group: String::new(),
            resource: resource.into(),
            subresource: String::new(),
            namespace: namespace.into(),
            name: name.into(),
            user_agent: format!("windlass/1/{agent}"),
        })
    }

    /// Stores `holder` as the holder of a Lease by a renewal of `a`.
    fn holds(state: &mut State, at: u64, lease: &str, holder: &str) {
        let request = request(Verb::Update, "leases", ("kube-system", lease), ELECTION);
        let body = serde_json::json!({
            "metadata": { "annotations": { RANGES_ANNOTATION: "0x0000000000000000-0x10000000000000000" } },
            "spec": { "holderIdentity": holder },
        });
        let body = body.to_string().into_bytes().into();
        let sent = RecordKind::Sent { id: at, request: Arc::clone(&request) };
        let served = RecordKind::Served { id: at, request: Arc::clone(&request), code: 200, body };
        for what in [sent, served, RecordKind::Answered { id: at, request, code: 200 }] {
            assert_eq!(state.check_record(&record(at, what)), None);
        }
    }

    /// Returns the violation when `agent` sends a create.
    fn sends(state: &mut State, at: u64, resource: &str, agent: &str) -> Option<Violation> {
        let request = request(Verb::Create, resource, ("shop", ""), agent);
        state.check_record(&record(at, RecordKind::Sent { id: 1_000, request }))
    }

    #[test]
    fn event_needs_a_lease_like_any_write() {
        for (is_sharded, lease) in [(false, LEASE), (true, "windlass-shard-3")] {
            for resource in ["events", "pods"] {
                let state = &mut state(is_sharded);
                let never = sends(state, 1, resource, "main");
                assert!(matches!(never, Some(Violation::WriteWithoutLease { until: None, .. })), "{never:?}");
                holds(state, 2, lease, "a-0");
                assert_eq!(sends(state, 12, resource, "main"), None, "until its deadline");
                let late = sends(state, 13, resource, "main");
                assert!(
                    matches!(late, Some(Violation::WriteWithoutLease { until: Some(_), .. })),
                    "{late:?}"
                );
                holds(state, 14, lease, "a-0");
                holds(state, 15, lease, "b-0");
                let twice = sends(state, 16, resource, "main");
                assert!(matches!(twice, Some(Violation::SplitBrain { .. })), "{twice:?}");
            }
        }
    }

    /// Returns the violation when a write of `main`, sent at 2 under a Lease renewed at 1, takes effect at `at`.
    fn takes_effect(at: u64, meanwhile: impl FnOnce(&mut State)) -> Option<Violation> {
        let state = &mut state(false);
        holds(state, 1, LEASE, "a-0");
        assert_eq!(sends(state, 2, "pods", "main"), None);
        meanwhile(state);
        let request = request(Verb::Create, "pods", ("shop", ""), "main");
        state.check_record(&record(
            at,
            RecordKind::Served { id: 1_000, request, code: 201, body: Default::default() },
        ))
    }

    #[test]
    fn write_takes_effect_before_its_lease_can_expire() {
        assert_eq!(takes_effect(16, |_| ()), None, "after the renew deadline, within the lease duration");
        let late = takes_effect(17, |_| ());
        assert!(matches!(late, Some(Violation::WriteWithoutLease { until: Some(_), .. })), "{late:?}");
    }

    #[test]
    fn write_after_another_holder_is_stored_is_split_brain() {
        let taken = takes_effect(5, |state| holds(state, 4, LEASE, "b-0"));
        assert!(matches!(taken, Some(Violation::SplitBrain { .. })), "{taken:?}");
        assert_eq!(
            takes_effect(5, |state| holds(state, 4, LEASE, "")),
            None,
            "a released Lease has no holder"
        );
    }

    #[test]
    fn events_of_the_election_need_no_lease() {
        for is_sharded in [false, true] {
            assert_eq!(sends(&mut state(is_sharded), 1, "events", ELECTION), None);
        }
    }
}
