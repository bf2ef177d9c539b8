//! Strategies of Endpoints and EndpointSlices.

use std::net::IpAddr;

use serde_json::Value;

use super::super::invalid::FieldErrors;
use super::super::{meta, names, value};
use super::{Kind, MetadataOrder, NAMED, addresses, join, one_of, pod_spec, warnings};

/// Maximum number of endpoints in a slice, and of addresses in an endpoint.
const ENDPOINTS_LIMIT: usize = 1000;
const ADDRESSES_LIMIT: usize = 100;
const PORTS_LIMIT: usize = 20_000;
const TOPOLOGY_LIMIT: usize = 16;
const HINTS_LIMIT: usize = 8;

/// Strategy of Endpoints.
pub(super) static ENDPOINTS: Kind = Kind {
    create_on_update: true,
    defaults: |object| {
        for subset in value::items_mut(object, &["subsets"]).into_iter().flatten() {
            for port in value::items_mut(subset, &["ports"]).into_iter().flatten() {
                value::default(port, &["protocol"], "TCP");
            }
        }
    },
    validate: endpoints,
    warnings: |object, _| endpoints_warnings(object),
    validate_update: |new, old, errors| {
        meta::validate_built_in(new, true, names::subdomain_name, errors);
        // Unchanged subsets were accepted earlier and are not validated again.
        if !value::same_at(new, old, &["subsets"]) {
            endpoints(new, errors);
        }
    },
    ..NAMED
};

/// Strategy of EndpointSlices.
pub(super) static ENDPOINT_SLICES: Kind = Kind {
    generation: &[&["addressType"], &["endpoints"], &["ports"], &["metadata", "labels"]],
    defaults: |object| {
        for port in value::items_mut(object, &["ports"]).into_iter().flatten() {
            value::default(port, &["name"], "");
            value::default(port, &["protocol"], "TCP");
        }
    },
    prepare_create: |_, slice| {
        drop_topology(slice);
        Ok(())
    },
    prepare_update: |_, slice, old| {
        if !value::same_at(slice, old, &["endpoints"]) {
            drop_topology(slice);
        }
        Ok(())
    },
    validate: |object, errors| slice(object, &Value::Null, errors),
    metadata_of_update: MetadataOrder::ByKind,
    warnings: slice_warnings,
    validate_update: |new, old, errors| {
        meta::validate_built_in(new, true, names::subdomain_name, errors);
        slice(new, old, errors);
        errors.immutable("addressType", &new["addressType"], &old["addressType"]);
    },
    ..NAMED
};

/// Removes a field that this version does not write.
fn drop_topology(slice: &mut Value) {
    for endpoint in value::items_mut(slice, &["endpoints"]).into_iter().flatten() {
        value::remove(endpoint, &["deprecatedTopology"]);
    }
}

fn endpoints(object: &Value, errors: &mut FieldErrors) {
    for (index, subset) in value::items(object, &["subsets"]).iter().enumerate() {
        let path = format!("subsets[{index}]");
        if value::is_empty(subset, &["addresses"]) && value::is_empty(subset, &["notReadyAddresses"]) {
            errors.required(path.clone(), "must specify `addresses` or `notReadyAddresses`");
        }
        for list in ["addresses", "notReadyAddresses"] {
            for (index, found) in value::items(subset, &[list]).iter().enumerate() {
                address(found, &format!("{path}.{list}[{index}]"), errors);
            }
        }
        let ports = value::items(subset, &["ports"]);
        for (index, port) in ports.iter().enumerate() {
            let path = format!("{path}.ports[{index}]");
            match value::text(port, &["name"]) {
                "" if ports.len() > 1 => errors.required(join(&path, "name"), ""),
                "" => {}
                name => errors.each(&join(&path, "name"), name, names::label(name)),
            }
            let number = value::integer(port, &["port"]).unwrap_or_default();
            pod_spec::port_number(number, &join(&path, "port"), errors);
            protocols(port, &path, errors);
        }
    }
}

fn protocols(port: &Value, path: &str, errors: &mut FieldErrors) {
    match value::text(port, &["protocol"]) {
        "" => errors.required(join(path, "protocol"), ""),
        _ => one_of(port, path, "protocol", &["SCTP", "TCP", "UDP"], errors),
    }
    if let Some(protocol) = value::at(port, &["appProtocol"]).as_str() {
        errors.each(&join(path, "appProtocol"), protocol, names::qualified(protocol));
    }
}

fn address(found: &Value, path: &str, errors: &mut FieldErrors) {
    let (text, field) = (value::text(found, &["ip"]), join(path, "ip"));
    addresses::validate(text, &field, errors);
    let host = value::text(found, &["hostname"]);
    if !host.is_empty() {
        errors.each(&join(path, "hostname"), host, names::label(host));
    }
    node_name(found, path, errors);
    addresses::validate_endpoint(text, &field, errors);
}

fn node_name(found: &Value, path: &str, errors: &mut FieldErrors) {
    if let Some(node) = value::at(found, &["nodeName"]).as_str() {
        errors.each(&join(path, "nodeName"), node, names::subdomain(node));
    }
}

fn endpoints_warnings(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (index, subset) in value::items(object, &["subsets"]).iter().enumerate() {
        for list in ["addresses", "notReadyAddresses"] {
            for (position, address) in value::items(subset, &[list]).iter().enumerate() {
                let path = format!("subsets[{index}].{list}[{position}].ip");
                found.extend(warnings::of_address(value::text(address, &["ip"]), &path));
            }
        }
    }
    found
}

