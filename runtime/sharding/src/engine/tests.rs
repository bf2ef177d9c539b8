//! The engine in a simulated world: thousands of histories, each from one seed.

#![expect(clippy::print_stdout, reason = "the measured times are part of the result")]

mod corners;
mod world;

use std::num::NonZeroU16;

use windlass_object::shard::{ShardMap, hash};

use self::world::{MILLI, SECOND, Wire, World, members, probes};
use crate::engine::ProposalOutcome;

/// Lease duration and renew deadline of the configuration's defaults, in true microseconds of a clock without drift.
const LEASE: u64 = 15 * SECOND;

/// Returns the longest time in which a probe had no owner, measured every 20 ms.
fn longest_gap(world: &mut World, during: u64) -> u64 {
    let probes = probes();
    let mut since: Vec<Option<u64>> = vec![None; probes.len()];
    let (mut longest, end) = (0, world.now + during);
    while world.now < end {
        world.run(20 * MILLI);
        for (probe, since) in probes.iter().zip(&mut since) {
            if world.owners(*probe).is_empty() {
                longest = longest.max(world.now - *since.get_or_insert(world.now));
            } else {
                *since = None;
            }
        }
    }
    longest
}

/// Asserts that each probe has one owner, shares are fair, no shard has moved recently, and no check reported a
/// violation.
fn assert_at_rest(world: &World, what: &str) {
    assert_eq!(world.violations, Vec::<String>::new(), "{what}");
    for probe in probes() {
        let owners = world.owners(probe);
        assert_eq!(owners.len(), 1, "{what}: {probe:#x} is owned by {owners:?}, shares {:?}", world.shares());
    }
    let shares = world.shares();
    let (most, least) = (shares.iter().max(), shares.iter().min());
    assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{what}: {shares:?}");
    assert!(
        world.now - world.last_move > 15 * SECOND,
        "{what}: something moved {} ago",
        world.now - world.last_move
    );
}

/// A world at rest of so many replicas, each with such a clock.
fn at_rest(seed: u64, shards: u16, rates: &[u64]) -> World {
    let mut world = World::new(seed);
    for rate in rates {
        world.start(shards, *rate);
    }
    world.run(40 * SECOND);
    assert_at_rest(&world, "at rest");
    world
}

#[tokio::test(start_paused = true)]
async fn replicas_hold_fair_shares_and_no_shard_moves_at_rest() {
    for (shards, replicas) in [(1, 1), (4, 1), (4, 3), (3, 5), (64, 3), (16, 7)] {
        let world = at_rest(u64::from(shards), shards, &vec![100; replicas]);
        let total: usize = world.shares().iter().sum();
        assert_eq!(total, usize::from(shards), "{shards} shards, {replicas} replicas");
    }
}

#[tokio::test(start_paused = true)]
async fn joining_replica_receives_its_share_with_few_moves() {
    let mut world = at_rest(3, 8, &[100, 100]);
    let before = world.figures;
    world.start(8, 100);
    let gap = longest_gap(&mut world, 40 * SECOND);
    assert_at_rest(&world, "joined");
    assert_eq!(world.figures.drained - before.drained, 2, "two of eight go to the third");
    assert_eq!(world.figures.lost, 0);
    assert!(gap < 100 * MILLI, "{gap} us");
}

// parity: holder-all-keys
#[tokio::test(start_paused = true)]
async fn shard_of_crashed_holder_is_owned_within_lease_duration() {
    let mut worst = 0;
    for seed in 0..60 {
        let rates = [[100, 100, 100], [80, 80, 80], [120, 120, 120], [80, 120, 100]]
            [usize::try_from(seed % 4).expect("small")];
        let mut world = at_rest(seed, 4, &rates);
        let wait = world.rng.below(4 * SECOND);
        world.run(wait);
        world.crash(usize::try_from(seed % 3).expect("small"));
        let gap = longest_gap(&mut world, 60 * SECOND);
        assert_at_rest(&world, "after a crash");
        // By the clock of the next holder: the slowest shows 15 s after 18.75 s.
        let slowest = rates.iter().min().expect("three");
        assert!(gap < LEASE * 100 / slowest + 500 * MILLI, "seed {seed}: {gap} us with clocks {rates:?}");
        if rates == [100; 3] {
            worst = worst.max(gap);
        }
    }
    println!(
        "longest time without an owner after a crash, of 15 histories with true clocks: {} ms",
        worst / MILLI
    );
    assert!(worst < LEASE, "{worst} us");
}

