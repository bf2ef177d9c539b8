//! Validation of Services, and warnings about them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::super::super::internal;
use super::super::super::invalid::FieldErrors;
use super::super::super::{meta, names, value};
use super::super::{addresses, join, one_of, pod_spec, warnings};

/// Maximum timeout of client affinity: one day.
const AFFINITY_LIMIT: i64 = 86_400;
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];

/// Validates a Service. `old` is null for a new one.
pub(super) fn validate(service: &Value, old: &Value, errors: &mut FieldErrors) {
    let spec = value::at(service, &["spec"]);
    let kind = value::text(spec, &["type"]);
    if value::is_empty(spec, &["ports"]) && !is_headless(service) && kind != "ExternalName" {
        errors.required("spec.ports", "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(service) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.invalid("spec.clusterIPs[0]", "None", &detail);
        }
        "ExternalName" => external_name(spec, errors),
        _ => {}
    }
    ports(spec, errors);
    meta::label_map(value::at(spec, &["selector"]), "spec.selector", errors);
    affinity(spec, errors);
    cluster_addresses(service, old, errors);
    let known = value::texts(old, &["spec", "externalIPs"]);
    for (index, address) in value::texts(spec, &["externalIPs"]).into_iter().enumerate() {
        let field = format!("spec.externalIPs[{index}]");
        let before = errors.0.len();
        if !known.contains(&address) {
            addresses::validate(address, &field, errors);
        }
        if errors.0.len() == before {
            addresses::validate_endpoint(address, &field, errors);
        }
    }
    match kind {
        "" => errors.required("spec.type", ""),
        _ => one_of(spec, "spec", "type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], errors),
    }
    numbers(spec, kind, errors);
    source_ranges(spec, old, errors);
    balancer(spec, errors);
    traffic(spec, errors);
}

fn is_headless(service: &Value) -> bool {
    value::texts(service, &["spec", "clusterIPs"]) == ["None"]
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

fn ports(spec: &Value, errors: &mut FieldErrors) {
    let all = value::items(spec, &["ports"]);
    let mut taken = BTreeSet::new();
    for (index, port) in all.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        let name = value::text(port, &["name"]);
        if name.is_empty() && all.len() > 1 {
            errors.required(join(&path, "name"), "");
        } else if !name.is_empty() {
            errors.each(&join(&path, "name"), name, names::label(name));
            if !taken.insert(name) {
                errors.duplicate(join(&path, "name"), name);
            }
        }
        let number = value::integer(port, &["port"]).unwrap_or_default();
        pod_spec::port_number(number, &join(&path, "port"), errors);
        match value::text(port, &["protocol"]) {
            "" => errors.required(join(&path, "protocol"), ""),
            _ => one_of(port, &path, "protocol", &PROTOCOLS, errors),
        }
        pod_spec::handlers::port(value::at(port, &["targetPort"]), &join(&path, "targetPort"), errors);
        if let Some(protocol) = value::at(port, &["appProtocol"]).as_str() {
            errors.each(&join(&path, "appProtocol"), protocol, names::qualified(protocol));
        }
    }
}

fn affinity(spec: &Value, errors: &mut FieldErrors) {
    match value::text(spec, &["sessionAffinity"]) {
        "" => errors.required("spec.sessionAffinity", ""),
        _ => one_of(spec, "spec", "sessionAffinity", &["ClientIP", "None"], errors),
    }
    let (field, config) = ("spec.sessionAffinityConfig", value::at(spec, &["sessionAffinityConfig"]));
    match value::text(spec, &["sessionAffinity"]) {
        "ClientIP" => {
            let detail = "when session affinity type is ClientIP";
            if config.is_null() {
                errors.required(field, detail);
            } else if !value::has(config, &["clientIP"]) {
                errors.required(join(field, "clientIP"), detail);
            } else {
                let path = join(field, "clientIP.timeoutSeconds");
                match value::integer(config, &["clientIP", "timeoutSeconds"]) {
                    None => errors.required(path, detail),
                    Some(seconds) if !(1..=AFFINITY_LIMIT).contains(&seconds) => {
                        let detail = format!("must be greater than 0 and less than {AFFINITY_LIMIT}");
                        errors.invalid(path, seconds, &detail);
                    }
                    Some(_) => {}
                }
            }
        }
        "None" if !config.is_null() => {
            errors.forbidden(field, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

/// Validates the cluster IPs and the IP families. Upstream validates them when it allocates addresses, too.
pub(super) fn cluster_addresses(service: &Value, old: &Value, errors: &mut FieldErrors) {
    let spec = value::at(service, &["spec"]);
    if value::text(spec, &["type"]) == "ExternalName" {
        return;
    }
    let (one, all) = (value::text(spec, &["clusterIP"]), value::texts(spec, &["clusterIPs"]));
    let field = "spec.clusterIPs";
    match (one, all.first()) {
        ("", None) => {}
        ("", Some(_)) => errors.invalid(field, json!(all), "must be empty when `clusterIP` is not specified"),
        (_, None) => errors.required(field, ""),
        (one, Some(first)) if one != *first => {
            errors.invalid(field, json!(all), "first value must match `clusterIP`");
        }
        _ => {}
    }
    let families = value::texts(spec, &["ipFamilies"]);
    for (index, family) in families.iter().enumerate() {
        let field = format!("spec.ipFamilies[{index}]");
        if !matches!(*family, "IPv4" | "IPv6") {
            errors.not_supported(field.clone(), *family, &["IPv4", "IPv6"]);
        }
        if families.iter().take(index).any(|it| it == family) {
            errors.duplicate(field, *family);
        }
    }
    if value::has(spec, &["ipFamilyPolicy"]) {
        one_of(
            spec,
            "spec",
            "ipFamilyPolicy",
            &["PreferDualStack", "RequireDualStack", "SingleStack"],
            errors,
        );
    }
    let known = value::texts(old, &["spec", "clusterIPs"]);
    let mut is_valid = true;
    for (index, address) in all.iter().enumerate() {
        if index == 0 && *address == "None" {
            if all.len() > 1 {
                is_valid = false;
                errors.invalid(field, json!(all), "'None' must be the first and only value");
            }
            continue;
        }
        let before = errors.0.len();
        if !known.contains(address) {
            addresses::validate(address, &format!("{field}[{index}]"), errors);
        }
        is_valid = is_valid && errors.0.len() == before;
    }
    if all.len() > 2 {
        errors.invalid(field, json!(all), "may only hold up to 2 values");
    }
    if is_valid {
        families_of(&all, &families, is_headless(service), errors);
    }
}

/// Rejects families other than that of the cluster.
pub(super) fn single_stack(spec: &Value, errors: &mut FieldErrors) {
    let (addresses, families) = (value::texts(spec, &["clusterIPs"]), value::texts(spec, &["ipFamilies"]));
    for (index, address) in addresses.iter().enumerate().skip(families.len()) {
        if address.contains(':') {
            let field = format!("spec.clusterIPs[{index}]");
            errors.invalid(field, json!(addresses), "IPv6 is not configured on this cluster");
        }
    }
    if !errors.0.is_empty() || addresses == ["None"] && value::is_empty(spec, &["selector"]) {
        return;
    }
    if value::text(spec, &["ipFamilyPolicy"]) == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        errors.invalid("spec.ipFamilyPolicy", "RequireDualStack", detail);
    }
    for (index, family) in families.iter().enumerate().filter(|(_, family)| **family != "IPv4") {
        errors.invalid(format!("spec.ipFamilies[{index}]"), *family, "not configured on this cluster");
    }
}

fn families_of(all: &[&str], families: &[&str], headless: bool, errors: &mut FieldErrors) {
    let field = "spec.clusterIPs";
    let is_v6 = |text: &&str| text.parse::<IpAddr>().is_ok_and(|it| it.is_ipv6());
    if all.len() > 1 {
        let sixes = all.iter().filter(|it| is_v6(it)).count();
        if sixes == 0 || sixes == all.len() {
            errors.invalid(field, json!(all), "may specify no more than one IP for each IP family");
        }
    }
    for (index, (address, family)) in all.iter().zip(families).enumerate().filter(|_| !headless) {
        let expected = match (*family, is_v6(address)) {
            ("IPv4", true) => "an IPv4",
            ("IPv6", false) => "an IPv6",
            _ => continue,
        };
        let detail = format!("expected {expected} value as indicated by `ipFamilies[{index}]`");
        errors.invalid(format!("{field}[{index}]"), *address, &detail);
    }
}

fn numbers(spec: &Value, kind: &str, errors: &mut FieldErrors) {
    let all = value::items(spec, &["ports"]);
    let number = |port: &Value, field: &str| value::integer(port, &[field]).unwrap_or_default();
    for (index, port) in all.iter().enumerate() {
        if kind == "ClusterIP" && number(port, "nodePort") != 0 {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.forbidden(format!("spec.ports[{index}].nodePort"), detail);
        }
    }
    let (mut on_nodes, mut inside) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in all.iter().enumerate() {
        let protocol = value::text(port, &["protocol"]);
        if number(port, "nodePort") != 0 && !on_nodes.insert((protocol, number(port, "nodePort"))) {
            errors.duplicate(format!("spec.ports[{index}].nodePort"), number(port, "nodePort"));
        }
    }
    for (index, port) in all.iter().enumerate() {
        let protocol = value::text(port, &["protocol"]);
        if !inside.insert((protocol, number(port, "port"))) {
            let key = json!({"protocol": protocol, "port": number(port, "port")});
            errors.duplicate_json(format!("spec.ports[{index}]"), &internal::text("core.ServicePort", &key));
        }
    }
}

fn source_ranges(spec: &Value, old: &Value, errors: &mut FieldErrors) {
    let ranges = value::texts(spec, &["loadBalancerSourceRanges"]);
    let field = "spec.LoadBalancerSourceRanges";
    if !ranges.is_empty() && value::text(spec, &["type"]) != "LoadBalancer" {
        errors.forbidden(field, "may only be used when `type` is 'LoadBalancer'");
    }
    let known = value::texts(old, &["spec", "loadBalancerSourceRanges"]);
    for (index, range) in ranges.into_iter().map(str::trim).enumerate() {
        if !known.iter().any(|it| it.trim() == range) {
            addresses::validate_range(range, &format!("{field}[{index}]"), errors);
        }
    }
}

fn balancer(spec: &Value, errors: &mut FieldErrors) {
    let balances = value::text(spec, &["type"]) == "LoadBalancer";
    let detail = "may only be used when `type` is 'LoadBalancer'";
    match (value::has(spec, &["allocateLoadBalancerNodePorts"]), balances) {
        (true, false) => errors.forbidden("spec.allocateLoadBalancerNodePorts", detail),
        (false, true) => errors.required("allocateLoadBalancerNodePorts", ""),
        _ => {}
    }
    class(spec, errors);
}

fn class(spec: &Value, errors: &mut FieldErrors) {
    let field = "spec.loadBalancerClass";
    match value::at(spec, &["loadBalancerClass"]).as_str() {
        None => {}
        Some(class) if value::text(spec, &["type"]) == "LoadBalancer" => {
            errors.each(field, class, names::qualified(class));
        }
        Some(_) => errors.forbidden(field, "may only be used when `type` is 'LoadBalancer'"),
    }
}

/// Returns whether clients outside of the cluster can reach the Service.
fn is_external(spec: &Value) -> bool {
    match value::text(spec, &["type"]) {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !value::is_empty(spec, &["externalIPs"]),
        _ => false,
    }
}

/// Returns whether load balancers check the health of the nodes.
pub(super) fn is_checked(spec: &Value) -> bool {
    value::text(spec, &["type"]) == "LoadBalancer" && value::text(spec, &["externalTrafficPolicy"]) == "Local"
}

fn traffic(spec: &Value, errors: &mut FieldErrors) {
    let field = "spec.externalTrafficPolicy";
    match (is_external(spec), value::text(spec, &["externalTrafficPolicy"])) {
        (false, "") => {}
        (false, policy) => {
            errors.invalid(field, policy, "may only be set for externally-accessible services");
        }
        (true, "") => errors.required(field, ""),
        (true, _) => one_of(spec, "spec", "externalTrafficPolicy", &["Cluster", "Local"], errors),
    }
    let (field, number) =
        ("spec.healthCheckNodePort", value::integer(spec, &["healthCheckNodePort"]).unwrap_or_default());
    match (is_checked(spec), number) {
        (false, 0) => {}
        (false, number) => {
            let detail =
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(field, number, detail);
        }
        (true, 0) => errors.required(field, ""),
        (true, number) => pod_spec::port_number(number, field, errors),
    }
    if value::has(spec, &["internalTrafficPolicy"]) {
        one_of(spec, "spec", "internalTrafficPolicy", &["Cluster", "Local"], errors);
    } else if matches!(value::text(spec, &["type"]), "NodePort" | "LoadBalancer" | "ClusterIP") {
        errors.required("spec.internalTrafficPolicy", "");
    }
    if value::has(spec, &["trafficDistribution"]) {
        one_of(spec, "spec", "trafficDistribution", &DISTRIBUTIONS, errors);
    }
}

/// Validates an update.
pub(super) fn validate_update(service: &Value, old: &Value, errors: &mut FieldErrors) {
    let external = |it: &Value| value::text(it, &["spec", "type"]) == "ExternalName";
    if !external(service) && !external(old) {
        keeps_addresses(service, old, errors);
        keeps_families(service, old, errors);
    }
    let (new_spec, old_spec) = (value::at(service, &["spec"]), value::at(old, &["spec"]));
    let balances = |it: &Value| value::text(it, &["type"]) == "LoadBalancer";
    if balances(new_spec) && balances(old_spec) && !value::same_at(new_spec, old_spec, &["loadBalancerClass"])
    {
        let class = new_spec.get("loadBalancerClass").cloned().unwrap_or_default();
        errors.invalid("spec.loadBalancerClass", class, "may not change once set");
    }
    class(new_spec, errors);
    if is_checked(new_spec)
        && is_checked(old_spec)
        && !value::same_at(new_spec, old_spec, &["healthCheckNodePort"])
    {
        errors.forbidden("spec.healthCheckNodePort", "field is immutable");
    }
    validate(service, old, errors);
}

fn keeps_addresses(service: &Value, old: &Value, errors: &mut FieldErrors) {
    let part = |it: &Value| value::at(it, &["spec", "clusterIPs"]).clone();
    let (shown, new, before) = (
        part(service),
        value::texts(service, &["spec", "clusterIPs"]),
        value::texts(old, &["spec", "clusterIPs"]),
    );
    if is_headless(service) && is_headless(old) {
        return;
    }
    let changed = "may not change once set";
    if new.len() == before.len() {
        for index in (0..new.len()).filter(|index| new[*index] != before[*index]) {
            errors.invalid(format!("spec.clusterIPs[{index}]"), shown.clone(), changed);
        }
        return;
    }
    if new.is_empty() {
        errors.invalid("spec.clusterIPs[0]", shown.clone(), "primary clusterIP can not be unset");
    } else if !before.is_empty() && new[0] != before[0] {
        errors.invalid("spec.clusterIPs[0]", shown, changed);
    }
    let policy = value::at(service, &["spec", "ipFamilyPolicy"]);
    if before.len() > new.len() && new.len() == 1 && policy != "SingleStack" {
        let detail = "must be set to 'SingleStack' when releasing the secondary clusterIP";
        errors.invalid("spec.ipFamilyPolicy", policy.clone(), detail);
    }
}

fn keeps_families(service: &Value, old: &Value, errors: &mut FieldErrors) {
    if is_headless(service) || is_headless(old) {
        return;
    }
    let (new, before) =
        (value::texts(service, &["spec", "ipFamilies"]), value::texts(old, &["spec", "ipFamilies"]));
    let (field, changed) = ("spec.ipFamilies[0]", "may not change once set");
    let addresses = || value::at(service, &["spec", "clusterIPs"]).clone();
    if new.len() == before.len() {
        for _ in (0..new.len()).filter(|index| new[*index] != before[*index]) {
            errors.invalid(field, json!(new), changed);
        }
        return;
    }
    if before.len() > new.len() && value::is_empty(service, &["spec", "clusterIPs"]) {
        errors.invalid(field, json!(new), "primary ipFamily can not be unset");
    }
    if !new.is_empty() && !before.is_empty() && new[0] != before[0] {
        errors.invalid(field, addresses(), changed);
    }
    let policy = value::at(service, &["spec", "ipFamilyPolicy"]);
    if before.len() > new.len() && new.len() == 1 && policy != "SingleStack" {
        let detail = "must be set to 'SingleStack' when releasing the secondary ipFamily";
        errors.invalid("spec.ipFamilyPolicy", policy.clone(), detail);
    }
}

/// Validates a status update.
pub(super) fn validate_status(service: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = "status.loadBalancer.ingress";
    let ingress = value::items(service, &["status", "loadBalancer", "ingress"]);
    if value::text(service, &["spec", "type"]) != "LoadBalancer" && !ingress.is_empty() {
        errors.forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'");
        return;
    }
    let known: Vec<_> = value::items(old, &["status", "loadBalancer", "ingress"])
        .iter()
        .map(|it| value::text(it, &["ip"]))
        .collect();
    for (index, item) in ingress.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let (address, host) = (value::text(item, &["ip"]), value::text(item, &["hostname"]));
        if !address.is_empty() && !known.contains(&address) {
            addresses::validate(address, &join(&path, "ip"), errors);
        }
        match (value::has(item, &["ipMode"]), address) {
            (false, "") => {}
            (false, _) => errors.required(join(&path, "ipMode"), "must be specified when `ip` is set"),
            (true, "") => {
                errors.forbidden(join(&path, "ipMode"), "may not be specified when `ip` is not set");
            }
            (true, _) => one_of(item, &path, "ipMode", &["Proxy", "VIP"], errors),
        }
        if !host.is_empty() {
            errors.each(&join(&path, "hostname"), host, names::subdomain(host));
            if host.parse::<IpAddr>().is_ok() {
                errors.invalid(join(&path, "hostname"), host, "must be a DNS name, not an IP address");
            }
        }
    }
}

/// Returns the warnings for a Service.
pub(super) fn warnings(service: &Value, _: Option<&Value>) -> Vec<String> {
    let spec = value::at(service, &["spec"]);
    let kind = value::text(spec, &["type"]);
    let has = |field: &str| !value::is_empty(spec, &[field]);
    let headless = kind == "ClusterIP" && value::text(spec, &["clusterIP"]) == "None";
    let mut found = Vec::new();
    let hints = "service.kubernetes.io/topology-aware-hints";
    if value::has(service, &["metadata", "annotations", hints]) {
        let mode = "service.kubernetes.io/topology-mode";
        found.push(format!("annotation {hints} is deprecated, please use {mode} instead"));
    }
    for (index, address) in value::texts(spec, &["clusterIPs"]).iter().enumerate() {
        found.extend(warnings::of_address(address, &format!("spec.clusterIPs[{index}]")));
    }
    if headless {
        for (field, name) in [("loadBalancerIP", "loadBalancerIP"), ("externalIPs", "externalIPs")] {
            if has(field) {
                found.push(format!("spec.{name} is ignored for headless services"));
            }
        }
        if value::text(spec, &["sessionAffinity"]) != "None" {
            found.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    for (index, address) in value::texts(spec, &["externalIPs"]).iter().enumerate() {
        found.extend(warnings::of_address(address, &format!("spec.externalIPs[{index}]")));
    }
    if has("externalIPs") && !headless && kind != "ExternalName" {
        found.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned(),
        );
    }
    if has("externalIPs") && kind == "ExternalName" {
        found.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if has("externalName") && kind != "ExternalName" {
        found.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if value::text(spec, &["trafficDistribution"]) == "PreferClose" {
        let text = "\"PreferClose\" is deprecated; use \"PreferSameZone\"";
        found.push(format!("spec.trafficDistribution: {text}"));
    }
    found
}
