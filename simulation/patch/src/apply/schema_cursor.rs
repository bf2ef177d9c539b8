//! Ownership rules of a type: the granularity of ownership, and the identity of list items.
//!
//! For untyped values, maps are granular and all other values are owned as a whole, as upstream deduces it. Only
//! upstream's `RawExtension` is always owned as a whole. Untyped values in built-in kinds are of this type, except in
//! custom resource definitions.

use std::sync::Arc;

use serde_json::{Map, Value};
use windlass_schema::{ListNode, ListType, MapType, Node, NodeType, ObjectNode, OmitPolicy, Schema, Types};

use super::element::{PathElement, Scalar};
use super::go_format;

/// A type that is owned as a whole although it is untyped.
pub(super) const OPAQUE: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// Name prefix of the built-in types whose untyped values are of this type.
const BUILT_IN: &str = "io.k8s.api.";

static ANYTHING: Node = Node::anything();

/// One position in a type, with references resolved.
#[derive(Clone, Copy)]
pub(super) struct SchemaCursor<'a> {
    types: &'a Types,
    node: &'a Node,
    /// Node of the field; a reference hides the default of its target type.
    field: &'a Node,
    opaque: bool,
    /// Whether the position is in a built-in type.
    built_in: bool,
}

/// Granularity of ownership of a value.
pub(super) enum FieldOwnership<'a> {
    /// The whole value has one set of owners.
    Whole,
    /// Each field has its own owners.
    Fields,
    /// Each item has its own owners.
    Items(&'a ListNode),
}

impl<'a> SchemaCursor<'a> {
    pub(super) fn root(schema: &'a Schema) -> SchemaCursor<'a> {
        SchemaCursor::at(&schema.types, &schema.root, false)
    }

    fn at(types: &'a Types, field: &'a Node, mut built_in: bool) -> SchemaCursor<'a> {
        let (mut node, mut opaque) = (field, false);
        while let NodeType::Ref(name) = &node.node_type {
            opaque |= &**name == OPAQUE;
            built_in = name.starts_with(BUILT_IN);
            node = types.0.get(&**name).unwrap_or(&ANYTHING);
        }
        opaque |= built_in && matches!(node.node_type, NodeType::Any);
        SchemaCursor { types, node, field, opaque, built_in }
    }

    fn inner(self, field: &'a Node) -> SchemaCursor<'a> {
        SchemaCursor::at(self.types, field, self.built_in)
    }

    fn anything(self) -> SchemaCursor<'a> {
        SchemaCursor { node: &ANYTHING, field: &ANYTHING, opaque: false, built_in: false, ..self }
    }

