use serde_json::{Value, json};

use super::{Decoded, Strictness, apply_defaults, decode, go_text, parse, unrecognized, version_and_kind};
use crate::{Catalog, Schema};

fn schema(group: &str, version: &str, plural: &str) -> Schema {
    Catalog::built_in().resource(group, version, plural).expect("a built-in resource").schema.clone()
}

/// Returns a pod with changed or additional fields.
fn pod(change: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    merge(&mut pod, change);
    pod
}

fn merge(target: &mut Value, change: Value) {
    match (target, change) {
        (Value::Object(target), Value::Object(change)) => {
            for (field, value) in change {
                merge(target.entry(field).or_insert(Value::Null), value);
            }
        }
        (target, change) => *target = change,
    }
}

fn decoded(mut value: Value) -> (Decoded, Value) {
    let decoded = decode(&schema("", "v1", "pods"), &mut value, Strictness::Strict);
    (decoded, value)
}

fn container(change: Value) -> Value {
    let mut container = json!({"name": "c", "image": "i"});
    merge(&mut container, change);
    json!({"spec": {"containers": [container]}})
}

/// Kubernetes 1.36.3 returned each of these messages.
#[test]
fn wrong_types_have_upstream_messages() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("cases/types.json")).expect("the table is JSON");
    for case in cases {
        let (decoded, _) = decoded(pod(case["change"].clone()));
        let messages: Vec<_> = decoded.errors.iter().map(ToString::to_string).collect();
        assert_eq!(messages, [case["error"].as_str().expect("it has an error")]);
    }
}

#[test]
fn secrets_hold_base64() {
    let cases = [
        ("%%%", Some(0)),
        ("YWI", Some(0)),
        ("YWI=", None),
        ("", None),
        ("YWJj\nYQ==", None),
        ("YQ==x", Some(4)),
    ];
    for (text, expected) in cases {
        let mut secret = json!({"data": {"a": text}});
        let decoded = decode(&schema("", "v1", "secrets"), &mut secret, Strictness::Strict);
        let expected = expected.map(|index: usize| format!("illegal base64 data at input byte {index}"));
        assert_eq!(decoded.errors.first().map(ToString::to_string), expected, "{text}");
    }
}

#[test]
fn unknown_fields_are_dropped_and_reported_with_their_paths() {
    let mut change = container(json!({"bar": 2}));
    merge(
        &mut change,
        json!({"spec": {"foo": 1, "restartpolicy": "Always"}, "metadata": {"zap": {}}, "zip": 1}),
    );
    let (decoded, value) = decoded(pod(change.clone()));
    assert_eq!(
        decoded.error_messages(
            &["spec.containers".to_owned(), "spec.foo.bar".to_owned(), "zip".to_owned()],
            &[]
        ),
        [
            "duplicate field \"spec.containers\"",
            "unknown field \"metadata.zap\"",
            "unknown field \"spec.containers[0].bar\"",
            "unknown field \"spec.foo\"",
            "unknown field \"spec.restartpolicy\"",
            "unknown field \"zip\"",
        ]
    );
    assert_eq!(value, pod(json!({})));
    let mut value = pod(change);
    let ignored = decode(&schema("", "v1", "pods"), &mut value, Strictness::Ignore);
    assert_eq!((ignored, value), (Decoded::default(), pod(json!({}))));
}

#[test]
fn at_most_a_hundred_unknown_fields_are_reported() {
    let fields =
        (0..120).map(|number| (format!("f{number:03}"), json!(1))).collect::<serde_json::Map<_, _>>();
    let (decoded, _) = decoded(pod(json!({ "spec": fields })));
    assert_eq!(decoded.unknown_fields.len(), 100);
}

#[test]
fn decode_matches_upstreams_round_trip() {
    let given = pod(json!({
        "metadata": {"annotations": {"a": null}, "labels": {}, "creationTimestamp": null},
        "spec": {
            "tolerations": [], "nodeSelector": {}, "securityContext": {}, "hostname": "", "nodeName": null,
            "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "hostNetwork": false,
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": 1500}}, {"name": "e", "emptyDir": {}}],
            "containers": [{
                "name": "c", "image": "i", "command": [null], "args": [],
                "resources": {
                    "requests": {"cpu": 0.5, "memory": "1.5Gi"},
                    "limits": {"cpu": "1000m", "memory": "2048Mi", "ephemeral-storage": "1e3"},
                },
            }],
        },
        "status": {"startTime": "2020-01-02T05:04:05.9+02:00"},
    }));
    let expected = pod(json!({
        "metadata": {"annotations": {"a": ""}},
        "spec": {
            "securityContext": {}, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1500"}}, {"name": "e", "emptyDir": {}}],
            "containers": [{
                "name": "c", "image": "i", "command": [""],
                "resources": {
                    "requests": {"cpu": "500m", "memory": "1536Mi"},
                    "limits": {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "1e3"},
                },
            }],
        },
        "status": {"startTime": "2020-01-02T03:04:05Z"},
    }));
    let (found, value) = decoded(given);
    assert_eq!(found, Decoded::default());
    assert_eq!(value, expected);
    assert_eq!(decoded(value).1, expected);
}

