//! Warnings about valid objects, with upstream's texts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use super::super::{names, quantity, value};

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Volume types that do not work, with the reason.
const VOLUMES: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Returns the warning for a workload whose name is not a DNS label.
pub(super) fn of_name(object: &Value, used: &str) -> Vec<String> {
    let reasons = names::label(value::text(object, &["metadata", "name"]));
    if reasons.is_empty() {
        return Vec::new();
    }
    let reasons = reasons.join(" ");
    vec![format!(
        "metadata.name: this is used in {used}, which can result in surprising behavior; a DNS label is recommended: \
         [{reasons}]"
    )]
}

/// Returns the warnings for a new workload, or for a workload whose spec has changed.
pub(super) fn of_workload(object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = match old {
        Some(old) if !has_changed(object, old) => return Vec::new(),
        Some(_) => Vec::new(),
        None => of_name(object, "Pod names and hostnames"),
    };
    warnings.extend(of_template(value::at(object, &["spec", "template"]), "spec.template"));
    warnings
}

/// Returns whether the generation of an object has changed.
pub(super) fn has_changed(object: &Value, old: &Value) -> bool {
    !value::same_at(object, old, &["metadata", "generation"])
}

/// Returns the warnings for a pod template, or for a pod if `path` is empty.
pub(super) fn of_template(template: &Value, path: &str) -> Vec<String> {
    let spec = value::at(template, &["spec"]);
    let path = super::join(path, "spec");
    let mut warnings = Vec::new();
    if !spec.is_object() {
        return warnings;
    }
    for (index, constraint) in value::items(spec, &["topologySpreadConstraints"]).iter().enumerate() {
        if !value::has(constraint, &["labelSelector"]) {
            warnings.push(selects_nothing(&format!("{path}.topologySpreadConstraints[{index}]")));
        }
    }
    volumes(spec, &path, &mut warnings);
    names_of_secrets(spec, &path, &mut warnings);
    for list in LISTS {
        for (index, container) in value::items(spec, &[list]).iter().enumerate() {
            of_container(container, &format!("{path}.{list}[{index}]"), &mut warnings);
        }
    }
    ports(spec, &path, &mut warnings);
    // A pod itself gets no warning about it.
    let is_template = path != "spec";
    if is_template && value::integer(spec, &["terminationGracePeriodSeconds"]).is_some_and(|it| it < 0) {
        let text = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.push(format!("{path}.terminationGracePeriodSeconds: {text}"));
    }
    affinity(spec, &path, &mut warnings);
    for (index, server) in value::texts(spec, &["dnsConfig", "nameservers"]).iter().enumerate() {
        warnings.extend(of_address(server, &format!("{path}.dnsConfig.nameservers[{index}]")));
    }
    for (index, alias) in value::items(spec, &["hostAliases"]).iter().enumerate() {
        let address = value::text(alias, &["ip"]);
        warnings.extend(of_address(address, &format!("{path}.hostAliases[{index}].ip")));
    }
    warnings
}

fn selects_nothing(path: &str) -> String {
    format!("{path}.labelSelector: a null labelSelector results in matching no pod")
}

fn volumes(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    for (index, volume) in value::items(spec, &["volumes"]).iter().enumerate() {
        for (kind, text) in VOLUMES.iter().filter(|it| value::has(volume, &[it.0])) {
            let kind = if *kind == "storageos" { "storageOS" } else { kind };
            warnings.push(format!("{path}.volumes[{index}].{kind}: {text}"));
        }
    }
}

fn names_of_secrets(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    for (list, field, what) in [("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")] {
        let mut taken = BTreeSet::new();
        for (index, item) in value::items(spec, &[list]).iter().enumerate() {
            let text = value::text(item, &[field]);
            if !taken.insert(text) {
                warnings.push(format!("{path}.{list}[{index}].{field}: duplicate {what} {text:?}"));
            }
        }
    }
    for (index, item) in value::items(spec, &["imagePullSecrets"]).iter().enumerate() {
        if value::text(item, &["name"]).is_empty() {
            warnings.push(format!("{path}.imagePullSecrets[{index}].name: invalid empty name \"\""));
        }
    }
}

