//! Splits lists, and reads object headers.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::parts::{ObjectHeader, RawList};
use super::protobuf;
use super::{OfObject, WireError, expect_json};
use crate::{ObjectKey, ResourceVersion};

/// Reads the header of one object. Fields that are not strings count as absent.
///
/// # Errors
///
/// If the bytes are not an object, or the object has no name.
pub fn object_header(raw: &[u8]) -> Result<ObjectHeader, WireError> {
    if protobuf::is_protobuf(raw) {
        return protobuf::header(raw);
    }
    expect_json(raw)?;
    let object: RawObject<'_> =
        serde_json::from_slice(raw).map_err(|error| WireError::malformed("object", &error))?;
    head_of(object.metadata.map(|OfObject(meta)| meta).unwrap_or_default())
}

/// Converts metadata to a header.
pub(super) fn head_of(meta: RawMeta<'_>) -> Result<ObjectHeader, WireError> {
    let name = text(meta.name).filter(|name| !name.is_empty());
    let name =
        name.ok_or_else(|| WireError::Malformed { what: "object", reason: "it has no name".into() })?;
    Ok(ObjectHeader {
        key: ObjectKey::new(text(meta.namespace).as_deref(), &name),
        uid: text(meta.uid).map(|uid| uid.as_ref().into()),
        version: text(meta.resource_version).and_then(|version| ResourceVersion::from_response(&version)),
    })
}

/// Splits the body of a list into its items.
///
/// # Errors
///
/// If the body is not a list. Items that are valid but not objects are returned: one item that cannot be decoded must
/// not fail the others.
pub fn list(body: Bytes) -> Result<RawList, WireError> {
    if protobuf::is_protobuf(&body) {
        return protobuf::list(&body);
    }
    expect_json(&body)?;
    let page: RawPage<'_> =
        serde_json::from_slice(&body).map_err(|error| WireError::malformed("list", &error))?;
    let meta = page.metadata.map(|OfObject(meta)| meta).unwrap_or_default();
    let items =
        page.items.ok_or_else(|| WireError::Malformed { what: "list", reason: "it has no items".into() })?;
    Ok(RawList {
        version: meta.resource_version.and_then(|it| ResourceVersion::from_response(&it)),
        continue_token: meta.continue_token.filter(|it| !it.is_empty()).map(Cow::into_owned),
        remaining: meta.remaining_item_count.and_then(|count| count.try_into().ok()),
        items: items.0.into_iter().map(|item| body.slice_ref(item.get().as_bytes())).collect(),
    })
}

/// Returns the string in a JSON value, if it is a string.
fn text(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    raw.and_then(|raw| serde_json::from_str::<Text<'_>>(raw.get()).ok()).map(|text| text.0)
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct RawObject<'a> {
    #[serde(borrow)]
    metadata: Option<OfObject<RawMeta<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawMeta<'a> {
    #[serde(borrow)]
    pub(super) name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) uid: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) resource_version: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawPage<'a> {
    #[serde(borrow)]
    metadata: Option<OfObject<RawPageMeta<'a>>>,
    #[serde(borrow, default, deserialize_with = "present")]
    items: Option<Items<'a>>,
}

