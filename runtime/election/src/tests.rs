//! The guarantees of this crate, tested against a server with one Lease, in virtual time.

mod lease_server;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use windlass_client::RawClient;
use windlass_env::watch_channel::Receiver;
use windlass_env::{Env, Instant, Rng};
use windlass_metrics::Metrics;
use windlass_object::{GroupResource, ResourceVersion};

use self::lease_server::{Call, Fate, LeaseServer};
use crate::{
    ElectionConfig, ElectionError, Elector, LeaderFence, Leadership, LossReason, PreviousHolder,
    WRITTEN_ANNOTATION, WrittenVersions,
};

const LEASE: Duration = Duration::from_secs(15);
const DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);
/// Maximum random delay of standbys.
const SPREAD: Duration = Duration::from_millis(100);
/// Timers of tokio fire on whole milliseconds.
const TICK: Duration = Duration::from_millis(2);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn prompt(_: &Call) -> Fate {
    Fate::Prompt
}

/// Network link that can be cut.
#[derive(Clone, Default)]
struct Wire(Arc<AtomicBool>);

impl Wire {
    fn cut(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn heal(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    fn fate(&self) -> impl Fn(&Call) -> Fate + Send + Sync + 'static {
        let cut = self.0.clone();
        move |_| if cut.load(Ordering::Relaxed) { Fate::Lost } else { Fate::Prompt }
    }
}

/// Elector of one replica, and the handles that it shares with the rest of its process.
struct Replica {
    env: Env,
    elector: Elector,
    fence: Arc<LeaderFence>,
    metrics: Metrics,
}

impl Replica {
    fn new(env: Env, server: &LeaseServer, fate: impl Fn(&Call) -> Fate + Send + Sync + 'static) -> Self {
        let client = server.client(fate);
        let raw = RawClient::new(client.clone(), env.clone());
        let (fence, metrics) = (LeaderFence::new(env.clone()), Metrics::new());
        let election = ElectionConfig::new(env.instance()).resolve("kube-system");
        let elector =
            Elector::new(env.clone(), election, client, raw, fence.clone(), &metrics).expect("valid");
        Self { env, elector, fence, metrics }
    }