fn of_container(container: &Value, path: &str, warnings: &mut Vec<String>) {
    for name in ["memory", "ephemeral-storage"] {
        for part in ["limits", "requests"] {
            let amount = value::at(container, &["resources", part, name]);
            warnings.extend(fraction(amount, &format!("{path}.resources.{part}[{name}]")));
        }
    }
    let mut taken = BTreeSet::new();
    for (index, variable) in value::items(container, &["env"]).iter().enumerate() {
        let (name, text) = (value::text(variable, &["name"]), value::text(variable, &["value"]));
        let reference = format!("$({name})");
        let replaces =
            value::has(variable, &["valueFrom"]) || text == reference || !text.contains(&reference);
        if !taken.insert(name) && replaces {
            let why = "hides previous definition of";
            warnings
                .push(format!("{path}.env[{index}]: {why} {name:?}, which may be dropped when using apply"));
        }
    }
}

/// Returns the warning for an amount of bytes that is not a whole number.
pub(super) fn fraction(amount: &Value, path: &str) -> Option<String> {
    let text = amount.as_str()?;
    let is_fraction = quantity::thousandths(text)? % 1000 != 0;
    is_fraction.then(|| format!("{path}: fractional byte value {text:?} is invalid, must be an integer"))
}

fn ports(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    let mut all = Vec::new();
    for list in LISTS {
        for (position, container) in value::items(spec, &[list]).iter().enumerate() {
            for (index, port) in value::items(container, &["ports"]).iter().enumerate() {
                all.push((format!("{path}.{list}[{position}].ports[{index}]"), port));
            }
        }
    }
    let mut known = BTreeMap::<_, Vec<(&String, &Value)>>::new();
    for (field, port) in &all {
        let number = |it: &Value| value::integer(it, &["hostPort"]).unwrap_or_default();
        let address = |it: &Value| value::text(it, &["hostIP"]).to_owned();
        let key = (value::integer(port, &["containerPort"]), value::text(port, &["protocol"]));
        let others = known.entry(key).or_default();
        for (other, found) in others.iter() {
            let same = number(port) == number(found);
            let kind = if same && address(port) == address(found) {
                "duplicate"
            } else if number(port) == 0 || number(found) == 0 {
                "overlapping"
            } else if same && (address(port).is_empty() != address(found).is_empty()) {
                "dangerously ambiguous"
            } else {
                continue;
            };
            warnings.push(format!("{field}: {kind} port definition with {other}"));
        }
        others.push((field, port));
    }
    let mut named = BTreeMap::new();
    for (field, port) in &all {
        let name = value::text(port, &["name"]);
        if name.is_empty() {
            continue;
        }
        match named.get(name) {
            Some(other) => warnings.push(format!(
                "{field}: duplicate port name {name:?} with {other}, services and probes that select ports by name \
                 will use {other}"
            )),
            None => drop(named.insert(name, field)),
        }
    }
}

fn affinity(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in value::items(spec, &["affinity", kind, required]).iter().enumerate() {
            if !value::has(term, &["labelSelector"]) {
                warnings.push(selects_nothing(&format!("{path}.affinity.{kind}.{required}[{index}]")));
            }
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in value::items(spec, &["affinity", kind, preferred]).iter().enumerate() {
            if !value::has(term, &["podAffinityTerm", "labelSelector"]) {
                let path = format!("{path}.affinity.{kind}.{preferred}[{index}].podAffinityTerm");
                warnings.push(selects_nothing(&path));
            }
        }
    }
}

/// Returns the warning for an IPv6 address that is not in canonical form.
pub(super) fn of_address(text: &str, path: &str) -> Option<String> {
    let Ok(IpAddr::V6(address)) = text.parse::<IpAddr>() else { return None };
    let canonical = address.to_string();
    (canonical != text).then(|| {
        format!("{path}: IPv6 address {text:?} should be in RFC 5952 canonical format ({canonical:?})")
    })
}
