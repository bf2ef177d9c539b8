//! One version of a custom kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::correlated::Correlated;
use super::error::FieldError;
use super::rule::{Rule, list, texts};
use super::scale::Scale;
use super::{scale, validate};
use crate::check::{self, Decoded, Strictness, TypeError};
use crate::node::{ListNode, ListType, MapType, Node, NodeType, ObjectNode, PatchStrategy, Schema, Types};
use crate::{Catalog, ResourceInfo};

/// Name of upstream's type for object metadata.
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// One version of a custom kind.
#[derive(Clone, Debug)]
pub struct CustomVersion {
    /// Resource in this version, for the catalog.
    pub resource: ResourceInfo,
    /// Whether it is served.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// Warning in responses of this version, if it is deprecated.
    pub deprecation_warning: Option<String>,
    /// Additional columns of tables, as defined; if empty, only the age is shown.
    pub columns: Vec<PrinterColumn>,
    /// Whether `status` is a subresource.
    pub has_status: bool,
    /// `scale` subresource.
    pub scale: Option<Scale>,
    /// Paths of fields that field selectors can use, such as `.spec.color`.
    pub selectable_fields: Vec<String>,
    /// The schema, with the validation rules, which are not evaluated here.
    pub schema: Value,
    /// Path of the schema in upstream's errors; `None` if its errors are those of the first version.
    pub schema_path: Option<String>,
    rule: Rule,
}

/// A column of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrinterColumn {
    /// Column heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// OpenAPI format of the value; often empty.
    pub format: String,
    /// Description of the column.
    pub description: String,
    /// Priority; columns above 0 are only in wide tables.
    pub priority: i32,
    /// Path of the value, such as `.spec.replicas`.
    pub json_path: String,
}

impl CustomVersion {
    /// Builds a version from a validated definition.
    pub(super) fn of(
        version: &Value,
        resource: ResourceInfo,
        schema: &Value,
        schema_path: Option<String>,
    ) -> CustomVersion {
        let empty = Map::new();
        let fields = version.as_object().unwrap_or(&empty);
        let flag = |name: &str| fields.get(name) == Some(&Value::Bool(true));
        let text =
            |of: &Value, name: &str| of.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let column = |column: &Value| PrinterColumn {
            name: text(column, "name"),
            kind: text(column, "type"),
            format: text(column, "format"),
            description: text(column, "description"),
            priority: column
                .get("priority")
                .and_then(Value::as_i64)
                .and_then(|it| i32::try_from(it).ok())
                .unwrap_or(0),
            json_path: text(column, "jsonPath"),
        };
        let scale = |scale: &Value| Scale {
            spec_replicas_path: text(scale, "specReplicasPath"),
            status_replicas_path: text(scale, "statusReplicasPath"),
            label_selector_path: Some(text(scale, "labelSelectorPath")).filter(|path| !path.is_empty()),
        };
        let warning = || {
            let given = fields.get("deprecationWarning").and_then(Value::as_str).map(str::to_owned);
            let ResourceInfo { group, version, kind, .. } = &resource;
            given.unwrap_or_else(|| format!("{group}/{version} {kind} is deprecated"))
        };
        let subresource =
            |name: &str| version.get("subresources").and_then(|it| it.get(name)).filter(|it| !it.is_null());
        CustomVersion {
            served: flag("served"),
            storage: flag("storage"),
            deprecation_warning: flag("deprecated").then(warning),
            columns: list(fields, "additionalPrinterColumns").iter().map(column).collect(),
            has_status: subresource("status").is_some(),
            scale: subresource("scale").map(scale),
            selectable_fields: list(fields, "selectableFields")
                .iter()
                .map(|field| text(field, "jsonPath"))
                .collect(),
            rule: root_rule(schema),
            schema: schema.clone(),
            schema_path,
            resource,
        }
    }

    /// Drops and reports fields that the schema does not define, as upstream's `fieldValidation` and pruning. Metadata
    /// get the form of built-in kinds, and whole numbers lose their decimal point.
    pub fn decode(&self, value: &mut Value, strictness: Strictness) -> Decoded {
        prune(&self.resource.schema, value, strictness)
    }

    /// Drops nulls where they are not permitted, and adds defaults where the parent of a missing field exists.
    pub fn apply_defaults(&self, value: &mut Value) {
        let schema = &self.resource.schema;
        drop_nulls(&schema.root, value);
        check::apply_defaults(schema, value);
    }

