//! JSON of upstream's internal types, which some of its messages show.
//!
//! Internal types have the fields of the served types under their Go names, in the order of declaration, and contain
//! empty fields, too.

mod diff;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::Value;

use crate::go_json;

const TABLE: &str = include_str!("internal/types.txt");

/// Internal type of a pod spec.
pub(crate) const POD_SPEC: &str = "core.PodSpec";
/// Internal type of a pod template.
pub(crate) const TEMPLATE: &str = "core.PodTemplateSpec";
/// Internal type of the spec of a PersistentVolumeClaim.
pub(crate) const CLAIM_SPEC: &str = "core.PersistentVolumeClaimSpec";
/// Internal type of a label selector.
pub(crate) const SELECTOR: &str = "v1.LabelSelector";

/// A field of an internal type.
struct Field {
    name: &'static str,
    notation: &'static str,
    is_optional: bool,
}

fn types() -> &'static BTreeMap<&'static str, Vec<Field>> {
    static TYPES: OnceLock<BTreeMap<&'static str, Vec<Field>>> = OnceLock::new();
    TYPES.get_or_init(|| {
        let mut types = BTreeMap::<_, Vec<Field>>::new();
        let mut current = "";
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let (name, notation) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            if name == "struct" {
                current = notation;
            } else {
                let is_optional = words.next().is_some();
                types.entry(current).or_default().push(Field { name, notation, is_optional });
            }
        }
        types
    })
}

/// Returns a value as JSON of an internal type.
pub(crate) fn text(notation: &str, value: &Value) -> String {
    let mut writer = Writer { text: String::new(), indent: None };
    writer.value(notation, value);
    writer.text
}

/// Returns the difference of two values of an internal type, as upstream shows it.
pub(crate) fn difference(notation: &str, old: &Value, new: &Value) -> String {
    let lines = |value: &Value| {
        let mut writer = Writer { text: String::new(), indent: Some(0) };
        writer.value(notation, value);
        writer.text
    };
    diff::unified(&lines(old), &lines(new))
}

struct Writer {
    text: String,
    /// Depth of the indentation; `None` for JSON without spaces.
    indent: Option<usize>,
}

impl Writer {
    fn value(&mut self, notation: &str, value: &Value) {
        if let Some(notation) = notation.strip_prefix('*') {
            match value {
                Value::Null => self.text.push_str("null"),
                value => self.value(notation, value),
            }
        } else if let Some(items) = notation.strip_prefix("[]") {
            match value {
                // Bytes are text.
                Value::String(_) => self.literal(value),
                Value::Array(all) => self.parts('[', ']', all.iter().map(|item| (None, items, item))),
                _ => self.text.push_str("null"),
            }
        } else if let Some(values) = notation.strip_prefix("{}") {
            match value {
                Value::Object(all) => {
                    let parts = all.iter().map(|(name, value)| (Some(name.as_str()), values, value));
                    self.parts('{', '}', parts);
                }
                _ => self.text.push_str("null"),
            }
        } else if let Some(fields) = types().get(notation) {
            let fields = fields.iter().map(|field| (field, part(notation, field, value)));
            let written: Vec<_> =
                fields.filter(|(field, value)| !field.is_optional || !is_empty(value)).collect();
            let parts = written.iter().map(|(field, value)| (Some(field.name), field.notation, value));
            self.parts('{', '}', parts);
        } else {
            self.scalar(notation, value);
        }
    }

    fn scalar(&mut self, notation: &str, value: &Value) {
        match (notation, value) {
            ("string", Value::Null) => self.text.push_str("\"\""),
            ("bool", Value::Null) => self.text.push_str("false"),
            ("int" | "intstr.IntOrString", Value::Null) => self.text.push('0'),
            ("resource.Quantity", Value::Null) => self.text.push_str("\"0\""),
            (_, value) => self.literal(value),
        }
    }

    fn literal(&mut self, value: &Value) {
        self.text.push_str(&String::from_utf8_lossy(&go_json::encode(value)));
    }

    fn parts<'a>(
        &mut self,
        open: char,
        close: char,
        parts: impl Iterator<Item = (Option<&'a str>, &'a str, &'a Value)>,
    ) {
        self.text.push(open);
        self.indent = self.indent.map(|depth| depth + 1);
        let mut is_first = true;
        for (name, notation, value) in parts {
            if !std::mem::take(&mut is_first) {
                self.text.push(',');
            }
            self.new_line();
            if let Some(name) = name {
                self.literal(&Value::from(name));
                self.text.push_str(if self.indent.is_some() { ": " } else { ":" });
            }
            self.value(notation, value);
        }
        self.indent = self.indent.map(|depth| depth - 1);
        if !is_first {
            self.new_line();
        }
        self.text.push(close);
    }

    fn new_line(&mut self) {
        if let Some(depth) = self.indent {
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n(' ', depth));
        }
    }
}

/// Returns the value of an internal field in a served value.
fn part(of: &str, field: &Field, value: &Value) -> Value {
    let named = |value: &Value| {
        let fields = value.as_object()?;
        fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(field.name)).map(|(_, value)| value.clone())
    };
    if of == POD_SPEC && field.name == "SecurityContext" {
        // The internal security context contains fields that are served in the spec.
        let mut context =
            named(value).filter(Value::is_object).unwrap_or_else(|| Value::Object(<_>::default()));
        for name in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"] {
            context[name] = value.get(name).cloned().unwrap_or_default();
        }
        return context;
    }
    // The metadata of a template is embedded.
    named(value).or_else(|| named(value.get("metadata")?)).unwrap_or_default()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn internal_value_has_all_fields_in_declared_order() {
        let policy = json!({"rules": [{"succeededCount": 1}]});
        let expected = r#"{"Rules":[{"SucceededIndexes":null,"SucceededCount":1}]}"#;
        assert_eq!(text("batch.SuccessPolicy", &policy), expected);
        let selector =
            json!({"matchLabels": {"a": "<b>"}, "matchExpressions": [{"key": "k", "operator": "In"}]});
        let expected =
            r#"{"matchLabels":{"a":"\u003cb\u003e"},"matchExpressions":[{"key":"k","operator":"In"}]}"#;
        assert_eq!(text(SELECTOR, &selector), expected);
    }

    #[test]
    fn difference_is_a_unified_diff_of_indented_json() {
        let old = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let new = json!({"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}});
        let expected = "@@ -1,6 +1,6 @@\n {\n  \"AccessModes\": [\n-  \"ReadWriteOnce\"\n+  \"ReadWriteMany\"\n  ],\n  \
                        \"Selector\": null,\n  \"Resources\": {\n";
        assert_eq!(difference(CLAIM_SPEC, &old, &new), expected);
    }
}