    /// Runs the elector in a task, indefinitely.
    fn run(self) -> Running {
        let Self { env, mut elector, fence, .. } = self;
        let leadership = elector.leadership();
        env.spawn("election", async move {
            loop {
                elector.acquire().await.expect("no lease is invalid here");
                elector.hold().await;
            }
        });
        Running { env, fence, leadership }
    }
}

struct Running {
    env: Env,
    fence: Arc<LeaderFence>,
    leadership: Receiver<Leadership>,
}

impl Running {
    async fn leads(&mut self) {
        self.leadership.wait_for(|now| *now == Leadership::Leading).await.expect("the elector is running");
    }
}

fn open(fence: &LeaderFence) -> bool {
    fence.open_until().is_some()
}

/// Returns the time for which more than one of the fences was open, sampled every 25 ms.
async fn overlap(world: &Env, fences: &[&LeaderFence], during: Duration) -> Duration {
    let (step, end) = (Duration::from_millis(25), world.now() + during);
    let mut overlap = Duration::ZERO;
    while world.now() < end {
        if fences.iter().filter(|fence| open(fence)).count() > 1 {
            overlap += step;
        }
        world.sleep(step).await;
    }
    overlap
}

/// Cuts the link of a holder, and returns the overlap with a standby. Both clocks run at the given rates.
async fn overlap_after_partition(holder: (u32, u32), standby: (u32, u32)) -> Duration {
    let world = Env::virtual_time(7);
    let (server, wire) = (LeaseServer::new(&world), Wire::default());
    let env = world.with_incarnation("holder", 0).with_rate(holder.0, holder.1);
    let mut holder = Replica::new(env, &server, wire.fate()).run();
    holder.leads().await;
    let env = world.with_incarnation("standby", 0).with_rate(standby.0, standby.1);
    let standby = Replica::new(env, &server, prompt).run();
    world.sleep(seconds(20)).await;
    wire.cut();
    let overlap = overlap(&world, &[&holder.fence, &standby.fence], seconds(40)).await;
    assert!(open(&standby.fence), "the standby took over");
    overlap
}

// parity: leader-election-durations-local
#[tokio::test(start_paused = true)]
async fn fences_do_not_overlap_within_allowed_clock_rate_ratio() {
    for (holder, standby) in
        [((1, 1), (1, 1)), ((4, 5), (1, 1)), ((1, 1), (5, 4)), ((4, 5), (6, 5)), ((2, 3), (1, 1))]
    {
        let overlap = overlap_after_partition(holder, standby).await;
        assert_eq!(overlap, Duration::ZERO, "holder {holder:?}, standby {standby:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn check_of_overlap_catches_rates_that_differ_by_more() {
    let overlap = overlap_after_partition((4, 5), (5, 4)).await;
    // 10 s at four fifths are 12.5 s, 15 s at five fourths are 12 s; the takeover has a random delay.
    assert!(overlap > Duration::from_millis(300) && overlap <= Duration::from_millis(520), "{overlap:?}");
}

/// Network link that works for some time, then delays responses, then delays requests beyond all deadlines, repeatedly.
struct FickleWire {
    clock: Env,
    rng: Rng,
    mood: Mood,
    until: Instant,
}

#[derive(Copy, Clone)]
enum Mood {
    Prompt,
    AnswersLate,
    ArrivesLate,
}

impl FickleWire {
    fn fate(world: &Env, env: &Env) -> impl Fn(&Call) -> Fate + Send + Sync + 'static {
        let (clock, rng, until) = (world.clone(), env.rng("wire"), world.now());
        let wire = Mutex::new(Self { clock, rng, mood: Mood::ArrivesLate, until });
        move |_| wire.lock().expect("not poisoned").next()
    }

    fn next(&mut self) -> Fate {
        if self.clock.now() >= self.until {
            let (mood, longest) = match self.mood {
                Mood::Prompt => (Mood::AnswersLate, seconds(6)),
                Mood::AnswersLate => (Mood::ArrivesLate, seconds(20)),
                Mood::ArrivesLate => (Mood::Prompt, seconds(30)),
            };
            self.mood = mood;
            self.until = self.clock.now() + self.rng.between(seconds(2), longest);
        }
        let soon = self.rng.between(Duration::ZERO, Duration::from_millis(5));
        let (request, response) = match self.mood {
            Mood::Prompt => (soon, soon),
            Mood::AnswersLate => (soon, self.rng.between(seconds(3), seconds(7))),
            Mood::ArrivesLate => (self.rng.between(seconds(3), seconds(14)), soon),
        };
        Fate::Delayed { request, response }
    }
}

#[tokio::test(start_paused = true)]
async fn fences_never_overlap_on_wires_that_delay_beyond_every_deadline() {
    let mut handoffs = 0;
    for seed in 0..40 {
        let world = Env::virtual_time(seed);
        let server = LeaseServer::new(&world);
        let rates =
            [((1, 1), (1, 1)), ((4, 5), (1, 1)), ((1, 1), (5, 4))][usize::try_from(seed % 3).expect("small")];
        let first = world.with_incarnation("first", 0).with_rate(rates.0.0, rates.0.1);
        let second = world.with_incarnation("second", 0).with_rate(rates.1.0, rates.1.1);
        let (first_wire, second_wire) = (FickleWire::fate(&world, &first), FickleWire::fate(&world, &second));
        let mut holder = Replica::new(first, &server, first_wire).run();
        holder.leads().await;
        let standby = Replica::new(second, &server, second_wire).run();
        let overlap = overlap(&world, &[&holder.fence, &standby.fence], seconds(300)).await;
        assert_eq!(overlap, Duration::ZERO, "seed {seed}");
        assert_eq!(server.unchanged(), 0, "seed {seed}");
        handoffs += server.spec()["leaseTransitions"].as_u64().expect("a number");
        holder.env.kill();
        standby.env.kill();
        world.kill();
    }
    assert!(handoffs > 0, "the plans caused no change of the holder");
}

#[tokio::test(start_paused = true)]
async fn expired_lease_is_taken_over_one_lease_duration_after_renewal() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, prompt).run();
    holder.leads().await;
    let mut standby = Replica::new(world.with_incarnation("standby", 0), &server, prompt).run();
    world.sleep(seconds(21)).await;
    let last_renewal = holder.fence.open_until().expect("it holds") - DEADLINE;
    holder.env.kill();
    standby.leads().await;
    let after = world.now() - last_renewal;
    assert!(after >= LEASE && after <= LEASE + SPREAD + TICK, "{after:?}");
    assert_eq!(server.spec()["leaseTransitions"], json!(1));
}

