//! Converts sets that were written when a type was granular, after the type became atomic.

use std::borrow::Cow;

use windlass_schema::{ListType, MapType, NodeType};

use super::element::PathElement;
use super::schema_cursor::SchemaCursor;
use super::set::{FieldSet, Node};

/// Returns the set according to the current type. A change from atomic to granular needs no conversion: the owner keeps
/// the whole.
pub(super) fn with_type<'s>(cursor: SchemaCursor<'_>, set: &'s FieldSet) -> Cow<'s, FieldSet> {
    let mut changed = false;
    let mut out: Vec<Node> = Vec::new();
    for (at, node) in set.nodes.iter().enumerate() {
        let new = node_with_type(cursor, node);
        if let Some(new) = new {
            if !changed {
                out.extend_from_slice(&set.nodes[..at]);
                changed = true;
            }
            out.push(new);
        } else if changed {
            out.push(node.clone());
        }
    }
    if changed { Cow::Owned(FieldSet { nodes: out }) } else { Cow::Borrowed(set) }
}

/// Returns the node if it changes.
fn node_with_type(cursor: SchemaCursor<'_>, node: &Node) -> Option<Node> {
    if node.below.is_empty() {
        return None;
    }
    let inner = step(cursor, &node.element)?;
    if is_whole(inner) {
        return Some(Node { element: node.element.clone(), owned: true, below: FieldSet::new() });
    }
    match with_type(inner, &node.below) {
        Cow::Borrowed(_) => None,
        Cow::Owned(below) => Some(Node { element: node.element.clone(), owned: node.owned, below }),
    }
}

fn step<'a>(cursor: SchemaCursor<'a>, element: &PathElement) -> Option<SchemaCursor<'a>> {
    match (cursor.node_type(), element) {
        (NodeType::Object(_), PathElement::Field(name)) => cursor.known_field(name),
        (NodeType::List(list), _) => Some(cursor.items(list)),
        _ => None,
    }
}

fn is_whole(cursor: SchemaCursor<'_>) -> bool {
    match cursor.node_type() {
        NodeType::Object(object) => object.map_type == MapType::Atomic,
        NodeType::List(list) => list.list_type == ListType::Atomic,
        _ => false,
    }
}
