//! Label and field selectors of informers.

/// Label and field selectors, in the syntax of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    /// A label selector: `app=web,tier!=cache`.
    pub labels: Option<String>,
    /// A field selector: `spec.nodeName=node-1`.
    pub fields: Option<String>,
}

/// Combines two selectors so that both must match; equal selectors are not repeated.
pub(super) fn both(one: Option<String>, other: Option<&str>) -> Option<String> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => Some(format!("{one},{other}")),
        (one, other) => one.or_else(|| other.map(str::to_owned)),
    }
}
