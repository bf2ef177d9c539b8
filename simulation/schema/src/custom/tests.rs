use serde_json::{Value, json};

use super::{CustomKind, CustomVersion, FieldError, accepted_status, default_definition};
use crate::check::Strictness;

/// Returns a definition with that schema after upstream's defaults.
fn definition(schema: &Value) -> Value {
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    default_definition(&mut definition);
    definition
}

fn with_spec(spec: Value) -> Value {
    json!({"type": "object", "properties": {"spec": spec}})
}

/// Each case has a schema of `spec` and the error of Kubernetes 1.36.3 at the path of the whole schema.
#[test]
fn invalid_schemas_have_upstream_errors() {
    for case in cases(include_str!("cases/schemas.json")) {
        let field = format!("spec.validation.openAPIV3Schema.properties[spec]{}", text(&case["field"]));
        assert_rejected(&definition(&with_spec(case["schema"].clone())), &[(&field, text(&case["message"]))]);
    }
}

/// Returns a table of cases. Kubernetes 1.36.3 returned the expected values.
fn cases(table: &str) -> Vec<Value> {
    serde_json::from_str(table).expect("the table is JSON")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("the table has text here")
}

/// Returns the fields and messages of a case's errors.
fn errors(case: &Value) -> Vec<(&str, &str)> {
    case["errors"]
        .as_array()
        .expect("errors")
        .iter()
        .map(|error| (text(&error[0]), text(&error[1])))
        .collect()
}

fn assert_rejected(definition: &Value, expected: &[(&str, &str)]) {
    let errors = CustomKind::from_definition(definition).map(|_| Vec::new()).unwrap_or_else(|errors| errors);
    let messages: Vec<_> =
        errors.iter().map(|error| (error.field.as_str(), error.message.as_str())).collect();
    assert_eq!(messages, expected, "{definition}");
}

