//! The one form in which the subsets of an Endpoints object are written and compared.
//!
//! The same endpoints can be written in many ways: a subset per pod and port, or ports and addresses merged. Packed
//! subsets are as few as possible: each address stands once per port, ports with the same addresses share a subset,
//! and everything is sorted. An address that some pod reports as both ready and not ready is not ready.
//!
//! Other controllers sort differently. [`equivalent`] therefore packs both sides before it compares, so taking an
//! object over from one of them is no reason to write it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset};

use super::ports::protocol;

/// Packs subsets. Those without addresses vanish; an address without ports keeps a subset without ports.
///
/// Of an address listed twice the first is kept, with whatever is attached to it.
pub(super) fn repack(subsets: &[EndpointSubset]) -> Vec<EndpointSubset> {
    let mut known = BTreeMap::new();
    let mut by_port: BTreeMap<PortKey<'_>, Readiness<'_>> = BTreeMap::new();
    for subset in subsets {
        for port in ports_of(subset) {
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
    let mut packed: Vec<_> =
        by_addresses.into_iter().map(|(addresses, ports)| (addresses, real(ports))).collect();
    packed.sort_by(|(left_addresses, left), (right_addresses, right)| {
        (left, left_addresses).cmp(&(right, right_addresses))
    });
    packed.into_iter().map(|(addresses, ports)| subset(&addresses, &ports, &known)).collect()
}

/// Whether two lists of subsets mean the same endpoints. The version of a pod they refer to does not matter.
pub(super) fn equivalent(left: &[EndpointSubset], right: &[EndpointSubset]) -> bool {
    repack(&normalize(left)) == repack(&normalize(right))
}

/// How many addresses the subsets hold, as the limit on their number counts them: once per subset.
pub(super) fn address_count(subsets: &[EndpointSubset]) -> usize {
    subsets.iter().map(|subset| addresses_of(subset).count()).sum()
}

/// Identifies an address. Pods on the network of their host share its IP, so the pod's UID belongs to it.
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

/// Identifies a port, and says where it is sorted. `None` stands for an address without ports.
type PortKey<'a> = Option<(Option<&'a str>, i32, Option<&'a str>, Option<&'a str>)>;

/// The addresses behind a port, and whether each is ready.
type Readiness<'a> = BTreeMap<AddressKey<'a>, bool>;

fn ports_of(subset: &EndpointSubset) -> Vec<PortKey<'_>> {
    // A port number that is none counts as no port.
    let ports = subset.ports.iter().flatten().filter(|port| port.port > 0);
    let mut keys: Vec<_> = ports.map(port_key).collect();
    if keys.is_empty() {
        keys.push(None);
    }
    keys
}

/// Addresses that have ports as well need no subset without.
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

/// A list as the wire has it: absent rather than empty.
pub(super) fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// Fills in what servers fill in, and drops what does not matter.
fn normalize(subsets: &[EndpointSubset]) -> Vec<EndpointSubset> {
    let mut subsets = subsets.to_vec();
    for subset in &mut subsets {
        for port in subset.ports.iter_mut().flatten() {
            port.name = port.name.take().filter(|name| !name.is_empty());
            port.protocol = Some(protocol(port.protocol.as_deref()).to_owned());
        }
        let addresses = subset.addresses.iter_mut().chain(&mut subset.not_ready_addresses).flatten();
        for target in addresses.filter_map(|address| address.target_ref.as_mut()) {
            target.resource_version = None;
        }
    }
    subsets
}
