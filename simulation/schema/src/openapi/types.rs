//! Renders nodes as OpenAPI schemas.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Kind;
use crate::node::{
    ListNode, ListType, MapType, Node, NodeType, ObjectNode, OmitPolicy, PatchStrategy, Schema, Types,
};

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

/// Named schemas of a document, with all referenced schemas.
pub(super) struct Components {
    prefix: &'static str,
    done: BTreeMap<String, Value>,
}

/// State of rendering: references are looked up in `types`, and new names are queued in `met`.
struct Renderer<'a> {
    prefix: &'static str,
    types: &'a Types,
    built_in: bool,
    met: Vec<Arc<str>>,
}

impl Components {
    pub(super) fn new(prefix: &'static str) -> Self {
        Self { prefix, done: BTreeMap::new() }
    }

    pub(super) fn finish(self) -> Map<String, Value> {
        self.done.into_iter().collect()
    }

    /// Adds the type of a kind and its references.
    pub(super) fn kind(&mut self, kind: Kind<'_>, schema: &Schema, built_in: bool) {
        let name = match &schema.root.node_type {
            NodeType::Ref(name) => name.to_string(),
            _ => custom_name(kind),
        };
        if self.done.contains_key(&name) {
            return;
        }
        let mut renderer = Renderer { prefix: self.prefix, types: &schema.types, built_in, met: Vec::new() };
        let mut rendered = renderer.node(schema.resolve(&schema.root));
        rendered["x-kubernetes-group-version-kind"] = json!([kind.spelled()]);
        self.done.insert(name, rendered);
        while let Some(name) = renderer.met.pop() {
            if !self.done.contains_key(&*name) {
                let rendered = renderer.named(&name);
                self.done.insert(name.to_string(), rendered);
            }
        }
    }
}

/// Returns the type name in upstream format, with the domain reversed: `example.com` and `Widget` become
/// `com.example.v1.Widget`.
fn custom_name(kind: Kind<'_>) -> String {
    let domain: Vec<_> = kind.group.split('.').rev().collect();
    format!("{}.{}.{}", domain.join("."), kind.version, kind.kind)
}

impl Renderer<'_> {
    fn named(&mut self, name: &str) -> Value {
        match name {
            QUANTITY => json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] }),
            INT_OR_STRING => {
                json!({ "format": "int-or-string", "oneOf": [{ "type": "integer" }, { "type": "string" }] })
            }
            // An undescribed type permits any value.
            _ => self.types.0.get(name).map_or_else(|| json!({}), |node| self.node(node)),
        }
    }

    fn node(&mut self, node: &Node) -> Value {
        let mut rendered = self.node_type(&node.node_type);
        // Go accepts null everywhere without declaring it.
        if node.nullable && !self.built_in {
            rendered["nullable"] = json!(true);
        }
        if !node.enumeration.is_empty() {
            rendered["enum"] = json!(node.enumeration);
        }
        // Zero values that are always written are not documented.
        if let Some(default) = &node.default
            && (node.presence != OmitPolicy::Always || !is_zero(default))
        {
            rendered["default"] = default.clone();
        }
        rendered
    }

    fn node_type(&mut self, node_type: &NodeType) -> Value {
        match node_type {
            NodeType::Any => json!({ "x-kubernetes-preserve-unknown-fields": true }),
            NodeType::Ref(name) => self.reference(name),
            NodeType::Object(object) => self.object(object),
            NodeType::List(list) => self.list(list),
            NodeType::String(format) => self.string(format.as_deref()),
            NodeType::Integer(None) => json!({ "type": "integer" }),
            NodeType::Integer(Some(format)) => json!({ "type": "integer", "format": **format }),
            NodeType::Number => json!({ "type": "number" }),
            NodeType::Boolean => json!({ "type": "boolean" }),
            NodeType::IntOrString if self.built_in => self.reference(&INT_OR_STRING.into()),
            NodeType::IntOrString => json!({
                "anyOf": [{ "type": "integer" }, { "type": "string" }],
                "x-kubernetes-int-or-string": true,
            }),
            NodeType::Quantity => self.reference(&QUANTITY.into()),
        }
    }

    /// Returns a reference in `allOf`, which permits additional keywords next to it.
    fn reference(&mut self, name: &Arc<str>) -> Value {
        self.met.push(Arc::clone(name));
        let mut rendered = json!({ "allOf": [{ "$ref": format!("{}{name}", self.prefix) }] });
        if let Some(NodeType::Object(object)) = self.types.0.get(&**name).map(|it| &it.node_type) {
            patch_strategy(&mut rendered, object.patch);
        }
        rendered
    }

    fn string(&self, format: Option<&str>) -> Value {
        match format {
            None => json!({ "type": "string" }),
            // `micro-time` is a project-specific name for a date-time.
            Some("micro-time") => json!({ "type": "string", "format": "date-time" }),
            Some(format) => json!({ "type": "string", "format": format }),
        }
    }

    fn object(&mut self, object: &ObjectNode) -> Value {
        let mut rendered = json!({ "type": "object" });
        if !object.fields.is_empty() {
            let fields = object.fields.iter().map(|(name, field)| (name.clone(), self.node(field)));
            rendered["properties"] = Value::Object(fields.collect());
        }
        if let Some(values) = &object.additional {
            rendered["additionalProperties"] = self.node(values);
        }
        if object.preserves_unknown {
            rendered["x-kubernetes-preserve-unknown-fields"] = json!(true);
        }
        if !object.required.is_empty() {
            rendered["required"] = json!(object.required);
        }
        if object.map_type == MapType::Atomic {
            rendered["x-kubernetes-map-type"] = json!("atomic");
        }
        patch_strategy(&mut rendered, object.patch);
        rendered
    }

    fn list(&mut self, list: &ListNode) -> Value {
        let mut rendered = json!({ "type": "array", "items": self.node(&list.items) });
        match &list.list_type {
            ListType::Atomic => {}
            ListType::Set => rendered["x-kubernetes-list-type"] = json!("set"),
            ListType::Map(keys) => {
                rendered["x-kubernetes-list-type"] = json!("map");
                rendered["x-kubernetes-list-map-keys"] = keys.iter().map(|it| json!(**it)).collect();
            }
        }
        if let Some(key) = &list.merge_key {
            rendered["x-kubernetes-patch-merge-key"] = json!(**key);
        }
        patch_strategy(&mut rendered, list.patch);
        rendered
    }
}

fn patch_strategy(rendered: &mut Value, patch: PatchStrategy) {
    let all = [("merge", patch.merge), ("retainKeys", patch.retain_keys), ("replace", patch.replace)];
    let spelled: Vec<_> = all.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect();
    if !spelled.is_empty() {
        rendered["x-kubernetes-patch-strategy"] = json!(spelled.join(","));
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(it) => !it,
        Value::Number(it) => it.as_f64() == Some(0.0),
        Value::String(it) => it.is_empty(),
        Value::Array(it) => it.is_empty(),
        Value::Object(it) => it.is_empty(),
    }
}
