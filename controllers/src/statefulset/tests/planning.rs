//! The requests of one sync.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use windlass_object::HasMetadata as _;

use super::fixtures::{claim, owner, short, stateful_set, versions};
use crate::shared::fixtures::at;
use crate::shared::pods;
use crate::statefulset::claims::{ClaimOwners, ClaimUser};
use crate::statefulset::plan::{Observed, plan};
use crate::statefulset::tasks::{CachedClaim, ClaimNeed, OwnerCheck, Plan, Task};

/// Returns the plan for pods in short form. Claims without an entry exist and have no owners.
fn planned(replicas: i32, fields: Value, pods: &[&str], claims: &[(&str, CachedClaim)]) -> Plan {
    let set = stateful_set(replicas, fields);
    let (versions, pods) = (versions(&set), pods.iter().map(|text| short(text)).collect::<Vec<_>>());
    let claims: BTreeMap<_, _> = claims.iter().cloned().collect();
    let cached = |name: &str| {
        claims.get(name).cloned().unwrap_or_else(|| CachedClaim::Present(claim(name, &json!([]))))
    };
    plan(&Observed { set: &set, versions: &versions, collisions: 0, pods: &pods, claim: &cached, now: at(0) })
}

/// Returns the tasks in short form, by group; the replaced pod is last.
fn tasks(plan: &Plan) -> Vec<String> {
    let group = |group: &Vec<Vec<Task>>| {
        let texts: Vec<_> = group.iter().flatten().map(text).collect();
        texts.join(" ")
    };
    let replaced = plan.replaced.iter().map(|pod| format!("replace {}", pods::name(&pod.metadata)));
    plan.groups.iter().map(group).chain(replaced).collect()
}

fn text(task: &Task) -> String {
    match task {
        Task::Create { pod, .. } => format!("+{}", pods::name(&pod.metadata)),
        Task::ProvideClaims { user, .. } => format!("claims:{}", user.name),
        Task::Correct(correction) => format!("correct:{}", correction.user.name),
        Task::CorrectOwners { user, .. } => format!("owners:{}", user.name),
        Task::Delete(pod) => format!("-{}", pods::name(&pod.metadata)),
    }
}

fn check(replicas: i32, fields: &Value, cases: &[(&[&str], &[&str])]) {
    for (given, expected) in cases {
        let plan = planned(replicas, fields.clone(), given, &[]);
        assert_eq!(tasks(&plan), *expected, "{given:?} {fields}");
    }
}

#[test]
fn ordered_pods_are_created_after_their_predecessors() {
    check(
        3,
        &json!({}),
        &[
            (&[], &["+web-0"]),
            (&["0pu"], &[]),
            (&["0nu"], &[]),
            (&["0ru-"], &[]),
            (&["0ru"], &["+web-1"]),
            (&["0ru", "2ru"], &["+web-1"]),
            (&["0nu", "2ru"], &[]),
            (&["0ru", "1ru", "2ru"], &[]),
            (&["0ru", "1fu", "2ru"], &["-web-1"]),
            (&["0su", "1ru"], &["-web-0"]),
            (&["0fu-", "1ru"], &[]),
        ],
    );
}

#[test]
fn ordered_pods_are_deleted_in_reverse_order() {
    check(
        1,
        &json!({}),
        &[
            (&["0ru", "1ru", "2ru"], &["-web-2"]),
            (&["0ru", "1ru", "2ru-"], &[]),
            (&["0ru", "1ru", "2nu"], &["-web-2"]),
            (&["0ru", "1nu", "2ru"], &["-web-2"]),
            (&["0ru", "1nu", "2nu"], &[]),
            (&["0nu", "1ru", "2ru"], &[]),
            (&["1ru", "2ru"], &["+web-0"]),
            (&["0ru", "1fu"], &["-web-1"]),
            (&["0ru", "10ru", "9ru"], &["-web-10"]),
        ],
    );
}

