//! Label selectors.
//!
//! A thin wrapper around kube's selector, which cannot represent "nothing" and does not validate expressions. This
//! selector rejects expressions that the API server would reject. A selector that selects nothing also selects nothing
//! when it is sent in a request.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use kube::core::{Expression, Selector};

use crate::Labels;
use crate::names::is_dns_subdomain;

/// A predicate over labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSelector(Matching);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Matching {
    Nothing,
    All(Vec<Expression>),
}

impl LabelSelector {
    /// Converts the selector of an API object. An empty selector selects everything.
    ///
    /// In most API fields an *absent* selector selects nothing; callers use [`LabelSelector::nothing`] there.
    ///
    /// # Errors
    ///
    /// If an operator is unknown, has values although it takes none or lacks required values, or if a key or value is
    /// not a valid label key or value.
    pub fn from_api(selector: &v1::LabelSelector) -> Result<Self, SelectorError> {
        let equalities = selector.match_labels.iter().flatten().map(equality);
        let requirements = selector.match_expressions.iter().flatten().map(requirement);
        let expressions = equalities.chain(requirements).collect::<Result<Vec<_>, _>>()?;
        Ok(Self(Matching::All(expressions)))
    }

    /// Creates a selector from the map of a Service or ReplicationController; an object must have all labels. An empty
    /// map selects everything.
    pub fn from_map(labels: &BTreeMap<String, String>) -> Self {
        let equal = |(key, value): (&String, &String)| Expression::Equal(key.clone(), value.clone());
        Self(Matching::All(labels.iter().map(equal).collect()))
    }

    /// Creates a selector that selects every object.
    pub fn everything() -> Self {
        Self(Matching::All(Vec::new()))
    }

    /// Creates a selector that selects no object.
    pub fn nothing() -> Self {
        Self(Matching::Nothing)
    }

    /// Returns whether an object with these labels is selected.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use windlass_object::LabelSelector;
    ///
    /// let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    /// let selector = LabelSelector::from_map(&labels);
    /// assert!(selector.matches(&labels) && !selector.matches(None));
    /// ```
    pub fn matches<'a>(&self, labels: impl Into<Labels<'a>>) -> bool {
        match &self.0 {
            Matching::Nothing => false,
            Matching::All(expressions) => {
                let labels = labels.into();
                expressions.iter().all(|expression| holds(expression, labels))
            }
        }
    }

    /// Returns whether the selector has no requirements, so that it selects everything.
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Matching::Nothing => false,
            Matching::All(expressions) => expressions.is_empty(),
        }
    }
}

fn holds(expression: &Expression, labels: Labels<'_>) -> bool {
    match expression {
        Expression::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
        Expression::NotIn(key, values) => !labels.get(key).is_some_and(|value| values.contains(value)),
        Expression::Equal(key, value) => labels.get(key) == Some(value),
        Expression::NotEqual(key, value) => labels.get(key) != Some(value),
        Expression::Exists(key) => labels.get(key).is_some(),
        Expression::DoesNotExist(key) => labels.get(key).is_none(),
    }
}

/// The format of the parameter `labelSelector=`. Nothing is written as a contradiction: empty text selects everything.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Matching::Nothing => f.write_str("nothing,!nothing"),
            Matching::All(expressions) => Selector::from_iter(expressions.iter().cloned()).fmt(f),
        }
    }
}

/// Reason why API servers would reject a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// The operator is none of `In`, `NotIn`, `Exists` and `DoesNotExist`.
    #[error("{operator:?} is not an operator of label selectors; use In, NotIn, Exists or DoesNotExist")]
    Operator {
        /// The operator of the expression.
        operator: String,
    },
    /// `In` and `NotIn` need values.
    #[error("{operator} on {key:?} has no values; add at least one")]
    NoValues {
        /// The key of the expression.
        key: String,
        /// `In` or `NotIn`.
        operator: String,
    },
    /// `Exists` and `DoesNotExist` take no values.
    #[error("{operator} on {key:?} has values; remove them")]
    Values {
        /// The key of the expression.
        key: String,
        /// `Exists` or `DoesNotExist`.
        operator: String,
    },
    /// The key is not a valid label key.
    #[error(
        "{0:?} is not a label key; use [prefix/]name with letters, digits, -, _ and ., at most 63 in the name"
    )]
    Key(String),
    /// The value is not a valid label value.
    #[error("{0:?} is not a label value; use at most 63 letters, digits, -, _ and ., or leave it empty")]
    Value(String),
}

fn equality((key, value): (&String, &String)) -> Result<Expression, SelectorError> {
    check_key(key)?;
    check_value(value)?;
    Ok(Expression::Equal(key.clone(), value.clone()))
}

