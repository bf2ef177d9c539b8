//! Quantities of requests and limits.

use std::cmp::Ordering;

use windlass_gotext::quantity::GoQuantity;

/// Returns the order of two quantities; `None` if one is malformed.
pub(crate) fn order(one: &str, other: &str) -> Option<Ordering> {
    Some(GoQuantity::parse(one).ok()?.compare(&GoQuantity::parse(other).ok()?))
}

/// Parses a quantity in thousandths, because CPU quantities can be fractions. `None` if it is malformed or too large.
pub(crate) fn thousandths(text: &str) -> Option<i128> {
    GoQuantity::parse(text).ok()?.thousandths()
}

/// Returns the sum of these quantities, without those that are malformed.
pub(crate) fn sum<'a>(texts: impl IntoIterator<Item = &'a str>) -> GoQuantity {
    let mut sum = GoQuantity::default();
    texts.into_iter().filter_map(|text| GoQuantity::parse(text).ok()).for_each(|it| sum.add(&it));
    sum
}
