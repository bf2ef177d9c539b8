//! Endpoints: upstream's integration scenarios, one test per property.

use anyhow::{Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints, Pod, Service};
use windlass_black_box::{
    fixtures::{pairs, pod_on_no_node, running, service},
    test_namespace::TestNamespace,
    wait::eventually,
};

use crate::plane::namespace;

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const HEADLESS: &str = "service.kubernetes.io/headless";

fn ready(endpoints: &Endpoints) -> Vec<&EndpointAddress> {
    let subsets = endpoints.subsets.iter().flatten();
    subsets.flat_map(|subset| subset.addresses.iter().flatten()).collect()
}

fn not_ready(endpoints: &Endpoints) -> Vec<&EndpointAddress> {
    let subsets = endpoints.subsets.iter().flatten();
    subsets.flat_map(|subset| subset.not_ready_addresses.iter().flatten()).collect()
}

fn label(endpoints: &Endpoints, key: &str) -> Option<String> {
    endpoints.metadata.labels.as_ref()?.get(key).cloned()
}

async fn running_pod(
    namespace: &TestNamespace,
    name: &str,
    ips: &[&str],
    is_ready: Option<bool>,
) -> Result<Pod> {
    namespace.create(&pod_on_no_node(name)).await?;
    namespace.update_status::<Pod>(name, |pod| pod.status = Some(running(ips, is_ready))).await
}

async fn set_ready(namespace: &TestNamespace, name: &str, ips: &[&str], is_ready: bool) -> Result<()> {
    namespace.update_status::<Pod>(name, |pod| pod.status = Some(running(ips, Some(is_ready)))).await?;
    Ok(())
}

async fn endpoints_become(
    namespace: &TestNamespace,
    name: &str,
    what: &str,
    accept: impl Fn(&Endpoints) -> bool,
) -> Result<Endpoints> {
    let found = eventually(
        what,
        || namespace.find::<Endpoints>(name),
        |endpoints| endpoints.as_ref().is_some_and(&accept),
    )
    .await?;
    Ok(found.unwrap_or_default())
}

// parity: create-or-update
#[tokio::test]
async fn nothing_is_written_when_nothing_changed() -> Result<()> {
    let namespace = namespace("ep-updates").await?;
    running_pod(&namespace, "pod", &["1.1.1.1", "2001:db8::1"], None).await?;
    namespace.create(&service("first", &[1338, 1337])).await?;
    let before =
        endpoints_become(&namespace, "first", "the pod is an address", |it| !not_ready(it).is_empty())
            .await?;

    namespace
        .merge::<Service>("first", serde_json::json!({"metadata": {"annotations": {"foo": "bar"}}}))
        .await?;
    // Keys are processed in order: when the later Service is done, the earlier one has been reconciled.
    for late in ["second", "third", "fourth", "fifth", "sixth", "seventh"] {
        namespace.create(&service(late, &[1338])).await?;
        endpoints_become(&namespace, late, "the later Service has endpoints", |it| !not_ready(it).is_empty())
            .await?;
    }
    let after = namespace.get::<Endpoints>("first").await?;
    ensure!(
        before.metadata.resource_version == after.metadata.resource_version,
        "an unchanged object was written: {before:#?} {after:#?}"
    );
    Ok(())
}

#[tokio::test]
async fn readiness_that_flips_and_flips_back_ends_ready() -> Result<()> {
    let namespace = namespace("ep-flip").await?;
    let pod = running_pod(&namespace, "pod", &["1.1.1.1"], Some(true)).await?;
    let services: Vec<String> = (0..10).map(|index| format!("web-{index}")).collect();
    for name in &services {
        namespace.create(&service(name, &[1338, 1337])).await?;
    }
    for name in &services {
        endpoints_become(&namespace, name, "the pod is ready", |it| ready(it).len() == 1).await?;
    }
    set_ready(&namespace, "pod", &["1.1.1.1"], false).await?;
    set_ready(&namespace, "pod", &["1.1.1.1"], true).await?;
    // A write from a stale cache appears only after the last flip is reconciled. A marker Service that is created later
    // is reconciled after all flips.
    namespace.create(&service("marker", &[1])).await?;
    endpoints_become(&namespace, "marker", "the marker is done", |it| ready(it).len() == 1).await?;
    for name in &services {
        let endpoints = endpoints_become(&namespace, name, "the pod is ready again", |it| {
            ready(it).len() == 1 && not_ready(it).is_empty()
        })
        .await?;
        let address = ready(&endpoints)[0];
        let target = address.target_ref.clone().unwrap_or_default();
        ensure!(address.ip == "1.1.1.1" && address.node_name.as_deref() == Some("no-such-node"));
        ensure!(target.kind.as_deref() == Some("Pod") && target.uid == pod.metadata.uid, "{target:?}");
    }
    Ok(())
}

