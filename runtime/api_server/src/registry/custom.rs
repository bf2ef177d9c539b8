//! Kinds that are defined while the server runs.
//!
//! Names are accepted, and kinds established, at once: there is nobody to wait for.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_schema::check::{Decoded, Strictness};
use windlass_schema::{Node, ResourceInfo, Schema, SubresourceInfo, Types};

use super::invalid::FieldErrors;
use super::scale::Paths;
use super::writer::Writer;
use super::{convert, value};
use crate::read::{FieldReader, FieldTable};
use crate::status::Status;
use crate::storage::Collection;
use crate::tables::CustomColumn;

/// What one definition makes of the server.
#[derive(Debug)]
pub(crate) struct Definition {
    object: Value,
}

impl Definition {
    /// Makes of an object what its type can hold.
    pub(crate) fn decode(&self, _version: &str, _object: &mut Value, _strictness: Strictness) -> Decoded {
        Decoded::default()
    }

    /// Puts in what the type says stands where nothing was given.
    pub(crate) fn apply_defaults(&self, _version: &str, _object: &mut Value) {}

    /// What is wrong with an object by its type.
    pub(crate) fn validate(
        &self,
        _version: &str,
        _object: &Value,
        _old: Option<&Value>,
        _errors: &mut FieldErrors,
    ) {
    }

    /// Where its kind keeps what a scale shows.
    pub(crate) fn scale(&self, version: &str) -> Option<Paths> {
        let scale = value::at(self.version(version), &["subresources", "scale"]);
        let path = |field: &str| {
            let text = value::text(scale, &[field]).trim_start_matches('.');
            (!text.is_empty()).then(|| text.split('.').map(str::to_owned).collect::<Vec<_>>())
        };
        Some(Paths {
            wanted: path("specReplicasPath")?,
            seen: path("statusReplicasPath")?,
            selector: path("labelSelectorPath"),
        })
    }

    /// By which fields its objects can be selected.
    pub(crate) fn fields(&self, version: &str) -> FieldTable {
        let fields = value::items(self.version(version), &["selectableFields"]);
        fields.iter().fold(FieldTable::metadata(), |table, field| {
            let path = value::text(field, &["jsonPath"]).trim_start_matches('.').to_owned();
            let pointer = format!("/{}", path.replace('.', "/"));
            table.with(path, FieldReader::Pointer(pointer.into()))
        })
    }

    /// The columns in which its objects are shown, beside the name.
    pub(crate) fn columns(&self, version: &str) -> Vec<CustomColumn> {
        match value::items(self.version(version), &["additionalPrinterColumns"]) {
            [] => vec![CustomColumn::age()],
            described => described.iter().map(CustomColumn::new).collect(),
        }
    }

    fn version(&self, name: &str) -> &Value {
        static NONE: Value = Value::Null;
        let versions = value::items(&self.object, &["spec", "versions"]);
        versions.iter().find(|it| value::text(it, &["name"]) == name).unwrap_or(&NONE)
    }

    fn resources(&self) -> Vec<ResourceInfo> {
        let spec = value::at(&self.object, &["spec"]);
        let text = |path: &[&str]| value::text(spec, path).to_owned();
        let list =
            |path: &[&str]| value::texts(spec, path).into_iter().map(str::to_owned).collect::<Vec<_>>();
        let served = value::items(spec, &["versions"]).iter().filter(|it| value::flag(it, &["served"]));
        let verbs = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
        let resources = served.map(|version| ResourceInfo {
            group: text(&["group"]),
            version: value::text(version, &["name"]).to_owned(),
            plural: text(&["names", "plural"]),
            singular: text(&["names", "singular"]),
            kind: text(&["names", "kind"]),
            list_kind: text(&["names", "listKind"]),
            namespaced: text(&["scope"]) == "Namespaced",
            verbs: verbs.map(str::to_owned).to_vec(),
            short_names: list(&["names", "shortNames"]),
            categories: list(&["names", "categories"]),
            subresources: value::entries(version, &["subresources"])
                .map(|(name, _)| {
                    let scale = name == "scale";
                    let info = SubresourceInfo {
                        group: scale.then(|| "autoscaling".to_owned()),
                        version: scale.then(|| "v1".to_owned()),
                        kind: if scale { "Scale".to_owned() } else { text(&["names", "kind"]) },
                        verbs: ["get", "patch", "update"].map(str::to_owned).to_vec(),
                    };
                    (name.clone(), info)
                })
                .collect(),
            schema: Schema { types: Arc::new(Types::default()), root: Arc::new(Node::anything()) },
        });
        resources.collect()
    }
}

