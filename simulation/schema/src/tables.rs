//! Loads the built-in kinds from the tables that `cargo xtask describe` generates.
//!
//! Guarantees: the tables become nodes unchanged, and an invalid line is an error that contains it. Inconsistencies of
//! upstream are not corrected.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::catalog::{Catalog, DiscoveryOrder, ResourceInfo, SubresourceInfo};
use crate::hash::Hash;
use crate::node::{
    GoField, ListNode, ListType, MapType, Node, NodeType, ObjectNode, OmitPolicy, PatchStrategy, Schema,
    Types,
};

const RESOURCES: &str = include_str!("tables/resources.txt");
const TYPES: &str = include_str!("tables/types.txt");

impl Catalog {
    /// Returns the resources of a Kubernetes API server with default settings: every group in the versions that are
    /// enabled by default.
    ///
    /// # Panics
    /// Panics if the committed tables are invalid; a test reads all of them.
    pub fn built_in() -> Catalog {
        static BUILT_IN: OnceLock<Catalog> = OnceLock::new();
        BUILT_IN
            .get_or_init(|| {
                let tables = read().expect("the committed tables are well-formed");
                Catalog::of(tables.resources, tables.kinds, tables.order)
            })
            .clone()
    }
}

/// Parsed tables.
pub(crate) struct Tables {
    pub(crate) resources: Vec<ResourceInfo>,
    /// Schemas by group, version and kind.
    pub(crate) kinds: BTreeMap<(String, String, String), Schema>,
    pub(crate) order: DiscoveryOrder,
}

/// An invalid line.
#[derive(Debug, thiserror::Error)]
#[error("invalid line in the tables of built-in kinds: {0}; generate them with `cargo xtask describe`")]
pub(crate) struct InvalidTableLine(String);

/// Parses the tables that this crate was built with.
pub(crate) fn read() -> Result<Tables, InvalidTableLine> {
    let (types, kinds) = types(TYPES)?;
    let types = Arc::new(types);
    let kinds = kinds.into_iter().map(|(kind, name)| (kind, schema(&types, &name))).collect();
    let (resources, order) = resources(RESOURCES, &kinds)?;
    Ok(Tables { resources, kinds, order })
}

/// Returns a hash that changes with the tables.
pub(crate) fn hash() -> u64 {
    static HASH: OnceLock<u64> = OnceLock::new();
    *HASH.get_or_init(|| {
        let mut hash = Hash::default();
        // Writing to a hash is infallible.
        let _ = hash.write_str(TYPES).and_then(|()| hash.write_str(RESOURCES));
        hash.0
    })
}

fn schema(types: &Arc<Types>, name: &Arc<str>) -> Schema {
    let root = Node { nullable: true, ..Node::of(NodeType::Ref(Arc::clone(name))) };
    Schema { types: Arc::clone(types), root: Arc::new(root) }
}

type Kinds = BTreeMap<(String, String, String), Arc<str>>;

/// Properties of a field that its named type does not have, so that the type must be copied: merge strategies, and
/// nested defaults.
#[derive(Default, PartialEq)]
struct FieldOverrides {
    map_type: Option<MapType>,
    patch: PatchStrategy,
    defaults: BTreeMap<String, Value>,
}

/// Parses the types by name, and the kinds.
fn types(table: &str) -> Result<(Types, Kinds), InvalidTableLine> {
    let mut names = Names::default();
    let (mut types, mut kinds, mut particular) = (BTreeMap::new(), Kinds::new(), Vec::new());
    let mut current: Option<(&str, ObjectNode)> = None;
    for line in lines(table) {
        if let Some(head) = line.strip_prefix("type ") {
            let (name, object) = type_head(head, &mut names, &mut kinds).ok_or_else(|| meaningless(line))?;
            types.extend(current.replace((name, object)).map(named));
            continue;
        }
        let (of, object) = current.as_mut().ok_or_else(|| meaningless(line))?;
        let mut field = field(line, &mut names).ok_or_else(|| meaningless(line))?;
        field.declared.position = object.fields.len();
        if field.required {
            object.required.insert(field.name.to_owned());
        }
        let mut node = field.node;
        node.go = Some(Arc::new(field.declared));
        if let NodeType::Ref(name) = &mut node.node_type
            && field.particular != FieldOverrides::default()
        {
            // Readers of OpenAPI show the last part of a name.
            let own = name.rsplit('.').next().unwrap_or_default();
            let copy = names.shared(&format!("{of}.{}.{own}", field.name));
            particular.push((std::mem::replace(name, Arc::clone(&copy)), copy, field.particular));
        }
        object.fields.insert(field.name.to_owned(), node);
    }
    types.extend(current.map(named));
    for (name, copy, particular) in particular {
        let made = types.get(&*name).and_then(|it| copy_of(it, particular));
        types.insert(copy.to_string(), made.ok_or_else(|| meaningless(&copy))?);
    }
    Ok((Types(types), kinds))
}

