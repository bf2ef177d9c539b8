//! Representations: the Rust types that informers decode objects into, and their decoders.

use std::{any::TypeId, fmt, marker::PhantomData};

use bytes::Bytes;
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta, Resource, TypeMeta};
use serde::{Deserialize, de::DeserializeOwned};

use crate::wire::protobuf::{Converter, Parts, is_protobuf};
use crate::wire::{FrameDecoder, reason_without_values};
use crate::{HasMetadata, ResourceKind, Scoped};

/// Decodes the bytes of one object.
///
/// Each writer of a store has its own decoder, so a decoder can hold an interner, a template or a scratch buffer.
pub trait Decoder: Send + 'static {
    /// The type of the decoded object.
    type Object;

    /// Decodes one object: an item of a list, or the object of a watch frame. It is in JSON, or in protobuf if
    /// [`wire::protobuf::supports`](crate::wire::protobuf::supports) the kind. Items of lists in JSON can lack
    /// `apiVersion` and `kind`. Objects can lack `managedFields`, unless the informer keeps them.
    ///
    /// # Errors
    ///
    /// If the bytes are not an object of this kind. The decoder stays usable.
    fn decode(&mut self, raw: &Bytes) -> Result<Self::Object, DecodeError>;

    /// Returns the metadata of an object, without decoding the object, if this proves that [`decode`](Self::decode)
    /// succeeds. A cache of compressed objects then decodes the object only when it is read. The default implementation
    /// returns `None`: the cache decodes the object to prove it.
    fn provable_metadata(&mut self, raw: &Bytes) -> Option<ObjectMeta> {
        let _unread = raw;
        None
    }

    /// Keeps `managedFields` in objects that are decoded later. The default implementation does nothing: such a decoder
    /// drops the fields, or keeps only the fields it is written for.
    fn keep_managed_fields(&mut self) {}
}

/// The type that an informer decodes the objects of a kind into.
///
/// No blanket implementation exists, because kinds known only at run time and metadata-only objects are representations
/// too. Stores, handlers, index functions and listers use only `Object`.
pub trait Representation: Send + Sync + 'static {
    /// The type of the objects. Readers and handlers receive it as `Arc<Object>`.
    type Object: HasMetadata;
    /// The decoder for the objects.
    type Decoder: Decoder<Object = Self::Object>;

    /// Returns the kind of the objects.
    fn kind(&self) -> ResourceKind;

    /// Creates a decoder for one writer.
    fn decoder(&self) -> Self::Decoder;

    /// Returns the part of each object that the server has to send. A server can send more, and the decoder must accept
    /// that.
    fn projection(&self) -> Projection {
        Projection::Full
    }

    /// Returns whether the decoder depends on the bytes alone: equal bytes always decode to equal objects, and bytes
    /// that were decoded once are decoded again without an error. A cache then stores the bytes, compressed, and
    /// decodes an object again when it is read. `false` by default: such a cache stores decoded objects. Types whose
    /// `Deserialize` reads a clock or a global value need a representation that returns `false`, or a cache of decoded
    /// objects.
    fn is_compactable(&self) -> bool {
        false
    }

    /// Returns the type ID of the representation. Together with the kind it identifies an informer.
    fn identity() -> TypeId {
        TypeId::of::<Self>()
    }
}

/// The part of each object that a reader needs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Projection {
    /// The full object.
    #[default]
    Full,
    /// Only the metadata: a small part of a typical object, and sufficient for garbage collectors and counters.
    Metadata,
}

/// A Rust type whose objects can be watched: types of k8s-openapi, types that derive `CustomResource`, and
/// [views](crate::view).
pub trait Watchable: HasMetadata + Sized {
    /// The representation of the objects.
    type Representation: Representation<Object = Self>;

    /// Returns the representation of the objects.
    fn representation() -> Self::Representation;
}

impl<K> Watchable for K
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    K::Scope: Scoped,
{
    type Representation = TypedObjects<K>;

    fn representation() -> TypedObjects<K> {
        TypedObjects::new()
    }
}

