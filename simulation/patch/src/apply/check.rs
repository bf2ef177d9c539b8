//! Checks the type of an applied configuration, with upstream's messages.

use serde_json::Value;
use windlass_schema::{ListNode, ListType, NodeType};

use super::element::PathElement;
use super::go_format;
use super::schema_cursor::SchemaCursor;
use super::set::FieldSet;

/// Path and message of an error.
type Finding = (String, String);

/// Checks a whole configuration.
///
/// # Errors
///
/// Returns all errors in one message.
pub(super) fn check(cursor: SchemaCursor<'_>, value: &Value, duplicates: bool) -> Result<(), String> {
    let mut findings = Vec::new();
    Check { duplicates, findings: &mut findings }.value(cursor, value, "");
    let texts: Vec<_> = findings
        .into_iter()
        .map(|(path, text)| if path.is_empty() { text } else { format!("{path}: {text}") })
        .collect();
    match texts.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

struct Check<'a> {
    /// Whether duplicate items are permitted.
    duplicates: bool,
    findings: &'a mut Vec<Finding>,
}

impl Check<'_> {
    fn report(&mut self, path: &str, text: String) {
        self.findings.push((path.to_owned(), text));
    }

    fn value(&mut self, cursor: SchemaCursor<'_>, value: &Value, path: &str) {
        if value.is_null() {
            return;
        }
        match (cursor.node_type(), value) {
            (NodeType::Any | NodeType::Ref(_), _) => {}
            (NodeType::Object(_), Value::Object(fields)) => {
                for (name, value) in fields {
                    let path = format!("{path}.{name}");
                    match cursor.known_field(name) {
                        Some(field) => self.value(field, value, &path),
                        // Upstream stops checking this map here.
                        None => return self.report(&path, "field not declared in schema".to_owned()),
                    }
                }
            }
            (NodeType::Object(_), _) => {
                self.report(path, format!("expected map, got &{{{}}}", go_format::plain(value)));
            }
            (NodeType::List(list), Value::Array(items)) => self.items(cursor, list, items, path),
            (NodeType::List(_), _) => {
                self.report(path, format!("expected list, got &{{{}}}", go_format::plain(value)));
            }
            (node_type, _) => {
                if let Some(text) = scalar(node_type, value) {
                    self.report(path, text);
                }
            }
        }
    }

    fn items(&mut self, cursor: SchemaCursor<'_>, list: &ListNode, items: &[Value], path: &str) {
        let mut seen = FieldSet::new();
        for (index, item) in items.iter().enumerate() {
            let element = if list.list_type == ListType::Atomic {
                PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX))
            } else {
                match cursor.item_element(list, item) {
                    Ok(element) => element,
                    Err(text) => return self.report(path, format!("element {index}: {text}")),
                }
            };
            let known = std::slice::from_ref(&element);
            if list.list_type != ListType::Atomic && !self.duplicates && seen.contains(known) {
                self.report(path, format!("duplicate entries for key {element}"));
            }
            seen.insert(known);
            self.value(cursor.items(list), item, &format!("{path}{element}"));
        }
    }
}

fn scalar(node_type: &NodeType, value: &Value) -> Option<String> {
    match node_type {
        NodeType::Integer(_) | NodeType::Number => (!value.is_number())
            .then(|| format!("expected numeric (int or float), got {}", go_format::type_name(value))),
        NodeType::Boolean => {
            (!value.is_boolean()).then(|| format!("expected boolean, got &{{{}}}", go_format::plain(value)))
        }
        NodeType::String(format) if format.as_deref().is_none_or(|format| format == "byte") => {
            let text = || {
                format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_format::syntax(value))
            };
            (!value.is_string()).then(text)
        }
        _ => (value.is_object() || value.is_array())
            .then(|| format!("expected any scalar, got &{{{}}}", go_format::plain(value))),
    }
}
