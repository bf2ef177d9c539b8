//! How a type is described: a tree of nodes, with references by name where types are shared or contain themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

/// A described type: its root, and the named types that it refers to. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The named types.
    pub types: Arc<Types>,
    /// The type itself; often a [`NodeType::Ref`].
    pub root: Arc<Node>,
}

/// Named types, such as `io.k8s.api.core.v1.PodSpec`.
#[derive(Debug, Default)]
pub struct Types(pub BTreeMap<String, Node>);

/// One place in a type.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What may stand here.
    pub shape: NodeType,
    /// Whether `null` may stand here.
    pub nullable: bool,
    /// What stands here if nothing was given.
    pub default: Option<Value>,
    /// The only values allowed, if not empty. Upstream documents these for built-in kinds and leaves it to each kind's
    /// validation to insist on them; for custom kinds they bind.
    pub enumeration: Vec<Value>,
    /// Whether it is written when it says nothing.
    pub presence: OmitPolicy,
}

/// When a field is written: what the tags of upstream's Go types make of it in a round trip. What is not a field
/// (items, values of maps, roots), and every field of a custom kind, is [`OmitPolicy::AsGiven`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OmitPolicy {
    /// Where it was given, zero values included (a pointer with `omitempty`); `null` counts as not given.
    #[default]
    AsGiven,
    /// Where it is not a zero value: false, 0, empty text, an empty list or map (`omitempty`, `omitzero`).
    NonZero,
    /// Always; where it was not given, as the zero value, which is then also the node's default unless upstream has a
    /// better one: a scalar or a struct without `omitempty`.
    Always,
    /// Always; where it was not given, as `null`: a list, map, time or pointer without `omitempty`. An empty list or map
    /// becomes `null` too, since the format that upstream stores built-in kinds in does not tell the two apart.
    AlwaysOrNull,
}

/// What may stand in one place.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeType {
    /// Anything, kept as it is: raw extensions, JSON, fields whose unknown parts are preserved.
    Any,
    /// A named type.
    Ref(Arc<str>),
    /// Fields with names, or a map.
    Object(ObjectNode),
    /// A list.
    List(ListNode),
    /// Text, with its format where one is set: `date-time` (whole seconds), `micro-time` (upstream's `MicroTime`, with
    /// six digits after the second), `byte`, ...
    String(Option<Arc<str>>),
    /// A whole number, with its format (`int32`, `int64`) where one is set.
    Integer(Option<Arc<str>>),
    /// Any number.
    Number,
    /// True or false.
    Boolean,
    /// A whole number or text: ports.
    IntOrString,
    /// A quantity: text, or a number read as one.
    Quantity,
}

/// Fields with names, or a map from any name to one type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectNode {
    /// The fields by name.
    pub fields: BTreeMap<String, Node>,
    /// The type of every other key, for maps.
    pub additional: Option<Box<Node>>,
    /// Whether unknown fields are kept.
    pub preserves_unknown: bool,
    /// The fields that must be there.
    pub required: BTreeSet<String>,
    /// Whether server-side apply owns it field by field or whole.
    pub map_type: MapType,
    /// How strategic merge treats it when it is a field of its parent.
    pub patch: PatchStrategy,
}

/// Who owns the parts of a map or struct under server-side apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapType {
    /// Each field has owners of its own.
    #[default]
    Granular,
    /// It is owned as one.
    Atomic,
}

/// A list and how its items are told apart.
#[derive(Clone, Debug, PartialEq)]
pub struct ListNode {
    /// What each item is.
    pub items: Box<Node>,
    /// How server-side apply tells its items apart.
    pub list_type: ListType,
    /// How strategic merge treats it.
    pub patch: PatchStrategy,
    /// The field by which strategic merge tells items apart.
    pub merge_key: Option<Arc<str>>,
}

/// How server-side apply tells the items of a list apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// It is owned as one.
    #[default]
    Atomic,
    /// By value; items are scalars.
    Set,
    /// By the values of these fields; the keys' defaults stand in `items`.
    Map(Vec<Arc<str>>),
}

/// `x-kubernetes-patch-strategy`.
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
    /// The node that `node` means, once references have been followed. A reference to a type that is not described
    /// means anything.
    pub fn resolve<'a>(&'a self, node: &'a Node) -> &'a Node {
        self.types.resolve(node)
    }
}

impl Types {
    /// The node that `node` means, once references have been followed. A reference to a type that is not described
    /// means anything.
    pub fn resolve<'a>(&'a self, mut node: &'a Node) -> &'a Node {
        static ANYTHING: Node = Node::anything();
        while let NodeType::Ref(name) = &node.shape {
            match self.0.get(&**name) {
                Some(named) => node = named,
                None => return &ANYTHING,
            }
        }
        node
    }
}

impl Node {
    /// A place of that shape, where `null` may not stand and about which nothing else is known.
    pub const fn of(shape: NodeType) -> Node {
        Node { shape, nullable: false, default: None, enumeration: Vec::new(), presence: OmitPolicy::AsGiven }
    }

    /// A place where anything may stand.
    pub const fn anything() -> Node {
        let mut node = Node::of(NodeType::Any);
        node.nullable = true;
        node
    }
}
