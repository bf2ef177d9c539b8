//! Tests of `managedFields` after writes that the recorded scripts do not cover: custom kinds, times and unusual
//! requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_schema::{
    Catalog, ListNode, ListType, Node, NodeType, ObjectNode, PatchStrategy, Schema, Types,
};

use super::super::schema_cursor::SchemaCursor;
use super::super::{
    ApplyError, FieldSet, ManagedFields, ManagedFieldsError, Manager, ManagerKey, Operation, UNOWNED,
    after_update, compare, keep_times, owners, server_side_apply,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn manager(name: &str) -> Manager {
    Manager { name: name.to_owned(), ..Manager::default() }
}

fn node(node_type: NodeType) -> Node {
    Node { node_type, ..Node::anything() }
}

fn object(fields: impl IntoIterator<Item = (&'static str, Node)>) -> Node {
    let fields = fields.into_iter().map(|(name, node)| (name.to_owned(), node)).collect();
    node(NodeType::Object(ObjectNode { fields, ..ObjectNode::default() }))
}

/// Returns a custom kind with a size, a map, a list of named items, and an untyped field.
fn widgets() -> Schema {
    let text = || node(NodeType::String(None));
    let map = ObjectNode { additional: Some(Box::new(text())), ..ObjectNode::default() };
    let parts = ListNode {
        items: Box::new(object([("name", text()), ("weight", node(NodeType::Integer(None)))])),
        list_type: ListType::Map(vec!["name".into()]),
        patch: PatchStrategy::default(),
        merge_key: None,
    };
    let spec = object([
        ("size", node(NodeType::Integer(None))),
        ("notes", node(NodeType::Object(map.clone()))),
        ("parts", node(NodeType::List(parts))),
        ("extra", Node::anything()),
    ]);
    let metadata = object([
        ("name", text()),
        ("uid", text()),
        ("generation", node(NodeType::Integer(None))),
        ("labels", node(NodeType::Object(map))),
    ]);
    let root = object([("apiVersion", text()), ("kind", text()), ("metadata", metadata), ("spec", spec)]);
    Schema { types: Arc::new(Types(BTreeMap::new())), root: Arc::new(root) }
}

fn widget(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "uid": "u"}, "spec": spec})
}

fn created(spec: Value, by: &str) -> Value {
    let mut new = widget(spec);
    after_update(&widgets(), &json!({}), &mut new, &manager(by), &FieldSet::new(), at(0));
    new
}

fn updated(live: &Value, change: impl FnOnce(&mut Value), by: &str, second: i64) -> Value {
    let mut new = live.clone();
    change(&mut new);
    after_update(&widgets(), live, &mut new, &manager(by), &FieldSet::new(), at(second));
    new
}

fn applied(live: Option<&Value>, spec: Value, by: &str, second: i64) -> Result<Value, ApplyError> {
    let mut config = widget(spec);
    config["metadata"] = json!({"name": "w"});
    server_side_apply(&widgets(), live, &config, &manager(by), &FieldSet::new(), at(second))
}

fn entries(object: &Value) -> &Value {
    &object["metadata"]["managedFields"]
}

fn fields<'o>(object: &'o Value, by: &str) -> &'o Value {
    let entries = entries(object).as_array().unwrap();
    &entries.iter().find(|entry| entry["manager"] == by).unwrap()["fieldsV1"]
}

#[test]
fn created_custom_object_has_one_entry_in_upstream_form() {
    let object = created(json!({"size": 1, "extra": {"deep": {"list": [1]}}}), "me");
    let expected = json!([{
        "manager": "me", "operation": "Update", "apiVersion": "example.com/v1", "time": "2023-11-14T22:13:20Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {".": {}, "f:size": {}, "f:extra": {".": {}, "f:deep": {".": {}, "f:list": {}}}}},
    }]);
    assert_eq!(entries(&object), &expected);
}

#[test]
fn write_without_changes_to_owned_fields_keeps_the_entries() {
    let live = created(json!({"size": 1}), "me");
    assert_eq!(updated(&live, |_| (), "other", 9), live);
    let grown = updated(&live, |new| new["metadata"]["generation"] = json!(2), "other", 9);
    assert_eq!(entries(&grown), entries(&live));
    let forgotten =
        updated(&live, |new| _ = new["metadata"].as_object_mut().unwrap().remove("managedFields"), "x", 9);
    assert_eq!(forgotten, live);
}