#[test]
fn defaults_are_set_below_existing_parents() {
    let schema = schema("apps", "v1", "deployments");
    let mut value = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    assert_eq!(decode(&schema, &mut value, Strictness::Strict), Decoded::default());
    apply_defaults(&schema, &mut value);
    assert_eq!(value["spec"]["replicas"], 1);
    assert_eq!(value["spec"]["template"]["spec"]["restartPolicy"], "Always");
    assert_eq!(value["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 30);
    assert_eq!(value["status"], json!({}));
    let once = value.clone();
    assert_eq!(decode(&schema, &mut value, Strictness::Strict), Decoded::default());
    apply_defaults(&schema, &mut value);
    assert_eq!(value, once);
}

/// Each row has an input and the response of Kubernetes 1.36.3.
#[test]
fn invalid_times_have_go_messages() {
    let layout = "\"2006-01-02T15:04:05Z07:00\"";
    let cannot = |text: &str, rest: &str, part: &str| {
        format!("parsing time \"{text}\" as {layout}: cannot parse \"{rest}\" as \"{part}\"")
    };
    let cases = [
        ("2020-01-02T03:04:05", cannot("2020-01-02T03:04:05", "", "Z07:00")),
        ("2020-01-02", cannot("2020-01-02", "", "T")),
        ("2020-13-02T03:04:05Z", "parsing time \"2020-13-02T03:04:05Z\": month out of range".to_owned()),
        ("2020-01-42T03:04:05Z", "parsing time \"2020-01-42T03:04:05Z\": day out of range".to_owned()),
        ("2020-02-30T03:04:05Z", "parsing time \"2020-02-30T03:04:05Z\": day out of range".to_owned()),
        ("2020-01-02T25:04:05Z", "parsing time \"2020-01-02T25:04:05Z\": hour out of range".to_owned()),
        ("2020-01-02 03:04:05Z", cannot("2020-01-02 03:04:05Z", " 03:04:05Z", "T")),
        ("20-1", cannot("20-1", "20-1", "2006")),
        ("2020-01-02T03:04:05+0200", cannot("2020-01-02T03:04:05+0200", "+0200", "Z07:00")),
        (
            "2020-01-02T03:04:05Zjunk",
            "parsing time \"2020-01-02T03:04:05Zjunk\": extra text: \"junk\"".to_owned(),
        ),
    ];
    for (given, expected) in cases {
        let (decoded, _) = decoded(pod(json!({"status": {"startTime": given}})));
        assert_eq!(decoded.errors.first().map(ToString::to_string), Some(expected));
    }
    let lease = |time: &str| {
        let mut lease = json!({"spec": {"renewTime": time}});
        let decoded = decode(&schema("coordination.k8s.io", "v1", "leases"), &mut lease, Strictness::Strict);
        match decoded.errors.first() {
            Some(error) => {
                Err(error.to_string().rsplit("cannot parse ").next().unwrap_or_default().to_owned())
            }
            None => Ok(lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned()),
        }
    };
    assert_eq!(lease("2020-01-02T03:04:05.123456+02:00"), Ok("2020-01-02T01:04:05.123456Z".to_owned()));
    assert_eq!(lease("2020-01-02T03:04:05Z"), Err("\"Z\" as \".000000\"".to_owned()));
    assert_eq!(lease("2020-01-02T03:04:05.1Z"), Err("\".1Z\" as \".000000\"".to_owned()));
    assert_eq!(lease("2020-01-02T03:04:05.123456789Z"), Err("\"789Z\" as \"Z07:00\"".to_owned()));
    assert_eq!(lease(""), Err("\"\" as \"2006\"".to_owned()));
}

#[test]
fn duplicate_fields_are_reported() {
    let body = br#"{"metadata":{"name":"a","name":"b"},
        "spec":{"containers":[{"image":"i","image":"j"}],"containers":[{"image":"i","image":"j"}]},
        "x":1}"#;
    let parsed = parse(body).expect("it is JSON");
    assert_eq!(parsed.duplicates, ["metadata.name", "spec.containers[0].image", "spec.containers"]);
    assert_eq!(parsed.value["metadata"]["name"], "b");
    assert_eq!(parse(b"{\"a\":\"\xff\"}").expect("it is JSON").value, json!({"a": "\u{fffd}"}));
}

#[test]
fn invalid_json_has_go_messages() {
    let cases: [(&[u8], &str); 15] = [
        (b"", "unexpected end of JSON input"),
        (b"{\"a\":", "unexpected end of JSON input"),
        (b"{\"kind\":\"Pod\",}", "invalid character '}' looking for beginning of object key string"),
        (b"not json", "invalid character 'o' in literal null (expecting 'u')"),
        (b"{} trailing", "invalid character 't' after top-level value"),
        (b"[1,]", "invalid character ']' looking for beginning of value"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"{\"a\" 1}", "invalid character '1' after object key"),
        (b"{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
        (b"'a'", "invalid character '\\'' looking for beginning of value"),
        (b"\"a\nb\"", "invalid character '\\n' in string literal"),
        (b"\"\\x\"", "invalid character 'x' in string escape code"),
        (b"\"\\u00g0\"", "invalid character 'g' in \\u hexadecimal character escape"),
        (b"-x", "invalid character 'x' in numeric literal"),
        (b"1.x", "invalid character 'x' after decimal point in numeric literal"),
    ];
    for (body, expected) in cases {
        assert_eq!(parse(body), Err(expected.to_owned()), "{}", String::from_utf8_lossy(body));
    }
    assert_eq!(
        unrecognized("Pod", b"not json", "x"),
        "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: x \
         (6e6f74206a736f6e)"
    );
    assert!(
        unrecognized("Pod", b"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",}", "x")
            .ends_with("({\"kind\":\"Pod\",\"apiVersion\":\"v1 ...)")
    );
    assert!(unrecognized("Pod", b"", "x").ends_with("(<empty>)"));
    assert_eq!(
        version_and_kind(&json!({"kind": 1})),
        Err("json: cannot unmarshal number into Go struct field .kind of type string".to_owned())
    );
    assert_eq!(version_and_kind(&json!({"kind": "Pod", "apiVersion": ""})), Ok((None, Some("Pod"))));
}

#[test]
fn bodies_with_too_deep_nesting_are_rejected() {
    let lists = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
    let objects = |depth: usize| ["{\"a\":".repeat(depth), "1".to_owned(), "}".repeat(depth)].concat();
    let both = |depth: usize| ["[{\"a\":".repeat(depth / 2), "1".to_owned(), "}]".repeat(depth / 2)].concat();
    let unended = |depth: usize| "[".repeat(depth);
    for (depth, refused) in [(126, false), (127, false), (128, true), (10_000, true), (100_000, true)] {
        for body in [lists(depth), objects(depth)] {
            let parse_error = parse(body.as_bytes()).err();
            assert_eq!(parse_error.as_deref(), refused.then_some("exceeded max depth"), "{depth}");
        }
    }
    for body in [both(100_000), unended(100_000)] {
        assert_eq!(parse(body.as_bytes()), Err("exceeded max depth".to_owned()));
    }
    assert_eq!(parse(unended(127).as_bytes()), Err("unexpected end of JSON input".to_owned()));
}

#[test]
fn decoding_every_built_in_kind_is_idempotent() {
    for resource in Catalog::built_in().iter() {
        let mut value = json!({"kind": resource.kind, "metadata": {"name": "a"}, "spec": {}});
        decode(&resource.schema, &mut value, Strictness::Strict);
        apply_defaults(&resource.schema, &mut value);
        let once = value.clone();
        let decoded = decode(&resource.schema, &mut value, Strictness::Strict);
        apply_defaults(&resource.schema, &mut value);
        assert_eq!((decoded, value), (Decoded::default(), once), "{}/{}", resource.group, resource.plural);
    }
}

#[test]
fn value_is_printed_as_in_go() {
    let patch = json!({"spec": {"replicas": 2, "x": [1, "a", null]}, "b": true});
    assert_eq!(go_text(&patch), "map[b:true spec:map[replicas:2 x:[1 a <nil>]]]");
}
