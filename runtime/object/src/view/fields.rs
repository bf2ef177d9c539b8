//! The types of the fields of views.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Error, Value};

use super::{Interner, Shape, ViewField, ViewPaths, read};
use crate::StringMap;

/// Implements the trait for types that serde reads.
macro_rules! read_by_serde {
    ($($of:ty, $shape:expr, $absent:expr;)*) => {$(
        impl ViewField for $of {
            const SHAPE: Shape = $shape;

            fn absent() -> Self {
                $absent
            }

            fn read(value: &RawValue, _: &mut Interner) -> Result<Self, Error> {
                serde_json::from_str(value.get())
            }
        }
    )*};
}

read_by_serde! {
    bool, Shape::Bool, false;
    i32, Shape::Integer, 0;
    i64, Shape::Integer, 0;
    f64, Shape::Number, 0.0;
    String, Shape::Text, String::new();
    Box<str>, Shape::Text, "".into();
    Quantity, Shape::Quantity, Quantity::default();
    IntOrString, Shape::IntOrString, IntOrString::default();
    BTreeMap<String, String>, Shape::Map(&Shape::Text), BTreeMap::new();
    Value, Shape::Any, Value::Null;
    Option<Time>, Shape::Time, None;
    Option<MicroTime>, Shape::Time, None;
}

impl ViewField for Arc<str> {
    const SHAPE: Shape = Shape::Text;

    fn absent() -> Self {
        Arc::default()
    }

    fn read(value: &RawValue, interner: &mut Interner) -> Result<Self, Error> {
        Text::of(value).map(|Text(text)| interner.text(&text))
    }
}

impl ViewField for StringMap {
    const SHAPE: Shape = Shape::Map(&Shape::Text);

    fn absent() -> Self {
        Self::default()
    }

    fn read(value: &RawValue, interner: &mut Interner) -> Result<Self, Error> {
        let entries: BTreeMap<Cow<'_, str>, Option<Text<'_>>> = serde_json::from_str(value.get())?;
        let entries = entries.into_iter().map(|(key, value)| {
            let value = value.map_or(Cow::Borrowed(""), |Text(value)| value);
            (interner.text(&key), interner.text(&value))
        });
        let map = Self::new(entries.collect());
        Ok(interner.map(map))
    }
}

impl<T: Optional> ViewField for Option<T> {
    const SHAPE: Shape = T::SHAPE;

    fn selection() -> Option<&'static ViewPaths> {
        T::selection()
    }

    fn absent() -> Self {
        None
    }

    fn read(value: &RawValue, interner: &mut Interner) -> Result<Self, Error> {
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

    fn selection() -> Option<&'static ViewPaths> {
        T::selection()
    }

    fn absent() -> Self {
        Vec::new()
    }

    fn read(value: &RawValue, interner: &mut Interner) -> Result<Self, Error> {
        let elements: Vec<&RawValue> = serde_json::from_str(value.get())?;
        elements.into_iter().map(|element| read(element, interner)).collect()
    }
}

impl<T: ViewField> ViewField for Box<[T]> {
    const SHAPE: Shape = Shape::List(&T::SHAPE);

    fn selection() -> Option<&'static ViewPaths> {
        T::selection()
    }

    fn absent() -> Self {
        Box::default()
    }

    fn read(value: &RawValue, interner: &mut Interner) -> Result<Self, Error> {
        Vec::read(value, interner).map(Vec::into_boxed_slice)
    }
}

/// Text, borrowed if it has no escapes.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

impl<'a> Text<'a> {
    fn of(value: &'a RawValue) -> Result<Self, Error> {
        serde_json::from_str(value.get())
    }
}
