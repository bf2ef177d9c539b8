//! Bodies of error responses.

use windlass_object::wire;

use crate::reference::{decode, has_duplicate_field};

/// Every body gives a status with a code and a message, and a body that is a Status gives that status. The first two
/// bytes are the status code of the response.
pub(crate) fn any_body_gives_a_status(data: &[u8]) {
    let [high, low, body @ ..] = data else { return };
    let code = 100 + u16::from_be_bytes([*high, *low]) % 500;
    let status = wire::status(code, body);
    assert_ne!(status.code, 0);
    assert!(!status.message.is_empty());
    let Some(value) = decode(body).filter(|_| !has_duplicate_field(body)) else {
        return;
    };
    if !value.is_object() {
        assert_eq!(status.code, code, "only objects are statuses: {value}");
    }
    if value["kind"] == "Status" && status.code != code {
        assert_eq!(value["code"], status.code);
    }
    if let (Some(reason), true) = (value["reason"].as_str(), value["kind"] == "Status")
        && value["code"].as_u64() == Some(u64::from(status.code))
        && !reason.is_empty()
    {
        assert_eq!(status.reason, reason);
    }
}
