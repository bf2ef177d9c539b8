//! Validates values against rules.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::correlated::{PreviousItems, is_unchanged};
use super::error::FieldError;
use super::format;
use super::rule::{Bound, Pattern, Rule};

/// Field name in upstream's errors that have no field.
const NO_FIELD: &str = "<nil>";

/// Returns the errors of a value, in the order of field names; upstream has no defined order. Parts that are equal in
/// `old`, the value before an update, have no errors.
pub(super) fn value(rule: &Rule, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = check(rule, "", value, old).errors;
    embedded(rule, "", value, &mut errors);
    let mut old_errors = Vec::new();
    if let Some(old) = old {
        lists(rule, "", old, &mut old_errors);
    }
    if old_errors.is_empty() {
        lists(rule, "", value, &mut errors);
    }
    errors
}

/// Errors and number of matches: of several alternatives, upstream reports the one with the most matches.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    matches: usize,
}

impl Outcome {
    fn add(&mut self, other: Outcome) {
        self.errors.extend(other.errors);
        self.matches += other.matches;
    }

    fn error(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

fn check(rule: &Rule, path: &str, value: &Value, old: Option<&Value>) -> Outcome {
    let mut outcome = check_changed(rule, path, value, old);
    if !outcome.is_valid() && old.is_some_and(|old| is_unchanged(rule, value, old)) {
        outcome.errors.clear();
    }
    outcome
}

fn check_changed(rule: &Rule, path: &str, value: &Value, old: Option<&Value>) -> Outcome {
    let mut outcome = Outcome::default();
    let typed = !rule.kinds.is_empty() || rule.format.is_some();
    if typed || value.is_null() {
        of_type(rule, path, value, &mut outcome);
    }
    if !value.is_null() {
        combinations(rule, path, value, &mut outcome);
        match value {
            Value::String(text) => of_text(rule, path, text, &mut outcome),
            Value::Number(_) => of_number(rule, path, value, &mut outcome),
            Value::Array(items) => of_list(rule, path, items, old, &mut outcome),
            Value::Null | Value::Bool(_) | Value::Object(_) => {}
        }
    }
    if !rule.enumeration.is_empty() && !rule.enumeration.contains(value) {
        let written = |it: &Value| it.as_str().map_or_else(|| it.to_string(), str::to_owned);
        let supported: Vec<_> = rule.enumeration.iter().map(written).collect();
        outcome.error(FieldError::not_supported(field(path), value, &supported));
    }
    if let Value::Object(fields) = value {
        of_object(rule, path, fields, old, &mut outcome);
    }
    outcome.matches += 1;
    outcome
}

/// Returns the type of a value, and its format.
fn kind(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

fn of_type(rule: &Rule, path: &str, value: &Value, outcome: &mut Outcome) {
    let (kind, format) = kind(value);
    let allows = |kind: &str| rule.kinds.iter().any(|it| it == kind);
    let wanted = rule.format.as_deref().unwrap_or_default();
    let whole = value.as_f64().is_some_and(|number| number.is_finite() && number.fract() == 0.0);
    let fits = match kind {
        "null" => rule.kinds.is_empty() || rule.nullable,
        "number" => allows(kind) || (whole && allows("integer")),
        "integer" => allows(kind) || allows("number"),
        _ => allows(kind),
    };
    let textual = matches!(kind, "string" | "array");
    let numeric = allows("number") || allows("integer");
    if fits || (textual && !wanted.is_empty() && !numeric) {
        outcome.matches += 1;
    } else if kind != "null" && !textual && !wanted.is_empty() && wanted != format {
        outcome.error(wrong_type(path, wanted, format));
    } else if kind == "null" || !rule.kinds.is_empty() {
        outcome.error(wrong_type(path, &rule.kinds.join(","), kind));
    }
}

fn wrong_type(path: &str, wanted: &str, given: &str) -> FieldError {
    let detail = format!("{path} in body must be of type {wanted}: {given:?}");
    FieldError::type_invalid(field(path), &Value::from(given), &detail)
}

fn combinations(rule: &Rule, path: &str, value: &Value, outcome: &mut Outcome) {
    if !rule.any_of.is_empty() {
        let tried: Vec<_> = rule.any_of.iter().map(|rule| check(rule, path, value, None)).collect();
        if !tried.iter().any(Outcome::is_valid) {
            outcome.error(nameless(&format!("{path:?} must validate at least one schema (anyOf)")));
        }
        outcome.add(most_specific(tried));
    }
    if !rule.one_of.is_empty() {
        let tried: Vec<_> = rule.one_of.iter().map(|rule| check(rule, path, value, None)).collect();
        let valid = tried.iter().filter(|it| it.is_valid()).count();
        if valid != 1 {
            let found = if valid == 0 {
                "Found none valid".to_owned()
            } else {
                format!("Found {valid} valid alternatives")
            };
            outcome
                .error(nameless(&format!("{path:?} must validate one and only one schema (oneOf). {found}")));
        }
        outcome.add(most_specific(tried));
    }
    if !rule.all_of.is_empty() {
        let tried: Vec<_> = rule.all_of.iter().map(|rule| check(rule, path, value, None)).collect();
        let valid = tried.iter().filter(|it| it.is_valid()).count();
        tried.into_iter().for_each(|it| outcome.add(it));
        if valid != rule.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            outcome.error(nameless(&format!("{path:?} must validate all the schemas (allOf){none}")));
        }
    }
    if rule.not.as_ref().is_some_and(|not| check(not, path, value, None).is_valid()) {
        outcome.error(nameless(&format!("{path:?} must not validate the schema (not)")));
    }
    outcome.matches += 1;
}

/// Returns the outcome to report of several alternatives: the first valid one, or the one with the most matches.
fn most_specific(tried: Vec<Outcome>) -> Outcome {
    let mut best = Outcome::default();
    for (index, outcome) in tried.into_iter().enumerate() {
        if outcome.is_valid() {
            return outcome;
        }
        if index == 0 || outcome.matches > best.matches {
            best = outcome;
        }
    }
    best
}

fn of_text(rule: &Rule, path: &str, text: &str, outcome: &mut Outcome) {
    let given = || Value::from(text);
    let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    match (rule.lengths.most, rule.lengths.least, &rule.pattern) {
        (Some(most), _, _) if length > most => outcome.error(FieldError::too_long(field(path), most)),
        (_, Some(least), _) if length < least => {
            let detail = format!("{path} in body should be at least {least} chars long");
            outcome.error(FieldError::invalid(field(path), &given(), &detail));
        }
        (_, _, Some(Pattern { text: pattern, regex })) if !regex.is_match(text) => {
            let detail = format!("{path} in body should match '{pattern}'");
            outcome.error(FieldError::invalid(field(path), &given(), &detail));
        }
        _ => {}
    }
    if let Some(format) = &rule.format
        && format::holds(format, text) == Some(false)
    {
        outcome.error(wrong_type(path, format, text));
    }
}

fn of_number(rule: &Rule, path: &str, value: &Value, outcome: &mut Outcome) {
    let Some(number) = value.as_f64() else { return };
    if let [kind] = rule.kinds.as_slice()
        && kind == "integer"
    {
        let fits = match rule.format.as_deref() {
            Some("int32") => {
                number.fract() == 0.0 && i32::try_from(value.as_i64().unwrap_or(i64::MAX)).is_ok()
            }
            _ => value.is_i64() || (value.is_f64() && number.fract() == 0.0),
        };
        if !fits {
            let format =
                rule.format.as_ref().map_or("(default format)".to_owned(), |it| format!("with format {it}"));
            outcome.error(nameless(&format!("Checked value must be of type integer {format} in {path}")));
        }
    }
    let mut refuse = |what: String| {
        outcome.error(FieldError::invalid(field(path), value, &format!("{path} in body should be {what}")));
    };
    if let Some(factor) = rule.multiple_of
        && (number / factor).fract() != 0.0
    {
        refuse(format!("a multiple of {factor}"));
    }
    match rule.minimum {
        Some(Bound { value, exclusive: true }) if number <= value => refuse(format!("greater than {value}")),
        Some(Bound { value, exclusive: false }) if number < value => {
            refuse(format!("greater than or equal to {value}"));
        }
        _ => {}
    }
    match rule.maximum {
        Some(Bound { value, exclusive: true }) if number >= value => refuse(format!("less than {value}")),
        Some(Bound { value, exclusive: false }) if number > value => {
            refuse(format!("less than or equal to {value}"));
        }
        _ => {}
    }
    outcome.matches += 1;
}

fn of_list(rule: &Rule, path: &str, items: &[Value], old: Option<&Value>, outcome: &mut Outcome) {
    if let Some(of_item) = &rule.items {
        let previous = PreviousItems::of(rule.map_keys.as_deref(), old);
        for (index, item) in items.iter().enumerate() {
            outcome.add(check(of_item, &format!("{path}[{index}]"), item, previous.get(item)));
        }
    }
    let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
    if let Some(least) = rule.items_count.least.filter(|least| count < *least) {
        let detail = format!("{path} in body should have at least {least} items");
        outcome.error(FieldError::invalid(field(path), &Value::from(count), &detail));
    }
    if let Some(most) = rule.items_count.most.filter(|most| count > *most) {
        outcome.error(FieldError::too_many(field(path), items.len(), most));
    }
    outcome.matches += 1;
}

fn of_object(
    rule: &Rule,
    path: &str,
    fields: &Map<String, Value>,
    old: Option<&Value>,
    outcome: &mut Outcome,
) {
    let count = u64::try_from(fields.len()).unwrap_or(u64::MAX);
    if let Some(least) = rule.properties_count.least.filter(|least| count < *least) {
        let detail = format!("{path} in body should have at least {least} properties");
        outcome.error(FieldError::invalid(field(path), &Value::from(count), &detail));
    }
    if let Some(most) = rule.properties_count.most.filter(|most| count > *most) {
        outcome.error(FieldError::too_many(field(path), fields.len(), most));
    }
    for (name, value) in fields {
        if let Some(rule) = rule.properties.get(name).or(rule.additional.as_deref()) {
            let old = old.and_then(|it| it.get(name)).filter(|_| !(path.is_empty() && is_type(name)));
            outcome.add(check(rule, &child(path, name), value, old));
        }
    }
    for name in rule.required.iter().filter(|name| !fields.contains_key(*name)) {
        outcome.error(FieldError::required(child(path, name), ""));
    }
}

/// Returns whether a field of an object names its type, which conversion changes.
fn is_type(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind")
}

/// Checks the kind of embedded objects.
fn embedded(rule: &Rule, path: &str, value: &Value, errors: &mut Vec<FieldError>) {
    if let (true, Value::Object(fields)) = (rule.embedded, value) {
        for name in ["apiVersion", "kind"] {
            if fields.get(name).is_none_or(|it| it == "" || it.is_null()) {
                errors.push(FieldError::required(child(path, name), ""));
            }
        }
    }
    inner(rule, path, value, &mut |rule, path, value| embedded(rule, path, value, errors));
}

/// Checks that lists of type set or map have no duplicates.
fn lists(rule: &Rule, path: &str, value: &Value, errors: &mut Vec<FieldError>) {
    if let Value::Array(items) = value {
        if rule.is_set {
            for index in second_ones(items) {
                errors.push(FieldError::duplicate(format!("{path}[{index}]"), &items[index]));
            }
        }
        if let Some(keys) = &rule.map_keys {
            map_items(keys, path, items, errors);
        }
    }
    inner(rule, path, value, &mut |rule, path, value| lists(rule, path, value, errors));
}

fn map_items(keys: &[String], path: &str, items: &[Value], errors: &mut Vec<FieldError>) {
    if let Some(index) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(format!("{path}[{index}]"), &items[index], detail));
        return;
    }
    let keys_of = |item: &Value| {
        let values = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        Value::Object(values.collect())
    };
    let keys: Vec<_> = items.iter().map(keys_of).collect();
    for index in second_ones(&keys) {
        errors.push(FieldError::duplicate(format!("{path}[{index}]"), &keys[index]));
    }
}

