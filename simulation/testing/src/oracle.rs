//! The judge: looks at everything that passes, and objects at once.
//!
//! It stands outside of the processes it judges, and knows nothing of their code: only what was sent, by whom and when,
//! what took effect at the server and when, and what was answered.
//!
//! A fence is judged twice. A write must be sent before the renew deadline after the sender's last renewal. It must take
//! effect before the lease can end, and not after another holder's write of the Lease: a sound fence keeps both, however
//! late the network, within the bounds of its connections, is.

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

/// What is known of one instance that stands for election.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// The renew deadline in true time, given the rate of its clock.
    pub(crate) deadline: Duration,
    /// The lease duration in true time, by the fastest clock of all: another can hold the lease from then on.
    pub(crate) lease_duration: Duration,
    /// What it stands for; where it shares shards, the name that begins those of their Leases.
    pub(crate) lease: LeaseName,
    /// Whether it shares shards: each write then needs the Lease of its namespace's shard.
    pub(crate) shares: bool,
}

impl Candidate {
    /// Whether whoever holds this Lease may write.
    fn stands_for(&self, (namespace, name): &LeaseName) -> bool {
        let (own_namespace, own) = &self.lease;
        let shard = name.strip_prefix(own.as_str()).is_some_and(|rest| rest.starts_with("-shard-"));
        namespace == own_namespace && if self.shares { shard } else { name == own }
    }
}

/// Whether a Lease with this holder names this life of a process.
fn names(holder: &str, who: &ProcessId) -> bool {
    holder == identity(who)
}

/// What the election calls itself to the server: it writes its Leases, and tells of them whoever leads.
const ELECTION: &str = "leader-election";

/// Namespace and name of a Lease. There may be others than those of elections.
pub(crate) type LeaseName = (String, String);

/// The annotation of a shard's Lease that tells what its holder acts on, as operators see it.
const RANGES_ANNOTATION: &str = "windlass.dev/ranges";
/// The annotation of the plan's Lease that tells which shard has which ranges.
const DIVISION_ANNOTATION: &str = "windlass.dev/division";

/// Judges one world.
pub(crate) struct Oracle {
    state: Mutex<State>,
    found: Sender<Option<Violation>>,
}

#[derive(Default)]
struct State {
    /// The processes under test.
    judged: BTreeSet<Arc<str>>,
    elected: BTreeMap<Arc<str>, Candidate>,
    last_work: Duration,
    work: u64,
    requests: u64,
    /// What was created, by resource, namespace and prefix of the name.
    created: BTreeMap<String, u64>,
    /// Who holds which Lease, as the server has it.
    holders: BTreeMap<LeaseName, String>,
    openings: WatchRateOracle,
    reads: Reads,
    custodian: ShardGapOracle,
    /// What the holder of a Lease of a shard acts on.
    ranges: BTreeMap<LeaseName, HashRanges>,
    /// Lease writes under way, with the time they were sent and the holder that the server noted.
    leases: BTreeMap<u64, (Duration, Option<(LeaseName, String)>)>,
    /// When each life sent its last answered renewal of which Lease.
    renewed: BTreeMap<(ProcessId, LeaseName), Duration>,
    /// Writes on their way, with the Leases under which they were sent.
    on_their_way: BTreeMap<u64, Vec<LeaseName>>,
}

/// What a replica calls itself in the election.
pub(crate) fn identity(who: &ProcessId) -> String {
    format!("{}-{}", who.instance, who.life)
}

/// Who calls itself so.
fn named(identity: &str) -> Option<ProcessId> {
    let (instance, life) = identity.rsplit_once('-')?;
    Some(ProcessId { instance: instance.into(), life: life.parse().ok()? })
}