#[test]
fn parallel_pods_do_not_wait() {
    check(
        3,
        &json!({ "podManagementPolicy": "Parallel" }),
        &[
            (&[], &["+web-0 +web-1 +web-2"]),
            (&["1nu"], &["+web-0 +web-2"]),
            (&["0fu", "1ru-", "2ru", "3nu", "4ru"], &["-web-0", "-web-4 -web-3"]),
            (&["0ru", "1ru", "2ru", "3ru-"], &[]),
        ],
    );
}

#[test]
fn size_of_a_plan_does_not_depend_on_the_desired_size() {
    for (policy, expected) in [("OrderedReady", 1), ("Parallel", 501)] {
        let plan = planned(i32::MAX, json!({ "podManagementPolicy": policy }), &["1ru"], &[]);
        assert_eq!(plan.groups.iter().map(Vec::len).collect::<Vec<_>>(), [expected], "{policy}");
        let replaces_old =
            planned(i32::MAX, json!({ "podManagementPolicy": policy }), &["0ro"], &[]).replaced;
        assert_eq!(replaces_old, None, "{policy}");
    }
}

#[test]
fn parallel_scaling_takes_few_syncs() {
    // Sizes before and after the change, and the number of pods that each sync creates or deletes.
    let cases: [(usize, i32, &[usize]); 4] =
        [(3, 30, &[27]), (10, 1, &[9]), (501, 0, &[501]), (0, 1000, &[500, 500])];
    for (from, to, expected) in cases {
        let mut pods: Vec<_> = (0..from).map(|ordinal| format!("{ordinal}ru")).collect();
        for count in expected {
            let present: Vec<_> = pods.iter().map(String::as_str).collect();
            let plan = planned(to, json!({ "podManagementPolicy": "Parallel" }), &present, &[]);
            let mut changed = 0;
            for task in plan.groups.iter().flatten().flatten() {
                changed += 1;
                match task {
                    Task::Create { pod, .. } => {
                        let name = pods::name(&pod.metadata);
                        pods.push(format!("{}ru", name.trim_start_matches("web-")));
                    }
                    Task::Delete(pod) => {
                        let deleted = pods::name(&pod.metadata).to_owned();
                        pods.retain(|pod| format!("web-{}", pod.trim_end_matches("ru")) != deleted);
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(changed, *count, "{from} {to}");
        }
        assert_eq!(pods.len(), usize::try_from(to).expect("a size"), "{from} {to}");
    }
}

#[test]
fn parallel_groups_contain_pods_without_work() {
    let parallel = json!({ "podManagementPolicy": "Parallel" });
    let sizes = |replicas: i32, pods: &[&str]| {
        let plan = planned(replicas, parallel.clone(), pods, &[]);
        let sizes = |group: &Vec<Vec<Task>>| group.iter().map(Vec::len).collect::<Vec<_>>();
        plan.groups.iter().map(sizes).collect::<Vec<_>>()
    };
    assert_eq!(sizes(5, &["0ru", "1ru", "2ru"]), [[0, 0, 0, 1, 1]]);
    assert_eq!(sizes(3, &["1ru", "2ru-"]), [[1, 0, 0]]);
    assert_eq!(
        sizes(1, &["0ru", "1ru", "2ru-", "3ru"]),
        [[1, 0, 1]],
        "pods to delete, highest ordinal first"
    );
    assert_eq!(sizes(2, &["0ru", "1ru"]), [[0; 0]; 0]);
}

#[test]
fn ordinals_begin_at_the_configured_start() {
    check(
        2,
        &json!({ "ordinals": { "start": 3 } }),
        &[
            (&[], &["+web-3"]),
            (&["3ru"], &["+web-4"]),
            (&["3ru", "4ru", "0ru", "5ru"], &["-web-5"]),
            (&["3ru", "4ru", "0ru"], &["-web-0"]),
        ],
    );
    check(2, &json!({ "ordinals": { "start": i32::MAX } }), &[(&[], &["+web-2147483647"])]);
}

#[test]
fn rolling_update_replaces_one_pod_from_the_highest_ordinal() {
    check(
        3,
        &json!({}),
        &[
            (&["0ro", "1ro", "2ro"], &["replace web-2"]),
            (&["0ro", "1ro", "2ru"], &["replace web-1"]),
            (&["0ro", "1ru", "2ru"], &["replace web-0"]),
            (&["0ro", "1ro", "2ru-"], &[]),
            (&["0ro", "1ro", "2nu"], &[]),
            (&["0ru", "1ru", "2ru"], &[]),
        ],
    );
    let partition = |partition: u32| json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": partition } } });
    check(3, &partition(2), &[(&["0ro", "1ro", "2ro"], &["replace web-2"]), (&["0ro", "1ro", "2ru"], &[])]);
    check(3, &partition(5), &[(&["0ro", "1ro", "2ro"], &[])]);
    check(3, &json!({ "updateStrategy": { "type": "OnDelete" } }), &[(&["0ro", "1ro", "2ro"], &[])]);
    // A parallel set replaces pods one by one too.
    let parallel = json!({ "podManagementPolicy": "Parallel" });
    check(
        3,
        &parallel,
        &[(&["0ro", "1ro", "2ro"], &["replace web-2"]), (&["0no", "1ro", "2ru"], &["replace web-1"])],
    );
}

#[test]
fn scaling_precedes_updates() {
    check(2, &json!({}), &[(&["0ro", "1ro", "2ro"], &["-web-2"]), (&["0ro"], &["+web-1"])]);
}

#[test]
fn pods_wait_for_the_minimum_ready_time() {
    // The pods are ready for 60 seconds.
    check(2, &json!({ "minReadySeconds": 60 }), &[(&["0ru"], &["+web-1"])]);
    check(2, &json!({ "minReadySeconds": 61 }), &[(&["0ru"], &[])]);
    check(1, &json!({ "minReadySeconds": 61 }), &[(&["0ru", "1ru"], &[])]);
    check(2, &json!({ "minReadySeconds": 60 }), &[(&["0ro", "1ru"], &["replace web-0"])]);
}

#[test]
fn missing_claims_of_pending_pods_are_created() {
    let missing = [("data-web-0", CachedClaim::Missing)];
    let plan = planned(1, json!({}), &["0pu"], &missing);
    assert_eq!(tasks(&plan), ["claims:web-0"]);
    assert!(tasks(&planned(1, json!({}), &["0ru"], &missing)).is_empty());
}

#[test]
fn new_pod_waits_for_the_claim_of_a_deleted_pod() {
    let stale = claim("data-web-0", &json!([owner("v1", "Pod", "web-0", "uid-earlier", true)]));
    let stale = [("data-web-0", CachedClaim::Present(stale))];
    let policy = |scaled: &str| json!({ "persistentVolumeClaimRetentionPolicy": { "whenScaled": scaled, "whenDeleted": "Retain" } });
    assert!(tasks(&planned(1, policy("Delete"), &[], &stale)).is_empty());
    assert_eq!(tasks(&planned(1, policy("Retain"), &[], &stale)), ["+web-0"]);
    let missing = [("data-web-0", CachedClaim::Missing)];
    assert_eq!(tasks(&planned(1, policy("Delete"), &[], &missing)), ["+web-0"]);
}

/// A claim: missing, without a reference, or with a reference to an earlier pod or to the present pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimState {
    Missing,
    Exists,
    Stale,
    Owned,
}

#[test]
fn pod_is_blocked_if_any_claim_names_a_pod_with_another_uid() {
    use ClaimState::{Exists, Missing, Owned, Stale};
    // States of the claims, and whether a pod with the UID, or a new pod without a UID, must wait.
    const CASES: [(&[ClaimState], bool, bool); 7] = [
        (&[Missing, Missing], false, false),
        (&[], false, false),
        (&[Missing, Exists], false, false),
        (&[Owned, Owned], false, true),
        (&[Stale, Exists], true, true),
        (&[Stale, Missing], true, true),
        (&[Owned, Stale], true, true),
    ];
    let policy = json!({ "whenScaled": "Delete", "whenDeleted": "Retain" });
    for (states, is_blocked, is_new_blocked) in CASES {
        let names = (0..states.len()).map(|index| format!("claim-{index}"));
        let templates: Vec<_> =
            names.map(|name| json!({ "metadata": { "name": name }, "spec": {} })).collect();
        let fields =
            json!({ "persistentVolumeClaimRetentionPolicy": policy, "volumeClaimTemplates": templates });
        let names: Vec<_> = (0..states.len()).map(|index| format!("claim-{index}-web-0")).collect();
        let cached: Vec<_> = std::iter::zip(&names, states)
            .map(|(name, state)| {
                let present = |owners: Value| CachedClaim::Present(claim(name, &owners));
                let owned = |uid: &str| present(json!([owner("v1", "Pod", "web-0", uid, false)]));
                let cached = match state {
                    Missing => CachedClaim::Missing,
                    Exists => present(json!([])),
                    Stale => owned("uid-earlier"),
                    Owned => owned("uid-web-0"),
                };
                (name.as_str(), cached)
            })
            .collect();
        let is_planned = !tasks(&planned(1, fields.clone(), &[], &cached)).is_empty();
        assert_eq!(is_planned, !is_new_blocked, "{states:?}");
        let (set, user) = (
            stateful_set(1, fields),
            ClaimUser { name: "web-0".into(), uid: "uid-web-0".into(), ordinal: 0 },
        );
        let owners = ClaimOwners { set: &set, pod: &user };
        let is_stale = |(_, cached): &(&str, CachedClaim)| match cached {
            CachedClaim::Present(claim) => owners.is_pod_stale(claim.metadata()),
            CachedClaim::Missing | CachedClaim::Undecodable(_) => false,
        };
        assert_eq!(cached.iter().any(is_stale), is_blocked, "{states:?}");
    }
}

#[test]
fn claims_of_new_pods_are_needed_unless_they_exist() {
    let needs = |cached: CachedClaim| {
        let plan = planned(1, json!({}), &[], &[("data-web-0", cached)]);
        let [group] = &plan.groups[..] else { panic!("one group") };
        let [Task::Create { claims, .. }] = &group[0][..] else { panic!("a creation") };
        claims.needs.clone()
    };
    assert!(matches!(&needs(CachedClaim::Missing)[..], [ClaimNeed::Create(_)]));
    assert!(needs(CachedClaim::Present(claim("data-web-0", &json!([])))).is_empty());
    let undecodable = needs(CachedClaim::Undecodable("bad".into()));
    assert!(matches!(&undecodable[..], [ClaimNeed::Undecodable { .. }]));
}

#[test]
fn owners_are_corrected_before_a_pod_is_deleted() {
    let policy = json!({ "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Delete", "whenDeleted": "Delete" } });
    let set_owned = |name: &'static str| {
        (
            name,
            CachedClaim::Present(claim(
                name,
                &json!([owner("apps/v1", "StatefulSet", "web", "uid-web", true)]),
            )),
        )
    };
    let claims = [set_owned("data-web-0"), set_owned("data-web-1")];
    let plan = planned(1, policy.clone(), &["0ru", "1ru"], &claims);
    assert_eq!(tasks(&plan), ["owners:web-1", "-web-1"]);
    let plan = planned(2, policy, &["0ru", "1ru"], &[set_owned("data-web-0")]);
    assert_eq!(tasks(&plan), ["correct:web-1"]);
    let Task::Correct(correction) = &plan.groups[0].last().expect("work")[0] else { panic!("a correction") };
    assert!(!correction.identity && !correction.storage);
    assert!(matches!(&correction.claims.owners[..], [OwnerCheck::Known { must_update: true, .. }]));
}

#[test]
fn plan_of_a_terminating_set_contains_only_a_status() {
    let mut set = stateful_set(3, json!({}));
    set.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
    let (versions, pods) = (versions(&set), [short("0ro"), short("7fo")]);
    let cached = |_: &str| CachedClaim::Missing;
    let observed =
        Observed { set: &set, versions: &versions, collisions: 0, pods: &pods, claim: &cached, now: at(0) };
    let plan = plan(&observed);
    assert!(tasks(&plan).is_empty());
    assert_eq!((plan.status.replicas, plan.status.current_replicas), (2, Some(2)));
}