#[test]
fn invalid_root_schemas_have_upstream_errors() {
    let root = "spec.validation.openAPIV3Schema";
    let cases = [
        (json!({}), ".type", "Required value: must not be empty at the root"),
        (json!({"type": "string"}), ".type", "Invalid value: \"string\": must be object at the root"),
        (
            json!({"type": "object", "additionalProperties": true}),
            ".additionalProperties",
            "Forbidden: must not be used at the root",
        ),
        (
            json!({"type": "object", "properties": {
                "metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
            ".properties[metadata]",
            "Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ),
    ];
    for (schema, field, message) in cases {
        assert_rejected(&definition(&schema), &[(&format!("{root}{field}"), message)]);
    }
    let mut none = definition(&json!({}));
    none["spec"]["versions"][0]["schema"] = Value::Null;
    assert_rejected(&none, &[("spec.versions[0].schema.openAPIV3Schema", "Required value")]);
    let mut two = definition(&json!({"type": "object"}));
    let mut other = two["spec"]["versions"][0].clone();
    other["name"] = json!("v2");
    other["storage"] = json!(false);
    other["schema"]["openAPIV3Schema"] = json!({"type": "string"});
    two["spec"]["versions"].as_array_mut().unwrap().push(other);
    let field = "spec.versions[1].schema.openAPIV3Schema.type";
    assert_rejected(&two, &[(field, "Invalid value: \"string\": must be object at the root")]);
}

#[test]
fn valid_schemas_are_accepted() {
    let cases = [
        json!({"type": "object", "oneOf": [{"properties": {"x": {"minimum": 1}}}]}),
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]}),
        json!({"type": "string", "default": null}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
    ];
    for schema in cases {
        assert_rejected(&definition(&with_spec(schema)), &[]);
    }
}

/// Each case has a change to a valid definition and the error of Kubernetes 1.36.3.
#[test]
fn invalid_names_versions_and_paths_have_upstream_errors() {
    for case in cases(include_str!("cases/definitions.json")) {
        let mut changed = definition(&json!({"type": "object"}));
        let (parent, field) = text(&case["change"]).rsplit_once('/').expect("a pointer");
        changed.pointer_mut(parent).expect("it points there")[field] = case["to"].clone();
        assert_rejected(&changed, &errors(&case));
    }
}

fn widget() -> CustomVersion {
    let text = || json!({"type": "string"});
    let number = || json!({"type": "integer"});
    let pair = |kind: &Value| json!({"x": kind, "y": kind});
    let scalars = json!({
        "must": text(), "replicas": {"type": "integer", "minimum": 1, "maximum": 10},
        "ex": {"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 10, "exclusiveMaximum": true},
        "mult": {"type": "integer", "multipleOf": 3}, "num": {"type": "number", "minimum": 0.5},
        "i32": {"type": "integer", "format": "int32"}, "i64": {"type": "integer", "format": "int64"},
        "str": {"type": "string", "minLength": 2, "maxLength": 4}, "pat": {"type": "string", "pattern": "^[a-z]+$"},
        "en": {"type": "string", "enum": ["a", "b"]}, "eni": {"type": "integer", "enum": [1, 2]},
        "ios": {"x-kubernetes-int-or-string": true}, "b": {"type": "boolean"},
        "date": {"type": "string", "format": "date-time"}, "ipv4": {"type": "string", "format": "ipv4"},
        "unknown": {"type": "string", "format": "foo"},
    });
    let lists = json!({
        "list": {"type": "array", "minItems": 2, "maxItems": 3, "items": text()},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text()},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "required": ["k"], "properties": {"k": text(), "v": number()}}},
        "obj": {"type": "object", "properties": {"a": text(), "dd": {"type": "integer", "default": 5}},
                "minProperties": 1, "maxProperties": 2, "x-kubernetes-preserve-unknown-fields": true},
        "addl": {"type": "object", "additionalProperties": number()},
    });
    let combined = json!({
        "one": {"type": "object", "properties": pair(&text()), "oneOf": [{"required": ["x"]}, {"required": ["y"]}]},
        "any": {"type": "object", "properties": pair(&text()), "anyOf": [{"required": ["x"]}, {"required": ["y"]}]},
        "all": {"type": "object", "properties": pair(&number()),
                "allOf": [{"required": ["x"]}, {"properties": {"y": {"minimum": 5}}}]},
        "not": {"type": "string", "not": {"enum": ["no"]}},
        "null": {"type": "string", "nullable": true}, "nodef": {"type": "string", "default": "q"},
        "nulldef": {"type": "string", "nullable": true, "default": "q"},
        "emb": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "free": {"x-kubernetes-preserve-unknown-fields": true},
        "anyv": {"type": "integer", "anyOf": [{"minimum": 5}, {"multipleOf": 2}]},
        "nested": {"type": "object", "required": ["q"], "properties": {"q": text(), "l": {"type": "array",
            "items": {"type": "object", "required": ["z"], "properties": {"z": number()}}}}},
    });
    let parts = [scalars, lists, combined].into_iter();
    let properties: Value = parts.flat_map(|part| part.as_object().cloned().unwrap_or_default()).collect();
    let schema = json!({"type": "object", "required": ["must"], "properties": properties});
    let kind = CustomKind::from_definition(&definition(&with_spec(schema))).expect("the definition is sound");
    assert_eq!(kind.warnings(), ["unrecognized format \"foo\""]);
    kind.served("v1").expect("it is served").clone()
}

/// Stores a `spec` with the required fields added, and returns the object or the errors.
fn stored(version: &CustomVersion, spec: Value) -> Result<Value, Vec<(String, String)>> {
    let mut object =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.entry("must").or_insert(json!("x"));
    }
    let decoded = version.decode(&mut object, Strictness::Strict);
    assert_eq!(decoded.error_messages(&[], &[]), Vec::<String>::new());
    assert_eq!(decoded.errors, []);
    version.apply_defaults(&mut object);
    let errors = version.validate(&object, None);
    let messages = |error: FieldError| (error.field, error.message);
    if errors.is_empty() {
        Ok(object["spec"].take())
    } else {
        Err(errors.into_iter().map(messages).collect())
    }
}

/// Kubernetes 1.36.3 returned each of these errors.
#[test]
fn invalid_objects_have_upstream_errors() {
    let version = widget();
    for case in cases(include_str!("cases/objects.json")) {
        let messages = stored(&version, case["spec"].clone()).expect_err("it is refused");
        let messages: Vec<_> =
            messages.iter().map(|(field, message)| (field.as_str(), message.as_str())).collect();
        assert_eq!(messages, errors(&case), "{case}");
    }
}

