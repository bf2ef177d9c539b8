//! Semantic equality of pod templates, as upstream's `Semantic.DeepEqual`.
//!
//! Missing and empty lists and maps are equal, as are missing and zero values without a pointer in Go. Quantities are
//! compared by value. A pointer to an empty struct differs from none.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use crate::fields::{Scalar, Shape, TEMPLATE, types};
use crate::quantity::GoQuantity;

/// Returns whether two pod templates in API form mean the same.
pub fn equal_templates(one: &Value, other: &Value) -> bool {
    equal(TEMPLATE, Some(one), Some(other))
}

fn equal(go_type: &'static str, one: Option<&Value>, other: Option<&Value>) -> bool {
    let (one, other) = (one.filter(|it| !it.is_null()), other.filter(|it| !it.is_null()));
    match types().shape(go_type) {
        Some(Shape::Pointer(target)) => match (one, other) {
            (None, None) => true,
            (Some(_), Some(_)) => equal(target, one, other),
            _ => false,
        },
        Some(Shape::List(element)) => {
            let (one, other) = (items(one), items(other));
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| equal(element, Some(one), Some(other)))
        }
        Some(Shape::Map(element)) => equal_maps(element, members(one), members(other)),
        Some(Shape::Struct(fields)) => fields.iter().all(|field| match field.json_name {
            Some(name) => {
                let (one, other) = (one.and_then(|it| it.get(name)), other.and_then(|it| it.get(name)));
                equal(field.go_type, one, other)
            }
            None => equal(field.go_type, one, other),
        }),
        Some(Shape::Scalar(scalar)) => is_zero(scalar, one) && is_zero(scalar, other) || one == other,
        Some(Shape::Quantity) => equal_quantities(one, other),
        Some(Shape::IntOrString) => {
            is_zero(Scalar::Integer, one) && is_zero(Scalar::Integer, other) || one == other
        }
        Some(Shape::Time | Shape::RawJson) | None => one == other,
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn members(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|members| !members.is_empty())
}

fn equal_maps(
    element: &'static str,
    one: Option<&Map<String, Value>>,
    other: Option<&Map<String, Value>>,
) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            let same = |(key, value): (&String, &Value)| {
                other.get(key).is_some_and(|other| equal(element, Some(value), Some(other)))
            };
            one.len() == other.len() && one.iter().all(same)
        }
        _ => false,
    }
}

fn is_zero(scalar: Scalar, value: Option<&Value>) -> bool {
    let Some(value) = value else { return true };
    match scalar {
        Scalar::Text => value.as_str() == Some(""),
        Scalar::Bool => value.as_bool() == Some(false),
        Scalar::Integer => value.as_i64() == Some(0),
    }
}

fn equal_quantities(one: Option<&Value>, other: Option<&Value>) -> bool {
    let parsed = |value: Option<&Value>| match value {
        None => Some(GoQuantity::default()),
        Some(Value::String(text)) => GoQuantity::parse(text).ok(),
        Some(number) => GoQuantity::parse(&number.to_string()).ok(),
    };
    match (parsed(one), parsed(other)) {
        (Some(one), Some(other)) => one.compare(&other) == Ordering::Equal,
        _ => one == other,
    }
}