    /// Returns the object and the object before an update, for comparisons of their parts.
    pub fn correlate<'a>(&'a self, value: &'a Value, old: &'a Value) -> Correlated<'a> {
        Correlated { rule: &self.rule, value, old }
    }

    /// Returns the errors of an object according to its schema. Metadata and names are not checked. An update, which
    /// passes the object before it, keeps invalid parts that it does not change.
    pub fn validate(&self, value: &Value, before: Option<&Value>) -> Vec<FieldError> {
        let mut errors = validate::value(&self.rule, value, before);
        errors.extend(self.scale.iter().flat_map(|it| scale::errors(it, value)));
        errors
    }
}

/// Drops and reports fields that a schema does not define.
pub(super) fn prune(schema: &Schema, value: &mut Value, strictness: Strictness) -> Decoded {
    let mut pruner =
        Pruner { types: &schema.types, strictness, path: String::new(), decoded: Decoded::default() };
    pruner.value(&schema.root, value);
    pruner.decoded.unknown_fields.sort();
    pruner.decoded
}

/// Returns the rule of the root, without metadata.
fn root_rule(schema: &Value) -> Rule {
    let mut rule = Rule::of(schema);
    if let Some(metadata) = rule.properties.get_mut("metadata") {
        metadata.additional = None;
        metadata.kinds.clear();
    }
    rule
}

/// Returns the type that a structural schema describes.
pub(super) fn schema_of(schema: &Value) -> Schema {
    let types = Catalog::built_in().iter().next().map(|it| Arc::clone(&it.schema.types)).unwrap_or_default();
    let mut root = node_of(schema);
    add_identity(&mut root);
    Schema { types, root: Arc::new(root) }
}

/// Adds kind and metadata to objects, independent of their schema.
fn add_identity(node: &mut Node) {
    if let NodeType::Object(object) = &mut node.node_type {
        let place = |node_type: NodeType| Node { node_type, nullable: false, ..Node::anything() };
        object.fields.insert("apiVersion".to_owned(), place(NodeType::String(None)));
        object.fields.insert("kind".to_owned(), place(NodeType::String(None)));
        object.fields.insert("metadata".to_owned(), place(NodeType::Ref(OBJECT_META.into())));
    }
}

fn node_of(schema: &Value) -> Node {
    let Value::Object(fields) = schema else { return Node::anything() };
    let flag = |name: &str| fields.get(name) == Some(&Value::Bool(true));
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let format = || text("format").map(Arc::from);
    let preserves = flag("x-kubernetes-preserve-unknown-fields");
    let node_type = match text("type") {
        _ if flag("x-kubernetes-int-or-string") => NodeType::IntOrString,
        Some("array") => NodeType::List(list_of(fields)),
        Some("string") => NodeType::String(format()),
        Some("integer") => NodeType::Integer(format()),
        Some("number") => NodeType::Number,
        Some("boolean") => NodeType::Boolean,
        Some("object") => NodeType::Object(object_of(fields, preserves)),
        _ if fields.contains_key("properties") => NodeType::Object(object_of(fields, preserves)),
        _ => NodeType::Any,
    };
    let mut node = Node {
        node_type,
        nullable: flag("nullable"),
        default: fields.get("default").filter(|it| !it.is_null()).cloned(),
        enumeration: list(fields, "enum").to_vec(),
        ..Node::anything()
    };
    if flag("x-kubernetes-embedded-resource") {
        add_identity(&mut node);
    }
    node
}

fn object_of(fields: &Map<String, Value>, preserves_unknown: bool) -> ObjectNode {
    let properties = fields.get("properties").and_then(Value::as_object);
    let properties: BTreeMap<_, _> =
        properties.into_iter().flatten().map(|(name, schema)| (name.clone(), node_of(schema))).collect();
    let additional = match fields.get("additionalProperties") {
        Some(schema @ Value::Object(_)) => Some(Box::new(node_of(schema))),
        Some(Value::Bool(true)) => Some(Box::new(Node::anything())),
        _ => None,
    };
    let atomic = fields.get("x-kubernetes-map-type").is_some_and(|it| it == "atomic");
    ObjectNode {
        fields: properties,
        additional,
        preserves_unknown,
        required: texts(fields, "required").into_iter().collect(),
        map_type: if atomic { MapType::Atomic } else { MapType::Granular },
        patch: PatchStrategy::default(),
    }
}

