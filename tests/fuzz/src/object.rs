//! Heads of objects.

use serde_json::Value;
use windlass_object::wire::{object_header, peek_header};

use crate::reference::{decode, says_something_twice};

/// What a head says of an object is what a full decode finds in it, and what its beginning says; and it is refused only
/// where that finds no name.
pub(crate) fn a_head_agrees_with_a_full_decode(raw: &[u8]) {
    let (head, value) = (object_header(raw), decode(raw));
    if let Ok(head) = &head {
        assert_eq!(peek_header(raw).as_ref(), Some(head), "the beginning says something else");
    }
    let twice = says_something_twice(raw);
    // What only the head's reader can read is on its way to quarantine, and needs its name there.
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
    says_nothing_of_its_values(&value, raw);
}

/// A value may be a secret's, and errors are logged.
fn says_nothing_of_its_values(value: &Value, raw: &[u8]) {
    if let (Some(secret), Err(error)) = (value["data"].as_str(), object_header(raw)) {
        let message = format!("{error} {error:?}");
        assert!(secret.len() < 8 || !message.contains(secret), "{message}");
    }
}
