//! ReplicaSets and ReplicationControllers: upstream's integration scenarios, one test per property.
//!
//! Both kinds share each test body; the modules at the end define the tests per kind.

use anyhow::{Result, ensure};
use jiff::{Timestamp, ToSpan as _};
use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
};
use windlass_black_box::{
    fixtures::{self, LABEL, controller_of, owner, pairs, ready_condition},
    test_namespace::TestNamespace,
    wait::eventually,
    workload::{Workload, create_stable, scale, scale_subresource, stable},
};

use crate::plane::namespace;

fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(|pod| pod.metadata.name.clone().unwrap_or_default()).collect()
}

fn uids(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(|pod| pod.metadata.uid.clone().unwrap_or_default()).collect()
}

async fn pods_become(namespace: &TestNamespace, what: &str, count: usize) -> Result<Vec<Pod>> {
    eventually(what, || namespace.pods(LABEL), |pods| pods.len() == count).await
}

async fn replicas_follow_the_specification<W: Workload>() -> Result<()> {
    let namespace = namespace("spec-replicas").await?;
    create_stable(&namespace, &W::new("web", 2)).await?;
    for replicas in [3, 0, 2] {
        scale::<W>(&namespace, "web", replicas).await?;
    }
    let changed = namespace
        .update::<W>("web", |workload| {
            workload.template_mut().metadata.get_or_insert_default().annotations =
                Some(pairs(&[("test", "annotation")]));
        })
        .await?;
    let generation = changed.meta().generation.unwrap_or(0);
    eventually(
        "a changed template is observed without a change of replicas",
        || namespace.get::<W>("web"),
        |workload| workload.counts().observed_generation >= generation,
    )
    .await?;
    Ok(())
}

async fn deleting_and_failed_pods_are_replaced_and_left_alone<W: Workload>() -> Result<()> {
    let namespace = namespace("deleting-failed").await?;
    create_stable(&namespace, &W::new("web", 2)).await?;
    let pods = pods_become(&namespace, "two pods exist", 2).await?;
    let (deleting, failed) = (&names(&pods)[0], &names(&pods)[1]);

    namespace
        .update::<Pod>(deleting, |pod| {
            pod.metadata.finalizers = Some(vec!["test.example/block".to_owned()]);
        })
        .await?;
    namespace.delete::<Pod>(deleting).await?;
    namespace
        .update_status::<Pod>(failed, |pod| {
            pod.status.get_or_insert_default().phase = Some("Failed".to_owned());
        })
        .await?;

    let now = pods_become(&namespace, "both lost pods are replaced", 4).await?;
    ensure!(
        uids(&pods).iter().all(|uid| uids(&now).contains(uid)),
        "the deleting and the failed pod are still there"
    );
    namespace.update::<Pod>(deleting, |pod| pod.metadata.finalizers = None).await?;
    Ok(())
}

async fn overlapping_selectors_never_fight<W: Workload>() -> Result<()> {
    let namespace = namespace("overlapping").await?;
    create_stable(&namespace, &W::new("one", 1)).await?;
    create_stable(&namespace, &W::new("two", 2)).await?;
    let pods = pods_become(&namespace, "three pods exist in all", 3).await?;
    for name in ["one", "two"] {
        let workload = stable::<W>(&namespace, name).await?;
        let owned = pods
            .iter()
            .filter(|pod| {
                controller_of(&pod.metadata).is_some_and(|reference| reference.uid == workload.uid())
            })
            .count();
        ensure!(i32::try_from(owned)? == workload.desired(), "{name} owns {owned} pods");
    }
    Ok(())
}

async fn relabelled_pod_is_released_and_taken_back<W: Workload>() -> Result<()> {
    let namespace = namespace("relabelled").await?;
    let workload = create_stable(&namespace, &W::new("web", 1)).await?;
    let pods = pods_become(&namespace, "one pod exists", 1).await?;
    let name = &names(&pods)[0];
    ensure!(controller_of(&pods[0].metadata).is_some(), "the pod has a controller at first");

    namespace.update::<Pod>(name, |pod| pod.metadata.labels = Some(pairs(&[("new", "label")]))).await?;
    eventually(
        "the pod has no controller once its labels no longer match",
        || namespace.get::<Pod>(name),
        |pod| controller_of(&pod.metadata).is_none(),
    )
    .await?;
    pods_become(&namespace, "the released pod is replaced", 1).await?;

    namespace.update::<Pod>(name, |pod| pod.metadata.labels = Some(fixtures::labels())).await?;
    // Two pods match one desired replica now: the returned pod is adopted or deleted.
    let returned = eventually(
        "the returned pod is adopted or deleted",
        || namespace.find::<Pod>(name),
        |pod| pod.as_ref().is_none_or(|pod| controller_of(&pod.metadata).is_some()),
    )
    .await?;
    if let Some(pod) = returned {
        let adopted_by = controller_of(&pod.metadata).map(|reference| reference.uid.clone());
        ensure!(adopted_by == Some(workload.uid()), "adopted by {adopted_by:?}");
    }
    pods_become(&namespace, "one pod remains", 1).await?;
    Ok(())
}

