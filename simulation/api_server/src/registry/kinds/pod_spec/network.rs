//! Validation of names, addresses and namespaces that pods share with their hosts.

use serde_json::Value;

use super::super::super::invalid::FieldErrors;
use super::super::super::{names, value};
use super::super::{addresses, join};

/// Limits of the resolver.
const NAMESERVERS: usize = 3;
const SEARCHES: usize = 32;
const SEARCH_LETTERS: usize = 2048;

/// Fields that only Linux has, of the security contexts of pods and containers.
const LINUX_POD: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
];
const LINUX_CONTAINER: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// Validates the configuration of the resolver.
pub(super) fn dns_config(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let (found, path) = (value::at(spec, &["dnsConfig"]), join(path, "dnsConfig"));
    let servers = value::texts(found, &["nameservers"]);
    if value::text(spec, &["dnsPolicy"]) == "None" {
        if found.is_null() {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(join(&path, "nameservers"), detail);
            return;
        }
    }
    if servers.len() > NAMESERVERS {
        let detail = format!("must not have more than {NAMESERVERS} nameservers");
        errors.invalid(join(&path, "nameservers"), found["nameservers"].clone(), &detail);
    }
    for (index, server) in servers.iter().enumerate() {
        addresses::validate(server, &format!("{path}.nameservers[{index}]"), errors);
    }
    let searches = value::texts(found, &["searches"]);
    let field = join(&path, "searches");
    if searches.len() > SEARCHES {
        let detail = format!("must not have more than {SEARCHES} search paths");
        errors.invalid(field.clone(), found["searches"].clone(), &detail);
    }
    if searches.join(" ").len() > SEARCH_LETTERS {
        let detail = format!(
            "must not have more than {SEARCH_LETTERS} characters (including spaces) in the search list"
        );
        errors.invalid(field.clone(), found["searches"].clone(), &detail);
    }
    for (index, search) in searches.into_iter().enumerate().filter(|it| it.1 != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        errors.each(&format!("{field}[{index}]"), search, names::subdomain_with_underscore(search));
    }
    for (index, option) in value::items(found, &["options"]).iter().enumerate() {
        if value::text(option, &["name"]).is_empty() {
            errors.required(format!("{path}.options[{index}]"), "must not be empty");
        }
    }
}

/// Validates a pod with its own user namespace.
pub(super) fn host_users(spec: &Value, path: &str, errors: &mut FieldErrors) {
    if value::at(spec, &["hostUsers"]) != &Value::Bool(false) {
        return;
    }
    let detail = "when `hostUsers` is false";
    for (flag, field) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if value::flag(spec, &[flag]) {
            errors.forbidden(join(path, field), detail);
        }
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in value::items(spec, &[list]).iter().enumerate() {
            if !value::is_empty(container, &["volumeDevices"]) {
                errors.forbidden(format!("{path}.{list}[{index}].volumeDevices"), detail);
            }
        }
    }
}

/// Validates the host name that replaces all others.
pub(super) fn host_name_override(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let Some(name) = value::at(spec, &["hostnameOverride"]).as_str() else { return };
    let field = join(path, "hostnameOverride");
    for (flag, detail) in [
        ("setHostnameAsFQDN", "may not be specified when setHostnameAsFQDN is true"),
        ("hostNetwork", "may not be specified when hostNetwork is true"),
    ] {
        if value::flag(spec, &[flag]) {
            errors.forbidden(field.clone(), detail);
        }
    }
    if name.len() > 64 {
        errors.too_long(field.clone(), 64);
    }
    errors.each(&field, name, names::subdomain(name));
}

/// Validates entries of the file of hosts.
pub(super) fn host_aliases(spec: &Value, path: &str, errors: &mut FieldErrors) {
    for (index, alias) in value::items(spec, &["hostAliases"]).iter().enumerate() {
        let path = format!("{path}.hostAliases[{index}]");
        addresses::validate(value::text(alias, &["ip"]), &join(&path, "ip"), errors);
        for (index, name) in value::texts(alias, &["hostnames"]).into_iter().enumerate() {
            errors.each(&format!("{path}.hostnames[{index}]"), name, names::subdomain(name));
        }
    }
}

/// Validates the operating system, and the fields that another one has.
pub(super) fn operating_system(spec: &Value, path: &str, errors: &mut FieldErrors) {
    if !value::has(spec, &["os"]) {
        return;
    }
    let field = join(path, "os");
    match value::text(spec, &["os", "name"]) {
        "" => errors.required(join(&field, "name"), ""),
        "linux" => foreign(
            spec,
            path,
            &["windowsOptions"],
            &["windowsOptions"],
            "windows options cannot be set for a linux pod",
            errors,
        ),
        "windows" => {
            for flag in ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"] {
                let found = value::at(spec, &[flag]);
                if !found.is_null() && (flag == "hostUsers" || found == &Value::Bool(true)) {
                    errors.forbidden(join(path, flag), "cannot be set for a windows pod");
                }
            }
            foreign(spec, path, &LINUX_POD, &LINUX_CONTAINER, "cannot be set for a windows pod", errors);
        }
        other => errors.not_supported(field, other, &["linux", "windows"]),
    }
}

fn foreign(
    spec: &Value,
    path: &str,
    of_pod: &[&str],
    of_container: &[&str],
    detail: &str,
    errors: &mut FieldErrors,
) {
    let mut check = |owner: &Value, path: &str, fields: &[&str]| {
        for field in fields.iter().filter(|field| value::has(owner, &["securityContext", field])) {
            errors.forbidden(format!("{path}.securityContext.{field}"), detail);
        }
    };
    check(spec, path, of_pod);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in value::items(spec, &[list]).iter().enumerate() {
            check(container, &format!("{path}.{list}[{index}]"), of_container);
        }
    }
}
