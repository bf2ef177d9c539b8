//! The form of validation rules (`x-kubernetes-validations`): messages, reasons and field paths.

use serde_json::{Map, Value};

use super::error::FieldError;
use super::rule::list;

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Checks the rules of a schema at that path, without their expressions.
pub(super) fn check(schema: &Map<String, Value>, path: &str, found: &mut Vec<FieldError>) {
    for (index, rule) in list(schema, "x-kubernetes-validations").iter().enumerate() {
        let path = |field: &str| format!("{path}.x-kubernetes-validations[{index}].{field}");
        let text = |field: &str| rule.get(field).and_then(Value::as_str).unwrap_or_default();
        let given = |field: &str| Value::from(text(field));
        let (expression, message) = (text("rule").trim(), text("message").trim());
        if expression.is_empty() {
            found.push(FieldError::required(path("rule"), "rule is not specified"));
        } else if message.is_empty() && !text("message").is_empty() {
            let detail = "must be non-empty if specified";
            found.push(FieldError::invalid(path("message"), &given("message"), detail));
        } else if message.contains('\n') {
            let detail = "must not contain line breaks";
            found.push(FieldError::invalid(path("message"), &given("message"), detail));
        } else if expression.contains('\n') && message.is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            found.push(FieldError::required(path("message"), detail));
        }
        if !text("messageExpression").is_empty() && text("messageExpression").trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            found.push(FieldError::required(path("messageExpression"), detail));
        }
        if rule.get("reason").is_some_and(|it| !it.is_null()) && !REASONS.contains(&text("reason")) {
            found.push(FieldError::not_supported(path("reason"), &given("reason"), &REASONS));
        }
        let field = text("fieldPath");
        let mut refuse = |detail: &str| {
            found.push(FieldError::invalid(path("fieldPath"), &given("fieldPath"), detail));
        };
        if !field.is_empty() && field.trim().is_empty() {
            refuse("must be non-empty if specified");
        }
        if field.contains('\n') {
            refuse("must not contain line breaks");
        }
        if !field.is_empty() && rule_field(&Value::Object(schema.clone()), field).is_none() {
            refuse("must be a valid path");
        }
    }
}

/// Returns the field that the field path of a rule names, relative to its schema: `.a.b` and `['a'].b` name `a.b`.
/// Returns `None` if the path is empty, malformed, or the schema describes no such field.
pub fn rule_field(schema: &Value, path: &str) -> Option<String> {
    let (mut schema, mut rest, mut field) = (schema, path, String::new());
    while !rest.is_empty() {
        let (name, after) = step(rest)?;
        if schema.get("properties").is_some() {
            schema = schema["properties"].get(&name)?;
            if !field.is_empty() {
                field.push('.');
            }
            field.push_str(&name);
        } else {
            schema = schema.get("additionalProperties").filter(|it| it.is_object())?;
            field.push_str(&format!("[{name}]"));
        }
        rest = after;
    }
    Some(field).filter(|it| !it.is_empty())
}

/// Splits the first name from a path.
fn step(path: &str) -> Option<(String, &str)> {
    if let Some(path) = path.strip_prefix('.') {
        let end = path.find(['.', '[', ']']).unwrap_or(path.len());
        return (end > 0).then(|| (path[..end].to_owned(), &path[end..]));
    }
    let path = path.strip_prefix("['")?;
    let (mut name, mut characters) = (String::new(), path.char_indices());
    loop {
        match characters.next()? {
            (index, '\'') => return Some((name, path[index + 1..].strip_prefix(']')?)),
            (_, '\\') => name.push(match characters.next()?.1 {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                it @ ('\'' | '\\') => it,
                _ => return None,
            }),
            (_, other) => name.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn field_path_names_declared_fields_only() {
        let schema = json!({"properties": {"a": {"properties": {"b.c": {}, "d'e": {}}},
            "m": {"additionalProperties": {"type": "string"}}, "l": {"items": {}}}});
        let cases = [
            (".a", Some("a")),
            (".a['b.c']", Some("a.b.c")),
            (r".a['d\'e']", Some("a.d'e")),
            (".m['x']", Some("m[x]")),
            (".m.x", Some("m[x]")),
            ("", None),
            ("a", None),
            (".", None),
            (".b", None),
            (".a[b]", None),
            (".a['b.c'", None),
            (".l[0]", None),
        ];
        for (path, expected) in cases {
            assert_eq!(rule_field(&schema, path).as_deref(), expected, "{path}");
        }
    }
}