/// The full object as its Rust type. `managedFields` are dropped unless the decoder is configured to
/// [keep](Decoder::keep_managed_fields) them: few readers need them, and they take a third of a typical object.
pub struct TypedObjects<K>(PhantomData<fn() -> K>);

impl<K> TypedObjects<K> {
    /// Creates the representation.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<K> Default for TypedObjects<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Clone for TypedObjects<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for TypedObjects<K> {}

impl<K> fmt::Debug for TypedObjects<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Typed<{}>", std::any::type_name::<K>())
    }
}

impl<K> Representation for TypedObjects<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    K::Scope: Scoped,
{
    type Object = K;
    type Decoder = ObjectDecoder<K>;

    fn kind(&self) -> ResourceKind {
        ResourceKind::of::<K>()
    }

    fn is_compactable(&self) -> bool {
        true
    }

    fn decoder(&self) -> ObjectDecoder<K> {
        let decoder = ObjectDecoder::new(&self.kind(), |raw, _| serde_json::from_slice(raw));
        ObjectDecoder { decodes_all: is_generated::<K>(), ..decoder }
    }
}

/// Returns whether a type decodes every object that upstream's messages can express: the types of `k8s-openapi` are
/// generated from the same descriptions. If the name of such a type changes, objects are decoded to prove it.
fn is_generated<K>() -> bool {
    std::any::type_name::<K>().starts_with("k8s_openapi::")
}

/// Decoder for the representations in this crate.
pub struct ObjectDecoder<T> {
    types: TypeMeta,
    keeps_managed_fields: bool,
    /// Whether the type is generated from upstream's descriptions, or reads any JSON.
    decodes_all: bool,
    projection: Projection,
    read: ReadObject<T>,
    converter: Converter,
}

/// A function that decodes an object. It adds the given type metadata to list items that lack it.
type ReadObject<T> = fn(&[u8], &TypeMeta) -> serde_json::Result<T>;

impl<T> ObjectDecoder<T> {
    fn new(kind: &ResourceKind, read: ReadObject<T>) -> Self {
        let types = TypeMeta { api_version: kind.api_version(), kind: kind.kind.to_string() };
        Self {
            types,
            keeps_managed_fields: false,
            decodes_all: false,
            projection: Projection::Full,
            read,
            converter: Converter::new(FrameDecoder::DEFAULT_LIMIT),
        }
    }
}

impl<T: Resource + 'static> Decoder for ObjectDecoder<T> {
    type Object = T;

    fn decode(&mut self, raw: &Bytes) -> Result<T, DecodeError> {
        let parts = match self.projection {
            Projection::Full => Parts::All,
            Projection::Metadata => Parts::Metadata,
        };
        let failed = |reason| DecodeError { kind: self.types.kind.clone(), reason };
        let json = self.converter.json(raw, parts).map_err(|error| failed(error.to_string()))?;
        let read = (self.read)(json, &self.types);
        let mut object = read.map_err(|error| failed(reason_without_values(&error)))?;
        if !self.keeps_managed_fields {
            object.meta_mut().managed_fields = None;
        }
        Ok(object)
    }

    fn provable_metadata(&mut self, raw: &Bytes) -> Option<ObjectMeta> {
        let Self { types, decodes_all, projection, converter, .. } = self;
        if !*decodes_all || !is_protobuf(raw) {
            return None;
        }
        if *projection == Projection::Full && !converter.is_decodable(raw, &types.api_version, &types.kind) {
            return None;
        }
        serde_json::from_slice(converter.json(raw, Parts::Metadata).ok()?).ok().map(without_managed_fields)
    }

    fn keep_managed_fields(&mut self) {
        self.keeps_managed_fields = true;
        self.converter.keep_managed_fields();
    }
}

impl<T> fmt::Debug for ObjectDecoder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectDecoder").field("types", &self.types).finish_non_exhaustive()
    }
}

