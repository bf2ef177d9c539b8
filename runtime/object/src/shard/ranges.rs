//! Ranges of the hash ring.

use std::{cmp::Ordering, fmt, str::FromStr};

/// One past the last hash: 2^64.
pub(super) const RING: u128 = 1 << 64;

/// The hashes from `start` (inclusive) to `end` (exclusive). Never empty.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashRange {
    start: u64,
    /// Greater than the start, and at most 2^64.
    end: u128,
}

impl HashRange {
    /// All hashes.
    pub const WHOLE: Self = Self { start: 0, end: RING };

    /// Creates the range from `start` (inclusive) to `end` (exclusive, at most 2^64). Returns `None` if it is empty.
    pub const fn new(start: u64, end: u128) -> Option<Self> {
        if (start as u128) < end && end <= RING { Some(Self { start, end }) } else { None }
    }

    /// Returns the first hash of the range.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// Returns the exclusive end of the range; 2^64 if the range contains the last hash.
    pub const fn end(self) -> u128 {
        self.end
    }

    /// Returns whether the range contains the hash.
    pub fn contains(self, hash: u64) -> bool {
        hash >= self.start && u128::from(hash) < self.end
    }

    /// Returns the number of hashes in the range.
    pub const fn width(self) -> u128 {
        self.end - self.start as u128
    }
}

/// A part of the hash ring as a minimal list of ranges: ascending, disjoint and not adjacent.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashRanges(Vec<HashRange>);

impl HashRanges {
    /// Returns ranges without any hash.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Returns ranges that contain all hashes.
    pub fn whole() -> Self {
        Self(vec![HashRange::WHOLE])
    }

    /// Returns whether the ranges contain no hash.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the ranges contain the hash.
    pub fn contains(&self, hash: u64) -> bool {
        let at_or_before = self.0.partition_point(|range| range.start <= hash);
        at_or_before > 0 && self.0[at_or_before - 1].contains(hash)
    }

    /// Returns whether any hash is in both.
    pub fn overlaps(&self, other: &HashRanges) -> bool {
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(one), Some(another)) = (ours.peek(), theirs.peek()) {
            if u128::from(one.start) >= another.end {
                theirs.next();
            } else if u128::from(another.start) >= one.end {
                ours.next();
            } else {
                return true;
            }
        }
        false
    }

    /// Returns the hashes that are in either.
    #[must_use]
    pub fn union(&self, other: &HashRanges) -> HashRanges {
        self.iter().chain(other.iter()).collect()
    }

    /// Returns the ranges in ascending order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = HashRange> + '_ {
        self.0.iter().copied()
    }

    /// Returns the number of hashes in the ranges, at most 2^64.
    pub fn width(&self) -> u128 {
        self.iter().map(HashRange::width).sum()
    }
}

impl From<HashRange> for HashRanges {
    fn from(range: HashRange) -> Self {
        Self(vec![range])
    }
}

/// Accepts ranges in any order, including overlapping ranges.
impl FromIterator<HashRange> for HashRanges {
    fn from_iter<I: IntoIterator<Item = HashRange>>(ranges: I) -> Self {
        let mut sorted: Vec<HashRange> = ranges.into_iter().collect();
        sorted.sort_unstable();
        let mut merged: Vec<HashRange> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match merged.last_mut() {
                Some(last) if u128::from(range.start) <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Self(merged)
    }
}

/// The format is `0x` and 16 digits for both bounds, and `0x10000000000000000` for 2^64.
impl fmt::Display for HashRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}-{:#018x}", self.start, self.end)
    }
}

impl fmt::Debug for HashRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The ranges are separated by commas; no hashes are formatted as the empty string.
impl fmt::Display for HashRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{range}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for HashRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

impl FromStr for HashRange {
    type Err = ParseHashRangesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || ParseHashRangesError::Malformed(text.into());
        let (start, end) = text.split_once('-').ok_or_else(malformed)?;
        let bounds = (parse_bound(start).ok_or_else(malformed)?, parse_bound(end).ok_or_else(malformed)?);
        let empty = || ParseHashRangesError::Empty(text.into());
        let start = u64::try_from(bounds.0).map_err(|_| empty())?;
        HashRange::new(start, bounds.1).ok_or_else(empty)
    }
}

