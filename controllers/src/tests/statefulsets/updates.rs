//! Updates of the image, with and without a change of the size.

use super::*;

/// Pod management policy, and the sizes before and after an update.
const UPDATES: [(&str, u32, u32); 6] = [
    ("OrderedReady", 3, 3),
    ("OrderedReady", 3, 5),
    ("OrderedReady", 5, 3),
    ("Parallel", 3, 3),
    ("Parallel", 3, 5),
    ("Parallel", 5, 3),
];

/// Policies for claims of scaled-down and of deleted sets.
const RETENTIONS: [(&str, &str); 4] =
    [("Retain", "Retain"), ("Retain", "Delete"), ("Delete", "Retain"), ("Delete", "Delete")];

fn managed(policy: &str, replicas: u32, fields: Value) -> Value {
    let mut set = with(replicas, fields);
    set["spec"]["podManagementPolicy"] = json!(policy);
    set
}

fn images(world: &World) -> Vec<String> {
    world.images_by_name().into_iter().map(|(_, image)| image).collect()
}

/// Changes image and size in one request, and waits until all pods are ready.
async fn update(world: &World, image: &str, replicas: u32) {
    let template = json!({ "spec": { "containers": [{ "name": "main", "image": image }] } });
    world.api.upsert(&web(), json!({ "spec": { "replicas": replicas, "template": template } }));
    world.run_all(20).await;
}

/// Returns the ordinals of the pods that the controller deleted since the last call, in order.
fn deleted(world: &World) -> Vec<u32> {
    let notes = world.notes("SuccessfulDelete").into_iter();
    let ordinal = |note: String| note.split(' ').nth(2)?.strip_prefix("web-")?.parse().ok();
    notes.map(|note| ordinal(note).expect("an ordinal")).collect()
}

#[tokio::test(start_paused = true)]
async fn rolling_update_reaches_all_pods_of_the_new_size() {
    for (policy, from, to) in UPDATES {
        let world = settled(managed(policy, from, json!({}))).await;
        update(&world, "web:2", to).await;
        assert_eq!(images(&world), vec!["web:2"; to as usize], "{policy} {from} {to}");
        // Surplus pods are deleted first, then old pods are replaced, each from the highest ordinal.
        assert_eq!(deleted(&world), (0..from).rev().collect::<Vec<_>>(), "{policy} {from} {to}");
        assert_eq!(status(&world, COUNTS), [u64::from(to); 5], "{policy} {from} {to}");
    }
}

#[tokio::test(start_paused = true)]
async fn rollback_restores_the_image_of_all_pods() {
    for (policy, from, to) in UPDATES {
        let world = settled(managed(policy, from, json!({}))).await;
        let first = world.numbered_revisions()[0].1.clone();
        update(&world, "web:2", to).await;
        assert_eq!(images(&world), vec!["web:2"; to as usize], "{policy} {from} {to}");
        update(&world, "web:1", to).await;
        assert_eq!(images(&world), vec!["web:1"; to as usize], "{policy} {from} {to}");
        assert_eq!(world.numbered_revisions()[1], (3, first), "{policy} {from} {to}");
    }
}

#[tokio::test(start_paused = true)]
async fn on_delete_update_reaches_only_new_pods() {
    for (policy, from, to) in UPDATES {
        let strategy = json!({ "updateStrategy": { "type": "OnDelete" } });
        let world = settled(managed(policy, from, strategy)).await;
        update(&world, "web:2", to).await;
        let expected: Vec<_> = (0..to).map(|it| if it < from { "web:1" } else { "web:2" }).collect();
        assert_eq!(images(&world), expected, "{policy} {from} {to}");
        world.resize(0);
        world.run_all(15).await;
        assert_eq!(images(&world), [""; 0], "{policy} {from} {to}");
        world.resize(to);
        world.run_all(15).await;
        assert_eq!(images(&world), vec!["web:2"; to as usize], "{policy} {from} {to}");
    }
}

#[tokio::test(start_paused = true)]
async fn partition_limits_an_update_of_any_size_and_retention() {
    for (scaled, deleted) in RETENTIONS {
        for (policy, from, to) in UPDATES {
            let retention = json!({ "whenScaled": scaled, "whenDeleted": deleted });
            let mut set = with_claims(from, retention);
            set["spec"]["podManagementPolicy"] = json!(policy);
            set["spec"]["updateStrategy"] =
                json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 2 } });
            let world = settled(set).await;
            update(&world, "web:2", to).await;
            let expected: Vec<_> = (0..to).map(|it| if it < 2 { "web:1" } else { "web:2" }).collect();
            assert_eq!(images(&world), expected, "{scaled} {deleted} {policy} {from} {to}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn history_keeps_the_revision_in_use_and_the_limit() {
    // Policy, limit, and the numbers of the kept revisions after ten updates.
    let cases = [
        ("OrderedReady", 2, 9..=11),
        ("Parallel", 2, 9..=11),
        ("OrderedReady", 0, 11..=11),
        ("OrderedReady", -2, 1..=11),
        ("OrderedReady", 5, 6..=11),
    ];
    for (policy, limit, expected) in cases {
        let world = settled(managed(policy, 3, json!({ "revisionHistoryLimit": limit }))).await;
        for image in 2..=11 {
            update(&world, &format!("web:{image}"), 3).await;
            let kept = world.numbered_revisions().len();
            assert!(limit < 0 || i32::try_from(kept).is_ok_and(|kept| kept <= limit + 1), "{kept} {limit}");
        }
        let numbers: Vec<_> = world.numbered_revisions().into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, expected.collect::<Vec<_>>(), "{policy} {limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn history_keeps_its_limit_while_status_writes_fail() {
    for (scaled, deleted) in RETENTIONS {
        let mut set = with_claims(3, json!({ "whenScaled": scaled, "whenDeleted": deleted }));
        set["spec"]["revisionHistoryLimit"] = json!(2);
        let world = settled(set).await;
        for image in 2..=8 {
            world.refuse(&format!("PUT {}/status", web()), 2, FaultAction::InternalError);
            update(&world, &format!("web:{image}"), 3).await;
            let kept = world.numbered_revisions().len();
            // The current revision and the update revision are kept in addition.
            assert!(kept <= 4, "{kept} {scaled} {deleted}");
        }
        assert_eq!(images(&world), ["web:8"; 3], "{scaled} {deleted}");
    }
}