/// Serves what the stored definitions define.
pub(crate) fn load(writer: &mut Writer<'_>) -> Result<(), Status> {
    let definitions = Collection::new("apiextensions.k8s.io", "customresourcedefinitions");
    for stored in writer.all(&definitions, "") {
        serve(writer, &stored.value, false)?;
    }
    Ok(())
}

/// Puts in what a definition leaves out.
pub(crate) fn defaults(object: &mut Value) {
    let spec = value::place(object, &["spec"]);
    let kind = value::text(spec, &["names", "kind"]).to_owned();
    value::default(spec, &["names", "singular"], kind.to_lowercase());
    value::default(spec, &["names", "listKind"], format!("{kind}List"));
    value::default(spec, &["conversion", "strategy"], "None");
}

/// Accepts the names of a definition, and says so in its status.
pub(crate) fn accept(writer: &mut Writer<'_>, object: &mut Value) -> Result<(), Status> {
    let now = writer.now();
    let condition = |of_type: &str, reason: &str, message: &str| json!({"type": of_type, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now});
    let names = value::at(object, &["spec", "names"]).clone();
    value::set(object, &["status", "acceptedNames"], names);
    if value::is_empty(object, &["status", "conditions"]) {
        let conditions = json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]);
        value::set(object, &["status", "conditions"], conditions);
    }
    let stored = value::items(object, &["spec", "versions"]).iter().find(|it| value::flag(it, &["storage"]));
    let stored = stored.map(|it| value::at(it, &["name"]).clone());
    let mut versions = value::items(object, &["status", "storedVersions"]).to_vec();
    versions.extend(stored.filter(|it| !versions.contains(it)).into_iter().collect::<Vec<_>>());
    value::set(object, &["status", "storedVersions"], versions);
    Ok(())
}

/// What is wrong with a definition.
pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let spec = value::at(object, &["spec"]);
    let expected = format!("{}.{}", value::text(spec, &["names", "plural"]), value::text(spec, &["group"]));
    let name = value::text(object, &["metadata", "name"]);
    if name != expected {
        errors.invalid("metadata.name", name, "must be spec.names.plural+\".\"+spec.group");
    }
}

/// What is wrong with a new version of a definition.
pub(crate) fn validate_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(new, errors);
    for field in [["spec", "group"], ["spec", "scope"], ["spec", "names"]] {
        let last = field.last().copied().unwrap_or_default();
        if last == "names" {
            for name in ["plural", "kind"] {
                let part = |it: &Value| value::at(it, &["spec", "names", name]).clone();
                errors.immutable(format!("spec.names.{name}"), &part(new), &part(old));
            }
            continue;
        }
        errors.immutable(format!("spec.{last}"), value::at(new, &field), value::at(old, &field));
    }
}

/// Serves what a definition defines.
pub(crate) fn serve(writer: &mut Writer<'_>, object: &Value, dry_run: bool) -> Result<(), Status> {
    if dry_run {
        return Ok(());
    }
    let definition = Arc::new(Definition { object: object.clone() });
    let mut catalogue = (*writer.catalogue).clone();
    let (group, plural) = names(object);
    forget(&mut catalogue, &group, &plural);
    for resource in definition.resources() {
        catalogue.insert(resource);
    }
    writer.state.custom.insert((group, plural), definition);
    writer.publish(catalogue);
    Ok(())
}

/// Serves it no longer, and removes its objects.
pub(crate) fn withdraw(writer: &mut Writer<'_>, object: &Value) -> Result<(), Status> {
    let (group, plural) = names(object);
    let served = writer.catalogue.iter().find(|it| it.group == group && it.plural == plural).cloned();
    if let Some(resource) = served {
        for stored in writer.all(&convert::collection(&resource), "") {
            writer.erase(&resource, &stored, stored.value.clone())?;
        }
    }
    let mut catalogue = (*writer.catalogue).clone();
    forget(&mut catalogue, &group, &plural);
    writer.state.custom.remove(&(group, plural));
    writer.publish(catalogue);
    Ok(())
}

fn names(object: &Value) -> (String, String) {
    let text = |path: &[&str]| value::text(object, path).to_owned();
    (text(&["spec", "group"]), text(&["spec", "names", "plural"]))
}

fn forget(catalogue: &mut windlass_schema::Catalogue, group: &str, plural: &str) {
    let versions: Vec<String> = catalogue
        .iter()
        .filter(|it| it.group == group && it.plural == plural)
        .map(|it| it.version.clone())
        .collect();
    for version in versions {
        catalogue.remove(group, &version, plural);
    }
}
