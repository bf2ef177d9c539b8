//! Validation of names, labels and keys, with upstream's messages.

/// A rule that returns the errors in a name. The flag marks a prefix of a generated name.
pub(crate) type NameRule = fn(&str, bool) -> Vec<String>;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
                               an alphanumeric character";

/// Validates a DNS label (RFC 1123).
pub(crate) fn label(value: &str) -> Vec<String> {
    let mut reasons = too_long(value, 63, "characters");
    if is_label(value) {
        return reasons;
    }
    if is_subdomain(value) {
        reasons.push("must not contain dots".to_owned());
    } else {
        let words = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                     start and end with an alphanumeric character";
        reasons.push(pattern(words, LABEL, &["my-name", "123-abc"]));
    }
    reasons
}

/// Validates a DNS subdomain (RFC 1123).
pub(crate) fn subdomain(value: &str) -> Vec<String> {
    let mut reasons = too_long(value, 253, "characters");
    if !is_subdomain(value) {
        let words = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                     and must start and end with an alphanumeric character";
        reasons.push(pattern(words, SUBDOMAIN, &["example.com"]));
    }
    reasons
}

/// Validates a DNS subdomain after a wildcard.
pub(crate) fn wildcard_subdomain(value: &str) -> Vec<String> {
    let mut reasons = too_long(value, 253, "characters");
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        let words = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
                     consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
        reasons.push(pattern(words, &format!(r"\*\.{SUBDOMAIN}"), &["*.example.com"]));
    }
    reasons
}

/// Validates a DNS subdomain whose labels can contain underscores.
pub(crate) fn subdomain_with_underscore(value: &str) -> Vec<String> {
    let mut reasons = too_long(value, 253, "characters");
    let edge = |it: Option<u8>| it.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        edge(label.bytes().next())
            && edge(label.bytes().last())
            && label.bytes().all(|it| edge(Some(it)) || matches!(it, b'-' | b'_'))
    };
    if !value.split('.').all(is_label) {
        let words = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or \
                     '.', and must start and end with an alphanumeric character";
        let expression = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
        reasons.push(pattern(words, expression, &["example.com"]));
    }
    reasons
}

/// Validates a qualified name: the key of a label or annotation, or a finalizer.
pub(crate) fn qualified(value: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    let examples = ["MyName", "my.name", "123-abc"];
    let name = match value.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        ["", name] => {
            reasons.push("prefix part must be non-empty".to_owned());
            *name
        }
        [prefix, name] => {
            reasons.extend(subdomain(prefix).into_iter().map(|it| format!("prefix part {it}")));
            *name
        }
        _ => {
            let words = pattern(QUALIFIED_WORDS, QUALIFIED, &examples);
            let prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {words} {prefix}")];
        }
    };
    if name.is_empty() {
        reasons.push("name part must be non-empty".to_owned());
    } else {
        reasons.extend(too_long(name, 63, "bytes").into_iter().map(|it| format!("name part {it}")));
    }
    if !is_qualified(name) {
        reasons.push(format!("name part {}", pattern(QUALIFIED_WORDS, QUALIFIED, &examples)));
    }
    reasons
}

/// Validates the value of a label.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut reasons = too_long(value, 63, "bytes");
    if !(value.is_empty() || is_qualified(value)) {
        let words = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                     and must start and end with an alphanumeric character";
        let examples = ["MyValue", "my_value", "12345"];
        reasons.push(pattern(words, &format!("({QUALIFIED})?"), &examples));
    }
    reasons
}

