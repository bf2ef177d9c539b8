//! Validation of the Windows options of security contexts.

use serde_json::Value;

use super::super::super::invalid::FieldErrors;
use super::super::super::{names, value};
use super::super::join;

const MAX_SPEC_BYTES: usize = 64 * 1024;
const MAX_DOMAIN: usize = 256;
const MAX_USER: usize = 104;

/// Validates the options in a security context.
pub(super) fn options(context: &Value, path: &str, errors: &mut FieldErrors) {
    let (found, path) = (value::at(context, &["windowsOptions"]), join(path, "windowsOptions"));
    let text = |field: &str| value::at(found, &[field]).as_str();
    if let Some(name) = text("gmsaCredentialSpecName") {
        errors.each(&join(&path, "gmsaCredentialSpecName"), name, names::subdomain(name));
    }
    if let Some(spec) = text("gmsaCredentialSpec") {
        let field = join(&path, "gmsaCredentialSpec");
        if spec.is_empty() {
            errors.invalid(field, spec, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > MAX_SPEC_BYTES {
            errors.invalid(field, spec, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if let Some(name) = text("runAsUserName") {
        errors.each(&join(&path, "runAsUserName"), name, user_name(name));
    }
}

/// Returns the errors of a user name, which can have a domain.
fn user_name(name: &str) -> Vec<String> {
    let parts: Vec<_> = name.split('\\').collect();
    let failed = |why: &str| vec![format!("runAsUserName {why}")];
    match parts.as_slice() {
        _ if name.is_empty() => failed("cannot be an empty string"),
        _ if name.chars().any(|it| it.is_ascii_control()) => failed("cannot contain control characters"),
        [user] => user_errors(user),
        [domain, user] => domain_errors(domain).into_iter().chain(user_errors(user)).collect(),
        _ => failed("cannot contain more than one backslash"),
    }
}

fn domain_errors(domain: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    if domain.len() >= MAX_DOMAIN {
        reasons.push(format!("runAsUserName's Domain length must be under {MAX_DOMAIN} characters"));
    }
    if !is_net_bios(domain) && !is_dns(domain) {
        reasons.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format".to_owned());
    }
    reasons
}

fn is_net_bios(domain: &str) -> bool {
    let count = domain.chars().count();
    (1..=15).contains(&count)
        && !domain.starts_with('.')
        && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|'])
}

fn is_dns(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let is_edge = |it: Option<char>| it.is_some_and(|it| it.is_ascii_alphanumeric());
        let is_inner = |it: char| it.is_ascii_alphanumeric() || it == '-';
        is_edge(label.chars().next()) && is_edge(label.chars().last()) && label.chars().all(is_inner)
    })
}

fn user_errors(user: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    if user.is_empty() {
        reasons.push("runAsUserName's User cannot be empty".to_owned());
    } else if user.len() > MAX_USER {
        reasons.push(format!("runAsUserName's User length must not be longer than {MAX_USER} characters"));
    }
    if !user.is_empty() && user.chars().all(|it| it == '.' || it == ' ') {
        reasons.push("runAsUserName's User cannot contain only periods or spaces".to_owned());
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        let characters = r#""/\:;|=,+*?<>@[]"#;
        reasons.push(format!("runAsUserName's User cannot contain the following characters: {characters}"));
    }
    reasons
}
