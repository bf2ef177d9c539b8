//! Compares the declared permissions of a controller with its requests on a healthy cluster.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use windlass::env::Env;
use windlass::prelude::*;
use windlass::testing::{check_permissions, client_of, object, server, unused_permissions, with_controllers};
use windlass_examples::fixed_disks::{DISK_ANNOTATION, DiskController, SIZE_ANNOTATION};

#[tokio::test(start_paused = true)]
async fn declared_rules_match_sent_requests() {
    let env = Env::virtual_time(1);
    let server = server(&env);
    let services: Api<Service> = Api::default_namespaced(client_of(&server));
    let controller = Registration::controller::<DiskController>();
    let script = async {
        let web = json!({
            "metadata": { "name": "web", "annotations": { SIZE_ANNOTATION: "1Gi" } },
            "spec": { "ports": [{ "port": 80 }] },
        });
        services.create(&PostParams::default(), &object(web)).await.expect("the name is free");
        while !services
            .get("web")
            .await
            .expect("the Service exists")
            .annotations()
            .contains_key(DISK_ANNOTATION)
        {
            env.sleep(Duration::from_secs(1)).await;
        }
    };
    with_controllers(&env, &server, "disk-keeper", [controller.clone()], script)
        .await
        .expect("the controllers stop gracefully");

    let declared = controller.declaration(&env).expect("setup succeeds").rules;
    check_permissions(&server, "disk-keeper", &declared).unwrap_or_else(|missing| panic!("{missing}"));
    // No event was recorded, and this server streams the initial list over a watch, so `list` was not used.
    let events = Rule::new("", "events", [Verb::Create, Verb::Patch]);
    let lists = Rule::new("", "services", [Verb::List]);
    assert_eq!(unused_permissions(&server, "disk-keeper", &declared), [events, lists]);
}