impl Oracle {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Oracle { state: Mutex::default(), found: channel(None).0 })
    }

    /// From now on this instance's requests are counted, and its writes judged if it stands for election.
    pub(crate) fn judge(&self, instance: &str, candidate: Option<Candidate>) {
        let mut state = self.lock();
        state.judged.insert(instance.into());
        if let Some(candidate) = candidate {
            state.elected.insert(instance.into(), candidate);
        }
    }

    /// Tells whoever looks after vacant shards something, if there are any.
    pub(crate) fn of_shards(&self, tell: impl FnOnce(&mut ShardGapOracle)) {
        tell(&mut self.lock().custodian);
    }

    /// Looks at what keys wrote.
    pub(crate) fn reads<T>(&self, look: impl FnOnce(&Reads) -> T) -> T {
        look(&self.lock().reads)
    }

    /// Looks at shards that nobody works on.
    pub(crate) fn look(&self, at: Duration) {
        let flaw = self.lock().custodian.look(at);
        if let Some(flaw) = flaw {
            self.object(flaw);
        }
    }

    /// For how long shards had nobody who works on them.
    pub(crate) fn vacancies(&self) -> OwnershipGaps {
        self.lock().custodian.vacancies()
    }

    /// Objects to something that was found elsewhere. The first objection counts.
    pub(crate) fn object(&self, flaw: Violation) {
        if self.found.get().is_none() {
            self.found.set(Some(flaw));
        }
    }

    /// Completes with the first objection.
    pub(crate) async fn objection(&self) -> Violation {
        match self.found.subscribe().wait_for(Option::is_some).await {
            Ok(Some(flaw)) => flaw,
            _ => std::future::pending().await,
        }
    }

    pub(crate) fn found(&self) -> Option<Violation> {
        self.found.get()
    }

    /// When the last write left a process under test; leases and events do not count.
    pub(crate) fn last_work(&self) -> Duration {
        self.lock().last_work
    }

    /// How many of them there were.
    pub(crate) fn work(&self) -> u64 {
        self.lock().work
    }

    /// How many requests the processes under test sent, without leases and watches.
    pub(crate) fn requests(&self) -> u64 {
        self.lock().requests
    }

    /// What was created, and how often.
    pub(crate) fn created(&self) -> BTreeMap<String, u64> {
        self.lock().created.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JournalObserver for Oracle {
    fn on_record(&self, record: &Record) {
        let flaw = self.lock().saw(record);
        if let Some(flaw) = flaw {
            self.object(flaw);
        }
    }
}

impl State {
    fn saw(&mut self, record: &Record) -> Option<Violation> {
        let judged = self.judged.contains(&record.who.instance);
        match &record.what {
            RecordKind::Sent { id, asked } if judged => return self.sent(record, *id, asked),
            RecordKind::Served { id, asked, code, body } => {
                let sent_under = self.on_their_way.remove(id);
                self.reads.served(*id, asked, *code, body);
                if *code >= 300 {
                    return None;
                }
                if is_lease_write(asked) {
                    return self.lease_served(record, *id, asked, body);
                }
                if judged && asked.verb == Some(Verb::Create) && asked.is_work() {
                    *self.created.entry(created(asked, body)).or_default() += 1;
                }
                return sent_under.and_then(|leases| self.took_effect(record, asked, &leases));
            }
            RecordKind::Answered { id, asked, code } if is_lease_write(asked) => {
                self.lease_answered(&record.who, *id, *code);
            }
            RecordKind::Told { id, frame, .. } if judged => self.openings.told(*id, frame),
            RecordKind::Broken(message) => return Some(Violation::Panicked(message.clone())),
            _ => {}
        }
        None
    }

    fn sent(&mut self, record: &Record, id: u64, asked: &RequestSummary) -> Option<Violation> {
        if is_lease_write(asked) {
            self.leases.insert(id, (record.at, None));
            return None;
        }
        if asked.is_watch() {
            return self.openings.opened(record.at, &record.who, id, asked);
        }
        if asked.resource != "leases" {
            self.requests += 1;
        }
        if asked.is_work() {
            self.last_work = record.at;
            self.work += 1;
            self.reads.sent(id);
            self.fenced(record, id, asked, Some(place(asked)))
        } else if asked.is_write() {
            // An Event belongs to no shard: it leaves while any is held.
            self.fenced(record, id, asked, None)
        } else {
            None
        }
    }

    /// What is wrong with a write that is sent, to this place if there is one, by a process that is elected.
    fn fenced(
        &mut self,
        record: &Record,
        id: u64,
        asked: &RequestSummary,
        place: Option<&str>,
    ) -> Option<Violation> {
        let candidate = self.elected.get(&record.who.instance)?;
        let agent = agent(asked);
        if agent == ELECTION {
            return None;
        }
        let needed = self.needed(candidate, place);
        let valid = self.valid(record, &needed, candidate.deadline);
        let flaw = if valid.is_empty() {
            Some(unfenced(record, asked, self.until(record, &needed, candidate.deadline)))
        } else {
            let holders = self.holders_of(&valid);
            let holds = holders.iter().any(|(_, holder)| names(holder, &record.who));
            (!holds).then(|| split_brain(record, asked, &holders))
        };
        let sent_under = valid.into_iter().cloned().collect();
        self.on_their_way.insert(id, sent_under);
        flaw
    }

    /// What is wrong with a write that takes effect now, and was sent under these Leases.
    fn took_effect(
        &self,
        record: &Record,
        asked: &RequestSummary,
        sent_under: &[LeaseName],
    ) -> Option<Violation> {
        let candidate = self.elected.get(&record.who.instance)?;
        let sent_under: Vec<&LeaseName> = sent_under.iter().collect();
        let valid = self.valid(record, &sent_under, candidate.lease_duration);
        if valid.is_empty() {
            return Some(unfenced(record, asked, self.until(record, &sent_under, candidate.lease_duration)));
        }
        // The object may belong to another shard by now, whose holder acts on it.
        let now = self.needed(candidate, asked.is_work().then(|| place(asked)));
        let holders = self.holders_of(if now.is_empty() { &valid } else { &now });
        // A Lease that its holder released is held by no other.
        let held_by_another =
            |(_, holder): &(&LeaseName, &str)| !holder.is_empty() && !names(holder, &record.who);
        holders.iter().all(held_by_another).then(|| split_brain(record, asked, &holders))
    }

    /// Those of these Leases that the sender renewed less than `within` ago.
    fn valid<'l>(&self, record: &Record, leases: &[&'l LeaseName], within: Duration) -> Vec<&'l LeaseName> {
        let is_valid = |lease: &&LeaseName| {
            let renewed = self.renewed.get(&(record.who.clone(), LeaseName::clone(lease)));
            renewed.is_some_and(|renewed| record.at <= *renewed + within)
        };
        leases.iter().copied().filter(is_valid).collect()
    }

    /// Until when the sender was allowed to, under any of these Leases.
    fn until(&self, record: &Record, leases: &[&LeaseName], within: Duration) -> Option<Duration> {
        let renewed = leases
            .iter()
            .filter_map(|lease| self.renewed.get(&(record.who.clone(), LeaseName::clone(lease))));
        renewed.max().map(|renewed| *renewed + within)
    }

    fn holders_of<'l>(&'l self, leases: &[&'l LeaseName]) -> Vec<(&'l LeaseName, &'l str)> {
        leases.iter().map(|lease| (*lease, &*self.holders[*lease])).collect()
    }

    /// The Leases that a write can be sent under: in this namespace, or to an object of this name without
    /// one.
    fn needed(&self, candidate: &Candidate, place: Option<&str>) -> Vec<&LeaseName> {
        let acts_on = |lease: &LeaseName, place: &str| {
            let ranges = self.ranges.get(lease);
            !candidate.shares || ranges.is_some_and(|ranges| ranges.contains(hash(place)))
        };
        let serves = |lease: &&LeaseName| place.is_none_or(|place| acts_on(lease, place));
        let leases = self.holders.keys().filter(|lease| candidate.stands_for(lease));
        leases.filter(serves).collect()
    }

    fn lease_served(
        &mut self,
        record: &Record,
        id: u64,
        asked: &RequestSummary,
        body: &[u8],
    ) -> Option<Violation> {
        let who = &record.who;
        let lease: Value = serde_json::from_slice(body).unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        // A create names its object in the body alone.
        let created = lease["metadata"]["name"].as_str().unwrap_or_default();
        let name = if asked.name.is_empty() { created } else { &asked.name };
        let written = (asked.namespace.clone(), name.to_owned());
        let own = self.elected.get(&who.instance).is_some_and(|candidate| candidate.stands_for(&written));
        if let Some((_, noted)) = self.leases.get_mut(&id).filter(|_| own) {
            *noted = Some((written.clone(), holder.clone()));
        }
        let flaw = self.share_served(record, asked, &written, (&holder, &lease));
        if let Some(ranges) = ranges(&lease) {
            self.ranges.insert(written.clone(), ranges);
        }
        self.holders.insert(written, holder);
        flaw
    }

    /// Passes on what a Lease says of shards.
    fn share_served(
        &mut self,
        record: &Record,
        asked: &RequestSummary,
        written: &LeaseName,
        (holder, lease): (&str, &Value),
    ) -> Option<Violation> {
        let candidate = self.elected.get(&record.who.instance).filter(|candidate| candidate.shares)?;
        let (namespace, prefix) = &candidate.lease;
        let rest = written.1.strip_prefix(prefix.as_str()).filter(|_| written.0 == *namespace)?;
        let holder = named(holder);
        if let Some(number) = rest.strip_prefix("-shard-").and_then(|number| number.parse().ok()) {
            return self.custodian.leased(ShardId(number), holder, ranges(lease), record.at);
        }
        if rest == "-shards" {
            let division = lease["metadata"]["annotations"][DIVISION_ANNOTATION].as_str();
            self.custodian.planned(division.and_then(|text| text.parse().ok()), record.at);
        } else if rest.starts_with("-member-") {
            let member = self.holders.get(written).and_then(|member| named(member));
            match (holder, member) {
                (_, Some(member)) if asked.verb == Some(Verb::Delete) => self.custodian.left(&member),
                (Some(holder), _) => self.custodian.belongs(&holder, record.at),
                _ => {}
            }
        }
        None
    }

    fn lease_answered(&mut self, who: &ProcessId, id: u64, code: u16) {
        let Some((sent, Some((lease, holder)))) = self.leases.remove(&id) else { return };
        if !self.elected.contains_key(&who.instance) {
            return;
        }
        if code < 300 && names(&holder, who) {
            let renewed = self.renewed.entry((who.clone(), lease)).or_insert(sent);
            *renewed = sent.max(*renewed);
        }
    }
}

