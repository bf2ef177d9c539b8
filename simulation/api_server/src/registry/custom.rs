//! CustomResourceDefinitions (CRDs): custom kinds that are added while the server runs.
//!
//! Names are accepted and kinds established immediately after a write, because there are no other replicas. As
//! upstream, the response to the write does not contain the result. A deleted CRD remains until its objects, which can
//! have finalizers, are deleted.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_schema::Catalog;
use windlass_schema::custom::{self, CustomKind};

use super::definition::{Definition, cause};
use super::invalid::FieldErrors;
use super::request::{DeleteOptions, Target, WriteOptions};
use super::rules::Compiled;
use super::writer::WriteTransaction;
use super::{convert, value};
use crate::status::Status;
use crate::storage::{Collection, Stored};

/// Finalizer that keeps a CRD until its objects are deleted.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// Group, version and plural name of CRDs.
const DEFINITIONS: (&str, &str, &str) = ("apiextensions.k8s.io", "v1", "customresourcedefinitions");

/// Serves the stored CRDs. An invalid CRD does not affect the others.
pub(crate) fn load(transaction: &mut WriteTransaction<'_>) {
    for stored in transaction.all(&definitions(), "") {
        if let Err(status) = serve(transaction, &stored.value, false) {
            tracing::error!(
                definition = %stored.key,
                message = status.message,
                "stored CustomResourceDefinition rejected; not serving its kind"
            );
        }
    }
}

/// Returns the collection of CRDs.
fn definitions() -> Collection {
    Collection::new(DEFINITIONS.0, DEFINITIONS.2)
}

/// Sets the defaults of a CRD.
pub(crate) fn defaults(object: &mut Value) {
    custom::default_definition(object);
}

/// Sets the status of a new CRD, whose names are not accepted yet.
pub(crate) fn reset_status(object: &mut Value) {
    value::remove(object, &["status"]);
    custom::default_definition(object);
    value::set(object, &["status", "conditions"], Value::Null);
    value::set(object, &["status", "acceptedNames"], json!({"plural": "", "kind": ""}));
}

/// Accepts or rejects the names of a CRD and records the result in its status.
fn accept(transaction: &WriteTransaction<'_>, object: &mut Value) {
    let status = match conflict(transaction, object) {
        None => custom::accepted_status(object, &transaction.now()),
        Some((reason, taken)) => refused_status(object, reason, &taken, &transaction.now()),
    };
    // Only these two conditions depend on the names.
    let mut others = value::items(object, &["status", "conditions"]).to_vec();
    others.retain(|it| !matches!(value::text(it, &["type"]), "NamesAccepted" | "Established"));
    value::set(object, &["status"], status);
    if let Some(conditions) = value::items_mut(object, &["status", "conditions"]) {
        conditions.extend(others);
    }
}

/// Returns a name that another CRD of the group has taken. If there are several, upstream reports the last.
fn conflict(transaction: &WriteTransaction<'_>, object: &Value) -> Option<(&'static str, String)> {
    let (group, plural) = names(object);
    let others: Vec<&Value> = transaction
        .served
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

/// Returns the warnings for a CRD.
pub(crate) fn warnings(object: &Value) -> Vec<String> {
    let Ok(kind) = CustomKind::from_definition(object) else { return Vec::new() };
    let mut warnings = kind.warnings().to_vec();
    for (path, why) in compiled_rules(&kind).into_iter().flat_map(|it| it.unevaluated) {
        warnings.push(format!("{path}: not evaluated: {why}"));
    }
    warnings
}

/// Compiles the rules of all versions; those of equal schemas once.
fn compiled_rules(kind: &CustomKind) -> Vec<Compiled> {
    let schemas = kind.versions.iter().filter_map(|it| Some((&it.schema, it.schema_path.as_ref()?)));
    schemas.map(|(schema, path)| Compiled::of(schema, path)).collect()
}

/// Validates a CRD.
pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    match CustomKind::from_definition(object) {
        Ok(kind) => errors.0.extend(compiled_rules(&kind).into_iter().flat_map(|it| it.errors.0)),
        Err(found) => errors.0.extend(found.into_iter().map(cause)),
    }
}

