//! Label selectors in objects: validation and matching.

use serde_json::{Map, Value};

use super::invalid::FieldErrors;
use super::{meta, names, value};

/// Validates a `LabelSelector`.
pub(crate) fn validate(selector: &Value, path: &str, errors: &mut FieldErrors) {
    meta::label_map(value::at(selector, &["matchLabels"]), &format!("{path}.matchLabels"), errors);
    for (index, requirement) in value::items(selector, &["matchExpressions"]).iter().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let operator = value::text(requirement, &["operator"]);
        let values = value::texts(requirement, &["values"]);
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.required(format!("{path}.values"), detail);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(format!("{path}.values"), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(format!("{path}.operator"), other, "not a valid selector operator"),
        }
        let name = value::text(requirement, &["key"]);
        errors.each(&format!("{path}.key"), name, names::qualified(name));
        for (index, text) in values.iter().enumerate() {
            errors.each(&format!("{path}.values[{index}]"), text, names::label_value(text));
        }
    }
}

/// Returns whether upstream can convert the selector to its parsed form. A missing selector can be converted.
pub(crate) fn parses(selector: &Value) -> bool {
    let fine = |requirement: &Value| {
        let values = value::texts(requirement, &["values"]);
        let named = names::qualified(value::text(requirement, &["key"])).is_empty();
        named
            && match value::text(requirement, &["operator"]) {
                "In" | "NotIn" => {
                    !values.is_empty() && values.iter().all(|it| names::label_value(it).is_empty())
                }
                "Exists" | "DoesNotExist" => values.is_empty(),
                _ => false,
            }
    };
    value::entries(selector, &["matchLabels"]).all(|(name, text)| {
        names::qualified(name).is_empty() && names::label_value(text.as_str().unwrap_or_default()).is_empty()
    }) && value::items(selector, &["matchExpressions"]).iter().all(fine)
}

/// Returns whether the selector is empty. An empty selector matches everything.
pub(crate) fn is_empty(selector: &Value) -> bool {
    value::is_empty(selector, &["matchLabels"]) && value::is_empty(selector, &["matchExpressions"])
}

/// Returns whether a `LabelSelector` matches labels. A missing selector matches nothing.
pub(crate) fn matches(selector: &Value, labels: &Value) -> bool {
    !selector.is_null()
        && matches_map(value::at(selector, &["matchLabels"]), labels)
        && value::items(selector, &["matchExpressions"]).iter().all(|it| meets(it, labels))
}

/// Returns whether the labels contain every entry of the map.
pub(crate) fn matches_map(selector: &Value, labels: &Value) -> bool {
    value::entries(selector, &[]).all(|(name, text)| labels.get(name) == Some(text))
}

/// Formats a selector as in `kubectl` and `Scale`: `a=b,c in (d,e),!f`.
pub(crate) fn written(selector: &Value) -> String {
    let mut parts: Vec<(String, String)> = value::entries(selector, &["matchLabels"])
        .map(|(name, text)| (name.clone(), format!("{name}={}", text.as_str().unwrap_or_default())))
        .collect();
    for requirement in value::items(selector, &["matchExpressions"]) {
        let name = value::text(requirement, &["key"]);
        let mut values = value::texts(requirement, &["values"]);
        values.sort_unstable();
        let values = values.join(",");
        let part = match value::text(requirement, &["operator"]) {
            "In" => format!("{name} in ({values})"),
            "NotIn" => format!("{name} notin ({values})"),
            "DoesNotExist" => format!("!{name}"),
            _ => name.to_owned(),
        };
        parts.push((name.to_owned(), part));
    }
    parts.sort_by(|one, other| one.0.cmp(&other.0));
    let parts: Vec<_> = parts.into_iter().map(|it| it.1).collect();
    parts.join(",")
}

/// Formats a map of labels as a selector.
pub(crate) fn written_map(selector: Option<&Map<String, Value>>) -> String {
    let parts: Vec<_> = selector
        .into_iter()
        .flatten()
        .map(|(name, text)| format!("{name}={}", text.as_str().unwrap_or_default()))
        .collect();
    parts.join(",")
}

fn meets(requirement: &Value, labels: &Value) -> bool {
    let label = labels.get(value::text(requirement, &["key"])).and_then(Value::as_str);
    let among = label.is_some_and(|it| value::texts(requirement, &["values"]).contains(&it));
    match value::text(requirement, &["operator"]) {
        "In" => among,
        "NotIn" => !among,
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_expressions_match() {
        let labels = json!({"a": "1", "b": "2"});
        let cases = [
            (json!({"matchLabels": {"a": "1"}}), true, "a=1"),
            (json!({"matchLabels": {"a": "2"}}), false, "a=2"),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["2", "1"]}]}),
                true,
                "a in (1,2)",
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
                false,
                "a notin (1)",
            ),
            (json!({"matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}), true, "!c"),
            (json!({"matchExpressions": [{"key": "c", "operator": "Exists"}]}), false, "c"),
            (json!({}), true, ""),
        ];
        for (selector, expected, text) in cases {
            assert_eq!(matches(&selector, &labels), expected, "{selector}");
            assert_eq!(written(&selector), text);
        }
        assert!(!matches(&Value::Null, &labels));
    }
}