fn ranges(lease: &Value) -> Option<HashRanges> {
    lease["metadata"]["annotations"][RANGES_ANNOTATION].as_str()?.parse().ok()
}

/// What a write is shared by: its namespace, or its object's name if that has none.
fn place(asked: &RequestSummary) -> &str {
    if asked.namespace.is_empty() { &asked.name } else { &asked.namespace }
}

/// The controller that sends a request.
fn agent(asked: &RequestSummary) -> &str {
    asked.user_agent.rsplit('/').next().unwrap_or_default()
}

fn unfenced(record: &Record, asked: &RequestSummary, until: Option<Duration>) -> Violation {
    let request = format!("{} {}", asked.method, asked.uri);
    Violation::Unfenced { who: record.who.to_string(), request, at: record.at, until }
}

fn split_brain(record: &Record, asked: &RequestSummary, holders: &[(&LeaseName, &str)]) -> Violation {
    let holders: BTreeSet<&str> = holders.iter().map(|(_, holder)| *holder).collect();
    Violation::SplitBrain {
        who: record.who.to_string(),
        holder: holders.into_iter().collect::<Vec<_>>().join(", "),
        request: format!("{} {}", asked.method, asked.uri),
        at: record.at,
    }
}

fn is_lease_write(asked: &RequestSummary) -> bool {
    asked.resource == "leases" && asked.is_write()
}