/// Validates an update of a CRD.
pub(crate) fn validate_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(new, errors);
    for path in
        [&["spec", "scope"][..], &["spec", "names", "kind"], &["spec", "group"], &["spec", "names", "plural"]]
    {
        errors.immutable(path.join("."), value::at(new, path), value::at(old, path));
    }
}

/// Accepts the names of a stored CRD like upstream's controllers, and serves its kind.
pub(crate) fn establish(
    transaction: &mut WriteTransaction<'_>,
    object: &Value,
    dry_run: bool,
) -> Result<(), Status> {
    let name = value::text(object, &["metadata", "name"]);
    let Some(stored) = transaction.find(&definitions(), "", name).filter(|_| !dry_run) else { return Ok(()) };
    let established = with_accepted_names(transaction, &stored)?;
    let resource = transaction.built_in(DEFINITIONS.0, DEFINITIONS.1, DEFINITIONS.2)?;
    let written = transaction.replace(&resource, &stored, established, false)?;
    serve(transaction, written.value(), false)
}

/// Returns a CRD with the status that upstream's controllers write.
fn with_accepted_names(transaction: &WriteTransaction<'_>, stored: &Stored) -> Result<Value, Status> {
    let mut object = stored.value.clone();
    accept(transaction, &mut object);
    let to = Target {
        resource: transaction.built_in(DEFINITIONS.0, DEFINITIONS.1, DEFINITIONS.2)?,
        namespace: String::new(),
        name: stored.key.name.to_string(),
        subresource: "status".to_owned(),
    };
    let options = WriteOptions { field_manager: "kube-apiserver".to_owned(), ..WriteOptions::default() };
    transaction.manage(&to, &stored.value, &mut object, &options);
    Ok(object)
}

/// Serves the kind of a CRD.
fn serve(transaction: &mut WriteTransaction<'_>, object: &Value, dry_run: bool) -> Result<(), Status> {
    if dry_run || !is_established(object) {
        return Ok(());
    }
    let kind = CustomKind::from_definition(object).map_err(|errors| {
        let name = value::text(object, &["metadata", "name"]);
        let causes = errors.into_iter().map(cause).collect();
        Status::invalid("apiextensions.k8s.io", "CustomResourceDefinition", name, causes)
    })?;
    let mut served = (*transaction.served).clone();
    let mut catalog = (*served.catalog).clone();
    let (group, plural) = names(object);
    forget(&mut catalog, &group, &plural);
    for version in kind.versions.iter().filter(|it| it.served) {
        catalog.insert(version.resource.clone());
    }
    served.custom.insert((group, plural), Arc::new(Definition::new(kind, object)));
    served.catalog = Arc::new(catalog);
    transaction.publish(served);
    Ok(())
}

/// Continues the deletion of a CRD that has just been marked. Its objects are deleted with default options, and the
/// CRD remains until no object is left.
pub(crate) fn terminate(transaction: &mut WriteTransaction<'_>, object: &Value) -> Result<(), Status> {
    let (group, plural) = names(object);
    if transaction.served.custom.contains_key(&(group.clone(), plural.clone())) {
        serve(transaction, object, false)?;
        delete_instances(transaction, object)?;
    }
    finish(transaction, &group, &plural)
}

fn delete_instances(transaction: &mut WriteTransaction<'_>, object: &Value) -> Result<(), Status> {
    let (group, plural) = names(object);
    let Some(definition) = transaction.served.custom.get(&(group, plural)).cloned() else { return Ok(()) };
    let Some(version) = definition.kind.storage().or(definition.kind.versions.first()) else { return Ok(()) };
    let resource = Arc::new(version.resource.clone());
    for stored in transaction.all(&convert::collection(&resource), "") {
        let to = Target {
            resource: Arc::clone(&resource),
            namespace: stored.key.namespace.to_string(),
            name: stored.key.name.to_string(),
            subresource: String::new(),
        };
        match transaction.delete(&to, &DeleteOptions::default()) {
            // The deletion of one object can delete others of the same kind.
            Err(status) if status.code != 404 => return Err(status),
            _ => {}
        }
    }
    Ok(())
}

