use serde_json::{Value, json};

use super::{apply, expect_object, merge, unknown_fields};
use crate::PatchError;

fn patched(document: Value, patch: Value) -> Result<Value, String> {
    apply(&document, &patch).map_err(|error| error.to_string())
}

#[test]
fn operations_follow_the_standard() {
    let cases = [
        (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": 2}]), json!({"a": 1, "b": 2})),
        (json!({"a": [1, 3]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), json!({"a": [1, 2, 3]})),
        (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), json!({"a": [1, 2]})),
        (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/0"}]), json!({"a": [2]})),
        (json!({"a": {"b/c": 1}}), json!([{"op": "remove", "path": "/a/b~1c"}]), json!({"a": {}})),
        (json!({"a~": 1}), json!([{"op": "replace", "path": "/a~0", "value": null}]), json!({"a~": null})),
        (json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/b"}]), json!({"b": 1})),
        (json!({"a": 1}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), json!({"a": 1, "b": 1})),
        (json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 1}]), json!({"a": 1})),
        (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {"b": 1}}]), json!({"b": 1})),
        (json!({"a": 1}), json!([]), json!({"a": 1})),
    ];
    for (document, patch, expected) in cases {
        assert_eq!(patched(document, patch.clone()), Ok(expected), "{patch}");
    }
}

#[test]
fn operations_have_upstreams_deviations() {
    let cases = [
        (json!({}), json!([{"op": "replace", "path": "/a", "value": 1}]), json!({"a": 1})),
        (json!({}), json!([{"op": "test", "path": "/a", "value": null}]), json!({})),
        (json!({}), json!([{"op": "test", "path": "/a"}]), json!({})),
        (json!({"a": [1, 2]}), json!([{"op": "add", "path": "/a/-1", "value": 3}]), json!({"a": [1, 2, 3]})),
        (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}]), json!({"a": [1]})),
        (json!({"a": [1, 2]}), json!([{"op": "replace", "path": "/a/-2", "value": 0}]), json!({"a": [0, 2]})),
        (json!({}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), json!({"b": null})),
    ];
    for (document, patch, expected) in cases {
        assert_eq!(patched(document, patch.clone()), Ok(expected), "{patch}");
    }
}

#[test]
fn inapplicable_operation_is_rejected_and_named() {
    let cases = [
        (json!([{"op": "remove", "path": "/x"}]), "nonexistent key: x"),
        (json!([{"op": "remove", "path": "/x/y"}]), "missing path: /x/y"),
        (json!([{"op": "remove", "path": ""}]), "missing path"),
        (json!([{"op": "add", "path": "/x/y", "value": 1}]), "missing path: /x/y"),
        (json!([{"op": "add", "path": "/a/5", "value": 1}]), "invalid index: 5"),
        (json!([{"op": "add", "path": "/a/z", "value": 1}]), "proper array index: 'z'"),
        (json!([{"op": "replace", "path": "/a/2", "value": 1}]), "invalid index: 2"),
        (json!([{"op": "replace", "path": "", "value": 1}]), "must be object or array"),
        (json!([{"op": "test", "path": "/a", "value": 1}]), "testing value /a failed"),
        (json!([{"op": "frobnicate", "path": "/a"}]), "Unexpected kind: frobnicate"),
        (json!([{"path": "/a"}]), "Unexpected kind: unknown"),
        (json!([{"op": "add", "value": 1}]), "failed to decode path"),
        (json!([{"op": "move", "path": "/a"}]), "failed to decode from"),
    ];
    for (patch, expected) in cases {
        match apply(&json!({"a": [1, 2]}), &patch) {
            Err(PatchError::Inapplicable(message)) => {
                assert!(message.contains(expected), "{patch}: {message}");
            }
            other => panic!("{patch}: {other:?}"),
        }
    }
}