fn slice_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut found = Vec::new();
    if old.is_none() && value::text(object, &["addressType"]) == "FQDN" {
        found.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    for (index, endpoint) in value::items(object, &["endpoints"]).iter().enumerate() {
        for (position, address) in value::texts(endpoint, &["addresses"]).iter().enumerate() {
            found.extend(warnings::of_address(address, &format!("endpoints[{index}].addresses[{position}]")));
        }
    }
    found
}

/// Validates a slice, and tolerates unchanged endpoints.
fn slice(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let kind = value::text(object, &["addressType"]);
    match kind {
        "" => errors.required("addressType", ""),
        "IPv4" | "IPv6" | "FQDN" => {}
        other => errors.not_supported("addressType", other, &["FQDN", "IPv4", "IPv6"]),
    }
    slice_ports(object, errors);
    if old.is_null() || !value::same_at(object, old, &["endpoints"]) {
        slice_endpoints(object, kind, errors);
    }
}

fn slice_endpoints(object: &Value, kind: &str, errors: &mut FieldErrors) {
    let endpoints = value::items(object, &["endpoints"]);
    if endpoints.len() > ENDPOINTS_LIMIT {
        errors.too_many("endpoints", endpoints.len(), ENDPOINTS_LIMIT);
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let own = format!("endpoints[{index}]");
        let path = join(&own, "addresses");
        let all = value::texts(endpoint, &["addresses"]);
        if all.is_empty() {
            errors.required(path.clone(), "must contain at least 1 address");
        } else if all.len() > ADDRESSES_LIMIT {
            errors.too_many(path.clone(), all.len(), ADDRESSES_LIMIT);
        }
        for (index, text) in all.into_iter().enumerate() {
            slice_address(kind, text, &path, index, errors);
        }
        node_name(endpoint, &own, errors);
        let topology = join(&own, "deprecatedTopology");
        let labels = value::at(endpoint, &["deprecatedTopology"]);
        let count = value::entries(labels, &[]).count();
        if count > TOPOLOGY_LIMIT {
            errors.too_many(topology.clone(), count, TOPOLOGY_LIMIT);
        }
        meta::label_map(labels, &topology, errors);
        if let Some(host) = value::at(endpoint, &["hostname"]).as_str() {
            errors.each(&join(&own, "hostname"), host, names::label(host));
        }
        hints(endpoint, &join(&own, "hints"), errors);
    }
}

fn hints(endpoint: &Value, path: &str, errors: &mut FieldErrors) {
    for (list, rule) in
        [("forZones", names::label_value as fn(&str) -> Vec<String>), ("forNodes", names::subdomain)]
    {
        let (path, all) = (join(path, list), value::items(endpoint, &["hints", list]));
        if all.len() > HINTS_LIMIT {
            errors.too_many(path, all.len(), HINTS_LIMIT);
            return;
        }
        let mut taken = std::collections::BTreeSet::new();
        for (index, hint) in all.iter().enumerate() {
            let (field, name) = (format!("{path}[{index}].name"), value::text(hint, &["name"]));
            if !taken.insert(name) {
                errors.duplicate(field.clone(), name);
            }
            errors.each(&field, name, rule(name));
        }
    }
}

fn slice_address(kind: &str, text: &str, path: &str, index: usize, errors: &mut FieldErrors) {
    let (field, before) = (format!("{path}[{index}]"), errors.0.len());
    match kind {
        "IPv4" => addresses::validate(text, &field, errors),
        "IPv6" => addresses::validate_canonical(text, &field, errors),
        "FQDN" => {
            domain(text, &field, errors);
            return;
        }
        _ => return,
    }
    if errors.0.len() > before {
        return;
    }
    if text.parse::<IpAddr>().is_ok_and(|it| it.is_ipv4()) != (kind == "IPv4") {
        errors.invalid(path, text, &format!("must be an {kind} address"));
    }
    addresses::validate_endpoint(text, &field, errors);
}

fn domain(text: &str, field: &str, errors: &mut FieldErrors) {
    if text.is_empty() {
        errors.required(field, "");
        return;
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    let reasons = names::subdomain(text);
    if !reasons.is_empty() {
        errors.invalid(field, text, &reasons.join(","));
    } else if !text.contains('.') {
        errors.invalid(field, text, "should be a domain with at least two segments separated by dots");
    }
}

fn slice_ports(object: &Value, errors: &mut FieldErrors) {
    let ports = value::items(object, &["ports"]);
    if ports.len() > PORTS_LIMIT {
        errors.too_many("ports", ports.len(), PORTS_LIMIT);
        return;
    }
    let mut taken = std::collections::BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = format!("ports[{index}]");
        let name = value::text(port, &["name"]);
        if !name.is_empty() {
            errors.each(&join(&path, "name"), name, names::label(name));
        }
        if !taken.insert(name) {
            errors.duplicate(join(&path, "name"), name);
        }
        match value::at(port, &["protocol"]).as_str() {
            None => errors.required(join(&path, "protocol"), ""),
            Some(_) => one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"], errors),
        }
        if let Some(protocol) = value::at(port, &["appProtocol"]).as_str() {
            errors.each(&join(&path, "appProtocol"), protocol, names::qualified(protocol));
        }
    }
}
