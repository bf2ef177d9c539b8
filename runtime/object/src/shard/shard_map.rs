//! The assignment of hash ranges to shards.

use std::{collections::BTreeMap, fmt, num::NonZeroU16, str::FromStr};

use super::{
    ShardId, hash,
    ranges::{HashRange, HashRanges, ParseHashRangesError, RING},
};

/// A map that assigns every hash of the ring to exactly one shard. Every shard has at least one hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardMap {
    /// The ranges by shard; none is empty.
    shards: Vec<HashRanges>,
    /// The start and shard of every range. The first start is zero.
    starts: Vec<(u64, ShardId)>,
}

/// A namespace that no shard map can balance: its weight exceeds one shard's fair share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeavyNamespace {
    /// The namespace.
    pub name: String,
    /// The weight of the namespace.
    pub weight: u64,
    /// The weight of each shard if weight could be divided at any point, rounded up.
    pub fair_share: u64,
}

impl ShardMap {
    /// Creates ranges of equal width: for UIDs, which are distributed evenly, and for namespaces until the first are
    /// known.
    ///
    /// Namespaces with a common name pattern have similar high hash bits, so equal ranges balance them badly.
    pub fn even(shards: NonZeroU16) -> Self {
        Self::at_cuts(spread(0, RING, u128::from(shards.get()) - 1))
    }

    /// Creates ranges of nearly equal weight over these namespaces. Also returns the namespaces that are too heavy.
    ///
    /// A boundary lies in the middle between neighboring hashes, so that new namespaces fall on either side. No shard
    /// weighs more than the sum of a fair share and the heaviest namespace. A namespace weighs at least one.
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

    /// Returns the ranges of a shard; no ranges if the shard does not exist.
    pub fn ranges(&self, shard: ShardId) -> &HashRanges {
        const NOTHING: &HashRanges = &HashRanges::none();
        self.shards.get(usize::from(shard.0)).unwrap_or(NOTHING)
    }

    /// Returns the shard of a hash.
    pub fn shard_of(&self, hash: u64) -> ShardId {
        let after = self.starts.partition_point(|(start, _)| *start <= hash);
        // The first range starts at zero, so at least one range starts at or before the hash.
        self.starts[after.saturating_sub(1)].1
    }

    /// Returns the number of shards.
    pub fn len(&self) -> NonZeroU16 {
        u16::try_from(self.shards.len()).ok().and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MIN)
    }

    /// Returns `false`: at least one shard exists. Clippy requires this method next to `len`.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Returns every shard with its ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ShardId, &HashRanges)> {
        (0..).map(ShardId).zip(&self.shards)
    }

    /// Creates one range per shard with these boundaries, which must be strictly ascending.
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

/// Returns boundaries that give every shard about the same weight.
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

