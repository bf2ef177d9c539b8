//! Field selectors in requests.

use std::sync::Arc;

use serde_json::json;
use windlass_api_server::read::{FieldReader, FieldSelector, FieldTable};
use windlass_api_server::storage::{Key, Stored};

const FIELDS: [&str; 3] = ["metadata.name", "metadata.namespace", "status.phase"];

/// Written terms select exactly the matching objects. The first line is a raw query, every other line a field, an
/// operator and a value.
pub(crate) fn field_query_selects_by_its_terms(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (query, terms) = text.split_once('\n').unwrap_or((text, ""));
    empty_terms_change_nothing(query);
    let terms: Vec<_> = terms.lines().filter_map(term).collect();
    let written: Vec<String> =
        terms.iter().map(|(field, equal, value)| written(field, *equal, value)).collect();
    let written = written.join(",");
    let selector = FieldSelector::parse(&written, &table());
    let selector = selector.unwrap_or_else(|refused| panic!("{written:?}: {refused:?}"));
    let values = terms.iter().map(|(_, _, value)| *value).chain(["", "else"]);
    for value in values {
        for at in 0..FIELDS.len() {
            let mut object = ["else"; 3];
            object[at] = value;
            let meant = terms.iter().all(|(field, equal, value)| {
                let held = FIELDS.iter().position(|it| it == field).map_or("", |at| object[at]);
                (held == *value) == *equal
            });
            let Some(stored) = stored(object) else { continue };
            assert_eq!(selector.matches(&stored), meant, "{written:?} on {object:?}");
        }
    }
    if let Some(name) = selector.required_name() {
        assert!(terms.iter().any(|(field, equal, value)| *field == FIELDS[0] && *equal && *value == name));
    }
}

fn empty_terms_change_nothing(query: &str) {
    let Ok(selector) = FieldSelector::parse(query, &table()) else { return };
    let with = FieldSelector::parse(&format!(",{query},,"), &table());
    let with = with.unwrap_or_else(|refused| panic!("{query:?} and commas: {refused:?}"));
    assert_eq!(with.is_empty(), selector.is_empty());
    assert_eq!(with.required_name(), selector.required_name());
    for object in [["a", "b", "c"], ["", "", ""]].into_iter().filter_map(stored) {
        assert_eq!(with.matches(&object), selector.matches(&object), "{query:?}");
    }
}

fn term(line: &str) -> Option<(&'static str, bool, &str)> {
    let mut words = line.splitn(3, ' ');
    let at = words.next()?.parse::<usize>().ok()?;
    let equal = words.next()? == "=";
    Some((FIELDS[at % FIELDS.len()], equal, words.next()?))
}

fn written(field: &str, equal: bool, value: &str) -> String {
    let mut text = format!("{field}{}", if equal { "=" } else { "!=" });
    for character in value.chars() {
        if matches!(character, '\\' | ',' | '=') {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

fn table() -> FieldTable {
    FieldTable::empty(|field| format!("no field {field:?}"))
        .with(FIELDS[0], FieldReader::Name)
        .with(FIELDS[1], FieldReader::Namespace)
        .with_path(FIELDS[2])
}

fn stored([name, namespace, phase]: [&str; 3]) -> Option<Arc<Stored>> {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace },
        "status": { "phase": phase },
    });
    Stored::new(Key::new(namespace, name), 1, object).map(Arc::new)
}
