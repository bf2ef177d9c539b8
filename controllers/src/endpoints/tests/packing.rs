//! Packed subsets: cases, and general properties.

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, ObjectReference};
use proptest::prelude::*;

use super::{address, address_of, port, subset};
use crate::endpoints::subsets::{address_count, equivalent, repack};

fn p(number: i32) -> EndpointPort {
    EndpointPort { port: number, ..EndpointPort::default() }
}

fn check(
    given: impl IntoIterator<Item = EndpointSubset>,
    expected: impl IntoIterator<Item = EndpointSubset>,
) {
    let given: Vec<_> = given.into_iter().collect();
    assert_eq!(repack(&given), expected.into_iter().collect::<Vec<_>>(), "{given:?}");
}

/// Checks that a packed subset does not change.
fn stays(packed: EndpointSubset) {
    check([packed.clone()], [packed]);
}

#[test]
fn empty_subsets_are_removed_and_portless_addresses_kept() {
    check([subset([], [], [])], []);
    check([subset([], [], [p(111)])], []);
    stays(subset([address("1.2.3.4")], [], []));
    stays(subset([], [address("1.2.3.4")], []));
}

#[test]
fn packed_subsets_do_not_change() {
    let (a, b) = (address("1.2.3.4"), address("5.6.7.8"));
    stays(subset([a.clone()], [], [p(111)]));
    stays(subset([address("beef::1:2:3:4")], [], [p(111)]));
    stays(subset([], [a.clone()], [p(111)]));
    stays(subset([address_of("1.2.3.4", "uid-1")], [], [p(111)]));
    stays(subset([], [address_of("1.2.3.4", "uid-1")], [p(111)]));
    stays(subset([address_of("1.2.3.4", "")], [], [p(111)]));
    stays(subset([], [address_of("1.2.3.4", "")], [p(111)]));
    stays(subset([a.clone(), b.clone()], [], [p(111)]));
    stays(subset([a.clone()], [b], [p(111)]));
    stays(subset([a], [], [p(111), p(222)]));
}

#[test]
fn address_is_listed_once_per_port_and_not_ready_wins() {
    let a = address("1.2.3.4");
    let (ready, unready) = (subset([a.clone()], [], [p(111)]), subset([], [a.clone()], [p(111)]));
    check([subset([a.clone()], [a.clone()], [p(111)])], [unready.clone()]);
    check([subset([a.clone(), a.clone()], [], [p(111)])], [ready.clone()]);
    check([subset([a.clone()], [], [p(111), p(111)])], [ready.clone()]);
    check([ready.clone(), ready.clone()], [ready.clone()]);
    check([ready.clone(), unready.clone()], [unready.clone()]);
    check([unready.clone(), ready], [unready]);
}

#[test]
fn first_of_two_equal_addresses_is_kept() {
    let named = |name: &str| EndpointAddress {
        target_ref: Some(ObjectReference { name: Some(name.into()), ..ObjectReference::default() }),
        ..address("1.2.3.4")
    };
    let (foo, bar) = (named("foo"), named("bar"));
    check([subset([foo.clone(), bar.clone()], [], [p(111)])], [subset([foo.clone()], [], [p(111)])]);
    check([subset([foo.clone()], [bar], [p(111)])], [subset([], [foo], [p(111)])]);
}

#[test]
fn ports_with_the_same_addresses_share_a_subset() {
    let a = address_of("1.2.3.4", "uid-1");
    let (first, second) = (subset([a.clone()], [], [p(111)]), subset([a.clone()], [], [p(222)]));
    check([second.clone(), first.clone()], [subset([a.clone()], [], [p(111), p(222)])]);
    let unready = subset([], [a], [p(222)]);
    check([unready.clone(), first.clone()], [first, unready]);
}

#[test]
fn pods_with_the_same_ip_are_distinct_and_sorted_by_uid() {
    let (anonymous, one, two) =
        (address("1.2.3.4"), address_of("1.2.3.4", "uid-1"), address_of("1.2.3.4", "uid-2"));
    let single = |address: &EndpointAddress| subset([address.clone()], [], [p(111)]);
    check([single(&two), single(&one)], [subset([one.clone(), two.clone()], [], [p(111)])]);
    check([single(&two), single(&anonymous)], [subset([anonymous.clone(), two], [], [p(111)])]);
    let (other, other_one) = (address("5.6.7.8"), address_of("5.6.7.8", "uid-1"));
    check(
        [single(&other), single(&other_one), single(&one), single(&anonymous)],
        [subset([anonymous.clone(), one.clone(), other.clone(), other_one.clone()], [], [p(111)])],
    );
    let unready = |address: &EndpointAddress| subset([], [address.clone()], [p(111)]);
    check(
        [single(&other), unready(&other_one), unready(&one), unready(&anonymous)],
        [subset([other], [anonymous, one, other_one], [p(111)])],
    );
}