async fn foreign_or_demoted_owner_does_not_stop_adoption<W: Workload>() -> Result<()> {
    let namespace = namespace("general-adoption").await?;
    let workload = create_stable(&namespace, &W::new("web", 1)).await?;
    let pods = pods_become(&namespace, "one pod exists", 1).await?;
    let name = &names(&pods)[0];
    let uid = uuid::Uuid::new_v4().to_string();

    let foreign = owner("apps/v1", "StatefulSet", "web", &uid, Some(false), None);
    let adopted = reowned_and_adopted(&namespace, name, foreign, &workload).await?;
    ensure!(adopted.len() == 2, "the foreign owner stays next to the controller: {adopted:?}");

    let demoted = owner(W::API_VERSION, W::KIND, "web", &workload.uid(), Some(false), None);
    let adopted = reowned_and_adopted(&namespace, name, demoted, &workload).await?;
    ensure!(adopted.len() == 1, "a demoted reference is promoted, not doubled: {adopted:?}");
    Ok(())
}

async fn reowned_and_adopted<W: Workload>(
    namespace: &TestNamespace,
    pod: &str,
    reference: OwnerReference,
    workload: &W,
) -> Result<Vec<OwnerReference>> {
    namespace.update::<Pod>(pod, |pod| pod.metadata.owner_references = Some(vec![reference.clone()])).await?;
    let adopted = eventually(
        "the pod has its controller again",
        || namespace.get::<Pod>(pod),
        |pod| controller_of(&pod.metadata).is_some_and(|controller| controller.uid == workload.uid()),
    )
    .await?;
    Ok(adopted.metadata.owner_references.unwrap_or_default())
}

async fn ready_and_available_are_counted_apart<W: Workload>() -> Result<()> {
    let namespace = namespace("ready-available").await?;
    let mut workload = W::new("web", 3);
    workload.set_min_ready_seconds(3600);
    let workload = create_stable(&namespace, &workload).await?;
    ensure!(workload.counts().available == 0, "nothing is available at first");
    let pods = pods_become(&namespace, "three pods exist", 3).await?;
    let now = Timestamp::now();
    let since = [(false, now), (true, now), (true, now - 2.hours())];
    for (name, (ready, since)) in names(&pods).iter().zip(since) {
        set_ready(&namespace, name, ready, since).await?;
    }
    eventually(
        "three replicas, two ready, one available",
        || namespace.get::<W>("web"),
        |workload| {
            let counts = workload.counts();
            (counts.replicas, counts.ready, counts.available) == (3, 2, 1)
        },
    )
    .await?;
    Ok(())
}

async fn set_ready(namespace: &TestNamespace, pod: &str, ready: bool, since: Timestamp) -> Result<()> {
    namespace
        .update_status::<Pod>(pod, |pod| {
            let status = pod.status.get_or_insert_default();
            status.phase = Some("Running".to_owned());
            status.conditions = Some(vec![ready_condition(ready, Some(Time(since)))]);
        })
        .await?;
    Ok(())
}

async fn scale_subresource_drives_replicas<W: Workload>() -> Result<()> {
    let namespace = namespace("scale-subresource").await?;
    create_stable(&namespace, &W::new("web", 1)).await?;
    for replicas in [3, 0] {
        let accepted = scale_subresource::<W>(&namespace, "web", replicas).await?;
        ensure!(accepted == replicas, "scale answered {accepted}");
        let workload = stable::<W>(&namespace, "web").await?;
        ensure!(workload.desired() == replicas, "spec.replicas is {}", workload.desired());
    }
    Ok(())
}

async fn fully_labeled_replicas_match_every_template_label<W: Workload>() -> Result<()> {
    let namespace = namespace("fully-labeled").await?;
    create_stable(&namespace, &W::new("web", 2)).await?;
    let extra = pairs(&[("foo", "bar"), ("extra", "label")]);
    namespace
        .update::<W>("web", |workload| {
            workload.template_mut().metadata.get_or_insert_default().labels = Some(extra.clone());
        })
        .await?;
    let pods = pods_become(&namespace, "two pods exist", 2).await?;
    namespace.update::<Pod>(&names(&pods)[0], |pod| pod.metadata.labels = Some(extra.clone())).await?;
    eventually(
        "two replicas, one fully labeled",
        || namespace.get::<W>("web"),
        |workload| (workload.counts().replicas, workload.counts().fully_labeled) == (2, 1),
    )
    .await?;
    Ok(())
}

