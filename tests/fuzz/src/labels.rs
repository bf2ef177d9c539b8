//! Label selectors, in objects and in requests.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use serde_json::{Map, Value};
use windlass_api_server::read;
use windlass_object::LabelSelector;

/// A selector of an object selects the same objects here and, sent in a request, on the server. Each line is a key, an
/// operator and values; lines after an empty line are labels, a key and a value each.
pub(crate) fn sent_selector_has_same_meaning(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (written, labels) = text.split_once("\n\n").unwrap_or((text, ""));
    let api = written_selector(written);
    let Ok(selector) = LabelSelector::from_api(&api) else { return };
    let sent = selector.to_string();
    assert_eq!(sent.is_empty(), selector.is_empty(), "only an empty selector is written as an empty query");
    let parsed = read::LabelSelector::parse(&sent).unwrap_or_else(|refused| panic!("{sent:?}: {refused:?}"));
    let sets = label_sets(&api, labels);
    for labels in sets {
        let map: Map<String, Value> =
            labels.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
        assert_eq!(selector.matches(&labels), parsed.matches(Some(&map)), "{sent:?} on {labels:?}");
    }
    assert_eq!(selector.matches(None), parsed.matches(None), "{sent:?} on nothing");
}

/// A label query that is parsed, printed and parsed again has the same meaning.
pub(crate) fn printed_label_query_has_same_meaning(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(selector) = read::LabelSelector::parse(text) else { return };
    let printed = selector.to_string();
    let again = read::LabelSelector::parse(&printed);
    let again = again.unwrap_or_else(|refused| panic!("{text:?} was printed as {printed:?}: {refused:?}"));
    assert_eq!(again, selector, "{text:?} was printed as {printed:?}");
    assert_eq!(again.to_string(), printed);
    assert_eq!(printed.is_empty(), selector.is_empty());
}

fn written_selector(text: &str) -> v1::LabelSelector {
    let (mut equal, mut expressions) = (BTreeMap::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split(' ').map(str::to_owned);
        let (Some(key), Some(operator)) = (words.next(), words.next()) else { continue };
        if operator == "=" {
            equal.insert(key, words.next().unwrap_or_default());
        } else {
            expressions.push(v1::LabelSelectorRequirement { key, operator, values: Some(words.collect()) });
        }
    }
    v1::LabelSelector { match_labels: Some(equal), match_expressions: Some(expressions) }
}

/// Returns the given labels, and every key of the selector with each of its values, one at a time.
fn label_sets(api: &v1::LabelSelector, given: &str) -> Vec<BTreeMap<String, String>> {
    let pair = |line: &str| line.split_once(' ').map(|(key, value)| (key.to_owned(), value.to_owned()));
    let given: BTreeMap<String, String> = given.lines().filter_map(pair).collect();
    let equal = api.match_labels.clone().unwrap_or_default();
    let mut sets = vec![BTreeMap::new(), given.clone(), equal.clone()];
    for expression in api.match_expressions.iter().flatten() {
        for value in expression.values.iter().flatten().map(String::as_str).chain(["", "other"]) {
            let with = |mut set: BTreeMap<String, String>| {
                set.insert(expression.key.clone(), value.to_owned());
                set
            };
            sets.extend([with(given.clone()), with(equal.clone())]);
        }
        let mut without = equal.clone();
        without.remove(&expression.key);
        sets.push(without);
    }
    sets
}
