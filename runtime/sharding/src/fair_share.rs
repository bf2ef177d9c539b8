//! The fair share of each member, and the assignment of unheld shards. Pure.
//!
//! Every replica computes both from the Leases that it observes. Guarantees: replicas that observe the same Leases
//! compute the same result, and no shard moves once each member holds its share.

use std::collections::BTreeMap;

use windlass_object::shard::ShardId;

/// Returns how many of `shards` each member should hold. The shares differ by one at most; the members that hold the
/// most shards now have the larger shares, so that few shards move. `held` contains the number of shards of each live
/// member.
pub(crate) fn fair_shares(shards: usize, held: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let members = held.len();
    if members == 0 {
        return BTreeMap::new();
    }
    let (smaller, larger_shares) = (shards / members, shards % members);
    let mut order: Vec<(&String, usize)> = held.iter().map(|(name, held)| (name, *held)).collect();
    order.sort_by(|(one, held_by_one), (other, held_by_other)| {
        held_by_other.cmp(held_by_one).then_with(|| one.cmp(other))
    });
    let target = |(rank, (name, _)): (usize, (&String, usize))| {
        (name.clone(), smaller + usize::from(rank < larger_shares))
    };
    order.into_iter().enumerate().map(target).collect()
}

/// Assigns unheld shards to members, in the order of their names, up to the share of each. Shards in excess are not
/// assigned.
pub(crate) fn assign(
    unheld: &[ShardId],
    held: &BTreeMap<String, usize>,
    targets: &BTreeMap<String, usize>,
) -> BTreeMap<ShardId, String> {
    let missing = targets.iter().flat_map(|(name, target)| {
        let held = held.get(name).copied().unwrap_or(0);
        std::iter::repeat_n(name.clone(), target.saturating_sub(held))
    });
    unheld.iter().copied().zip(missing).collect()
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
        fn fair_shares_sum_to_all_shards_and_differ_by_one(shards in 0_usize..40, held in any_members()) {
            let targets = fair_shares(shards, &held);
            prop_assert_eq!(targets.values().sum::<usize>(), shards);
            prop_assert!(spread(&targets) <= 1);
            prop_assert!(targets.keys().eq(held.keys()));
        }

        #[test]
        fn members_with_fair_shares_keep_them(held in any_members()) {
            let shards = held.values().sum();
            if spread(&held) <= 1 {
                prop_assert_eq!(fair_shares(shards, &held), held);
            }
        }

        #[test]
        fn no_member_is_assigned_more_than_its_fair_share(
            held in any_members(),
            shards in 0_u16..40,
        ) {
            let total: usize = held.values().sum();
            let unheld: Vec<ShardId> = (0..shards).map(ShardId).collect();
            let targets = fair_shares(total + unheld.len(), &held);
            let assigned = assign(&unheld, &held, &targets);
            for (name, target) in &targets {
                let takes = assigned.values().filter(|member| *member == name).count();
                prop_assert!(takes == 0 || held[name] + takes <= *target);
            }
            if held.iter().all(|(name, held)| *held <= targets[name]) {
                prop_assert_eq!(assigned.len(), unheld.len());
            }
        }
    }
}
