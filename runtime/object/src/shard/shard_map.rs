//! Which shard owns which part of the ring.

use std::{collections::BTreeMap, fmt, num::NonZeroU16, str::FromStr};

use super::{
    ShardId, hash,
    ranges::{HashRange, HashRanges, ParseHashRangesError, RING},
};

/// Every hash of the ring given to exactly one shard, and every shard given some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardMap {
    /// By shard, none empty.
    shards: Vec<HashRanges>,
    /// Every range by its start, with its shard. The first starts at zero.
    starts: Vec<(u64, ShardId)>,
}

/// A namespace that no division can balance: it alone is more than one shard's fair share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeavyNamespace {
    /// The namespace.
    pub name: String,
    /// What it weighs.
    pub weight: u64,
    /// What every shard would weigh if weight could be cut anywhere, rounded up.
    pub fair_share: u64,
}

impl ShardMap {
    /// Ranges of equal width: for uids, which spread evenly, and for namespaces as long as none has been seen.
    ///
    /// Namespaces of one pattern hardly differ in the high bits of their hashes, so this balances them badly.
    pub fn even(shards: NonZeroU16) -> Self {
        Self::at_cuts(spread(0, RING, u128::from(shards.get()) - 1))
    }

    /// Ranges of nearly equal weight over these namespaces, and which of them are too heavy for that.
    ///
    /// Cuts lie in the middle between neighbors by hash, so that new namespaces fall on either side. No shard weighs
    /// more than a fair share and the heaviest namespace together. A namespace weighs at least one: it exists.
    pub fn weighted(shards: NonZeroU16, weights: &BTreeMap<String, u64>) -> (Self, Vec<HeavyNamespace>) {
        let mut by_hash: BTreeMap<u64, u128> = BTreeMap::new();
        for (name, weight) in weights {
            *by_hash.entry(hash(name)).or_default() += u128::from((*weight).max(1));
        }
        let total: u128 = by_hash.values().sum();
        let fair_share = total.div_ceil(u128::from(shards.get()));
        let heavy = weights.iter().filter(|(_, weight)| u128::from(**weight) > fair_share);
        let heavy = heavy.map(|(name, weight)| HeavyNamespace {
            name: name.clone(),
            weight: *weight,
            fair_share: u64::try_from(fair_share).unwrap_or(u64::MAX),
        });
        (Self::at_cuts(cuts(shards, &by_hash, total)), heavy.collect())
    }

    /// What a shard owns; nothing if there is no such shard.
    pub fn ranges(&self, shard: ShardId) -> &HashRanges {
        const NOTHING: &HashRanges = &HashRanges::none();
        self.shards.get(usize::from(shard.0)).unwrap_or(NOTHING)
    }

    /// Whose a hash is.
    pub fn shard_of(&self, hash: u64) -> ShardId {
        let after = self.starts.partition_point(|(start, _)| *start <= hash);
        // The first range starts at zero, so there is always one at or before.
        self.starts[after.saturating_sub(1)].1
    }

    /// How many shards there are.
    pub fn len(&self) -> NonZeroU16 {
        u16::try_from(self.shards.len()).ok().and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MIN)
    }

    /// Never: there is always a shard. Here because there is a length.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Every shard with what it owns, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ShardId, &HashRanges)> {
        (0..).map(ShardId).zip(&self.shards)
    }

    /// One range per shard, cut at these places, which ascend strictly.
    fn at_cuts(cuts: Vec<u64>) -> Self {
        let ends = cuts.iter().copied().map(u128::from).chain([RING]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let ranges = starts.zip(ends).filter_map(|(start, end)| HashRange::new(start, end));
        Self::of(ranges.map(HashRanges::from).collect())
    }

    fn of(shards: Vec<HashRanges>) -> Self {
        let of_shard = |(shard, ranges): (ShardId, &HashRanges)| {
            ranges.iter().map(move |range| (range.start(), shard)).collect::<Vec<_>>()
        };
        let mut starts: Vec<_> = (0..).map(ShardId).zip(&shards).flat_map(of_shard).collect();
        starts.sort_unstable();
        Self { shards, starts }
    }
}

