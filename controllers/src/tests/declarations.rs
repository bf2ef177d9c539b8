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
    let names = format!("{} {:?} {} {}", names.name, names.aliases, names.client_name, names.queue_name);
    (names, declaration.rules.iter().map(rule).collect())
}

#[tokio::test(start_paused = true)]
async fn declared_names_and_rules_are_exact() {
    let declarations: Vec<_> = registrations(&ControllerOptions::default()).iter().map(declared).collect();
    let expected = [
        (
            r#"deployment-controller ["deployment"] deployment-controller deployment"#,
            vec![
                "core events create,patch",
                "core pods list,watch",
                "apps deployments get,list,watch,update",
                "apps deployments/finalizers update",
                "apps deployments/status update",
                "apps replicasets list,watch,create,update,patch,delete",
            ],
        ),
        (
            r#"replicaset-controller ["replicaset"] replicaset-controller replicaset"#,
            vec![
                "core events create,patch",
                "core pods list,watch,create,patch,delete",
                "apps replicasets get,list,watch",
                "apps replicasets/finalizers update",
                "apps replicasets/status update",
            ],
        ),
        (
            r#"replicationcontroller-controller ["replicationcontroller"] replication-controller replicationmanager"#,
            vec![
                "core events create,patch",
                "core pods list,watch,create,patch,delete",
                "core replicationcontrollers get,list,watch",
                "core replicationcontrollers/finalizers update",
                "core replicationcontrollers/status update",
            ],
        ),
        (
            r#"endpoints-controller ["endpoint"] endpoint-controller endpoint"#,
            vec![
                "core endpoints list,watch,create,update,delete",
                "core endpoints/restricted create",
                "core events create,patch",
                "core pods list,watch",
                "core services list,watch",
            ],
        ),
    ];
    assert_eq!(declarations.len(), expected.len());
    for ((names, rules), (expected_names, expected_rules)) in declarations.iter().zip(expected) {
        assert_eq!(names, expected_names);
        assert_eq!(*rules, expected_rules);
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