/// Each row has an input and the object that Kubernetes 1.36.3 stored, without the fields that every object has.
#[test]
fn objects_are_stored_with_defaults_and_without_nulls() {
    let version = widget();
    let cases = [
        (json!({"replicas": 2.0}), json!({"replicas": 2})),
        (json!({"str": null}), json!({})),
        (json!({"ios": "x"}), json!({"ios": "x"})),
        (json!({"unknown": "x"}), json!({"unknown": "x"})),
        (json!({"obj": {}}), json!({"obj": {"dd": 5}})),
        (json!({"all": {"x": 1, "y": 9}}), json!({"all": {"x": 1, "y": 9}})),
        (json!({"null": null}), json!({"null": null})),
        (json!({"nodef": null}), json!({})),
        (json!({"nulldef": null}), json!({"nulldef": null})),
        (json!({"free": {"a": [1]}}), json!({"free": {"a": [1]}})),
    ];
    for (given, expected) in cases {
        let mut whole = json!({"must": "x", "nodef": "q", "nulldef": "q"});
        for (field, value) in expected.as_object().unwrap() {
            whole[field] = value.clone();
        }
        assert_eq!(stored(&version, given), Ok(whole));
    }
    let mut object = json!({"metadata": {"name": "a"}, "spec": null});
    version.decode(&mut object, Strictness::Strict);
    version.apply_defaults(&mut object);
    assert_eq!(
        (object.clone(), version.validate(&object, None)),
        (json!({"metadata": {"name": "a"}}), vec![])
    );
}

#[test]
fn unknown_fields_and_bad_metadata_have_upstream_messages() {
    let version = widget();
    let decode = |change: Value| {
        let mut object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}});
        object.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let decoded = version.decode(&mut object, Strictness::Strict);
        let errors: Vec<_> = decoded.errors.iter().map(ToString::to_string).collect();
        (decoded.unknown_fields, errors, object)
    };
    let nested = json!({"bar": 1, "metadata": {"name": "a", "foo": 1},
        "spec": {"foo": 1, "must": "x", "nested": {"q": "x", "l": [{"z": 1, "u": 2}]}, "free": {"any": {"thing": 1}}}});
    let (unknown, errors, object) = decode(nested);
    assert_eq!(unknown, ["bar", "metadata.foo", "spec.foo", "spec.nested.l[0].u"]);
    assert_eq!(errors, Vec::<String>::new());
    let expected = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"},
        "spec": {"must": "x", "nested": {"q": "x", "l": [{"z": 1}]}, "free": {"any": {"thing": 1}}}});
    assert_eq!(object, expected);
    let unmarshal = |rest: &str| vec![format!("json: cannot unmarshal {rest}")];
    let cases = [
        (json!({"metadata": {"labels": {"x": 1}}}), unmarshal("number into Go struct field ObjectMeta.labels of type string")),
        (json!({"metadata": {"labels": "q"}}), unmarshal("string into Go struct field ObjectMeta.labels of type map[string]string")),
        (json!({"metadata": {"generation": "x"}}), unmarshal("string into Go struct field ObjectMeta.generation of type int64")),
        (
            json!({"spec": {"emb": {"metadata": {"labels": {"a": 1}}}}}),
            vec!["spec.emb.metadata: Invalid value: {\"labels\":{\"a\":1}}: json: cannot unmarshal number into Go struct field \
                  ObjectMeta.labels of type string"
                .to_owned()],
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(decode(change).1, expected);
    }
    let (unknown, ..) = decode(json!({"spec": {"emb": {"metadata": {"zz": 1}, "foo": 1}}}));
    assert_eq!(unknown, ["spec.emb.metadata.zz"]);
}