/// What a create made, as one can expect it to be made once: by the prefix of a drawn name, or the name.
fn created(asked: &RequestSummary, body: &[u8]) -> String {
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    let meta = &object["metadata"];
    let name = meta["generateName"].as_str().or(meta["name"].as_str()).unwrap_or_default();
    format!("{}/{}/{name}", asked.resource, asked.namespace)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    const LEASE: &str = "windlass";

    /// A process that stands for its Lease, or for shards.
    fn state(shares: bool) -> State {
        let candidate = Candidate {
            deadline: Duration::from_secs(10),
            lease_duration: Duration::from_secs(15),
            lease: ("kube-system".into(), LEASE.into()),
            shares,
        };
        let mut state = State::default();
        state.judged.insert("a".into());
        state.elected.insert("a".into(), candidate);
        state
    }

    fn record(at: u64, what: RecordKind) -> Record {
        Record { at: Duration::from_secs(at), who: ProcessId { instance: "a".into(), life: 0 }, what }
    }

    fn asked(
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

    /// Somebody is the holder of a Lease from now on, by a renewal of `a`.
    fn holds(state: &mut State, at: u64, lease: &str, holder: &str) {
        let asked = asked(Verb::Update, "leases", ("kube-system", lease), ELECTION);
        let body = serde_json::json!({
            "metadata": { "annotations": { RANGES_ANNOTATION: "0x0000000000000000-0x10000000000000000" } },
            "spec": { "holderIdentity": holder },
        });
        let body = body.to_string().into_bytes().into();
        let sent = RecordKind::Sent { id: at, asked: Arc::clone(&asked) };
        let served = RecordKind::Served { id: at, asked: Arc::clone(&asked), code: 200, body };
        for what in [sent, served, RecordKind::Answered { id: at, asked, code: 200 }] {
            assert_eq!(state.saw(&record(at, what)), None);
        }
    }

    /// What is said when `agent` sends one.
    fn sends(state: &mut State, at: u64, resource: &str, agent: &str) -> Option<Violation> {
        let asked = asked(Verb::Create, resource, ("shop", ""), agent);
        state.saw(&record(at, RecordKind::Sent { id: 1_000, asked }))
    }

    #[test]
    fn event_needs_a_lease_as_any_write_does() {
        for (shares, lease) in [(false, LEASE), (true, "windlass-shard-3")] {
            for resource in ["events", "pods"] {
                let state = &mut state(shares);
                let never = sends(state, 1, resource, "main");
                assert!(matches!(never, Some(Violation::Unfenced { until: None, .. })), "{never:?}");
                holds(state, 2, lease, "a-0");
                assert_eq!(sends(state, 12, resource, "main"), None, "until its deadline");
                let late = sends(state, 13, resource, "main");
                assert!(matches!(late, Some(Violation::Unfenced { until: Some(_), .. })), "{late:?}");
                holds(state, 14, lease, "a-0");
                holds(state, 15, lease, "b-0");
                let twice = sends(state, 16, resource, "main");
                assert!(matches!(twice, Some(Violation::SplitBrain { .. })), "{twice:?}");
            }
        }
    }

    /// What is said when a write takes effect at `at` that `main` sent at 2, under a Lease renewed at 1.
    fn takes_effect(at: u64, meanwhile: impl FnOnce(&mut State)) -> Option<Violation> {
        let state = &mut state(false);
        holds(state, 1, LEASE, "a-0");
        assert_eq!(sends(state, 2, "pods", "main"), None);
        meanwhile(state);
        let asked = asked(Verb::Create, "pods", ("shop", ""), "main");
        state.saw(&record(at, RecordKind::Served { id: 1_000, asked, code: 201, body: Default::default() }))
    }

    #[test]
    fn write_takes_effect_until_its_lease_can_end() {
        assert_eq!(takes_effect(16, |_| ()), None, "after the renew deadline, within the lease duration");
        let late = takes_effect(17, |_| ());
        assert!(matches!(late, Some(Violation::Unfenced { until: Some(_), .. })), "{late:?}");
    }

    #[test]
    fn write_takes_no_effect_after_another_holder_is_stored() {
        let taken = takes_effect(5, |state| holds(state, 4, LEASE, "b-0"));
        assert!(matches!(taken, Some(Violation::SplitBrain { .. })), "{taken:?}");
        assert_eq!(
            takes_effect(5, |state| holds(state, 4, LEASE, "")),
            None,
            "a released Lease has no holder"
        );
    }

    #[test]
    fn what_the_election_tells_of_itself_needs_no_lease() {
        for shares in [false, true] {
            assert_eq!(sends(&mut state(shares), 1, "events", ELECTION), None);
        }
    }
}
