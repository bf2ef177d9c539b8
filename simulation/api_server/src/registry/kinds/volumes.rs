//! Strategies of PersistentVolumes, PersistentVolumeClaims and storage classes.

use serde_json::{Value, json};

use super::super::internal;
use super::super::invalid::FieldErrors;
use super::super::{labels, meta, names, quantity, value};
use super::{Kind, NAMED, join, one_of};

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
/// Fields of a volume's spec that are not its source.
const NOT_SOURCES: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeMode",
    "volumeAttributesClassName",
];

/// Strategy of PersistentVolumes.
pub(super) static PERSISTENT_VOLUMES: Kind = Kind {
    returns_deleted: true,
    defaults: |object| {
        value::default(object, &["spec", "persistentVolumeReclaimPolicy"], "Retain");
        value::default(object, &["spec", "volumeMode"], "Filesystem");
        value::default(object, &["status", "phase"], "Pending");
    },
    prepare_create: |transaction, object| {
        value::set(
            object,
            &["status"],
            json!({"phase": "Pending", "lastPhaseTransitionTime": transaction.now()}),
        );
        // Admission adds a finalizer that protects volumes in use.
        protect(object, "kubernetes.io/pv-protection");
        Ok(())
    },
    prepare_status: |new, old, now| {
        let path = ["status", "lastPhaseTransitionTime"];
        match (value::same_at(new, old, &["status", "phase"]), value::has(new, &path)) {
            (true, false) => value::keep(new, old, &path),
            (false, given) if !given || value::same_at(new, old, &path) => value::set(new, &path, now),
            _ => {}
        }
    },
    validate: volume,
    validate_update: |new, old, errors| {
        volume(new, errors);
        let source = |it: &Value| {
            let mut spec = value::at(it, &["spec"]).clone();
            NOT_SOURCES.iter().for_each(|name| drop(value::remove(&mut spec, &[name])));
            spec
        };
        if !value::same(&source(new), &source(old)) {
            errors.forbidden(
                "spec.persistentvolumesource",
                "spec.persistentvolumesource is immutable after creation",
            );
        }
        errors.immutable("spec.volumeMode", &new["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
    },
    ..NAMED
};

/// Strategy of PersistentVolumeClaims.
pub(super) static PERSISTENT_VOLUME_CLAIMS: Kind = Kind {
    returns_deleted: true,
    defaults: |object| {
        value::default(object, &["spec", "volumeMode"], "Filesystem");
        value::default(object, &["status", "phase"], "Pending");
    },
    admit: |transaction, object| {
        let Some(classes) =
            transaction.served.catalog.resource("storage.k8s.io", "v1", "storageclasses").cloned()
        else {
            return Ok(());
        };
        if value::has(object, &["spec", "storageClassName"]) {
            return Ok(());
        }
        let usual = "storageclass.kubernetes.io/is-default-class";
        let all = transaction.all(&super::super::convert::collection(&classes), "");
        let found =
            all.iter().find(|it| value::text(&it.value, &["metadata", "annotations", usual]) == "true");
        if let Some(class) = found {
            value::set(object, &["spec", "storageClassName"], &*class.key.name);
        }
        Ok(())
    },
    prepare_create: |_, object| {
        value::set(object, &["status"], json!({"phase": "Pending"}));
        protect(object, "kubernetes.io/pvc-protection");
        drop_other_sources(object);
        same_sources(object);
        Ok(())
    },
    prepare_update: |_, object, old| {
        if !value::has(old, &["spec", "dataSource"]) && !value::has(old, &["spec", "dataSourceRef"]) {
            drop_other_sources(object);
        }
        same_sources(object);
        Ok(())
    },
    validate: claim,
    validate_update: claim_update,
    validate_status: claim_status,
    warnings: |object, _| {
        let annotation = "volume.beta.kubernetes.io/storage-class";
        let mut found = Vec::new();
        if value::has(object, &["metadata", "annotations", annotation]) {
            found.push(format!(
                "metadata.annotations[{annotation}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
            ));
        }
        found.extend(warnings(value::at(object, &["spec"]), "spec"));
        found
    },
    ..NAMED
};

/// Strategy of kinds that belong to drivers.
pub(super) static CONDITIONAL: Kind = Kind { unconditional_update: false, returns_deleted: true, ..NAMED };

/// Adds the finalizer that prevents the deletion of an object in use.
pub(super) fn protect(object: &mut Value, finalizer: &str) {
    let mut finalizers = value::items(object, &["metadata", "finalizers"]).to_vec();
    if !finalizers.contains(&json!(finalizer)) {
        finalizers.push(json!(finalizer));
        value::set(object, &["metadata", "finalizers"], finalizers);
    }
}

fn access_modes(spec: &Value, detail: &str, errors: &mut FieldErrors) {
    let modes = value::texts(spec, &["accessModes"]);
    if modes.is_empty() {
        errors.required("spec.accessModes", detail);
    }
    for mode in modes.iter().filter(|it| !ACCESS_MODES.contains(it)) {
        errors.not_supported("spec.accessModes", *mode, &ACCESS_MODES);
    }
    if modes.contains(&"ReadWriteOncePod") && modes.len() > 1 {
        errors.forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes");
    }
}

fn volume(object: &Value, errors: &mut FieldErrors) {
    let spec = value::at(object, &["spec"]);
    access_modes(spec, "", errors);
    if value::is_empty(spec, &["capacity"]) {
        errors.required("spec.capacity", "");
    }
    if !value::has(spec, &["capacity", "storage"]) || value::entries(spec, &["capacity"]).count() > 1 {
        errors.not_supported("spec.capacity", value::at(spec, &["capacity"]).clone(), &["storage"]);
    }
    one_of(spec, "spec", "persistentVolumeReclaimPolicy", &["Delete", "Recycle", "Retain"], errors);
    let sources: Vec<_> =
        value::entries(spec, &[]).map(|it| it.0.as_str()).filter(|it| !NOT_SOURCES.contains(it)).collect();
    match sources.as_slice() {
        [] => errors.required("spec", "must specify a volume type"),
        [one] => {
            if *one == "local" && !value::has(spec, &["nodeAffinity"]) {
                errors.required("spec.nodeAffinity", "Local volume requires node affinity");
            }
        }
        [_, others @ ..] => {
            for other in others {
                errors.forbidden(format!("spec.{other}"), "may not specify more than 1 volume type");
            }
        }
    }
    let class = value::text(spec, &["storageClassName"]);
    if !class.is_empty() {
        errors.each("spec.storageClassName", class, names::subdomain(class));
    }
}

fn claim(object: &Value, errors: &mut FieldErrors) {
    validate_spec(value::at(object, &["spec"]), "spec", errors);
}

/// Returns the warnings for the spec of a claim.
pub(super) fn warnings(spec: &Value, path: &str) -> Vec<String> {
    let parts = ["requests", "limits"];
    let warning = |part: &&str| {
        let amount = value::at(spec, &["resources", part, "storage"]);
        super::warnings::fraction(amount, &format!("{path}.resources.{part}[storage]"))
    };
    parts.iter().filter_map(warning).collect()
}

/// Validates the template of a claim.
pub(super) fn validate_template(template: &Value, path: &str, errors: &mut FieldErrors) {
    let metadata = value::at(template, &["metadata"]);
    let path_of_metadata = join(path, "metadata");
    meta::annotations(value::at(metadata, &["annotations"]), &join(&path_of_metadata, "annotations"), errors);
    meta::label_map(value::at(metadata, &["labels"]), &join(&path_of_metadata, "labels"), errors);
    for (field, _) in
        value::entries(metadata, &[]).filter(|it| !matches!(it.0.as_str(), "labels" | "annotations"))
    {
        errors.forbidden(join(&path_of_metadata, field), "cannot be set");
    }
    validate_spec(value::at(template, &["spec"]), &join(path, "spec"), errors);
}

/// Validates the spec of a claim.
pub(super) fn validate_spec(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let field = join(path, "accessModes");
    let modes = value::texts(spec, &["accessModes"]);
    if modes.is_empty() {
        errors.required(field.clone(), "at least 1 access mode is required");
    }
    labels::validate(value::at(spec, &["selector"]), &join(path, "selector"), errors);
    for mode in modes.iter().filter(|it| !ACCESS_MODES.contains(it)) {
        errors.not_supported(field.clone(), *mode, &ACCESS_MODES);
    }
    let is_exclusive = |it: &&str| *it == "ReadWriteOncePod";
    if modes.iter().any(is_exclusive) && modes.iter().any(|it| !is_exclusive(it) && ACCESS_MODES.contains(it))
    {
        errors.forbidden(field, "may not use ReadWriteOncePod with other access modes");
    }
    let field = join(path, "resources[storage]");
    match value::at(spec, &["resources", "requests", "storage"]).as_str() {
        None => errors.required(field, ""),
        Some(text) if quantity::thousandths(text).is_some_and(|it| it <= 0) => {
            errors.invalid(field, text, "must be greater than zero");
        }
        Some(_) => {}
    }
    class_name(spec, path, "storageClassName", errors);
    if value::has(spec, &["volumeMode"]) {
        one_of(spec, path, "volumeMode", &["Block", "Filesystem"], errors);
    }
    for part in ["dataSource", "dataSourceRef"] {
        if value::has(spec, &[part]) {
            data_source(&spec[part], &join(path, part), errors);
        }
    }
    if value::has(spec, &["dataSource"]) && value::has(spec, &["dataSourceRef"]) {
        let part = |field: &str, name: &str| value::text(spec, &[field, name]).to_owned();
        let detail = if !part("dataSourceRef", "namespace").is_empty() {
            "may not be specified when dataSourceRef.namespace is specified"
        } else if ["apiGroup", "kind", "name"]
            .iter()
            .any(|it| part("dataSource", it) != part("dataSourceRef", it))
        {
            "must match dataSourceRef"
        } else {
            ""
        };
        if !detail.is_empty() {
            // Upstream prints a path here.
            errors.invalid_json(path, "{}", detail);
        }
    }
    class_name(spec, path, "volumeAttributesClassName", errors);
}

/// Removes sources that upstream ignores: those of other namespaces, and those that only the newer field can name.
fn drop_other_sources(claim: &mut Value) {
    let spec = value::place(claim, &["spec"]);
    if !value::is_empty(spec, &["dataSourceRef", "namespace"]) {
        value::remove(spec, &["dataSourceRef"]);
    }
    let kind = (value::text(spec, &["dataSource", "apiGroup"]), value::text(spec, &["dataSource", "kind"]));
    let is_known =
        matches!(kind, ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot"));
    if !is_known && !value::has(spec, &["dataSourceRef"]) {
        value::remove(spec, &["dataSource"]);
    }
}

/// Fills in either of the two fields for the source of a volume from the other.
fn same_sources(claim: &mut Value) {
    let spec = value::place(claim, &["spec"]);
    let copy = |from: &Value, keeps_empty: bool| {
        let mut copy = json!({"kind": from["kind"], "name": from["name"]});
        if keeps_empty || !from["apiGroup"].is_null() {
            copy["apiGroup"] = from["apiGroup"].clone();
        }
        copy
    };
    match (value::has(spec, &["dataSource"]), value::has(spec, &["dataSourceRef"])) {
        (true, false) => {
            let copy = copy(value::at(spec, &["dataSource"]), false);
            value::set(spec, &["dataSourceRef"], copy);
        }
        (false, true) if value::is_empty(spec, &["dataSourceRef", "namespace"]) => {
            let copy = copy(value::at(spec, &["dataSourceRef"]), true);
            value::set(spec, &["dataSource"], copy);
        }
        _ => {}
    }
}

fn class_name(spec: &Value, path: &str, field: &str, errors: &mut FieldErrors) {
    let class = value::text(spec, &[field]);
    if !class.is_empty() {
        errors.each(&join(path, field), class, names::subdomain(class));
    }
}

fn data_source(source: &Value, path: &str, errors: &mut FieldErrors) {
    for field in ["name", "kind"] {
        if value::text(source, &[field]).is_empty() {
            errors.required(join(path, field), "");
        }
    }
    let (group, kind) = (value::text(source, &["apiGroup"]), value::text(source, &["kind"]));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.invalid(path, kind, detail);
    }
    if !group.is_empty() {
        errors.each(&join(path, "apiGroup"), group, names::subdomain(group));
    }
    let namespace = value::text(source, &["namespace"]);
    if !namespace.is_empty() {
        errors.each(&join(path, "namespace"), namespace, names::label(namespace));
    }
}

fn claim_status(new: &Value, _: &Value, errors: &mut FieldErrors) {
    for (name, text) in value::entries(new, &["status", "capacity"]) {
        let amount = quantity::thousandths(text.as_str().unwrap_or_default()).unwrap_or_default();
        if amount < 0 {
            let detail = "must be a valid resource quantity";
            let whole = i64::try_from(amount / 1000).unwrap_or(i64::MIN);
            errors.invalid(format!("status.capacity[{name}]"), whole, detail);
        }
    }
}

fn claim_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    meta::validate_built_in(new, true, names::subdomain_name, errors);
    claim(new, errors);
    let (new, before) = (value::at(new, &["spec"]), value::at(old, &["spec"]));
    let (mut munged, mut known) = (new.clone(), before.clone());
    if value::is_empty(before, &["volumeName"]) {
        value::keep(&mut known, new, &["volumeName"]);
    }
    let bound = value::text(old, &["status", "phase"]) == "Bound";
    let storage = |it: &Value| quantity::thousandths(value::text(it, &["resources", "requests", "storage"]));
    if bound {
        if value::has(new, &["resources", "requests"]) {
            value::keep(&mut munged, before, &["resources", "requests", "storage"]);
        }
        value::keep(&mut munged, before, &["volumeAttributesClassName"]);
    }
    if !value::has(before, &["storageClassName"]) {
        value::keep(&mut munged, before, &["storageClassName"]);
    }
    // An empty class differs from a missing one.
    let class = |it: &Value| value::at(it, &["volumeAttributesClassName"]).clone();
    if !value::same(&munged, &known) || class(&munged) != class(&known) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                      bound claims\n";
        let difference = internal::difference(internal::CLAIM_SPEC, &known, &munged);
        errors.forbidden("spec", &(detail.to_owned() + &difference));
    }
    let capacity =
        quantity::thousandths(value::text(old, &["status", "capacity", "storage"])).unwrap_or_default();
    if storage(new) < storage(before) && storage(new).is_none_or(|it| it <= capacity) {
        let detail = "field can not be less than status.capacity";
        errors.forbidden("spec.resources.requests.storage", detail);
    }
    errors.immutable("volumeMode", value::at(new, &["volumeMode"]), value::at(before, &["volumeMode"]));
}
