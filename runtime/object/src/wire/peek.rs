//! Heads of objects that are probably somebody else's.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::list::{ObjectHeader, RawMeta, head_of};

/// The head of an object as its beginning tells it: nothing is read beyond the metadata, and of that nothing beyond the
/// last of name, namespace, uid and version. Servers write these first, so that of most objects a few hundred bytes are
/// looked at, however long they are.
///
/// Of what [`object_header`](super::object_header) can read it says the same. It says so, too, of an object whose rest is broken: what is
/// about to be kept is to be read with that. None if the beginning does not tell.
pub fn peek_header(raw: &[u8]) -> Option<ObjectHeader> {
    let mut look = HeaderScan::default();
    let mut reader = serde_json::Deserializer::from_slice(raw);
    // Who stops before the end is told that something is left.
    let _left = ObjectVisitor(&mut look).deserialize(&mut reader);
    look.complete.then(|| head_of(look.meta).ok()).flatten()
}

/// What has been seen so far.
#[derive(Default)]
struct HeaderScan<'a> {
    meta: RawMeta<'a>,
    /// Whether there is no more to be seen.
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
struct ObjectVisitor<'look, 'a>(&'look mut HeaderScan<'a>);

/// Reads metadata as far as it must.
struct MetadataVisitor<'look, 'a>(&'look mut HeaderScan<'a>);

impl<'a> HeaderScan<'a> {
    /// Takes a field; false if it was there before, which nobody can make sense of.
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

    /// As a server writes a Pod: the fields in this order.
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

    /// In the order in which they are, and some twice.
    fn written(fields: &[(&str, String)]) -> String {
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name:?}: {value}")).collect();
        format!("{{ {} }}", fields.join(","))
    }

    fn texts(fields: Vec<(&'static str, Value)>) -> Vec<(&'static str, String)> {
        fields.into_iter().map(|(name, value)| (name, value.to_string())).collect()
    }

    proptest! {
        #[test]
        fn beginning_says_what_the_whole_says_wherever_the_whole_says_anything(
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
        fn nothing_is_read_beyond_what_was_to_be_found(rest in proptest::collection::vec(any::<u8>(), 0..40)) {
            let raw = [BEGINNING.as_bytes(), &rest].concat();
            let head = peek_header(&raw).expect("all that there is to find");
            prop_assert_eq!(head.key, ObjectKey::namespaced("shop", "web"));
            prop_assert_eq!((head.uid, head.version), (Some("u".into()), Some(ResourceVersion::new("9"))));
        }
    }

    #[test]
    fn beginning_that_does_not_tell_says_nothing() {
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
    fn object_of_the_cluster_is_told_by_where_its_metadata_ends() {
        let raw = br#"{"metadata":{"name":"a","uid":"u","resourceVersion":"9","labels":{}},"spec":"#;
        assert_eq!(peek_header(raw).map(|head| head.key), Some(ObjectKey::cluster("a")));
    }
}