fn requirement(written: &v1::LabelSelectorRequirement) -> Result<Expression, SelectorError> {
    let (key, operator) = (written.key.clone(), written.operator.clone());
    let values = written.values.as_deref().unwrap_or_default();
    check_key(&key)?;
    values.iter().try_for_each(|value| check_value(value))?;
    match (operator.as_str(), values.is_empty()) {
        ("In", false) => Ok(Expression::In(key, values.iter().cloned().collect())),
        ("NotIn", false) => Ok(Expression::NotIn(key, values.iter().cloned().collect())),
        ("Exists", true) => Ok(Expression::Exists(key)),
        ("DoesNotExist", true) => Ok(Expression::DoesNotExist(key)),
        ("In" | "NotIn", true) => Err(SelectorError::NoValues { key, operator }),
        ("Exists" | "DoesNotExist", false) => Err(SelectorError::Values { key, operator }),
        _ => Err(SelectorError::Operator { operator }),
    }
}

/// Maximum length of the name of a label key, and of a label value, in bytes.
const MAX_NAME_LENGTH: usize = 63;

fn check_key(key: &str) -> Result<(), SelectorError> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if prefix.is_none_or(is_dns_subdomain) && !name.is_empty() && is_label_text(name) {
        Ok(())
    } else {
        Err(SelectorError::Key(key.into()))
    }
}

fn check_value(value: &str) -> Result<(), SelectorError> {
    if is_label_text(value) { Ok(()) } else { Err(SelectorError::Value(value.into())) }
}

/// Letters and digits, with `-`, `_` and `.` between them.
fn is_label_text(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_NAME_LENGTH
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> v1::LabelSelector {
        v1::LabelSelector {
            match_expressions: Some(vec![v1::LabelSelectorRequirement {
                key: key.into(),
                operator: operator.into(),
                values: Some(values.iter().map(|value| (*value).into()).collect()),
            }]),
            ..Default::default()
        }
    }

    #[test]
    fn empty_selector_selects_everything_and_nothing_selects_nothing() {
        let empty = LabelSelector::from_api(&v1::LabelSelector::default()).unwrap();
        assert!(empty.is_empty() && empty == LabelSelector::everything());
        assert!(empty.matches(&labels(&[])) && empty.matches(None));
        assert!(!LabelSelector::nothing().is_empty());
        assert!(!LabelSelector::nothing().matches(&labels(&[("nothing", "")])));
    }

    #[test]
    fn selector_of_nothing_is_not_formatted_as_empty() {
        assert_eq!(LabelSelector::everything().to_string(), "");
        assert_eq!(LabelSelector::nothing().to_string(), "nothing,!nothing");
    }

    #[test]
    fn expressions_match_like_the_api_server() {
        let (front, back, bare) = (labels(&[("tier", "front")]), labels(&[("tier", "back")]), labels(&[]));
        let cases = [
            ("In", &["front", "side"][..], [true, false, false]),
            ("NotIn", &["front"][..], [false, true, true]),
            ("Exists", &[][..], [true, true, false]),
            ("DoesNotExist", &[][..], [false, false, true]),
        ];
        for (operator, values, expected) in cases {
            let selector = LabelSelector::from_api(&expression("tier", operator, values)).unwrap();
            assert_eq!([&front, &back, &bare].map(|it| selector.matches(it)), expected, "{operator}");
        }
    }

    #[test]
    fn labels_and_expressions_are_both_required() {
        let api = v1::LabelSelector {
            match_labels: Some(labels(&[("app", "web")])),
            ..expression("tier", "In", &["front"])
        };
        let selector = LabelSelector::from_api(&api).unwrap();
        assert!(selector.matches(&labels(&[("app", "web"), ("tier", "front")])));
        assert!(!selector.matches(&labels(&[("app", "web")])));
        assert_eq!(selector.to_string(), "app=web,tier in (front)");
    }

    #[test]
    fn invalid_selectors_are_rejected_like_upstream() {
        let refused = |selector: &v1::LabelSelector| LabelSelector::from_api(selector).unwrap_err();
        assert!(matches!(refused(&expression("a", "Near", &[])), SelectorError::Operator { .. }));
        assert!(matches!(refused(&expression("a", "In", &[])), SelectorError::NoValues { .. }));
        assert!(matches!(refused(&expression("a", "Exists", &["b"])), SelectorError::Values { .. }));
        assert!(matches!(refused(&expression("a", "In", &["-b"])), SelectorError::Value(_)));
        for key in ["", "-a", "a b", "Example.com/a", "example.com/", "a/b/c", &"a".repeat(64)] {
            assert!(matches!(refused(&expression(key, "Exists", &[])), SelectorError::Key(_)), "{key:?}");
        }
        for key in ["a", "A_b.c-9", "example.com/a", "x.y-z.io/A"] {
            assert!(LabelSelector::from_api(&expression(key, "Exists", &[])).is_ok(), "{key:?}");
        }
    }
}
