use kube::CustomResourceExt;
use std::collections::BTreeMap;

use kube::api::DeleteParams;
use serde_json::json;
use windlass::testing::{Cluster, Snapshot, object};

use super::*;

fn site(name: &str) -> Site {
    object(json!({ "metadata": { "name": name }, "spec": { "image": "example/site:1", "replicas": 2 } }))
}

#[test]
fn status_reports_the_replicas_and_the_generation() {
    let mut web = site("web");
    web.metadata.generation = Some(3);
    let unready = SiteStatus { ready_replicas: 0, observed_generation: 3 };
    assert_eq!(desired::status(&web, &desired::deployment(&web)), unready);
    let ready =
        object::<Deployment>(json!({ "metadata": { "name": "web" }, "status": { "readyReplicas": 2 } }));
    assert_eq!(desired::status(&web, &ready), SiteStatus { ready_replicas: 2, ..unready });
}

#[test]
fn entry_without_address_removes_only_its_line() {
    let mut web = site("web");
    web.metadata.namespace = Some("default".into());
    let line = desired::line(&web);
    let entry = desired::entry(line.clone(), Some(desired::address(&web)));
    assert_eq!(entry.data, Some([("default.web".into(), "web.default.svc".into())].into()));
    assert_eq!(desired::entry(line, None).data, None);
}

/// Script: installs the CRD and creates two sites. One becomes ready, the other is deleted.
async fn create_two_sites_and_delete_one(cluster: Cluster) {
    cluster.create(&Site::crd()).await;
    cluster.run([Registration::controller::<SiteController>()]);
    for name in ["web", "shop"] {
        cluster.create(&site(name)).await;
    }
    let listed = |now: &Snapshot| directory(now).is_some_and(|lines| lines.len() == 2);
    cluster.eventually("both sites are in the directory", listed).await;
    let is_deployed = |now: &Snapshot, name: &str| {
        now.get::<Deployment>(name).is_some() && now.get::<Service>(name).is_some()
    };
    let deployed = |now: &Snapshot| ["web", "shop"].iter().all(|name| is_deployed(now, name));
    cluster.eventually("both sites are deployed", deployed).await;

    let deployments = cluster.api::<Deployment>();
    let ready = Patch::Merge(json!({ "status": { "replicas": 2, "readyReplicas": 2 } }));
    deployments.patch_status("web", &PatchParams::default(), &ready).await.expect("the Deployment exists");
    let reported = |now: &Snapshot| {
        let status = now.get::<Site>("web").and_then(|site| site.status);
        status.is_some_and(|status| status.ready_replicas == 2)
    };
    cluster.eventually("web reports its replicas", reported).await;

    let sites = cluster.api::<Site>();
    sites.delete("shop", &DeleteParams::default()).await.expect("the site exists");
    cluster.eventually("shop is gone", |now| now.get::<Site>("shop").is_none()).await;
    let left = BTreeMap::from([("default.web".to_owned(), "web.default.svc".to_owned())]);
    assert_eq!(directory(&cluster.snapshot()), Some(left));
}

fn directory(now: &Snapshot) -> Option<BTreeMap<String, String>> {
    now.get::<ConfigMap>(DIRECTORY)?.data
}

// parity: controllerutil-references
#[windlass::simulation(crashes = all)]
async fn crash_at_any_write_changes_nothing(cluster: Cluster) {
    create_two_sites_and_delete_one(cluster).await;
}

#[windlass::simulation(minutes = 10, faults = all, plans = 5, resources = ["sites", "deployments"], caches = [Site])]
async fn random_faults_change_nothing(cluster: Cluster) {
    create_two_sites_and_delete_one(cluster).await;
}
