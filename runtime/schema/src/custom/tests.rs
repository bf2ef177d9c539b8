use serde_json::{Value, json};

use super::{CustomKind, CustomVersion, FieldError, accepted_status, default_definition};
use crate::check::Strictness;

/// A definition with that schema, as it is after upstream's defaults.
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

/// Schemas of `spec` and what Kubernetes 1.36.3 said of them, at the path of the schema of the whole.
#[test]
fn schemas_are_refused_in_upstreams_words() {
    let text = || json!({"type": "string"});
    let spec = ".properties[spec]";
    let cases = [
        (json!({}), spec, ".type", "Required value: must not be empty for specified object fields"),
        (json!({"type": "array"}), spec, ".items", "Required value: must be specified"),
        (
            json!({"type": "object", "oneOf": [{"type": "object", "required": ["a"]}]}),
            spec,
            ".oneOf[0].type",
            "Forbidden: must be empty to be structural",
        ),
        (
            json!({"type": "object", "properties": {"a": text()}, "additionalProperties": text()}),
            spec,
            ".additionalProperties",
            "Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            json!({"type": "array", "items": {}}),
            spec,
            ".items.type",
            "Required value: must not be empty for specified array items",
        ),
        (
            json!({"type": "int"}),
            spec,
            ".type",
            "Unsupported value: \"int\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
        ),
        (json!({"$ref": "#/x"}), spec, ".$ref", "Forbidden: $ref is not supported"),
        (
            json!({"type": "array", "uniqueItems": true, "items": text()}),
            spec,
            ".uniqueItems",
            "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
        (
            json!({"type": "string", "default": 1}),
            spec,
            ".default",
            "Invalid value: \"integer\":  in body must be of type string: \"integer\"",
        ),
        (
            json!({"type": "object", "default": {"b": 1}, "properties": {"a": text()}}),
            spec,
            ".default",
            "Invalid value: {\"b\":1}: must not have unknown fields",
        ),
        (
            json!({"type": "string", "enum": ["a"], "default": "b"}),
            spec,
            ".default",
            "Unsupported value: \"b\": supported values: \"a\"",
        ),
        (
            json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
            spec,
            ".x-kubernetes-preserve-unknown-fields",
            "Invalid value: true: must be false if x-kubernetes-int-or-string is true",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
            spec,
            ".x-kubernetes-list-map-keys",
            "Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                   "items": {"type": "object", "properties": {}}}),
            spec,
            ".x-kubernetes-list-map-keys",
            "Invalid value: [\"n\"]: entries must all be names of item properties",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                   "items": {"type": "object", "properties": {"n": text()}}}),
            spec,
            ".items.properties[n].default",
            "Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
             property",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
            spec,
            ".items.x-kubernetes-map-type",
            "Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "foo", "items": text()}),
            spec,
            ".x-kubernetes-list-type",
            "Unsupported value: \"foo\": supported values: \"atomic\", \"set\", \"map\"",
        ),
        (
            json!({"type": "object", "x-kubernetes-list-type": "set"}),
            spec,
            ".type",
            "Invalid value: \"object\": must be array if x-kubernetes-list-type is specified",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            spec,
            ".properties",
            "Required value: must not be empty if x-kubernetes-embedded-resource is true without \
             x-kubernetes-preserve-unknown-fields",
        ),
        (
            json!({"type": "object", "patternProperties": {"a": text()}}),
            spec,
            ".patternProperties",
            "Forbidden: patternProperties is not supported",
        ),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
            spec,
            ".x-kubernetes-preserve-unknown-fields",
            "Invalid value: false: must be true or undefined",
        ),
    ];
    for (schema, parent, field, message) in cases {
        let field = format!("spec.validation.openAPIV3Schema{parent}{field}");
        assert_refused(&definition(&with_spec(schema)), &[(&field, message)]);
    }
}

fn assert_refused(definition: &Value, expected: &[(&str, &str)]) {
    let errors = CustomKind::from_definition(definition).map(|_| Vec::new()).unwrap_or_else(|errors| errors);
    let told: Vec<_> = errors.iter().map(|error| (error.field.as_str(), error.message.as_str())).collect();
    assert_eq!(told, expected, "{definition}");
}

#[test]
fn roots_are_refused_in_upstreams_words() {
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
        assert_refused(&definition(&schema), &[(&format!("{root}{field}"), message)]);
    }
    let mut none = definition(&json!({}));
    none["spec"]["versions"][0]["schema"] = Value::Null;
    assert_refused(&none, &[("spec.versions[0].schema.openAPIV3Schema", "Required value")]);
    let mut two = definition(&json!({"type": "object"}));
    let mut other = two["spec"]["versions"][0].clone();
    other["name"] = json!("v2");
    other["storage"] = json!(false);
    other["schema"]["openAPIV3Schema"] = json!({"type": "string"});
    two["spec"]["versions"].as_array_mut().unwrap().push(other);
    let field = "spec.versions[1].schema.openAPIV3Schema.type";
    assert_refused(&two, &[(field, "Invalid value: \"string\": must be object at the root")]);
}

