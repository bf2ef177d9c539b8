//! Strategy of Services: cluster IPs, node ports, and fields that depend on the type.

mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::super::invalid::FieldErrors;
use super::super::writer::WriteTransaction;
use super::super::{convert, names, value};
use super::{Kind, NAMED};
use crate::status::Status;

/// Range of cluster IPs: 10.96.0.0/12, the default of `kubeadm`.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 96, 0, 0]);
const ADDRESSES: u32 = 1 << 20;
/// Number of addresses at the start of the range that are assigned only on request.
const RESERVED: u32 = 256;
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30000..=32767;
/// Default timeout of client affinity: three hours.
const AFFINITY_SECONDS: i64 = 10800;

/// Strategy of Services.
pub(super) static SERVICES: Kind = Kind {
    name: names::label_name,
    create_on_update: true,
    returns_deleted: true,
    defaults,
    prepare_create: |transaction, service| {
        let first = value::text(service, &["spec", "clusterIP"]).to_owned();
        if !first.is_empty() && value::is_empty(service, &["spec", "clusterIPs"]) {
            value::set(service, &["spec", "clusterIPs"], json!([first]));
        }
        // The status of a service always has this field.
        value::set(service, &["status"], json!({"loadBalancer": {}}));
        drop_internal_policy(service);
        allocate(transaction, service, &Value::Null)
    },
    prepare_update: |transaction, service, old| {
        inherit(service, old);
        drop_internal_policy(service);
        allocate(transaction, service, old)
    },
    validate,
    validate_update,
    validate_status: rules::validate_status,
    warnings: rules::warnings,
    after_delete: |transaction, service| drop_endpoints(transaction, service),
    ..NAMED
};

fn defaults(service: &mut Value) {
    let spec = value::place(service, &["spec"]);
    value::default(spec, &["sessionAffinity"], "None");
    match value::text(spec, &["sessionAffinity"]) {
        "None" => drop(value::remove(spec, &["sessionAffinityConfig"])),
        "ClientIP" => {
            value::default(spec, &["sessionAffinityConfig", "clientIP", "timeoutSeconds"], AFFINITY_SECONDS);
        }
        _ => {}
    }
    value::default(spec, &["type"], "ClusterIP");
    for port in value::items_mut(spec, &["ports"]).into_iter().flatten() {
        value::default(port, &["protocol"], "TCP");
        let target = value::at(port, &["targetPort"]);
        if target.is_null() || *target == json!(0) || *target == json!("") {
            value::keep(port, &json!({"targetPort": port["port"]}), &["targetPort"]);
        }
    }
    let kind = value::text(spec, &["type"]).to_owned();
    let reachable = matches!(kind.as_str(), "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && !value::is_empty(spec, &["externalIPs"]));
    if reachable {
        value::default(spec, &["externalTrafficPolicy"], "Cluster");
    }
    if kind != "ExternalName" {
        value::default(spec, &["internalTrafficPolicy"], "Cluster");
    }
    if kind == "LoadBalancer" {
        value::default(spec, &["allocateLoadBalancerNodePorts"], true);
        let ingress = value::items_mut(service, &["status", "loadBalancer", "ingress"]);
        for item in ingress.into_iter().flatten().filter(|it| !value::text(it, &["ip"]).is_empty()) {
            value::default(item, &["ipMode"], "VIP");
        }
    }
}

/// Removes the valid internal traffic policy of a Service without addresses. Upstream stores it and does not return it.
fn drop_internal_policy(service: &mut Value) {
    let is_known = matches!(value::text(service, &["spec", "internalTrafficPolicy"]), "Cluster" | "Local");
    if is_known && value::text(service, &["spec", "type"]) == "ExternalName" {
        value::remove(service, &["spec", "internalTrafficPolicy"]);
    }
}

/// Keeps omitted fields of the old service, and removes fields that the new type does not use.
fn inherit(service: &mut Value, old: &Value) {
    let kind = |it: &Value| value::text(it, &["spec", "type"]).to_owned();
    let (new_kind, old_kind) = (kind(service), kind(old));
    if new_kind != "ExternalName" && old_kind != "ExternalName" {
        for field in ["clusterIP", "clusterIPs"] {
            if value::is_empty(service, &["spec", field]) {
                value::keep(service, old, &["spec", field]);
            }
        }
    }
    addresses_together(service, old);
    let same = |service: &Value, path: &[&str]| value::same_at(service, old, path);
    if new_kind == "ExternalName" && old_kind != "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if same(service, &["spec", field]) {
                value::remove(service, &["spec", field]);
            }
        }
    }
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if new_kind != "ExternalName" && value::is_empty(service, &["spec", field]) {
            value::keep(service, old, &["spec", field]);
        }
    }
    let on_nodes = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    match (on_nodes(&old_kind), on_nodes(&new_kind)) {
        (true, false) => drop_node_ports(service),
        (true, true) => keep_node_ports(service, old),
        _ => {}
    }
    let checked = |it: &Value| rules::is_checked(value::at(it, &["spec"]));
    if checked(service) && checked(old) && value::is_empty(service, &["spec", "healthCheckNodePort"]) {
        value::keep(service, old, &["spec", "healthCheckNodePort"]);
    }
    if !on_nodes(&new_kind)
        && same(service, &["spec", "externalTrafficPolicy"])
        && value::is_empty(service, &["spec", "externalIPs"])
    {
        value::remove(service, &["spec", "externalTrafficPolicy"]);
    }
    if new_kind != "LoadBalancer" && same(service, &["spec", "allocateLoadBalancerNodePorts"]) {
        value::remove(service, &["spec", "allocateLoadBalancerNodePorts"]);
    }
}

