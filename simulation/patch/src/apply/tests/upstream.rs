//! Cases of structured-merge-diff's merge tests, extracted by `cases/extract.go`. Cases that need conversions between
//! versions are not in the file, which states their number per test. `ExtractApply` is a client operation (it computes
//! a configuration from an object), so its cases are skipped here.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use windlass_schema::{
    ListNode, ListType, MapType, Node, NodeType, ObjectNode, PatchStrategy, Schema, Types,
};

use super::super::element::same;
use super::super::owners::{self, Apply, ApplyFailure, Owners};
use super::super::schema_cursor::SchemaCursor;
use super::super::{FieldSet, check, compare};

const CASES: &str = include_str!("../cases/smd.json");

/// Converts structured-merge-diff's schemas.
struct Converter<'s> {
    source: BTreeMap<&'s str, &'s Value>,
}

impl Converter<'_> {
    fn schema(source: &Value, root: &Value) -> Schema {
        let definitions = source["types"].as_array().into_iter().flatten();
        let named = definitions.map(|definition| (definition["name"].as_str().unwrap(), definition));
        let converter = Converter { source: named.collect() };
        let types = converter.source.iter().map(|(name, atom)| ((*name).to_owned(), converter.atom(atom)));
        let types = Arc::new(Types(types.collect()));
        Schema { types, root: Arc::new(converter.reference(root)) }
    }

    fn reference(&self, reference: &Value) -> Node {
        let relationship = reference.get("elementRelationship").and_then(Value::as_str);
        let Some(name) = reference.get("namedType").and_then(Value::as_str) else {
            return overridden(self.atom(reference), relationship);
        };
        match (name, relationship) {
            ("__untyped_atomic_", _) => shaped(NodeType::Ref(super::super::schema_cursor::OPAQUE.into())),
            ("__untyped_deduced_", _) => Node::anything(),
            (_, None) => shaped(NodeType::Ref(name.into())),
            (_, Some(_)) => overridden(self.atom(self.source[name]), relationship),
        }
    }

    fn atom(&self, atom: &Value) -> Node {
        let (scalar, list, map) = (atom.get("scalar"), atom.get("list"), atom.get("map"));
        match (scalar, list, map) {
            (Some(_), Some(_), Some(_)) => Node::anything(),
            (Some(scalar), None, None) => shaped(match scalar.as_str().unwrap() {
                "string" => NodeType::String(None),
                "numeric" => NodeType::Number,
                "boolean" => NodeType::Boolean,
                _ => NodeType::IntOrString,
            }),
            (None, Some(list), None) => shaped(NodeType::List(self.list(list))),
            (None, None, Some(map)) => shaped(NodeType::Object(self.map(map))),
            _ => panic!("no type: {atom}"),
        }
    }

    fn list(&self, list: &Value) -> ListNode {
        let keys: Vec<Arc<str>> =
            list["keys"].as_array().into_iter().flatten().map(|key| key.as_str().unwrap().into()).collect();
        let list_type = match list.get("elementRelationship").and_then(Value::as_str) {
            Some("associative") if keys.is_empty() => ListType::Set,
            Some("associative") => ListType::Map(keys),
            _ => ListType::Atomic,
        };
        let items = Box::new(self.reference(&list["elementType"]));
        ListNode { items, list_type, patch: PatchStrategy::default(), merge_key: None }
    }

    fn map(&self, map: &Value) -> ObjectNode {
        let mut object = ObjectNode::default();
        for field in map["fields"].as_array().into_iter().flatten() {
            let mut node = self.reference(&field["type"]);
            node.default = field.get("default").cloned();
            object.fields.insert(field["name"].as_str().unwrap().to_owned(), node);
        }
        let element = map.get("elementType").filter(|it| it.as_object().is_some_and(|it| !it.is_empty()));
        object.additional = element.map(|element| Box::new(self.reference(element)));
        if map.get("elementRelationship").and_then(Value::as_str) == Some("atomic") {
            object.map_type = MapType::Atomic;
        }
        object
    }
}

fn shaped(node_type: NodeType) -> Node {
    Node { node_type, ..Node::anything() }
}

fn overridden(mut node: Node, relationship: Option<&str>) -> Node {
    match (&mut node.node_type, relationship) {
        (NodeType::Object(object), Some("atomic")) => object.map_type = MapType::Atomic,
        (NodeType::Object(object), Some(_)) => object.map_type = MapType::Granular,
        (NodeType::List(list), Some("atomic")) => list.list_type = ListType::Atomic,
        (NodeType::List(list), Some("associative")) if list.list_type == ListType::Atomic => {
            list.list_type = ListType::Set;
        }
        _ => {}
    }
    node
}

/// Object and owners while a case runs.
struct State {
    live: Value,
    owners: Owners<String>,
    ignored: BTreeMap<String, FieldSet>,
    types: Value,
    schema: Value,
}

