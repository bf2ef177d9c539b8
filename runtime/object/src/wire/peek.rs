//! Headers of objects that are likely to be discarded, for example those of other shards.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::list::{RawMeta, head_of};
use super::parts::ObjectHeader;
use super::protobuf;

/// Returns the header of an object from its first bytes. Reading stops after the metadata, or as soon as name,
/// namespace, UID and version are known. Servers write these first, so usually only a few hundred bytes are read.
///
/// If [`object_header`](super::object_header) succeeds, the result is the same. This function also succeeds for objects
/// that are malformed later, so read objects that are kept with [`object_header`](super::object_header). Returns `None`
/// if the first bytes are not sufficient.
pub fn peek_header(raw: &[u8]) -> Option<ObjectHeader> {
    if protobuf::is_protobuf(raw) {
        return protobuf::header(raw).ok();
    }
    let mut scan = HeaderScan::default();
    let mut reader = serde_json::Deserializer::from_slice(raw);
    // Stopping early is reported as an error, because input remains.
    let _left = ObjectVisitor(&mut scan).deserialize(&mut reader);
    scan.complete.then(|| head_of(scan.meta).ok()).flatten()
}

/// The fields read so far.
#[derive(Default)]
struct HeaderScan<'a> {
    meta: RawMeta<'a>,
    /// Whether no further field is needed.
    complete: bool,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Field {
    Metadata,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum MetaField {
    Name,
    Namespace,
    Uid,
    ResourceVersion,
    #[serde(other)]
    Other,
}

/// Reads an object up to its metadata.
struct ObjectVisitor<'scan, 'a>(&'scan mut HeaderScan<'a>);

/// Reads metadata until the header is complete.
struct MetadataVisitor<'scan, 'a>(&'scan mut HeaderScan<'a>);

impl<'a> HeaderScan<'a> {
    /// Stores a field. Returns `false` if the field occurs twice, which makes the object ambiguous.
    fn take(&mut self, field: &MetaField, value: Option<&'a RawValue>) -> bool {
        let RawMeta { name, namespace, uid, resource_version } = &mut self.meta;
        let slot = match field {
            MetaField::Name => &mut *name,
            MetaField::Namespace => &mut *namespace,
            MetaField::Uid => &mut *uid,
            MetaField::ResourceVersion => &mut *resource_version,
            MetaField::Other => return true,
        };
        let again = std::mem::replace(slot, value).is_some();
        self.complete = [name, namespace, uid, resource_version].into_iter().all(|it| it.is_some());
        !again
    }
}

impl<'de> DeserializeSeed<'de> for ObjectVisitor<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ObjectVisitor<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(field) = fields.next_key()? {
            match field {
                Field::Metadata => return fields.next_value_seed(MetadataVisitor(self.0)),
                Field::Other => {
                    let IgnoredAny = fields.next_value()?;
                }
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for MetadataVisitor<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MetadataVisitor<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(field) = fields.next_key()? {
            if matches!(field, MetaField::Other) {
                let IgnoredAny = fields.next_value()?;
            } else if !self.0.take(&field, fields.next_value()?) {
                self.0.complete = false;
                return Ok(());
            } else if self.0.complete {
                return Ok(());
            }
        }
        self.0.complete = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::object_header;
    use crate::{ObjectKey, ResourceVersion};

    /// The start of a Pod, with the fields in the order in which a server writes them.
    const BEGINNING: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","generateName":"w","namespace":"shop","uid":"u","resourceVersion":"9","#;

    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            4 => "[a-z0-9]{0,3}".prop_map(Value::from),
            1 => Just(Value::Null),
            1 => any::<i8>().prop_map(Value::from),
            1 => Just(json!({ "name": "another", "metadata": { "uid": "another" } })),
            1 => Just(json!(["]}", "\"metadata\":{\"name\":\"another\"}"])),
        ]
    }

    fn any_fields(names: &'static [&'static str]) -> impl Strategy<Value = Vec<(&'static str, Value)>> {
        let all = proptest::sample::subsequence(names, 0..=names.len()).prop_shuffle();
        all.prop_flat_map(|names| {
            let values = proptest::collection::vec(any_value(), names.len());
            values.prop_map(move |values| names.iter().copied().zip(values).collect())
        })
    }

    /// Formats the fields in the given order, including duplicates.
    fn written(fields: &[(&str, String)]) -> String {
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name:?}: {value}")).collect();
        format!("{{ {} }}", fields.join(","))
    }

    fn texts(fields: Vec<(&'static str, Value)>) -> Vec<(&'static str, String)> {
        fields.into_iter().map(|(name, value)| (name, value.to_string())).collect()
    }

    proptest! {
        #[test]
        fn peeked_header_equals_full_header(
            meta in any_fields(&["name", "namespace", "uid", "resourceVersion", "labels", "annotations", "name"]),
            rest in any_fields(&["kind", "spec", "status", "metadata"]),
            at: prop::sample::Index,
        ) {
            let mut fields = texts(rest);
            fields.insert(at.index(fields.len() + 1), ("metadata", written(&texts(meta))));
            let raw = written(&fields);
            if let Ok(head) = object_header(raw.as_bytes()) {
                prop_assert_eq!(peek_header(raw.as_bytes()), Some(head), "{}", raw);
            }
        }

        #[test]
        fn peek_reads_nothing_after_complete_header(rest in proptest::collection::vec(any::<u8>(), 0..40)) {
            let raw = [BEGINNING.as_bytes(), &rest].concat();
            let head = peek_header(&raw).expect("the beginning contains all header fields");
            prop_assert_eq!(head.key, ObjectKey::namespaced("shop", "web"));
            prop_assert_eq!((head.uid, head.version), (Some("u".into()), Some(ResourceVersion::new("9"))));
        }
    }

    #[test]
    fn peek_returns_none_when_beginning_is_insufficient() {
        let broken = [
            "",
            "k8s\0",
            "[]",
            r#"{"metadata":{"name":"a","name":"b","namespace":"n","uid":"u","resourceVersion":"1"}}"#,
            r#"{"metadata":{"name":"a","namespace":"n","uid":"u""#,
            r#"{"metadata":{"uid":"u"}}"#,
            r#"{"metadata":["a","n","u","1"]}"#,
            r#"{"spec":{"metadata":{"name":"a"}}}"#,
        ];
        for raw in broken {
            assert_eq!(peek_header(raw.as_bytes()), None, "{raw}");
        }
    }

    #[test]
    fn cluster_scoped_header_ends_with_its_metadata() {
        let raw = br#"{"metadata":{"name":"a","uid":"u","resourceVersion":"9","labels":{}},"spec":"#;
        assert_eq!(peek_header(raw).map(|head| head.key), Some(ObjectKey::cluster("a")));
    }
}
