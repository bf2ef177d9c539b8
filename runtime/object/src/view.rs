//! Views: structs with the fields that a controller reads, decoded without the rest of the object.
//!
//! A decoded Pod takes 25 to 50 KB in memory, and a view with its addresses and conditions 1.2 to 1.7 KB. A struct
//! becomes a view by `#[derive(View)]`, and is then watched like any other type.
//!
//! Guarantees:
//! - A view contains the [`Metadata`](crate::Metadata) of the object, which lacks annotations, and the values at its
//!   paths. A value that the object lacks, or that is null, is the empty value of its type.
//! - From JSON and from protobuf, equal objects decode to equal views. Text, integers, times, lists and maps are read
//!   from protobuf directly; a value of another type is converted to JSON alone. Fields outside the view are skipped
//!   without allocation; in protobuf their content is not checked.
//! - An object whose value at a path has another type cannot be decoded. Without a name it cannot be decoded either.
//! - For built-in kinds a wrong path, or a field of the wrong type, is a compile error.
//! - Values of type `Arc<str>`, labels, owners and finalizers that are equal share their memory, for each writer of a
//!   cache.
//!
//! Views are not written: to change an object, apply the fields to change, or read the full object.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;

use crate::{DecodeError, Decoder, HasMetadata, Representation, ResourceKind};

mod fields;
mod interner;
mod metadata;
mod paths;
#[cfg(test)]
mod tests;
mod value;

pub use self::fields::Optional;
pub use self::interner::Interner;
pub use self::paths::{Step, ViewPaths};
pub use self::value::{Error, Value};

/// Items for the code of `#[derive(View)]`.
#[doc(hidden)]
pub mod derived {
    pub use k8s_openapi;

    pub use crate::{HasMetadata, Metadata, MetadataRef, ResourceKind, Watchable};
}

/// A struct of some fields of an object or of a part of it. Implemented by `#[derive(View)]`.
pub trait Fields: Sized {
    /// Returns the paths of the fields.
    fn paths() -> &'static ViewPaths;
    /// Returns the view of an object without these fields.
    fn empty() -> Self;
    /// Sets the field with this index to a value.
    ///
    /// # Errors
    ///
    /// If the value has another type.
    fn set(&mut self, field: usize, value: Value<'_>, interner: &mut Interner) -> Result<(), Error>;
}

/// A view of an object. Implemented by `#[derive(View)]`.
pub trait View: Fields + HasMetadata {
    /// Returns the kind of the objects.
    fn kind() -> ResourceKind;
}

/// A type that a field of a view can have.
pub trait ViewField: Sized {
    /// The values that this type reads.
    const SHAPE: Shape;

    /// Returns the value of an absent field.
    fn absent() -> Self;

    /// Reads a value.
    ///
    /// # Errors
    ///
    /// If the value has another type.
    fn read(value: Value<'_>, interner: &mut Interner) -> Result<Self, Error>;
}

/// The type of a value in the API.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Text. Bytes are text too, in base64.
    Text,
    /// An integer.
    Integer,
    /// A number with a fraction.
    Number,
    /// A boolean.
    Bool,
    /// A time, as text.
    Time,
    /// A quantity, as text.
    Quantity,
    /// An integer or text.
    IntOrString,
    /// An object with fields: the index of its [message](windlass_kinds::Message::index).
    Object(u16),
    /// A list.
    List(&'static Shape),
    /// A map from text.
    Map(&'static Shape),
    /// Any JSON.
    Any,
}

impl Shape {
    /// Returns whether a type that reads this shape can read values of the other shape.
    pub const fn reads(&self, value: &Shape) -> bool {
        match (self, value) {
            (Shape::Any, _) | (_, Shape::Any) => true,
            (Shape::Text, Shape::Text | Shape::Time | Shape::Quantity)
            | (Shape::Integer, Shape::Integer)
            | (Shape::Number, Shape::Number | Shape::Integer)
            | (Shape::Bool, Shape::Bool)
            | (Shape::Time, Shape::Time)
            | (Shape::Quantity, Shape::Quantity)
            | (Shape::IntOrString, Shape::IntOrString | Shape::Integer | Shape::Text) => true,
            (Shape::Object(a), Shape::Object(b)) => *a == *b,
            (Shape::List(a), Shape::List(b)) | (Shape::Map(a), Shape::Map(b)) => a.reads(b),
            _ => false,
        }
    }
}

/// Returns the view of a part of an object.
///
/// # Errors
///
/// If the value is not an object, or a field has another type.
#[doc(hidden)]
pub fn read_fields<T: Fields>(part: Value<'_>, interner: &mut Interner) -> Result<T, Error> {
    let mut view = T::empty();
    T::paths().walk(part, &mut |field, value| view.set(field, value, interner))?;
    Ok(view)
}

/// Objects as views.
pub struct ViewObjects<V>(PhantomData<fn() -> V>);

impl<V> ViewObjects<V> {
    /// Creates the representation.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<V> Default for ViewObjects<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> Clone for ViewObjects<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for ViewObjects<V> {}

impl<V> fmt::Debug for ViewObjects<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Views<{}>", type_name::<V>())
    }
}

impl<V: View> Representation for ViewObjects<V> {
    type Object = V;
    type Decoder = ViewDecoder<V>;

    fn kind(&self) -> ResourceKind {
        V::kind()
    }

    fn decoder(&self) -> ViewDecoder<V> {
        ViewDecoder { kind: V::kind(), interner: Interner::default(), view: PhantomData }
    }
}

/// A decoder of views.
pub struct ViewDecoder<V> {
    kind: ResourceKind,
    interner: Interner,
    view: PhantomData<fn() -> V>,
}

impl<V: View> Decoder for ViewDecoder<V> {
    type Object = V;

    fn decode(&mut self, raw: &Bytes) -> Result<V, DecodeError> {
        let failed = |reason| DecodeError { kind: self.kind.kind.to_string(), reason };
        let mut view = V::empty();
        let walked =
            V::paths().walk_object(raw, &mut |field, value| view.set(field, value, &mut self.interner));
        walked.map_err(|error| failed(error.to_string()))?;
        if view.metadata().name().is_empty() {
            return Err(failed("it has no name".to_owned()));
        }
        Ok(view)
    }
}

impl<V> fmt::Debug for ViewDecoder<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewDecoder").field("view", &type_name::<V>()).finish_non_exhaustive()
    }
}
