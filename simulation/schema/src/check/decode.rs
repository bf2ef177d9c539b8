//! Implements upstream's typed round trip on values.

use serde_json::{Map, Value};
use windlass_gotext::quantity::GoQuantity;

use super::json::kind_of;
use super::time::{self, Precision};
use super::{Decoded, Strictness, TypeError, base64};
use crate::node::{ListNode, Node, NodeType, ObjectNode, OmitPolicy, Schema, Types};

/// Maximum number of reported unknown fields, as upstream.
const MAXIMUM_UNKNOWN: usize = 100;

/// Converts a value to its form after upstream's decoder and encoder: drops unknown fields, nulls, and fields that
/// `omitempty` omits, and converts quantities and times. Values of the wrong type are reported and kept.
pub fn decode(schema: &Schema, value: &mut Value, strictness: Strictness) -> Decoded {
    run(schema, value, strictness, false)
}

/// Converts a value to its form after upstream has stored and read it: like [`decode`], and an empty list or map that
/// is always written is null.
pub fn store(schema: &Schema, value: &mut Value) {
    run(schema, value, Strictness::Ignore, true);
}

fn run(schema: &Schema, value: &mut Value, strictness: Strictness, is_stored: bool) -> Decoded {
    let mut decoder = Decoder {
        types: &schema.types,
        reports_unknown: strictness != Strictness::Ignore,
        path: String::new(),
        field: String::new(),
        owner: "",
        go_type: "",
        is_stored,
        ends_decoding: false,
        decoded: Decoded::default(),
    };
    decoder.value(&schema.root, value);
    decoder.decoded
}

/// Adds the defaults of the type where the parent of a missing field exists, and `null` where upstream writes it for a
/// missing value.
pub fn apply_defaults(schema: &Schema, value: &mut Value) {
    fill(&schema.types, &schema.root, value);
}

fn fill(types: &Types, node: &Node, value: &mut Value) {
    match (&types.resolve(node).node_type, value) {
        (NodeType::Object(object), Value::Object(fields)) => {
            for (name, field) in &object.fields {
                match (&field.default, fields.get_mut(name)) {
                    (_, Some(value)) if !value.is_null() || field.nullable => fill(types, field, value),
                    (Some(default), _) => {
                        let mut value = default.clone();
                        fill(types, field, &mut value);
                        fields.insert(name.clone(), value);
                    }
                    (None, None) if field.presence == OmitPolicy::AlwaysOrNull => {
                        fields.insert(name.clone(), Value::Null);
                    }
                    (None, _) => {}
                }
            }
            if let Some(additional) = &object.additional {
                let others = fields.iter_mut().filter(|(name, _)| !object.fields.contains_key(*name));
                others.for_each(|(_, value)| fill(types, additional, value));
            }
        }
        (NodeType::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| fill(types, &list.items, item));
        }
        _ => {}
    }
}

struct Decoder<'a> {
    types: &'a Types,
    reports_unknown: bool,
    /// Current path, with indices and keys.
    path: String,
    /// Current path in Go's form, without indices and keys.
    field: String,
    /// Type that contains the current field.
    owner: &'a str,
    /// Name of the Go type of the current value, if it has a name without being a struct.
    go_type: &'a str,
    /// Whether the result is the form of the storage.
    is_stored: bool,
    /// Whether the current value has a custom decoder.
    ends_decoding: bool,
    decoded: Decoded,
}

