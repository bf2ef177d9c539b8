//! The revisions of a StatefulSet: the data of its template, and the template of recorded data.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::Value;
use windlass_gotext::{DumpError, Numbers, revision_data, set_template_defaults};

use super::spec::template;
use crate::shared::history::Revision;

/// Failure to record a template, or to read a recorded template.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RevisionError {
    /// The template or the data are not JSON.
    #[error("cannot encode the pod template: {0}")]
    Encode(#[from] serde_json::Error),
    /// The template cannot be converted to the data of a revision.
    #[error("cannot record the pod template: {0}")]
    Record(#[from] DumpError),
    /// The data of the revision contain no template.
    #[error("ControllerRevision {name} contains no pod template; delete it if it is not in use")]
    NoTemplate {
        /// The name of the revision.
        name: String,
    },
}

/// Returns the data of the present template.
pub(super) fn present_data(set: &StatefulSet) -> Result<String, RevisionError> {
    Ok(revision_data(&serde_json::to_value(template(set))?, Numbers::Float)?)
}

/// Returns the template of a revision.
pub(super) fn recorded_template(revision: &Revision) -> Result<PodTemplateSpec, RevisionError> {
    Ok(serde_json::from_value(recorded(revision)?)?)
}

fn recorded(revision: &Revision) -> Result<Value, RevisionError> {
    let mut data: Value = serde_json::from_str(revision.data())?;
    let template = data.pointer_mut("/spec/template").filter(|template| template.is_object());
    let template = template.map(Value::take);
    let mut template =
        template.ok_or_else(|| RevisionError::NoTemplate { name: revision.name().to_owned() })?;
    if let Some(members) = template.as_object_mut() {
        members.remove("$patch");
    }
    Ok(template)
}

/// Returns whether a rollback to this revision would result in the given data.
///
/// An older version of Kubernetes can have recorded the same template in other bytes: with null fields, or without
/// fields that later versions set to a default. Such a difference must not replace pods.
pub(super) fn restores(revision: &Revision, data: &str) -> bool {
    let restored = recorded_template(revision).and_then(|template| {
        let mut template = serde_json::to_value(template)?;
        set_template_defaults(&mut template);
        Ok(revision_data(&template, Numbers::Float)?)
    });
    restored.is_ok_and(|restored| restored == data)
}
