//! Canonical form of the subsets of an Endpoints object.
//!
//! The same endpoints can be written in many ways: one subset per pod and port, or merged by ports and addresses.
//! Packing minimizes the number of subsets: each address occurs once per port, ports with the same addresses share a
//! subset, and all lists are sorted. An address that is both ready and not ready counts as not ready.
//!
//! Other controllers sort differently. [`equivalent`] therefore packs both sides before it compares them, so that
//! taking over an object causes no write.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, ObjectReference};

use super::ports::protocol;

/// Packs subsets. Subsets without addresses are removed; an address without ports keeps a subset without ports.
///
/// If an address occurs twice, the first occurrence is kept, with its attached fields.
pub(super) fn repack(subsets: &[EndpointSubset]) -> Vec<EndpointSubset> {
    let Packed { subsets, known } = pack(subsets, port_key);
    subsets.iter().map(|(ports, addresses)| subset(addresses, ports, &known)).collect()
}

/// Returns whether two lists of subsets contain the same endpoints. Versions of referenced pods are ignored.
pub(super) fn equivalent(left: &[EndpointSubset], right: &[EndpointSubset]) -> bool {
    let (left, right) = (pack(left, defaulted_port_key), pack(right, defaulted_port_key));
    let same = |(left, right): (&EndpointAddress, &EndpointAddress)| same_address(left, right);
    left.subsets == right.subsets && left.known.values().copied().zip(right.known.values().copied()).all(same)
}

/// Packed subsets, without copies of addresses and ports.
struct Packed<'a> {
    subsets: Vec<(Vec<PortKey<'a>>, Readiness<'a>)>,
    /// The first occurrence of each address.
    known: BTreeMap<AddressKey<'a>, &'a EndpointAddress>,
}

fn pack<'a>(subsets: &'a [EndpointSubset], key_of: fn(&'a EndpointPort) -> PortKey<'a>) -> Packed<'a> {
    let mut known = BTreeMap::new();
    let mut by_port: BTreeMap<PortKey<'_>, Readiness<'_>> = BTreeMap::new();
    for subset in subsets {
        for port in ports_of(subset, key_of) {
            for (address, ready) in addresses_of(subset) {
                let key = AddressKey::of(address);
                known.entry(key).or_insert(address);
                let state = by_port.entry(port).or_default().entry(key).or_insert(ready);
                *state &= ready;
            }
        }
    }
    let mut by_addresses: BTreeMap<Readiness<'_>, Vec<PortKey<'_>>> = BTreeMap::new();
    for (port, addresses) in by_port {
        by_addresses.entry(addresses).or_default().push(port);
    }
    let mut subsets: Vec<_> =
        by_addresses.into_iter().map(|(addresses, ports)| (real(ports), addresses)).collect();
    subsets.sort();
    Packed { subsets, known }
}

/// Returns the fields of the referenced pod that identify it.
fn target(address: &EndpointAddress) -> Option<[Option<&str>; 6]> {
    let ObjectReference { api_version, field_path, kind, name, namespace, resource_version: _, uid } =
        address.target_ref.as_ref()?;
    Some([api_version, field_path, kind, name, namespace, uid].map(Option::as_deref))
}

fn same_address(left: &EndpointAddress, right: &EndpointAddress) -> bool {
    (&left.ip, &left.hostname, &left.node_name) == (&right.ip, &right.hostname, &right.node_name)
        && target(left) == target(right)
}

/// Returns the number of addresses for the limit: an address counts once per subset.
pub(super) fn address_count(subsets: &[EndpointSubset]) -> usize {
    subsets.iter().map(|subset| addresses_of(subset).count()).sum()
}

/// Identity of an address. Pods on the host network share their IP, so it includes the pod's UID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct AddressKey<'a> {
    ip: &'a str,
    uid: &'a str,
}

impl<'a> AddressKey<'a> {
    fn of(address: &'a EndpointAddress) -> Self {
        let uid = address.target_ref.as_ref().and_then(|target| target.uid.as_deref()).unwrap_or_default();
        Self { ip: &address.ip, uid }
    }
}

/// Identity and sort key of a port. `None` is an address without ports.
type PortKey<'a> = Option<(Option<&'a str>, i32, Option<&'a str>, Option<&'a str>)>;

/// Addresses of a port, and whether each is ready.
type Readiness<'a> = BTreeMap<AddressKey<'a>, bool>;

fn ports_of<'a>(subset: &'a EndpointSubset, key_of: fn(&'a EndpointPort) -> PortKey<'a>) -> Vec<PortKey<'a>> {
    // An invalid port number counts as no port.
    let ports = subset.ports.iter().flatten().filter(|port| port.port > 0);
    let mut keys: Vec<_> = ports.map(key_of).collect();
    if keys.is_empty() {
        keys.push(None);
    }
    keys
}

/// Removes the entry without a port from an address that also has ports.
fn real(ports: Vec<PortKey<'_>>) -> Vec<PortKey<'_>> {
    if ports.iter().any(Option::is_some) {
        ports.into_iter().filter(Option::is_some).collect()
    } else {
        ports
    }
}

fn port_key(port: &EndpointPort) -> PortKey<'_> {
    Some((port.name.as_deref(), port.port, port.protocol.as_deref(), port.app_protocol.as_deref()))
}

/// Returns the identity of a port with the defaults of the server.
fn defaulted_port_key(port: &EndpointPort) -> PortKey<'_> {
    let name = port.name.as_deref().filter(|name| !name.is_empty());
    Some((name, port.port, Some(protocol(port.protocol.as_deref())), port.app_protocol.as_deref()))
}

fn addresses_of(subset: &EndpointSubset) -> impl Iterator<Item = (&EndpointAddress, bool)> {
    let ready = subset.addresses.iter().flatten().map(|address| (address, true));
    ready.chain(subset.not_ready_addresses.iter().flatten().map(|address| (address, false)))
}

fn subset(
    addresses: &Readiness<'_>,
    ports: &[PortKey<'_>],
    known: &BTreeMap<AddressKey<'_>, &EndpointAddress>,
) -> EndpointSubset {
    let those = |wanted: bool| {
        let keys = addresses.iter().filter(|(_, ready)| **ready == wanted).map(|(key, _)| key);
        some(keys.filter_map(|key| known.get(key)).map(|address| (*address).clone()).collect())
    };
    let ports = ports.iter().flatten().map(|(name, port, protocol, app_protocol)| EndpointPort {
        name: name.map(str::to_owned),
        port: *port,
        protocol: protocol.map(str::to_owned),
        app_protocol: app_protocol.map(str::to_owned),
    });
    EndpointSubset { addresses: those(true), not_ready_addresses: those(false), ports: some(ports.collect()) }
}

/// Returns `None` instead of an empty list, as in the API.
pub(super) fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
