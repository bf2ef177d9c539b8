//! By which labels and fields informers select.

/// By which labels and fields to select, as the API spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    /// A label selector: `app=web,tier!=cache`.
    pub labels: Option<String>,
    /// A field selector: `spec.nodeName=node-1`.
    pub fields: Option<String>,
}

/// Selectors that both hold; one said twice is said once.
pub(super) fn both(one: Option<String>, other: Option<&str>) -> Option<String> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => Some(format!("{one},{other}")),
        (one, other) => one.or_else(|| other.map(str::to_owned)),
    }
}