#[tokio::test]
async fn external_name_gets_endpoints_only_once_it_has_a_cluster_ip() -> Result<()> {
    let namespace = namespace("ep-external").await?;
    running_pod(&namespace, "pod", &["1.1.1.1"], None).await?;
    let mut external = service("external", &[1338]);
    let spec = external.spec.get_or_insert_default();
    spec.type_ = Some("ExternalName".to_owned());
    spec.external_name = Some("elsewhere.example".to_owned());
    namespace.create(&external).await?;
    namespace.create(&service("marker", &[1338])).await?;
    endpoints_become(&namespace, "marker", "a later Service is done", |it| !not_ready(it).is_empty()).await?;
    ensure!(namespace.find::<Endpoints>("external").await?.is_none(), "an ExternalName has endpoints");

    namespace
        .merge::<Service>(
            "external",
            serde_json::json!({"spec": {"type": "ClusterIP", "externalName": null}}),
        )
        .await?;
    let endpoints =
        endpoints_become(&namespace, "external", "endpoints appear", |it| !not_ready(it).is_empty()).await?;
    ensure!(label(&endpoints, HEADLESS).is_none(), "labels: {:?}", endpoints.metadata.labels);
    ensure!(label(&endpoints, MANAGED_BY).as_deref() == Some("endpoint-controller"));
    Ok(())
}

#[tokio::test]
async fn terminating_pod_is_no_address() -> Result<()> {
    let namespace = namespace("ep-terminating").await?;
    running_pod(&namespace, "pod", &["10.0.0.1"], Some(true)).await?;
    namespace.create(&service("web", &[443])).await?;
    endpoints_become(&namespace, "web", "the pod is an address", |it| ready(it).len() == 1).await?;
    namespace.delete::<Pod>("pod").await?;
    endpoints_become(&namespace, "web", "the terminating pod is gone", |it| {
        ready(it).is_empty() && not_ready(it).is_empty()
    })
    .await?;
    let pod = namespace.get::<Pod>("pod").await?;
    ensure!(pod.metadata.deletion_timestamp.is_some(), "the pod is still there, terminating");
    Ok(())
}

#[tokio::test]
async fn terminating_pod_stays_if_not_ready_addresses_are_published() -> Result<()> {
    let namespace = namespace("ep-publish").await?;
    running_pod(&namespace, "pod", &["10.0.0.1"], Some(false)).await?;
    let mut publishing = service("publishing", &[443]);
    publishing.spec.get_or_insert_default().publish_not_ready_addresses = Some(true);
    namespace.create(&publishing).await?;
    endpoints_become(&namespace, "publishing", "the unready pod is published", |it| ready(it).len() == 1)
        .await?;
    namespace.delete::<Pod>("pod").await?;
    namespace.create(&service("marker", &[443])).await?;
    endpoints_become(&namespace, "marker", "the marker is done", |it| label(it, MANAGED_BY).is_some())
        .await?;
    let endpoints = namespace.get::<Endpoints>("publishing").await?;
    ensure!(ready(&endpoints).len() == 1, "the terminating pod is still published: {endpoints:#?}");
    Ok(())
}