/// Where to cut so that every shard weighs about the same.
fn cuts(shards: NonZeroU16, by_hash: &BTreeMap<u64, u128>, total: u128) -> Vec<u64> {
    let shards = u128::from(shards.get());
    let gaps = gaps(by_hash);
    let mut in_gap: BTreeMap<usize, u128> = BTreeMap::new();
    for cut in 1..shards {
        *in_gap.entry(nearest(&gaps, cut, shards, total)).or_default() += 1;
    }
    let cuts = in_gap.into_iter().flat_map(|(gap, cuts)| spread(gaps[gap].from, gaps[gap].to, cuts));
    ascending(cuts.collect())
}

/// A place between two neighbors, where a cut separates no namespace from itself.
struct CutPoint {
    /// The hash below, or zero.
    from: u64,
    /// The hash above, or 2^64.
    to: u128,
    /// What lies below it.
    weight: u128,
}

fn gaps(by_hash: &BTreeMap<u64, u128>) -> Vec<CutPoint> {
    let (mut from, mut weight) = (0, 0);
    let mut gaps = Vec::with_capacity(by_hash.len() + 1);
    for (hash, own) in by_hash {
        gaps.push(CutPoint { from, to: u128::from(*hash), weight });
        (from, weight) = (*hash, weight + own);
    }
    gaps.push(CutPoint { from, to: RING, weight });
    gaps
}

/// The gap where `cut` in `shards` parts of the weight lie below, as nearly as can be; the wider of two.
fn nearest(gaps: &[CutPoint], cut: u128, shards: u128, total: u128) -> usize {
    let wanted = total * cut;
    let above = gaps.partition_point(|gap| gap.weight * shards < wanted).min(gaps.len() - 1);
    let below = above.saturating_sub(1);
    let judged = |gap: usize| {
        let CutPoint { from, to, weight } = gaps[gap];
        ((weight * shards).abs_diff(wanted), RING - (to - u128::from(from)))
    };
    if judged(below) <= judged(above) { below } else { above }
}

/// So many cuts with equal distances from each other and from both ends.
fn spread(from: u64, to: u128, cuts: u128) -> Vec<u64> {
    let width = to - u128::from(from);
    let place = |cut: u128| u128::from(from) + width * cut / (cuts + 1);
    (1..=cuts).filter_map(|cut| u64::try_from(place(cut)).ok()).collect()
}

/// The same cuts, moved as little as it takes to leave a hash between them: neighbors by hash may lie side by side.
fn ascending(mut cuts: Vec<u64>) -> Vec<u64> {
    let mut least = 1;
    for cut in &mut cuts {
        *cut = (*cut).max(least);
        least = cut.saturating_add(1);
    }
    let mut most = u64::MAX;
    for cut in cuts.iter_mut().rev() {
        *cut = (*cut).min(most);
        most = cut.saturating_sub(1);
    }
    cuts
}

/// The ranges of each shard, with a semicolon between shards.
impl fmt::Display for ShardMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, ranges) in self.shards.iter().enumerate() {
            let semicolon = if at == 0 { "" } else { ";" };
            write!(f, "{semicolon}{ranges}")?;
        }
        Ok(())
    }
}

impl FromStr for ShardMap {
    type Err = ParseShardMapError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let shards = text.split(';').map(str::parse).collect::<Result<Vec<HashRanges>, _>>()?;
        if let Some(empty) = shards.iter().position(HashRanges::is_empty) {
            return Err(ParseShardMapError::Empty { shard: empty });
        }
        if shards.len() > usize::from(u16::MAX) {
            return Err(ParseShardMapError::TooMany { shards: shards.len() });
        }
        let mut ranges: Vec<HashRange> = shards.iter().flat_map(HashRanges::iter).collect();
        ranges.sort_unstable();
        let mut covered = 0;
        for range in ranges {
            if u128::from(range.start()) != covered {
                return Err(ParseShardMapError::NotOnce { range });
            }
            covered = range.end();
        }
        if covered == RING { Ok(Self::of(shards)) } else { Err(ParseShardMapError::Short) }
    }
}

