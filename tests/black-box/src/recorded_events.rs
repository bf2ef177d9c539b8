//! The Events of a namespace, in a form that is equal for equal behavior.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

use crate::test_namespace::TestNamespace;

/// Letters of generated names.
const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";

/// Start of the message of an Event that stands for several.
const COMBINED: &str = "(combined from similar events)";

/// Part of the message about a conflict.
const CONFLICT: &str = "the object has been modified";

/// Length of the generated end of a name.
const GENERATED: usize = 5;

/// Returns the messages of the Events by the kind and name of their object, type and reason. Generated ends of names
/// are hidden.
///
/// Not contained, because they depend on the order and speed of syncs: the number of times, the messages of more than
/// ten similar Events, of which API servers get the first ones and the last one, and messages about conflicts.
///
/// # Errors
/// Returns an error if the API server rejects the request.
pub async fn recorded_events(namespace: &TestNamespace) -> Result<Value> {
    let mut groups = BTreeMap::<String, BTreeSet<String>>::new();
    for event in namespace.list::<Event>().await? {
        let object = &event.involved_object;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let message = text(&event.message);
        if !message.contains(CONFLICT) {
            let group = [&object.kind, &object.name, &event.type_, &event.reason].map(text).join(" ");
            groups.entry(comparable(&group)).or_default().insert(comparable(&message));
        }
    }
    let messages = |messages: BTreeSet<String>| match messages.iter().any(|it| it.starts_with(COMBINED)) {
        true => json!("more than ten"),
        false => json!(messages),
    };
    let groups = groups.into_iter().map(|(group, texts)| (group, messages(texts)));
    Ok(Value::Object(groups.collect()))
}

fn comparable(text: &str) -> String {
    text.split(' ').map(without_generated_end).collect::<Vec<_>>().join(" ")
}

fn without_generated_end(word: &str) -> String {
    let name = word.trim_end_matches(|it: char| !it.is_ascii_alphanumeric());
    match name.rsplit_once('-') {
        Some((stem, end)) if end.len() == GENERATED && end.chars().all(|it| LETTERS.contains(it)) => {
            format!("{stem}-*{}", &word[name.len()..])
        }
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_generated_ends_of_names_are_hidden() {
        assert_eq!(without_generated_end("web-5c689d88bb-2xk4q"), "web-5c689d88bb-*");
        assert_eq!(without_generated_end("(web-2xk4q),"), "(web-*),");
        for word in ["web-5c689d88bb", "web-0", "web-first", "2xk4q", ""] {
            assert_eq!(without_generated_end(word), word);
        }
    }
}