#[test]
fn custom_kind_contains_resource_columns_and_subresources() {
    let mut given = definition(&with_spec(json!({
        "type": "object", "properties": {"color": {"type": "string"}, "replicas": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.replicas > 0"}],
    })));
    given["spec"]["versions"][0]["subresources"] = json!({
        "status": {},
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                  "labelSelectorPath": ".status.selector"},
    });
    given["spec"]["versions"][0]["additionalPrinterColumns"] =
        json!([{"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1}]);
    given["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    given["spec"]["names"]["shortNames"] = json!(["wd"]);
    let kind = CustomKind::from_definition(&given).expect("the definition is sound");
    let version = kind.storage().expect("one is stored");
    let resource = &version.resource;
    assert_eq!((resource.singular.as_str(), resource.list_kind.as_str()), ("widget", "WidgetList"));
    assert_eq!((resource.namespaced, &resource.short_names[..]), (true, &["wd".to_owned()][..]));
    assert_eq!(resource.subresources.keys().collect::<Vec<_>>(), ["scale", "status"]);
    assert_eq!(version.columns[0].json_path, ".spec.color");
    assert_eq!(version.selectable_fields, [".spec.color"]);
    assert_eq!(
        version.scale.as_ref().and_then(|it| it.label_selector_path.as_deref()),
        Some(".status.selector")
    );
    assert!(version.has_status && version.deprecation_warning.is_none());
    let negative = version.validate(&json!({"spec": {"replicas": -1}}), None);
    assert_eq!(
        negative[0].to_string(),
        ".spec.replicas: Invalid value: -1: should be a non-negative integer"
    );
}

#[test]
fn definition_is_accepted_as_upstream() {
    let mut given = definition(&json!({"type": "object"}));
    assert_eq!(
        given["spec"]["names"],
        json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"})
    );
    assert_eq!(given["spec"]["conversion"], json!({"strategy": "None"}));
    let status = accepted_status(&given, "2020-01-02T03:04:05Z");
    let expected = json!({
        "conditions": [
            {"type": "NamesAccepted", "status": "True", "lastTransitionTime": "2020-01-02T03:04:05Z",
             "reason": "NoConflicts", "message": "no conflicts found"},
            {"type": "Established", "status": "True", "lastTransitionTime": "2020-01-02T03:04:05Z",
             "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"},
        ],
        "acceptedNames": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "storedVersions": ["v1"],
    });
    assert_eq!(status, expected);
    given["status"] = status;
    assert_eq!(accepted_status(&given, "2021-01-01T00:00:00Z"), expected);
}

#[test]
fn decoder_of_built_in_kinds_does_not_change_definitions() {
    let catalog = crate::Catalog::built_in();
    let resource =
        catalog.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions").expect("it is built in");
    let mut given = definition(&with_spec(json!({
        "type": "object", "default": {"a": [0]}, "properties": {
            "a": {"type": "array", "items": {"type": "integer", "enum": [0, 1]}},
            "m": {"type": "object", "additionalProperties": {"type": "string", "example": "x"}},
            "f": {"type": "object", "additionalProperties": true, "minProperties": 0},
            "ios": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        },
        "x-kubernetes-validations": [{"rule": "true", "message": "never"}],
    })));
    let before = given.clone();
    let decoded = crate::check::decode(&resource.schema, &mut given, Strictness::Strict);
    assert_eq!((decoded.unknown_fields, decoded.errors), (vec![], vec![]));
    assert_eq!(given, before);
    given["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["foo"] = json!(1);
    let decoded = crate::check::decode(&resource.schema, &mut given, Strictness::Strict);
    assert_eq!(decoded.unknown_fields, ["spec.versions[0].schema.openAPIV3Schema.properties.spec.foo"]);
}

#[test]
fn formats_match_valid_texts_only() {
    let cases = [
        ("date-time", "2020-01-02T03:04:05.5+02:00", "2020-01-02"),
        ("date", "2020-01-02", "2020-13-02"),
        ("email", "a@b.c", "a"),
        ("uri", "https://a/b", "x"),
        ("ipv6", "::1", "1.2.3.4"),
        ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
        ("mac", "00:00:5e:00:53:01", "0:0"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "x"),
        ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
        ("byte", "YWI=", "%"),
        ("duration", "1h30m", "x"),
        ("duration", "22 ns", "22 x"),
        ("hostname", "a.b-c", "_"),
        ("hexcolor", "#fff", "#ff"),
        ("k8s-short-name", "a-b", "A"),
        ("k8s-long-name", "a.b", "a..b"),
    ];
    for (format, good, bad) in cases {
        assert_eq!(super::format::holds(format, good), Some(true), "{format} {good}");
        assert_eq!(super::format::holds(format, bad), Some(false), "{format} {bad}");
    }
    assert_eq!(super::format::holds("foo", "x"), None);
}
