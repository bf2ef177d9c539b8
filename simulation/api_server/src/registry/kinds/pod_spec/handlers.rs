//! Validation of probes and lifecycle hooks.

use serde_json::Value;

use super::super::super::invalid::FieldErrors;
use super::super::super::{names, value};
use super::super::{join, not_negative, one_of};
use super::Context;

const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

/// Validates the lifecycle and the probes of a container.
pub(super) fn validate(context: &Context<'_>, container: &Value, path: &str, errors: &mut FieldErrors) {
    lifecycle(context, container, path, errors);
    for kind in PROBES {
        let found = value::at(container, &[kind]);
        if found.is_null() {
            continue;
        }
        let path = join(path, kind);
        probe(context, found, &path, errors);
        let success = value::integer(found, &["successThreshold"]).unwrap_or_default();
        if kind != "readinessProbe" && success != 1 {
            errors.invalid(join(&path, "successThreshold"), success, "must be 1");
        }
        if kind == "readinessProbe" && value::has(found, &["terminationGracePeriodSeconds"]) {
            let grace = found["terminationGracePeriodSeconds"].clone();
            let detail = "must not be set for readinessProbes";
            errors.invalid(join(&path, "terminationGracePeriodSeconds"), grace, detail);
        }
    }
}

fn probe(context: &Context<'_>, probe: &Value, path: &str, errors: &mut FieldErrors) {
    handler(context, probe, path, &["exec", "httpGet", "tcpSocket", "grpc"], errors);
    let fields =
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];
    not_negative(probe, path, &fields, errors);
    if let Some(grace) = value::integer(probe, &["terminationGracePeriodSeconds"]).filter(|it| *it <= 0) {
        errors.invalid(join(path, "terminationGracePeriodSeconds"), grace, "must be greater than 0");
    }
}

fn lifecycle(context: &Context<'_>, container: &Value, path: &str, errors: &mut FieldErrors) {
    for hook in ["postStart", "preStop"] {
        let found = value::at(container, &["lifecycle", hook]);
        if !found.is_null() {
            let path = format!("{path}.lifecycle.{hook}");
            handler(context, found, &path, &["exec", "httpGet", "tcpSocket", "sleep"], errors);
        }
    }
}

fn handler(context: &Context<'_>, found: &Value, path: &str, kinds: &[&str], errors: &mut FieldErrors) {
    let mut count = 0;
    for kind in kinds {
        let (action, path) = (value::at(found, &[kind]), join(path, kind));
        if action.is_null() {
            continue;
        }
        count += 1;
        if count > 1 {
            errors.forbidden(path, "may not specify more than 1 handler type");
            continue;
        }
        match *kind {
            "exec" if value::is_empty(action, &["command"]) => errors.required(join(&path, "command"), ""),
            "exec" => {}
            "httpGet" => http(action, &path, errors),
            "sleep" => sleep(context, action, &path, errors),
            _ => port(value::at(action, &["port"]), &join(&path, "port"), errors),
        }
    }
    if count == 0 {
        errors.required(path, "must specify a handler type");
    }
}

fn http(action: &Value, path: &str, errors: &mut FieldErrors) {
    if value::text(action, &["path"]).is_empty() {
        errors.required(join(path, "path"), "");
    }
    port(value::at(action, &["port"]), &join(path, "port"), errors);
    one_of(action, path, "scheme", &["HTTP", "HTTPS"], errors);
    for header in value::items(action, &["httpHeaders"]) {
        let name = value::text(header, &["name"]);
        if name.is_empty() || !name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-') {
            let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. \
                          'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
            errors.invalid(join(path, "httpHeaders"), name, detail);
        }
    }
}

/// Validates a port number or the name of a port.
pub(in super::super) fn port(port: &Value, field: &str, errors: &mut FieldErrors) {
    match port {
        Value::String(name) => errors.each(field, name, names::port_name(name)),
        other => super::port_number(other.as_i64().unwrap_or_default(), field, errors),
    }
}

fn sleep(context: &Context<'_>, action: &Value, path: &str, errors: &mut FieldErrors) {
    let seconds = value::integer(action, &["seconds"]).unwrap_or_default();
    let grace = value::integer(context.spec, &["terminationGracePeriodSeconds"]);
    if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(path, seconds, &detail);
    }
}
