//! Strategies of ConfigMaps, Secrets and ServiceAccounts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use windlass_schema::check;

use super::super::invalid::FieldErrors;
use super::super::{meta, names, value};
use super::{Kind, NAMED};

/// Maximum size of the data in a ConfigMap or Secret.
const LIMIT: usize = 1024 * 1024;

/// Strategy of ConfigMaps.
pub(super) static CONFIG_MAPS: Kind = Kind {
    validate: config_map,
    validate_update: |new, old, errors| {
        stays(new, old, &["data", "binaryData"], errors);
        meta::validate_built_in(new, true, names::subdomain_name, errors);
        config_map(new, errors);
    },
    ..NAMED
};

/// Strategy of Secrets.
pub(super) static SECRETS: Kind = Kind {
    defaults: |object| {
        value::default(object, &["type"], "Opaque");
        encode_text(object);
    },
    validate: secret,
    validate_update: |new, old, errors| {
        errors.immutable("type", &new["type"], &old["type"]);
        stays(new, old, &["data"], errors);
        meta::validate_built_in(new, true, names::subdomain_name, errors);
        secret(new, errors);
    },
    ..NAMED
};

/// Strategy of ServiceAccounts.
pub(super) static SERVICE_ACCOUNTS: Kind = Kind {
    returns_deleted: true,
    validate_update: |new, _, errors| meta::validate_built_in(new, true, names::subdomain_name, errors),
    ..NAMED
};

fn stays(new: &Value, old: &Value, fields: &[&str], errors: &mut FieldErrors) {
    if !value::flag(old, &["immutable"]) {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if !value::flag(new, &["immutable"]) {
        errors.forbidden("immutable", detail);
    }
    for field in fields.iter().filter(|field| !value::same_at(new, old, &[field])) {
        errors.forbidden(*field, detail);
    }
}

fn config_map(object: &Value, errors: &mut FieldErrors) {
    let mut size = 0;
    for (name, text) in value::entries(object, &["data"]) {
        let field = format!("data[{name}]");
        errors.each(&field, name, names::data_key(name));
        if value::has(object, &["binaryData", name]) {
            errors.invalid(field, name.as_str(), "duplicate of key present in binaryData");
        }
        size += text.as_str().unwrap_or_default().len();
    }
    for (name, text) in value::entries(object, &["binaryData"]) {
        errors.each(&format!("binaryData[{name}]"), name, names::data_key(name));
        size += decoded(text).map_or(0, |it| it.len());
    }
    if size > LIMIT {
        // Upstream reports the whole object, which has no field name.
        errors.too_long("[]", LIMIT);
    }
}

/// Moves `stringData` to `data`, encoded.
fn encode_text(object: &mut Value) {
    let Some(given) = value::remove(object, &["stringData"]) else { return };
    for (name, text) in value::entries(&given, &[]) {
        let bytes = STANDARD.encode(text.as_str().unwrap_or_default());
        value::set(object, &["data", name], bytes);
    }
}

fn secret(object: &Value, errors: &mut FieldErrors) {
    let mut size = 0;
    for (name, text) in value::entries(object, &["data"]) {
        errors.each(&format!("data[{name}]"), name, names::data_key(name));
        size += decoded(text).map_or(0, |it| it.len());
    }
    if size > LIMIT {
        errors.too_long("data", LIMIT);
    }
    let has = |name: &str| value::at(object, &["data"]).get(name).is_some();
    let required = |errors: &mut FieldErrors, name: &str| errors.required(format!("data[{name}]"), "");
    match value::text(object, &["type"]) {
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if value::text(object, &["metadata", "annotations", name]).is_empty() {
                errors.required(format!("metadata.annotations[{name}]"), "");
            }
        }
        "kubernetes.io/dockercfg" => docker(object, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => docker(object, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            required(errors, "username");
            required(errors, "password");
        }
        "kubernetes.io/ssh-auth" if value::is_empty(object, &["data", "ssh-privatekey"]) => {
            required(errors, "ssh-privatekey");
        }
        "kubernetes.io/tls" => {
            for name in ["tls.crt", "tls.key"].into_iter().filter(|name| !has(name)) {
                required(errors, name);
            }
        }
        _ => {}
    }
}

fn docker(object: &Value, name: &str, errors: &mut FieldErrors) {
    let field = format!("data[{name}]");
    let Some(found) = value::at(object, &["data"]).get(name) else {
        errors.required(field, "");
        return;
    };
    let why = match check::parse(&decoded(found).unwrap_or_default()) {
        Err(why) => why,
        Ok(parsed) if parsed.value.is_object() || parsed.value.is_null() => return,
        Ok(parsed) => {
            let given = check::kind_of(&parsed.value);
            format!("json: cannot unmarshal {given} into Go value of type map[string]interface {{}}")
        }
    };
    errors.invalid(field, "<secret contents redacted>", &why);
}

fn decoded(text: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(text.as_str()?).ok()
}