/// The items; Go writes a nil slice as `null`.
struct Items<'a>(Vec<&'a RawValue>);

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Items<'de>>, D::Error> {
    let items = Option::<Vec<&'de RawValue>>::deserialize(deserializer)?;
    Ok(Some(Items(items.unwrap_or_default())))
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPageMeta<'a> {
    #[serde(borrow)]
    resource_version: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "continue")]
    continue_token: Option<Cow<'a, str>>,
    remaining_item_count: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::protobuf::ProtobufError;

    #[test]
    fn list_is_split_at_item_boundaries() {
        let body = Bytes::from_static(
            br#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"42","continue":"tok","remainingItemCount":3},
               "items":[{"metadata":{"name":"a"}} , {"metadata":{"name":"b"},"spec":"]}"} ]}"#,
        );
        let page = list(body.clone()).unwrap();
        assert_eq!(page.version, Some(ResourceVersion::new("42")));
        assert_eq!((page.continue_token.as_deref(), page.remaining), (Some("tok"), Some(3)));
        assert_eq!(
            page.items,
            [&br#"{"metadata":{"name":"a"}}"#[..], br#"{"metadata":{"name":"b"},"spec":"]}"}"#]
        );
        let (body, item) = (body.as_ptr_range(), page.items[1].as_ptr());
        assert!(body.contains(&item), "items are slices of the body, not copies");
    }

    #[test]
    fn item_that_is_not_an_object_does_not_fail_the_list() {
        let page = list(Bytes::from_static(
            br#"{"metadata":{"resourceVersion":"1"},"items":[7,{"metadata":{"name":"a"}}]}"#,
        ))
        .unwrap();
        assert!(object_header(&page.items[0]).is_err());
        assert_eq!(object_header(&page.items[1]).unwrap().key, ObjectKey::cluster("a"));
    }

    #[test]
    fn list_items_can_be_null_but_not_missing() {
        assert_eq!(list(Bytes::from_static(br#"{"metadata":{},"items":null}"#)).unwrap(), RawList::default());
        let error = list(Bytes::from_static(br#"{"kind":"Status","metadata":{}}"#)).unwrap_err();
        assert!(matches!(error, WireError::Malformed { what: "list", .. }), "{error}");
    }

    #[test]
    fn empty_continue_token_ends_the_list() {
        let page =
            list(Bytes::from_static(br#"{"metadata":{"continue":"","resourceVersion":"1"},"items":[]}"#))
                .unwrap();
        assert_eq!(page.continue_token, None);
    }

    #[test]
    fn list_format_is_detected_by_first_bytes() {
        let truncated = WireError::Protobuf(ProtobufError::Truncated);
        assert_eq!(list(Bytes::from_static(b"k8s\0\n\x0a")), Err(truncated.clone()));
        assert_eq!(object_header(b"k8s\0\n\x0a"), Err(truncated));
        let page = list(Bytes::from_static(b"<html>502 Bad Gateway</html>"));
        assert_eq!(page, Err(WireError::NotJson { excerpt: "<html>502 Bad Gateway</html>".into() }));
        assert!(list(Bytes::from_static(b" \n{\"items\":[]}")).is_ok());
    }

    #[test]
    fn object_header_is_read_regardless_of_body() {
        let raw = br#"{"spec":{"containers":7},"metadata":{"name":"a\u0062","namespace":"n","uid":"u","resourceVersion":"9","labels":3},"status":[]}"#;
        let head = object_header(raw).unwrap();
        assert_eq!(head.key, ObjectKey::namespaced("n", "ab"));
        assert_eq!((head.uid, head.version), (Some("u".into()), Some(ResourceVersion::new("9"))));
    }

    #[test]
    fn unreadable_header_fields_count_as_absent() {
        let head =
            object_header(br#"{"metadata":{"name":"a","namespace":null,"uid":7,"resourceVersion":{}}}"#)
                .unwrap();
        assert_eq!(head, ObjectHeader { key: ObjectKey::cluster("a"), uid: None, version: None });
    }

    #[test]
    fn request_only_versions_are_not_object_versions() {
        for word in ["", "0"] {
            let raw = format!(r#"{{"metadata":{{"name":"a","resourceVersion":"{word}"}}}}"#);
            assert_eq!(object_header(raw.as_bytes()).unwrap().version, None, "{word:?}");
            let page = format!(r#"{{"metadata":{{"resourceVersion":"{word}"}},"items":[]}}"#);
            assert_eq!(list(page.into()).unwrap().version, None, "{word:?}");
        }
    }

    #[test]
    fn list_debug_output_hides_object_content() {
        let page = list(Bytes::from_static(br#"{"metadata":{},"items":[{"data":"s3cr3t"}]}"#)).unwrap();
        let error = list(Bytes::from_static(br#"{"metadata":"s3cr3t","items":[]}"#)).unwrap_err();
        let printed = format!("{page:?} {error} {error:?}");
        assert!(printed.contains("items: 1") && !printed.contains("s3cr3t"), "{printed}");
    }

    #[test]
    fn object_without_name_has_no_header() {
        for raw in [
            "{}",
            r#"{"metadata":null}"#,
            r#"{"metadata":{"name":""}}"#,
            r#"{"metadata":{"name":1}}"#,
            r#"{"metadata":["a","n","u","1"]}"#,
            "[]",
            "7",
        ] {
            assert!(object_header(raw.as_bytes()).is_err(), "{raw}");
        }
    }
}
