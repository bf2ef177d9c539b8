//! Strategy of Ingresses.

use serde_json::Value;

use super::super::invalid::FieldErrors;
use super::super::{meta, names, value};
use super::{Kind, MetadataOrder, NAMED, addresses, join};

const CLASS: &str = "kubernetes.io/ingress.class";
const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];

/// Strategy of Ingresses.
pub(super) static INGRESSES: Kind = Kind {
    generation: &[&["spec"]],
    validate: |object, errors| {
        spec(value::at(object, &["spec"]), Tolerated::default(), errors);
        class_annotation(object, errors);
    },
    metadata_of_update: MetadataOrder::ByKind,
    validate_update: |new, old, errors| {
        meta::validate_update(new, old, errors);
        meta::validate_built_in(new, true, names::subdomain_name, errors);
        spec(value::at(new, &["spec"]), Tolerated::of(value::at(old, &["spec"])), errors);
    },
    validate_status: status,
    warnings: |object, old| {
        let is_deprecated = old.is_none()
            && value::has(object, &["metadata", "annotations", CLASS])
            && !value::has(object, &["spec", "ingressClassName"]);
        let text = format!("annotation {CLASS:?} is deprecated, please use 'spec.ingressClassName' instead");
        is_deprecated.then_some(text).into_iter().collect()
    },
    ..NAMED
};

/// Invalid parts that an update can keep, because older servers accepted them.
#[derive(Clone, Copy, Default)]
struct Tolerated {
    secret_names: bool,
    wildcard_rules: bool,
}

impl Tolerated {
    fn of(old: &Value) -> Tolerated {
        let is_invalid = |tls: &Value| !secret_name(value::text(tls, &["secretName"])).is_empty();
        let is_invalid_wildcard = |rule: &Value| {
            let mut errors = FieldErrors::default();
            http(rule, "", &mut errors);
            value::text(rule, &["host"]).contains('*') && !errors.0.is_empty()
        };
        Tolerated {
            secret_names: value::items(old, &["tls"]).iter().any(is_invalid),
            wildcard_rules: value::items(old, &["rules"]).iter().any(is_invalid_wildcard),
        }
    }
}

fn class_annotation(object: &Value, errors: &mut FieldErrors) {
    let (annotation, class) = (
        value::at(object, &["metadata", "annotations", CLASS]),
        value::at(object, &["spec", "ingressClassName"]),
    );
    if !annotation.is_null() && !class.is_null() && annotation != class {
        let detail = "must match `ingressClassName` when both are specified";
        errors.invalid(format!("annotations.{CLASS}"), annotation.clone(), detail);
    }
}

fn spec(spec: &Value, tolerated: Tolerated, errors: &mut FieldErrors) {
    let default = value::at(spec, &["defaultBackend"]);
    if value::is_empty(spec, &["rules"]) && default.is_null() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.invalid("spec", value::at(spec, &["rules"]).clone(), detail);
    }
    if !default.is_null() {
        backend(default, "spec.defaultBackend", errors);
    }
    for (index, rule) in value::items(spec, &["rules"]).iter().enumerate() {
        let path = format!("spec.rules[{index}]");
        let name = value::text(rule, &["host"]);
        host(name, &join(&path, "host"), errors);
        if !(name.contains('*') && tolerated.wildcard_rules) {
            http(rule, &path, errors);
        }
    }
    for (index, tls) in value::items(spec, &["tls"]).iter().enumerate() {
        let path = format!("spec.tls[{index}]");
        for (index, name) in value::texts(tls, &["hosts"]).into_iter().enumerate() {
            errors.each(&format!("{path}.hosts[{index}]"), name, host_name(name));
        }
        let secret = value::text(tls, &["secretName"]);
        if !tolerated.secret_names {
            errors.each(&join(&path, "secretName"), secret, secret_name(secret));
        }
    }
    if let Some(class) = value::at(spec, &["ingressClassName"]).as_str() {
        errors.each("spec.ingressClassName", class, names::subdomain(class));
    }
}

fn secret_name(name: &str) -> Vec<String> {
    if name.is_empty() { Vec::new() } else { names::subdomain(name) }
}

fn host_name(name: &str) -> Vec<String> {
    if name.contains('*') { names::wildcard_subdomain(name) } else { names::subdomain(name) }
}