impl FromStr for HashRanges {
    type Err = ParseHashRangesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(HashRanges::none());
        }
        let written = text.split(',').map(str::parse).collect::<Result<Vec<HashRange>, _>>()?;
        let apart = |pair: &[HashRange]| pair[0].end.cmp(&u128::from(pair[1].start)) == Ordering::Less;
        if written.windows(2).all(apart) {
            Ok(Self(written))
        } else {
            Err(ParseHashRangesError::Order(text.into()))
        }
    }
}

/// Parses a bound in the format of API servers: `0x` and 16 lowercase hex digits, or 2^64.
pub fn parse_bound(text: &str) -> Option<u128> {
    let digits = text.strip_prefix("0x")?;
    let is_lowercase_hex = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    match digits.len() {
        16 if digits.bytes().all(is_lowercase_hex) => u128::from_str_radix(digits, 16).ok(),
        17 if digits == "10000000000000000" => Some(RING),
        _ => None,
    }
}

/// Error for a text that is not a list of hash ranges.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseHashRangesError {
    /// Not two bounds with a dash between them.
    #[error(
        "{0:?} is not a hash range; write <start>-<end>, each as 0x and 16 lowercase hex digits (or 0x10000000000000000)"
    )]
    Malformed(String),
    /// The end is not greater than the start.
    #[error("{0:?} is not a hash range: its end is not greater than its start")]
    Empty(String),
    /// The ranges overlap, are adjacent, or are not in ascending order.
    #[error("{0:?} are not hash ranges: they must be ascending, disjoint and not adjacent")]
    Order(String),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_range() -> impl Strategy<Value = HashRange> {
        // Few distinct bounds, so that ranges are often adjacent or overlap, and some are at the ends of the ring.
        (0u64..8, 1u128..9)
            .prop_map(|(start, width)| (start << 61, (u128::from(start) + width).min(8) << 61))
            .prop_filter_map("not empty", |(start, end)| HashRange::new(start, end))
    }

    fn any_ranges() -> impl Strategy<Value = HashRanges> {
        prop::collection::vec(any_range(), 0..6).prop_map(|ranges| ranges.into_iter().collect())
    }

    proptest! {
        #[test]
        fn hash_ranges_survive_formatting_and_parsing(ranges in any_ranges()) {
            prop_assert_eq!(ranges.to_string().parse::<HashRanges>().unwrap(), ranges);
        }

        #[test]
        fn union_contains_hashes_of_either_side(one in any_ranges(), other in any_ranges(), hash: u64) {
            prop_assert_eq!(one.union(&other).contains(hash), one.contains(hash) || other.contains(hash));
        }

        #[test]
        fn ranges_overlap_when_they_share_a_hash(one in any_ranges(), other in any_ranges()) {
            let common = (0u64..8).any(|at| one.contains(at << 61) && other.contains(at << 61));
            prop_assert_eq!(one.overlaps(&other), common);
            prop_assert_eq!(other.overlaps(&one), common);
        }

        #[test]
        fn adjacent_ranges_are_merged(one in any_ranges()) {
            let touching = one.0.windows(2).any(|pair| pair[0].end >= u128::from(pair[1].start));
            prop_assert!(!touching, "{one:?}");
        }
    }

    #[test]
    fn range_to_end_of_ring_contains_last_hash() {
        let upper = HashRange::new(1 << 63, RING).unwrap();
        assert!(upper.contains(u64::MAX) && !upper.contains((1 << 63) - 1));
        assert_eq!(upper.to_string(), "0x8000000000000000-0x10000000000000000");
    }

    #[test]
    fn malformed_hash_ranges_are_rejected() {
        let parsed = |text: &str| text.parse::<HashRanges>().unwrap_err();
        let malformed = [
            "0x0-0x1",
            "0x000000000000000A-0x00000000000000ff",
            "0x0000000000000000",
            "0x0000000000000000-0x10000000000000001",
            "0x+000000000000000-0x00000000000000ff",
            "0x0000000000000000-0x00000000000000ff,",
        ];
        for text in malformed {
            assert!(matches!(parsed(text), ParseHashRangesError::Malformed(_)), "{text}");
        }
        for text in ["0x0000000000000001-0x0000000000000001", "0x10000000000000000-0x10000000000000000"] {
            assert!(matches!(parsed(text), ParseHashRangesError::Empty(_)), "{text}");
        }
        let touching = "0x0000000000000000-0x0000000000000001,0x0000000000000001-0x0000000000000002";
        assert!(matches!(parsed(touching), ParseHashRangesError::Order(_)));
    }
}
