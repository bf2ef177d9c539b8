//! Rare situations that random histories hardly reach.

use std::num::NonZeroU16;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use windlass_election::lease::LeaseParams;
use windlass_election::{ElectionConfig, PreviousHolder, WRITTEN_ANNOTATION};
use windlass_env::Instant;
use windlass_object::shard::{HashRanges, ShardId, ShardMap};

use super::world::{MILLI, SECOND, World, members};
use super::{assert_at_rest, at_rest, probes};
use crate::engine::{OwnershipStage, ProposalOutcome};
use crate::lease_cache::LeaseCache;
use crate::names::{GENERATION_ANNOTATION, LeaseNames, RANGES_ANNOTATION, SHARDS_LABEL};
use crate::plan::Plan;

/// Returns a Lease of a shard whose holder never renews it.
fn left_behind(shard: u16, ranges: &HashRanges) -> Lease {
    let now = MicroTime(Timestamp::from_second(1_700_000_000).expect("in range"));
    let spec = LeaseSpec {
        holder_identity: Some("ghost".to_owned()),
        lease_duration_seconds: Some(15),
        acquire_time: Some(now.clone()),
        renew_time: Some(now),
        lease_transitions: Some(0),
        ..LeaseSpec::default()
    };
    let annotations = [
        (GENERATION_ANNOTATION.to_owned(), "1".to_owned()),
        (RANGES_ANNOTATION.to_owned(), ranges.to_string()),
    ];
    let metadata = ObjectMeta {
        name: Some(format!("windlass-shard-{shard}")),
        labels: Some([(SHARDS_LABEL.to_owned(), "windlass".to_owned())].into()),
        annotations: Some(annotations.into()),
        ..ObjectMeta::default()
    };
    Lease { metadata, spec: Some(spec) }
}

/// Returns a world of one replica whose claim of shard 0 is in flight.
fn claiming(shards: u16) -> World {
    let mut world = World::new(21);
    world.start(shards, 100);
    let claims = |world: &World| {
        let owned = world.replicas[0].engine.owned.get(&ShardId(0));
        owned.is_some_and(|owned| matches!(owned.stage, OwnershipStage::Claiming))
    };
    while !claims(&world) {
        world.run(MILLI / 10);
    }
    assert!(!world.leases().contains_key("windlass-shard-0"), "the claim has not arrived");
    world
}