impl<'a> Decoder<'a> {
    fn value(&mut self, node: &'a Node, value: &mut Value) {
        let resolved = self.types.resolve(node);
        self.ends_decoding = match &resolved.node_type {
            NodeType::IntOrString | NodeType::Quantity => true,
            NodeType::String(Some(format)) => &**format != "byte",
            _ => false,
        };
        match (&resolved.node_type, &mut *value) {
            (NodeType::Any | NodeType::Ref(_), _) => {}
            (NodeType::Object(object), Value::Object(fields)) => {
                let name = if let NodeType::Ref(name) = &node.node_type { Some(&**name) } else { None };
                self.object(object, name, fields);
            }
            (NodeType::List(list), Value::Array(items)) => self.list(list, items),
            (NodeType::String(format), Value::String(text)) => self.text(format.as_deref(), text),
            (NodeType::String(Some(format)), Value::Array(items)) if &**format == "byte" => {
                if let Some(bytes) = self.bytes(items) {
                    *value = Value::String(base64::encode(&bytes));
                }
            }
            (NodeType::Integer(format), Value::Number(number)) => {
                let fits = match format.as_deref() {
                    Some("int32") => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
                    _ => number.is_i64(),
                };
                if !fits {
                    let given = format!("number {number}");
                    self.mismatch(&given, node);
                }
            }
            (NodeType::IntOrString, Value::Number(number)) => {
                if number.as_i64().is_none_or(|number| i32::try_from(number).is_err()) {
                    let given = format!("number {number}");
                    self.mismatch(&given, node);
                }
            }
            (NodeType::Number, Value::Number(_))
            | (NodeType::Boolean, Value::Bool(_))
            | (NodeType::IntOrString, Value::String(_)) => {}
            (NodeType::Quantity, quantity) => {
                let text =
                    if let Value::String(text) = quantity { text.clone() } else { quantity.to_string() };
                match GoQuantity::parse(&text) {
                    Ok(parsed) => *quantity = Value::String(parsed.canonical()),
                    Err(error) => self.error(error.to_string()),
                }
            }
            (_, other) => {
                let given = kind_of(other);
                self.mismatch(given, node);
            }
        }
    }

    fn object(&mut self, object: &'a ObjectNode, name: Option<&'a str>, fields: &mut Map<String, Value>) {
        let (owner, of_map) = (self.owner, self.go_type);
        self.owner = name.unwrap_or(owner);
        for (name, mut value) in std::mem::take(fields) {
            let (path, field) = (self.path.len(), self.field.len());
            push(&mut self.path, &name);
            let kept = match (object.fields.get(&name), &object.additional) {
                (Some(_), _) if value.is_null() => false,
                (Some(node), _) => {
                    if let Some(go) = node.go.as_ref().filter(|it| !it.embedded.is_empty()) {
                        push(&mut self.field, &go.embedded);
                    }
                    push(&mut self.field, &name);
                    self.go_type = node.go.as_ref().map_or("", |it| &it.go_type);
                    self.value(node, &mut value);
                    self.is_written(node, &mut value)
                }
                (None, Some(node)) => {
                    if value.is_null() {
                        value = self.zero(node);
                    }
                    self.go_type = of_map.split_once(']').map_or("", |it| it.1);
                    self.value(node, &mut value);
                    true
                }
                (None, None) if object.preserves_unknown => true,
                (None, None) => {
                    if self.reports_unknown && self.decoded.unknown_fields.len() < MAXIMUM_UNKNOWN {
                        self.decoded.unknown_fields.push(self.path.clone());
                    }
                    false
                }
            };
            self.path.truncate(path);
            self.field.truncate(field);
            if kept {
                fields.insert(name, value);
            }
        }
        self.owner = owner;
    }

    fn list(&mut self, list: &'a ListNode, items: &mut [Value]) {
        let path = self.path.len();
        let of_items = self.go_type.strip_prefix("[]").unwrap_or_default();
        for (index, item) in items.iter_mut().enumerate() {
            self.path.push_str(&format!("[{index}]"));
            if item.is_null() {
                *item = self.zero(&list.items);
            }
            self.go_type = of_items;
            self.value(&list.items, item);
            self.path.truncate(path);
        }
    }

    /// Returns bytes from a list of numbers, which Go's decoder accepts as well; `None` after an error.
    fn bytes(&mut self, items: &[Value]) -> Option<Vec<u8>> {
        let byte = |item: &Value| match item {
            Value::Null => Ok(0),
            Value::Number(number) => {
                let byte = number.as_u64().and_then(|it| u8::try_from(it).ok());
                byte.ok_or_else(|| format!("number {number}"))
            }
            other => Err(kind_of(other).to_owned()),
        };
        match items.iter().map(byte).collect::<Result<_, _>>() {
            Ok(bytes) => Some(bytes),
            Err(given) => {
                self.not_of_type(&given, "uint8");
                None
            }
        }
    }

    fn text(&mut self, format: Option<&str>, text: &mut String) {
        let canonical = match format {
            Some("date-time") => time::canonical(text, Precision::Second).map(Some),
            Some("micro-time") => time::canonical(text, Precision::Microsecond).map(Some),
            Some("byte") => base64::check(text).map(|()| None),
            _ => return,
        };
        match canonical {
            Ok(Some(canonical)) => *text = canonical,
            Ok(None) => {}
            Err(message) => self.error(message),
        }
    }

