//! Kinds that are defined while the server runs.
//!
//! Names are accepted, and kinds established, at once: there is nobody to wait for.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_schema::Catalogue;
use windlass_schema::check::{Decoded, Strictness};
use windlass_schema::custom::{self, CustomKind, CustomVersion, FieldError};

use super::invalid::FieldErrors;
use super::scale::Paths;
use super::writer::Writer;
use super::{convert, value};
use crate::read::{FieldReader, FieldTable, not_supported};
use crate::status::{Cause, Status};
use crate::storage::Collection;
use crate::tables::CustomColumn;

/// What one definition makes of the server.
#[derive(Debug)]
pub(crate) struct Definition {
    kind: CustomKind,
    object: Value,
}

impl Definition {
    /// Makes of an object what its type can hold.
    pub(crate) fn decode(&self, version: &str, object: &mut Value, strictness: Strictness) -> Decoded {
        self.version(version).map(|it| it.decode(object, strictness)).unwrap_or_default()
    }

    /// Puts in what the type says stands where nothing was given.
    pub(crate) fn apply_defaults(&self, version: &str, object: &mut Value) {
        if let Some(version) = self.version(version) {
            version.apply_defaults(object);
        }
    }

    /// What is wrong with an object by its type.
    pub(crate) fn validate(&self, version: &str, object: &Value, errors: &mut FieldErrors) {
        let found = self.version(version).map(|it| it.validate(object)).unwrap_or_default();
        errors.0.extend(found.into_iter().map(cause));
    }

    /// Where its kind keeps what a scale shows.
    pub(crate) fn scale(&self, version: &str) -> Option<Paths> {
        let scale = self.version(version)?.scale.as_ref()?;
        let path = |text: &str| text.trim_start_matches('.').split('.').map(str::to_owned).collect();
        Some(Paths {
            wanted: path(&scale.spec_replicas_path),
            seen: path(&scale.status_replicas_path),
            selector: scale.label_selector_path.as_deref().map(path),
        })
    }

    /// By which fields its objects can be selected.
    pub(crate) fn fields(&self, version: &str) -> FieldTable {
        let fields = self.version(version).map(|it| it.selectable_fields.as_slice()).unwrap_or_default();
        let named = FieldTable::empty(not_supported).with("metadata.name", FieldReader::Name);
        let table = if self.kind.namespaced {
            named.with("metadata.namespace", FieldReader::Namespace)
        } else {
            named
        };
        fields.iter().fold(table, |table, path| table.with_path(path.trim_start_matches('.').to_owned()))
    }

    /// The columns in which its objects are shown, beside the name.
    pub(crate) fn columns(&self, version: &str) -> Vec<CustomColumn> {
        let versions = value::items(&self.object, &["spec", "versions"]);
        let described = versions.iter().find(|it| value::text(it, &["name"]) == version);
        match described.map(|it| value::items(it, &["additionalPrinterColumns"])).unwrap_or_default() {
            [] => vec![CustomColumn::age()],
            columns => columns.iter().map(CustomColumn::new).collect(),
        }
    }

    fn version(&self, name: &str) -> Option<&CustomVersion> {
        self.kind.served(name)
    }
}

fn cause(error: FieldError) -> Cause {
    Cause { reason: error.reason.to_owned(), message: error.message, field: error.field }
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
    custom::default_definition(object);
}

/// Accepts the names of a definition, and says so in its status.
pub(crate) fn accept(writer: &mut Writer<'_>, object: &mut Value) -> Result<(), Status> {
    custom::default_definition(object);
    let status = match conflict(writer, object) {
        None => custom::accepted_status(object, &writer.now()),
        Some((reason, taken)) => refused_status(object, reason, &taken, &writer.now()),
    };
    value::set(object, &["status"], status);
    Ok(())
}

