//! Strategies of Roles, ClusterRoles and their bindings.

use serde_json::Value;

use super::super::invalid::FieldErrors;
use super::super::{labels, meta, names, value};
use super::{Kind, PLAIN, join, one_of};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Default strategy of the group.
const RBAC: Kind = Kind { create_on_update: true, ..PLAIN };

/// Strategy of Roles.
pub(super) static ROLES: Kind = Kind {
    validate: |role, errors| rules(role, true, errors),
    validate_update: |new, _, errors| {
        meta::validate_built_in(new, true, names::path_name, errors);
        rules(new, true, errors);
    },
    ..RBAC
};

/// Strategy of ClusterRoles.
pub(super) static CLUSTER_ROLES: Kind = Kind {
    validate: cluster_role,
    validate_update: |new, _, errors| {
        meta::validate_built_in(new, false, names::path_name, errors);
        cluster_role(new, errors);
    },
    ..RBAC
};

/// Strategy of RoleBindings.
pub(super) static ROLE_BINDINGS: Kind = Kind {
    defaults: binding_defaults,
    validate: |object, errors| binding(object, true, errors),
    validate_update: |new, old, errors| binding_update(new, old, true, errors),
    ..RBAC
};

/// Strategy of ClusterRoleBindings.
pub(super) static CLUSTER_ROLE_BINDINGS: Kind = Kind {
    defaults: binding_defaults,
    validate: |object, errors| binding(object, false, errors),
    validate_update: |new, old, errors| binding_update(new, old, false, errors),
    ..RBAC
};

fn cluster_role(role: &Value, errors: &mut FieldErrors) {
    rules(role, false, errors);
    if !value::has(role, &["aggregationRule"]) {
        return;
    }
    let path = "aggregationRule.clusterRoleSelectors";
    let selectors = value::items(role, &["aggregationRule", "clusterRoleSelectors"]);
    if selectors.is_empty() {
        errors.required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for (index, selector) in selectors.iter().enumerate() {
        labels::validate(selector, &format!("{path}[{index}]"), errors);
    }
}

fn rules(role: &Value, namespaced: bool, errors: &mut FieldErrors) {
    for (index, rule) in value::items(role, &["rules"]).iter().enumerate() {
        policy_rule(rule, namespaced, &format!("rules[{index}]"), errors);
    }
}

fn policy_rule(rule: &Value, namespaced: bool, path: &str, errors: &mut FieldErrors) {
    let is_empty = |field: &str| value::is_empty(rule, &[field]);
    if is_empty("verbs") {
        errors.required(join(path, "verbs"), "verbs must contain at least one value");
    }
    if !is_empty("nonResourceURLs") {
        let (field, urls) = (join(path, "nonResourceURLs"), &rule["nonResourceURLs"]);
        if namespaced {
            errors.invalid(&*field, urls.clone(), "namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].into_iter().any(|it| !is_empty(it)) {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.invalid(field, urls.clone(), detail);
        }
        return;
    }
    if is_empty("apiGroups") {
        errors.required(join(path, "apiGroups"), "resource rules must supply at least one api group");
    }
    if is_empty("resources") {
        errors.required(join(path, "resources"), "resource rules must supply at least one resource");
    }
}

fn binding_defaults(object: &mut Value) {
    if value::text(object, &["roleRef", "apiGroup"]).is_empty() {
        value::set(object, &["roleRef", "apiGroup"], GROUP);
    }
    for subject in value::items_mut(object, &["subjects"]).into_iter().flatten() {
        let is_known = matches!(value::text(subject, &["kind"]), "User" | "Group");
        if is_known && value::text(subject, &["apiGroup"]).is_empty() {
            value::set(subject, &["apiGroup"], GROUP);
        }
    }
}

fn binding(object: &Value, namespaced: bool, errors: &mut FieldErrors) {
    let role = value::at(object, &["roleRef"]);
    one_of(role, "roleRef", "apiGroup", &[GROUP], errors);
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    one_of(role, "roleRef", "kind", kinds, errors);
    match value::text(role, &["name"]) {
        "" => errors.required("roleRef.name", ""),
        name => errors.each("roleRef.name", name, names::path_name(name, false)),
    }
    for (index, it) in value::items(object, &["subjects"]).iter().enumerate() {
        subject(it, namespaced, &format!("subjects[{index}]"), errors);
    }
}

fn subject(subject: &Value, namespaced: bool, path: &str, errors: &mut FieldErrors) {
    let name = value::text(subject, &["name"]);
    if name.is_empty() {
        errors.required(join(path, "name"), "");
    }
    match value::text(subject, &["kind"]) {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.each(&join(path, "name"), name, names::subdomain_name(name, false));
            }
            one_of(subject, path, "apiGroup", &[""], errors);
            if !namespaced && value::text(subject, &["namespace"]).is_empty() {
                errors.required(join(path, "namespace"), "");
            }
        }
        "User" | "Group" => one_of(subject, path, "apiGroup", &[GROUP], errors),
        _ => one_of(subject, path, "kind", &["ServiceAccount", "User", "Group"], errors),
    }
}

fn binding_update(new: &Value, old: &Value, namespaced: bool, errors: &mut FieldErrors) {
    meta::validate_built_in(new, namespaced, names::path_name, errors);
    binding(new, namespaced, errors);
    let part = |object: &Value, field: &str| value::text(object, &["roleRef", field]).to_owned();
    let fields = ["apiGroup", "kind", "name"];
    if fields.iter().any(|field| part(new, field) != part(old, field)) {
        let [group, kind, name] = fields.map(|field| Value::from(part(new, field)));
        let shown = format!("{{\"APIGroup\":{group},\"Kind\":{kind},\"Name\":{name}}}");
        errors.invalid_json("roleRef", &shown, "cannot change roleRef");
    }
}