fn list_of(fields: &Map<String, Value>) -> ListNode {
    let list_type = match fields.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(
            texts(fields, "x-kubernetes-list-map-keys").iter().map(|key| key.as_str().into()).collect(),
        ),
        _ => ListType::Atomic,
    };
    ListNode {
        items: Box::new(fields.get("items").map_or_else(Node::anything, node_of)),
        list_type,
        patch: PatchStrategy::default(),
        merge_key: None,
    }
}

/// Drops fields that a schema does not define.
struct Pruner<'a> {
    types: &'a Arc<Types>,
    strictness: Strictness,
    path: String,
    decoded: Decoded,
}

impl Pruner<'_> {
    fn value(&mut self, node: &Node, value: &mut Value) {
        let length = self.path.len();
        match (&node.node_type, &mut *value) {
            (NodeType::Ref(_), metadata) => self.metadata(node, metadata),
            (NodeType::Object(object), Value::Object(fields)) => {
                for (name, mut value) in std::mem::take(fields) {
                    if length > 0 {
                        self.path.push('.');
                    }
                    self.path.push_str(&name);
                    match object.fields.get(&name).or(object.additional.as_deref()) {
                        Some(node) => self.value(node, &mut value),
                        None if object.preserves_unknown => whole_numbers(&mut value),
                        None => {
                            if self.strictness != Strictness::Ignore {
                                self.decoded.unknown_fields.push(self.path.clone());
                            }
                            value = Value::Null;
                        }
                    }
                    let known = object.fields.contains_key(&name)
                        || object.additional.is_some()
                        || object.preserves_unknown;
                    if known {
                        fields.insert(name, value);
                    }
                    self.path.truncate(length);
                }
            }
            (NodeType::List(list), Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.path.push_str(&format!("[{index}]"));
                    self.value(&list.items, item);
                    self.path.truncate(length);
                }
            }
            // Validation reports values of the wrong type.
            (NodeType::Any, other) => whole_numbers(other),
            (NodeType::Object(object), other) if object.preserves_unknown => whole_numbers(other),
            (_, other) => {
                self.undescribed(other);
                whole_numbers(other);
            }
        }
    }

    /// Drops and reports all fields of a value whose schema describes none.
    fn undescribed(&mut self, value: &mut Value) {
        let length = self.path.len();
        match value {
            Value::Object(fields) => {
                for (name, _) in std::mem::take(fields) {
                    if self.strictness != Strictness::Ignore {
                        let dot = if length > 0 { "." } else { "" };
                        self.decoded.unknown_fields.push(format!("{}{dot}{name}", self.path));
                    }
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.path.push_str(&format!("[{index}]"));
                    self.undescribed(item);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn metadata(&mut self, node: &Node, metadata: &mut Value) {
        let schema = Schema { types: Arc::clone(self.types), root: Arc::new(node.clone()) };
        let given = metadata.clone();
        let decoded = check::decode(&schema, metadata, self.strictness);
        let at = |path: &str| format!("{}.{path}", self.path);
        let unknown = decoded.unknown_fields.iter().map(|path| at(path));
        self.decoded.unknown_fields.extend(unknown);
        for error in decoded.errors {
            // Upstream reports errors in the object's own metadata in Go's format, and errors in embedded metadata as
            // field errors.
            let message = match self.path.as_str() {
                "metadata" => error.message,
                path => format!("{path}: Invalid value: {given}: {}", error.message),
            };
            self.decoded.errors.push(TypeError { path: at(&error.path), message, ends_decoding: false });
        }
    }
}

/// Converts `2.0` to `2`, as Go does.
fn whole_numbers(value: &mut Value) {
    /// All whole numbers below this limit are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < EXACT);
            if let Some(whole) = whole.and_then(|number| format!("{number:.0}").parse::<i64>().ok()) {
                *value = Value::from(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

fn drop_nulls(node: &Node, value: &mut Value) {
    match (&node.node_type, value) {
        (NodeType::Object(object), Value::Object(fields)) => {
            fields.retain(|name, value| {
                let node = object.fields.get(name).or(object.additional.as_deref());
                let Some(node) = node else { return true };
                drop_nulls(node, value);
                !value.is_null() || node.nullable
            });
        }
        (NodeType::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| drop_nulls(&list.items, item));
        }
        _ => {}
    }
}
