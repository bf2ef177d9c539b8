use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::CustomResourceExt;
use kube::api::{DeleteParams, ObjectMeta};
use serde_json::Value;
use windlass::testing::{Cluster, Snapshot, object};

use super::*;

fn site(name: &str) -> Site {
    object(json!({ "metadata": { "name": name }, "spec": { "image": "example/site:1", "replicas": 2 } }))
}

/// The same, as the server keeps it.
fn kept(change: impl FnOnce(&mut Site)) -> Site {
    let mut site = site("web");
    site.metadata.uid = Some("uid".into());
    site.metadata.generation = Some(1);
    site.metadata.resource_version = Some("7".into());
    change(&mut site);
    site
}

/// What there is once everything has been done.
fn complete(site: &Site) -> Seen {
    let mut seen = Seen::default();
    for step in plan(site, &seen.clone()) {
        match step {
            Step::Deploy(deployment) => seen.deployment = Some(Arc::from(deployment)),
            Step::Expose(service) => seen.service = Some(Arc::from(service)),
            Step::Enter(entry) => seen.line = entry.data.and_then(|data| data.into_values().next()),
            Step::Finalizers { .. } | Step::Report(_) => {}
        }
    }
    seen
}

fn names(steps: &[Step]) -> Vec<&'static str> {
    let name = |step: &Step| match step {
        Step::Finalizers { finalizers, .. } if finalizers.iter().any(|it| it == FINALIZER) => "hold",
        Step::Finalizers { .. } => "let go",
        Step::Deploy(_) => "deploy",
        Step::Expose(_) => "expose",
        Step::Enter(entry) if entry.data.is_none() => "take out",
        Step::Enter(_) => "enter",
        Step::Report(_) => "report",
    };
    steps.iter().map(name).collect()
}

#[test]
fn a_new_site_is_held_before_anything_is_made_for_it() {
    let steps = plan(&kept(|_| {}), &Seen::default());
    assert_eq!(names(&steps), ["hold", "deploy", "expose", "enter", "report"]);
}

#[test]
fn what_is_as_it_should_be_is_left_alone() {
    let status = SiteStatus { ready_replicas: 0, observed_generation: 1 };
    let site = kept(|site| {
        site.metadata.finalizers = Some(vec![FINALIZER.into()]);
        site.status = Some(status);
    });
    let seen = complete(&site);
    assert_eq!(names(&plan(&site, &seen)), [""; 0]);
    let larger = Site { spec: SiteSpec { replicas: 3, ..site.spec.clone() }, ..site };
    assert_eq!(names(&plan(&larger, &seen)), ["deploy"]);
}

#[test]
fn a_site_that_goes_is_let_go_after_its_line_is_taken_out_with_the_finalizers_of_others_kept() {
    let site = kept(|site| {
        site.metadata.deletion_timestamp = object::<Namespace>(json!({
            "metadata": { "name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z" },
        }))
        .metadata
        .deletion_timestamp;
        site.metadata.finalizers = Some(vec!["others".into(), FINALIZER.into()]);
    });
    let seen = Seen { line: Some("web.default.svc".into()), ..Seen::default() };
    let steps = plan(&site, &seen);
    assert_eq!(names(&steps), ["take out", "let go"]);
    let kept = Step::Finalizers { version: Some("7".into()), finalizers: vec!["others".into()] };
    assert_eq!(steps.last(), Some(&kept));
    let gone = Site { metadata: ObjectMeta { finalizers: None, ..site.metadata.clone() }, ..site };
    assert_eq!(names(&plan(&gone, &seen)), [""; 0]);
}

/// What users and the cluster do: a definition, two sites, of which one becomes ready and the other goes.
async fn two_sites_of_which_one_goes(cluster: Cluster) {
    cluster.create(&Site::crd()).await;
    cluster.run([Registration::of::<SiteKeeper>()]);
    for name in ["web", "shop"] {
        cluster.create(&site(name)).await;
    }
    let listed = |now: &Snapshot| directory(now).as_object().is_some_and(|lines| lines.len() == 2);
    cluster.eventually("both sites are in the directory", listed).await;
    let both = |now: &Snapshot, kind: &str| ["web", "shop"].iter().all(|name| now.get(kind, name).is_some());
    let deployed = |now: &Snapshot| both(now, "Deployment") && both(now, "Service");
    cluster.eventually("both sites are deployed", deployed).await;

    let deployments = Api::<Deployment>::namespaced(cluster.client(), "default");
    let ready = Patch::Merge(json!({ "status": { "replicas": 2, "readyReplicas": 2 } }));
    deployments.patch_status("web", &PatchParams::default(), &ready).await.expect("it is deployed");
    let reported = |now: &Snapshot| {
        let status = now.typed::<Site>("web").and_then(|site| site.status);
        status.is_some_and(|status| status.ready_replicas == 2)
    };
    cluster.eventually("web tells that it is ready", reported).await;

    let sites = Api::<Site>::namespaced(cluster.client(), "default");
    sites.delete("shop", &DeleteParams::default()).await.expect("it is there");
    cluster.eventually("shop is gone", |now| now.get("Site", "shop").is_none()).await;
    assert_eq!(directory(&cluster.snapshot()), json!({ "default.web": "web.default.svc" }));
}

fn directory(now: &Snapshot) -> Value {
    now.get("ConfigMap", DIRECTORY).map_or(Value::Null, |directory| directory["data"].clone())
}

#[windlass::simulation(crashes = all)]
async fn a_crash_at_any_write_changes_nothing(cluster: Cluster) {
    two_sites_of_which_one_goes(cluster).await;
}

#[windlass::simulation(minutes = 10, faults = all, plans = 5, resources = ["sites", "deployments"], caches = [Site])]
async fn random_faults_change_nothing(cluster: Cluster) {
    two_sites_of_which_one_goes(cluster).await;
}
