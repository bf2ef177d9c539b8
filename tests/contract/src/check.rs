//! Comparisons that report both values.

use serde_json::Value;

/// Returns an error unless both are equal.
#[macro_export]
macro_rules! same {
    ($actual:expr, $expected:expr) => {{
        // A match keeps temporaries of the expressions alive.
        match (&$actual, &$expected) {
            (actual, expected) => anyhow::ensure!(
                actual == expected,
                "{}\n  expected {:?}\n  got      {:?}",
                stringify!($actual),
                expected,
                actual
            ),
        }
    }};
}

/// Returns an error unless the first value contains all fields of the second; `null` means absent.
#[macro_export]
macro_rules! has {
    ($actual:expr, $($expected:tt)+) => {{
        let (actual, expected) = (&$actual, serde_json::json!($($expected)+));
        if let Some(difference) = $crate::check::missing_fields(actual, &expected, "") {
            anyhow::bail!("{}{difference}", stringify!($actual));
        }
    }};
}

/// Returns the first difference of `actual` from `expected`. Additional fields are permitted; lists must have equal
/// lengths.
#[must_use]
pub fn missing_fields(actual: &Value, expected: &Value, path: &str) -> Option<String> {
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => expected.iter().find_map(|(key, expected)| {
            missing_fields(actual.get(key).unwrap_or(&Value::Null), expected, &format!("{path}.{key}"))
        }),
        (Value::Array(actual), Value::Array(expected)) if actual.len() == expected.len() => {
            let both = actual.iter().zip(expected).enumerate();
            both.into_iter().find_map(|(index, (a, e))| missing_fields(a, e, &format!("{path}[{index}]")))
        }
        (actual, expected) if actual == expected => None,
        (actual, expected) => Some(format!("{path}\n  expected {expected}\n  got      {actual}")),
    }
}

/// Returns the names of a list's items.
#[must_use]
pub fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or("?").to_owned()).collect()
}

/// Returns the resource version of an object or a list.
#[must_use]
pub fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

/// Returns the resource version as a number, which clients can compare.
#[must_use]
pub fn revision(object: &Value) -> u64 {
    version(object).parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::missing_fields;

    #[test]
    fn additional_fields_are_permitted() {
        assert_eq!(missing_fields(&json!({ "a": 1, "b": 2 }), &json!({ "a": 1 }), ""), None);
    }

    #[test]
    fn null_means_absent() {
        assert_eq!(missing_fields(&json!({ "a": 1 }), &json!({ "b": null }), ""), None);
        assert!(missing_fields(&json!({ "a": 1 }), &json!({ "a": null }), "").is_some());
    }

    #[test]
    fn lists_are_compared_item_by_item_and_by_length() {
        assert_eq!(missing_fields(&json!([{ "a": 1, "b": 2 }]), &json!([{ "a": 1 }]), ""), None);
        assert!(missing_fields(&json!([1, 2]), &json!([1]), "").is_some());
    }

    #[test]
    fn path_of_the_difference_is_reported() {
        let found = missing_fields(&json!({ "a": [{ "b": 1 }] }), &json!({ "a": [{ "b": 2 }] }), "it");
        assert_eq!(found.as_deref(), Some("it.a[0].b\n  expected 2\n  got      1"));
    }
}