// parity: leader-election-durations-local
#[tokio::test(start_paused = true)]
async fn released_lease_is_taken_over_immediately() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, prompt);
    holder.elector.acquire().await.expect("acquired");
    let mut standby = Replica::new(world.with_incarnation("standby", 0), &server, prompt).run();
    world.sleep(seconds(5)).await;
    let before = world.now();
    holder.elector.release(None).await.expect("released");
    assert!(!open(&holder.fence));
    standby.leads().await;
    assert!(world.now() - before < Duration::from_millis(10), "{:?}", world.now() - before);
    assert_eq!(server.watches(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_watch_a_release_is_found_by_polling_and_an_expiry_on_time() {
    for broken in [Fate::Refused(500), Fate::Lost, Fate::Cut] {
        let world = Env::virtual_time(1);
        let server = LeaseServer::new(&world);
        let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, prompt);
        holder.elector.acquire().await.expect("acquired");
        let watchless = move |call: &Call| if call.watch { broken } else { Fate::Prompt };
        let mut standby = Replica::new(world.with_incarnation("standby", 0), &server, watchless).run();
        world.sleep(seconds(3)).await;
        let before = world.now();
        holder.elector.release(None).await.expect("released");
        standby.leads().await;
        let took = world.now() - before;
        // A watch without a response is waited for as long as any other request.
        let granted = if matches!(broken, Fate::Lost) { DEADLINE / 2 } else { Duration::ZERO };
        let bound = granted + RETRY.mul_f64(2.2);
        assert!(took <= bound + SPREAD, "{broken:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn renewal_changes_record_and_keeps_acquire_time() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, prompt).run();
    holder.leads().await;
    let acquired = server.spec()["acquireTime"].clone();
    world.sleep(seconds(61)).await;
    assert_eq!(server.unchanged(), 0);
    assert_eq!(server.writes(), 30, "one renewal each retry period");
    let spec = server.spec();
    assert_eq!(spec["acquireTime"], acquired);
    assert_ne!(spec["renewTime"], acquired);
    assert_eq!((&spec["leaseTransitions"], &spec["leaseDurationSeconds"]), (&json!(0), &json!(15)));
}

#[tokio::test(start_paused = true)]
async fn renewal_without_a_new_version_does_not_count() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, prompt);
    holder.elector.acquire().await.expect("acquired");
    let deadline = holder.fence.open_until().expect("open");
    server.freeze();
    let lost = holder.elector.hold().await;
    assert!(matches!(lost.reason, LossReason::Deadline { .. }), "{lost}");
    assert_eq!(world.now(), deadline);
    assert!(lost.to_string().contains("changed nothing"), "{lost}");
}

#[tokio::test(start_paused = true)]
async fn late_answer_does_not_move_the_deadline_which_counts_from_the_sending() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let late = |call: &Call| match call.is_write() {
        true => Fate::Delayed { request: Duration::ZERO, response: seconds(4) },
        false => Fate::Prompt,
    };
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, late);
    let sent = world.now();
    holder.elector.acquire().await.expect("acquired");
    assert_eq!(world.now(), sent + seconds(4));
    assert_eq!(holder.fence.open_until(), Some(sent + DEADLINE));
    // The first renewal is sent immediately, because a retry period has passed since the acquisition.
    let renewal_sent = world.now();
    assert!(world.timeout(seconds(5), holder.elector.hold()).await.is_err());
    assert_eq!(holder.fence.open_until(), Some(renewal_sent + DEADLINE));
}

