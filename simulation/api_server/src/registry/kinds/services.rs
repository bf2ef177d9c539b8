//! Strategy of Services: cluster IPs, node ports, and fields that depend on the type.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::super::invalid::FieldErrors;
use super::super::writer::WriteTransaction;
use super::super::{convert, meta, names, value};
use super::{Kind, NAMED, join, one_of, pod_spec};
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
        // The status of a service always has this field.
        value::set(service, &["status"], json!({"loadBalancer": {}}));
        allocate(transaction, service, &Value::Null)
    },
    prepare_update: |transaction, service, old| {
        inherit(service, old);
        allocate(transaction, service, old)
    },
    validate,
    validate_update,
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
    }
}

/// Keeps omitted fields of the old service, and removes fields that the new type does not use.
fn inherit(service: &mut Value, old: &Value) {
    let kind = |it: &Value| value::text(it, &["spec", "type"]).to_owned();
    let (new_kind, old_kind) = (kind(service), kind(old));
    let same = |service: &Value, path: &[&str]| value::same_at(service, old, path);
    if new_kind == "ExternalName" && old_kind != "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if same(service, &["spec", field]) {
                value::remove(service, &["spec", field]);
            }
        }
    } else if new_kind != "ExternalName" && value::is_empty(service, &["spec", "clusterIP"]) {
        for field in ["clusterIP", "clusterIPs"] {
            value::keep(service, old, &["spec", field]);
        }
    } else if same(service, &["spec", "clusterIPs"]) && !same(service, &["spec", "clusterIP"]) {
        let address = value::text(service, &["spec", "clusterIP"]).to_owned();
        value::set(service, &["spec", "clusterIPs"], json!([address]));
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
    ports_on_nodes(transaction, service, old, ports, &mut errors);
    errors.into_result("", "Service", value::text(service, &["metadata", "name"]))
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
    let spec = value::place(service, &["spec"]);
    if value::is_empty(spec, &["clusterIP"]) && !value::is_empty(spec, &["clusterIPs"]) {
        let first = value::texts(spec, &["clusterIPs"]).first().map(|it| (*it).to_owned());
        value::set(spec, &["clusterIP"], first.unwrap_or_default());
    }
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
        "" => {
            let free = (0..ADDRESSES).map(|_| {
                let offset = RESERVED
                    + u32::try_from(transaction.state.rng.below(u64::from(ADDRESSES - RESERVED - 1)))
                        .unwrap_or_default();
                Ipv4Addr::from(FIRST_ADDRESS + offset).to_string()
            });
            let mut free = free.filter(|it| !taken.contains(it));
            let Some(found) = free.next() else { return };
            value::set(spec, &["clusterIP"], found);
        }
        asked if asked == value::text(old, &["spec", "clusterIP"]) => {}
        asked => requested_address(spec, asked, taken, errors),
    }
    let address = value::at(spec, &["clusterIP"]).clone();
    value::default(spec, &["clusterIPs"], json!([address]));
    value::default(spec, &["ipFamilies"], json!(["IPv4"]));
    value::default(spec, &["ipFamilyPolicy"], "SingleStack");
}