/// An object of a kind known only at run time, as kube's `DynamicObject`. `managedFields` are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicObjects {
    kind: ResourceKind,
}

impl DynamicObjects {
    /// Creates a representation for objects of this kind.
    pub const fn new(kind: ResourceKind) -> Self {
        Self { kind }
    }
}

impl Representation for DynamicObjects {
    type Object = DynamicObject;
    type Decoder = ObjectDecoder<DynamicObject>;

    fn kind(&self) -> ResourceKind {
        self.kind.clone()
    }

    fn is_compactable(&self) -> bool {
        true
    }

    fn decoder(&self) -> ObjectDecoder<DynamicObject> {
        let decoder = ObjectDecoder::new(&self.kind, |raw, types| {
            let mut object: DynamicObject = serde_json::from_slice(raw)?;
            object.types.get_or_insert_with(|| types.clone());
            Ok(object)
        });
        ObjectDecoder { decodes_all: true, ..decoder }
    }
}

/// The metadata of objects of any kind, as kube's `PartialObjectMeta`. Requests ask the server for metadata only.
/// `managedFields` are dropped unless kept; `apiVersion` and `kind` are those of the full objects.
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use windlass_object::{Decoder as _, MetadataObjects, Representation as _, ResourceKind};
///
/// let metadata = MetadataObjects::new(ResourceKind::of::<Pod>());
/// let pod = metadata.decoder().decode(&r#"{"metadata":{"name":"a","labels":{"tier":"front"}}}"#.into())?;
/// assert_eq!(pod.metadata.labels.as_ref().and_then(|labels| labels.get("tier")).map(String::as_str), Some("front"));
/// # Ok::<(), windlass_object::DecodeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataObjects {
    kind: ResourceKind,
}

impl MetadataObjects {
    /// Creates a representation for the metadata of objects of this kind.
    pub const fn new(kind: ResourceKind) -> Self {
        Self { kind }
    }
}

impl Representation for MetadataObjects {
    type Object = PartialObjectMeta;
    type Decoder = ObjectDecoder<PartialObjectMeta>;

    fn kind(&self) -> ResourceKind {
        self.kind.clone()
    }

    fn is_compactable(&self) -> bool {
        true
    }

    fn decoder(&self) -> ObjectDecoder<PartialObjectMeta> {
        let decoder = ObjectDecoder::new(&self.kind, |raw, types| {
            let MetadataOnly { metadata } = serde_json::from_slice(raw)?;
            Ok(PartialObjectMeta { types: Some(types.clone()), metadata, _phantom: PhantomData })
        });
        ObjectDecoder { decodes_all: true, projection: Projection::Metadata, ..decoder }
    }

    fn projection(&self) -> Projection {
        Projection::Metadata
    }
}

/// The only field that is decoded; other fields are ignored.
#[derive(Deserialize)]
struct MetadataOnly {
    metadata: ObjectMeta,
}

/// Decodes the metadata of an object, without `managedFields`. Used for objects that cannot be decoded as their type.
/// Returns `None` if the metadata cannot be decoded either.
pub fn metadata(raw: &[u8]) -> Option<ObjectMeta> {
    let mut converter = Converter::new(FrameDecoder::DEFAULT_LIMIT);
    serde_json::from_slice(converter.json(raw, Parts::Metadata).ok()?).ok().map(without_managed_fields)
}

fn without_managed_fields(MetadataOnly { mut metadata }: MetadataOnly) -> ObjectMeta {
    metadata.managed_fields = None;
    metadata
}

/// Error for bytes that are not an object of the requested kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode {kind}: {reason}")]
pub struct DecodeError {
    /// The requested kind.
    pub kind: String,
    /// The reason. For JSON it contains the error of the parser with line and column.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ControllerRevision;
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::ObjectHeader;