#[tokio::test(start_paused = true)]
async fn lease_without_renewal_is_lost_at_the_deadline() {
    let world = Env::virtual_time(1);
    let (server, wire) = (LeaseServer::new(&world), Wire::default());
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, wire.fate());
    holder.elector.acquire().await.expect("acquired");
    let (leadership, closed) = (holder.elector.leadership(), windlass_client::Fence::closed(&*holder.fence));
    let closed = world.spawn("fence", closed);
    let status = || holder.metrics.election("windlass").master_status.get();
    assert_eq!((leadership.get(), status()), (Leadership::Leading, 1));
    let deadline = holder.fence.open_until().expect("open");
    wire.cut();
    let lost = holder.elector.hold().await;
    assert!(matches!(lost.reason, LossReason::Deadline { within: DEADLINE, .. }), "{lost}");
    closed.await.expect("the fence is closed");
    assert_eq!(world.now(), deadline);
    assert_eq!(
        (leadership.get(), holder.metrics.election("windlass").master_status.get()),
        (Leadership::Lost, 0)
    );
    assert!(matches!(holder.elector.hold().await.reason, LossReason::NotHeld));
}

#[tokio::test(start_paused = true)]
async fn failure_within_the_deadline_is_survived() {
    let world = Env::virtual_time(1);
    let (server, wire) = (LeaseServer::new(&world), Wire::default());
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, wire.fate());
    holder.elector.acquire().await.expect("acquired");
    wire.cut();
    assert!(world.timeout(seconds(6), holder.elector.hold()).await.is_err());
    wire.heal();
    assert!(world.timeout(seconds(60), holder.elector.hold()).await.is_err(), "it still holds");
    assert!(open(&holder.fence));
}

// parity: test-leader-election-health-checker
#[tokio::test(start_paused = true)]
async fn other_or_missing_holder_ends_the_term_at_next_renewal() {
    for (name, reason) in
        [("thief", LossReason::OtherHolder { holder: "thief".to_owned() }), ("", LossReason::HolderCleared)]
    {
        let world = Env::virtual_time(1);
        let server = LeaseServer::new(&world);
        let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, prompt);
        let health = holder.elector.health();
        holder.elector.acquire().await.expect("acquired");
        server.edit(|lease| lease["spec"]["holderIdentity"] = json!(name));
        let before = world.now();
        assert_eq!(holder.elector.hold().await.reason, reason);
        assert!(world.now() - before <= RETRY && !open(&holder.fence));
        world.sleep(LEASE * 10).await;
        assert_eq!(health(), Ok(()), "a lease of another holder needs no renewal");
        assert_eq!(server.holder().as_deref(), Some(name), "a lease of another holder is not overwritten");
    }
}

#[tokio::test(start_paused = true)]
async fn hold_continues_after_drop_at_any_await() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let slow =
        |_: &Call| Fate::Delayed { request: Duration::from_millis(30), response: Duration::from_millis(30) };
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, slow);
    holder.elector.acquire().await.expect("acquired");
    for _ in 0..300 {
        assert!(world.timeout(Duration::from_millis(137), holder.elector.hold()).await.is_err());
        assert!(open(&holder.fence));
    }
    assert!(holder.metrics.election("windlass").slowpath.get() > 0, "some renewals were interrupted");
}