/// Returns the indices of repeated items.
fn second_ones(items: &[Value]) -> Vec<usize> {
    // Object fields are sorted, so that equal items have equal texts.
    let mut seen = BTreeMap::<String, usize>::new();
    let is_second = |item: &Value| {
        let times = seen.entry(item.to_string()).or_default();
        *times += 1;
        *times == 2
    };
    let seconds = items.iter().map(is_second).enumerate().filter(|(_, second)| *second);
    seconds.map(|(index, _)| index).collect()
}

/// Calls a function for every nested value that has its own rule.
fn inner(rule: &Rule, path: &str, value: &Value, each: &mut dyn FnMut(&Rule, &str, &Value)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(property) = rule.properties.get(name) {
                    each(property, &child(path, name), value);
                } else if let Some(additional) = &rule.additional {
                    each(additional, &format!("{path}[{name}]"), value);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                if let Some(rule) = &rule.items {
                    each(rule, &format!("{path}[{index}]"), item);
                }
            }
        }
        _ => {}
    }
}

/// Returns an error without a field name.
fn nameless(detail: &str) -> FieldError {
    FieldError::invalid(NO_FIELD, &json!(""), detail)
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Returns the field name of a path; the root has none.
fn field(path: &str) -> &str {
    if path.is_empty() { NO_FIELD } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_reported_once_and_many_items_are_fast() {
        let cases = [
            (json!([1, 2, 1, 1, "1", 1.0, null, null]), vec![2, 7]),
            (json!([{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1}, {}]), vec![1]),
            (json!([]), vec![]),
        ];
        for (items, seconds) in cases {
            assert_eq!(second_ones(items.as_array().expect("a list")), seconds, "{items}");
        }
        // Pairwise comparison would need ten billion comparisons.
        let mut many: Vec<_> = (0..150_000).map(Value::from).collect();
        many.push(json!(7));
        assert_eq!(second_ones(&many), [150_000]);
    }
}