    pub(super) fn node_type(&self) -> &'a NodeType {
        &self.node.node_type
    }

    pub(super) fn object(&self) -> Option<&'a ObjectNode> {
        match &self.node.node_type {
            NodeType::Object(object) => Some(object),
            _ => None,
        }
    }

    /// Returns the granularity of ownership of a value. For a value of the wrong type, the type decides.
    pub(super) fn form(&self, value: &Value) -> FieldOwnership<'a> {
        match &self.node.node_type {
            _ if self.opaque => FieldOwnership::Whole,
            NodeType::Any if value.is_object() => FieldOwnership::Fields,
            NodeType::Object(object) if object.map_type == MapType::Granular => FieldOwnership::Fields,
            NodeType::List(list) if list.list_type != ListType::Atomic => FieldOwnership::Items(list),
            _ => FieldOwnership::Whole,
        }
    }

    /// Returns whether the value is untyped.
    pub(super) fn is_anything(&self) -> bool {
        !self.opaque && matches!(self.node.node_type, NodeType::Any)
    }

    /// Returns the position of a field or key, or `None` if the type does not have it.
    pub(super) fn known_field(&self, name: &str) -> Option<SchemaCursor<'a>> {
        let Some(object) = self.object() else { return Some(self.anything()) };
        if let Some(field) = object.fields.get(name) {
            return Some(self.inner(field));
        }
        match &object.additional {
            Some(additional) => Some(self.inner(additional)),
            None if object.preserves_unknown || object.fields.is_empty() => Some(self.anything()),
            None => None,
        }
    }

    /// Returns the position of a field or key; fields that the type does not have are untyped.
    pub(super) fn field(&self, name: &str) -> SchemaCursor<'a> {
        self.known_field(name).unwrap_or_else(|| self.anything())
    }

    /// Returns whether the type declares this field, so that it is not a key of a map.
    pub(super) fn names(&self, name: &str) -> bool {
        self.object().is_some_and(|object| object.fields.contains_key(name))
    }

    /// Returns the value of an absent field: its zero value, if upstream's types always write it.
    pub(super) fn absent(&self) -> Option<Value> {
        match self.field.presence {
            OmitPolicy::AsGiven | OmitPolicy::NonZero => None,
            OmitPolicy::AlwaysOrNull => Some(Value::Null),
            OmitPolicy::Always => Some(match &self.node.node_type {
                NodeType::Object(_) => Value::Object(Map::new()),
                NodeType::String(_) => Value::from(""),
                NodeType::Integer(_) | NodeType::Number | NodeType::IntOrString => Value::from(0),
                NodeType::Boolean => Value::Bool(false),
                NodeType::Quantity => Value::from("0"),
                NodeType::Any | NodeType::Ref(_) | NodeType::List(_) => Value::Null,
            }),
        }
    }

    pub(super) fn list(&self) -> Option<&'a ListNode> {
        match &self.node.node_type {
            NodeType::List(list) => Some(list),
            _ => None,
        }
    }

    /// Returns the position of the items of a list.
    pub(super) fn items(&self, list: &'a ListNode) -> SchemaCursor<'a> {
        self.inner(&list.items)
    }

    /// Returns the path element of an item, or the reason why it has none.
    pub(super) fn item_element(&self, list: &'a ListNode, item: &Value) -> Result<PathElement, String> {
        match &list.list_type {
            ListType::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            ListType::Set => set_element(item),
            ListType::Map(keys) => self.items(list).keyed_element(keys, item),
        }
    }

    fn keyed_element(&self, names: &[Arc<str>], item: &Value) -> Result<PathElement, String> {
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut keys = Vec::with_capacity(names.len());
        for name in names {
            if let Some(value) = fields.get(&**name).or_else(|| self.key_default(name)) {
                keys.push((name.clone(), Scalar(value.clone())));
            }
        }
        if keys.is_empty() {
            let names: Vec<_> = names.iter().map(|name| go_format::quoted(name)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                 values for any key fields)",
                names.join(" ")
            ));
        }
        keys.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(PathElement::Key(keys))
    }

    /// Returns the default of a missing key, unless the default is null.
    fn key_default(&self, name: &str) -> Option<&'a Value> {
        static EMPTY: Value = Value::String(String::new());
        let field = self.object()?.fields.get(name)?;
        // The tables contain no defaults that decoding does not add.
        let is_reference =
            matches!(&self.field.node_type, NodeType::Ref(of) if of.ends_with(".v1.LocalObjectReference"));
        let default = field.default.as_ref().filter(|default| !default.is_null());
        default.or(if is_reference && self.built_in { Some(&EMPTY) } else { None })
    }

    /// Returns whether a list within the value has an item without an identity.
    pub(super) fn has_unkeyed_items(self, value: &Value) -> bool {
        match (self.form(value), value) {
            (FieldOwnership::Fields, Value::Object(fields)) => {
                fields.iter().any(|(name, value)| self.field(name).has_unkeyed_items(value))
            }
            (FieldOwnership::Items(list), Value::Array(items)) => items.iter().any(|item| {
                self.item_element(list, item).is_err() || self.items(list).has_unkeyed_items(item)
            }),
            _ => false,
        }
    }
}

fn set_element(item: &Value) -> Result<PathElement, String> {
    match item {
        Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
        Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
        Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
        value => Ok(PathElement::Value(Scalar(value.clone()))),
    }
}