#[test]
fn invalid_patch_is_malformed() {
    let cases = [
        (
            json!({}),
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            json!(["x"]),
            "error decoding patch: json: cannot unmarshal string into Go value of type handlers.jsonPatchOp",
        ),
        (
            json!([{"op": 1}]),
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        ),
    ];
    for (patch, expected) in cases {
        assert_eq!(apply(&json!({}), &patch), Err(PatchError::Malformed(expected.to_owned())));
    }
    assert!(expect_object(&json!({})).is_ok());
    assert_eq!(
        expect_object(&json!([])).map_err(|error| error.to_string()),
        Err("error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}".to_owned())
    );
}

#[test]
fn patches_have_limits() {
    let operations = vec![json!({"op": "test", "path": "/a", "value": null}); 10_001];
    assert_eq!(
        patched(json!({}), Value::Array(operations)),
        Err("The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned())
    );
    let doubling = vec![json!({"op": "copy", "from": "/a", "path": "/a/-"}); 60];
    assert!(
        patched(json!({"a": ["text"]}), Value::Array(doubling))
            .is_err_and(|error| error.contains("exceeding the limit"))
    );
}

/// Returns nested objects.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!({"a": inner}))
}

#[test]
fn patches_cannot_exceed_the_depth_of_parsed_json() {
    let deep = "/a".repeat(100);
    let refused = |document: &Value, patch: Value, depth: usize| {
        let result = patched(document.clone(), patch);
        let expected = format!("would be nested {depth} deep, at most 127");
        assert!(result.as_ref().is_err_and(|it| it.ends_with(&expected)), "{result:?}");
    };
    for kind in ["add", "replace"] {
        let put = |depth| json!([{"op": kind, "path": deep, "value": nested(depth)}]);
        assert!(patched(nested(100), put(27)).is_ok(), "{kind}");
        refused(&nested(100), put(28), 128);
    }
    for kind in ["move", "copy"] {
        let document = |depth| json!({"a": nested(99), "b": nested(depth), "c": {"d": nested(depth)}});
        for from in ["/b", "/c/d"] {
            let bring = json!([{"op": kind, "path": deep, "from": from}]);
            assert!(patched(document(27), bring.clone()).is_ok(), "{kind} {from}");
            refused(&document(28), bring, 128);
        }
    }
}

#[test]
fn value_can_be_moved_back_and_forth_without_limit() {
    let document = json!({"a": nested(99), "b": nested(27)});
    let deep = "/a".repeat(100);
    let there = json!({"op": "move", "from": "/b", "path": deep});
    let back = json!({"op": "move", "from": deep, "path": "/b"});
    let moves: Vec<_> = (0..1000).flat_map(|_| [there.clone(), back.clone()]).collect();
    let moved = patched(document, Value::Array(moves)).expect("the depth stays constant");
    assert_eq!(moved["b"], nested(27));
}

#[test]
fn repeated_moves_cannot_exceed_the_depth_limit() {
    // Each round moves the whole content into a new list.
    let wrap = [
        json!({"op": "add", "path": "/b", "value": []}),
        json!({"op": "move", "from": "/a", "path": "/b/0"}),
        json!({"op": "move", "from": "/b", "path": "/a"}),
    ];
    let wraps = |times| Value::Array((0..times).flat_map(|_| wrap.clone()).collect());
    assert!(patched(json!({"a": 1}), wraps(126)).is_ok());
    for times in [127, 3333] {
        assert!(
            patched(json!({"a": 1}), wraps(times)).is_err_and(|it| it.contains("would be nested 128 deep"))
        );
    }
}

#[test]
fn other_patches_do_not_increase_depth() {
    let merged = merge(&nested(127), &json!({"b": nested(126), "a": {"b": nested(125)}}));
    assert_eq!(super::depth(&merged), 127);
}

#[test]
fn unknown_fields_of_operations_are_named() {
    let patch = json!([{"op": "test", "path": "/a"}, {"op": "test", "path": "/a", "foo": 1}]);
    assert_eq!(unknown_fields(&patch), ["json patch unknown field \"[1].foo\""]);
}

#[test]
fn merge_patches_follow_the_standard() {
    let cases = [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        (json!({}), json!({"a": [{"b": null}, null]}), json!({"a": [{}, null]})),
    ];
    for (document, patch, expected) in cases {
        assert_eq!(merge(&document, &patch), expected, "{patch}");
    }
}