#[tokio::test(start_paused = true)]
async fn lease_won_without_response_is_reclaimed() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let slow = |_: &Call| Fate::Delayed { request: Duration::ZERO, response: Duration::from_millis(100) };
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, slow);
    assert!(world.timeout(Duration::from_millis(150), holder.elector.acquire()).await.is_err());
    assert_eq!(server.holder().as_deref(), Some("holder"));
    assert!(!open(&holder.fence), "the fence stays closed until the response");
    holder.elector.acquire().await.expect("acquired");
    assert!(open(&holder.fence));
    assert_eq!(server.spec()["leaseTransitions"], json!(0));
}

// parity: test-release-on-cancellation-leases
#[tokio::test(start_paused = true)]
async fn lease_won_without_response_is_released() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let slow = |_: &Call| Fate::Delayed { request: Duration::ZERO, response: Duration::from_millis(100) };
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, slow);
    assert!(world.timeout(Duration::from_millis(150), holder.elector.acquire()).await.is_err());
    holder.elector.release(None).await.expect("released");
    assert_eq!(server.holder().as_deref(), Some(""));
}

// parity: test-release-lease-leases
#[tokio::test(start_paused = true)]
async fn release_does_not_overwrite_another_holder() {
    let world = Env::virtual_time(1);
    let (server, wire) = (LeaseServer::new(&world), Wire::default());
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, wire.fate());
    holder.elector.acquire().await.expect("acquired");
    let mut standby = Replica::new(world.with_incarnation("standby", 0), &server, prompt).run();
    wire.cut();
    holder.elector.hold().await;
    standby.leads().await;
    wire.heal();
    holder.elector.release(None).await.expect("nothing to release");
    assert_eq!(server.holder().as_deref(), Some("standby"));
}

// parity: test-release-retries-on-conflict
#[tokio::test(start_paused = true)]
async fn release_retries_conflicts_until_renew_deadline() {
    let world = Env::virtual_time(1);
    let (server, wire) = (LeaseServer::new(&world), Wire::default());
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, wire.fate());
    holder.elector.acquire().await.expect("acquired");
    server.interfere(3);
    holder.elector.release(None).await.expect("released");
    let spec = server.spec();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(""), &json!(1)));

    holder.elector.acquire().await.expect("acquired again");
    assert_eq!(server.spec()["leaseTransitions"], json!(1));
    server.interfere(usize::MAX);
    let before = world.now();
    assert_eq!(holder.elector.release(None).await, Err(ElectionError::ReleaseTimedOut { within: DEADLINE }));
    assert_eq!(world.now() - before, DEADLINE);
    assert!(!open(&holder.fence));
}

#[tokio::test(start_paused = true)]
async fn lease_deleted_while_held_stays_with_its_holder() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, prompt).run();
    holder.leads().await;
    let standby = Replica::new(world.with_incarnation("standby", 0), &server, prompt).run();
    world.sleep(seconds(5)).await;
    server.delete();
    let overlap = overlap(&world, &[&holder.fence, &standby.fence], seconds(30)).await;
    assert_eq!(overlap, Duration::ZERO);
    assert_eq!(server.holder().as_deref(), Some("holder"));
}

// parity: test-try-acquire-or-renew-leases-no
#[tokio::test(start_paused = true)]
async fn exactly_one_of_many_standbys_takes_over() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let mut standbys: Vec<_> = (0..5)
        .map(|number| {
            Replica::new(world.with_incarnation(&format!("replica-{number}"), 0), &server, prompt).run()
        })
        .collect();
    world.sleep(seconds(30)).await;
    let holder = server.holder().expect("a replica leads");
    for standby in &mut standbys {
        let expected = match standby.env.instance() == holder {
            true => Leadership::Leading,
            false => Leadership::Following { holder: Some(holder.clone()) },
        };
        assert_eq!(standby.leadership.get(), expected);
    }
    assert_eq!(server.spec()["leaseTransitions"], json!(0));
}