/// Changes the list of cluster IPs together with the first address, for clients that know only one of the fields.
fn addresses_together(service: &mut Value, old: &Value) {
    let (path, list) = (["spec", "clusterIP"], ["spec", "clusterIPs"]);
    let is_changed = !value::same_at(service, old, &path);
    if value::is_empty(service, &list) && !is_changed {
        value::keep(service, old, &list);
    }
    if is_changed && value::same_at(service, old, &list) {
        match value::text(service, &path).to_owned() {
            address if address.is_empty() => drop(value::remove(service, &list)),
            address => value::set(service, &list, json!([address])),
        }
    }
}

fn drop_node_ports(service: &mut Value) {
    for port in value::items_mut(service, &["spec", "ports"]).into_iter().flatten() {
        value::remove(port, &["nodePort"]);
    }
}

fn keep_node_ports(service: &mut Value, old: &Value) {
    let key = |it: &Value| (it["protocol"].clone(), it["port"].clone());
    let given: BTreeSet<i64> = node_ports(service);
    for port in value::items_mut(service, &["spec", "ports"]).into_iter().flatten() {
        if value::integer(port, &["nodePort"]).unwrap_or_default() != 0 {
            continue;
        }
        let before = value::items(old, &["spec", "ports"]).iter().find(|it| key(it) == key(port));
        let number = before.and_then(|it| value::integer(it, &["nodePort"]));
        if let Some(number) = number.filter(|it| !given.contains(it)) {
            value::set(port, &["nodePort"], number);
        }
    }
}

