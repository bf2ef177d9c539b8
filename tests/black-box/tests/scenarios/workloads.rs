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
    wait::eventually,
    workload::{Workload, create_stable, scale, scale_subresource, stable},
    world::TestNamespace,
};

use crate::plane::world;

fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(|pod| pod.metadata.name.clone().unwrap_or_default()).collect()
}

fn uids(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(|pod| pod.metadata.uid.clone().unwrap_or_default()).collect()
}

async fn pods_become(world: &TestNamespace, what: &str, count: usize) -> Result<Vec<Pod>> {
    eventually(what, || world.pods(LABEL), |pods| pods.len() == count).await
}

async fn replicas_follow_the_specification<W: Workload>() -> Result<()> {
    let world = world("spec-replicas").await?;
    create_stable(&world, &W::new("web", 2)).await?;
    for replicas in [3, 0, 2] {
        scale::<W>(&world, "web", replicas).await?;
    }
    let changed = world
        .update::<W>("web", |workload| {
            workload.template_mut().metadata.get_or_insert_default().annotations =
                Some(pairs(&[("test", "annotation")]));
        })
        .await?;
    let generation = changed.meta().generation.unwrap_or(0);
    eventually(
        "a changed template is observed without a change of replicas",
        || world.get::<W>("web"),
        |workload| workload.counts().observed_generation >= generation,
    )
    .await?;
    Ok(())
}

async fn deleting_and_failed_pods_are_replaced_and_left_alone<W: Workload>() -> Result<()> {
    let world = world("deleting-failed").await?;
    create_stable(&world, &W::new("web", 2)).await?;
    let pods = pods_become(&world, "two pods exist", 2).await?;
    let (deleting, failed) = (&names(&pods)[0], &names(&pods)[1]);

    world
        .update::<Pod>(deleting, |pod| {
            pod.metadata.finalizers = Some(vec!["test.example/block".to_owned()]);
        })
        .await?;
    world.delete::<Pod>(deleting).await?;
    world
        .update_status::<Pod>(failed, |pod| {
            pod.status.get_or_insert_default().phase = Some("Failed".to_owned());
        })
        .await?;

    let now = pods_become(&world, "both lost pods are replaced", 4).await?;
    ensure!(
        uids(&pods).iter().all(|uid| uids(&now).contains(uid)),
        "the deleting and the failed pod are still there"
    );
    world.update::<Pod>(deleting, |pod| pod.metadata.finalizers = None).await?;
    Ok(())
}

