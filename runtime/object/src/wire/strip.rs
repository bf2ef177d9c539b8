//! Removes parts of the bytes of an object that are not stored.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::protobuf;

const KEY: &[u8] = b"\"managedFields\"";

/// Returns the bytes of an object without `metadata.managedFields`, which are a third of a typical object. Bytes that
/// do not have the form that servers send are returned unchanged; a decoder can then drop the fields.
///
/// # Examples
///
/// ```
/// let raw = br#"{"metadata":{"name":"a","managedFields":[{"manager":"m"}]},"spec":{}}"#;
/// assert_eq!(&*windlass_object::wire::without_managed_fields(raw), br#"{"metadata":{"name":"a"},"spec":{}}"#);
/// ```
pub fn without_managed_fields(raw: &[u8]) -> Cow<'_, [u8]> {
    if protobuf::is_protobuf(raw) {
        let object = protobuf::without_managed_fields(raw).ok().flatten();
        return object.map_or(Cow::Borrowed(raw), Cow::Owned);
    }
    match managed_fields(raw) {
        Some(Range { start, end }) => Cow::Owned([&raw[..start], &raw[end..]].concat()),
        None => Cow::Borrowed(raw),
    }
}

/// Returns the bytes of an object with only its metadata, without `managedFields`: a server can ignore a request for
/// metadata. Bytes without readable metadata are returned unchanged.
///
/// # Examples
///
/// ```
/// let raw = br#"{"kind":"Secret","metadata":{"name":"a"},"data":{"key":"dmFsdWU="}}"#;
/// assert_eq!(&*windlass_object::wire::metadata_alone(raw), br#"{"metadata":{"name":"a"}}"#);
/// ```
pub fn metadata_alone(raw: &[u8]) -> Cow<'_, [u8]> {
    if protobuf::is_protobuf(raw) {
        return protobuf::metadata_alone(raw).map_or(Cow::Borrowed(raw), Cow::Owned);
    }
    match serde_json::from_slice(raw) {
        Ok(Object { metadata: Some(metadata) }) => {
            let alone = [b"{\"metadata\":", metadata.get().as_bytes(), b"}"].concat();
            Cow::Owned(without_managed_fields(&alone).into_owned())
        }
        Ok(Object { metadata: None }) | Err(_) => Cow::Borrowed(raw),
    }
}

/// Returns the range of the field with the comma that separates it.
fn managed_fields(raw: &[u8]) -> Option<Range<usize>> {
    let object: Object<'_> = serde_json::from_slice(raw).ok()?;
    let metadata: Metadata<'_> = serde_json::from_str(object.metadata?.get()).ok()?;
    let value = metadata.managed_fields?.get();
    let start = value.as_ptr() as usize - raw.as_ptr() as usize;
    let end = start + value.len();
    let before = raw[..start].trim_ascii_end().strip_suffix(b":")?.trim_ascii_end().strip_suffix(KEY)?;
    let before = before.trim_ascii_end();
    if let Some(before) = before.strip_suffix(b",") {
        return Some(before.len()..end);
    }
    let rest = raw[end..].trim_ascii_start();
    let rest = rest.strip_prefix(b",").unwrap_or(rest);
    Some(before.len()..raw.len() - rest.len())
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    fn value(raw: &[u8]) -> Value {
        serde_json::from_slice(raw).unwrap()
    }

    proptest! {
        #[test]
        fn only_managed_fields_are_removed(
            names in proptest::sample::subsequence(vec!["name", "labels", "managedFields", "uid", "a"], 0..=5)
                .prop_shuffle(),
            pretty: bool,
        ) {
            let trap = json!([{ "managedFields": "\"managedFields\":,", "metadata": {} }]);
            let meta: Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), trap.clone())).collect();
            let object = json!({ "kind": "K", "metadata": meta, "spec": { "managedFields": [1] } });
            let raw = if pretty { serde_json::to_vec_pretty(&object) } else { serde_json::to_vec(&object) };
            let raw = raw.unwrap();
            let mut expected = object;
            expected["metadata"].as_object_mut().unwrap().remove("managedFields");
            prop_assert_eq!(value(&without_managed_fields(&raw)), expected);
        }

        #[test]
        fn unexpected_bytes_are_returned_unchanged(raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(&*without_managed_fields(&raw), &raw[..]);
        }
    }

    #[test]
    fn escaped_or_duplicate_name_is_left_to_the_decoder() {
        for raw in [
            r#"{"metadata":{"managed\u0046ields":[1]}}"#,
            r#"{"metadata":{"managedFields":[1],"managedFields":[2]}}"#,
            r#"{"metadata":["managedFields"]}"#,
        ] {
            assert_eq!(&*without_managed_fields(raw.as_bytes()), raw.as_bytes());
        }
    }
}
