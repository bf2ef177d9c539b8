//! Strategies of PersistentVolumes, PersistentVolumeClaims and storage classes.

use serde_json::{Value, json};

use super::super::invalid::FieldErrors;
use super::super::{names, quantity, value};
use super::{Kind, NAMED, one_of};

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
        Ok(())
    },
    validate: claim,
    validate_update: claim_update,
    ..NAMED
};

/// Strategy of StorageClasses.
pub(super) static CLASSES: Kind = Kind {
    returns_deleted: true,
    defaults: |object| {
        if value::text(object, &["kind"]) == "StorageClass" {
            value::default(object, &["reclaimPolicy"], "Delete");
            value::default(object, &["volumeBindingMode"], "Immediate");
        }
    },
    validate: |object, errors| {
        let field =
            if value::text(object, &["kind"]) == "StorageClass" { "provisioner" } else { "driverName" };
        if value::text(object, &[field]).is_empty() {
            errors.required(field, "");
        }
    },
    validate_update: |new, old, errors| {
        for field in ["parameters", "provisioner", "reclaimPolicy", "driverName"] {
            if !value::same_at(new, old, &[field]) {
                errors.forbidden(field, "updates to this field are forbidden.");
            }
        }
        errors.immutable("volumeBindingMode", &new["volumeBindingMode"], &old["volumeBindingMode"]);
    },
    ..NAMED
};

/// Strategy of kinds that belong to drivers.
pub(super) static CONDITIONAL: Kind = Kind { unconditional_update: false, returns_deleted: true, ..NAMED };

fn protect(object: &mut Value, finalizer: &str) {
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
    let spec = value::at(object, &["spec"]);
    access_modes(spec, "at least 1 access mode is required", errors);
    let path = "spec.resources[storage]";
    match value::at(spec, &["resources", "requests", "storage"]).as_str() {
        None => errors.required(path, ""),
        Some(text) if quantity::thousandths(text).is_some_and(|it| it <= 0) => {
            errors.invalid(path, text, "must be greater than zero");
        }
        Some(_) => {}
    }
    let class = value::text(spec, &["storageClassName"]);
    if !class.is_empty() {
        errors.each("spec.storageClassName", class, names::subdomain(class));
    }
}

fn claim_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    claim(new, errors);
    let (new, before) = (value::at(new, &["spec"]), value::at(old, &["spec"]));
    let mut munged = new.clone();
    if value::is_empty(before, &["volumeName"]) {
        value::keep(&mut munged, before, &["volumeName"]);
    }
    let bound = value::text(old, &["status", "phase"]) == "Bound";
    let storage = |it: &Value| quantity::thousandths(value::text(it, &["resources", "requests", "storage"]));
    if bound {
        value::keep(&mut munged, before, &["resources", "requests"]);
        value::keep(&mut munged, before, &["volumeAttributesClassName"]);
    }
    if !value::has(before, &["storageClassName"]) {
        value::keep(&mut munged, before, &["storageClassName"]);
    }
    if !value::same(&munged, before) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                      bound claims\n";
        errors.forbidden("spec", detail);
    } else if storage(new) < storage(before) {
        let detail = "field can not be less than status.capacity";
        errors.forbidden("spec.resources.requests.storage", detail);
    }
}