/// Allocates the cluster IPs and node ports that the service needs.
fn allocate(transaction: &mut WriteTransaction<'_>, service: &mut Value, old: &Value) -> Result<(), Status> {
    if value::text(service, &["spec", "type"]) == "ExternalName" {
        return Ok(());
    }
    let mut errors = FieldErrors::default();
    rules::cluster_addresses(service, old, &mut errors);
    if errors.0.is_empty() {
        rules::single_stack(value::at(service, &["spec"]), &mut errors);
    }
    errors.into_result("", "Service", value::text(service, &["metadata", "name"]))?;
    let mut errors = FieldErrors::default();
    // A list of the other services is needed only for an allocation.
    let services = convert::collection(&*transaction.built_in("", "v1", "services")?);
    let mut others = if wants_something(service, old) { transaction.all(&services, "") } else { Vec::new() };
    let uid = value::text(service, &["metadata", "uid"]).to_owned();
    others.retain(|it| value::text(&it.value, &["metadata", "uid"]) != uid || uid.is_empty());
    let (namespace, name) =
        (value::text(old, &["metadata", "namespace"]), value::text(old, &["metadata", "name"]));
    others.retain(|it| !(&*it.key.namespace == namespace && &*it.key.name == name));
    let addresses: BTreeSet<String> = others
        .iter()
        .flat_map(|it| value::texts(&it.value, &["spec", "clusterIPs"]))
        .map(str::to_owned)
        .collect();
    address(transaction, service, old, &addresses, &mut errors);
    let ports: BTreeSet<i64> = others.iter().flat_map(|it| node_ports(&it.value)).collect();
    ports_on_nodes(transaction, service, old, ports.clone(), &mut errors);
    errors.into_result("", "Service", value::text(service, &["metadata", "name"]))?;
    health_check_port(transaction, service, old, &ports)
}

/// Assigns the node port of the health check, and removes it from a service without health check.
fn health_check_port(
    transaction: &mut WriteTransaction<'_>,
    service: &mut Value,
    old: &Value,
    others: &BTreeSet<i64>,
) -> Result<(), Status> {
    const PATH: [&str; 2] = ["spec", "healthCheckNodePort"];
    let number = |it: &Value| value::integer(it, &PATH).unwrap_or_default();
    let given = number(service);
    match (rules::is_checked(value::at(old, &["spec"])), rules::is_checked(value::at(service, &["spec"]))) {
        (false, true) => {}
        (true, false) => {
            if given == number(old) {
                value::remove(service, &PATH);
            }
            return Ok(());
        }
        _ => return Ok(()),
    }
    let mut taken = others.clone();
    value::remove(service, &PATH);
    taken.extend(node_ports(service));
    if given == 0 {
        let found = free_port(transaction, &taken);
        found.into_iter().for_each(|port| value::set(service, &PATH, port));
        return Ok(());
    }
    let why = match (NODE_PORTS.contains(&given), taken.contains(&given)) {
        (false, _) => "provided port is not in the valid range. The range of valid ports is 30000-32767",
        (_, true) => "provided port is already allocated",
        _ => {
            value::set(service, &PATH, given);
            return Ok(());
        }
    };
    let why = format!("failed to allocate requested HealthCheck NodePort {given}: {why}");
    Err(Status::new(500, "InternalError", format!("Internal error occurred: {why}")))
}

fn free_port(transaction: &mut WriteTransaction<'_>, busy: &BTreeSet<i64>) -> Option<i64> {
    let span = NODE_PORTS.end() - NODE_PORTS.start() + 1;
    let start = i64::try_from(transaction.below(span.unsigned_abs())).unwrap_or_default();
    (0..span).map(|it| NODE_PORTS.start() + (start + it) % span).find(|it| !busy.contains(it))
}

/// Returns whether the service needs or requests an address or port that it did not have.
fn wants_something(service: &Value, old: &Value) -> bool {
    let spec = value::at(service, &["spec"]);
    let address = match value::text(spec, &["clusterIP"]) {
        "" => value::texts(spec, &["clusterIPs"]).first().copied().unwrap_or_default(),
        address => address,
    };
    let new_address =
        address.is_empty() || (address != "None" && address != value::text(old, &["spec", "clusterIP"]));
    let (wanted, before) = (wants_node_ports(service), node_ports(old));
    new_address
        || value::items(spec, &["ports"]).iter().any(|port| {
            match value::integer(port, &["nodePort"]).unwrap_or_default() {
                0 => wanted,
                number => !before.contains(&number),
            }
        })
}