    const POD: &str = r#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7",
        "managedFields":[{"manager":"m","operation":"Update"}]},"spec":{"containers":[]}}"#;

    // parity: default-transform, memory-22-7-k
    #[test]
    fn managed_fields_are_dropped() {
        let typed = TypedObjects::<Pod>::new().decoder().decode(&POD.into()).unwrap();
        assert_eq!(typed.metadata.managed_fields, None);
        let dynamic = DynamicObjects::new(ResourceKind::of::<Pod>()).decoder().decode(&POD.into()).unwrap();
        assert_eq!(dynamic.metadata.managed_fields, None);
    }

    #[test]
    fn floats_are_unchanged_by_decoding_and_encoding() {
        for float in ["31.245270191439438", "121.48791951161945", "1e-323", "2.2250738585072014e-308"] {
            let pod = POD.replace("\"containers\":[]", &format!("\"weight\":{float}"));
            let dynamic =
                DynamicObjects::new(ResourceKind::of::<Pod>()).decoder().decode(&pod.into()).unwrap();
            assert_eq!(serde_json::to_string(&dynamic.data["spec"]["weight"]).unwrap(), float);
        }
    }

    // parity: default-transform
    #[test]
    fn managed_fields_are_kept_when_configured() {
        let mut typed = TypedObjects::<Pod>::new().decoder();
        typed.keep_managed_fields();
        assert_eq!(
            typed.decode(&POD.into()).unwrap().metadata.managed_fields.as_ref().map(Vec::len),
            Some(1)
        );
        let mut dynamic = DynamicObjects::new(ResourceKind::of::<Pod>()).decoder();
        dynamic.keep_managed_fields();
        assert_eq!(
            dynamic.decode(&POD.into()).unwrap().metadata.managed_fields.as_ref().map(Vec::len),
            Some(1)
        );
    }

    /// Encodes a field with fewer than 16,384 bytes.
    fn field(number: u8, inside: &[u8]) -> Vec<u8> {
        let length = u16::try_from(inside.len()).expect("a short field");
        let length = [(length & 0x7f | 0x80).to_le_bytes()[0], (length >> 7).to_le_bytes()[0]];
        [&[number << 3 | 2], &length[..], inside].concat()
    }

    fn protobuf(version: &str, kind: &str, spec: &[u8]) -> Bytes {
        let types = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        let object = [field(1, &field(1, b"a")), field(2, spec)].concat();
        [b"k8s\0", &field(1, &types)[..], &field(2, &object)].concat().into()
    }

    #[test]
    fn metadata_proves_only_objects_that_decode() {
        let revision = |data: &str| protobuf("apps/v1", "ControllerRevision", &field(1, data.as_bytes()));
        let deep = ["[".repeat(130), "]".repeat(130)].concat();
        for data in [&*deep, "1e999", r#""\ud800""#] {
            let mut typed = TypedObjects::<ControllerRevision>::new().decoder();
            let mut dynamic = DynamicObjects::new(ResourceKind::of::<ControllerRevision>()).decoder();
            let raw = revision(data);
            assert!(typed.decode(&raw).is_err() && dynamic.decode(&raw).is_err(), "{data}");
            assert_eq!(
                (typed.provable_metadata(&raw), dynamic.provable_metadata(&raw)),
                (None, None),
                "{data}"
            );
        }
        // A renew time of 9999-12-31T23:59:59Z.
        let never = field(4, b"\x08\xff\x96\xfc\xff\xaf\x07");
        let mut leases = TypedObjects::<Lease>::new().decoder();
        let raw = protobuf("coordination.k8s.io/v1", "Lease", &never);
        assert!(leases.decode(&raw).is_err());
        assert_eq!(leases.provable_metadata(&raw), None);
        let raw = protobuf("coordination.k8s.io/v1", "Lease", b"");
        let name = leases.provable_metadata(&raw).and_then(|metadata| metadata.name);
        assert_eq!(name, leases.decode(&raw).expect("a lease").metadata.name);
        let mut pods = TypedObjects::<Pod>::new().decoder();
        // A status whose condition has an empty probe time, as kube-apiserver sends it.
        let condition = field(2, &[field(1, b"Ready"), field(3, b"")].concat());
        let types = [field(1, b"v1"), field(2, b"Pod")].concat();
        let pod = [field(1, &field(1, b"a")), field(3, &condition)].concat();
        let pod = [b"k8s\0", &field(1, &types)[..], &field(2, &pod)].concat().into();
        assert!(pods.provable_metadata(&pod).is_some() && pods.decode(&pod).is_ok());
        assert!(pods.decode(&raw).is_err());
        assert_eq!(pods.provable_metadata(&raw), None, "an object of another kind");
    }

    #[test]
    fn object_header_is_equal_for_stored_and_wire_form() {
        let typed = TypedObjects::<Pod>::new().decoder().decode(&POD.into()).unwrap();
        assert_eq!(ObjectHeader::of(&typed.metadata), crate::wire::object_header(POD.as_bytes()).unwrap());
        for word in ["", "0"] {
            let pod = POD.replace("\"resourceVersion\":\"7\"", &format!("\"resourceVersion\":\"{word}\""));
            let typed = TypedObjects::<Pod>::new().decoder().decode(&pod.clone().into()).unwrap();
            assert_eq!(
                ObjectHeader::of(&typed.metadata),
                crate::wire::object_header(pod.as_bytes()).unwrap()
            );
        }
    }

    // parity: objects-gvk-populated
    #[test]
    fn decoder_fills_in_missing_type_of_list_item() {
        let dynamic = DynamicObjects::new(ResourceKind::of::<Pod>()).decoder().decode(&POD.into()).unwrap();
        let types = dynamic.types.clone().unwrap();
        assert_eq!((types.api_version.as_str(), types.kind.as_str()), ("v1", "Pod"));
        assert_eq!(dynamic.data["spec"]["containers"], serde_json::json!([]));
    }

    #[test]
    fn metadata_decodes_from_full_and_partial_objects() {
        let partial = POD.replace(
            "\"metadata\"",
            "\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\"",
        );
        let partial = partial.replace(",\"spec\":{\"containers\":[]}", "");
        for raw in [POD.to_owned(), partial] {
            let metadata = MetadataObjects::new(ResourceKind::of::<Pod>());
            assert_eq!(metadata.projection(), Projection::Metadata);
            let decoded = metadata.decoder().decode(&raw.clone().into()).unwrap();
            assert_eq!(decoded.types.as_ref().map(|types| types.kind.as_str()), Some("Pod"));
            assert_eq!(decoded.metadata.managed_fields, None);
            assert_eq!(
                ObjectHeader::of(&decoded.metadata),
                crate::wire::object_header(raw.as_bytes()).unwrap()
            );
        }
        let error =
            MetadataObjects::new(ResourceKind::of::<Pod>()).decoder().decode(&"{}".into()).unwrap_err();
        assert!(error.to_string().starts_with("cannot decode Pod: "), "{error}");
    }

    #[test]
    fn decode_error_names_kind_and_decoder_stays_usable() {
        let mut decoder = TypedObjects::<Pod>::new().decoder();
        let error =
            decoder.decode(&r#"{"metadata":{"name":"a"},"spec":{"containers":7}}"#.into()).unwrap_err();
        assert!(error.to_string().starts_with("cannot decode Pod: "), "{error}");
        assert!(decoder.decode(&POD.into()).is_ok());
    }

    #[test]
    fn error_does_not_quote_the_object() {
        let raw = r#"{"metadata":{"name":"a"},"spec":{"containers":"s3cr3t, \"so to speak\""}}"#.into();
        let error = TypedObjects::<Pod>::new().decoder().decode(&raw).unwrap_err().to_string();
        assert!(error.contains("line 1") && !error.contains("s3cr3t") && !error.contains("speak"), "{error}");
    }

    #[test]
    fn identities_of_representations_differ() {
        assert_ne!(TypedObjects::<Pod>::identity(), DynamicObjects::identity());
    }
}
