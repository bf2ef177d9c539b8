use serde_json::{Map, Value, json};

use super::super::{FieldReader, FieldSelector, FieldTable, LabelSelector, not_supported};
use super::{key, pod};
use crate::storage::Stored;

#[test]
fn label_selectors_match_like_upstream() {
    let labels = json!({"a": "1", "b": "", "example.com/c": "x-y_z.0", "n": "12", "in": "notin"});
    let cases = [
        ("", true),
        (" a = 1 ", true),
        ("a==1", true),
        ("a=2", false),
        ("a!=2", true),
        ("a!=1", false),
        ("missing!=1", true),
        ("a", true),
        ("!a", false),
        ("! missing", true),
        ("missing", false),
        ("b=", true),
        ("b=,a=1", true),
        ("a=", false),
        ("a in (1,2)", true),
        ("a in (2)", false),
        ("a notin (2,3)", true),
        ("a notin (1)", false),
        ("missing notin (1)", true),
        ("missing in ()", false),
        ("b in ()", true),
        ("b in (,x)", true),
        ("b in (x,)", true),
        ("b in (x,,y)", true),
        ("example.com/c=x-y_z.0", true),
        ("n>11,n<13", true),
        ("n>12", false),
        ("a>0,b>0", false),
        ("missing<5", false),
        ("in in (in,notin)", true),
        ("in=notin", true),
        ("a in (1),!missing,b", true),
        ("a,missing", false),
    ];
    for (text, expected) in cases {
        let selector =
            LabelSelector::parse(text).unwrap_or_else(|status| panic!("{text:?}: {}", status.message));
        assert_eq!(selector.matches(labels.as_object()), expected, "{text:?}");
    }
    assert!(LabelSelector::parse("!a").unwrap().matches(None));
    assert!(!LabelSelector::parse("a").unwrap().matches(Some(&Map::new())));
    assert!(LabelSelector::parse(" ").unwrap().is_empty());
}

#[test]
fn invalid_label_selectors_get_upstream_messages() {
    const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
        alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
        '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
        '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
        regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let long = "x".repeat(64);
    let cases = [
        ("a in 1".to_owned(), "unable to parse requirement: found '1' expected: '('".to_owned()),
        ("a in (1".to_owned(), "unable to parse requirement: found '', expected: ',' or ')'".to_owned()),
        ("a in (=)".to_owned(), "unable to parse requirement: found '=', expected: ',', ')' or identifier".to_owned()),
        ("a b".to_owned(), "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt".to_owned()),
        ("=a".to_owned(), "found '=', expected: !, identifier, or 'end of string'".to_owned()),
        ("a,".to_owned(), "found '', expected: identifier after ','".to_owned()),
        ("a=1 b".to_owned(), "found 'b', expected: ',' or 'end of string'".to_owned()),
        ("!a=1".to_owned(), "found '=', expected: ',' or 'end of string'".to_owned()),
        ("!".to_owned(), "unable to parse requirement: found '', expected: identifier".to_owned()),
        ("a==(1)".to_owned(), "unable to parse requirement: found '(', expected: identifier".to_owned()),
        (
            "-a=1".to_owned(),
            format!("unable to parse requirement: <nil>: Invalid value: \"-a\": name part {NAME}"),
        ),
        (
            "a/=1".to_owned(),
            format!(
                "unable to parse requirement: <nil>: Invalid value: \"a/\": name part must be non-empty; name part {NAME}"
            ),
        ),
        (
            "a/b/c".to_owned(),
            format!(
                "unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key {NAME} with an \
                 optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ),
        ),
        (
            "a=-1".to_owned(),
            format!("unable to parse requirement: values[0][a]: Invalid value: \"-1\": {VALUE}"),
        ),
        (
            format!("a={long}"),
            format!(
                "unable to parse requirement: values[0][a]: Invalid value: \"{long}\": must be no more than 63 bytes"
            ),
        ),
        (
            "a>x".to_owned(),
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be \
             an integer"
                .to_owned(),
        ),
    ];
    for (text, message) in cases {
        let status = LabelSelector::parse(&text).unwrap_err();
        assert_eq!((status.code, &*status.message), (400, &*message), "{text:?}");
    }
}

fn table() -> FieldTable {
    FieldTable::empty(not_supported)
        .with("metadata.name", FieldReader::Name)
        .with("metadata.namespace", FieldReader::Namespace)
        .with_path("status.phase")
        .with_path("spec.hostNetwork")
        .with(
            "size",
            FieldReader::With(|value| value["metadata"].as_object().map_or(0, Map::len).to_string()),
        )
}

#[test]
fn field_selectors_match_by_the_field_table() {
    let mut value = pod("a,b", &json!({}), "Running");
    value["spec"] = json!({"hostNetwork": true, "nodeName": Value::Null});
    let stored = Stored::new(key("a,b"), 2, value).unwrap();
    let folded = stored.unparsed();
    let cases = [
        ("", true),
        ("metadata.name=a\\,b", true),
        ("metadata.name==a\\,b,metadata.namespace=default", true),
        ("metadata.name!=a\\,b", false),
        ("status.phase=Running", true),
        ("status.phase!=Running", false),
        ("status.phase!=,", true),
        ("spec.hostNetwork=true", true),
        ("size=4", true),
        ("status.phase=Running,size=5", false),
    ];
    for (text, expected) in cases {
        let selector =
            FieldSelector::parse(text, &table()).unwrap_or_else(|status| panic!("{text:?}: {status:?}"));
        assert_eq!(selector.matches(&stored), expected, "{text:?}");
        assert_eq!(selector.matches(&folded), expected, "{text:?}, not taken apart");
    }
    assert_eq!(FieldSelector::parse("metadata.name=x", &table()).unwrap().required_name(), Some("x"));
    assert_eq!(FieldSelector::parse("metadata.name!=x", &table()).unwrap().required_name(), None);
}

#[test]
fn invalid_field_selectors_get_upstream_messages() {
    let plain = FieldTable::metadata();
    let table = table();
    let cases = [
        (&table, "spec.x=1", "field label not supported: spec.x"),
        (
            &plain,
            "spec.x=1",
            r#""spec.x" is not a known field selector: only "metadata.name", "metadata.namespace""#,
        ),
        (&table, "metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        (&table, "size=1,!x", "invalid selector: 'size=1,!x'; can't understand '!x'"),
        (&table, "metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        (&table, "metadata.name=\\a", "invalid field selector: invalid escape sequence: \\a"),
        (&table, "metadata.name=\\", "invalid field selector: invalid escape sequence: \\"),
    ];
    for (table, text, message) in cases {
        let status = FieldSelector::parse(text, table).unwrap_err();
        assert_eq!((status.code, &*status.message), (400, message), "{text:?}");
    }
}
