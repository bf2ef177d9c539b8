//! Names that an API server accepts.

/// Returns whether this text is a DNS label of RFC 1123, such as the name of a namespace: at most 63 lowercase letters,
/// digits and dashes, without a dash at either end.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_label_of_any_length(text)
}

/// Returns whether this text is a DNS subdomain of RFC 1123, such as the name of most objects: labels with dots between
/// them, at most 253 bytes. As in the API, a single label can be longer than 63 bytes.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label_of_any_length)
}

fn is_label_of_any_length(text: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(is_inner)
        && bytes.last().is_some_and(is_inner)
        && bytes.iter().all(|byte| is_inner(byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_api() {
        let (longest, too_long) = ("a".repeat(63), "a".repeat(64));
        for label in ["a", "7", "a-b", "0a", &longest] {
            assert!(is_dns_label(label) && is_dns_subdomain(label), "{label}");
        }
        for text in ["", "-a", "a-", "A", "a_b", "a/b", "\u{e9}"] {
            assert!(!is_dns_label(text) && !is_dns_subdomain(text), "{text}");
        }
        for name in ["a.b", "web.example.com", "1.2", &too_long, &["a"; 127].join(".")] {
            assert!(!is_dns_label(name) && is_dns_subdomain(name), "{name}");
        }
        for text in [".", "a..b", ".a", "a.", "a.-b", &"a".repeat(254)] {
            assert!(!is_dns_subdomain(text), "{text}");
        }
    }
}
