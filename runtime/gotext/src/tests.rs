//! Vectors that were computed with upstream's functions of v1.36.

use std::cmp::Ordering;

use serde_json::{Value, json};

use crate::fields::types;
use crate::quantity::{GoQuantity, QuantityError};
use crate::{dump_template, equal_templates, fnv1_32, fnv1a_32, safe_encode, template_hash};

fn small() -> Value {
    json!({
        "metadata": { "labels": { "app": "web", "b": "2" } },
        "spec": {
            "containers": [{
                "name": "c", "image": "nginx", "resources": { "requests": { "cpu": "100m", "memory": "64Mi" } },
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "imagePullPolicy": "Always",
            }],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "securityContext": {}, "schedulerName": "default-scheduler",
        },
    })
}

fn empty() -> Value {
    json!({ "spec": { "containers": null } })
}

fn large() -> Value {
    let environment = json!([{
        "name": "A", "valueFrom": { "configMapKeyRef": { "name": "n", "key": "k", "optional": false } },
    }]);
    let preference = json!({ "matchExpressions": [{ "key": "k", "operator": "In", "values": ["a", "b"] }] });
    json!({ "spec": {
        "containers": [{
            "name": "c", "env": environment, "envFrom": [{ "secretRef": { "name": "s" } }],
            "volumeMounts": [{ "name": "v", "mountPath": "/m" }],
            "securityContext": { "capabilities": { "add": ["X", "Y"] }, "runAsUser": 1000 },
        }],
        "volumes": [{ "name": "v", "emptyDir": {} }],
        "affinity": { "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "preference": preference }],
        } },
    } })
}

/// Returns a template with empty lists and maps, with quantities as an API server returns them.
fn with_empty_fields() -> Value {
    let limits = json!({ "cpu": "1500m", "memory": "1536Mi", "x": "100Ti", "y": "1536Mi" });
    json!({
        "metadata": { "labels": { "app": "web" }, "annotations": {} },
        "spec": {
            "nodeSelector": {}, "tolerations": [],
            "containers": [{
                "name": "c", "args": [], "securityContext": {}, "resources": { "limits": limits, "requests": {} },
            }],
            "volumes": [{ "name": "v", "emptyDir": {} }],
        },
    })
}

#[test]
fn template_hashes_equal_upstream_vectors() {
    let cases = [
        (small(), 3779, 1_779_788_882, ["5ccfcdddd6", "5fb785dcc4", "79744d5647"]),
        (empty(), 1977, 4_130_463_924, ["85748b7f68", "777dfcd544", "b54bc767c"]),
        (large(), 5940, 255_553_637, ["699997b7c", "56d9d586cc", "845855f584"]),
    ];
    for (template, length, sum, hashes) in cases {
        let text = dump_template(&template).expect("a template");
        assert_eq!((text.len(), fnv1a_32(text.as_bytes())), (length, sum), "{text}");
        let computed =
            [None, Some(0), Some(1)].map(|count| template_hash(&template, count).expect("a template"));
        assert_eq!(computed, hashes);
    }
}

#[test]
fn empty_lists_and_maps_hash_like_missing_ones() {
    let text = dump_template(&with_empty_fields()).expect("a template");
    assert_eq!((text.len(), fnv1a_32(text.as_bytes())), (5440, 1_602_112_402), "{text}");
    assert_eq!(template_hash(&with_empty_fields(), None), Ok("5b46556846".to_owned()));
    assert_eq!(template_hash(&with_empty_fields(), Some(0)), Ok("7b958b858b".to_owned()));
}

#[test]
fn revision_vectors_need_the_other_variant_of_the_hash() {
    assert_eq!(fnv1_32(b"{}0"), 777_742_067);
    assert_eq!(safe_encode(&fnv1_32(b"{}0").to_string()), "cccc864bc");
    assert_ne!(fnv1a_32(b"{}0"), 777_742_067);
}

#[test]
fn digits_map_to_letters_that_form_no_words() {
    assert_eq!(safe_encode("0123456789"), "456789bcdf");
}

#[test]
fn quantities_print_as_upstream_holds_them() {
    let small = |value: i64, scale: i32, cache: &str, format: &str| {
        format!(
            "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
             d:(resource.infDecAmount){{Dec:(*inf.Dec)<nil>}} s:(string){cache} Format:(resource.Format){format}}}"
        )
    };
    let cases = [
        ("64Mi", small(67_108_864, 0, "", "BinarySI")),
        ("100Mi", small(104_857_600, 0, "100Mi", "BinarySI")),
        ("1Gi", small(1 << 30, 0, "1Gi", "BinarySI")),
        ("100m", small(100, -3, "100m", "DecimalSI")),
        ("1.5", small(15, -1, "", "DecimalSI")),
        ("1e3", small(1, 3, "1e3", "DecimalExponent")),
        ("1000", small(1000, 0, "", "DecimalSI")),
        ("128974848", small(128_974_848, 0, "128974848", "DecimalSI")),
        ("0", small(0, 0, "0", "DecimalSI")),
    ];
    for (text, expected) in cases {
        assert_eq!(GoQuantity::parse(text).expect(text).to_string(), expected, "{text}");
    }
    for (text, words) in [("1.5Gi", "1610612736000000000"), ("100Ti", "8568098291072368640 5960")] {
        let printed = GoQuantity::parse(text).expect(text).to_string();
        assert!(printed.contains(&format!("abs:(big.nat)[{words}]}} scale:(inf.Scale)9}}")), "{printed}");
    }
}