// parity: holder-all-keys
#[tokio::test(start_paused = true)]
async fn stopping_replica_hands_off_all_shards_within_one_second() {
    let (mut worst, mut handed) = (0, 0);
    for seed in 0..60 {
        let mut world = at_rest(seed, 4, &[100, 80, 120]);
        let stopping = usize::try_from(seed % 3).expect("small");
        world.replicas[stopping].drain = (0, 300 * MILLI);
        let before = world.figures;
        world.resign(stopping);
        let gap = longest_gap(&mut world, SECOND);
        for probe in probes() {
            assert_eq!(world.owners(probe).len(), 1, "seed {seed}: unowned a second after the signal");
            assert!(!world.owners(probe).contains(&stopping), "seed {seed}");
        }
        assert!(world.has_left(stopping), "seed {seed}");
        let name = world.replicas[stopping].name.clone();
        assert!(!members(&world).contains(&name), "seed {seed}");
        world.run(30 * SECOND);
        assert_at_rest(&world, "after one stopped");
        worst = worst.max(gap);
        handed += world.figures.known_predecessors - before.known_predecessors;
    }
    println!(
        "longest time without an owner during a handoff, of 60 histories: below {} ms",
        worst / MILLI + 20
    );
    assert!(worst < 100 * MILLI, "{worst} us");
    assert!(handed >= 60, "successors know what was written");
}

#[tokio::test(start_paused = true)]
async fn replica_paused_past_its_leases_loses_and_regains_shards() {
    for seed in 0..20 {
        let mut world = at_rest(seed, 6, &[80, 120, 100]);
        let paused = usize::try_from(seed % 3).expect("small");
        world.pause(paused, 45 * SECOND);
        world.run(40 * SECOND);
        assert_eq!(world.violations, Vec::<String>::new(), "seed {seed}");
        for probe in probes() {
            let owners = world.owners(probe);
            assert!(owners.len() == 1 && owners != [paused], "seed {seed}: {owners:?}");
        }
        world.run(60 * SECOND);
        assert_at_rest(&world, "after a pause");
    }
}

#[tokio::test(start_paused = true)]
async fn proposed_plan_moves_all_replicas_with_previous_holders() {
    for seed in 0..20 {
        let mut world = at_rest(seed, 4, &[100, 80, 120]);
        let weights = (0..40).map(|number| (format!("tenant-{number}"), 1 + number % 7)).collect();
        let (shard_map, heavy) = ShardMap::weighted(NonZeroU16::new(4).expect("four"), &weights);
        let shown = world.predecessors.len();
        let proposals: Vec<ProposalOutcome> = world
            .replicas
            .iter_mut()
            .map(|replica| replica.engine.propose(shard_map.clone(), heavy.clone()))
            .collect();
        let accepted = proposals.iter().filter(|proposal| **proposal == ProposalOutcome::Accepted).count();
        assert_eq!((accepted, proposals.len()), (1, 3), "{proposals:?}");
        world.run(60 * SECOND);
        assert_at_rest(&world, "under the second plan");
        for namespace in weights.keys() {
            let shard = shard_map.shard_of(hash(namespace));
            let owner = world.owners(hash(namespace));
            assert!(
                world.replicas[owner[0]].fences[&shard].ranges == *shard_map.ranges(shard),
                "{namespace}"
            );
        }
        let reported =
            world.predecessors[shown..].iter().filter(|(_, before)| before.written().is_some()).count();
        assert_eq!(reported, world.predecessors.len() - shown, "seed {seed}: every shard was handed off");
    }
}

// parity: holder-all-keys
#[tokio::test(start_paused = true)]
async fn number_of_shards_changes_once_all_replicas_want_it() {
    for (before, after) in [(4, 6), (6, 2), (1, 16)] {
        let mut world = at_rest(11, before, &[100, 100, 100]);
        for old in 0..3 {
            assert_eq!(
                world.shares().iter().sum::<usize>(),
                usize::from(before),
                "the number in the plan applies"
            );
            world.start(after, 100);
            world.run(20 * SECOND);
            world.resign(old);
            world.run(20 * SECOND);
            assert_eq!(world.violations, Vec::<String>::new());
        }
        world.run(30 * SECOND);
        assert_at_rest(&world, "after the update");
        assert_eq!(world.shares().iter().sum::<usize>(), usize::from(after));
    }
}