#[tokio::test(start_paused = true)]
async fn repeated_ranges_report_holders_of_plan_in_between() {
    for crash in [false, true] {
        let mut world = at_rest(17, 2, &[100, 100]);
        let update = |world: &mut World, shards: u16, crash: bool| {
            let old: Vec<usize> =
                (0..world.replicas.len()).filter(|number| !world.has_left(*number)).collect();
            for _ in 0..2 {
                world.start(shards, 100);
            }
            world.run(10 * SECOND);
            for (index, number) in
                old.into_iter().filter(|number| world.replicas[*number].alive).enumerate().collect::<Vec<_>>()
            {
                match crash && index == 0 {
                    true => world.crash(number),
                    false => world.resign(number),
                }
            }
            world.run(60 * SECOND);
        };
        for (shards, crash) in [(1, false), (2, crash), (1, false), (2, crash)] {
            update(&mut world, shards, crash);
            assert_at_rest(&world, &format!("{shards} shards, crash {crash}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn claim_waits_for_expired_lease_of_other_plan_without_spinning() {
    for deleted in [false, true] {
        let mut world = claiming(1);
        world.put(left_behind(5, ShardMap::even(NonZeroU16::new(2).expect("two")).ranges(ShardId(1))));
        if deleted {
            world.run(5 * SECOND);
            world.delete("windlass-shard-5");
        }
        let before = world.steps;
        world.run(30 * SECOND);
        assert_eq!(world.violations, Vec::<String>::new());
        assert!(
            probes().iter().all(|probe| world.owners(*probe) == [0]),
            "it acts once the lease has expired"
        );
        let steps = world.steps - before;
        assert!(steps < 600, "{steps} steps in 30 s, deleted {deleted}");
    }
}

#[tokio::test(start_paused = true)]
async fn proposal_survives_failure_of_first_write() {
    let mut world = at_rest(23, 4, &[100, 100]);
    let weights = (0..40).map(|number| (format!("tenant-{number}"), 1 + number % 7)).collect();
    let (shard_map, heavy) = ShardMap::weighted(NonZeroU16::new(4).expect("four"), &weights);
    world.outage = true;
    let accepts = |number: &usize| world.replicas[*number].engine.is_active(ShardId(0));
    let holder = (0..2).find(accepts).expect("a holder of shard 0");
    let proposal = world.replicas[holder].engine.propose(shard_map.clone(), heavy);
    assert_eq!(proposal, ProposalOutcome::Accepted);
    world.nudge(holder);
    world.run(SECOND);
    world.outage = false;
    world.run(60 * SECOND);
    assert_at_rest(&world, "after the outage");
    let plan = world.leases()["windlass-shards"].metadata.annotations.clone().expect("a plan");
    assert_eq!(plan[crate::DIVISION_ANNOTATION], shard_map.to_string());
    assert_eq!(plan[GENERATION_ANNOTATION], "2", "it was written once");
}

#[tokio::test(start_paused = true)]
async fn stopping_replica_does_not_wait_for_deleted_membership() {
    let mut world = at_rest(29, 2, &[100, 100]);
    let name = world.replicas[0].name.clone();
    assert!(members(&world).contains(&name));
    let lease = world
        .leases()
        .iter()
        .find(|(lease, object)| {
            lease.contains("-member-")
                && object.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref()) == Some(&name)
        })
        .map(|(lease, _)| lease.clone())
        .expect("a membership");
    world.resign(0);
    world.delete(&lease);
    world.run(SECOND);
    assert!(world.has_left(0));
}

#[tokio::test(start_paused = true)]
async fn lease_deleted_during_release_is_released_once() {
    let mut world = at_rest(31, 1, &[100]);
    let now = world.now_of(0);
    world.replicas[0].engine.stop_acquiring();
    world.replicas[0].engine.release(ShardId(0), None, now);
    world.delete("windlass-shard-0");
    world.run(5 * SECOND);
    assert_eq!(world.replicas[0].engine.take_handoff_durations().len(), 1);
    assert!(world.has_left(0));
}

#[tokio::test(start_paused = true)]
async fn release_of_claimed_shard_completes() {
    for claimed in [false, true] {
        let mut world = claiming(1);
        if claimed {
            // Conflicts with the claim, so that it stays unconfirmed.
            world.put(left_behind(5, &HashRanges::whole()));
            world.run(2 * SECOND);
        }
        let now = world.now_of(0);
        world.replicas[0].engine.release(ShardId(0), None, now);
        world.nudge(0);
        world.run(5 * SECOND);
        assert_eq!(
            world.replicas[0].engine.take_release_outcome(ShardId(0)),
            Some(Ok(())),
            "claimed {claimed}"
        );
        assert!(Duration::from_secs(6) > world.now_of(0).saturating_duration_since(now));
    }
}

/// Returns a state of a shard's Lease: held with this number of transitions, or released with this record.
fn state(
    shard: u16,
    version: u64,
    of: (u64, &HashRanges),
    held: Option<(&str, i32)>,
    record: Option<&str>,
) -> Lease {
    let mut lease = left_behind(shard, of.1);
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(GENERATION_ANNOTATION.to_owned(), of.0.to_string());
    if let Some(record) = record {
        annotations.insert(WRITTEN_ANNOTATION.to_owned(), format!(r#"{{"pods":"{record}"}}"#));
    }
    lease.metadata.resource_version = Some(version.to_string());
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(held.map_or("", |(holder, _)| holder).to_owned());
    spec.lease_transitions = Some(held.map_or(0, |(_, transitions)| transitions));
    lease
}

/// The version of a Lease, its generation, its holder and transitions, and the record of a release.
type State<'a> = (u64, u64, Option<(&'a str, i32)>, Option<&'a str>);

/// Returns the previous holder after these states. Shard 1 had the upper half in the second plan, shard 2 has it in the
/// third.
fn previous_holder_after(states: &[State<'_>], seen_by_answer: bool) -> PreviousHolder {
    let shard_map = ShardMap::even(NonZeroU16::new(2).expect("two"));
    let (low, high) = (shard_map.ranges(ShardId(0)), shard_map.ranges(ShardId(1)));
    let mut cache = LeaseCache::new(
        LeaseNames::new("windlass"),
        LeaseParams::from_config(&ElectionConfig::new("me").resolve("kube-system")),
    );
    cache.on_list(None, Vec::new(), Instant::ORIGIN, Instant::ORIGIN);
    cache.on_watch_event(state(2, 1, (2, low), None, Some("5")), Instant::ORIGIN);
    for (index, (version, generation, held, record)) in states.iter().enumerate() {
        let on = if *generation == 2 { high } else { low };
        let lease = state(1, *version, (*generation, on), *held, *record);
        if seen_by_answer && index + 1 == states.len() {
            let shard = cache.shard(ShardId(1));
            shard.record_previous(&lease);
            shard.state.on_fetched_during_watch(Some(lease), Instant::ORIGIN);
        } else {
            cache.on_watch_event(lease, Instant::ORIGIN);
        }
    }
    cache.shard(ShardId(2)).begin_claim();
    cache.previous_holder(ShardId(2), high, 3)
}

#[tokio::test(start_paused = true)]
async fn overwritten_holder_hides_release_of_earlier_holder() {
    let (first, second, next) = (Some(("first", 0)), Some(("second", 1)), Some(("next", 2)));
    let release = (12, 2, None, Some("584"));
    for by_answer in [false, true] {
        let record = previous_holder_after(&[(11, 2, first, None), release], by_answer);
        assert!(record.written().is_some(), "it was released");
        let record =
            previous_holder_after(&[(11, 2, first, None), release, (13, 3, second, None)], by_answer);
        assert!(record.written().is_some(), "the successor of the next plan changes nothing");
        let record = previous_holder_after(&[release, (13, 2, second, None), (14, 3, next, None)], by_answer);
        assert_eq!(record.written(), None, "the second wrote, and did not release its Lease: {by_answer}");
    }
    let again = [release, (13, 2, second, None), (14, 3, second, None)];
    assert_eq!(
        previous_holder_after(&again, false).written(),
        None,
        "it wrote, and reclaimed its Lease for other ranges"
    );
    let late = [release, (13, 2, second, None), (14, 3, next, None), (12, 2, None, Some("584"))];
    assert_eq!(previous_holder_after(&late, true).written(), None, "a late response shows an old state");
}

#[tokio::test(start_paused = true)]
async fn withdrawn_claim_restores_overwritten_record() {
    let mut world = World::new(37);
    let plan = Plan {
        generation: 3,
        shard_map: ShardMap::even(NonZeroU16::new(1).expect("one")),
        heavy: Vec::new(),
    };
    let now = MicroTime(Timestamp::from_second(1_700_000_000).expect("in range"));
    let mut metadata = left_behind(0, &HashRanges::whole()).metadata;
    metadata.name = Some("windlass-shards".to_owned());
    metadata.annotations = None;
    world.put(plan.into_lease(metadata, "ghost", now));
    world.put(state(0, 0, (4, &HashRanges::whole()), None, Some("584")));
    // Conflicts with the claim, so that it stays unconfirmed.
    world.put(left_behind(5, &HashRanges::whole()));
    world.start(1, 100);
    let holder = |world: &World| {
        let lease = world.leases()["windlass-shard-0"].clone();
        let annotations = lease.metadata.annotations.expect("annotated");
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        (holder, annotations[GENERATION_ANNOTATION].clone(), annotations.get(WRITTEN_ANNOTATION).cloned())
    };
    while holder(&world).0.is_empty() && world.now < 60 * SECOND {
        world.run(MILLI / 10);
    }
    assert_eq!(holder(&world), ("replica-0".to_owned(), "4".to_owned(), None));
    let now = world.now_of(0);
    world.resign(0);
    world.replicas[0].engine.release(ShardId(0), None, now);
    world.nudge(0);
    world.run(SECOND);
    assert_eq!(holder(&world), (String::new(), "4".to_owned(), Some(r#"{"pods":"584"}"#.to_owned())));
}
