//! Names and permissions of each controller. Roles are generated from them, so the test compares them literally.

use windlass_controller::Registration;
use windlass_controller::host::Host;
use windlass_env::Env;
use windlass_informer::{FactoryOptions, InformerFactory};
use windlass_metrics::Metrics;

use crate::{ControllerOptions, registrations};

fn declared(registration: &Registration) -> (String, Vec<String>) {
    let declaration = registration.declaration(&Env::virtual_time(1)).expect("a declaration");
    let names = declaration.descriptor;
    let rule = |rule: &windlass_object::Rule| {
        let verbs: Vec<_> = rule.verbs.iter().map(|verb| verb.as_str()).collect();
        let group = if rule.group.is_empty() { "core" } else { &rule.group };
        format!("{group} {} {}", rule.resource, verbs.join(","))
    };
    let source = names.event_source().unwrap_or("-");
    let names =
        format!("{} {:?} {} {source} {}", names.name, names.aliases, names.client_name, names.queue_name);
    (names, declaration.rules.iter().map(rule).collect())
}

/// Names and rules of each controller.
const EXPECTED: &[(&str, &[&str])] = &[
    (
        r#"deployment-controller ["deployment"] deployment-controller deployment-controller deployment"#,
        &[
            "core events create,patch",
            "core pods list,watch",
            "apps deployments get,list,watch,update",
            "apps deployments/finalizers update",
            "apps deployments/status update",
            "apps replicasets list,watch,create,update,patch,delete",
        ],
    ),
    (
        r#"daemonset-controller ["daemonset"] daemon-set-controller daemonset-controller daemonset"#,
        &[
            "core events create,patch",
            "core nodes list,watch",
            "core pods list,watch,create,patch,delete",
            "apps controllerrevisions get,list,watch,create,update,patch,delete",
            "apps daemonsets get,list,watch",
            "apps daemonsets/finalizers update",
            "apps daemonsets/status update",
        ],
    ),
    (
        r#"replicaset-controller ["replicaset"] replicaset-controller replicaset-controller replicaset"#,
        &[
            "core events create,patch",
            "core pods list,watch,create,patch,delete",
            "apps replicasets get,list,watch",
            "apps replicasets/finalizers update",
            "apps replicasets/status update",
        ],
    ),
    (
        r#"replicationcontroller-controller ["replicationcontroller"] replication-controller replication-controller replicationmanager"#,
        &[
            "core events create,patch",
            "core pods list,watch,create,patch,delete",
            "core replicationcontrollers get,list,watch",
            "core replicationcontrollers/finalizers update",
            "core replicationcontrollers/status update",
        ],
    ),
    (
        r#"statefulset-controller ["statefulset"] statefulset-controller statefulset-controller statefulset"#,
        &[
            "core events create,patch",
            "core persistentvolumeclaims get,list,watch,create,update,delete",
            "core pods get,list,watch,create,update,patch,delete",
            "core pods/finalizers update",
            "apps controllerrevisions get,list,watch,create,update,patch,delete",
            "apps statefulsets get,list,watch",
            "apps statefulsets/finalizers update",
            "apps statefulsets/status update",
        ],
    ),
    (
        r#"endpoints-controller ["endpoint"] endpoint-controller endpoint-controller endpoint"#,
        &[
            "core endpoints list,watch,create,update,delete",
            "core endpoints/restricted create",
            "core events create,patch",
            "core pods list,watch",
            "core services list,watch",
        ],
    ),
    // Upstream reads with the identity of the process, so its roles of the next two have no rule for reads.
    (
        r#"serviceaccount-controller ["serviceaccount"] service-account-controller - serviceaccount"#,
        &["core namespaces list,watch", "core serviceaccounts list,watch,create"],
    ),
    (
        r#"root-ca-certificate-publisher-controller ["root-ca-cert-publisher"] root-ca-cert-publisher - root_ca_cert_publisher"#,
        &["core configmaps list,watch,create,update", "core namespaces list,watch"],
    ),
    (r#"ttl-controller ["ttl"] ttl-controller - ttlcontroller"#, &["core nodes list,watch,patch"]),
    (
        r#"pod-garbage-collector-controller ["podgc"] pod-garbage-collector - orphaned_pods_nodes"#,
        &["core nodes get,list,watch", "core pods list,watch,delete", "core pods/status patch"],
    ),
];

#[tokio::test(start_paused = true)]
async fn declared_names_and_rules_are_exact() {
    let declarations: Vec<_> = registrations(&ControllerOptions::default()).iter().map(declared).collect();
    assert_eq!(declarations.len(), EXPECTED.len());
    for ((names, rules), (expected_names, expected_rules)) in declarations.iter().zip(EXPECTED) {
        assert_eq!(names, expected_names);
        assert_eq!(rules, expected_rules);
    }
}

#[tokio::test(start_paused = true)]
async fn all_controllers_can_be_set_up_on_the_same_caches() {
    let (env, metrics) = (Env::virtual_time(1), Metrics::new());
    let factory = InformerFactory::new(env.clone(), metrics.clone(), FactoryOptions::default());
    for registration in registrations(&ControllerOptions::default()) {
        let prepared = registration.prepare(Host::new(env.clone(), metrics.clone(), factory.clone()));
        assert!(prepared.is_ok(), "{}: {:?}", registration.descriptor().name, prepared.err());
    }
}

#[test]
fn controllers_of_the_whole_cluster_are_off_in_single_namespaces() {
    let on = |limited_to_namespaces: bool| {
        let options = ControllerOptions { limited_to_namespaces, ..ControllerOptions::default() };
        let registrations = registrations(&options).into_iter().map(|it| it.descriptor());
        registrations.filter(|it| it.enabled_by_default).map(|it| it.queue_name).collect::<Vec<_>>()
    };
    assert_eq!(on(true), ["deployment", "replicaset", "replicationmanager", "statefulset", "endpoint"]);
    assert_eq!(on(false).len(), 10);
}