fn requested_address(spec: &Value, asked: &str, taken: &BTreeSet<String>, errors: &mut FieldErrors) {
    // Validation reports an invalid address.
    let Ok(IpAddr::V4(address)) = asked.parse::<IpAddr>() else { return };
    let shown = || match value::at(spec, &["clusterIPs"]) {
        Value::Null => json!([asked]),
        given => given.clone(),
    };
    let inside =
        u32::from(address).checked_sub(FIRST_ADDRESS).is_some_and(|it| (1..ADDRESSES - 1).contains(&it));
    if !inside {
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

fn ports_on_nodes(
    transaction: &mut WriteTransaction<'_>,
    service: &mut Value,
    old: &Value,
    mut taken: BTreeSet<i64>,
    errors: &mut FieldErrors,
) {
    let wanted = wants_node_ports(service);
    let before = node_ports(old);
    let own = node_ports(service);
    let ports = value::items_mut(service, &["spec", "ports"]).into_iter().flatten();
    for (index, port) in ports.enumerate() {
        let path = format!("spec.ports[{index}].nodePort");
        match value::integer(port, &["nodePort"]).unwrap_or_default() {
            0 if wanted => {
                let busy: BTreeSet<i64> = taken.union(&own).copied().collect();
                let span = NODE_PORTS.end() - NODE_PORTS.start() + 1;
                let start =
                    i64::try_from(transaction.state.rng.below(span.unsigned_abs())).unwrap_or_default();
                let mut free = (0..span)
                    .map(|it| NODE_PORTS.start() + (start + it) % span)
                    .filter(|it| !busy.contains(it));
                let Some(number) = free.next() else { continue };
                value::set(port, &["nodePort"], number);
                taken.insert(number);
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
    let spec = value::at(service, &["spec"]);
    let headless = value::text(spec, &["clusterIP"]) == "None";
    let kind = value::text(spec, &["type"]);
    if value::is_empty(spec, &["ports"]) && !headless && kind != "ExternalName" {
        errors.required("spec.ports", "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.invalid("spec.clusterIPs[0]", "None", &detail);
        }
        "ExternalName" => external_name(spec, errors),
        _ => {}
    }
    ports(spec, kind, errors);
    meta::label_map(value::at(spec, &["selector"]), "spec.selector", errors);
    one_of(spec, "spec", "sessionAffinity", &["ClientIP", "None"], errors);
    addresses(spec, errors);
    one_of(spec, "spec", "type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], errors);
    policies(spec, kind, errors);
}

fn external_name(spec: &Value, errors: &mut FieldErrors) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !value::is_empty(spec, &[field]) {
            errors.forbidden(join("spec", field), "may not be set for ExternalName services");
        }
    }
    let name = value::text(spec, &["externalName"]);
    match name.strip_suffix('.').unwrap_or(name) {
        "" => errors.required("spec.externalName", ""),
        name => errors.each("spec.externalName", name, names::subdomain(name)),
    }
}

fn ports(spec: &Value, kind: &str, errors: &mut FieldErrors) {
    let all = value::items(spec, &["ports"]);
    let mut taken = BTreeSet::new();
    for (index, port) in all.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        let name = value::text(port, &["name"]);
        if name.is_empty() && all.len() > 1 {
            errors.required(format!("{path}.name"), "");
        } else if !name.is_empty() {
            errors.each(&format!("{path}.name"), name, names::label(name));
            if !taken.insert(name) {
                errors.duplicate(format!("{path}.name"), name);
            }
        }
        let number = value::integer(port, &["port"]).unwrap_or_default();
        pod_spec::port_number(number, &format!("{path}.port"), errors);
        one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"], errors);
        match value::at(port, &["targetPort"]) {
            Value::String(name) => errors.each(&format!("{path}.targetPort"), name, names::port_name(name)),
            number => pod_spec::port_number(
                number.as_i64().unwrap_or_default(),
                &format!("{path}.targetPort"),
                errors,
            ),
        }
    }
    for (index, port) in all.iter().enumerate() {
        let node_port = value::integer(port, &["nodePort"]).unwrap_or_default();
        if kind == "ClusterIP" && node_port != 0 {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.forbidden(format!("spec.ports[{index}].nodePort"), detail);
        }
    }
    twice(all, errors);
}

fn twice(all: &[Value], errors: &mut FieldErrors) {
    let (mut on_nodes, mut inside) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in all.iter().enumerate() {
        let protocol = value::text(port, &["protocol"]);
        let number = |field: &str| value::integer(port, &[field]).unwrap_or_default();
        if number("nodePort") != 0 && !on_nodes.insert((protocol, number("nodePort"))) {
            errors.duplicate(format!("spec.ports[{index}].nodePort"), number("nodePort"));
        }
        if !inside.insert((protocol, number("port"))) {
            let shown = json!({"protocol": protocol, "port": number("port"), "targetPort": 0});
            errors.duplicate(format!("spec.ports[{index}]"), shown);
        }
    }
}

fn addresses(spec: &Value, errors: &mut FieldErrors) {
    if value::text(spec, &["type"]) == "ExternalName" {
        return;
    }
    let (one, all) = (value::text(spec, &["clusterIP"]), value::texts(spec, &["clusterIPs"]));
    if !one.is_empty() && all.first().is_some_and(|it| *it != one) {
        errors.invalid("spec.clusterIPs", json!(all), "first value must match `clusterIP`");
    }
    for (index, family) in value::texts(spec, &["ipFamilies"]).into_iter().enumerate() {
        if !matches!(family, "IPv4" | "IPv6") {
            errors.not_supported(format!("spec.ipFamilies[{index}]"), family, &["IPv4", "IPv6"]);
        }
    }
    for (index, address) in all.iter().enumerate().filter(|it| *it.1 != "None") {
        if address.parse::<IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.invalid(format!("spec.clusterIPs[{index}]"), *address, detail);
        }
    }
}

fn policies(spec: &Value, kind: &str, errors: &mut FieldErrors) {
    if value::has(spec, &["allocateLoadBalancerNodePorts"]) && kind != "LoadBalancer" {
        let detail = "may only be used when `type` is 'LoadBalancer'";
        errors.forbidden("spec.allocateLoadBalancerNodePorts", detail);
    }
    if value::has(spec, &["loadBalancerClass"]) && kind != "LoadBalancer" {
        errors.forbidden("spec.loadBalancerClass", "may only be used when `type` is 'LoadBalancer'");
    }
    for field in ["externalTrafficPolicy", "internalTrafficPolicy"] {
        if !value::text(spec, &[field]).is_empty() {
            one_of(spec, "spec", field, &["Cluster", "Local"], errors);
        }
    }
}

fn validate_update(service: &Value, old: &Value, errors: &mut FieldErrors) {
    let part = |it: &Value, name: &str| value::at(it, &["spec", name]).clone();
    let external = |it: &Value| value::text(it, &["spec", "type"]) == "ExternalName";
    if !external(service) && !external(old) {
        let (new, old) = (part(service, "clusterIPs"), part(old, "clusterIPs"));
        if value::at(&new, &[]).get(0) != value::at(&old, &[]).get(0) && !value::is_empty(&old, &[]) {
            let detail = "may not change once set";
            errors.invalid("spec.clusterIPs[0]", new, detail);
        }
    }
    validate(service, errors);
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