#[test]
fn removing_a_field_adds_no_entry() {
    let live = created(json!({"size": 1, "notes": {"a": "b"}}), "me");
    let new = updated(&live, |new| _ = new["spec"].as_object_mut().unwrap().remove("notes"), "other", 9);
    assert_eq!(fields(&new, "me"), &json!({"f:spec": {".": {}, "f:size": {}}}));
    assert_eq!(entries(&new).as_array().unwrap().len(), 1);
    assert_eq!(entries(&new)[0]["time"], "2023-11-14T22:13:20Z");
}

#[test]
fn unnamed_manager_is_unknown_and_subresource_has_its_own_entry() {
    let live = created(json!({"size": 1}), "");
    assert_eq!(entries(&live)[0]["manager"], "unknown");
    let mut new = live.clone();
    new["spec"]["size"] = json!(2);
    let through = Manager { subresource: Some("scale".to_owned()), ..Manager::default() };
    after_update(&widgets(), &live, &mut new, &through, &FieldSet::new(), at(3));
    assert_eq!(entries(&new)[1]["subresource"], "scale");
    assert_eq!(entries(&new)[1]["fieldsV1"], json!({"f:spec": {"f:size": {}}}));
}

#[test]
fn empty_list_or_empty_entry_removes_all_managers() {
    for reset in [json!([]), json!([{}])] {
        let live = created(json!({"size": 1}), "me");
        let new = updated(&live, |new| new["metadata"]["managedFields"] = reset, "other", 9);
        assert!(entries(&new).is_null());
        let later = updated(&new, |new| new["spec"]["size"] = json!(3), "other", 10);
        assert!(entries(&later).is_null());
        let applied = applied(Some(&later), json!({"size": 3}), "applier", 11).unwrap();
        let managers: Vec<_> =
            entries(&applied).as_array().unwrap().iter().map(|it| it["manager"].as_str().unwrap()).collect();
        assert_eq!(managers, ["applier", "before-first-apply"]);
    }
}