async fn overlapping_selectors_never_fight<W: Workload>() -> Result<()> {
    let world = world("overlapping").await?;
    create_stable(&world, &W::new("one", 1)).await?;
    create_stable(&world, &W::new("two", 2)).await?;
    let pods = pods_become(&world, "three pods exist in all", 3).await?;
    for name in ["one", "two"] {
        let workload = stable::<W>(&world, name).await?;
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
    let world = world("relabelled").await?;
    let workload = create_stable(&world, &W::new("web", 1)).await?;
    let pods = pods_become(&world, "one pod exists", 1).await?;
    let name = &names(&pods)[0];
    ensure!(controller_of(&pods[0].metadata).is_some(), "the pod has a controller at first");

    world.update::<Pod>(name, |pod| pod.metadata.labels = Some(pairs(&[("new", "label")]))).await?;
    eventually(
        "the pod has no controller once its labels no longer match",
        || world.get::<Pod>(name),
        |pod| controller_of(&pod.metadata).is_none(),
    )
    .await?;
    pods_become(&world, "the released pod is replaced", 1).await?;

    world.update::<Pod>(name, |pod| pod.metadata.labels = Some(fixtures::labels())).await?;
    // Two pods match one desired replica now: the returned pod is adopted or deleted.
    let returned = eventually(
        "the returned pod is adopted or deleted",
        || world.find::<Pod>(name),
        |pod| pod.as_ref().is_none_or(|pod| controller_of(&pod.metadata).is_some()),
    )
    .await?;
    if let Some(pod) = returned {
        let adopted_by = controller_of(&pod.metadata).map(|reference| reference.uid.clone());
        ensure!(adopted_by == Some(workload.uid()), "adopted by {adopted_by:?}");
    }
    pods_become(&world, "one pod remains", 1).await?;
    Ok(())
}

async fn foreign_or_demoted_owner_does_not_stop_adoption<W: Workload>() -> Result<()> {
    let world = world("general-adoption").await?;
    let workload = create_stable(&world, &W::new("web", 1)).await?;
    let pods = pods_become(&world, "one pod exists", 1).await?;
    let name = &names(&pods)[0];
    let stranger = uuid::Uuid::new_v4().to_string();

    let foreign = owner("apps/v1", "StatefulSet", "web", &stranger, Some(false), None);
    let adopted = reowned_and_adopted(&world, name, foreign, &workload).await?;
    ensure!(adopted.len() == 2, "the foreign owner stays beside the controller: {adopted:?}");

    let demoted = owner(W::API_VERSION, W::KIND, "web", &workload.uid(), Some(false), None);
    let adopted = reowned_and_adopted(&world, name, demoted, &workload).await?;
    ensure!(adopted.len() == 1, "a demoted reference is promoted, not doubled: {adopted:?}");
    Ok(())
}

async fn reowned_and_adopted<W: Workload>(
    world: &TestNamespace,
    pod: &str,
    reference: OwnerReference,
    workload: &W,
) -> Result<Vec<OwnerReference>> {
    world.update::<Pod>(pod, |pod| pod.metadata.owner_references = Some(vec![reference.clone()])).await?;
    let adopted = eventually(
        "the pod has its controller again",
        || world.get::<Pod>(pod),
        |pod| controller_of(&pod.metadata).is_some_and(|controller| controller.uid == workload.uid()),
    )
    .await?;
    Ok(adopted.metadata.owner_references.unwrap_or_default())
}

async fn ready_and_available_are_counted_apart<W: Workload>() -> Result<()> {
    let world = world("ready-available").await?;
    let mut workload = W::new("web", 3);
    workload.set_min_ready_seconds(3600);
    let workload = create_stable(&world, &workload).await?;
    ensure!(workload.counts().available == 0, "nothing is available at first");
    let pods = pods_become(&world, "three pods exist", 3).await?;
    let now = Timestamp::now();
    let since = [(false, now), (true, now), (true, now - 2.hours())];
    for (name, (ready, since)) in names(&pods).iter().zip(since) {
        set_ready(&world, name, ready, since).await?;
    }
    eventually(
        "three replicas, two ready, one available",
        || world.get::<W>("web"),
        |workload| {
            let counts = workload.counts();
            (counts.replicas, counts.ready, counts.available) == (3, 2, 1)
        },
    )
    .await?;
    Ok(())
}

async fn set_ready(world: &TestNamespace, pod: &str, ready: bool, since: Timestamp) -> Result<()> {
    world
        .update_status::<Pod>(pod, |pod| {
            let status = pod.status.get_or_insert_default();
            status.phase = Some("Running".to_owned());
            status.conditions = Some(vec![ready_condition(ready, Some(Time(since)))]);
        })
        .await?;
    Ok(())
}

async fn scale_subresource_drives_replicas<W: Workload>() -> Result<()> {
    let world = world("scale-subresource").await?;
    create_stable(&world, &W::new("web", 1)).await?;
    for replicas in [3, 0] {
        let accepted = scale_subresource::<W>(&world, "web", replicas).await?;
        ensure!(accepted == replicas, "scale answered {accepted}");
        let workload = stable::<W>(&world, "web").await?;
        ensure!(workload.desired() == replicas, "spec.replicas is {}", workload.desired());
    }
    Ok(())
}

async fn fully_labeled_replicas_match_every_template_label<W: Workload>() -> Result<()> {
    let world = world("fully-labeled").await?;
    create_stable(&world, &W::new("web", 2)).await?;
    let extra = pairs(&[("foo", "bar"), ("extra", "label")]);
    world
        .update::<W>("web", |workload| {
            workload.template_mut().metadata.get_or_insert_default().labels = Some(extra.clone());
        })
        .await?;
    let pods = pods_become(&world, "two pods exist", 2).await?;
    world.update::<Pod>(&names(&pods)[0], |pod| pod.metadata.labels = Some(extra.clone())).await?;
    eventually(
        "two replicas, one fully labelled",
        || world.get::<W>("web"),
        |workload| (workload.counts().replicas, workload.counts().fully_labeled) == (2, 1),
    )
    .await?;
    Ok(())
}

async fn the_pod_that_costs_more_to_delete_stays<W: Workload>(
    scenario: &str,
    costs: Option<[&str; 2]>,
    remaining: usize,
) -> Result<()> {
    let world = world(scenario).await?;
    create_stable(&world, &W::new("web", 2)).await?;
    let pods = pods_become(&world, "two pods exist", 2).await?;
    let now = Timestamp::now();
    for (index, name) in names(&pods).iter().enumerate() {
        if let Some(costs) = costs {
            let cost = pairs(&[("controller.kubernetes.io/pod-deletion-cost", costs[index])]);
            world.update::<Pod>(name, |pod| pod.metadata.annotations = Some(cost.clone())).await?;
        }
        world.make_ready(name, now, [5, 0][index]).await?;
    }
    pods_are_seen_ready::<W>(&world, 2).await?;
    world.update::<W>("web", |workload| workload.set_desired(1)).await?;
    let left = pods_become(&world, "one pod remains", 1).await?;
    ensure!(uids(&left)[0] == uids(&pods)[remaining], "the wrong pod went: {:?}", names(&left));
    Ok(())
}

/// Pods and their workload have separate watches: a change of pods affects a later change of the workload only after
/// the manager has reported it.
async fn pods_are_seen_ready<W: Workload>(world: &TestNamespace, count: i32) -> Result<()> {
    eventually(
        "the manager has seen that the pods are ready",
        || world.get::<W>("web"),
        |workload| workload.counts().ready == count,
    )
    .await?;
    Ok(())
}

async fn youngest_pod_goes_first<W: Workload>() -> Result<()> {
    let world = world("logarithmic-scale-down").await?;
    create_stable(&world, &W::new("web", 2)).await?;
    let elders = pods_become(&world, "two pods exist", 2).await?;
    // Ages are compared by the binary logarithm of their nanoseconds, so the test must wait for real time.
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    scale::<W>(&world, "web", 3).await?;
    pods_become(&world, "three pods exist", 3).await?;
    scale::<W>(&world, "web", 2).await?;
    let left = pods_become(&world, "two pods remain", 2).await?;
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
                super::the_pod_that_costs_more_to_delete_stays::<$kind>("cost", Some(["1000", "100"]), 0)
                    .await
            }

            #[tokio::test]
            async fn equal_costs_leave_the_choice_to_restarts() -> Result<()> {
                super::the_pod_that_costs_more_to_delete_stays::<$kind>("same-cost", Some(["100", "100"]), 1)
                    .await
            }

            #[tokio::test]
            async fn without_costs_the_pod_that_restarted_goes() -> Result<()> {
                super::the_pod_that_costs_more_to_delete_stays::<$kind>("no-cost", None, 1).await
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