async fn pod_with_higher_deletion_cost_remains<W: Workload>(
    scenario: &str,
    costs: Option<[&str; 2]>,
    remaining: usize,
) -> Result<()> {
    let namespace = namespace(scenario).await?;
    create_stable(&namespace, &W::new("web", 2)).await?;
    let pods = pods_become(&namespace, "two pods exist", 2).await?;
    let now = Timestamp::now();
    for (index, name) in names(&pods).iter().enumerate() {
        if let Some(costs) = costs {
            let cost = pairs(&[("controller.kubernetes.io/pod-deletion-cost", costs[index])]);
            namespace.update::<Pod>(name, |pod| pod.metadata.annotations = Some(cost.clone())).await?;
        }
        namespace.make_ready(name, now, [5, 0][index]).await?;
    }
    pods_are_seen_ready::<W>(&namespace, 2).await?;
    namespace.update::<W>("web", |workload| workload.set_desired(1)).await?;
    let left = pods_become(&namespace, "one pod remains", 1).await?;
    ensure!(uids(&left)[0] == uids(&pods)[remaining], "the wrong pod went: {:?}", names(&left));
    Ok(())
}

/// Pods and their workload have separate watches: a change of pods affects a later change of the workload only after
/// the manager has reported it.
async fn pods_are_seen_ready<W: Workload>(namespace: &TestNamespace, count: i32) -> Result<()> {
    eventually(
        "the manager has seen that the pods are ready",
        || namespace.get::<W>("web"),
        |workload| workload.counts().ready == count,
    )
    .await?;
    Ok(())
}

async fn youngest_pod_goes_first<W: Workload>() -> Result<()> {
    let namespace = namespace("logarithmic-scale-down").await?;
    create_stable(&namespace, &W::new("web", 2)).await?;
    let elders = pods_become(&namespace, "two pods exist", 2).await?;
    // Ages are compared by the binary logarithm of their nanoseconds, so the test must wait for real time.
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    scale::<W>(&namespace, "web", 3).await?;
    pods_become(&namespace, "three pods exist", 3).await?;
    scale::<W>(&namespace, "web", 2).await?;
    let left = pods_become(&namespace, "two pods remain", 2).await?;
    ensure!(uids(&left) == uids(&elders), "an elder went before the youngest: {:?}", names(&left));
    Ok(())
}

/// Defines one scenario as a test for each kind.
macro_rules! scenarios {
    ($module:ident, $kind:ty) => {
        mod $module {
            use anyhow::Result;

            #[tokio::test]
            async fn replicas_follow_the_specification() -> Result<()> {
                super::replicas_follow_the_specification::<$kind>().await
            }

            #[tokio::test]
            async fn deleting_and_failed_pods_are_replaced_and_left_alone() -> Result<()> {
                super::deleting_and_failed_pods_are_replaced_and_left_alone::<$kind>().await
            }

            #[tokio::test]
            async fn overlapping_selectors_never_fight() -> Result<()> {
                super::overlapping_selectors_never_fight::<$kind>().await
            }

            #[tokio::test]
            async fn relabelled_pod_is_released_and_taken_back() -> Result<()> {
                super::relabelled_pod_is_released_and_taken_back::<$kind>().await
            }

            #[tokio::test]
            async fn foreign_or_demoted_owner_does_not_stop_adoption() -> Result<()> {
                super::foreign_or_demoted_owner_does_not_stop_adoption::<$kind>().await
            }

            #[tokio::test]
            async fn ready_and_available_are_counted_apart() -> Result<()> {
                super::ready_and_available_are_counted_apart::<$kind>().await
            }

            #[tokio::test]
            async fn scale_subresource_drives_replicas() -> Result<()> {
                super::scale_subresource_drives_replicas::<$kind>().await
            }

            #[tokio::test]
            async fn fully_labeled_replicas_match_every_template_label() -> Result<()> {
                super::fully_labeled_replicas_match_every_template_label::<$kind>().await
            }

            #[tokio::test]
            async fn costlier_pod_stays() -> Result<()> {
                super::pod_with_higher_deletion_cost_remains::<$kind>("cost", Some(["1000", "100"]), 0).await
            }

            #[tokio::test]
            async fn equal_costs_leave_the_choice_to_restarts() -> Result<()> {
                super::pod_with_higher_deletion_cost_remains::<$kind>("same-cost", Some(["100", "100"]), 1)
                    .await
            }

            #[tokio::test]
            async fn without_costs_the_pod_that_restarted_goes() -> Result<()> {
                super::pod_with_higher_deletion_cost_remains::<$kind>("no-cost", None, 1).await
            }

            #[tokio::test]
            async fn youngest_pod_goes_first() -> Result<()> {
                super::youngest_pod_goes_first::<$kind>().await
            }
        }
    };
}

scenarios!(replica_set, k8s_openapi::api::apps::v1::ReplicaSet);
scenarios!(replication_controller, k8s_openapi::api::core::v1::ReplicationController);