#[test]
fn invalid_entries_are_replaced_by_the_live_entries() {
    let live = created(json!({"size": 1}), "me");
    for broken in [
        json!([{"manager": "x", "operation": "Move", "apiVersion": "v1", "fieldsType": "FieldsV1"}]),
        json!([{"manager": "x", "operation": "Update", "fieldsType": "FieldsV1"}]),
        json!([{"manager": "x", "operation": "Update", "apiVersion": "v1"}]),
        json!([{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "V9"}]),
        json!([{"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"oops": {}}}]),
        json!("text"),
    ] {
        let new = updated(&live, |new| new["metadata"]["managedFields"] = broken, "other", 9);
        assert_eq!(new, live);
    }
}

#[test]
fn invalid_entries_have_upstream_errors() {
    let read =
        |entry: Value| ManagedFields::read(&json!({"metadata": {"managedFields": [entry]}})).unwrap_err();
    assert_eq!(read(json!({})), ManagedFieldsError::Operation);
    let typed = read(json!({"operation": "Apply", "apiVersion": "v1", "fieldsType": "V2"}));
    assert_eq!(typed.to_string(), r#"invalid fieldsType "V2" in managed fields entry 0"#);
}

#[test]
fn raw_extensions_are_atomic_and_untyped_custom_fields_granular() {
    let schema = Catalog::built_in().kind("apps", "v1", "ControllerRevision").unwrap().schema.clone();
    let mut new = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "r"},
        "revision": 1, "data": {"spec": {"template": 1}}});
    after_update(&schema, &json!({}), &mut new, &manager("me"), &FieldSet::new(), at(0));
    assert_eq!(fields(&new, "me"), &json!({"f:data": {}, "f:revision": {}}));
    let custom = created(json!({"extra": {"a": 1}}), "me");
    assert_eq!(fields(&custom, "me"), &json!({"f:spec": {".": {}, "f:extra": {".": {}, "f:a": {}}}}));
}

#[test]
fn eleventh_writer_merges_the_two_oldest_entries() {
    let mut live = created(json!({"notes": {}}), "w0");
    for index in 1..12 {
        let writer = format!("w{index}");
        live = updated(&live, |new| new["spec"]["notes"][&writer] = json!("x"), &writer, index);
    }
    let managers: Vec<_> =
        entries(&live).as_array().unwrap().iter().map(|it| it["manager"].as_str().unwrap()).collect();
    assert_eq!(managers, ["ancient-changes", "w3", "w4", "w5", "w6", "w7", "w8", "w9", "w10", "w11"]);
    assert_eq!(entries(&live)[0]["time"], "2023-11-14T22:13:22Z", "time of the later entry");
}

#[test]
fn apply_without_changes_changes_no_byte() {
    let first = applied(None, json!({"size": 1, "parts": [{"name": "a", "weight": 1}]}), "me", 0).unwrap();
    let again =
        applied(Some(&first), json!({"size": 1, "parts": [{"name": "a", "weight": 1}]}), "me", 9).unwrap();
    assert_eq!(serde_json::to_string(&first).unwrap(), serde_json::to_string(&again).unwrap());
}

#[test]
fn apply_of_equal_fields_shares_them_without_a_time() {
    let first = applied(None, json!({"size": 1}), "one", 0).unwrap();
    let second = applied(Some(&first), json!({"size": 1}), "two", 9).unwrap();
    assert_eq!(fields(&second, "two"), fields(&first, "one"));
    let entries = entries(&second).as_array().unwrap();
    let two = entries.iter().find(|entry| entry["manager"] == "two").unwrap();
    assert!(two.get("time").is_none(), "upstream sets no time for an apply that changes nothing");
    let third = applied(Some(&second), json!({}), "one", 10).unwrap();
    assert_eq!(third["spec"]["size"], 1, "fields of another applier stay");
}

#[test]
fn fields_no_longer_applied_are_removed_without_null() {
    let first =
        applied(None, json!({"size": 1, "notes": {"a": "b"}, "parts": [{"name": "a"}]}), "me", 0).unwrap();
    let second = applied(Some(&first), json!({"size": 1}), "me", 1).unwrap();
    assert_eq!(second["spec"], json!({"size": 1}));
}

#[test]
fn conflicts_are_listed_by_manager_and_force_takes_the_fields() {
    let live = created(json!({"size": 1, "notes": {"a": "b"}}), "me");
    let live = updated(&live, |new| new["spec"]["size"] = json!(2), "editor", 1);
    let wanted = json!({"size": 7, "notes": {"a": "z"}});
    let error = applied(Some(&live), wanted.clone(), "ci", 2).unwrap_err();
    let expected = "Apply failed with 2 conflicts: conflicts with \"editor\" using example.com/v1:\n- .spec.size\n\
                    conflicts with \"me\" using example.com/v1:\n- .spec.notes.a";
    assert_eq!(error.to_string(), expected);
    let one = applied(Some(&live), json!({"size": 7}), "ci", 2).unwrap_err().to_string();
    assert_eq!(
        one,
        "Apply failed with 1 conflict: conflict with \"editor\" using example.com/v1: .spec.size"
    );
    let mut config = widget(wanted);
    config["metadata"] = json!({"name": "w"});
    let force = Manager { force: true, ..manager("ci") };
    let forced =
        server_side_apply(&widgets(), Some(&live), &config, &force, &FieldSet::new(), at(2)).unwrap();
    assert_eq!(forced["spec"], json!({"size": 7, "notes": {"a": "z"}}));
    assert_eq!(fields(&forced, "me"), &json!({"f:spec": {".": {}, "f:notes": {}}}));
    assert_eq!(entries(&forced).as_array().unwrap().len(), 2, "a manager without fields has no entry");
}

#[test]
fn reset_paths_are_never_owned() {
    let reset = FieldSet::of_fields(&[&["spec", "notes"]]);
    let mut new = widget(json!({"size": 1, "notes": {"a": "b"}}));
    after_update(&widgets(), &json!({}), &mut new, &manager("me"), &reset, at(0));
    assert_eq!(fields(&new, "me"), &json!({"f:spec": {".": {}, "f:size": {}}}));
    let config = widget(json!({"size": 1, "notes": {"a": "b"}}));
    let applied = server_side_apply(&widgets(), None, &config, &manager("me"), &reset, at(0)).unwrap();
    assert_eq!(fields(&applied, "me"), &json!({"f:spec": {"f:size": {}}}));
}

#[test]
fn invalid_configuration_has_upstream_errors() {
    let prefix = "failed to create typed patch object (/w; example.com/v1, Kind=Widget): ";
    for (spec, text) in [
        (json!({"sise": 1}), ".spec.sise: field not declared in schema"),
        (json!({"size": "1"}), ".spec.size: expected numeric (int or float), got string"),
        (json!({"notes": 1}), ".spec.notes: expected map, got &{1}"),
        (json!({"parts": {}}), ".spec.parts: expected list, got &{map[]}"),
        (json!({"notes": {"a": 1}}), ".spec.notes.a: expected string, got &value.valueUnstructured{Value:1}"),
        (
            json!({"parts": [{"name": "a"}, {"name": "a"}]}),
            r#".spec.parts: duplicate entries for key [name="a"]"#,
        ),
        (
            json!({"parts": [{"weight": 1}]}),
            ".spec.parts: element 0: associative list with keys has an element that omits all key fields [\"name\"] \
             (and doesn't have default values for any key fields)",
        ),
    ] {
        let error = applied(None, spec, "me", 0).unwrap_err();
        assert_eq!(error, ApplyError::Invalid(format!("{prefix}{text}")));
    }
}

#[test]
fn reverted_write_creates_no_new_version() {
    let live = created(json!({"size": 1}), "me");
    let mut undone = updated(&live, |new| new["spec"]["size"] = json!(2), "me", 9);
    undone["spec"]["size"] = json!(1);
    assert_ne!(undone, live);
    keep_times(&live, &mut undone);
    assert_eq!(undone, live);
    let mut other = updated(&live, |new| new["spec"]["size"] = json!(2), "me", 9);
    let before = other.clone();
    keep_times(&live, &mut other);
    assert_eq!(other, before, "a write that changed something keeps its time");
}

/// Performs `after_update` without its shortcuts: every entry is decoded and encoded again.
fn plainly_updated(live: &Value, mut new: Value, by: &str, second: i64) -> Value {
    let schema = widgets();
    let mut managed = ManagedFields::read(live).unwrap();
    let cursor = SchemaCursor::root(&schema);
    let difference = compare::between(cursor, live, &new);
    let key = ManagerKey::new(by, Operation::Update, "example.com/v1", "");
    owners::reconcile(cursor, &mut managed.owners);
    if owners::update(&mut managed.owners, &difference, &key, "example.com/v1", &UNOWNED) {
        managed.times.insert(key, at(second));
    }
    managed.write(&mut new);
    new
}

fn spec() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![Just(None), (0..3).prop_map(|number| Some(json!(number)))];
    let notes = prop::collection::btree_map("[ab]", "[xy]", 0..3);
    let parts = prop::collection::vec(("[a-c]", prop::option::of(0..2)), 0..4);
    let extra = prop_oneof![
        Just(None),
        Just(Some(json!({}))),
        Just(Some(json!([1]))),
        Just(Some(json!({"a": {"b": 1}}))),
        Just(Some(json!({"a": 2, "c": null}))),
    ];
    (scalar, notes, parts, extra).prop_map(|(size, notes, parts, extra)| {
        let part = |(name, weight): (String, Option<i32>)| match weight {
            Some(weight) => json!({"name": name, "weight": weight}),
            None => json!({"name": name}),
        };
        let parts: Vec<_> = parts.into_iter().map(part).collect();
        let mut spec = json!({"notes": notes, "parts": parts});
        for (name, value) in [("size", size), ("extra", extra)] {
            if let Some(value) = value {
                spec[name] = value;
            }
        }
        spec
    })
}

proptest! {
    #[test]
    fn decoding_only_changed_entries_makes_no_difference(
        writes in prop::collection::vec(("[m-o]", spec()), 1..8),
    ) {
        let mut live = created(json!({"size": 0}), "first");
        for (second, (by, spec)) in (1..).zip(writes) {
            let new = updated(&live, |new| new["spec"] = spec, &by, second);
            prop_assert_eq!(&new, &plainly_updated(&live, new.clone(), &by, second));
            live = new;
        }
    }

    #[test]
    fn forced_apply_is_idempotent(live in spec(), wanted in spec()) {
        let live = created(live, "first");
        let mut config = widget(wanted);
        config["metadata"] = json!({"name": "w"});
        let force = Manager { force: true, ..manager("ci") };
        let apply = |live: &Value, second| {
            server_side_apply(&widgets(), Some(live), &config, &force, &FieldSet::new(), at(second))
        };
        // A configuration with duplicate items is rejected.
        if let Ok(once) = apply(&live, 1) {
            prop_assert_eq!(apply(&once, 2).unwrap(), once);
        }
    }
}