#[tokio::test(start_paused = true)]
async fn server_that_cannot_be_reached_is_tried_until_it_can() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let back: Instant = world.now() + seconds(600);
    let clock = world.clone();
    let down = move |_: &Call| if clock.now() < back { Fate::Refused(503) } else { Fate::Prompt };
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, down);
    holder.elector.acquire().await.expect("acquired");
    assert!(
        world.now() >= back && world.now() - back <= RETRY.mul_f64(2.2) + TICK,
        "{:?}",
        world.now() - back
    );
}

#[tokio::test(start_paused = true)]
async fn acquire_fails_if_server_rejects_lease_as_invalid() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let invalid = |call: &Call| if call.is_write() { Fate::Refused(422) } else { Fate::Prompt };
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, invalid);
    assert!(matches!(holder.elector.acquire().await, Err(ElectionError::Rejected { .. })));
}

// parity: test-leader-election-health-checker
#[tokio::test(start_paused = true)]
async fn leader_that_stopped_renewing_without_noticing_is_unhealthy() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, prompt);
    let health = holder.elector.health();
    assert_eq!(health(), Ok(()));
    holder.elector.acquire().await.expect("acquired");
    world.sleep(LEASE + seconds(20)).await;
    assert_eq!(health(), Ok(()));
    world.sleep(Duration::from_millis(1)).await;
    assert!(health().expect_err("stuck").contains("kube-system/windlass"));
    holder.elector.release(None).await.expect("released");
    assert_eq!(health(), Ok(()), "a standby is healthy");
}

fn written(version: &str) -> WrittenVersions {
    WrittenVersions::from([(GroupResource::new("apps", "replicasets"), ResourceVersion::new(version))])
}

#[tokio::test(start_paused = true)]
async fn release_reports_written_versions_to_successor() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, prompt);
    holder.elector.acquire().await.expect("acquired");
    assert_eq!(holder.elector.previous_holder(), &PreviousHolder::Absent, "there is no previous holder");
    holder.elector.release(Some(&written("130"))).await.expect("released");
    assert_eq!(server.annotation(WRITTEN_ANNOTATION), json!("{\"replicasets.apps\":\"130\"}"));

    let mut standby = Replica::new(world.with_incarnation("standby", 0), &server, prompt);
    standby.elector.acquire().await.expect("acquired");
    assert_eq!(standby.elector.previous_holder(), &PreviousHolder::Released(written("130")));
    assert_eq!(server.annotation(WRITTEN_ANNOTATION), json!(null));
}

#[tokio::test(start_paused = true)]
async fn takeover_with_lost_response_keeps_previous_holder() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, prompt);
    holder.elector.acquire().await.expect("acquired");
    holder.elector.release(Some(&written("130"))).await.expect("released");
    let slow = |_: &Call| Fate::Delayed { request: Duration::ZERO, response: Duration::from_millis(100) };
    let mut standby = Replica::new(world.with_incarnation("standby", 0), &server, slow);
    assert!(world.timeout(Duration::from_millis(150), standby.elector.acquire()).await.is_err());
    assert_eq!(server.holder().as_deref(), Some("standby"));
    standby.elector.acquire().await.expect("reclaimed");
    assert_eq!(standby.elector.previous_holder(), &PreviousHolder::Released(written("130")));
}

#[tokio::test(start_paused = true)]
async fn release_without_versions_reports_nothing() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    for (name, wrote) in [("first", Some(written("130"))), ("second", None)] {
        let mut holder = Replica::new(world.with_incarnation(name, 0), &server, prompt);
        holder.elector.acquire().await.expect("acquired");
        holder.elector.release(wrote.as_ref()).await.expect("released");
    }
    let mut third = Replica::new(world.with_incarnation("third", 0), &server, prompt);
    third.elector.acquire().await.expect("acquired");
    assert_eq!(third.elector.previous_holder(), &PreviousHolder::Unreported);
}