#[tokio::test]
async fn more_than_a_thousand_addresses_are_truncated_and_said_to_be() -> Result<()> {
    let namespace = namespace("ep-truncate").await?;
    let count = 1001usize;
    let name = |index: usize| format!("pod-{index}");
    let ip = |index: usize| format!("10.1.{}.{}", index / 250, index % 250 + 1);
    stream::iter(0..count)
        .map(|index| {
            let namespace = &namespace;
            async move { running_pod(namespace, &name(index), &[&ip(index)], Some(true)).await }
        })
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await?;
    namespace.create(&service("web", &[443])).await?;
    let truncated =
        |it: &Endpoints| it.metadata.annotations.as_ref().and_then(|all| all.get(OVER_CAPACITY)).cloned();
    let endpoints = endpoints_become(&namespace, "web", "a thousand addresses and the annotation", |it| {
        ready(it).len() == 1000 && truncated(it).as_deref() == Some("truncated")
    })
    .await?;

    let kept: Vec<String> =
        ready(&endpoints).iter().filter_map(|address| address.target_ref.as_ref()?.name.clone()).collect();
    let left_out = (0..count).find(|index| !kept.contains(&name(*index))).unwrap_or_default();
    for flip in 0..10 {
        set_ready(&namespace, &name(left_out), &[&ip(left_out)], flip % 2 == 1).await?;
    }

    stream::iter(500..count)
        .map(|index| {
            let namespace = &namespace;
            async move { namespace.delete::<Pod>(&name(index)).await }
        })
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await?;
    endpoints_become(&namespace, "web", "five hundred addresses and no annotation", |it| {
        ready(it).len() == 500 && truncated(it).is_none()
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn first_ip_family_of_the_service_chooses_the_address() -> Result<()> {
    let cases = [
        (vec!["IPv4"], "SingleStack", "1.1.1.1"),
        (vec!["IPv6"], "SingleStack", "2001:db8::65"),
        (vec!["IPv6", "IPv4"], "RequireDualStack", "2001:db8::65"),
        (vec!["IPv4", "IPv6"], "RequireDualStack", "1.1.1.1"),
    ];
    let namespace = namespace("ep-families").await?;
    running_pod(&namespace, "pod", &["1.1.1.1", "2001:db8::65"], None).await?;
    for (index, (families, policy, expected)) in cases.into_iter().enumerate() {
        let name = format!("web-{index}");
        let mut dual = service(&name, &[443]);
        let spec = dual.spec.get_or_insert_default();
        spec.ip_families = Some(families.into_iter().map(str::to_owned).collect());
        spec.ip_family_policy = Some(policy.to_owned());
        namespace.create(&dual).await?;
        let endpoints =
            endpoints_become(&namespace, &name, "the pod is an address", |it| !not_ready(it).is_empty())
                .await?;
        ensure!(not_ready(&endpoints)[0].ip == expected, "{name}: {endpoints:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn headless_label_of_endpoints_is_not_copied_from_service() -> Result<()> {
    let namespace = namespace("ep-headless").await?;
    running_pod(&namespace, "pod", &["1.1.1.1"], Some(true)).await?;
    let mut headless = service("headless", &[443]);
    headless.spec.get_or_insert_default().cluster_ip = Some("None".to_owned());
    namespace.create(&headless).await?;
    let mut pretender = service("pretender", &[443]);
    pretender.metadata.labels = Some(pairs(&[("foo", "bar"), (HEADLESS, "pretended")]));
    namespace.create(&pretender).await?;

    let endpoints =
        endpoints_become(&namespace, "headless", "the pod is an address", |it| ready(it).len() == 1).await?;
    ensure!(label(&endpoints, HEADLESS).as_deref() == Some(""), "{:?}", endpoints.metadata.labels);
    let endpoints =
        endpoints_become(&namespace, "pretender", "the pod is an address", |it| ready(it).len() == 1).await?;
    ensure!(label(&endpoints, HEADLESS).is_none(), "{:?}", endpoints.metadata.labels);
    Ok(())
}

#[tokio::test]
async fn endpoints_go_with_their_service_and_come_back_when_deleted() -> Result<()> {
    let namespace = namespace("ep-gone").await?;
    running_pod(&namespace, "pod", &["1.1.1.1"], Some(true)).await?;
    namespace.create(&service("web", &[443])).await?;
    let first =
        endpoints_become(&namespace, "web", "the pod is an address", |it| ready(it).len() == 1).await?;
    namespace.delete::<Endpoints>("web").await?;
    endpoints_become(&namespace, "web", "deleted endpoints are made again", |it| {
        ready(it).len() == 1 && it.metadata.uid != first.metadata.uid
    })
    .await?;
    namespace.delete::<Service>("web").await?;
    eventually("the endpoints are gone", || namespace.find::<Endpoints>("web"), Option::is_none).await?;
    Ok(())
}
