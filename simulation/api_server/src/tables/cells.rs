//! Contents of cells: parts of objects, ages and labels.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// An object to convert to a row, and the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    pub(super) object: &'a Value,
    pub(super) now: Timestamp,
}

impl<'a> Row<'a> {
    /// Returns the value at a JSON pointer.
    pub(super) fn at(self, path: &str) -> Option<&'a Value> {
        self.object.pointer(path).filter(|it| !it.is_null())
    }

    pub(super) fn text(self, path: &str) -> &'a str {
        self.at(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the text at a pointer, or `otherwise` if it is missing.
    pub(super) fn text_or(self, path: &str, otherwise: &'a str) -> &'a str {
        match self.text(path) {
            "" => otherwise,
            text => text,
        }
    }

    pub(super) fn integer(self, path: &str) -> i64 {
        self.at(path).and_then(Value::as_i64).unwrap_or_default()
    }

    pub(super) fn boolean(self, path: &str) -> bool {
        self.at(path).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(super) fn list(self, path: &str) -> &'a [Value] {
        self.at(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of fields of an object.
    pub(super) fn fields(self, path: &str) -> usize {
        self.at(path).and_then(Value::as_object).map_or(0, serde_json::Map::len)
    }

    pub(super) fn name(self) -> &'a str {
        self.text("/metadata/name")
    }

    pub(super) fn age(self) -> Value {
        json!(self.since("/metadata/creationTimestamp"))
    }

    /// Returns the age of the time at a pointer.
    pub(super) fn since(self, path: &str) -> String {
        since(self.text(path), self.now)
    }

    /// Returns whether the object is terminating.
    pub(super) fn is_leaving(self) -> bool {
        self.at("/metadata/deletionTimestamp").is_some()
    }

    /// Returns the status of a condition.
    pub(super) fn condition(self, kind: &str) -> Option<&'a str> {
        let found = self.list("/status/conditions").iter().find(|it| it["type"] == kind)?;
        found["status"].as_str()
    }

    /// Returns names and images of the containers at a pointer as two cells.
    pub(super) fn containers(self, path: &str) -> [Value; 2] {
        let each = |field: &str| {
            let all: Vec<_> =
                self.list(path).iter().map(|it| it[field].as_str().unwrap_or_default()).collect();
            json!(all.join(","))
        };
        [each("name"), each("image")]
    }

    /// Returns labels as `a=b,c=d`, or `<none>`.
    pub(super) fn labels(self, path: &str) -> Value {
        json!(or_none(labels(self.at(path))))
    }

    /// Returns a label selector as text, or `<none>`.
    pub(super) fn selector(self, path: &str) -> Value {
        json!(or_none(selector(self.at(path))))
    }
}

/// Returns `<none>` for an empty text.
pub(super) fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

/// Formats the age of a time.
pub(super) fn since(time: &str, now: Timestamp) -> String {
    match (time, time.parse::<Timestamp>()) {
        ("", _) => "<unknown>".to_owned(),
        (_, Ok(time)) => human(now.duration_since(time)),
        (_, Err(_)) => "<invalid>".to_owned(),
    }
}

/// Formats a duration with two or three significant figures. Tolerates clock skew below two seconds.
pub(super) fn human(length: SignedDuration) -> String {
    let seconds = length.as_secs();
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let two = |large: i64, unit: &str, small: i64, smaller: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{smaller}"),
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, "d", hours % 24, "h"),
        () if years < 2 => format!("{days}d"),
        () if years < 8 => two(years, "y", days % 365, "d"),
        () => format!("{years}y"),
    }
}

fn labels(found: Option<&Value>) -> String {
    let fields = found.and_then(Value::as_object).into_iter().flatten();
    let pairs: Vec<_> =
        fields.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
    pairs.join(",")
}

/// Formats a label selector in query format.
pub(super) fn selector(found: Option<&Value>) -> String {
    let Some(found) = found else { return String::new() };
    let labels = found["matchLabels"].as_object().into_iter().flatten();
    let mut terms: Vec<(&str, String)> = labels
        .map(|(name, value)| (name.as_str(), format!("{name}={}", value.as_str().unwrap_or_default())))
        .collect();
    for term in found["matchExpressions"].as_array().into_iter().flatten() {
        let key = term["key"].as_str().unwrap_or_default();
        let values: BTreeSet<_> =
            term["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let values = values.into_iter().collect::<Vec<_>>().join(",");
        terms.push((
            key,
            match term["operator"].as_str().unwrap_or_default() {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "DoesNotExist" => format!("!{key}"),
                _ => key.to_owned(),
            },
        ));
    }
    terms.sort_by_key(|(key, _)| *key);
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

/// Formats the first three items of a list and the number of others.
pub(super) fn first_three(all: &[String]) -> String {
    let shown = all.iter().take(3).cloned().collect::<Vec<_>>().join(",");
    match all.len() {
        0..=3 => shown,
        many => format!("{shown} + {} more...", many - 3),
    }
}

/// Formats a quantity, number or text without quotes.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
