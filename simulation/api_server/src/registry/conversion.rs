//! Conversion of custom objects between versions by a webhook.
//!
//! Guarantees:
//! - Objects are stored in the storage version of their CRD. A webhook converts writes and reads of other versions.
//! - The webhook cannot change metadata except labels and annotations. Fields that the schema of the target version
//!   does not allow are removed, and its defaults are set.
//! - The error messages are those of upstream.

use std::borrow::Cow;

use serde_json::Value;
use windlass_schema::ResourceInfo;
use windlass_schema::check::Strictness;

use super::definition::Definition;
use super::replay::{Answer, Call, waiting};
use super::writer::WriteTransaction;
use super::{conversion_review, convert, value};
use crate::status::Status;

/// Returns the call that converts an object to the version of a resource; `None` if no webhook is needed.
pub(crate) fn call(
    definition: Option<&Definition>,
    object: &Value,
    version: &str,
) -> Result<Option<Call>, Status> {
    let Some(conversion) = definition.and_then(|it| it.conversion.as_ref()) else { return Ok(None) };
    if value::text(object, &["apiVersion"]) == version {
        return Ok(None);
    }
    conversion.call(object, version).map(Some)
}

/// Returns the converted object from the response of the webhook, without fields that the schema does not allow.
pub(crate) fn accept(
    definition: &Definition,
    original: &Value,
    version: &str,
    answer: Answer,
) -> Result<Value, Status> {
    let mut converted = conversion_review::converted(original, version, answer)?;
    let name = version.rsplit_once('/').map_or(version, |it| it.1);
    definition.decode(name, &mut converted, Strictness::Ignore);
    Ok(converted)
}

impl WriteTransaction<'_> {
    /// Converts an object to the version of a resource.
    pub(crate) fn converted(&self, mut object: Value, resource: &ResourceInfo) -> Result<Value, Status> {
        let definition = self.definition(resource);
        if let Some(definition) = &definition {
            definition.renew(&mut object);
        }
        let version = convert::api_version(resource);
        match call(definition.as_deref(), &object, &version)? {
            Some(call) => {
                let mut converted = self.convert_by(call, definition.as_deref(), &object, &version)?;
                if let Some(definition) = definition {
                    definition.apply_defaults(&resource.version, &mut converted);
                }
                Ok(converted)
            }
            None => {
                let served = match convert::serve(&object, resource) {
                    Cow::Owned(served) => Some(served),
                    Cow::Borrowed(_) => None,
                };
                Ok(served.unwrap_or(object))
            }
        }
    }

    /// Converts a custom object to the version in which the webhook of its CRD requires it to be stored.
    pub(crate) fn to_storage(&self, of: &ResourceInfo, object: Value) -> Result<Value, Status> {
        let definition = self.definition(of);
        let storage = definition.as_deref().and_then(|it| it.kind.storage());
        let Some(version) = storage.map(|it| convert::api_version(&it.resource)) else { return Ok(object) };
        match call(definition.as_deref(), &object, &version)? {
            Some(call) => self.convert_by(call, definition.as_deref(), &object, &version),
            None => Ok(object),
        }
    }

    fn convert_by(
        &self,
        call: Call,
        definition: Option<&Definition>,
        object: &Value,
        version: &str,
    ) -> Result<Value, Status> {
        let (Some(answer), Some(definition)) = (self.replay.borrow_mut().answer(call), definition) else {
            return Err(waiting());
        };
        accept(definition, object, version, answer)
    }

    /// Returns the response of a webhook.
    pub(crate) fn answer_to(&self, call: Call) -> Result<Answer, Status> {
        self.replay.borrow_mut().answer(call).ok_or_else(waiting)
    }
}