#[tokio::test(start_paused = true)]
async fn annotation_on_a_lease_that_expired_or_of_no_meaning_is_ignored() {
    for (holder, annotation) in [("gone", "{\"pods\":\"1\"}"), ("", "{\"pods\":1}")] {
        let world = Env::virtual_time(1);
        let server = LeaseServer::new(&world);
        let mut first = Replica::new(world.with_incarnation("first", 0), &server, prompt);
        first.elector.acquire().await.expect("acquired");
        server.edit(|lease| {
            lease["spec"]["holderIdentity"] = json!(holder);
            lease["metadata"]["annotations"] = json!({ WRITTEN_ANNOTATION: annotation });
        });
        let mut standby = Replica::new(world.with_incarnation("standby", 0), &server, prompt);
        standby.elector.acquire().await.expect("acquired");
        assert_eq!(standby.elector.previous_holder(), &PreviousHolder::Unreported, "{annotation}");
    }
}

/// Returns a replica of a coordinated election, and its fence. The Lease exists and has no holder.
async fn coordinated(world: &Env, server: &LeaseServer) -> (Elector, Arc<LeaderFence>) {
    let mut first = Replica::new(world.with_incarnation("first", 0), server, prompt);
    first.elector.acquire().await.expect("acquired");
    first.elector.release(None).await.expect("released");
    let env = world.with_incarnation("standby", 0);
    let (raw, fence) = (RawClient::new(server.deaf_client(), env.clone()), LeaderFence::new(env.clone()));
    let mut config = ElectionConfig::new("standby");
    config.coordinated = Some(crate::CoordinatedConfig::new("1.0.0"));
    let election = config.resolve("kube-system");
    let elector = Elector::new(env, election, server.deaf_client(), raw, fence.clone(), &Metrics::new());
    (elector.expect("valid"), fence)
}

fn elect_standby(server: &LeaseServer) {
    server.edit(|lease| {
        lease["spec"]["holderIdentity"] = json!("standby");
        lease["spec"]["leaseDurationSeconds"] = json!(5);
    });
}

#[tokio::test(start_paused = true)]
async fn standby_without_watch_events_observes_its_election_in_time() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let (mut standby, fence) = coordinated(&world, &server).await;
    assert!(world.timeout(seconds(5), standby.acquire()).await.is_err(), "no replica is elected");
    let elected = world.now();
    elect_standby(&server);
    world.timeout(LEASE, standby.acquire()).await.expect("in time").expect("elected");
    assert!(open(&fence) && world.now() - elected < seconds(5), "before the coordinator elects again");
}

/// The coordinator does not write the holder of an expired Lease again when it chooses the same replica.
#[tokio::test(start_paused = true)]
async fn standby_releases_expired_lease_if_preferred_one_is_absent() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let (mut standby, fence) = coordinated(&world, &server).await;
    assert!(world.timeout(seconds(1), standby.acquire()).await.is_err(), "no replica is elected");
    elect_standby(&server);
    server.edit(|lease| lease["spec"]["preferredHolder"] = json!("gone"));
    assert!(world.timeout(LEASE - seconds(1), standby.acquire()).await.is_err());
    assert_eq!(server.holder().as_deref(), Some("standby"), "its previous holder can still write");
    assert!(world.timeout(seconds(6), standby.acquire()).await.is_err() && !open(&fence));
    assert_eq!(server.holder().as_deref(), Some(""), "for the coordinator to decide");
    elect_standby(&server);
    world.timeout(LEASE, standby.acquire()).await.expect("in time").expect("elected");
    assert!(open(&fence));
}