#[test]
fn addresses_are_grouped_by_port() {
    let single = |ip: &str, number| subset([address(ip)], [], [p(number)]);
    check(
        [single("1.2.3.4", 111), single("5.6.7.8", 111)],
        [subset([address("1.2.3.4"), address("5.6.7.8")], [], [p(111)])],
    );
    check([single("5.6.7.8", 222), single("1.2.3.4", 111)], [single("1.2.3.4", 111), single("5.6.7.8", 222)]);
    check(
        [single("1.2.3.4", 111), single("1.2.3.5", 222), single("1.2.3.6", 111), single("1.2.3.5", 333)],
        [
            subset([address("1.2.3.4"), address("1.2.3.6")], [], [p(111)]),
            subset([address("1.2.3.5")], [], [p(222), p(333)]),
        ],
    );
    let unready = |ip: &str, number| subset([], [address(ip)], [p(number)]);
    check(
        [single("1.2.3.4", 111), unready("1.2.3.5", 222), single("1.2.3.6", 111), unready("1.2.3.5", 333)],
        [
            subset([address("1.2.3.4"), address("1.2.3.6")], [], [p(111)]),
            subset([], [address("1.2.3.5")], [p(222), p(333)]),
        ],
    );
}

#[test]
fn same_port_number_with_two_protocols_is_two_ports() {
    let a = address("1.2.3.4");
    check(
        [subset([a.clone()], [], [port(80, "UDP")]), subset([a.clone()], [], [port(80, "TCP")])],
        [subset([a], [], [port(80, "TCP"), port(80, "UDP")])],
    );
}

#[test]
fn only_the_version_of_a_pod_can_differ_between_equivalent_subsets() {
    let pod = |ip: &str, version: Option<&str>| {
        let mut address = address_of(ip, "uid");
        address.target_ref.get_or_insert_default().resource_version = version.map(str::to_owned);
        address
    };
    let one = |version| subset([pod("1.1.1.1", version)], [address("1.1.1.2")], [port(8081, "TCP")]);
    let two = subset([address("2.2.2.1")], [address("2.2.2.2")], [port(8082, "TCP")]);
    let both = [one(Some("1")), two.clone()];

    assert!(equivalent(&both, &[two.clone(), one(Some("1"))]), "order does not matter");
    assert!(equivalent(&both, &[one(Some("100")), two.clone()]));
    assert!(equivalent(&both, &[one(None), two.clone()]));
    assert!(!equivalent(&both, &[one(Some("1"))]));
    let moved = subset([pod("1.1.1.10", Some("1"))], [address("1.1.1.2")], [port(8081, "TCP")]);
    assert!(!equivalent(&both, &[moved, two.clone()]));
    let unready_moved = subset([pod("1.1.1.1", Some("1"))], [address("1.1.1.20")], [port(8081, "TCP")]);
    assert!(!equivalent(&both, &[unready_moved, two.clone()]));
    let other_port = subset([pod("1.1.1.1", Some("1"))], [address("1.1.1.2")], [port(8082, "TCP")]);
    assert!(!equivalent(&both, &[other_port, two]));
    assert!(equivalent(&[], &[subset([], [], [p(1)])]));
}

// parity: create-or-update
#[test]
fn defaulted_protocol_is_no_difference() {
    let a = address("1.2.3.4");
    assert!(equivalent(&[subset([a.clone()], [], [p(80)])], &[subset([a], [], [port(80, "TCP")])]));
}

/// Generates subsets from few addresses and ports, so that most of them overlap.
pub(super) fn any_subsets(most: usize) -> impl Strategy<Value = Vec<EndpointSubset>> {
    let any_address = || {
        (0..4_u8, 0..3_u8).prop_map(|(ip, uid)| match uid {
            0 => address(&format!("10.0.0.{ip}")),
            uid => address_of(&format!("10.0.0.{ip}"), &format!("uid-{uid}")),
        })
    };
    let any_port =
        (1..4_i32, any::<bool>()).prop_map(|(number, tcp)| port(number, if tcp { "TCP" } else { "UDP" }));
    let any_subset = (
        proptest::collection::vec(any_address(), 0..4),
        proptest::collection::vec(any_address(), 0..3),
        proptest::collection::vec(any_port, 0..3),
    );
    proptest::collection::vec(
        any_subset.prop_map(|(ready, unready, ports)| subset(ready, unready, ports)),
        0..most,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packing_is_idempotent(given in any_subsets(6)) {
        let packed = repack(&given);
        prop_assert_eq!(repack(&packed), packed);
    }

    #[test]
    fn packing_does_not_depend_on_the_order_of_subsets(given in any_subsets(6), turn in 0..6_usize) {
        let mut turned = given.clone();
        turned.reverse();
        let length = turned.len().max(1);
        turned.rotate_left(turn % length);
        prop_assert!(equivalent(&given, &turned));
    }

    #[test]
    fn packing_never_adds_an_address_and_leaves_no_subset_empty(given in any_subsets(6)) {
        let packed = repack(&given);
        let pairs = |subsets: &[EndpointSubset]| -> usize {
            subsets.iter().map(|it| address_count(std::slice::from_ref(it)) * it.ports.as_ref().map_or(1, Vec::len)).sum()
        };
        prop_assert!(pairs(&packed) <= pairs(&given));
        prop_assert!(packed.iter().all(|subset| address_count(std::slice::from_ref(subset)) > 0));
    }
}
