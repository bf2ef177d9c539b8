//! Deletion options from bodies and query parameters.

use serde::Deserialize;
use serde_json::Value;
use windlass_schema::check;

use super::causes::{check_dry_run, not_supported};
use crate::registry::{DeleteOptions, Propagation};
use crate::status::{Cause, Status};

/// A `DeleteOptions` as decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeleteBody {
    pub(crate) kind: String,
    pub(crate) api_version: String,
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) propagation_policy: Option<String>,
    #[serde(deserialize_with = "nothing_is_empty")]
    pub(crate) dry_run: Vec<String>,
    #[serde(deserialize_with = "nothing_is_empty")]
    pub(crate) preconditions: Preconditions,
}

/// Preconditions of a deletion.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

fn nothing_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl DeleteBody {
    /// Decodes the options in a body.
    pub(crate) fn read(body: Value) -> Result<DeleteBody, Status> {
        if body.is_null() {
            return Ok(DeleteBody::default());
        }
        if let Some(why) = mismatch(&body) {
            return Err(Status::bad_request(why));
        }
        let found: DeleteBody =
            serde_json::from_value(body).map_err(|error| Status::bad_request(error.to_string()))?;
        if matches!(&*found.kind, "" | "DeleteOptions") {
            return Ok(found);
        }
        let version = if found.api_version.is_empty() { "meta.k8s.io/v1" } else { &found.api_version };
        Err(Status::bad_request(format!(
            "no kind {:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\"",
            found.kind
        )))
    }

    /// Validates the options.
    pub(crate) fn checked(self) -> Result<DeleteOptions, Status> {
        let mut causes = Vec::new();
        let propagation = self.propagation(&mut causes);
        check_dry_run(&self.dry_run, &mut causes);
        if !causes.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", causes));
        }
        Ok(DeleteOptions {
            grace_period_seconds: self.grace_period_seconds,
            uid: self.preconditions.uid,
            resource_version: self.preconditions.resource_version,
            propagation,
            orphan_dependents: self.orphan_dependents,
            dry_run: !self.dry_run.is_empty(),
            ..DeleteOptions::default()
        })
    }

    fn propagation(&self, causes: &mut Vec<Cause>) -> Option<Propagation> {
        const FIELD: &str = "propagationPolicy";
        let policy = self.propagation_policy.as_deref()?;
        if self.orphan_dependents.is_some() {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            let message = format!("Invalid value: {policy:?}: {why}");
            causes.push(Cause { reason: "FieldValueInvalid".into(), message, field: FIELD.into() });
        }
        match policy {
            "Orphan" => Some(Propagation::Orphan),
            "Background" => Some(Propagation::Background),
            "Foreground" => Some(Propagation::Foreground),
            other => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                causes.push(not_supported(FIELD, &format!("{other:?}"), &supported));
                None
            }
        }
    }
}

/// Fields of the options with their Go types.
const TYPES: [(&str, &str); 5] = [
    ("gracePeriodSeconds", "int64"),
    ("orphanDependents", "bool"),
    ("propagationPolicy", "v1.DeletionPropagation"),
    ("dryRun", "[]string"),
    ("preconditions", "v1.Preconditions"),
];

/// Returns the message of Go's decoder for the first field of a wrong type.
fn mismatch(body: &Value) -> Option<String> {
    let fits = |value: &Value, of: &str| match of {
        _ if value.is_null() => true,
        "int64" => value.is_i64(),
        "bool" => value.is_boolean(),
        "[]string" => value.is_array(),
        "v1.Preconditions" => value.is_object(),
        _ => value.is_string(),
    };
    let wrong = TYPES.into_iter().find(|(name, of)| body.get(name).is_some_and(|it| !fits(it, of)));
    if let Some((name, of)) = wrong {
        let given = given_type(&body[name]);
        return Some(format!(
            "json: cannot unmarshal {given} into Go struct field DeleteOptions.{name} of type {of}"
        ));
    }
    [("uid", "types.UID"), ("resourceVersion", "string")].into_iter().find_map(|(name, of)| {
        let found = body.get("preconditions")?.get(name).filter(|it| !it.is_null() && !it.is_string())?;
        let given = given_type(found);
        Some(format!(
            "json: cannot unmarshal {given} into Go struct field Preconditions.preconditions.{name} of type {of}"
        ))
    })
}

fn given_type(value: &Value) -> String {
    match value {
        Value::Number(number) if !number.is_i64() => format!("number {number}"),
        other => check::kind_of(other).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn delete_options_of_a_body_are_decoded() {
        let body = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Foreground",
            "preconditions": {"uid": "u", "resourceVersion": "7"}, "dryRun": ["All"],
        });
        let found = DeleteBody::read(body).and_then(DeleteBody::checked);
        let found = found.unwrap_or_else(|status| panic!("{status:?}"));
        assert_eq!(found.grace_period_seconds, Some(0));
        assert_eq!(found.propagation, Some(Propagation::Foreground));
        assert_eq!(found.uid.as_deref(), Some("u"));
        assert_eq!(found.resource_version.as_deref(), Some("7"));
        assert!(found.dry_run);
    }

    #[test]
    fn invalid_delete_options_get_upstream_messages() {
        let refused = |body| DeleteBody::read(body).and_then(DeleteBody::checked).err().map(|it| it.message);
        assert_eq!(
            refused(json!({"propagationPolicy": "Maybe"})).as_deref(),
            Some(
                "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Maybe\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
            )
        );
        assert_eq!(
            refused(json!({"propagationPolicy": "Orphan", "orphanDependents": true})).as_deref(),
            Some(
                "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set"
            )
        );
        assert!(refused(json!({"kind": "Pod"})).is_some());
    }
}
