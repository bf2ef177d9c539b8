//! Removal of generated values: UIDs, versions, times, generated names, addresses and ports.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Value, json};

/// Generated values of one sequence. UIDs and versions are numbered per object, in order of appearance, so that equal
/// values stay equal, and a disagreement about one object has no effect on others.
#[derive(Debug, Default)]
pub struct Names {
    uids: Numbering,
    versions: Numbering,
}

/// Names of generated values.
#[derive(Debug, Default)]
struct Numbering {
    names: BTreeMap<String, String>,
    counts: BTreeMap<String, usize>,
}

impl Numbering {
    fn assign(&mut self, value: &str, owner: &str) -> String {
        if let Some(name) = self.names.get(value) {
            return name.clone();
        }
        let count = self.counts.entry(owner.to_owned()).or_default();
        *count += 1;
        let name = format!("{count} of {owner}");
        self.names.insert(value.to_owned(), name.clone());
        name
    }

    fn known(&self, value: &str) -> Option<&str> {
        self.names.get(value).map(String::as_str)
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid pattern")
}

static UID: LazyLock<Regex> =
    LazyLock::new(|| pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
/// Requests contain only times of 2020.
static TIME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"20(?:19|2[1-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)"));
static GENERATED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\b(gen-|Bad_|sequence-\d+-)([b-df-hj-np-tv-z2-9]{5})\b"));
/// Addresses in the range for services, except those that requests contain.
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b10\.(9[6-9]|10\d|11[01])\.(\d+)\.\d+\b"));
static NODE_PORT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(odePort\\*":)3[0-2]\d{3}|(\b\d+:)3[0-2]\d{3}(/)"#));
/// Numbers. The number in a namespace can equal a version.
static DIGITS: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:sequence-)?\b\d+\b"));
static VERSION: LazyLock<Regex> = LazyLock::new(|| pattern(r#"(resourceVersion\\*":\\*")\d+"#));

impl Names {
    /// Returns a text without generated values.
    pub fn text(&self, text: &str) -> String {
        let text = UID.replace_all(text, |found: &Captures<'_>| match &found[0] {
            "00000000-0000-0000-0000-000000000000" => found[0].to_owned(),
            uid => format!("<uid {}>", self.uids.known(uid).unwrap_or("of the new object")),
        });
        let text = TIME.replace_all(&text, "<time>");
        let text = GENERATED.replace_all(&text, "$1<letters>");
        let text = ADDRESS.replace_all(&text, |found: &Captures<'_>| match (&found[1], &found[2]) {
            ("96", "77" | "78" | "79" | "0") => found[0].to_owned(),
            _ => "<address>".to_owned(),
        });
        let text = NODE_PORT.replace_all(&text, "$1$2<port>$3");
        let text = VERSION.replace_all(&text, "$1<version>");
        // Upstream iterates over a map in random order.
        let text = match text.split_once("errors:\n") {
            Some((before, errors)) if !errors.contains("errors:") => {
                let mut errors: Vec<_> = errors.lines().collect();
                errors.sort_unstable();
                Cow::Owned(format!("{before}errors:\n{}", errors.join("\n")))
            }
            _ => text,
        };
        if !text.contains("ResourceVersion") {
            return text.into_owned();
        }
        let version = |found: &Captures<'_>| match self.versions.known(&found[0]) {
            Some(name) => format!("<version {name}>"),
            None => found[0].to_owned(),
        };
        DIGITS.replace_all(&text, version).into_owned()
    }

    /// Returns a document without generated values. `resource` names the kind of the objects in it.
    pub fn value(&mut self, resource: &str, value: Value) -> Value {
        self.assign(resource, &value);
        let list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List") || kind == "Table");
        let mut value = self.field("", value);
        if list {
            value["metadata"]["resourceVersion"] = json!("<version of the list>");
        }
        value
    }

    /// Names the UIDs and versions of the objects in a response.
    fn assign(&mut self, resource: &str, value: &Value) {
        for item in value["items"].as_array().into_iter().flatten() {
            self.assign(resource, item);
        }
        for row in value["rows"].as_array().into_iter().flatten() {
            self.assign(resource, &row["object"]);
        }
        let metadata = &value["metadata"];
        let Some(name) = metadata["name"].as_str() else { return };
        let owner = format!("{resource}/{}", self.text(name));
        if let Some(uid) = metadata["uid"].as_str().filter(|uid| UID.is_match(uid)) {
            self.uids.assign(uid, &owner);
        }
        if let Some(version) = metadata["resourceVersion"].as_str() {
            self.versions.assign(version, &owner);
        }
    }

    fn field(&self, name: &str, value: Value) -> Value {
        match value {
            Value::String(text) => json!(match name {
                "resourceVersion" => match self.versions.known(&text) {
                    Some(known) if text.len() > 1 => format!("<version {known}>"),
                    _ => text,
                },
                "continue" => "<continue>".to_owned(),
                // The age of an object in a table.
                "cell" if is_age(&text) => "<age>".to_owned(),
                _ => self.text(&text),
            }),
            Value::Number(number)
                if matches!(name, "nodePort" | "healthCheckNodePort") && number.as_i64() > Some(29999) =>
            {
                json!("<port>")
            }
            Value::Array(mut items) => {
                if name == "managedFields" {
                    let key = |it: &Value| {
                        ["manager", "operation", "subresource", "apiVersion"]
                            .map(|field| it[field].to_string())
                    };
                    items.sort_by_key(key);
                }
                let name = if name == "cells" { "cell" } else { "" };
                items.into_iter().map(|item| self.field(name, item)).collect()
            }
            Value::Object(fields) => {
                fields.into_iter().map(|(name, value)| (self.text(&name), self.field(&name, value))).collect()
            }
            other => other,
        }
    }
}

fn is_age(text: &str) -> bool {
    let digits = text.strip_suffix('s').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
