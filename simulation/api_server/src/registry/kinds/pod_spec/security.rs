//! Validation of security contexts.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::super::internal;
use super::super::super::invalid::FieldErrors;
use super::super::super::value;
use super::super::{join, one_of};
use super::{Context, paths, windows};

/// Validates the security context of a pod.
pub(super) fn of_pod(context: &Context<'_>, errors: &mut FieldErrors) {
    let (spec, path) = (context.spec, join(context.path, "securityContext"));
    let found = value::at(spec, &["securityContext"]);
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        identifier(value::integer(found, &[field]), &join(&path, field), errors);
    }
    for (index, group) in value::items(found, &["supplementalGroups"]).iter().enumerate() {
        identifier(group.as_i64(), &format!("{path}.supplementalGroups[{index}]"), errors);
    }
    if value::flag(spec, &["shareProcessNamespace"]) && value::flag(spec, &["hostPID"]) {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(join(&path, "shareProcessNamespace"), true, detail);
    }
    sysctls(spec, found, &join(&path, "sysctls"), errors);
    if value::has(found, &["fsGroupChangePolicy"]) {
        one_of(found, &path, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], errors);
    }
    seccomp(found, &path, errors);
    app_armor(found, &path, errors);
    for (field, known) in [
        ("supplementalGroupsPolicy", ["Merge", "Strict"]),
        ("seLinuxChangePolicy", ["MountOption", "Recursive"]),
    ] {
        if value::has(found, &[field]) {
            one_of(found, &path, field, &known, errors);
        }
    }
    windows::options(found, &path, errors);
}

/// Validates the security context of a container.
pub(super) fn of_container(context: &Context<'_>, container: &Value, path: &str, errors: &mut FieldErrors) {
    let found = value::at(container, &["securityContext"]);
    if found.is_null() {
        return;
    }
    let path = join(path, "securityContext");
    for field in ["runAsUser", "runAsGroup"] {
        identifier(value::integer(found, &[field]), &join(&path, field), errors);
    }
    if value::has(found, &["procMount"]) {
        one_of(found, &path, "procMount", &["Default", "Unmasked"], errors);
        let host_users = value::at(context.spec, &["hostUsers"]).as_bool().unwrap_or(true);
        if host_users && value::text(found, &["procMount"]) == "Unmasked" {
            let detail = "`hostUsers` must be false to use `Unmasked`";
            errors.invalid(join(&path, "procMount"), "Unmasked", detail);
        }
    }
    seccomp(found, &path, errors);
    if value::at(found, &["allowPrivilegeEscalation"]) == &Value::Bool(false) {
        if value::flag(found, &["privileged"]) {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid_json(path.clone(), &internal::text("core.SecurityContext", found), detail);
        }
        for capability in value::texts(found, &["capabilities", "add"]) {
            if capability == "CAP_SYS_ADMIN" {
                let detail =
                    "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
                errors.invalid_json(path.clone(), &internal::text("core.SecurityContext", found), detail);
            }
        }
    }
    windows::options(found, &path, errors);
    app_armor(found, &path, errors);
}

fn identifier(number: Option<i64>, field: &str, errors: &mut FieldErrors) {
    if let Some(number) = number.filter(|it| !(0..=i64::from(i32::MAX)).contains(it)) {
        errors.invalid(field, number, "must be between 0 and 2147483647, inclusive");
    }
}

fn is_sysctl(name: &str) -> bool {
    let letter = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            let bytes = part.as_bytes();
            bytes.first().is_some_and(|it| letter(*it))
                && bytes.last().is_some_and(|it| letter(*it))
                && bytes.iter().all(|it| letter(*it) || matches!(it, b'-' | b'_'))
        })
}

/// Returns whether a sysctl belongs to a namespace that the pod shares with the host.
fn shared_with_host(spec: &Value, name: &str) -> Option<&'static str> {
    let name = name.replace('/', ".");
    let messages = ["kernel.msg", "kernel.shm", "fs.mqueue."].iter().any(|it| name.starts_with(it));
    if value::flag(spec, &["hostNetwork"]) && name.starts_with("net.") {
        Some("hostNetwork")
    } else if value::flag(spec, &["hostIPC"]) && (messages || name == "kernel.sem") {
        Some("hostIPC")
    } else {
        None
    }
}

fn sysctls(spec: &Value, found: &Value, path: &str, errors: &mut FieldErrors) {
    let mut taken = BTreeSet::new();
    for (index, sysctl) in value::items(found, &["sysctls"]).iter().enumerate() {
        let field = format!("{path}[{index}].name");
        let name = value::text(sysctl, &["name"]);
        if name.is_empty() {
            errors.required(field.clone(), "");
        } else if !is_sysctl(name) {
            let detail = "must have at most 253 characters and match regex \
                          ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.invalid(field.clone(), name, detail);
        } else if taken.contains(name) {
            errors.duplicate(field.clone(), name);
        }
        if let Some(shared) = shared_with_host(spec, name) {
            errors.invalid(field, name, &format!("may not be specified when '{shared}' is true"));
        }
        taken.insert(name);
    }
}

fn seccomp(found: &Value, path: &str, errors: &mut FieldErrors) {
    let profile = value::at(found, &["seccompProfile"]);
    if profile.is_null() {
        return;
    }
    let path = join(path, "seccompProfile");
    let kind = value::text(profile, &["type"]);
    match kind {
        "" => errors.required(join(&path, "type"), "type is required when seccompProfile is set"),
        _ => one_of(profile, &path, "type", &["Localhost", "RuntimeDefault", "Unconfined"], errors),
    }
    let field = join(&path, "localhostProfile");
    match (kind, value::at(profile, &["localhostProfile"]).as_str()) {
        ("Localhost", None) => errors.required(field, "must be set when seccomp type is Localhost"),
        ("Localhost", Some(text)) => paths::descending(text, &field, errors),
        (_, Some(_)) => {
            let shown = internal::text("core.SeccompProfile", profile);
            errors.invalid_json(field, &shown, "can only be set when seccomp type is Localhost");
        }
        _ => {}
    }
}

fn app_armor(found: &Value, path: &str, errors: &mut FieldErrors) {
    let profile = value::at(found, &["appArmorProfile"]);
    if profile.is_null() {
        return;
    }
    let path = join(path, "appArmorProfile");
    let field = join(&path, "localhostProfile");
    let local = value::at(profile, &["localhostProfile"]).as_str();
    match (value::text(profile, &["type"]), local) {
        ("Localhost", None | Some("")) => {
            errors.required(field, "must be set when AppArmor type is Localhost");
        }
        ("Localhost", Some(text)) if text.trim() != text => {
            errors.invalid(field, text, "must not be padded with whitespace");
        }
        ("RuntimeDefault" | "Unconfined", Some(text)) => {
            errors.invalid(field, text, "can only be set when AppArmor type is Localhost");
        }
        ("Localhost" | "RuntimeDefault" | "Unconfined", _) => {}
        ("", _) => errors.required(join(&path, "type"), "type is required when appArmorProfile is set"),
        _ => one_of(profile, &path, "type", &["Localhost", "RuntimeDefault", "Unconfined"], errors),
    }
}