#[tokio::test(start_paused = true)]
async fn replica_with_stuck_work_ends_its_membership() {
    let mut world = at_rest(5, 3, &[100, 100, 100]);
    world.replicas[0].drain = (600 * SECOND, 600 * SECOND);
    world.replicas[0].wire = Wire::Cut;
    world.run(30 * SECOND);
    world.replicas[0].wire = Wire::Good;
    world.run(60 * SECOND);
    assert_eq!(world.violations, Vec::<String>::new());
    for probe in probes() {
        let owners = world.owners(probe);
        assert!(owners.len() == 1 && owners != [0], "{owners:?}");
    }
    let name = world.replicas[0].name.clone();
    assert!(!members(&world).contains(&name), "it is not a member while its work continues");
}

#[tokio::test(start_paused = true)]
async fn ended_memberships_are_deleted_and_deleted_plan_is_restored() {
    let mut world = at_rest(9, 4, &[100, 100, 100]);
    world.crash(2);
    world.resign(1);
    world.run(120 * SECOND);
    assert_at_rest(&world, "one is left");
    let left = world.leases().keys().filter(|name| name.contains("-member-")).count();
    assert_eq!(left, 1);
    let before = world.leases()["windlass-shards"].metadata.annotations.clone();
    let moved = world.last_move;
    world.delete("windlass-shards");
    world.run(20 * SECOND);
    assert_eq!(world.leases()["windlass-shards"].metadata.annotations, before);
    assert_eq!(world.last_move, moved, "no shard moves");
    for number in 0..4 {
        world.delete(&format!("windlass-shard-{number}"));
    }
    world.run(40 * SECOND);
    assert_at_rest(&world, "with Leases that were deleted while held");
    assert_eq!(world.last_move, moved, "holders keep their shards");
}

#[tokio::test(start_paused = true)]
async fn long_outage_ends_all_terms_and_they_restart_afterwards() {
    let mut world = at_rest(13, 4, &[80, 100, 120]);
    world.outage = true;
    world.run(120 * SECOND);
    assert!(probes().iter().all(|probe| world.owners(*probe).is_empty()), "no fence outlives its deadline");
    world.outage = false;
    world.run(60 * SECOND);
    assert_at_rest(&world, "after the outage");
}

/// Injects one random fault or change.
fn inject(world: &mut World, shards: u16) {
    let living: Vec<usize> =
        (0..world.replicas.len()).filter(|number| world.replicas[*number].alive).collect();
    let pick = |world: &mut World| {
        let place = usize::try_from(world.rng.below(u64::try_from(living.len()).expect("few"))).expect("few");
        living[place]
    };
    if living.len() < 2 {
        let rate = 80 + world.rng.below(41);
        world.start(shards, rate);
        return;
    }
    let one = pick(world);
    match world.rng.below(13) {
        0 => world.crash(one),
        1 => world.resign(one),
        2 => {
            let during = world.rng.below(40 * SECOND);
            world.pause(one, during);
        }
        3 => world.replicas[one].wire = Wire::Cut,
        4 => world.replicas[one].wire = Wire::ResponsesLate,
        5 => world.replicas[one].wire = Wire::RequestsLate,
        6 | 7 => world.replicas[one].wire = Wire::Good,
        8 => world.stall(one),
        9 => world.end_watch(one),
        10 => {
            let rng = &mut world.rng;
            // Few different weights, so that ranges repeat.
            let heavier = rng.below(3);
            let weights = (0..12).map(|number| (format!("tenant-{number}"), 1 + number * heavier)).collect();
            let (shard_map, heavy) = ShardMap::weighted(NonZeroU16::new(shards).expect("some"), &weights);
            for replica in &mut world.replicas {
                replica.engine.propose(shard_map.clone(), heavy.clone());
            }
        }
        11 => world.outage = !world.outage,
        _ if living.len() < 6 => {
            let (wanted, rate) = (shards + u16::from(world.rng.below(4) == 0), 80 + world.rng.below(41));
            world.start(wanted, rate);
        }
        _ => world.resign(one),
    }
}

