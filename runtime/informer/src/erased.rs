//! Type-erased objects. An informer is compiled once, for [`Object`]s, from the decoder to the handlers. Each type adds
//! a decoder and casts.
//!
//! Guarantees: all objects of an informer have one type, that of its [`Representation`], or are the
//! [compact form](crate::compact) of such an object. Only a [`Codec`] creates objects and casts them back.

use std::any::{TypeId, type_name};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use kube::core::ObjectMeta;
use windlass_object::{
    DecodeError, Decoder, HasMetadata as _, LabelSelector, MetadataRef, ObjectHeader, ObjectKey, Projection,
    Representation, ResourceKind,
};

use crate::compact::{CompactObject, Compactor, HotObjects};
use crate::object::Object;

/// A decoder of objects of one type. See [`Decoder`].
pub(crate) trait AnyDecoder: Send {
    fn decode(&mut self, raw: &Bytes) -> Result<Object, DecodeError>;
    fn provable_metadata(&mut self, raw: &Bytes) -> Option<ObjectMeta>;
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
    /// Whether an object can be decoded again from its bytes.
    pub(crate) is_compactable: bool,
    decoder: Box<dyn Fn() -> Box<dyn AnyDecoder> + Send + Sync>,
    hot: HotObjects,
}

/// Returns the key, the identity and the version of an object in either form.
pub(crate) type HeadOf = fn(&Object) -> ObjectHeader;

/// Returns the metadata of a decoded object.
pub(crate) type MetaOf = fn(&Object) -> MetadataRef<'_>;

impl Codec {
    pub(crate) fn of<R: Representation>(representation: R) -> Self {
        Self {
            kind: representation.kind(),
            projection: representation.projection(),
            identity: (R::identity(), TypeId::of::<R::Object>()),
            name: type_name::<R>(),
            head: |object| match object.downcast_ref::<CompactObject>() {
                Some(compact) => compact.header().clone(),
                None => borrowed::<R::Object>(object).metadata().header(),
            },
            meta: |object| borrowed::<R::Object>(object).metadata(),
            is_compactable: representation.is_compactable(),
            decoder: Box::new(move || Box::new(Erased(representation.decoder()))),
            hot: HotObjects::new(),
        }
    }

    /// Returns a decoder for one writer.
    pub(crate) fn decoder(&self) -> Box<dyn AnyDecoder> {
        (self.decoder)()
    }

    /// Returns an object of the cache as its type. Decodes a compact object unless it is hot.
    ///
    /// # Panics
    /// If the object has another type, which is a bug of this crate.
    pub(crate) fn read<T: Send + Sync + 'static>(&self, object: &Object) -> Arc<T> {
        typed(self.decoded(object, |compact, object| self.hot.insert(compact, object)))
    }

    /// Returns a state in an event as its type. The state can be older than the store, so it does not become hot.
    ///
    /// # Panics
    /// If the object has another type, which is a bug of this crate.
    pub(crate) fn read_event<T: Send + Sync + 'static>(&self, state: &Object) -> Arc<T> {
        typed(self.decoded(state, |_, _| {}))
    }

    /// Returns the compact form of an object with this header that was decoded from these bytes. `is_hot` states
    /// whether the decoded object is likely to be read soon.
    pub(crate) fn compact(
        &self,
        compactor: &mut Compactor,
        raw: &[u8],
        head: &ObjectHeader,
        decoded: Object,
        is_hot: bool,
    ) -> Object {
        let compact = compactor.compact(raw, head, (self.meta)(&decoded));
        if is_hot {
            self.hot.insert(Arc::clone(&compact), decoded);
        }
        compact
    }

    /// Returns whether the labels of an object match.
    pub(crate) fn matches(&self, object: &Object, selector: &LabelSelector) -> bool {
        match object.downcast_ref::<CompactObject>() {
            Some(compact) => selector.matches(compact.labels().as_ref()),
            None => selector.matches((self.meta)(object).labels()),
        }
    }

    /// Calls `read` with the metadata of an object; `managedFields` can be missing. Does not decode the rest of a
    /// compact object.
    pub(crate) fn with_metadata<O>(&self, object: &Object, read: impl FnOnce(MetadataRef<'_>) -> O) -> O {
        let Ok(compact) = Arc::clone(object).downcast::<CompactObject>() else {
            return read((self.meta)(object));
        };
        if let Some(hot) = self.hot.get(&compact) {
            return read((self.meta)(&hot));
        }
        let metadata = windlass_object::metadata(&compact.bytes()).expect("the metadata was decoded before");
        read(MetadataRef::Full(&metadata))
    }

    /// Drops the decoded form of a deleted object.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.hot.remove(key);
    }

    /// Returns the decoded form of an object in either form. Calls `keep` with an object that was not hot.
    fn decoded(&self, object: &Object, keep: impl FnOnce(Arc<CompactObject>, Object)) -> Object {
        // Checked first, because a failed downcast would count the references twice.
        if !object.is::<CompactObject>() {
            return Arc::clone(object);
        }
        let compact = typed::<CompactObject>(Arc::clone(object));
        if let Some(hot) = self.hot.get(&compact) {
            return hot;
        }
        let mut decoder = self.decoder();
        if compact.keeps_managed_fields() {
            decoder.keep_managed_fields();
        }
        let object = decoder.decode(&compact.bytes().into()).expect("the bytes were decoded before");
        keep(compact, Arc::clone(&object));
        object
    }
}

fn typed<T: Send + Sync + 'static>(object: Object) -> Arc<T> {
    object.downcast().unwrap_or_else(|_| another_type(type_name::<T>()))
}

fn borrowed<T: 'static>(object: &Object) -> &T {
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

    fn provable_metadata(&mut self, raw: &Bytes) -> Option<ObjectMeta> {
        self.0.provable_metadata(raw)
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