/// A text that is no division of the ring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseShardMapError {
    /// What should be a shard's ranges is not.
    #[error(transparent)]
    Ranges(#[from] ParseHashRangesError),
    /// A shard owns nothing.
    #[error("shard {shard} of the division owns nothing")]
    Empty {
        /// Which.
        shard: usize,
    },
    /// More shards than there may be.
    #[error("a division into {shards} shards: there may be 65535")]
    TooMany {
        /// How many.
        shards: usize,
    },
    /// Hashes before this range belong to nobody, or its first hashes to two shards.
    #[error("the division covers not every hash exactly once: see where {range} begins")]
    NotOnce {
        /// The first such range.
        range: HashRange,
    },
    /// The last hashes belong to nobody.
    #[error("the division covers not every hash: its last range must end at 0x10000000000000000")]
    Short,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shards(number: u16) -> NonZeroU16 {
        NonZeroU16::new(number).unwrap()
    }

    fn tenants() -> BTreeMap<String, u64> {
        (0..100).map(|tenant| (format!("tenant-{tenant}"), 1)).collect()
    }

    fn loads(division: &ShardMap, weights: &BTreeMap<String, u64>) -> Vec<u64> {
        let mut loads = vec![0; usize::from(division.len().get())];
        for (name, weight) in weights {
            loads[usize::from(division.shard_of(hash(name)).0)] += weight.max(&1);
        }
        loads
    }

    fn any_weights() -> impl Strategy<Value = BTreeMap<String, u64>> {
        prop::collection::btree_map("[a-z]{1,3}(-[0-9]{1,2})?", 0u64..1000, 0..60)
    }

    fn any_division() -> impl Strategy<Value = ShardMap> {
        prop_oneof![
            (1u16..40).prop_map(|number| ShardMap::even(shards(number))),
            (1u16..40, any_weights()).prop_map(|(number, weights)| ShardMap::weighted(
                shards(number),
                &weights
            )
            .0),
        ]
    }

    proptest! {
        #[test]
        fn division_covers_the_ring_exactly_once(division in any_division(), hash: u64) {
            let mut all: Vec<_> = division.iter().flat_map(|(_, ranges)| ranges.iter()).collect();
            all.sort_unstable();
            prop_assert_eq!((all[0].start(), all[all.len() - 1].end()), (0, RING));
            prop_assert!(all.windows(2).all(|pair| pair[0].end() == u128::from(pair[1].start())));
            let owners: Vec<_> = division.iter().filter(|(_, ranges)| ranges.contains(hash)).collect();
            prop_assert_eq!(owners.len(), 1);
            prop_assert_eq!(owners[0].0, division.shard_of(hash));
        }

        #[test]
        fn every_shard_owns_something(division in any_division()) {
            prop_assert!(division.iter().all(|(_, ranges)| !ranges.is_empty()));
        }

        #[test]
        fn division_is_read_back_as_it_was_written(division in any_division()) {
            prop_assert_eq!(division.to_string().parse::<ShardMap>().unwrap(), division);
        }

        // parity: shards-divides-ring-hashes
        #[test]
        fn no_shard_outweighs_a_fair_share_by_more_than_the_heaviest_namespace(
            number in 1u16..20, weights in any_weights(),
        ) {
            let (division, _) = ShardMap::weighted(shards(number), &weights);
            let loads = loads(&division, &weights);
            let total: u64 = loads.iter().sum();
            let heaviest = weights.values().map(|weight| *weight.max(&1)).max().unwrap_or_default();
            let most = total.div_ceil(u64::from(number)) + heaviest;
            prop_assert!(loads.iter().all(|load| *load <= most), "{loads:?}, {most}");
        }

        // parity: shards-divides-ring-hashes
        #[test]
        fn namespace_is_reported_exactly_if_it_outweighs_a_fair_share(
            number in 1u16..20, weights in any_weights(),
        ) {
            let (_, heavy) = ShardMap::weighted(shards(number), &weights);
            let total: u64 = weights.values().map(|weight| *weight.max(&1)).sum();
            let fair_share = total.div_ceil(u64::from(number));
            let expected: Vec<_> =
                weights.iter().filter(|(_, weight)| **weight > fair_share).map(|(name, _)| name.clone()).collect();
            prop_assert!(heavy.iter().all(|heavy| heavy.fair_share == fair_share));
            prop_assert_eq!(heavy.into_iter().map(|heavy| heavy.name).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn cuts_keep_away_from_the_namespaces_beside_them(number in 2u16..20, weights in any_weights()) {
            prop_assume!(weights.len() >= usize::from(number));
            let (division, _) = ShardMap::weighted(shards(number), &weights);
            let hashes: std::collections::BTreeSet<u64> = weights.keys().map(|name| hash(name)).collect();
            for (_, ranges) in division.iter().skip(1) {
                let cut = ranges.iter().next().unwrap().start();
                let below = hashes.range(..cut).next_back().copied().unwrap_or(0);
                let above = hashes.range(cut..).next().map_or(RING, |hash| u128::from(*hash));
                let (width, cuts) = (above - u128::from(below), u128::from(number));
                prop_assert!(u128::from(cut - below) + 1 >= width / cuts && above - u128::from(cut) + 1 >= width / cuts);
            }
        }
    }

    // parity: shards-divides-ring-hashes
    #[test]
    fn tenants_numbered_in_a_row_are_balanced_by_weight_and_not_by_equal_ranges() {
        let tenants = tenants();
        let (weighted, heavy) = ShardMap::weighted(shards(4), &tenants);
        assert_eq!((loads(&weighted, &tenants), heavy), (vec![25; 4], vec![]));
        assert_eq!(loads(&ShardMap::even(shards(4)), &tenants), [90, 0, 0, 10]);
    }

    #[test]
    fn namespace_heavier_than_a_fair_share_is_named_and_stays_in_one_piece() {
        let mut weights = tenants();
        weights.insert("whale".into(), 900);
        let (division, heavy) = ShardMap::weighted(shards(4), &weights);
        assert_eq!(heavy, [HeavyNamespace { name: "whale".into(), weight: 900, fair_share: 250 }]);
        assert_eq!(loads(&division, &weights).iter().sum::<u64>(), 1000);
    }

    #[test]
    fn where_no_namespace_was_seen_the_ranges_are_even() {
        let (weighted, heavy) = ShardMap::weighted(shards(4), &BTreeMap::new());
        assert_eq!((weighted, heavy), (ShardMap::even(shards(4)), vec![]));
    }

    #[test]
    fn neighbours_that_lie_side_by_side_leave_every_shard_something() {
        assert_eq!(ascending(vec![0, 0, 5, 5, u64::MAX, u64::MAX]), [1, 2, 5, 6, u64::MAX - 1, u64::MAX]);
    }

    #[test]
    fn what_does_not_cover_the_ring_exactly_once_is_refused() {
        let parsed = |text: &str| text.parse::<ShardMap>().unwrap_err();
        let (lower, upper) =
            ("0x0000000000000000-0x8000000000000000", "0x8000000000000000-0x10000000000000000");
        assert!(format!("{upper};{lower}").parse::<ShardMap>().is_ok());
        assert_eq!(parsed(lower), ParseShardMapError::Short);
        assert!(matches!(parsed(upper), ParseShardMapError::NotOnce { .. }));
        assert!(matches!(parsed(&format!("{lower};{lower};{upper}")), ParseShardMapError::NotOnce { .. }));
        assert_eq!(parsed(&format!("{lower};;{upper}")), ParseShardMapError::Empty { shard: 1 });
        assert!(matches!(parsed("lower;upper"), ParseShardMapError::Ranges(_)));
    }
}
