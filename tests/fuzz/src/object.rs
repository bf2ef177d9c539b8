//! Heads of objects.

use serde_json::Value;
use windlass_object::wire::{object_header, peek_header};

use crate::reference::{decode, has_duplicate_field};

/// The head of an object equals the fields of a full decode and of the header peek; it is rejected only if the full
/// decode finds no name.
pub(crate) fn header_equals_full_decode(raw: &[u8]) {
    let (head, value) = (object_header(raw), decode(raw));
    if let Ok(head) = &head {
        assert_eq!(peek_header(raw).as_ref(), Some(head), "the header peek differs");
    }
    let twice = has_duplicate_field(raw);
    // An object that only the head's reader can decode is kept as undecodable, and needs its name for that.
    let Some(value) = value.filter(|_| !twice) else { return };
    let text = |field: &str| value["metadata"][field].as_str();
    let named = value.is_object() && text("name").is_some_and(|name| !name.is_empty());
    match head {
        Ok(head) => {
            assert!(named, "a name from nowhere: {head:?}");
            assert_eq!(Some(head.key.name()), text("name"));
            assert_eq!(head.key.namespace(), text("namespace").filter(|it| !it.is_empty()));
            assert_eq!(head.uid.as_ref().map(|it| it.as_str()), text("uid"));
            assert_eq!(head.version.as_ref().map(|it| it.as_str()), text("resourceVersion"));
        }
        Err(error) => {
            assert!(!named, "{error}: {}", raw.escape_ascii());
            assert!(!error.to_string().contains('\n'), "a message is one line");
        }
    }
    errors_do_not_quote_values(&value, raw);
}

/// Values can be secrets, and errors are logged.
fn errors_do_not_quote_values(value: &Value, raw: &[u8]) {
    if let (Some(secret), Err(error)) = (value["data"].as_str(), object_header(raw)) {
        let message = format!("{error} {error:?}");
        assert!(secret.len() < 8 || !message.contains(secret), "{message}");
    }
}
