//! Type descriptions: trees of nodes, with named references for shared and recursive types.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

/// A type description: its root, and the named types that it refers to. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schema {
    /// Named types.
    pub types: Arc<Types>,
    /// Root of the type; often a [`NodeType::Ref`].
    pub root: Arc<Node>,
}

/// Named types, such as `io.k8s.api.core.v1.PodSpec`.
#[derive(Debug, Default)]
pub struct Types(pub BTreeMap<String, Node>);

/// One node of a type.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Type of the value.
    pub node_type: NodeType,
    /// Whether `null` is permitted.
    pub nullable: bool,
    /// Default of a missing value.
    pub default: Option<Value>,
    /// Permitted values, if not empty. For built-in kinds upstream only documents them and checks them in the
    /// validation of each kind; for custom kinds they are enforced.
    pub enumeration: Vec<Value>,
    /// Whether an empty value is written.
    pub presence: OmitPolicy,
    /// Declaration of the field in Go; `None` for items, map values and custom kinds.
    pub go: Option<Arc<GoField>>,
}

/// Declaration of a field in upstream's Go types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoField {
    /// Place in the order of declaration, in which upstream writes fields.
    pub position: usize,
    /// Name of the type, if it has a name without being a struct; otherwise empty.
    pub go_type: String,
    /// Embedded structs that declare the field; empty for a field of the struct itself.
    pub embedded: String,
}

/// Condition for writing a field, according to the tags of upstream's Go types in a round trip. Items, map values,
/// roots, and all fields of custom kinds are [`OmitPolicy::AsGiven`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OmitPolicy {
    /// Written if present, including zero values (a pointer with `omitempty`); `null` counts as absent.
    #[default]
    AsGiven,
    /// Written if not a zero value: false, 0, empty text, an empty list or map (`omitempty`, `omitzero`).
    NonZero,
    /// Always written, as the zero value if absent: a scalar or a struct without `omitempty`. The zero value is then
    /// also the node's default, unless upstream has another default.
    Always,
    /// Always written, as `null` if absent: a list, map, time or pointer without `omitempty`. An empty list or map also
    /// becomes `null`, because upstream's storage format for built-in kinds does not distinguish them.
    AlwaysOrNull,
}

/// Type of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeType {
    /// Any value, kept unchanged: raw extensions, JSON, fields that preserve unknown parts.
    Any,
    /// A named type.
    Ref(Arc<str>),
    /// Named fields, or a map.
    Object(ObjectNode),
    /// A list.
    List(ListNode),
    /// Text, with its format if set: `date-time` (whole seconds), `micro-time` (upstream's `MicroTime`, with six digits
    /// after the second), `byte`, ...
    String(Option<Arc<str>>),
    /// A whole number, with its format (`int32`, `int64`) if set.
    Integer(Option<Arc<str>>),
    /// Any number.
    Number,
    /// True or false.
    Boolean,
    /// A whole number or text, such as a port.
    IntOrString,
    /// A quantity: text, or a number that is converted to one.
    Quantity,
}

/// Named fields, or a map from any key to one type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectNode {
    /// Fields by name.
    pub fields: BTreeMap<String, Node>,
    /// Type of all other keys, for maps.
    pub additional: Option<Box<Node>>,
    /// Whether unknown fields are kept.
    pub preserves_unknown: bool,
    /// Required fields.
    pub required: BTreeSet<String>,
    /// Whether server-side apply tracks ownership per field or of the whole object.
    pub map_type: MapType,
    /// Strategy of strategic merge for this object as a field of its parent.
    pub patch: PatchStrategy,
}

/// Granularity of ownership of a map or struct in server-side apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapType {
    /// Each field has its own owners.
    #[default]
    Granular,
    /// The whole object has one set of owners.
    Atomic,
}

/// A list, and the rule for identifying its items.
#[derive(Clone, Debug, PartialEq)]
pub struct ListNode {
    /// Type of the items.
    pub items: Box<Node>,
    /// Identification of items in server-side apply.
    pub list_type: ListType,
    /// Strategy of strategic merge.
    pub patch: PatchStrategy,
    /// Field that identifies items in strategic merge.
    pub merge_key: Option<Arc<str>>,
}

/// Identification of list items in server-side apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// The whole list has one set of owners.
    #[default]
    Atomic,
    /// By value; items are scalars.
    Set,
    /// By the values of these fields; the defaults of the keys are in `items`.
    Map(Vec<Arc<str>>),
}

/// Value of `x-kubernetes-patch-strategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// `merge` is listed.
    pub merge: bool,
    /// `retainKeys` is listed.
    pub retain_keys: bool,
    /// `replace` is listed.
    pub replace: bool,
}

impl Schema {
    /// Returns `node` with references resolved. A reference to an undescribed type resolves to any value.
    pub fn resolve<'a>(&'a self, node: &'a Node) -> &'a Node {
        self.types.resolve(node)
    }
}

impl Types {
    /// Returns `node` with references resolved. A reference to an undescribed type resolves to any value.
    pub fn resolve<'a>(&'a self, mut node: &'a Node) -> &'a Node {
        static ANYTHING: Node = Node::anything();
        while let NodeType::Ref(name) = &node.node_type {
            match self.0.get(&**name) {
                Some(named) => node = named,
                None => return &ANYTHING,
            }
        }
        node
    }
}

impl Node {
    /// Returns a node of that type without `null` and further constraints.
    pub const fn of(node_type: NodeType) -> Node {
        Node {
            node_type,
            nullable: false,
            default: None,
            enumeration: Vec::new(),
            presence: OmitPolicy::AsGiven,
            go: None,
        }
    }

    /// Returns a node that permits any value.
    pub const fn anything() -> Node {
        let mut node = Node::of(NodeType::Any);
        node.nullable = true;
        node
    }
}