fn host(name: &str, path: &str, errors: &mut FieldErrors) {
    if name.is_empty() {
        return;
    }
    if addresses::parse(name).is_some() {
        errors.invalid(path, name, "must be a DNS name, not an IP address");
    }
    errors.each(path, name, host_name(name));
}

fn http(rule: &Value, path: &str, errors: &mut FieldErrors) {
    if !value::has(rule, &["http"]) {
        return;
    }
    let path = join(path, "http.paths");
    let paths = value::items(rule, &["http", "paths"]);
    if paths.is_empty() {
        errors.required(path.as_str(), "");
    }
    for (index, found) in paths.iter().enumerate() {
        http_path(found, &format!("{path}[{index}]"), errors);
    }
}

fn http_path(found: &Value, path: &str, errors: &mut FieldErrors) {
    let Some(kind) = value::at(found, &["pathType"]).as_str() else {
        errors.required(join(path, "pathType"), "pathType must be specified");
        return;
    };
    let (text, field) = (value::text(found, &["path"]), join(path, "path"));
    let is_absolute = text.starts_with('/');
    match kind {
        "Exact" | "Prefix" => {
            if !is_absolute {
                errors.invalid(field.as_str(), text, "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|it| text.contains(it)) {
                errors.invalid(field.as_str(), text, &format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].into_iter().filter(|it| text.ends_with(it)) {
                errors.invalid(field.as_str(), text, &format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !is_absolute {
                errors.invalid(field, text, "must be an absolute path");
            }
        }
        other => errors.not_supported(join(path, "pathType"), other, &PATH_TYPES),
    }
    backend(value::at(found, &["backend"]), &join(path, "backend"), errors);
}

fn backend(backend: &Value, path: &str, errors: &mut FieldErrors) {
    let (resource, service) = (value::at(backend, &["resource"]), value::at(backend, &["service"]));
    match (resource.is_null(), service.is_null()) {
        (false, false) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (false, true) => reference(resource, &join(path, "resource"), errors),
        (true, false) => service_backend(service, path, errors),
        (true, true) => errors.invalid(path, "", "resource or service backend is required"),
    }
}

fn service_backend(service: &Value, path: &str, errors: &mut FieldErrors) {
    let (name, field) = (value::text(service, &["name"]), join(path, "service.name"));
    if name.is_empty() {
        errors.required(field, "");
    } else {
        errors.each(&field, name, names::label(name));
    }
    let port = value::text(service, &["port", "name"]);
    let number = value::integer(service, &["port", "number"]).unwrap_or_default();
    match (port.is_empty(), number) {
        (true, 0) => errors.required(path, "port name or number is required"),
        (true, number) if !(1..=65535).contains(&number) => {
            let detail = "must be between 1 and 65535, inclusive";
            errors.invalid(join(path, "service.port.number"), number, detail);
        }
        (true, _) => {}
        (false, 0) => errors.each(&join(path, "service.port.name"), port, names::port_name(port)),
        (false, _) => errors.invalid(path, "", "cannot set both port name & port number"),
    }
}

fn reference(found: &Value, path: &str, errors: &mut FieldErrors) {
    if let Some(group) = value::at(found, &["apiGroup"]).as_str() {
        errors.each(&join(path, "apiGroup"), group, names::subdomain(group));
    }
    for field in ["kind", "name"] {
        let (text, field) = (value::text(found, &[field]), join(path, field));
        if text.is_empty() {
            errors.required(field, "");
        } else {
            errors.each(&field, text, names::path_name(text, false));
        }
    }
}

fn status(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let ingress = ["status", "loadBalancer", "ingress"];
    let known: Vec<_> = value::items(old, &ingress).iter().map(|it| value::text(it, &["ip"])).collect();
    for (index, found) in value::items(new, &ingress).iter().enumerate() {
        let path = format!("status.loadBalancer.ingress[{index}]");
        let ip = value::text(found, &["ip"]);
        if !ip.is_empty() && !known.contains(&ip) {
            addresses::validate(ip, &join(&path, "ip"), errors);
        }
        let (name, field) = (value::text(found, &["hostname"]), join(&path, "hostname"));
        if !name.is_empty() {
            errors.each(&field, name, names::subdomain(name));
            if addresses::parse(name).is_some() {
                errors.invalid(field, name, "must be a DNS name, not an IP address");
            }
        }
    }
}
