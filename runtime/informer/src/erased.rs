//! Type-erased objects. An informer is compiled once, for [`Object`], from the decoder to the handlers. Each type adds
//! a decoder and casts.
//!
//! Guarantees: all objects of an informer have one type, that of its [`Representation`]. Only [`Codec::of`] creates
//! decoders, and only [`SharedInformer`](crate::SharedInformer), [`Lister`](crate::Lister) and indexes cast them back.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use kube::Resource as _;
use kube::core::ObjectMeta;
use windlass_object::{DecodeError, Decoder, ObjectHeader, Projection, Representation, ResourceKind};

/// An object of any type, shared.
pub(crate) type Object = Arc<dyn Any + Send + Sync>;

/// A decoder of objects of one type. See [`Decoder`].
pub(crate) trait AnyDecoder: Send {
    fn decode(&mut self, raw: &Bytes) -> Result<Object, DecodeError>;
    fn keep_managed_fields(&mut self);
}

/// The type information that an informer has about its objects.
pub(crate) struct Codec {
    pub(crate) kind: ResourceKind,
    pub(crate) projection: Projection,
    /// The identity of the representation and of the type of its objects.
    pub(crate) identity: (TypeId, TypeId),
    /// The name of the representation: it is part of the names of random streams.
    pub(crate) name: &'static str,
    pub(crate) head: HeadOf,
    pub(crate) meta: MetaOf,
    decoder: Box<dyn Fn() -> Box<dyn AnyDecoder> + Send + Sync>,
}

/// Returns the key, the identity and the version of an object.
pub(crate) type HeadOf = fn(&Object) -> ObjectHeader;

/// Returns the metadata of an object.
pub(crate) type MetaOf = fn(&Object) -> &ObjectMeta;

impl Codec {
    pub(crate) fn of<R: Representation>(representation: R) -> Self {
        Self {
            kind: representation.kind(),
            projection: representation.projection(),
            identity: (R::identity(), TypeId::of::<R::Object>()),
            name: type_name::<R>(),
            head: |object| ObjectHeader::of(borrowed::<R::Object>(object).meta()),
            meta: |object| borrowed::<R::Object>(object).meta(),
            decoder: Box::new(move || Box::new(Erased(representation.decoder()))),
        }
    }

    /// Returns a decoder for one writer.
    pub(crate) fn decoder(&self) -> Box<dyn AnyDecoder> {
        (self.decoder)()
    }
}

/// Casts a shared object to its type.
///
/// # Panics
/// If the object has another type, which is a bug of this crate.
pub(crate) fn shared<T: Send + Sync + 'static>(object: &Object) -> Arc<T> {
    Arc::clone(object).downcast().unwrap_or_else(|_| another_type(type_name::<T>()))
}

/// Casts a reference to an object to its type.
///
/// # Panics
/// If the object has another type, which is a bug of this crate.
pub(crate) fn borrowed<T: 'static>(object: &Object) -> &T {
    object.downcast_ref().unwrap_or_else(|| another_type(type_name::<T>()))
}

/// A separate function, so that it is compiled once.
#[cold]
fn another_type(wanted: &str) -> ! {
    panic!("a cache holds an object that is not a {wanted}")
}

/// A decoder whose objects are erased.
struct Erased<D>(D);

impl<D: Decoder<Object: Send + Sync + 'static>> AnyDecoder for Erased<D> {
    fn decode(&mut self, raw: &Bytes) -> Result<Object, DecodeError> {
        self.0.decode(raw).map(|object| Arc::new(object) as Object)
    }

    fn keep_managed_fields(&mut self) {
        self.0.keep_managed_fields();
    }
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Codec").field(&self.name).field(&self.kind).finish()
    }
}
