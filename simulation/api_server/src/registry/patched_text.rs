//! The text of a patched object in messages.
//!
//! Upstream applies JSON and merge patches to text. It sorts the fields of each object that the patch reaches; the
//! other objects keep the order of declaration in which upstream wrote them.

use std::collections::BTreeMap;

use serde_json::Value;
use windlass_schema::{Node, NodeType, Schema};

use super::request::PatchKind;
use crate::go_json;

/// The effect of a patch on a value.
#[derive(Debug, Default)]
enum Reach {
    /// The value is unchanged.
    #[default]
    Untouched,
    /// Some parts of the value are reached.
    Opened(BTreeMap<String, Reach>),
    /// The whole value is written.
    Written,
}

/// Returns the text of an object after a JSON or merge patch of another object.
pub(super) fn text(schema: &Schema, kind: PatchKind, before: &Value, patch: &Value, after: &Value) -> String {
    let mut reach = Reach::Opened(BTreeMap::new());
    match kind {
        PatchKind::Json => {
            for operation in patch.as_array().into_iter().flatten() {
                let pointers: &[&str] = match operation["op"].as_str() {
                    Some("move" | "copy") => &["from", "path"],
                    _ => &["path"],
                };
                for pointer in pointers.iter().filter_map(|name| operation[name].as_str()) {
                    let tokens: Vec<_> = pointer.split('/').skip(1).collect();
                    note(&mut reach, &tokens, operation["op"] != "test" && operation["op"] != "remove");
                }
            }
        }
        _ => reach = merged(before, patch),
    }
    let mut text = String::new();
    write(schema, Some(&schema.root), after, &reach, &mut text);
    text
}

fn note(reach: &mut Reach, tokens: &[&str], writes: bool) {
    let Some((first, rest)) = tokens.split_first() else { return };
    if matches!(reach, Reach::Untouched) {
        *reach = Reach::Opened(BTreeMap::new());
    }
    let Reach::Opened(parts) = reach else { return };
    let part = parts.entry(first.replace("~1", "/").replace("~0", "~")).or_default();
    if rest.is_empty() {
        if writes {
            *part = Reach::Written;
        }
    } else {
        note(part, rest, writes);
    }
}

fn merged(before: &Value, patch: &Value) -> Reach {
    let (Value::Object(before), Value::Object(patch)) = (before, patch) else { return Reach::Written };
    let part = |(name, value): (&String, &Value)| {
        let reach = before.get(name).map_or(Reach::Written, |before| merged(before, value));
        (name.clone(), reach)
    };
    Reach::Opened(patch.iter().map(part).collect())
}

fn write(schema: &Schema, node: Option<&Node>, value: &Value, reach: &Reach, text: &mut String) {
    let node_type = node.map(|node| &schema.resolve(node).node_type);
    let part = |name: &str| match reach {
        Reach::Opened(parts) => parts.get(name).unwrap_or(&Reach::Untouched),
        other => other,
    };
    match value {
        Value::Object(fields) => {
            let below = |name: &str| match node_type {
                Some(NodeType::Object(object)) => object.fields.get(name).or(object.additional.as_deref()),
                _ => None,
            };
            let mut fields: Vec<_> = fields.iter().collect();
            if matches!(reach, Reach::Untouched) {
                let position = |name: &str| below(name)?.go.as_ref().map(|it| it.position);
                fields.sort_by_key(|(name, _)| position(name));
            }
            text.push('{');
            for (index, (name, value)) in fields.into_iter().enumerate() {
                text.push_str(if index > 0 { "," } else { "" });
                literal(&Value::from(name.as_str()), text);
                text.push(':');
                write(schema, below(name), value, part(name), text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            let below = match node_type {
                Some(NodeType::List(list)) => Some(&*list.items),
                _ => None,
            };
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index > 0 { "," } else { "" });
                write(schema, below, item, part(&index.to_string()), text);
            }
            text.push(']');
        }
        scalar => literal(scalar, text),
    }
}

fn literal(value: &Value, text: &mut String) {
    text.push_str(&String::from_utf8_lossy(&go_json::encode(value)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_schema::Catalog;

    use super::*;

    #[test]
    fn objects_that_a_patch_reaches_are_sorted() {
        let catalog = Catalog::built_in();
        let schema = catalog.kind_schema("", "v1", "ConfigMap").unwrap_or_else(|| panic!("no ConfigMaps"));
        let before =
            json!({"kind": "ConfigMap", "metadata": {"name": "a", "labels": {"b": "c"}}, "data": {"k": "v"}});
        let show = |kind, patch: Value| text(schema, kind, &before, &patch, &before);
        let untouched = r#"{"data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"a","labels":{"b":"c"}}}"#;
        assert_eq!(show(PatchKind::Merge, json!({"data": 1})), untouched);
        let touched = r#"{"data":{"k":"v"},"kind":"ConfigMap","metadata":{"labels":{"b":"c"},"name":"a"}}"#;
        assert_eq!(show(PatchKind::Merge, json!({"metadata": {"x": 1}})), touched);
        assert_eq!(show(PatchKind::Json, json!([{"op": "remove", "path": "/metadata/x"}])), touched);
        let other = json!([{"op": "remove", "path": "/data/x", "from": "/metadata/x"}]);
        assert_eq!(show(PatchKind::Json, other), untouched);
    }
}