#[test]
fn quantities_compare_by_value() {
    let equal =
        [("1", "1000m"), ("1Gi", "1024Mi"), ("1.5Gi", "1536Mi"), ("1e3", "1k"), ("0", "0Mi"), ("-0", "0")];
    for (one, other) in equal {
        let (one, other) = (GoQuantity::parse(one).expect(one), GoQuantity::parse(other).expect(other));
        assert_eq!(one.compare(&other), Ordering::Equal, "{one} {other}");
    }
    for (less, more) in [("1", "1001m"), ("-1", "0"), ("-2", "-1"), ("100Ti", "101Ti"), ("1n", "2n")] {
        let (less, more) = (GoQuantity::parse(less).expect(less), GoQuantity::parse(more).expect(more));
        assert_eq!(less.compare(&more), Ordering::Less, "{less} {more}");
        assert_eq!(more.compare(&less), Ordering::Greater, "{less} {more}");
    }
}

/// Each row has an input and the response of Kubernetes 1.36.3.
#[test]
fn quantities_have_upstreams_canonical_form() {
    let cases = [
        ("1e4", "10e3"),
        ("1.5e3", "1500"),
        ("0.1", "100m"),
        ("100", "100"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("12000", "12k"),
        ("0.0001", "100u"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("1024", "1024"),
        ("1Ki", "1Ki"),
        ("1023", "1023"),
        ("512Mi", "512Mi"),
        ("0.5Gi", "512Mi"),
        ("1025Mi", "1025Mi"),
        ("1.1Ki", "1126400m"),
        ("100E", "100E"),
        ("1E", "1E"),
        ("2E3", "2E3"),
        ("+1", "+1"),
        ("1.", "1."),
        (".5", "500m"),
        (".", "0"),
        (" 1 ", "1"),
        ("0", "0"),
        ("0Gi", "0"),
        ("1e-3", "1e-3"),
        ("1e-10", "1e-9"),
        ("9223372036854775808", "9223372036854775808"),
        ("18446744073709551616Ki", "9223372036854775807"),
        ("123456789.123456789123", "123456789123456790n"),
        ("-0.5", "-500m"),
        ("1e-2000000000", "1e-9"),
    ];
    for (given, expected) in cases {
        let canonical = GoQuantity::parse(given).map(|it| it.canonical());
        assert_eq!(canonical.as_deref(), Ok(expected), "{given}");
    }
    for given in ["", "1x", "x", "1 2"] {
        assert_eq!(GoQuantity::parse(given), Err(QuantityError::Malformed), "{given}");
    }
    for given in ["1eK", "1Mi1", "1e", "1Kii", "--1"] {
        assert_eq!(GoQuantity::parse(given), Err(QuantityError::UnknownSuffix), "{given}");
    }
}

#[test]
fn malformed_values_are_errors() {
    for (text, error) in [
        ("", QuantityError::Malformed),
        ("1x", QuantityError::Malformed),
        ("1e", QuantityError::UnknownSuffix),
        ("1e999999", QuantityError::UnknownSuffix),
        ("--1", QuantityError::UnknownSuffix),
        ("1mk", QuantityError::UnknownSuffix),
        ("Ei", QuantityError::NoNumber),
        (&"1".repeat(10_001), QuantityError::NoNumber),
    ] {
        assert_eq!(GoQuantity::parse(text), Err(error), "{text}");
    }
    assert!(dump_template(&json!({ "spec": [] })).is_err());
    assert!(dump_template(&json!({ "spec": { "containers": [{ "name": 1 }] } })).is_err());
}

#[test]
fn table_contains_every_type_that_it_refers_to() {
    assert!(types().field_types().count() > 500);
    for go_type in types().field_types() {
        let innermost = go_type.trim_start_matches(['*', '[', ']']);
        assert!(types().shape(innermost).is_some(), "{go_type}");
    }
}

fn with_container(container: &Value) -> Value {
    json!({ "spec": { "containers": [container] } })
}

#[test]
fn templates_are_equal_if_they_mean_the_same() {
    let equal = [
        (json!({ "args": [] }), json!({})),
        (json!({ "image": "" }), json!({})),
        (json!({ "resources": {} }), json!({})),
        (json!({ "resources": { "limits": {} } }), json!({})),
        (
            json!({ "resources": { "limits": { "cpu": "1", "memory": "1Gi" } } }),
            json!({ "resources": { "limits": { "cpu": "1000m", "memory": "1024Mi" } } }),
        ),
        (json!({ "env": [{ "name": "A", "value": "" }] }), json!({ "env": [{ "name": "A" }] })),
    ];
    for (one, other) in equal {
        assert!(equal_templates(&with_container(&one), &with_container(&other)), "{one} {other}");
    }
    let different = [
        (json!({ "securityContext": {} }), json!({})),
        (json!({ "args": ["a"] }), json!({ "args": ["b"] })),
        (json!({ "args": ["a", "b"] }), json!({ "args": ["b", "a"] })),
        (
            json!({ "resources": { "limits": { "cpu": "1" } } }),
            json!({ "resources": { "limits": { "cpu": "1001m" } } }),
        ),
        (json!({ "resources": { "limits": { "cpu": "0" } } }), json!({})),
        (json!({ "securityContext": { "runAsUser": 0 } }), json!({ "securityContext": {} })),
    ];
    for (one, other) in different {
        assert!(!equal_templates(&with_container(&one), &with_container(&other)), "{one} {other}");
    }
}