    /// Returns whether a field with that value is written. An empty value is replaced by the default.
    fn is_written(&self, node: &Node, value: &mut Value) -> bool {
        match (node.presence, &node.default) {
            (OmitPolicy::NonZero, _) => !is_zero(value),
            (OmitPolicy::AlwaysOrNull, _) if self.is_stored && self.is_empty_collection(node, value) => {
                *value = Value::Null;
                true
            }
            (OmitPolicy::Always, Some(default))
                if is_zero(value) && !is_zero(default) && !value.is_object() =>
            {
                *value = default.clone();
                true
            }
            _ => true,
        }
    }

    /// Returns whether a value is a list or a map without items.
    fn is_empty_collection(&self, node: &Node, value: &Value) -> bool {
        let is_struct = match &self.types.resolve(node).node_type {
            NodeType::List(_) => false,
            NodeType::Object(object) => !object.fields.is_empty(),
            _ => true,
        };
        !is_struct && is_zero(value)
    }

    /// Returns the value that upstream substitutes for a null in a list or a map.
    fn zero(&self, node: &Node) -> Value {
        match &self.types.resolve(node).node_type {
            NodeType::Any | NodeType::Ref(_) | NodeType::List(_) => Value::Null,
            NodeType::Object(object) if object.fields.is_empty() && object.additional.is_some() => {
                Value::Null
            }
            NodeType::Object(_) => Value::Object(Map::new()),
            NodeType::String(_) => Value::from(""),
            NodeType::Integer(_) | NodeType::Number | NodeType::IntOrString => Value::from(0),
            NodeType::Boolean => Value::Bool(false),
            NodeType::Quantity => Value::from("0"),
        }
    }

    fn mismatch(&mut self, given: &str, node: &Node) {
        if given == "null" {
            return;
        }
        let wanted = match self.go_type {
            "" => self.go_type(node),
            name => name.to_owned(),
        };
        self.not_of_type(given, &wanted);
    }

    fn not_of_type(&mut self, given: &str, wanted: &str) {
        let owner = last_segment(self.owner);
        let place = if self.field.is_empty() {
            "value".to_owned()
        } else {
            format!("struct field {owner}.{}", self.field)
        };
        self.error(format!("json: cannot unmarshal {given} into Go {place} of type {wanted}"));
    }

    fn error(&mut self, message: String) {
        let path = self.path.clone();
        self.decoded.errors.push(TypeError { path, message, ends_decoding: self.ends_decoding });
    }

    fn go_type(&self, node: &Node) -> String {
        match &self.types.resolve(node).node_type {
            NodeType::Object(object) => match (&node.node_type, &object.additional) {
                (_, Some(values)) if object.fields.is_empty() => {
                    format!("map[string]{}", self.go_type(values))
                }
                (NodeType::Ref(name), _) => go_name(name),
                _ => "map[string]interface {}".to_owned(),
            },
            NodeType::List(list) => format!("[]{}", self.go_type(&list.items)),
            NodeType::String(Some(format)) if &**format == "byte" => "[]uint8".to_owned(),
            NodeType::String(_) => "string".to_owned(),
            NodeType::Integer(Some(format)) if &**format == "int32" => "int32".to_owned(),
            NodeType::Integer(_) => "int64".to_owned(),
            NodeType::Number => "float64".to_owned(),
            NodeType::Boolean => "bool".to_owned(),
            // Upstream decodes any value except text as a number.
            NodeType::IntOrString => "int32".to_owned(),
            NodeType::Quantity => "resource.Quantity".to_owned(),
            NodeType::Any | NodeType::Ref(_) => "interface {}".to_owned(),
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn push(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// Returns the Go name of a type with its package: the part before the first type in its name. A field-specific variant
/// of a type contains both names, `...v1.Pod.spec.PodSpec`.
fn go_name(name: &str) -> String {
    let types = |segment: &&str| segment.starts_with(|first: char| first.is_ascii_uppercase());
    let package = name.split('.').take_while(|segment| !types(segment)).last();
    package.map_or_else(|| name.to_owned(), |package| format!("{package}.{}", last_segment(name)))
}

fn last_segment(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