fn wants_node_ports(service: &Value) -> bool {
    match value::text(service, &["spec", "type"]) {
        "NodePort" => true,
        "LoadBalancer" => value::flag(service, &["spec", "allocateLoadBalancerNodePorts"]),
        _ => false,
    }
}

fn address(
    transaction: &mut WriteTransaction<'_>,
    service: &mut Value,
    old: &Value,
    taken: &BTreeSet<String>,
    errors: &mut FieldErrors,
) {
    let name = value::text(service, &["metadata", "name"]);
    let unnamed = match name {
        _ if transaction.dry_run => None,
        "" => Some("Required value".to_owned()),
        name => names::path_name(name, false).first().map(|why| format!("Invalid value: {name:?}: {why}")),
    };
    let spec = value::place(service, &["spec"]);
    match value::text(spec, &["clusterIP"]).to_owned().as_str() {
        "None" => {
            value::default(spec, &["clusterIPs"], json!(["None"]));
            // Without a selector, the endpoints can have either IP family.
            let bare = value::is_empty(spec, &["selector"]);
            value::default(spec, &["ipFamilyPolicy"], if bare { "RequireDualStack" } else { "SingleStack" });
            value::default(
                spec,
                &["ipFamilies"],
                if bare { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) },
            );
            return;
        }
        "" if transaction.dry_run => {
            // Upstream does not look for a free address.
            value::set(spec, &["clusterIP"], Ipv4Addr::from(FIRST_ADDRESS).to_string());
        }
        "" => {
            let free = (0..ADDRESSES).map(|_| {
                let offset = RESERVED
                    + u32::try_from(transaction.below(u64::from(ADDRESSES - RESERVED - 1)))
                        .unwrap_or_default();
                Ipv4Addr::from(FIRST_ADDRESS + offset).to_string()
            });
            let mut free = free.filter(|it| !taken.contains(it));
            let Some(found) = free.next() else { return };
            if let Some(why) = unnamed {
                // Upstream records who uses the address.
                let detail = format!(
                    "failed to allocate IP: IPAddress.networking.k8s.io {found:?} is invalid: spec.parentRef.name: {why}"
                );
                errors.invalid("spec.clusterIPs", json!([""]), &detail);
                return;
            }
            value::set(spec, &["clusterIP"], found);
        }
        // Validation rejects the change of an address.
        _ if !value::is_empty(old, &["spec", "clusterIP"]) => {}
        asked => requested_address(spec, asked, taken, transaction.dry_run, errors),
    }
    let address = value::at(spec, &["clusterIP"]).clone();
    value::default(spec, &["clusterIPs"], json!([address]));
    value::default(spec, &["ipFamilies"], json!(["IPv4"]));
    value::default(spec, &["ipFamilyPolicy"], "SingleStack");
}

fn requested_address(
    spec: &Value,
    asked: &str,
    taken: &BTreeSet<String>,
    dry_run: bool,
    errors: &mut FieldErrors,
) {
    // Validation reports an invalid address.
    let Ok(IpAddr::V4(address)) = asked.parse::<IpAddr>() else { return };
    let shown = || match value::at(spec, &["clusterIPs"]) {
        Value::Null => json!([asked]),
        given => given.clone(),
    };
    let offset = u32::from(address).checked_sub(FIRST_ADDRESS).filter(|it| *it < ADDRESSES);
    if offset.is_none() && !dry_run {
        // Upstream looks for the range that contains the address, except in a dry run.
        let detail =
            format!("failed to allocate IP {asked}: the provided network does not match the current range");
        errors.invalid("spec.clusterIPs", shown(), &detail);
    } else if offset.is_none_or(|it| it == 0 || it == ADDRESSES - 1) {
        let detail = format!(
            "failed to allocate IP {asked}: the provided IP ({asked}) is not in the valid range. The range of valid \
             IPs is 10.96.0.0/12"
        );
        errors.invalid("spec.clusterIPs", shown(), &detail);
    } else if taken.contains(asked) {
        let detail = format!("failed to allocate IP {asked}: provided IP is already allocated");
        errors.invalid("spec.clusterIPs", shown(), &detail);
    }
}