impl State {
    fn step(&mut self, operation: &Value, schemas: &[Value]) -> Result<(), String> {
        if operation["operation"] == "schema" {
            self.schema = schemas[number(&operation["schema"])].clone();
            let types: Vec<_> = self.types.as_object().into_iter().flatten().map(|it| it.1.clone()).collect();
            let schema = Converter::schema(&self.schema, &types[0]);
            return check::check(SchemaCursor::root(&schema), &self.live, false);
        }
        let text = |name: &str| operation[name].as_str().unwrap().to_owned();
        let (version, manager) = (text("version"), text("manager"));
        let schema = Converter::schema(&self.schema, &self.types[&version]);
        let cursor = SchemaCursor::root(&schema);
        let object = &operation["object"];
        let applies = operation["operation"] != "update";
        check::check(cursor, object, !applies)?;
        let ignored = self.ignored.get(&version).cloned().unwrap_or_default();
        owners::reconcile(cursor, &mut self.owners);
        if !applies {
            let difference = compare::between(cursor, &self.live, object).without(&ignored);
            owners::update(&mut self.owners, &difference, &manager, &version, &FieldSet::new());
            self.live = object.clone();
            return Ok(());
        }
        let apply = Apply {
            config: object,
            version: &version,
            manager: &manager,
            force: operation["operation"] == "force",
            reset: &ignored,
        };
        let mut owners = self.owners.clone();
        let outcome = owners::apply(cursor, &self.live, &mut owners, &apply);
        let expected = operation["conflicts"].as_array();
        match (outcome, expected) {
            (Ok(new), None) => {
                self.owners = owners;
                self.live = new.unwrap_or_else(|| self.live.clone());
                Ok(())
            }
            (Ok(_), Some(_)) => Err("expected conflicts, found none".to_owned()),
            (Err(ApplyFailure::Merge(text)), _) => Err(text),
            (Err(ApplyFailure::Conflicts(found)), expected) => same_conflicts(&found, expected),
        }
    }
}

fn same_conflicts(
    found: &[(String, super::super::Path)],
    expected: Option<&Vec<Value>>,
) -> Result<(), String> {
    let mut found: Vec<_> = found.iter().map(|(manager, path)| (manager.clone(), path.clone())).collect();
    found.sort();
    let read = |conflict: &Value| {
        let path = FieldSet::from_fields_v1(&conflict["path"]).unwrap().paths().remove(0);
        (conflict["manager"].as_str().unwrap().to_owned(), path)
    };
    let mut expected: Vec<_> = expected.into_iter().flatten().map(read).collect();
    expected.sort();
    if found == expected { Ok(()) } else { Err(format!("conflicts: found {found:?}, expected {expected:?}")) }
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

fn run(case: &Value, schemas: &[Value]) -> Result<(), String> {
    let ignored = case["ignored"].as_object().into_iter().flatten();
    let mut state = State {
        live: Value::Null,
        owners: Owners::new(),
        ignored: ignored
            .map(|(version, set)| (version.clone(), FieldSet::from_fields_v1(set).unwrap()))
            .collect(),
        types: case["types"].clone(),
        schema: schemas[number(&case["schema"])].clone(),
    };
    for (index, operation) in case["operations"].as_array().into_iter().flatten().enumerate() {
        state.step(operation, schemas).map_err(|text| format!("operation {index}: {text}"))?;
    }
    if !case["object"].is_null() && !same(&case["object"], &state.live) {
        return Err(format!("object: found {}, expected {}", state.live, case["object"]));
    }
    if let Some(expected) = case["managed"].as_object() {
        let found: BTreeMap<_, _> = state
            .owners
            .iter()
            .map(|(name, owned)| (name.clone(), (owned.version.clone(), owned.set.clone())))
            .collect();
        let read = |(name, owned): (&String, &Value)| {
            let set = FieldSet::from_fields_v1(&owned["set"]).unwrap();
            (name.clone(), (owned["version"].as_str().unwrap().to_owned(), set))
        };
        let expected: BTreeMap<_, _> = expected.iter().map(read).collect();
        if found != expected {
            return Err(format!("managers: found {}, expected {}", shown(&found), shown(&expected)));
        }
    }
    Ok(())
}

fn shown(owners: &BTreeMap<String, (String, FieldSet)>) -> String {
    let one = |(name, (version, set)): (&String, &(String, FieldSet))| {
        format!("{name} {version} {}", set.to_fields_v1())
    };
    owners.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[test]
fn cases_of_structured_merge_diff_pass() {
    let data: Value = serde_json::from_str(CASES).unwrap();
    let schemas = data["schemas"].as_array().unwrap();
    let mut failures = Vec::new();
    let mut count = 0;
    for case in data["cases"].as_array().unwrap() {
        let operations = case["operations"].as_array().unwrap();
        if operations.iter().any(|it| it["operation"] == "extract") {
            continue;
        }
        count += 1;
        let outcome = run(case, schemas);
        if outcome.is_err() != case["fails"].as_bool().unwrap() {
            failures.push(format!("{}: {outcome:?}", case["name"]));
        }
    }
    assert!(failures.is_empty(), "{} of {count} cases\n{}", failures.len(), failures.join("\n"));
    assert!(count >= 124, "only {count} cases ran");
}