/// Validates the key of an entry in a ConfigMap or Secret.
pub(crate) fn data_key(value: &str) -> Vec<String> {
    let mut reasons = too_long(value, 253, "characters");
    if value.is_empty() || !value.bytes().all(|it| it.is_ascii_alphanumeric() || b"-._".contains(&it)) {
        let words = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        reasons.push(pattern(words, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    match value {
        "." => reasons.push("must not be '.'".to_owned()),
        ".." => reasons.push("must not be '..'".to_owned()),
        _ if value.starts_with("..") => reasons.push("must not start with '..'".to_owned()),
        _ => {}
    }
    reasons
}

/// Validates the name of a port: an IANA service name.
pub(crate) fn port_name(value: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    if value.len() > 15 {
        reasons.push("must be no more than 15 characters".to_owned());
    }
    if !value.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-') {
        reasons.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|it| it.is_ascii_lowercase()) {
        reasons.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        reasons.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        reasons.push("must not begin or end with a hyphen".to_owned());
    }
    reasons
}

/// Validates a name that must be a DNS subdomain, as for most kinds.
pub(crate) fn subdomain_name(name: &str, prefix: bool) -> Vec<String> {
    subdomain(&masked(name, prefix))
}

/// Validates a name whose rule upstream declares in its types. Such rules count bytes and ignore prefixes of names.
pub(crate) fn declared_subdomain_name(name: &str, prefix: bool) -> Vec<String> {
    match prefix {
        true => Vec::new(),
        false => subdomain(name).into_iter().map(|it| it.replace("253 characters", "253 bytes")).collect(),
    }
}

/// Validates a name that must be a DNS label, as for namespaces.
pub(crate) fn label_name(name: &str, prefix: bool) -> Vec<String> {
    label(&masked(name, prefix))
}

/// Validates a name that must be a path segment, as for roles and kinds without another rule.
pub(crate) fn path_name(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let barred = ["/", "%"].into_iter().filter(|it| name.contains(it));
    barred.map(|it| format!("may not contain '{it}'")).collect()
}

/// Masks the end of a prefix, which can be a dash: upstream treats its last two characters as one letter.
fn masked(name: &str, prefix: bool) -> String {
    match name.strip_suffix('-') {
        Some(rest) if prefix && !rest.is_empty() => {
            let mut shorter: String = rest.to_owned();
            shorter.pop();
            shorter + "a"
        }
        _ => name.to_owned(),
    }
}

fn is_label(value: &str) -> bool {
    let edge = |it: Option<u8>| it.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    edge(value.bytes().next())
        && edge(value.bytes().last())
        && value.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-')
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn is_qualified(value: &str) -> bool {
    let edge = |it: Option<u8>| it.is_some_and(|it| it.is_ascii_alphanumeric());
    edge(value.bytes().next())
        && edge(value.bytes().last())
        && value.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_.".contains(&it))
}

/// Returns upstream's message. Upstream always counts bytes but mentions the unit only in some messages.
fn too_long(value: &str, limit: usize, unit: &str) -> Vec<String> {
    if value.len() > limit { vec![format!("must be no more than {limit} {unit}")] } else { Vec::new() }
}

/// Returns upstream's message about a pattern, including its spacing, because programs compare it.
fn pattern(words: &str, expression: &str, examples: &[&str]) -> String {
    let examples: Vec<_> = examples.iter().map(|it| format!("'{it}', ")).collect();
    format!("{words} (e.g. {}regex used for validation is '{expression}')", examples.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_get_upstream_messages() {
        let errors = subdomain("Bad_Name");
        let expected = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                        and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
                        validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        assert_eq!(errors, [expected]);
        assert_eq!(label("a.b"), ["must not contain dots"]);
        assert_eq!(label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(path_name("..", false), ["may not be '..'"]);
        assert_eq!(path_name("a/b%", false), ["may not contain '/'", "may not contain '%'"]);
        assert!(qualified("a/b/c")[0].starts_with("a valid label key must consist"));
        assert_eq!(qualified("/b"), ["prefix part must be non-empty"]);
    }

    #[test]
    fn pattern_message_keeps_upstream_spacing() {
        assert!(label_value("-")[0].contains("(e.g. 'MyValue',  or 'my_value',  or '12345', regex"));
    }

    #[test]
    fn well_formed_names_are_valid() {
        assert!(label("a-1").is_empty() && subdomain("a.b-c.d").is_empty());
        assert!(qualified("example.com/My_Name").is_empty() && label_value("").is_empty());
        assert!(subdomain_name("pod-", true).is_empty() && subdomain_name("p.", true).len() == 1);
        assert!(port_name("http-2").is_empty() && data_key(".dockercfg").is_empty());
    }
}