// parity: test-try-coordinated-renew
#[tokio::test(start_paused = true)]
async fn preferred_replica_is_reported_a_lease_duration_before_loss() {
    let world = Env::virtual_time(1);
    let server = LeaseServer::new(&world);
    let (mut leader, fence) = coordinated(&world, &server).await;
    elect_standby(&server);
    world.timeout(LEASE, leader.acquire()).await.expect("in time").expect("elected");
    let preferred = leader.preferred();
    assert_eq!(preferred.get(), None);

    server.edit(|lease| lease["spec"]["preferredHolder"] = json!("other"));
    let preferred_since = world.now();
    assert!(world.timeout(RETRY * 2, leader.hold()).await.is_err(), "the lease is held while the work stops");
    assert_eq!(preferred.get().as_deref(), Some("other"));
    assert!(world.timeout(LEASE - RETRY * 2, leader.hold()).await.is_err() && open(&fence));
    let lost = world.timeout(LEASE, leader.hold()).await.expect("in time");
    assert_eq!(lost.reason, LossReason::Preferred { preferred: "other".to_owned() });
    assert!(!open(&fence) && world.now() - preferred_since <= LEASE + RETRY * 2, "the extra time is limited");
    assert_eq!(preferred.get(), None, "it no longer leads");
    leader.release(None).await.expect("released");
    assert_eq!(server.holder().as_deref(), Some(""));
}

/// Methods of the requests on a link, except for watches.
#[derive(Clone, Default)]
struct Tap(Arc<Mutex<Vec<String>>>);

impl Tap {
    fn fate(&self) -> impl Fn(&Call) -> Fate + Send + Sync + 'static {
        let heard = self.0.clone();
        move |call| {
            if !call.watch {
                heard.lock().expect("not poisoned").push(call.method.to_string());
            }
            Fate::Prompt
        }
    }

    fn heard(&self) -> Vec<String> {
        self.0.lock().expect("not poisoned").clone()
    }
}

// parity: test-fast-path-leader-election, test-try-acquire-or-renew-leases-others
#[tokio::test(start_paused = true)]
async fn renewal_fetches_the_lease_only_after_a_conflict() {
    for (conflicts, expected) in [(0, "GET POST PUT PUT"), (1, "GET POST PUT GET PUT PUT")] {
        let world = Env::virtual_time(1);
        let (server, tap) = (LeaseServer::new(&world), Tap::default());
        let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, tap.fate());
        holder.elector.acquire().await.expect("acquired");
        server.interfere(conflicts);
        assert!(world.timeout(RETRY * 2 + seconds(1), holder.elector.hold()).await.is_err());
        assert_eq!(tap.heard().join(" "), expected);
        assert_eq!(
            holder.metrics.election("windlass").slowpath.get(),
            u64::try_from(conflicts).expect("small")
        );
    }
}

// parity: test-release-on-cancellation-leases
#[tokio::test(start_paused = true)]
async fn release_works_after_interrupted_renewal() {
    for conflicts in [0, 1] {
        let world = Env::virtual_time(1);
        let server = LeaseServer::new(&world);
        let slow = |_: &Call| Fate::Delayed {
            request: Duration::from_millis(100),
            response: Duration::from_millis(100),
        };
        let mut holder = Replica::new(world.with_incarnation("holder", 0), &server, slow);
        holder.elector.acquire().await.expect("acquired");
        server.interfere(conflicts);
        // The response of the write arrives 200 ms after its due time, and that of the next fetch 200 ms later.
        let until_due = holder.fence.open_until().expect("open") - DEADLINE + RETRY - world.now();
        let cut = until_due
            + Duration::from_millis(150)
            + Duration::from_millis(200) * u32::try_from(conflicts).expect("small");
        assert!(world.timeout(cut, holder.elector.hold()).await.is_err());
        holder.elector.release(None).await.expect("released");
        assert_eq!(server.holder().as_deref(), Some(""));
        assert!(!open(&holder.fence));
    }
}
