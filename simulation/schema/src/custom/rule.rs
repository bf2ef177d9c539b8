//! Compiles schemas to rules for values.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::format;

/// Constraints of a schema on a value.
#[derive(Clone, Debug, Default)]
pub(super) struct Rule {
    /// Permitted types; any type if empty.
    pub(super) kinds: Vec<String>,
    pub(super) nullable: bool,
    pub(super) format: Option<String>,
    pub(super) enumeration: Vec<Value>,
    pub(super) minimum: Option<Bound>,
    pub(super) maximum: Option<Bound>,
    pub(super) multiple_of: Option<f64>,
    pub(super) lengths: Sizes,
    pub(super) items_count: Sizes,
    pub(super) properties_count: Sizes,
    pub(super) pattern: Option<Pattern>,
    pub(super) required: Vec<String>,
    pub(super) properties: BTreeMap<String, Rule>,
    pub(super) additional: Option<Box<Rule>>,
    pub(super) items: Option<Box<Rule>>,
    pub(super) all_of: Vec<Rule>,
    pub(super) any_of: Vec<Rule>,
    pub(super) one_of: Vec<Rule>,
    pub(super) not: Option<Box<Rule>>,
    pub(super) is_set: bool,
    /// Keys of a list of type map.
    pub(super) map_keys: Option<Vec<String>>,
    pub(super) embedded: bool,
}

/// Limit of a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) value: f64,
    pub(super) exclusive: bool,
}

/// Limits of a length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    pub(super) least: Option<u64>,
    pub(super) most: Option<u64>,
}

/// A compiled pattern with its source.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) text: String,
    pub(super) regex: Regex,
}

impl Rule {
    /// Compiles a schema. Invalid parts are ignored, because [`super::structural`] has rejected them before.
    pub(super) fn of(schema: &Value) -> Rule {
        let Value::Object(schema) = schema else { return Rule::default() };
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let text = |name: &str| schema.get(name).and_then(Value::as_str);
        let bound =
            |limit: &str, exclusive: &str| Some(Bound { value: number(limit)?, exclusive: flag(exclusive) });
        let sizes = |least: &str, most: &str| Sizes {
            least: schema.get(least).and_then(Value::as_u64),
            most: schema.get(most).and_then(Value::as_u64),
        };
        let kinds = if flag("x-kubernetes-int-or-string") {
            vec!["integer".to_owned(), "string".to_owned()]
        } else {
            text("type").map(str::to_owned).into_iter().collect()
        };
        let known = |name: &&str| text("type") != Some("string") || format::holds(name, "").is_some();
        let list_type = text("x-kubernetes-list-type");
        Rule {
            kinds,
            nullable: flag("nullable"),
            format: text("format").filter(known).map(str::to_owned),
            enumeration: list(schema, "enum").to_vec(),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            lengths: sizes("minLength", "maxLength"),
            items_count: sizes("minItems", "maxItems"),
            properties_count: sizes("minProperties", "maxProperties"),
            pattern: text("pattern")
                .and_then(|text| Some(Pattern { text: text.to_owned(), regex: Regex::new(text).ok()? })),
            required: texts(schema, "required"),
            properties: schema
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), Rule::of(schema)))
                .collect(),
            additional: schema
                .get("additionalProperties")
                .filter(|it| it.is_object())
                .map(|it| Box::new(Rule::of(it))),
            items: schema.get("items").map(|items| Box::new(Rule::of(items))),
            all_of: list(schema, "allOf").iter().map(Rule::of).collect(),
            any_of: list(schema, "anyOf").iter().map(Rule::of).collect(),
            one_of: list(schema, "oneOf").iter().map(Rule::of).collect(),
            not: schema.get("not").map(|not| Box::new(Rule::of(not))),
            is_set: list_type == Some("set"),
            map_keys: (list_type == Some("map")).then(|| texts(schema, "x-kubernetes-list-map-keys")),
            embedded: flag("x-kubernetes-embedded-resource"),
        }
    }
}

/// Returns the items of a list in a field.
pub(super) fn list<'a>(schema: &'a Map<String, Value>, field: &str) -> &'a [Value] {
    schema.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns the strings of a list in a field.
pub(super) fn texts(schema: &Map<String, Value>, field: &str) -> Vec<String> {
    list(schema, field).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
