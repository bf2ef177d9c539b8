//! Validates base64 with the error messages of Go's decoder.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Encodes bytes.
pub(super) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Checks standard base64 with padding; line breaks are ignored.
pub(super) fn check(text: &str) -> Result<(), String> {
    let illegal = |index: usize| Err(format!("illegal base64 data at input byte {index}"));
    let mut digits = text.bytes().enumerate().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n'));
    let (mut start, mut count, mut padding) = (0, 0, 0);
    while let Some((index, byte)) = digits.next() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' if padding == 0 => {
                if count % 4 == 0 {
                    start = index;
                }
                count += 1;
            }
            b'=' if padding > 0 || count % 4 >= 2 => {
                padding += 1;
                if count % 4 + padding > 4 {
                    return illegal(index);
                }
                if count % 4 + padding == 4 {
                    return digits.next().map_or(Ok(()), |(index, _)| illegal(index));
                }
            }
            _ => return illegal(index),
        }
    }
    if padding > 0 {
        return illegal(text.len());
    }
    if count % 4 == 0 { Ok(()) } else { illegal(start) }
}
