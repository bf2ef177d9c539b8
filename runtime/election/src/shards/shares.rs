//! Who should hold how many shards, and who takes which of those that nobody holds. Pure.
//!
//! Every replica computes this by itself, from what it sees. Replicas that see the same come to the same result, and
//! once each holds its share nothing moves any more.

use std::collections::BTreeMap;

use windlass_object::shard::ShardId;

/// How many shards each member should hold: the same number, and one more for as many as are needed. Those are the
/// members that hold the most now, so that as little as possible moves.
///
/// `held` says how many of these shards each live member holds.
pub(crate) fn targets(shards: usize, held: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let members = held.len();
    if members == 0 {
        return BTreeMap::new();
    }
    let (least, more) = (shards / members, shards % members);
    let mut order: Vec<(&String, usize)> = held.iter().map(|(name, held)| (name, *held)).collect();
    order.sort_by(|(one, held_by_one), (other, held_by_other)| {
        held_by_other.cmp(held_by_one).then_with(|| one.cmp(other))
    });
    let target =
        |(place, (name, _)): (usize, (&String, usize))| (name.clone(), least + usize::from(place < more));
    order.into_iter().enumerate().map(target).collect()
}

/// Who takes each of the shards that nobody holds: members by name, each as many as it lacks, shards by number. A
/// shard that is left over is nobody's yet.
pub(crate) fn takers(
    unheld: &[ShardId],
    held: &BTreeMap<String, usize>,
    targets: &BTreeMap<String, usize>,
) -> BTreeMap<ShardId, String> {
    let lacking = targets.iter().flat_map(|(name, target)| {
        let held = held.get(name).copied().unwrap_or(0);
        std::iter::repeat_n(name.clone(), target.saturating_sub(held))
    });
    unheld.iter().copied().zip(lacking).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::btree_map;
    use proptest::prelude::*;

    fn any_members() -> impl Strategy<Value = BTreeMap<String, usize>> {
        btree_map("[a-z]{1,3}", 0_usize..9, 1..9)
    }

    fn spread(numbers: &BTreeMap<String, usize>) -> usize {
        numbers.values().max().unwrap_or(&0) - numbers.values().min().unwrap_or(&0)
    }

    proptest! {
        #[test]
        fn shares_add_up_to_all_shards_and_differ_by_one_at_most(shards in 0_usize..40, held in any_members()) {
            let targets = targets(shards, &held);
            prop_assert_eq!(targets.values().sum::<usize>(), shards);
            prop_assert!(spread(&targets) <= 1);
            prop_assert!(targets.keys().eq(held.keys()));
        }

        #[test]
        fn whoever_holds_a_fair_share_keeps_it(held in any_members()) {
            let shards = held.values().sum();
            if spread(&held) <= 1 {
                prop_assert_eq!(targets(shards, &held), held);
            }
        }

        #[test]
        fn nobody_takes_more_than_it_lacks_and_nothing_is_left_over_when_nobody_holds_too_much(
            held in any_members(),
            shards in 0_u16..40,
        ) {
            let total: usize = held.values().sum();
            let unheld: Vec<ShardId> = (0..shards).map(ShardId).collect();
            let targets = targets(total + unheld.len(), &held);
            let takers = takers(&unheld, &held, &targets);
            for (name, target) in &targets {
                let takes = takers.values().filter(|taker| *taker == name).count();
                prop_assert!(takes == 0 || held[name] + takes <= *target);
            }
            if held.iter().all(|(name, held)| *held <= targets[name]) {
                prop_assert_eq!(takers.len(), unheld.len());
            }
        }
    }
}
