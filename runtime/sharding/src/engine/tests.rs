//! The engine against a server, wires and clocks of its own: thousands of histories, each from one seed.

#![expect(clippy::print_stdout, reason = "figures are part of the result")]

mod corners;
mod world;

use std::num::NonZeroU16;

use windlass_object::shard::{Division, hash};

use self::world::{MILLI, SECOND, Wire, World, members, probes};
use crate::engine::ProposalOutcome;

/// Lease duration and renew deadline of the configuration's defaults, in true microseconds of a clock without drift.
const LEASE: u64 = 15 * SECOND;

/// For how long some probe had no owner, at the longest, looking every 20 ms for this long.
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

/// Everything is owned exactly once, shares are fair, nothing has moved for a while, and nobody objected.
fn assert_at_rest(world: &World, what: &str) {
    assert_eq!(world.objections, Vec::<String>::new(), "{what}");
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
async fn replicas_come_to_hold_fair_shares_and_nothing_moves_at_rest() {
    for (shards, replicas) in [(1, 1), (4, 1), (4, 3), (3, 5), (64, 3), (16, 7)] {
        let world = at_rest(u64::from(shards), shards, &vec![100; replicas]);
        let total: usize = world.shares().iter().sum();
        assert_eq!(total, usize::from(shards), "{shards} shards, {replicas} replicas");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_joins_gets_its_share_by_hand_overs_and_only_what_must_moves() {
    let mut world = at_rest(3, 8, &[100, 100]);
    let before = world.figures;
    world.start(8, 100);
    let gap = longest_gap(&mut world, 40 * SECOND);
    assert_at_rest(&world, "joined");
    assert_eq!(world.figures.gave_up - before.gave_up, 2, "two of eight go to the third");
    assert_eq!(world.figures.lost, 0);
    assert!(gap < 100 * MILLI, "{gap} us");
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_holder_crashed_is_owned_again_within_a_lease_duration_and_a_few_requests() {
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
        // By the clock of whoever takes it: the slowest here shows 15 s after 18.75 s.
        let slowest = rates.iter().min().expect("three");
        assert!(gap < LEASE * 100 / slowest + 500 * MILLI, "seed {seed}: {gap} us with clocks {rates:?}");
        if rates == [100; 3] {
            worst = worst.max(gap);
        }
    }
    println!("longest time unowned after a crash, of 15 histories with true clocks: {} ms", worst / MILLI);
    assert!(worst < LEASE, "{worst} us");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_leaves_hands_everything_over_within_a_second() {
    let (mut worst, mut handed) = (0, 0);
    for seed in 0..60 {
        let mut world = at_rest(seed, 4, &[100, 80, 120]);
        let leaver = usize::try_from(seed % 3).expect("small");
        world.replicas[leaver].drain = (0, 300 * MILLI);
        let before = world.figures;
        world.resign(leaver);
        let gap = longest_gap(&mut world, SECOND);
        for probe in probes() {
            assert_eq!(world.owners(probe).len(), 1, "seed {seed}: unowned a second after the signal");
            assert!(!world.owners(probe).contains(&leaver), "seed {seed}");
        }
        assert!(world.has_left(leaver), "seed {seed}");
        let name = world.replicas[leaver].name.clone();
        assert!(!members(&world).contains(&name), "seed {seed}");
        world.run(30 * SECOND);
        assert_at_rest(&world, "after one left");
        worst = worst.max(gap);
        handed += world.figures.told_predecessors - before.told_predecessors;
    }
    println!("longest time unowned while handed over, of 60 histories: below {} ms", worst / MILLI + 20);
    assert!(worst < 100 * MILLI, "{worst} us");
    assert!(handed >= 60, "successors are told what was written");
}

#[tokio::test(start_paused = true)]
async fn a_replica_paused_past_its_leases_loses_them_and_gets_a_share_again() {
    for seed in 0..20 {
        let mut world = at_rest(seed, 6, &[80, 120, 100]);
        let paused = usize::try_from(seed % 3).expect("small");
        world.pause(paused, 45 * SECOND);
        world.run(40 * SECOND);
        assert_eq!(world.objections, Vec::<String>::new(), "seed {seed}");
        for probe in probes() {
            let owners = world.owners(probe);
            assert!(owners.len() == 1 && owners != [paused], "seed {seed}: {owners:?}");
        }
        world.run(60 * SECOND);
        assert_at_rest(&world, "after a pause");
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_proposed_by_the_holder_of_shard_0_moves_everybody_and_knows_who_wrote_before() {
    for seed in 0..20 {
        let mut world = at_rest(seed, 4, &[100, 80, 120]);
        let weights = (0..40).map(|number| (format!("tenant-{number}"), 1 + number % 7)).collect();
        let (division, heavy) = Division::weighted(NonZeroU16::new(4).expect("four"), &weights);
        let shown = world.predecessors.len();
        let proposals: Vec<ProposalOutcome> = world
            .replicas
            .iter_mut()
            .map(|replica| replica.engine.propose(division.clone(), heavy.clone()))
            .collect();
        let accepted = proposals.iter().filter(|proposal| **proposal == ProposalOutcome::Accepted).count();
        assert_eq!((accepted, proposals.len()), (1, 3), "{proposals:?}");
        world.run(60 * SECOND);
        assert_at_rest(&world, "under the second plan");
        for namespace in weights.keys() {
            let shard = division.shard_of(hash(namespace));
            let owner = world.owners(hash(namespace));
            assert!(world.replicas[owner[0]].fences[&shard].ranges == *division.ranges(shard), "{namespace}");
        }
        let told =
            world.predecessors[shown..].iter().filter(|(_, before)| before.written().is_some()).count();
        assert_eq!(told, world.predecessors.len() - shown, "seed {seed}: every one was handed over");
    }
}

#[tokio::test(start_paused = true)]
async fn another_number_of_shards_comes_with_the_last_replica_that_wants_it() {
    for (before, after) in [(4, 6), (6, 2), (1, 16)] {
        let mut world = at_rest(11, before, &[100, 100, 100]);
        for old in 0..3 {
            assert_eq!(world.shares().iter().sum::<usize>(), usize::from(before), "the plan's number holds");
            world.start(after, 100);
            world.run(20 * SECOND);
            world.resign(old);
            world.run(20 * SECOND);
            assert_eq!(world.objections, Vec::<String>::new());
        }
        world.run(30 * SECOND);
        assert_at_rest(&world, "after the update");
        assert_eq!(world.shares().iter().sum::<usize>(), usize::from(after));
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_whose_work_on_a_lost_shard_never_ends_makes_room() {
    let mut world = at_rest(5, 3, &[100, 100, 100]);
    world.replicas[0].drain = (600 * SECOND, 600 * SECOND);
    world.replicas[0].wire = Wire::Cut;
    world.run(30 * SECOND);
    world.replicas[0].wire = Wire::Good;
    world.run(60 * SECOND);
    assert_eq!(world.objections, Vec::<String>::new());
    for probe in probes() {
        let owners = world.owners(probe);
        assert!(owners.len() == 1 && owners != [0], "{owners:?}");
    }
    let name = world.replicas[0].name.clone();
    assert!(!members(&world).contains(&name), "it is no member while its work goes on");
}

#[tokio::test(start_paused = true)]
async fn memberships_that_ended_are_swept_away_and_a_deleted_plan_is_written_anew() {
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
    assert_eq!(world.last_move, moved, "nobody moves for it");
    for number in 0..4 {
        world.delete(&format!("windlass-shard-{number}"));
    }
    world.run(40 * SECOND);
    assert_at_rest(&world, "with Leases that were deleted while held");
    assert_eq!(world.last_move, moved, "who holds one keeps it");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_gone_for_long_ends_all_terms_and_they_begin_again() {
    let mut world = at_rest(13, 4, &[80, 100, 120]);
    world.outage = true;
    world.run(120 * SECOND);
    assert!(probes().iter().all(|probe| world.owners(*probe).is_empty()), "no fence outlives its deadline");
    world.outage = false;
    world.run(60 * SECOND);
    assert_at_rest(&world, "after the outage");
}

/// One random deed upon the world.
fn do_something(world: &mut World, shards: u16) {
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
        4 => world.replicas[one].wire = Wire::AnswersLate,
        5 => world.replicas[one].wire = Wire::ArrivesLate,
        6 | 7 => world.replicas[one].wire = Wire::Good,
        8 => world.stall(one),
        9 => world.end_watch(one),
        10 => {
            let rng = &mut world.rng;
            // Of few weights, so that the same ranges come again.
            let heavier = rng.below(3);
            let weights = (0..12).map(|number| (format!("tenant-{number}"), 1 + number * heavier)).collect();
            let (division, heavy) = Division::weighted(NonZeroU16::new(shards).expect("some"), &weights);
            for replica in &mut world.replicas {
                replica.engine.propose(division.clone(), heavy.clone());
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

/// A history of faults, and what it is like when they are over.
fn live_through(seed: u64) -> World {
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
        do_something(&mut world, shards);
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

/// Prints how long hashes were nobody's between one who gave them up and the next, in true microseconds.
fn tell_hand_overs(what: &str, hand_overs: &mut [u64]) {
    hand_overs.sort_unstable();
    let place = |per_mille: usize| hand_overs.len().saturating_sub(1) * per_mille / 1_000;
    let [median, late, longest] =
        [500, 990, 1_000].map(|per_mille| hand_overs.get(place(per_mille)).copied().unwrap_or_default());
    println!(
        "{} hashes were handed over {what}: in {median} us at the median, {late} us at the 99th percentile, {longest} us \
         at the longest",
        hand_overs.len()
    );
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_no_two_open_fences_overlap_and_in_the_end_all_is_owned_and_shared() {
    // More by `WINDLASS_HISTORIES=5000 cargo test -p windlass-election whatever_happens -- --nocapture`, from the one on
    // that WINDLASS_HISTORY names.
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, histories) =
        (number("WINDLASS_HISTORY").unwrap_or(0), number("WINDLASS_HISTORIES").unwrap_or(60));
    let (mut total, mut gaps, mut prompt) = (world::Figures::default(), world::Gaps::default(), Vec::new());
    for seed in first..first + histories {
        let world = live_through(seed);
        assert_at_rest(&world, &format!("history {seed}"));
        total.acquired += world.figures.acquired;
        total.gave_up += world.figures.gave_up;
        total.lost += world.figures.lost;
        total.writes += world.figures.writes;
        total.conflicts += world.figures.conflicts;
        total.told_predecessors += world.figures.told_predecessors;
        gaps.longest = gaps.longest.max(world.gaps.longest);
        gaps.in_peace = gaps.in_peace.max(world.gaps.in_peace);
        let promptly = world.replicas.iter().all(|replica| replica.drain.1 <= 20 * MILLI);
        let of = if promptly { &mut prompt } else { &mut gaps.hand_overs };
        of.extend(&world.gaps.hand_overs);
    }
    println!("{histories} histories: {total:?}");
    println!(
        "unowned at the longest: {} us while nothing was the matter with anybody, {} us otherwise",
        gaps.in_peace, gaps.longest
    );
    tell_hand_overs("by who ends its work at once", &mut prompt);
    tell_hand_overs("by others", &mut gaps.hand_overs);
    // Nearly all take milliseconds; where a plan is new, a part may wait for the last of several that it is made of, and
    // then for whoever should take it and sees things differently.
    assert!(prompt.last().is_none_or(|longest| *longest <= 5 * SECOND), "a hand-over took too long");
    // A lease, and what it takes until those act who are not the first to, by the slowest clock.
    assert!(gaps.in_peace <= 22_500 * MILLI, "a hash was unowned for too long: {} us", gaps.in_peace);
    assert!(total.lost > histories && total.gave_up > histories, "the plans were too kind: {total:?}");
}

#[tokio::test(start_paused = true)]
async fn histories_that_told_too_old_a_predecessor_once_tell_of_the_last() {
    for seed in [285, 1_863, 2_380] {
        assert_at_rest(&live_through(seed), &format!("history {seed}"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_judge_objects_where_clocks_differ_by_more_than_is_promised() {
    let mut world = World::new(1);
    world.start(4, 60);
    world.run(40 * SECOND);
    world.start(4, 130);
    world.run(40 * SECOND);
    world.replicas[0].wire = Wire::Cut;
    world.run(40 * SECOND);
    assert!(!world.objections.is_empty(), "10 s of a slow clock outlast 15 s of a fast one");
}