fn lines(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter(|line| !line.starts_with('#'))
}

fn meaningless(line: &str) -> InvalidTableLine {
    InvalidTableLine(line.to_owned())
}

fn named((name, object): (&str, ObjectNode)) -> (String, Node) {
    (name.to_owned(), Node { nullable: true, ..Node::of(NodeType::Object(object)) })
}

fn type_head<'a>(head: &'a str, names: &mut Names, kinds: &mut Kinds) -> Option<(&'a str, ObjectNode)> {
    let mut words = head.split(' ');
    let name = words.next()?;
    let mut object = ObjectNode::default();
    for word in words {
        if word == "atomic" {
            object.map_type = MapType::Atomic;
            continue;
        }
        let mut kind = word.strip_prefix("kind=")?.splitn(3, '/').map(str::to_owned);
        kinds.insert((kind.next()?, kind.next()?, kind.next()?), names.shared(name));
    }
    Some((name, object))
}

/// A parsed field line.
struct Field<'a> {
    name: &'a str,
    node: Node,
    required: bool,
    particular: FieldOverrides,
    declared: GoField,
}

fn field<'a>(line: &'a str, names: &mut Names) -> Option<Field<'a>> {
    // JSON comes last and can contain spaces.
    let (line, default) = json::<Value>(line, " default=")?;
    let (line, defaults) = json::<BTreeMap<String, Value>>(line, " with=")?;
    let mut words = line.trim_start().split(' ');
    let name = words.next()?;
    let mut node = spelled(words.next()?, names)?;
    node.default = default;
    let particular = FieldOverrides { defaults: defaults.unwrap_or_default(), ..FieldOverrides::default() };
    let mut field = Field { name, node, required: false, particular, declared: GoField::default() };
    for word in words {
        attribute(&mut field, word, names)?;
    }
    match &mut field.node.node_type {
        NodeType::List(list) => list.patch = field.particular.patch,
        NodeType::Object(object) => {
            object.patch = field.particular.patch;
            object.map_type = field.particular.map_type.unwrap_or_default();
        }
        _ => {}
    }
    Some(field)
}

fn json<'a, T: serde::Deserialize<'a>>(line: &'a str, mark: &str) -> Option<(&'a str, Option<T>)> {
    match line.split_once(mark) {
        Some((line, text)) => Some((line, Some(serde_json::from_str(text).ok()?))),
        None => Some((line, None)),
    }
}

fn attribute(field: &mut Field<'_>, word: &str, names: &mut Names) -> Option<()> {
    match word.split_once('=') {
        None => match word {
            "required" => field.required = true,
            "nonzero" => field.node.presence = OmitPolicy::NonZero,
            "always" => field.node.presence = OmitPolicy::Always,
            "null" => field.node.presence = OmitPolicy::AlwaysOrNull,
            "atomic" => field.particular.map_type = Some(MapType::Atomic),
            "granular" => field.particular.map_type = Some(MapType::Granular),
            _ => return None,
        },
        Some(("enum", values)) => field.node.enumeration = serde_json::from_str(values).ok()?,
        Some(("go", name)) => name.clone_into(&mut field.declared.go_type),
        Some(("in", structs)) => structs.clone_into(&mut field.declared.embedded),
        Some(("patch", strategies)) => field.particular.patch = patch_strategy(strategies)?,
        Some((name @ ("list" | "key"), value)) => {
            let NodeType::List(list) = &mut field.node.node_type else { return None };
            match (name, value) {
                ("key", key) => list.merge_key = Some(names.shared(key)),
                (_, "set") => list.list_type = ListType::Set,
                (_, keys) => {
                    let keys = keys.split(',').map(|it| names.shared(it));
                    list.list_type = ListType::Map(keys.collect());
                }
            }
        }
        Some(_) => return None,
    }
    Some(())
}

fn patch_strategy(strategies: &str) -> Option<PatchStrategy> {
    let mut patch = PatchStrategy::default();
    for strategy in strategies.split(',') {
        match strategy {
            "merge" => patch.merge = true,
            "retainKeys" => patch.retain_keys = true,
            "replace" => patch.replace = true,
            _ => return None,
        }
    }
    Some(patch)
}

