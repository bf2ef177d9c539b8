//! Bodies of lists.

use bytes::Bytes;
use serde_json::Value;
use windlass_object::{RawList, wire};

use crate::reference::{decode, has_duplicate_field};

/// A list is split into the items of a full decode, as slices of the body, in order; it is rejected only if it is not a
/// list.
pub(crate) fn list_split_equals_full_decode(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    let page = wire::list(body.clone());
    let value = decode(data).filter(|_| !has_duplicate_field(data));
    match (page, value) {
        (Ok(page), value) => {
            // Items in protobuf are converted; the property of objects in protobuf applies to them.
            if !body.starts_with(b"k8s\0") {
                items_are_slices(&body, &page);
            }
            if let Some(value) = value {
                agrees(&page, &value);
            }
        }
        (Err(error), Some(value)) => {
            assert!(!is_a_list(&value), "{error}: {value}");
            assert!(!error.to_string().contains('\n'), "a message is one line");
        }
        (Err(_), None) => {}
    }
}

fn items_are_slices(body: &Bytes, page: &RawList) {
    let mut behind = body.as_ptr() as usize;
    for item in &page.items {
        assert!(item.as_ptr() as usize >= behind, "items in order, none within another");
        behind = item.as_ptr() as usize + item.len();
        // A single item has the same value as in the list.
        assert_eq!(
            wire::object_header(item).is_ok(),
            wire::object_header(&Bytes::copy_from_slice(item)).is_ok()
        );
    }
    assert!(behind <= body.as_ptr() as usize + body.len());
}

fn agrees(page: &RawList, value: &Value) {
    let text = |field: &str| value["metadata"][field].as_str().filter(|it| !it.is_empty());
    assert_eq!(page.version.as_ref().map(|it| it.as_str()), text("resourceVersion"));
    assert_eq!(page.continue_token.as_deref(), text("continue"));
    assert_eq!(page.remaining, value["metadata"]["remainingItemCount"].as_u64());
    let none = Vec::new();
    let items = value["items"].as_array().unwrap_or(&none);
    assert_eq!(page.items.len(), items.len());
    for (raw, item) in page.items.iter().zip(items) {
        assert_eq!(decode(raw).as_ref(), Some(item));
    }
}

/// Returns whether the list is fully valid.
fn is_a_list(value: &Value) -> bool {
    let items = value.get("items").is_some_and(|it| it.is_array() || it.is_null());
    let metadata = &value["metadata"];
    let texts =
        ["resourceVersion", "continue"].iter().all(|it| metadata[it].is_string() || metadata[it].is_null());
    let count = &metadata["remainingItemCount"];
    let sound = metadata.is_null() || metadata.is_object();
    value.is_object() && items && sound && texts && (count.is_null() || count.is_i64())
}
