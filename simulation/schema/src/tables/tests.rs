use serde_json::json;

use super::*;
use crate::Catalog;

fn object<'a>(catalog: &'a Catalog, group: &str, kind: &str, path: &[&str]) -> &'a Node {
    let schema = catalog.kind_schema(group, "v1", kind).unwrap();
    let mut node = schema.resolve(&schema.root);
    for name in path {
        let node_fields = match &node.node_type {
            NodeType::Object(object) => &object.fields,
            NodeType::List(list) => match &schema.resolve(&list.items).node_type {
                NodeType::Object(object) => &object.fields,
                other => panic!("{name} in {other:?}"),
            },
            other => panic!("{name} in {other:?}"),
        };
        let field = &node_fields[*name];
        node = if path.last() == Some(name) { field } else { schema.resolve(field) };
    }
    node
}

#[test]
fn every_line_of_the_tables_is_valid_and_every_name_has_a_type() {
    let tables = read().unwrap();
    assert!(tables.resources.len() > 60, "{}", tables.resources.len());
    let types = &tables.resources[0].schema.types;
    let mut dangling = BTreeSet::new();
    for node in types.0.values() {
        let NodeType::Object(object) = &node.node_type else { panic!("{node:?}") };
        for field in object.fields.values() {
            let mut node = field;
            loop {
                match &node.node_type {
                    NodeType::List(list) => node = &list.items,
                    NodeType::Object(ObjectNode { additional: Some(values), .. }) => node = values,
                    NodeType::Ref(name) if !types.0.contains_key(&**name) => {
                        dangling.insert(name.clone());
                        break;
                    }
                    _ => break,
                }
            }
        }
    }
    assert_eq!(dangling, BTreeSet::new());
}

#[test]
fn lists_and_maps_have_their_merge_strategy() {
    let catalog = Catalog::built_in();
    let ports = object(&catalog, "", "Pod", &["spec", "containers", "ports"]);
    let NodeType::List(ports) = &ports.node_type else { panic!("{ports:?}") };
    assert_eq!(ports.list_type, ListType::Map(vec!["containerPort".into(), "protocol".into()]));
    assert_eq!(ports.merge_key.as_deref(), Some("containerPort"));
    assert!(ports.patch.merge && !ports.patch.retain_keys);
    let volumes = object(&catalog, "", "Pod", &["spec", "volumes"]);
    assert!(matches!(&volumes.node_type, NodeType::List(list) if list.patch.merge && list.patch.retain_keys));
    let finalizers = object(&catalog, "", "Pod", &["metadata", "finalizers"]);
    assert!(matches!(&finalizers.node_type, NodeType::List(list) if list.list_type == ListType::Set));
    let selector = object(&catalog, "", "Service", &["spec", "selector"]);
    assert!(matches!(&selector.node_type, NodeType::Object(map) if map.map_type == MapType::Atomic));
}

#[test]
fn unconditional_defaults_of_upstream_are_included() {
    let catalog = Catalog::built_in();
    let default = |group, kind, path: &[&str]| object(&catalog, group, kind, path).default.clone();
    let cases = [
        ("", "Pod", vec!["spec", "restartPolicy"], json!("Always")),
        ("", "Pod", vec!["spec", "terminationGracePeriodSeconds"], json!(30)),
        ("", "Pod", vec!["spec", "securityContext"], json!({})),
        ("", "Pod", vec!["spec", "containers", "ports", "protocol"], json!("TCP")),
        ("", "Pod", vec!["spec", "containers", "resources"], json!({})),
        ("", "Pod", vec!["spec", "containers", "name"], json!("")),
        ("", "Pod", vec!["spec", "enableServiceLinks"], json!(true)),
        ("", "Pod", vec!["status"], json!({})),
        ("apps", "Deployment", vec!["spec", "replicas"], json!(1)),
        ("apps", "Deployment", vec!["spec", "strategy"], json!({})),
        ("apps", "Deployment", vec!["spec", "strategy", "type"], json!("RollingUpdate")),
        ("apps", "Deployment", vec!["spec", "template", "spec", "dnsPolicy"], json!("ClusterFirst")),
        ("batch", "Job", vec!["spec", "parallelism"], json!(1)),
        (
            "rbac.authorization.k8s.io",
            "RoleBinding",
            vec!["roleRef", "apiGroup"],
            json!("rbac.authorization.k8s.io"),
        ),
    ];
    for (group, kind, path, expected) in cases {
        assert_eq!(default(group, kind, &path), Some(expected), "{kind} {path:?}");
    }
    // Upstream does not set defaults here: below a template, and in the template of a cron job.
    assert_eq!(default("apps", "Deployment", &["spec", "template", "spec", "enableServiceLinks"]), None);
    assert_eq!(default("batch", "CronJob", &["spec", "jobTemplate", "spec", "parallelism"]), None);
    assert_eq!(default("", "Pod", &["spec", "containers", "imagePullPolicy"]), None);
}

