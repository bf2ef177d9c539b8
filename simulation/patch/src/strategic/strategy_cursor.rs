//! Position in a type, and the merge strategy there.

use windlass_schema::{Node, NodeType, ObjectNode, PatchStrategy, Schema, Types};

use crate::PatchError;

/// A position in a type.
#[derive(Clone, Copy, Debug)]
pub(super) struct StrategyCursor<'a> {
    types: &'a Types,
    /// Node with references resolved.
    node: &'a Node,
}

/// Merge strategy of a field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strategy<'a> {
    pub(super) patch: PatchStrategy,
    /// Field that identifies the items, for a list of maps.
    pub(super) key: Option<&'a str>,
}

impl<'a> StrategyCursor<'a> {
    pub(super) fn of(schema: &'a Schema) -> StrategyCursor<'a> {
        StrategyCursor { types: &schema.types, node: schema.resolve(&schema.root) }
    }

    /// Returns the position of a field that contains a map.
    pub(super) fn map(self, field: &str) -> Result<(StrategyCursor<'a>, Strategy<'a>), PatchError> {
        let node = self.field(field)?;
        let strategy = match &node.node_type {
            NodeType::Object(ObjectNode { patch, .. }) => Strategy { patch: *patch, key: None },
            NodeType::List(list) => Strategy { patch: list.patch, key: list.merge_key.as_deref() },
            _ => Strategy { patch: PatchStrategy::default(), key: None },
        };
        Ok((StrategyCursor { node, ..self }, strategy))
    }

    /// Returns the position of the items of a field that contains a list.
    pub(super) fn items(self, field: &str) -> Result<(StrategyCursor<'a>, Strategy<'a>), PatchError> {
        let node = self.field(field)?;
        let (items, strategy) = match &node.node_type {
            NodeType::List(list) => (
                self.types.resolve(&list.items),
                Strategy { patch: list.patch, key: list.merge_key.as_deref() },
            ),
            NodeType::Object(ObjectNode { patch, .. }) => (node, Strategy { patch: *patch, key: None }),
            _ => (node, Strategy { patch: PatchStrategy::default(), key: None }),
        };
        Ok((StrategyCursor { node: items, ..self }, strategy))
    }

    fn field(self, field: &str) -> Result<&'a Node, PatchError> {
        let node = match &self.node.node_type {
            NodeType::Object(object) => object.fields.get(field).or(object.additional.as_deref()),
            _ => None,
        };
        node.map(|node| self.types.resolve(node)).ok_or_else(|| {
            PatchError::Failed(format!("unable to find api field in struct for the json field {field:?}"))
        })
    }
}
