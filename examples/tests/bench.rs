//! Reconciles one key at a time, and checks the result and the requests.

use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use windlass::prelude::*;
use windlass::testing::{Bench, object};
use windlass_examples::fixed_disks::{DISK_ANNOTATION, DiskController, SIZE_ANNOTATION};

#[tokio::test(start_paused = true)]
async fn disk_is_applied_before_the_service_names_it() {
    let mut bench = Bench::new::<DiskController>(()).await;
    let service = json!({
        "metadata": { "name": "web", "annotations": { SIZE_ANNOTATION: "1Gi" } },
        "spec": { "ports": [{ "port": 80 }] },
    });
    bench.create(&object::<Service>(service)).await;

    let web = ObjectKey::namespaced("default", "web");
    let first = bench.reconcile(&web).await;
    assert_eq!(first.result.expect("both writes succeed"), Outcome::Done);
    let [disk, record] = &first.requests[..] else { panic!("{:?}", first.requests) };
    assert_eq!(disk.to_string(), "PATCH /api/v1/namespaces/default/persistentvolumeclaims/web");
    assert_eq!(record.body["metadata"]["annotations"][DISK_ANNOTATION], "web");

    let second = bench.reconcile(&web).await;
    assert!(second.requests.is_empty(), "the second reconcile sends no request: {:?}", second.requests);
}