fn node_ports(service: &Value) -> BTreeSet<i64> {
    let ports = value::items(service, &["spec", "ports"]).iter();
    let mut numbers: BTreeSet<i64> = ports.filter_map(|it| value::integer(it, &["nodePort"])).collect();
    numbers.extend(value::integer(service, &["spec", "healthCheckNodePort"]));
    numbers.remove(&0);
    numbers
}

/// Returns the requested port on nodes of each port of a Service.
fn requested_ports(service: &Value) -> BTreeMap<Option<i64>, i64> {
    let mut requested = BTreeMap::new();
    for port in value::items(service, &["spec", "ports"]) {
        if let Some(number) = value::integer(port, &["nodePort"]).filter(|it| *it != 0) {
            requested.entry(value::integer(port, &["port"])).or_insert(number);
        }
    }
    requested
}

fn ports_on_nodes(
    transaction: &mut WriteTransaction<'_>,
    service: &mut Value,
    old: &Value,
    mut taken: BTreeSet<i64>,
    errors: &mut FieldErrors,
) {
    if !matches!(value::text(service, &["spec", "type"]), "NodePort" | "LoadBalancer") {
        return;
    }
    let wanted = wants_node_ports(service);
    let before = node_ports(old);
    let own = node_ports(service);
    // Ports of a new Service that differ only in the protocol share one number.
    let mut shared = if old.is_null() { requested_ports(service) } else { BTreeMap::new() };
    let ports = value::items_mut(service, &["spec", "ports"]).into_iter().flatten();
    for (index, port) in ports.enumerate() {
        let path = format!("spec.ports[{index}].nodePort");
        match value::integer(port, &["nodePort"]).unwrap_or_default() {
            0 if wanted && shared.contains_key(&value::integer(port, &["port"])) => {
                let number = shared.get(&value::integer(port, &["port"])).copied();
                value::set(port, &["nodePort"], number);
            }
            0 if wanted => {
                let busy: BTreeSet<i64> = taken.union(&own).copied().collect();
                let Some(number) = free_port(transaction, &busy) else { continue };
                value::set(port, &["nodePort"], number);
                taken.insert(number);
                if old.is_null() {
                    shared.insert(value::integer(port, &["port"]), number);
                }
            }
            0 => {}
            number if before.contains(&number) => {}
            number if !NODE_PORTS.contains(&number) => {
                let detail =
                    "provided port is not in the valid range. The range of valid ports is 30000-32767";
                errors.invalid(path, number, detail);
            }
            number if taken.contains(&number) => {
                errors.invalid(path, number, "provided port is already allocated");
            }
            _ => {}
        }
    }
}

fn validate(service: &Value, errors: &mut FieldErrors) {
    rules::validate(service, &Value::Null, errors);
}

fn validate_update(service: &Value, old: &Value, errors: &mut FieldErrors) {
    rules::validate_update(service, old, errors);
}

/// Deletes the Endpoints with the name of the service.
fn drop_endpoints(transaction: &mut WriteTransaction<'_>, service: &Value) -> Result<(), Status> {
    let Some(endpoints) = transaction.served.catalog.resource("", "v1", "endpoints").cloned() else {
        return Ok(());
    };
    let (namespace, name) =
        (value::text(service, &["metadata", "namespace"]), value::text(service, &["metadata", "name"]));
    match transaction.find(&convert::collection(&endpoints), namespace, name) {
        Some(found) => transaction.erase(&endpoints, &found, found.value.clone()).map(|_| ()),
        None => Ok(()),
    }
}