/// A gap between two neighboring hashes; a boundary in it does not split a namespace.
struct CutPoint {
    /// The hash before the gap, or zero.
    from: u64,
    /// The hash after the gap, or 2^64.
    to: u128,
    /// The total weight of the hashes before the gap.
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

/// Returns the gap whose lower weight is closest to `cut / shards` of the total; the wider gap if two are equal.
fn nearest(gaps: &[CutPoint], cut: u128, shards: u128, total: u128) -> usize {
    let target = total * cut;
    let above = gaps.partition_point(|gap| gap.weight * shards < target).min(gaps.len() - 1);
    let below = above.saturating_sub(1);
    let distance = |gap: usize| {
        let CutPoint { from, to, weight } = gaps[gap];
        ((weight * shards).abs_diff(target), RING - (to - u128::from(from)))
    };
    if distance(below) <= distance(above) { below } else { above }
}

/// Returns boundaries at equal distances from each other and from both ends.
fn spread(from: u64, to: u128, cuts: u128) -> Vec<u64> {
    let width = to - u128::from(from);
    let place = |cut: u128| u128::from(from) + width * cut / (cuts + 1);
    (1..=cuts).filter_map(|cut| u64::try_from(place(cut)).ok()).collect()
}

/// Moves the boundaries as little as possible so that at least one hash lies between them. Hashes of two namespaces can
/// be adjacent.
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

/// The ranges of the shards are separated by semicolons.
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

/// Error for a text that is not a shard map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseShardMapError {
    /// The ranges of a shard cannot be parsed.
    #[error(transparent)]
    Ranges(#[from] ParseHashRangesError),
    /// A shard has no ranges.
    #[error("invalid shard map: shard {shard} has no ranges")]
    Empty {
        /// The shard.
        shard: usize,
    },
    /// The map has too many shards.
    #[error("invalid shard map: {shards} shards; use at most 65535")]
    TooMany {
        /// The number of shards.
        shards: usize,
    },
    /// Hashes before this range belong to no shard, or its first hashes belong to two.
    #[error("invalid shard map: gap or overlap at the start of {range}")]
    NotOnce {
        /// The first range after a gap or overlap.
        range: HashRange,
    },
    /// The last hashes belong to no shard.
    #[error("invalid shard map: the last range must end at 0x10000000000000000")]
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

    fn loads(shard_map: &ShardMap, weights: &BTreeMap<String, u64>) -> Vec<u64> {
        let mut loads = vec![0; usize::from(shard_map.len().get())];
        for (name, weight) in weights {
            loads[usize::from(shard_map.shard_of(hash(name)).0)] += weight.max(&1);
        }
        loads
    }

    fn any_weights() -> impl Strategy<Value = BTreeMap<String, u64>> {
        prop::collection::btree_map("[a-z]{1,3}(-[0-9]{1,2})?", 0u64..1000, 0..60)
    }

    fn any_shard_map() -> impl Strategy<Value = ShardMap> {
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
        fn shard_map_covers_ring_exactly_once(shard_map in any_shard_map(), hash: u64) {
            let mut all: Vec<_> = shard_map.iter().flat_map(|(_, ranges)| ranges.iter()).collect();
            all.sort_unstable();
            prop_assert_eq!((all[0].start(), all[all.len() - 1].end()), (0, RING));
            prop_assert!(all.windows(2).all(|pair| pair[0].end() == u128::from(pair[1].start())));
            let owners: Vec<_> = shard_map.iter().filter(|(_, ranges)| ranges.contains(hash)).collect();
            prop_assert_eq!(owners.len(), 1);
            prop_assert_eq!(owners[0].0, shard_map.shard_of(hash));
        }

        #[test]
        fn every_shard_has_a_range(shard_map in any_shard_map()) {
            prop_assert!(shard_map.iter().all(|(_, ranges)| !ranges.is_empty()));
        }

        #[test]
        fn shard_map_survives_formatting_and_parsing(shard_map in any_shard_map()) {
            prop_assert_eq!(shard_map.to_string().parse::<ShardMap>().unwrap(), shard_map);
        }

        // parity: shards-divides-ring-hashes
        #[test]
        fn shard_weight_is_at_most_fair_share_plus_heaviest_namespace(
            number in 1u16..20, weights in any_weights(),
        ) {
            let (shard_map, _) = ShardMap::weighted(shards(number), &weights);
            let loads = loads(&shard_map, &weights);
            let total: u64 = loads.iter().sum();
            let heaviest = weights.values().map(|weight| *weight.max(&1)).max().unwrap_or_default();
            let most = total.div_ceil(u64::from(number)) + heaviest;
            prop_assert!(loads.iter().all(|load| *load <= most), "{loads:?}, {most}");
        }

        // parity: shards-divides-ring-hashes
        #[test]
        fn namespace_is_reported_when_heavier_than_fair_share(
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
        fn boundaries_keep_distance_from_adjacent_namespaces(number in 2u16..20, weights in any_weights()) {
            prop_assume!(weights.len() >= usize::from(number));
            let (shard_map, _) = ShardMap::weighted(shards(number), &weights);
            let hashes: std::collections::BTreeSet<u64> = weights.keys().map(|name| hash(name)).collect();
            for (_, ranges) in shard_map.iter().skip(1) {
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
    fn numbered_tenants_are_balanced_by_weight_not_range_width() {
        let tenants = tenants();
        let (weighted, heavy) = ShardMap::weighted(shards(4), &tenants);
        assert_eq!((loads(&weighted, &tenants), heavy), (vec![25; 4], vec![]));
        assert_eq!(loads(&ShardMap::even(shards(4)), &tenants), [90, 0, 0, 10]);
    }

    #[test]
    fn heavy_namespace_is_reported_and_not_split() {
        let mut weights = tenants();
        weights.insert("whale".into(), 900);
        let (shard_map, heavy) = ShardMap::weighted(shards(4), &weights);
        assert_eq!(heavy, [HeavyNamespace { name: "whale".into(), weight: 900, fair_share: 250 }]);
        assert_eq!(loads(&shard_map, &weights).iter().sum::<u64>(), 1000);
    }

    #[test]
    fn shard_ranges_are_even_without_namespaces() {
        let (weighted, heavy) = ShardMap::weighted(shards(4), &BTreeMap::new());
        assert_eq!((weighted, heavy), (ShardMap::even(shards(4)), vec![]));
    }

    #[test]
    fn adjacent_hashes_leave_every_shard_a_range() {
        assert_eq!(ascending(vec![0, 0, 5, 5, u64::MAX, u64::MAX]), [1, 2, 5, 6, u64::MAX - 1, u64::MAX]);
    }

    #[test]
    fn shard_map_with_gap_or_overlap_is_rejected() {
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
