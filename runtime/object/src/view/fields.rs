//! The types of the fields of views.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Error, Interner, Shape, Value, ViewField};
use crate::StringMap;

/// Implements the trait for types that one function reads.
macro_rules! read_by {
    ($($of:ty, $shape:expr, $absent:expr, $read:expr;)*) => {$(
        impl ViewField for $of {
            const SHAPE: Shape = $shape;

            fn absent() -> Self {
                $absent
            }

            fn read(value: Value<'_>, _: &mut Interner) -> Result<Self, Error> {
                $read(value)
            }
        }
    )*};
}

read_by! {
    bool, Shape::Bool, false, Value::boolean;
    i32, Shape::Integer, 0, Value::integer;
    i64, Shape::Integer, 0, Value::integer;
    f64, Shape::Number, 0.0, Value::decode;
    String, Shape::Text, String::new(), |value: Value<'_>| Ok(value.text()?.into_owned());
    Box<str>, Shape::Text, "".into(), |value: Value<'_>| Ok(value.text()?.into());
    Quantity, Shape::Quantity, Quantity::default(), Value::decode;
    IntOrString, Shape::IntOrString, IntOrString::default(), Value::decode;
    BTreeMap<String, String>, Shape::Map(&Shape::Text), BTreeMap::new(), Value::decode;
    serde_json::Value, Shape::Any, serde_json::Value::Null, Value::decode;
    Option<Time>, Shape::Time, None, |value: Value<'_>| value.time().map(Some);
    Option<MicroTime>, Shape::Time, None, Value::decode;
}

impl ViewField for Arc<str> {
    const SHAPE: Shape = Shape::Text;

    fn absent() -> Self {
        Arc::default()
    }

    fn read(value: Value<'_>, interner: &mut Interner) -> Result<Self, Error> {
        Ok(interner.text(&value.text()?))
    }
}

impl ViewField for StringMap {
    const SHAPE: Shape = Shape::Map(&Shape::Text);

    fn absent() -> Self {
        Self::default()
    }

    fn read(value: Value<'_>, interner: &mut Interner) -> Result<Self, Error> {
        let texts = value.texts()?;
        let entries = texts.iter().map(|(key, value)| (interner.text(key), interner.text(value)));
        let map = Self::new(entries.collect());
        Ok(interner.map(map))
    }
}

impl<T: Optional> ViewField for Option<T> {
    const SHAPE: Shape = T::SHAPE;

    fn absent() -> Self {
        None
    }

    fn read(value: Value<'_>, interner: &mut Interner) -> Result<Self, Error> {
        T::read(value, interner).map(Some)
    }
}

/// A type with an absent value other than its empty value. Implemented by `#[derive(View)]` too. Times have no empty
/// value, so they are only optional.
pub trait Optional: ViewField {}

impl Optional for bool {}
impl Optional for i32 {}
impl Optional for i64 {}
impl Optional for f64 {}
impl Optional for String {}
impl Optional for Box<str> {}
impl Optional for Arc<str> {}
impl Optional for Quantity {}
impl Optional for IntOrString {}
impl Optional for BTreeMap<String, String> {}
impl<T: ViewField> Optional for Vec<T> {}
impl<T: ViewField> Optional for Box<[T]> {}

impl<T: ViewField> ViewField for Vec<T> {
    const SHAPE: Shape = Shape::List(&T::SHAPE);

    fn absent() -> Self {
        Vec::new()
    }

    fn read(value: Value<'_>, interner: &mut Interner) -> Result<Self, Error> {
        let mut elements = Vec::new();
        value.each_element(&mut |element| {
            elements.push(element.map_or_else(|| Ok(T::absent()), |element| T::read(element, interner))?);
            Ok(())
        })?;
        Ok(elements)
    }
}

impl<T: ViewField> ViewField for Box<[T]> {
    const SHAPE: Shape = Shape::List(&T::SHAPE);

    fn absent() -> Self {
        Box::default()
    }

    fn read(value: Value<'_>, interner: &mut Interner) -> Result<Self, Error> {
        Vec::read(value, interner).map(Vec::into_boxed_slice)
    }
}
