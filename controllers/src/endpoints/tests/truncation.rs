//! Truncation to the limit: cases and properties.

use k8s_openapi::api::core::v1::EndpointSubset;
use proptest::prelude::*;

use super::{address, port, subset};
use crate::endpoints::subsets::address_count;
use crate::endpoints::truncate::{MAX_ADDRESSES, truncate};

/// Returns subsets with these numbers of ready and other addresses.
fn sized(sizes: &[(usize, usize)]) -> Vec<EndpointSubset> {
    let some = |count: usize| (0..count).map(|number| address(&number.to_string())).collect::<Vec<_>>();
    let numbered = sizes.iter().zip(1..);
    numbered
        .map(|((ready, unready), number)| subset(some(*ready), some(*unready), [port(number, "TCP")]))
        .collect()
}

fn sizes(subsets: &[EndpointSubset]) -> Vec<(usize, usize)> {
    let len = |list: &Option<Vec<_>>| list.as_ref().map_or(0, Vec::len);
    subsets.iter().map(|subset| (len(&subset.addresses), len(&subset.not_ready_addresses))).collect()
}

fn check(given: &[(usize, usize)], expected: &[(usize, usize)]) {
    let (cut, truncated) = truncate(sized(given));
    assert_eq!(sizes(&cut), expected);
    assert_eq!(truncated, given != expected);
}

#[test]
fn addresses_within_the_limit_are_not_truncated() {
    check(&[], &[]);
    check(
        &[(50, 50), (100, 100), (100, 100), (100, 100), (100, 100)],
        &[(50, 50), (100, 100), (100, 100), (100, 100), (100, 100)],
    );
    check(&[(100, 100); 5], &[(100, 100); 5]);
}

#[test]
fn ready_addresses_have_precedence_and_subsets_keep_shares() {
    check(
        &[(90, 101), (110, 200), (50, 200), (10, 201), (20, 298)],
        &[(90, 73), (110, 144), (50, 144), (10, 145), (20, 214)],
    );
    check(
        &[(205, 100), (400, 200), (402, 200), (400, 200), (693, 300)],
        &[(98, 0), (191, 0), (192, 0), (191, 0), (328, 0)],
    );
}

#[test]
fn subset_without_remaining_addresses_is_removed() {
    check(&[(1500, 0), (0, 10)], &[(1000, 0)]);
    check(&[(1000, 0), (0, 10)], &[(1000, 0)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn limit_is_reached_but_not_exceeded(given in proptest::collection::vec((0..700_usize, 0..700_usize), 0..6)) {
        let total: usize = given.iter().map(|(ready, unready)| ready + unready).sum();
        let ready: usize = given.iter().map(|(ready, _)| ready).sum();
        let (cut, truncated) = truncate(sized(&given));
        let kept_ready: usize = sizes(&cut).iter().map(|(ready, _)| ready).sum();
        prop_assert_eq!(truncated, total > MAX_ADDRESSES);
        prop_assert_eq!(address_count(&cut), total.min(MAX_ADDRESSES));
        prop_assert_eq!(kept_ready, ready.min(MAX_ADDRESSES));
        prop_assert!(truncate(cut).1.eq(&false), "the truncated subsets fit");
    }
}