/// Parses a type. Go accepts `null` everywhere, and so do these nodes.
fn spelled(word: &str, names: &mut Names) -> Option<Node> {
    let node_type = if let Some(items) = word.strip_prefix("[]") {
        NodeType::List(ListNode {
            items: Box::new(spelled(items, names)?),
            list_type: ListType::Atomic,
            patch: PatchStrategy::default(),
            merge_key: None,
        })
    } else if let Some(values) = word.strip_prefix("{}") {
        NodeType::Object(ObjectNode {
            additional: Some(Box::new(spelled(values, names)?)),
            ..ObjectNode::default()
        })
    } else {
        let (scalar, format) = match word.split_once('/') {
            Some((scalar, format)) => (scalar, Some(names.shared(format))),
            None => (word, None),
        };
        match scalar {
            "any" => NodeType::Any,
            "string" => NodeType::String(format),
            "integer" => NodeType::Integer(format),
            "number" => NodeType::Number,
            "boolean" => NodeType::Boolean,
            "int-or-string" => NodeType::IntOrString,
            "quantity" => NodeType::Quantity,
            name if name.contains('.') => NodeType::Ref(names.shared(name)),
            _ => return None,
        }
    };
    Some(Node { nullable: true, ..Node::of(node_type) })
}

fn copy_of(node: &Node, particular: FieldOverrides) -> Option<Node> {
    let mut copy = node.clone();
    let NodeType::Object(object) = &mut copy.node_type else { return None };
    object.map_type = particular.map_type.unwrap_or(object.map_type);
    object.patch = particular.patch;
    for (name, default) in particular.defaults {
        object.fields.get_mut(&name)?.default = Some(default);
    }
    Some(copy)
}

/// Stores shared names once.
#[derive(Default)]
struct Names(BTreeSet<Arc<str>>);

impl Names {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.0.insert(Arc::clone(&name));
        name
    }
}

type Schemas = BTreeMap<(String, String, String), Schema>;

fn resources(table: &str, kinds: &Schemas) -> Result<(Vec<ResourceInfo>, DiscoveryOrder), InvalidTableLine> {
    let (mut resources, mut order) = (Vec::<ResourceInfo>::new(), DiscoveryOrder::default());
    let (mut group, mut version) = ("", "");
    for line in lines(table) {
        let line = line.trim_start();
        if let Some(name) = line.strip_prefix("group ") {
            group = if name == "-" { "" } else { name };
        } else if let Some(name) = line.strip_prefix("version ") {
            version = name;
            order.note(group, version);
        } else if let Some(subresource) = line.strip_prefix('/') {
            let parent = resources.last_mut().ok_or_else(|| meaningless(line))?;
            let (name, info) = subresource_of(subresource).ok_or_else(|| meaningless(line))?;
            parent.subresources.insert(name, info);
        } else {
            resources.push(resource_of(group, version, line, kinds).ok_or_else(|| meaningless(line))?);
        }
    }
    Ok((resources, order))
}

fn resource_of(group: &str, version: &str, line: &str, kinds: &Schemas) -> Option<ResourceInfo> {
    let mut words = line.split(' ');
    let (plural, kind, singular) = (words.next()?, words.next()?, words.next()?);
    let namespaced = words.next()? == "Namespaced";
    let lists: BTreeMap<_, _> = words.filter_map(|it| it.split_once('=')).collect();
    let list = |name| listed(lists.get(name).copied());
    Some(ResourceInfo {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: plural.to_owned(),
        singular: singular.to_owned(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        namespaced,
        verbs: list("verbs"),
        short_names: list("short"),
        categories: list("categories"),
        storage_version_hash: lists.get("hash").map(|it| (*it).to_owned()),
        subresources: BTreeMap::new(),
        schema: kinds.get(&(group.to_owned(), version.to_owned(), kind.to_owned()))?.clone(),
    })
}

fn subresource_of(line: &str) -> Option<(String, SubresourceInfo)> {
    let mut words = line.split(' ');
    let (name, kind) = (words.next()?, words.next()?);
    let attributes: BTreeMap<_, _> = words.filter_map(|it| it.split_once('=')).collect();
    let info = SubresourceInfo {
        group: attributes.get("group").map(|it| (*it).to_owned()),
        version: attributes.get("version").map(|it| (*it).to_owned()),
        kind: kind.to_owned(),
        verbs: listed(attributes.get("verbs").copied()),
    };
    Some((name.to_owned(), info))
}

fn listed(words: Option<&str>) -> Vec<String> {
    words.into_iter().flat_map(|it| it.split(',')).map(str::to_owned).collect()
}
