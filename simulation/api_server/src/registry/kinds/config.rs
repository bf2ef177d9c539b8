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
    warnings: |secret, _| match value::text(secret, &["type"]) {
        "kubernetes.io/tls" => key_pair_warning(secret).into_iter().collect(),
        _ => Vec::new(),
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
    // A removed key is a change, also if its value was empty.
    let entries =
        |object: &Value, field: &str| object[field].as_object().filter(|it| !it.is_empty()).cloned();
    for field in fields.iter().filter(|field| entries(new, field) != entries(old, field)) {
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

/// Returns Go's error for a certificate or a private key without PEM data. The contents are not read.
fn key_pair_warning(secret: &Value) -> Option<String> {
    let blocks = |name: &str| {
        let text = decoded(value::at(secret, &["data", name])).unwrap_or_default();
        pem_blocks(&String::from_utf8_lossy(&text))
    };
    let (certificate, key) = (blocks("tls.crt"), blocks("tls.key"));
    let is_key = |kind: &String| kind == "PRIVATE KEY" || kind.ends_with(" PRIVATE KEY");
    let skipped = |what: &str, kinds: &[String]| {
        format!("PEM block in {what} after skipping PEM blocks of the following types: [{}]", kinds.join(" "))
    };
    match certificate.as_slice() {
        [] => return Some("tls: failed to find any PEM data in certificate input".to_owned()),
        kinds if kinds.iter().any(|kind| kind == "CERTIFICATE") => {}
        [kind] if is_key(kind) => {
            let why = "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM \
                       inputs may have been switched";
            return Some(why.to_owned());
        }
        kinds => {
            let rest = skipped("certificate input", kinds);
            return Some(format!("tls: failed to find \"CERTIFICATE\" {rest}"));
        }
    }
    match key.as_slice() {
        [] => Some("tls: failed to find any PEM data in key input".to_owned()),
        kinds if kinds.iter().any(is_key) => None,
        [kind] if kind == "CERTIFICATE" => {
            let why = "tls: found a certificate rather than a key in the PEM for the private key";
            Some(why.to_owned())
        }
        kinds => {
            let rest = skipped("key input", kinds);
            let rest = rest.trim_start_matches("PEM block ");
            Some(format!("tls: failed to find PEM block with type ending in \"PRIVATE KEY\" {rest}"))
        }
    }
}

/// Returns the types of the PEM blocks in a text.
fn pem_blocks(text: &str) -> Vec<String> {
    let mut kinds = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let Some((kind, body)) = after.split_once("-----") else { break };
        let Some((_, after)) = body.split_once(&format!("-----END {kind}-----")) else { break };
        kinds.push(kind.to_owned());
        rest = after;
    }
    kinds
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