/// Deletes a terminating CRD after its last object.
pub(crate) fn finish(
    transaction: &mut WriteTransaction<'_>,
    group: &str,
    plural: &str,
) -> Result<(), Status> {
    let Some(resource) =
        transaction.served.catalog.resource(DEFINITIONS.0, DEFINITIONS.1, DEFINITIONS.2).cloned()
    else {
        return Ok(());
    };
    let Some(old) = transaction.find(&definitions(), "", &format!("{plural}.{group}")) else { return Ok(()) };
    let mut waits = value::texts(&old.value, &["metadata", "finalizers"]).contains(&CLEANUP);
    waits = waits && value::has(&old.value, &["metadata", "deletionTimestamp"]);
    let left = transaction.storage.read(&Collection::new(group, plural), None);
    if !waits || left.is_ok_and(|it| !it.objects.is_empty()) {
        return Ok(());
    }
    let mut object = old.value.clone();
    let mut finalizers = value::texts(&old.value, &["metadata", "finalizers"]);
    finalizers.retain(|it| *it != CLEANUP);
    value::set(&mut object, &["metadata", "finalizers"], finalizers.clone());
    terminating(
        &mut object,
        "False",
        "InstanceDeletionCompleted",
        "removed all instances",
        &transaction.now(),
    );
    if !finalizers.is_empty() {
        return transaction.replace(&resource, &old, object, false).map(|_| ());
    }
    let last = transaction.erase(&resource, &old, old.value.clone())?;
    withdraw(transaction, &last.value)
}

/// Marks a CRD as terminating.
pub(crate) fn mark(object: &mut Value, now: &str) {
    value::default(object, &["metadata", "deletionTimestamp"], now);
    let mut finalizers = value::texts(object, &["metadata", "finalizers"]);
    if !finalizers.contains(&CLEANUP) {
        finalizers.push(CLEANUP);
    }
    let finalizers = json!(finalizers);
    value::set(object, &["metadata", "finalizers"], finalizers);
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    terminating(object, "True", "InstanceDeletionPending", message, now);
}

fn terminating(object: &mut Value, status: &str, reason: &str, message: &str, now: &str) {
    let mut conditions = value::items(object, &["status", "conditions"]).to_vec();
    conditions.retain(|it| value::text(it, &["type"]) != "Terminating");
    conditions.push(json!({
        "type": "Terminating",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }));
    value::set(object, &["status", "conditions"], conditions);
}

/// Stops serving the kind. A CRD that waits for its names can then be accepted.
pub(crate) fn withdraw(transaction: &mut WriteTransaction<'_>, object: &Value) -> Result<(), Status> {
    let (group, plural) = names(object);
    let mut served = (*transaction.served).clone();
    if served.custom.remove(&(group.clone(), plural.clone())).is_none() {
        return Ok(());
    }
    let mut catalog = (*served.catalog).clone();
    forget(&mut catalog, &group, &plural);
    served.catalog = Arc::new(catalog);
    transaction.publish(served);
    accept_waiting(transaction, &group)
}

/// Accepts the names of a changed CRD. A CRD that waits for the released names can then be accepted.
pub(crate) fn establish_changed(
    transaction: &mut WriteTransaction<'_>,
    object: &Value,
    dry_run: bool,
) -> Result<(), Status> {
    establish(transaction, object, dry_run)?;
    if dry_run { Ok(()) } else { accept_waiting(transaction, &names(object).0) }
}

/// Retries the CRDs of a group whose names were taken.
fn accept_waiting(transaction: &mut WriteTransaction<'_>, group: &str) -> Result<(), Status> {
    let resource = transaction.built_in(DEFINITIONS.0, DEFINITIONS.1, DEFINITIONS.2)?;
    for stored in transaction.all(&definitions(), "") {
        if names(&stored.value).0 != group || is_established(&stored.value) {
            continue;
        }
        let object = with_accepted_names(transaction, &stored)?;
        if is_established(&object) {
            let answer = transaction.replace(&resource, &stored, object, false)?;
            serve(transaction, answer.value(), false)?;
        }
    }
    Ok(())
}

fn names(object: &Value) -> (String, String) {
    let text = |path: &[&str]| value::text(object, path).to_owned();
    (text(&["spec", "group"]), text(&["spec", "names", "plural"]))
}

fn forget(catalog: &mut Catalog, group: &str, plural: &str) {
    let versions: Vec<String> = catalog
        .iter()
        .filter(|it| it.group == group && it.plural == plural)
        .map(|it| it.version.clone())
        .collect();
    for version in versions {
        catalog.remove(group, &version, plural);
    }
}