#[test]
fn good_schemas_are_not_refused() {
    let cases = [
        json!({"type": "object", "oneOf": [{"properties": {"x": {"minimum": 1}}}]}),
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]}),
        json!({"type": "string", "default": null}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
    ];
    for schema in cases {
        assert_refused(&definition(&with_spec(schema)), &[]);
    }
}

/// A change to a sound definition and what Kubernetes 1.36.3 said of it.
#[test]
fn names_versions_and_paths_are_refused_in_upstreams_words() {
    let label = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                 character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                 validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    let name = (
        "metadata.name",
        "Invalid value: \"widgets.example.com\": must be spec.names.plural+\".\"+spec.group",
    );
    let label_of = |value: &str| format!("Invalid value: {value:?}: {label}");
    let (plural, short, category, version) =
        (label_of("Widgets"), label_of("W"), label_of("A"), label_of("V1"));
    let cases = vec![
        ("/spec/group", json!(""), vec![name, ("spec.group", "Required value")]),
        (
            "/spec/group",
            json!("x"),
            vec![name, ("spec.group", "Invalid value: \"x\": should be a domain with at least one dot")],
        ),
        (
            "/spec/scope",
            json!("Foo"),
            vec![("spec.scope", "Unsupported value: \"Foo\": supported values: \"Cluster\", \"Namespaced\"")],
        ),
        ("/spec/names/plural", json!("Widgets"), vec![name, ("spec.names.plural", &plural)]),
        ("/spec/names/plural", json!(""), vec![name, ("spec.names.plural", "Required value")]),
        (
            "/spec/names/listKind",
            json!("Widget"),
            vec![("spec.names.listKind", "Invalid value: \"Widget\": kind and listKind may not be the same")],
        ),
        ("/spec/names/shortNames", json!(["W"]), vec![("spec.names.shortNames[0]", &short)]),
        ("/spec/names/categories", json!(["A"]), vec![("spec.names.categories[0]", &category)]),
        (
            "/spec/versions/0/name",
            json!("V1"),
            vec![
                ("spec.versions[0].name", &version),
                ("status.storedVersions[0]", "Invalid value: \"v1\": must appear in spec.versions"),
                ("status.storedVersions", "Invalid value: [\"v1\"]: must have the storage version V1"),
            ],
        ),
        (
            "/spec/versions/0/subresources",
            json!({"scale": {}}),
            vec![
                ("spec.subresources.scale.specReplicasPath", "Required value"),
                ("spec.subresources.scale.statusReplicasPath", "Required value"),
            ],
        ),
        (
            "/spec/versions/0/subresources",
            json!({"scale": {"specReplicasPath": "spec.x", "statusReplicasPath": ".x"}}),
            vec![
                (
                    "spec.subresources.scale.specReplicasPath",
                    "Invalid value: \"spec.x\": must be a simple json path starting with .",
                ),
                (
                    "spec.subresources.scale.statusReplicasPath",
                    "Invalid value: \".x\": should be a json path under .status",
                ),
            ],
        ),
        (
            "/spec/versions/0/additionalPrinterColumns",
            json!([{"name": "a", "type": "foo", "jsonPath": "x"}]),
            vec![
                (
                    "spec.additionalPrinterColumns[0].type",
                    "Invalid value: \"foo\": must be one of boolean,date,integer,number,string",
                ),
                (
                    "spec.additionalPrinterColumns[0].JSONPath",
                    "Invalid value: \"x\": must be a simple json path starting with .",
                ),
            ],
        ),
        (
            "/spec/versions/0/additionalPrinterColumns",
            json!([{"name": "", "type": "string", "jsonPath": ""}]),
            vec![
                ("spec.additionalPrinterColumns[0].name", "Required value"),
                ("spec.additionalPrinterColumns[0].JSONPath", "Required value"),
            ],
        ),
        (
            "/spec/conversion",
            json!({"strategy": "Webhook"}),
            vec![
                (
                    "spec.conversion.webhookClientConfig",
                    "Required value: required when strategy is set to Webhook",
                ),
                ("spec.conversion.conversionReviewVersions", "Required value"),
            ],
        ),
        (
            "/spec/conversion",
            json!({"strategy": "Foo"}),
            vec![(
                "spec.conversion.strategy",
                "Unsupported value: \"Foo\": supported values: \"None\", \"Webhook\"",
            )],
        ),
        (
            "/spec/preserveUnknownFields",
            json!(true),
            vec![(
                "spec.preserveUnknownFields",
                "Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
            )],
        ),
        (
            "/spec/versions/0/selectableFields",
            json!([{"jsonPath": ".spec.a"}]),
            vec![(
                "spec.selectableFields[0].jsonPath",
                "Invalid value: \".spec.a\": is an invalid path: does not refer to a valid field",
            )],
        ),
    ];
    for (pointer, value, expected) in cases {
        let mut changed = definition(&json!({"type": "object"}));
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap()[field] = value;
        assert_refused(&changed, &expected);
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

/// What becomes of a `spec` that also has what it must: the object, or the errors.
fn stored(version: &CustomVersion, spec: Value) -> Result<Value, Vec<(String, String)>> {
    let mut object =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.entry("must").or_insert(json!("x"));
    }
    let decoded = version.decode(&mut object, Strictness::Strict);
    assert_eq!(decoded.complaints(&[]), Vec::<String>::new());
    assert_eq!(decoded.errors, []);
    version.apply_defaults(&mut object);
    let errors = version.validate(&object);
    let told = |error: FieldError| (error.field, error.message);
    if errors.is_empty() { Ok(object["spec"].take()) } else { Err(errors.into_iter().map(told).collect()) }
}

/// Each was answered so by Kubernetes 1.36.3.
#[test]
fn objects_are_refused_in_upstreams_words() {
    let version = widget();
    let wrong = |field: &str, wanted: &str, given: &str| {
        let message =
            format!("Invalid value: {given:?}: {field} in body must be of type {wanted}: {given:?}");
        (field.to_owned(), message)
    };
    let invalid = |field: &str, value: &str, rest: &str| {
        (field.to_owned(), format!("Invalid value: {value}: {field} in body should {rest}"))
    };
    let plain = |field: &str, message: &str| (field.to_owned(), message.to_owned());
    let nameless = |message: &str| ("<nil>".to_owned(), format!("Invalid value: \"\": {message}"));
    let cases = [
        (json!({"replicas": "3"}), vec![wrong("spec.replicas", "integer", "string")]),
        (json!({"replicas": 0}), vec![invalid("spec.replicas", "0", "be greater than or equal to 1")]),
        (json!({"replicas": 11}), vec![invalid("spec.replicas", "11", "be less than or equal to 10")]),
        (
            json!({"replicas": 1.5}),
            vec![
                wrong("spec.replicas", "integer", "number"),
                nameless("Checked value must be of type integer (default format) in spec.replicas"),
            ],
        ),
        (json!({"ex": 1}), vec![invalid("spec.ex", "1", "be greater than 1")]),
        (json!({"ex": 10}), vec![invalid("spec.ex", "10", "be less than 10")]),
        (json!({"mult": 4}), vec![invalid("spec.mult", "4", "be a multiple of 3")]),
        (json!({"num": 0.1}), vec![invalid("spec.num", "0.1", "be greater than or equal to 0.5")]),
        (json!({"num": "x"}), vec![wrong("spec.num", "number", "string")]),
        (
            json!({"i32": 99_999_999_999_u64}),
            vec![nameless("Checked value must be of type integer with format int32 in spec.i32")],
        ),
        (
            json!({"i64": 1.5}),
            vec![
                wrong("spec.i64", "int64", "float64"),
                nameless("Checked value must be of type integer with format int64 in spec.i64"),
            ],
        ),
        (json!({"str": "a"}), vec![invalid("spec.str", "\"a\"", "be at least 2 chars long")]),
        (json!({"str": "abcde"}), vec![plain("spec.str", "Too long: may not be more than 4 bytes")]),
        (json!({"str": 1}), vec![wrong("spec.str", "string", "integer")]),
        (json!({"str": true}), vec![wrong("spec.str", "string", "boolean")]),
        (json!({"str": {}}), vec![wrong("spec.str", "string", "object")]),
        (json!({"str": []}), vec![wrong("spec.str", "string", "array")]),
        (json!({"pat": "A"}), vec![invalid("spec.pat", "\"A\"", "match '^[a-z]+$'")]),
        (
            json!({"en": "c"}),
            vec![plain("spec.en", "Unsupported value: \"c\": supported values: \"a\", \"b\"")],
        ),
        (json!({"eni": 3}), vec![plain("spec.eni", "Unsupported value: 3: supported values: \"1\", \"2\"")]),
        (
            json!({"en": 1}),
            vec![
                wrong("spec.en", "string", "integer"),
                plain("spec.en", "Unsupported value: 1: supported values: \"a\", \"b\""),
            ],
        ),
        (json!({"ios": true}), vec![wrong("spec.ios", "integer,string", "boolean")]),
        (json!({"ios": 1.5}), vec![wrong("spec.ios", "integer,string", "number")]),
        (json!({"b": "true"}), vec![wrong("spec.b", "boolean", "string")]),
        (json!({"date": "x"}), vec![wrong("spec.date", "date-time", "x")]),
        (json!({"ipv4": "x"}), vec![wrong("spec.ipv4", "ipv4", "x")]),
        (json!({"list": ["a"]}), vec![invalid("spec.list", "1", "have at least 2 items")]),
        (
            json!({"list": ["a", "a", "a", "a"]}),
            vec![plain("spec.list", "Too many: 4: must have at most 3 items")],
        ),
        (json!({"list": "x"}), vec![wrong("spec.list", "array", "string")]),
        (json!({"list": ["a", 1]}), vec![wrong("spec.list[1]", "string", "integer")]),
        (
            json!({"set": ["a", "a", "a", "b", "b"]}),
            vec![
                plain("spec.set[1]", "Duplicate value: \"a\""),
                plain("spec.set[4]", "Duplicate value: \"b\""),
            ],
        ),
        (
            json!({"map": [{"k": "a"}, {"k": "a"}]}),
            vec![plain("spec.map[1]", "Duplicate value: {\"k\":\"a\"}")],
        ),
        (json!({"map": [{"v": 1}]}), vec![plain("spec.map[0].k", "Required value")]),
        (
            json!({"map": ["x"]}),
            vec![
                wrong("spec.map[0]", "object", "string"),
                plain("spec.map[0]", "Invalid value: \"x\": must be an object for an array of list-type map"),
            ],
        ),
        (
            json!({"obj": {"a": "1", "b": 2, "c": 3}}),
            vec![plain("spec.obj", "Too many: 4: must have at most 2 items")],
        ),
        (json!({"obj": {"a": 1}}), vec![wrong("spec.obj.a", "string", "integer")]),
        (json!({"addl": {"x": "y"}}), vec![wrong("spec.addl.x", "integer", "string")]),
        (
            json!({"one": {}}),
            vec![
                nameless("\"spec.one\" must validate one and only one schema (oneOf). Found none valid"),
                plain("spec.one.x", "Required value"),
            ],
        ),
        (
            json!({"one": {"x": "1", "y": "2"}}),
            vec![nameless(
                "\"spec.one\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
            )],
        ),
        (
            json!({"any": {}}),
            vec![
                nameless("\"spec.any\" must validate at least one schema (anyOf)"),
                plain("spec.any.x", "Required value"),
            ],
        ),
        (
            json!({"all": {}}),
            vec![
                plain("spec.all.x", "Required value"),
                nameless("\"spec.all\" must validate all the schemas (allOf)"),
            ],
        ),
        (
            json!({"all": {"y": 1}}),
            vec![
                plain("spec.all.x", "Required value"),
                invalid("spec.all.y", "1", "be greater than or equal to 5"),
                nameless("\"spec.all\" must validate all the schemas (allOf). None validated"),
            ],
        ),
        (json!({"not": "no"}), vec![nameless("\"spec.not\" must not validate the schema (not)")]),
        (
            json!({"emb": {}}),
            vec![plain("spec.emb.apiVersion", "Required value"), plain("spec.emb.kind", "Required value")],
        ),
        (
            json!({"anyv": 3}),
            vec![
                nameless("\"spec.anyv\" must validate at least one schema (anyOf)"),
                invalid("spec.anyv", "3", "be greater than or equal to 5"),
            ],
        ),
        (json!({"nested": {}}), vec![plain("spec.nested.q", "Required value")]),
        (
            json!({"nested": {"q": "x", "l": [{"z": 1}, {"z": "a"}, {}]}}),
            vec![
                wrong("spec.nested.l[1].z", "integer", "string"),
                plain("spec.nested.l[2].z", "Required value"),
            ],
        ),
        (json!("x"), vec![wrong("spec", "object", "string")]),
    ];
    for (spec, expected) in cases {
        assert_eq!(stored(&version, spec.clone()), Err(expected), "{spec}");
    }
}

/// Given, and what Kubernetes 1.36.3 stored, beside the fields that any object has.
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
    assert_eq!((object.clone(), version.validate(&object)), (json!({"metadata": {"name": "a"}}), vec![]));
}

#[test]
fn unknown_fields_and_bad_metadata_are_told_as_upstream_tells_them() {
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
fn a_kind_tells_all_that_a_server_needs() {
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
    assert_eq!(
        kind.unchecked_rules(),
        ["spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]"]
    );
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
    let negative = version.validate(&json!({"spec": {"replicas": -1}}));
    assert_eq!(
        negative[0].to_string(),
        ".spec.replicas: Invalid value: -1: should be a non-negative integer"
    );
}

#[test]
fn a_definition_is_accepted_as_upstream_accepts_it() {
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
fn definitions_pass_the_decoder_of_built_in_kinds_and_come_out_as_they_were() {
    let catalogue = crate::Catalogue::built_in();
    let resource = catalogue
        .resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        .expect("it is built in");
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
fn formats_are_told_apart() {
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
