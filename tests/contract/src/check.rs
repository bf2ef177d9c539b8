//! Comparisons that say what they saw.

use serde_json::Value;

/// Returns an error unless both are equal.
#[macro_export]
macro_rules! same {
    ($actual:expr, $expected:expr) => {{
        // A match, so that what the expressions borrow from lives long enough.
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

/// Returns an error unless the first has all the second has; `null` means absent.
#[macro_export]
macro_rules! has {
    ($actual:expr, $($expected:tt)+) => {{
        let (actual, expected) = (&$actual, serde_json::json!($($expected)+));
        if let Some(difference) = $crate::check::lacking(actual, &expected, "") {
            anyhow::bail!("{}{difference}", stringify!($actual));
        }
    }};
}

/// The first of `expected` that `actual` has not. Lists must be of one length.
#[must_use]
pub fn lacking(actual: &Value, expected: &Value, path: &str) -> Option<String> {
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => expected.iter().find_map(|(key, expected)| {
            lacking(actual.get(key).unwrap_or(&Value::Null), expected, &format!("{path}.{key}"))
        }),
        (Value::Array(actual), Value::Array(expected)) if actual.len() == expected.len() => {
            let both = actual.iter().zip(expected).enumerate();
            both.into_iter().find_map(|(index, (a, e))| lacking(a, e, &format!("{path}[{index}]")))
        }
        (actual, expected) if actual == expected => None,
        (actual, expected) => Some(format!("{path}\n  expected {expected}\n  got      {actual}")),
    }
}

/// The names of a list's items.
#[must_use]
pub fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or("?").to_owned()).collect()
}

/// The resource version of an object or a list.
#[must_use]
pub fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

/// The same as a number, which clients may compare.
#[must_use]
pub fn revision(object: &Value) -> u64 {
    version(object).parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::lacking;

    #[test]
    fn what_is_not_asked_for_may_be_there() {
        assert_eq!(lacking(&json!({ "a": 1, "b": 2 }), &json!({ "a": 1 }), ""), None);
    }

    #[test]
    fn null_means_absent() {
        assert_eq!(lacking(&json!({ "a": 1 }), &json!({ "b": null }), ""), None);
        assert!(lacking(&json!({ "a": 1 }), &json!({ "a": null }), "").is_some());
    }

    #[test]
    fn lists_are_compared_item_by_item_and_by_length() {
        assert_eq!(lacking(&json!([{ "a": 1, "b": 2 }]), &json!([{ "a": 1 }]), ""), None);
        assert!(lacking(&json!([1, 2]), &json!([1]), "").is_some());
    }

    #[test]
    fn path_of_the_difference_is_named() {
        let found = lacking(&json!({ "a": [{ "b": 1 }] }), &json!({ "a": [{ "b": 2 }] }), "it");
        assert_eq!(found.as_deref(), Some("it.a[0].b\n  expected 2\n  got      1"));
    }
}
