//! Node selectors and required node affinity.
//!
//! The selector and the affinity must both match. The affinity matches if one of its terms matches. A term without
//! requirements or with an invalid requirement matches no node. API servers accept some invalid requirements.

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement as Requirement, NodeSelectorTerm, PodSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use windlass_object::{LabelSelector, Labels};

use crate::shared::node_view::NodeView;

/// The only field of nodes that terms can select.
pub(crate) const NAME_FIELD: &str = "metadata.name";

/// The nodes that a pod requires.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RequiredNodeAffinity {
    selector: LabelSelector,
    /// `None` if the pod has no required affinity.
    terms: Option<Vec<Term>>,
}

/// A valid term: all requirements must match.
#[derive(Clone, Debug, PartialEq)]
struct Term {
    labels: LabelSelector,
    comparisons: Vec<Comparison>,
    fields: Vec<FieldMatch>,
}

/// A label whose value must be a larger or a smaller number.
#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    key: String,
    operator: Inequality,
    limit: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inequality {
    Greater,
    Less,
}

/// A field that must have a value, or must not have it.
#[derive(Clone, Debug, PartialEq)]
struct FieldMatch {
    key: String,
    value: String,
    equal: bool,
}

impl RequiredNodeAffinity {
    /// Returns the affinity of a pod without requirements, which matches all nodes.
    pub(crate) fn everywhere() -> Self {
        Self { selector: LabelSelector::everything(), terms: None }
    }

    /// Returns the required affinity of a pod with this spec.
    pub(crate) fn from_spec(spec: &PodSpec) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required =
            affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
        let selector = spec.node_selector.as_ref().map(LabelSelector::from_map);
        Self { selector: selector.unwrap_or_else(LabelSelector::everything), terms: required.map(terms) }
    }

    /// Returns whether the pod can run on a node.
    pub(crate) fn matches(&self, node: &NodeView) -> bool {
        let name = node.metadata.header.key.name();
        self.selector.matches(&node.metadata.labels)
            && self.terms.as_ref().is_none_or(|terms| {
                terms.iter().any(|term| term.matches(name, (&node.metadata.labels).into()))
            })
    }
}

fn terms(selector: &NodeSelector) -> Vec<Term> {
    selector.node_selector_terms.iter().filter_map(Term::from_api).collect()
}

impl Term {
    /// Returns the term; `None` if it can match no node.
    fn from_api(term: &NodeSelectorTerm) -> Option<Self> {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        if expressions.is_empty() && fields.is_empty() {
            return None;
        }
        let (compared, selected): (Vec<_>, Vec<_>) =
            expressions.iter().partition(|it| inequality(&it.operator).is_some());
        Some(Self {
            labels: label_selector(selected.into_iter().map(label_requirement).collect())?,
            comparisons: compared.into_iter().map(Comparison::from_api).collect::<Option<_>>()?,
            fields: fields.iter().map(FieldMatch::from_api).collect::<Option<_>>()?,
        })
    }

    fn matches(&self, name: &str, labels: Labels<'_>) -> bool {
        self.labels.matches(labels)
            && self.comparisons.iter().all(|comparison| comparison.matches(labels))
            // Only a node that was never stored has no name.
            && (name.is_empty() || self.fields.iter().all(|field| field.matches(name)))
    }
}

fn label_requirement(requirement: &Requirement) -> meta::LabelSelectorRequirement {
    meta::LabelSelectorRequirement {
        key: requirement.key.clone(),
        operator: requirement.operator.clone(),
        values: requirement.values.clone(),
    }
}

/// Returns the selector of these requirements; `None` if one is invalid.
fn label_selector(requirements: Vec<meta::LabelSelectorRequirement>) -> Option<LabelSelector> {
    let selector = meta::LabelSelector { match_expressions: Some(requirements), match_labels: None };
    LabelSelector::from_api(&selector).ok()
}

fn inequality(operator: &str) -> Option<Inequality> {
    match operator {
        "Gt" => Some(Inequality::Greater),
        "Lt" => Some(Inequality::Less),
        _ => None,
    }
}

impl Comparison {
    fn from_api(requirement: &Requirement) -> Option<Self> {
        let [value] = requirement.values.as_deref()? else { return None };
        // Key and value must be valid for labels, so a limit is never negative.
        let operator = "In".to_owned();
        label_selector(vec![meta::LabelSelectorRequirement { operator, ..label_requirement(requirement) }])?;
        Some(Self {
            key: requirement.key.clone(),
            operator: inequality(&requirement.operator)?,
            limit: value.parse().ok()?,
        })
    }

    fn matches(&self, labels: Labels<'_>) -> bool {
        let Some(number) = labels.get(&self.key).and_then(|value| value.parse::<i64>().ok()) else {
            return false;
        };
        match self.operator {
            Inequality::Greater => number > self.limit,
            Inequality::Less => number < self.limit,
        }
    }
}

impl FieldMatch {
    fn from_api(requirement: &Requirement) -> Option<Self> {
        let [value] = requirement.values.as_deref()? else { return None };
        let equal = match requirement.operator.as_str() {
            "In" => true,
            "NotIn" => false,
            _ => return None,
        };
        Some(Self { key: requirement.key.clone(), value: value.clone(), equal })
    }

    fn matches(&self, name: &str) -> bool {
        let actual = if self.key == NAME_FIELD { name } else { "" };
        (actual == self.value) == self.equal
    }
}