/// Returns the world after a history of random faults.
fn history(seed: u64) -> World {
    let mut world = World::new(seed);
    let shards = u16::try_from(1 + seed % 6).expect("small");
    for _ in 0..3 {
        let rate = 80 + world.rng.below(41);
        let number = world.start(shards, rate);
        world.replicas[number].drain =
            [(0, 0), (0, SECOND), (0, 25 * SECOND)][usize::try_from(seed % 3).expect("small")];
    }
    for _ in 0..30 {
        let pause = world.rng.below(8 * SECOND);
        world.run(pause);
        inject(&mut world, shards);
    }
    world.outage = false;
    for number in 0..world.replicas.len() {
        world.replicas[number].wire = Wire::Good;
    }
    if world.shares().is_empty() {
        world.start(shards, 100);
    }
    (0..150).for_each(|_| world.run(SECOND));
    world
}

/// Prints the times between two holders of a hash, in true microseconds.
fn print_handoffs(what: &str, handoffs: &mut [u64]) {
    handoffs.sort_unstable();
    let place = |per_mille: usize| handoffs.len().saturating_sub(1) * per_mille / 1_000;
    let [median, late, longest] =
        [500, 990, 1_000].map(|per_mille| handoffs.get(place(per_mille)).copied().unwrap_or_default());
    println!(
        "{} hashes were handed off {what}: in {median} us at the median, {late} us at the 99th percentile, {longest} us \
         at the longest",
        handoffs.len()
    );
}

// parity: holder-all-keys
#[tokio::test(start_paused = true)]
async fn fences_never_overlap_under_random_faults_and_shares_converge() {
    // More by `WINDLASS_HISTORIES=5000 cargo test -p windlass-sharding fences_never_overlap -- --nocapture`, from
    // the history WINDLASS_HISTORY on.
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, histories) =
        (number("WINDLASS_HISTORY").unwrap_or(0), number("WINDLASS_HISTORIES").unwrap_or(60));
    let (mut total, mut gaps, mut prompt) = (world::Figures::default(), world::Gaps::default(), Vec::new());
    for seed in first..first + histories {
        let world = history(seed);
        assert_at_rest(&world, &format!("history {seed}"));
        total.acquired += world.figures.acquired;
        total.drained += world.figures.drained;
        total.lost += world.figures.lost;
        total.writes += world.figures.writes;
        total.conflicts += world.figures.conflicts;
        total.known_predecessors += world.figures.known_predecessors;
        gaps.longest = gaps.longest.max(world.gaps.longest);
        gaps.in_peace = gaps.in_peace.max(world.gaps.in_peace);
        let promptly = world.replicas.iter().all(|replica| replica.drain.1 <= 20 * MILLI);
        let of = if promptly { &mut prompt } else { &mut gaps.handoffs };
        of.extend(&world.gaps.handoffs);
    }
    println!("{histories} histories: {total:?}");
    println!(
        "longest time without an owner: {} us without faults, {} us with faults",
        gaps.in_peace, gaps.longest
    );
    print_handoffs("by replicas that stop their work immediately", &mut prompt);
    print_handoffs("by others", &mut gaps.handoffs);
    // Nearly all take milliseconds. With a new plan, a range can wait for the last of several earlier holders, and then
    // for an assigned member that observes other members.
    assert!(prompt.last().is_none_or(|longest| *longest <= 5 * SECOND), "a handoff took too long");
    // A lease duration and the time until members act that are not assigned, by the slowest clock.
    assert!(gaps.in_peace <= 22_500 * MILLI, "a hash was unowned for too long: {} us", gaps.in_peace);
    assert!(total.lost > histories && total.drained > histories, "there were too few faults: {total:?}");
}

#[tokio::test(start_paused = true)]
async fn known_histories_report_the_last_previous_holder() {
    for seed in [285, 1_863, 2_380] {
        assert_at_rest(&history(seed), &format!("history {seed}"));
    }
}

#[tokio::test(start_paused = true)]
async fn checks_report_overlap_when_clock_rates_differ_too_much() {
    let mut world = World::new(1);
    world.start(4, 60);
    world.run(40 * SECOND);
    world.start(4, 130);
    world.run(40 * SECOND);
    world.replicas[0].wire = Wire::Cut;
    world.run(40 * SECOND);
    assert!(!world.violations.is_empty(), "10 s of a slow clock outlast 15 s of a fast one");
}
