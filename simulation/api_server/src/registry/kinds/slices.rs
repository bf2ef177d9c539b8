//! Strategies of Endpoints and EndpointSlices.

use std::net::IpAddr;

use serde_json::Value;

use super::super::invalid::FieldErrors;
use super::super::{names, value};
use super::{Kind, NAMED, one_of, pod_spec};

/// Maximum number of endpoints in a slice, and of addresses in an endpoint.
const ENDPOINTS_LIMIT: usize = 1000;
const ADDRESSES_LIMIT: usize = 100;
const PORTS_LIMIT: usize = 20_000;

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
    validate_update: |new, old, errors| {
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
    validate: slice,
    validate_update: |new, old, errors| {
        slice(new, errors);
        errors.immutable("addressType", &new["addressType"], &old["addressType"]);
    },
    ..NAMED
};

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
                "" if ports.len() > 1 => errors.required(format!("{path}.name"), ""),
                "" => {}
                name => errors.each(&format!("{path}.name"), name, names::label(name)),
            }
            let number = value::integer(port, &["port"]).unwrap_or_default();
            pod_spec::port_number(number, &format!("{path}.port"), errors);
            one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"], errors);
        }
    }
}

fn address(found: &Value, path: &str, errors: &mut FieldErrors) {
    let text = value::text(found, &["ip"]);
    let field = format!("{path}.ip");
    let Ok(address) = text.parse::<IpAddr>() else {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.invalid(field, text, detail);
        return;
    };
    if address.is_unspecified() {
        errors.invalid(field, text, "may not be unspecified (0.0.0.0 or ::)");
    } else if address.is_loopback() {
        errors.invalid(field, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    } else if address.is_multicast() {
        errors.invalid(field, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

fn slice(object: &Value, errors: &mut FieldErrors) {
    let kind = value::text(object, &["addressType"]);
    match kind {
        "" => errors.required("addressType", ""),
        "IPv4" | "IPv6" | "FQDN" => {}
        other => errors.not_supported("addressType", other, &["FQDN", "IPv4", "IPv6"]),
    }
    let endpoints = value::items(object, &["endpoints"]);
    if endpoints.len() > ENDPOINTS_LIMIT {
        errors.too_many("endpoints", endpoints.len(), ENDPOINTS_LIMIT);
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let path = format!("endpoints[{index}].addresses");
        let addresses = value::texts(endpoint, &["addresses"]);
        if addresses.is_empty() {
            errors.required(path.clone(), "must contain at least 1 address");
        } else if addresses.len() > ADDRESSES_LIMIT {
            errors.too_many(path.clone(), addresses.len(), ADDRESSES_LIMIT);
        }
        for (index, text) in addresses.into_iter().enumerate() {
            slice_address(kind, text, &format!("{path}[{index}]"), errors);
        }
    }
    slice_ports(object, errors);
}

fn slice_address(kind: &str, text: &str, path: &str, errors: &mut FieldErrors) {
    let parsed = text.parse::<IpAddr>();
    match (kind, parsed) {
        ("IPv4" | "IPv6", Err(_)) => {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.invalid(path, text, detail);
        }
        ("IPv4", Ok(IpAddr::V6(_))) => {
            let parent = path.rsplit_once('[').map_or(path, |it| it.0);
            errors.invalid(parent, text, "must be an IPv4 address");
        }
        ("IPv6", Ok(IpAddr::V4(_))) => {
            let parent = path.rsplit_once('[').map_or(path, |it| it.0);
            errors.invalid(parent, text, "must be an IPv6 address");
        }
        _ => {}
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
            errors.each(&format!("{path}.name"), name, names::label(name));
        }
        if !taken.insert(name) {
            errors.duplicate(format!("{path}.name"), name);
        }
        one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"], errors);
    }
}