/// Which name another definition of the group has taken. Where there are several, upstream tells the last.
fn conflict(writer: &Writer<'_>, object: &Value) -> Option<(&'static str, String)> {
    let (group, plural) = names(object);
    let others: Vec<&Value> = writer
        .state
        .custom
        .iter()
        .filter(|(at, _)| at.0 == group && at.1 != plural)
        .map(|(_, it)| value::at(&it.object, &["spec", "names"]))
        .collect();
    let of = |fields: &[&str]| -> Vec<String> {
        let texts =
            others.iter().flat_map(|it| fields.iter().map(|field| value::text(it, &[field]).to_owned()));
        texts.collect()
    };
    let mut resources = of(&["plural", "singular"]);
    resources.extend(others.iter().flat_map(|it| value::texts(it, &["shortNames"])).map(str::to_owned));
    let kinds = of(&["kind", "listKind"]);
    let wanted = value::at(object, &["spec", "names"]);
    let one = |field: &str| vec![value::text(wanted, &[field]).to_owned()];
    let short = value::texts(wanted, &["shortNames"]).into_iter().map(str::to_owned).collect();
    let checks = [
        ("PluralConflict", one("plural"), &resources),
        ("SingularConflict", one("singular"), &resources),
        ("ShortNamesConflict", short, &resources),
        ("KindConflict", one("kind"), &kinds),
        ("ListKindConflict", one("listKind"), &kinds),
    ];
    checks.into_iter().rev().find_map(|(reason, wanted, taken)| {
        wanted.into_iter().find(|it| !it.is_empty() && taken.contains(it)).map(|name| (reason, name))
    })
}

fn refused_status(object: &Value, reason: &str, taken: &str, now: &str) -> Value {
    let condition = |of_type: &str, reason: &str, message: &str| {
        json!({
            "type": of_type,
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        })
    };
    json!({
        "conditions": [
            condition("NamesAccepted", reason, &format!("{taken:?} is already in use")),
            condition("Established", "NotAccepted", "not all names are accepted"),
        ],
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": value::at(object, &["status", "storedVersions"]),
    })
}

fn is_established(object: &Value) -> bool {
    let holds =
        |it: &Value| value::text(it, &["type"]) == "Established" && value::text(it, &["status"]) == "True";
    value::items(object, &["status", "conditions"]).iter().any(holds)
}

/// What whoever makes a definition should know.
pub(crate) fn warnings(object: &Value) -> Vec<String> {
    let Ok(kind) = CustomKind::from_definition(object) else { return Vec::new() };
    let unchecked =
        kind.unchecked_rules().iter().map(|it| format!("{it}: this server does not evaluate rules"));
    kind.warnings().iter().cloned().chain(unchecked).collect()
}

/// What is wrong with a definition.
pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    if let Err(found) = CustomKind::from_definition(object) {
        errors.0.extend(found.into_iter().map(cause));
    }
}

/// What is wrong with a new version of a definition.
pub(crate) fn validate_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(new, errors);
    for path in
        [&["spec", "scope"][..], &["spec", "names", "kind"], &["spec", "group"], &["spec", "names", "plural"]]
    {
        errors.immutable(path.join("."), value::at(new, path), value::at(old, path));
    }
}

/// Serves what a definition defines.
pub(crate) fn serve(writer: &mut Writer<'_>, object: &Value, dry_run: bool) -> Result<(), Status> {
    if dry_run || !is_established(object) {
        return Ok(());
    }
    let kind = CustomKind::from_definition(object).map_err(|errors| {
        let name = value::text(object, &["metadata", "name"]);
        let causes = errors.into_iter().map(cause).collect();
        Status::invalid("apiextensions.k8s.io", "CustomResourceDefinition", name, causes)
    })?;
    let mut catalogue = (*writer.catalogue).clone();
    let (group, plural) = names(object);
    forget(&mut catalogue, &group, &plural);
    for version in kind.versions.iter().filter(|it| it.served) {
        catalogue.insert(version.resource.clone());
    }
    let definition = Definition { kind, object: object.clone() };
    writer.state.custom.insert((group, plural), Arc::new(definition));
    writer.publish(catalogue);
    Ok(())
}

/// Serves it no longer, and removes its objects.
pub(crate) fn withdraw(writer: &mut Writer<'_>, object: &Value) -> Result<(), Status> {
    let (group, plural) = names(object);
    if !writer.state.custom.contains_key(&(group.clone(), plural.clone())) {
        return Ok(());
    }
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

fn forget(catalogue: &mut Catalogue, group: &str, plural: &str) {
    let versions: Vec<String> = catalogue
        .iter()
        .filter(|it| it.group == group && it.plural == plural)
        .map(|it| it.version.clone())
        .collect();
    for version in versions {
        catalogue.remove(group, &version, plural);
    }
}
