//! Single situations that random histories hardly ever meet.

use std::num::NonZeroU16;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use windlass_env::Instant;
use windlass_object::shard::{Division, Ranges, ShardId};

use super::world::{MILLI, SECOND, World, members};
use super::{assert_at_rest, at_rest, probes};
use crate::engine::{OwnershipStage, ProposalOutcome};
use crate::lease_cache::LeaseCache;
use crate::names::{GENERATION_ANNOTATION, LeaseNames, RANGES_ANNOTATION, SHARDS_LABEL};
use crate::plan::Plan;
use windlass_election::ElectionConfig;
use windlass_election::lease::LeaseParams;
use windlass_election::{Predecessor, WRITTEN_ANNOTATION};

/// A Lease of a shard that names somebody who will never renew it.
fn left_behind(shard: u16, ranges: &Ranges) -> Lease {
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

/// A world of one replica, at the moment at which its claim of shard 0 is under way.
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
async fn ranges_that_come_again_after_another_plan_know_who_wrote_under_that_one() {
    for crash in [false, true] {
        let mut world = at_rest(17, 2, &[100, 100]);
        let update = |world: &mut World, shards: u16, crash: bool| {
            let old: Vec<usize> =
                (0..world.replicas.len()).filter(|number| !world.has_left(*number)).collect();
            for _ in 0..2 {
                world.start(shards, 100);
            }
            world.run(10 * SECOND);
            for (place, number) in
                old.into_iter().filter(|number| world.replicas[*number].alive).enumerate().collect::<Vec<_>>()
            {
                match crash && place == 0 {
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
async fn a_claim_that_an_expired_lease_of_another_plan_blocks_goes_on_and_nobody_spins() {
    for deleted in [false, true] {
        let mut world = claiming(1);
        world.put(left_behind(5, Division::even(NonZeroU16::new(2).expect("two")).ranges(ShardId(1))));
        if deleted {
            world.run(5 * SECOND);
            world.delete("windlass-shard-5");
        }
        let before = world.turns;
        world.run(30 * SECOND);
        assert_eq!(world.objections, Vec::<String>::new());
        assert!(probes().iter().all(|probe| world.owners(*probe) == [0]), "it acts once the lease is over");
        let turns = world.turns - before;
        assert!(turns < 600, "{turns} turns in 30 s, deleted {deleted}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_proposal_outlives_the_failure_of_its_first_write() {
    let mut world = at_rest(23, 4, &[100, 100]);
    let weights = (0..40).map(|number| (format!("tenant-{number}"), 1 + number % 7)).collect();
    let (division, heavy) = Division::weighted(NonZeroU16::new(4).expect("four"), &weights);
    world.outage = true;
    let accepts = |number: &usize| world.replicas[*number].engine.is_active(ShardId(0));
    let holder = (0..2).find(accepts).expect("somebody holds shard 0");
    let proposal = world.replicas[holder].engine.propose(division.clone(), heavy);
    assert_eq!(proposal, ProposalOutcome::Accepted);
    world.nudge(holder);
    world.run(SECOND);
    world.outage = false;
    world.run(60 * SECOND);
    assert_at_rest(&world, "after the outage");
    let plan = world.leases()["windlass-shards"].metadata.annotations.clone().expect("a plan");
    assert_eq!(plan[crate::DIVISION_ANNOTATION], division.to_string());
    assert_eq!(plan[GENERATION_ANNOTATION], "2", "it was written once");
}

#[tokio::test(start_paused = true)]
async fn who_leaves_does_not_wait_for_a_membership_that_was_deleted() {
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
async fn a_lease_deleted_while_it_is_given_back_was_given_back_once() {
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
async fn a_release_of_what_is_only_claimed_comes_to_its_end() {
    for claimed in [false, true] {
        let mut world = claiming(1);
        if claimed {
            // In the way of the claim, so that it stays one.
            world.put(left_behind(5, &Ranges::whole()));
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

/// A state of a shard's Lease: held by one in its so-manieth term, or given back by whoever told this.
fn state(
    shard: u16,
    version: u64,
    of: (u64, &Ranges),
    held: Option<(&str, i32)>,
    told: Option<&str>,
) -> Lease {
    let mut lease = left_behind(shard, of.1);
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(GENERATION_ANNOTATION.to_owned(), of.0.to_string());
    if let Some(told) = told {
        annotations.insert(WRITTEN_ANNOTATION.to_owned(), format!(r#"{{"pods":"{told}"}}"#));
    }
    lease.metadata.resource_version = Some(version.to_string());
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(held.map_or("", |(holder, _)| holder).to_owned());
    spec.lease_transitions = Some(held.map_or(0, |(_, transitions)| transitions));
    lease
}

/// A version of a Lease, the generation it is of, who holds it in which term, and what a release told.
type State<'a> = (u64, u64, Option<(&'a str, i32)>, Option<&'a str>);

/// Of the second plan, shard 1 had the upper half; by the third, shard 2 has it.
fn told_after(states: &[State<'_>], seen_by_answer: bool) -> Predecessor {
    let division = Division::even(NonZeroU16::new(2).expect("two"));
    let (low, high) = (division.ranges(ShardId(0)), division.ranges(ShardId(1)));
    let mut cache =
        LeaseCache::new(LeaseNames::new("windlass"), LeaseParams::from_config(&ElectionConfig::new("me")));
    cache.on_list(None, Vec::new(), Instant::ORIGIN, Instant::ORIGIN);
    cache.on_watch_event(state(2, 1, (2, low), None, Some("5")), Instant::ORIGIN);
    for (place, (version, generation, held, told)) in states.iter().enumerate() {
        let on = if *generation == 2 { high } else { low };
        let lease = state(1, *version, (*generation, on), *held, *told);
        if seen_by_answer && place + 1 == states.len() {
            let shard = cache.shard(ShardId(1));
            shard.record_previous(&lease);
            shard.state.on_fetched_during_watch(Some(lease), Instant::ORIGIN);
        } else {
            cache.on_watch_event(lease, Instant::ORIGIN);
        }
    }
    cache.shard(ShardId(2)).begin_claim();
    cache.predecessor(ShardId(2), high, 3)
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_written_over_has_told_nothing_though_one_before_it_had() {
    let (first, second, next) = (Some(("first", 0)), Some(("second", 1)), Some(("next", 2)));
    let release = (12, 2, None, Some("584"));
    for by_answer in [false, true] {
        let told = told_after(&[(11, 2, first, None), release], by_answer);
        assert!(told.written().is_some(), "it was handed over");
        let told = told_after(&[(11, 2, first, None), release, (13, 3, second, None)], by_answer);
        assert!(told.written().is_some(), "and still is, when its successor has begun under the next plan");
        let told = told_after(&[release, (13, 2, second, None), (14, 3, next, None)], by_answer);
        assert_eq!(told.written(), None, "the second wrote, and its Lease was not given back: {by_answer}");
    }
    let again = [release, (13, 2, second, None), (14, 3, second, None)];
    assert_eq!(
        told_after(&again, false).written(),
        None,
        "it wrote, and reclaimed its Lease for other ranges"
    );
    let late = [release, (13, 2, second, None), (14, 3, next, None), (12, 2, None, Some("584"))];
    assert_eq!(told_after(&late, true).written(), None, "an answer that comes late is about what was");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_given_up_leaves_what_it_found_and_a_later_plan_is_not_hidden_by_an_earlier() {
    let mut world = World::new(37);
    let plan =
        Plan { generation: 3, division: Division::even(NonZeroU16::new(1).expect("one")), heavy: Vec::new() };
    let now = MicroTime(Timestamp::from_second(1_700_000_000).expect("in range"));
    let mut metadata = left_behind(0, &Ranges::whole()).metadata;
    metadata.name = Some("windlass-shards".to_owned());
    metadata.annotations = None;
    world.put(plan.into_lease(metadata, "ghost", now));
    world.put(state(0, 0, (4, &Ranges::whole()), None, Some("584")));
    // In the way of the claim, so that it stays one.
    world.put(left_behind(5, &Ranges::whole()));
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