#[test]
fn fields_have_their_omit_policy() {
    let catalog = Catalog::built_in();
    let presence = |group, kind, path: &[&str]| object(&catalog, group, kind, path).presence;
    assert_eq!(presence("", "Pod", &["spec", "terminationGracePeriodSeconds"]), OmitPolicy::AsGiven);
    assert_eq!(presence("", "Pod", &["spec", "nodeName"]), OmitPolicy::NonZero);
    assert_eq!(presence("", "Pod", &["metadata", "creationTimestamp"]), OmitPolicy::NonZero);
    assert_eq!(presence("", "Pod", &["spec", "containers"]), OmitPolicy::AlwaysOrNull);
    assert_eq!(presence("", "Pod", &["status", "containerStatuses", "ready"]), OmitPolicy::Always);
    assert_eq!(presence("", "Pod", &["status"]), OmitPolicy::Always);
}

#[test]
fn field_with_its_own_merge_strategy_copies_the_type() {
    let catalog = Catalog::built_in();
    let object = |group: &str, kind: &str, path: &[&str]| {
        let schema = catalog.kind_schema(group, "v1", kind).unwrap();
        schema.resolve(object(&catalog, group, kind, path))
    };
    let strategy = object("apps", "Deployment", &["spec", "strategy"]);
    assert!(
        matches!(&strategy.node_type, NodeType::Object(it) if it.patch.retain_keys && it.fields.contains_key("type"))
    );
    let claim = object("", "PersistentVolume", &["spec", "claimRef"]);
    assert!(matches!(&claim.node_type, NodeType::Object(it) if it.map_type == MapType::Granular));
    let selector = object("policy", "PodDisruptionBudget", &["spec", "selector"]);
    assert!(
        matches!(&selector.node_type, NodeType::Object(it) if it.patch.replace && it.map_type == MapType::Atomic)
    );
}

#[test]
fn types_with_a_special_format_have_their_own_node_type() {
    let catalog = Catalog::built_in();
    let created = object(&catalog, "", "Pod", &["metadata", "creationTimestamp"]);
    assert_eq!(created.node_type, NodeType::String(Some("date-time".into())));
    let renewed = object(&catalog, "coordination.k8s.io", "Lease", &["spec", "renewTime"]);
    assert_eq!(renewed.node_type, NodeType::String(Some("micro-time".into())));
    let capacity = object(&catalog, "", "Node", &["status", "capacity"]);
    let NodeType::Object(capacity) = &capacity.node_type else { panic!("{capacity:?}") };
    assert_eq!(capacity.additional.as_ref().unwrap().node_type, NodeType::Quantity);
    let target = object(&catalog, "", "Service", &["spec", "ports", "targetPort"]);
    assert_eq!(target.node_type, NodeType::IntOrString);
    let data = object(&catalog, "apps", "ControllerRevision", &["data"]);
    assert_eq!(data.node_type, NodeType::Any);
    let secret = object(&catalog, "", "Secret", &["data"]);
    let NodeType::Object(secret) = &secret.node_type else { panic!("{secret:?}") };
    assert_eq!(secret.additional.as_ref().unwrap().node_type, NodeType::String(Some("byte".into())));
}
