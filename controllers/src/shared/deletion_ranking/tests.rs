//! The order of deletion: single rules as a table, and the whole as properties.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use windlass_object::ObjectKey;

use super::{DeletionCostMode, age_ratios, deletion_cost};
use crate::shared::fixtures::{
    at, bare_pod, ready_condition, ready_pod, running_pod, unready_pod, with_phase,
};
use crate::shared::pod_view::{ContainerStatusView, InitContainerStatusView, InitContainerView, PodView};
use crate::shared::pods;

const HOUR: i64 = 3600;
const MONTH: i64 = 31 * 24 * HOUR;

fn choose(
    pods: &[Arc<PodView>],
    related: &[Arc<PodView>],
    count: usize,
    now: Timestamp,
) -> Vec<Arc<PodView>> {
    super::choose(pods, related, count, DeletionCostMode::Honored, now)
}

fn ordered(pods: &[Arc<PodView>], related: &[Arc<PodView>], now: Timestamp) -> Vec<Arc<PodView>> {
    super::ordered(pods, related, DeletionCostMode::Honored, now)
}

fn names(pods: &[Arc<PodView>]) -> Vec<&str> {
    pods.iter().map(|pod| pods::name(&pod.metadata)).collect()
}

fn on(mut pod: PodView, node: &str) -> Arc<PodView> {
    pod.node = node.into();
    Arc::new(pod)
}

fn created(mut pod: PodView, when: Timestamp) -> PodView {
    pod.metadata.creation_timestamp = Some(Time(when));
    pod
}

fn cost(mut pod: PodView, cost: &str) -> PodView {
    pod.deletion_cost = Some(cost.into());
    pod
}

fn restarted(mut pod: PodView, restarts: i32, sidecar_restarts: i32) -> PodView {
    let init = |name: &str, restart_count| InitContainerStatusView { name: name.into(), restart_count };
    let restart_policy = Some("Always".into());
    pod.init_containers =
        [InitContainerView { name: "sidecar".into(), restart_policy, ports: [].into() }].into();
    pod.container_statuses = [ContainerStatusView { restart_count: restarts }].into();
    pod.init_container_statuses = [init("sidecar", sidecar_restarts), init("setup", 9000)].into();
    pod
}

fn ready_since(name: &str, ready: i64, created_at: i64) -> PodView {
    restarted(created(ready_pod(name, at(ready)), at(created_at)), 0, 0)
}

/// Checks that the first of two pods is deleted first, in any order of the list; `crowd` is the number of related pods
/// on their nodes.
fn goes_first(lesser: (&PodView, usize), greater: (&PodView, usize)) {
    let place = |(pod, crowd): (&PodView, usize), node: &str, id: &str| {
        let mut pod = pod.clone();
        // The UID would prefer the other pod, so it must not decide.
        pod.metadata.header.uid = Some(id.into());
        if !pod.node.is_empty() {
            pod.node = node.into();
        }
        let related: Vec<_> = (0..crowd).map(|_| on(bare_pod("related"), &pod.node)).collect();
        (Arc::new(pod), related)
    };
    let (first, mut related) = place(lesser, "node-1", "b");
    let (second, more) = place(greater, "node-2", "a");
    related.extend(more);
    for listed in [[&first, &second], [&second, &first]] {
        let listed: Vec<_> = listed.into_iter().map(Arc::clone).collect();
        let chosen = choose(&listed, &related, 1, at(0));
        assert_eq!(names(&chosen), names(&[Arc::clone(&first)]), "{lesser:?} should go before {greater:?}");
    }
}

#[test]
fn each_rule_decides_if_earlier_rules_tie() {
    let unscheduled = with_phase(bare_pod("unscheduled"), "Pending");
    let pending = running_pod("pending", "False", None);
    let pending = with_phase(pending, "Pending");
    let unknown = with_phase(running_pod("unknown", "False", None), "Unknown");
    let unready = unready_pod("unready");
    let ready_timeless = running_pod("ready-timeless", "True", None);
    let now = ready_since("ready-now", 0, 0);
    let then = ready_since("ready-then", -MONTH, -MONTH);
    let worn = restarted(now.clone(), 9001, 0);
    let very_worn = restarted(now.clone(), 9001, 9001);
    let now_created_then = ready_since("ready-now-created-then", 0, -MONTH);

    goes_first((&unscheduled, 1), (&pending, 2));
    goes_first((&unscheduled, 2), (&pending, 1));
    goes_first((&pending, 1), (&unknown, 2));
    goes_first((&unknown, 1), (&unready, 2));
    goes_first((&unready, 1), (&ready_timeless, 1));
    goes_first((&ready_timeless, 1), (&now, 1));
    goes_first((&now, 2), (&ready_timeless, 1));
    goes_first((&now, 1), (&then, 1));
    goes_first((&now, 2), (&then, 1));
    goes_first((&worn, 1), (&now, 1));
    goes_first((&very_worn, 1), (&worn, 1));
    goes_first((&now, 2), (&worn, 1));
    goes_first((&now, 1), (&now_created_then, 1));
    goes_first((&now_created_then, 2), (&now, 1));
    goes_first((&cost(now_created_then.clone(), "10"), 2), (&cost(now_created_then, "100"), 1));
    goes_first((&ready_since("2h", -2 * HOUR, -MONTH), 1), (&ready_since("5h", -5 * HOUR, -MONTH), 1));
}

#[test]
fn ignored_deletion_costs_have_no_effect() {
    let pod = |name: &str, price: &str| Arc::new(cost(ready_since(name, 0, 0), price));
    let listed = [pod("dear", "100"), pod("expensive", "10")];
    let chosen = |cost_mode| super::choose(&listed, &[], 1, cost_mode, at(0));
    assert_eq!(names(&chosen(DeletionCostMode::Honored)), ["expensive"]);
    assert_eq!(names(&chosen(DeletionCostMode::Ignored)), ["dear"], "the UID decides");
}

#[test]
fn times_within_one_power_of_two_are_ordered_by_uid() {
    let pairs = [
        (ready_since("a", -8 * HOUR, -MONTH), ready_since("b", -5 * HOUR, -MONTH)),
        (
            created(with_phase(bare_pod("a"), "Pending"), at(-8 * HOUR)),
            created(with_phase(bare_pod("b"), "Pending"), at(-5 * HOUR)),
        ),
    ];
    for (a, b) in pairs {
        let listed = [Arc::new(b), Arc::new(a)];
        assert_eq!(names(&choose(&listed, &[], 1, at(0))), ["a"]);
    }
}

#[test]
fn deletion_cost_must_be_canonical_32_bit_integer() {
    let reads = |text: &str| deletion_cost(&cost(bare_pod("pod"), text));
    assert_eq!(reads("10"), 10);
    assert_eq!(reads("-10"), -10);
    assert_eq!(reads("0"), 0);
    assert_eq!(reads("2147483647"), i32::MAX);
    for invalid in ["+10", "010", "008", "2147483648", "-2147483649", "", "-", "ten", " 1", "1.5"] {
        assert_eq!(reads(invalid), 0, "{invalid:?}");
    }
    assert_eq!(deletion_cost(&bare_pod("pod")), 0);
}

/// Chooses `count` of the listed pods. The default for the related pods is the listed pods.
fn chosen(listed: &[&Arc<PodView>], related: Option<&[&Arc<PodView>]>, count: usize, expected: &[&str]) {
    let collect = |pods: &[&Arc<PodView>]| pods.iter().map(|pod| Arc::clone(pod)).collect::<Vec<_>>();
    let listed = collect(listed);
    let related = related.map_or_else(|| listed.clone(), collect);
    assert_eq!(names(&choose(&listed, &related, count, at(0))), expected);
}

#[test]
fn least_useful_pods_are_chosen_first() {
    let unscheduled = Arc::new(with_phase(bare_pod("unscheduled"), "Pending"));
    let pending = on(with_phase(bare_pod("pending"), "Pending"), "fake");
    let unready = on(running_pod("unready", "False", None), "fake");
    let ready_1 = on(running_pod("ready-1", "True", None), "fake-1");
    let ready_2 = on(running_pod("ready-2", "True", None), "fake-2");

    chosen(&[], None, 0, &[]);
    chosen(&[&unready, &ready_1], None, 2, &["unready", "ready-1"]);
    chosen(&[&ready_1, &unready], None, 1, &["unready"]);
    chosen(
        &[&ready_1, &ready_1, &ready_2, &unready, &pending, &unscheduled],
        None,
        6,
        &["ready-1", "ready-1", "ready-2", "unready", "pending", "unscheduled"],
    );
    chosen(&[&ready_1, &unscheduled], Some(&[]), 2, &["ready-1", "unscheduled"]);
    chosen(&[&pending, &unscheduled], None, 1, &["unscheduled"]);
    chosen(&[&ready_1, &unready, &unready], None, 2, &["unready", "unready"]);
    chosen(&[&ready_1, &ready_2], Some(&[&ready_1, &ready_2, &ready_2]), 1, &["ready-2"]);
    chosen(&[&pending, &unready], None, 1, &["pending"]);
    chosen(
        &[&ready_1, &ready_2, &unready, &pending, &unscheduled],
        None,
        3,
        &["unscheduled", "pending", "unready"],
    );
}

#[test]
fn completed_pods_do_not_count_for_crowding() {
    let ready_1 = on(running_pod("ready-1", "True", None), "fake-1");
    let ready_2 = on(running_pod("ready-2", "True", None), "fake-2");
    let ended = on(with_phase(bare_pod("ended"), "Succeeded"), "fake-2");
    chosen(&[&ready_1, &ready_2], Some(&[&ready_1, &ready_2, &ended]), 1, &["ready-1"]);
}

#[test]
fn ages_are_reported_as_whole_multiples_of_the_youngest_ready_pod() {
    let old = Arc::new(ready_since("old", -10, -10));
    let young = Arc::new(ready_since("young", -4, -4));
    let unready = Arc::new(created(unready_pod("unready"), at(-1)));
    let all = [Arc::clone(&old), Arc::clone(&young), Arc::clone(&unready)];
    assert_eq!(age_ratios(&all, &all, at(0)), [2.0, 1.0]);
    assert_eq!(age_ratios(&all, &[unready], at(0)), Vec::<f64>::new());
    assert_eq!(age_ratios(&all, &[old], at(-4)), Vec::<f64>::new(), "the youngest pod has age zero");
}

/// Compares two pods by the rules, as other controllers do; not a consistent order.
fn rules_prefer(a: &PodView, b: &PodView, now: Timestamp) -> bool {
    let phase = |pod: &PodView| match pods::phase(pod) {
        pods::PodPhase::Unknown => 1,
        pods::PodPhase::Running => 2,
        _ => 0,
    };
    let (node_a, node_b) = (&a.node, &b.node);
    if node_a != node_b && (node_a.is_empty() || node_b.is_empty()) {
        return node_a.is_empty();
    }
    if phase(a) != phase(b) {
        return phase(a) < phase(b);
    }
    if pods::is_ready(a) != pods::is_ready(b) {
        return !pods::is_ready(a);
    }
    if deletion_cost(a) != deletion_cost(b) {
        return deletion_cost(a) < deletion_cost(b);
    }
    if pods::is_ready(a) && pods::ready_since(a) != pods::ready_since(b) {
        return younger(a, b, pods::ready_since(a), pods::ready_since(b), now);
    }
    match super::restarts(b).cmp(&super::restarts(a)) {
        Ordering::Equal => {}
        unequal => return unequal.is_lt(),
    }
    let (created_a, created_b) = (pods::created(&a.metadata), pods::created(&b.metadata));
    created_a != created_b && younger(a, b, created_a, created_b, now)
}

fn younger(
    a: &PodView,
    b: &PodView,
    time_a: Option<Timestamp>,
    time_b: Option<Timestamp>,
    now: Timestamp,
) -> bool {
    let (Some(time_a), Some(time_b)) = (time_a, time_b) else { return time_a.is_none() };
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "same arithmetic as upstream"
    )]
    let rank = |time: Timestamp| match now.duration_since(time).as_nanos() {
        passed if passed > 0 => (passed as f64).log2() as i64,
        _ => -1,
    };
    match rank(time_a).cmp(&rank(time_b)) {
        Ordering::Equal => pods::uid(&a.metadata) < pods::uid(&b.metadata),
        unequal => unequal.is_lt(),
    }
}

/// Generates pods from small ranges, so that each rule has many ties.
fn any_pod() -> impl Strategy<Value = PodView> {
    let ages =
        || proptest::option::weighted(0.9, prop_oneof![Just(-5_i64), Just(0), 1_i64..12, 3600_i64..3700]);
    let rules =
        (any::<bool>(), 0..4_usize, any::<bool>(), prop_oneof![Just(None), (-2..3_i32).prop_map(Some)]);
    (rules, ages(), ages(), 0..3_i32, 0..2_i32).prop_map(
        |((bound, phase, ready, price), ready_for, age, restarts, sidecar_restarts)| {
            let mut pod = with_phase(bare_pod("pod"), ["Pending", "Unknown", "Running", "Running"][phase]);
            pod.node = if bound { "node" } else { "" }.into();
            let condition =
                ready_condition(if ready { "True" } else { "False" }, ready_for.map(|age| at(-age)));
            pod.ready = Some(condition);
            pod.metadata.creation_timestamp = age.map(|age| Time(at(-age)));
            let pod = restarted(pod, restarts, sidecar_restarts);
            price.map_or_else(|| pod.clone(), |price| cost(pod.clone(), &price.to_string()))
        },
    )
}

/// Generates pods with distinct names and UIDs, in random order.
fn any_pods(most: usize) -> impl Strategy<Value = Vec<Arc<PodView>>> {
    proptest::collection::vec(any_pod(), 0..=most).prop_map(|pods| {
        let name = |(place, mut pod): (usize, PodView)| {
            pod.metadata.header.key = ObjectKey::namespaced("default", &format!("pod-{place}"));
            pod.metadata.header.uid = Some(format!("uid-{}", (place * 7) % 13).into());
            Arc::new(pod)
        };
        pods.into_iter().enumerate().map(name).collect()
    })
}

/// Returns which pods precede which under the rules, directly or transitively.
fn reachable(pods: &[Arc<PodView>], now: Timestamp) -> Vec<Vec<bool>> {
    let mut reach: Vec<Vec<bool>> =
        pods.iter().map(|a| pods.iter().map(|b| rules_prefer(a, b, now)).collect()).collect();
    for through in 0..pods.len() {
        for from in 0..pods.len() {
            for to in 0..pods.len() {
                reach[from][to] |= reach[from][through] && reach[through][to];
            }
        }
    }
    reach
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn order_of_two_pods_matches_rules(pods in any_pods(2), offset in 0..3_i64) {
        let now = at(offset) + SignedDuration::from_nanos(7);
        let result = ordered(&pods, &[], now);
        if let [first, second] = result.as_slice() {
            prop_assert!(!rules_prefer(second, first, now));
        }
    }

    #[test]
    fn order_contradicts_rules_only_within_cycles(pods in any_pods(9)) {
        let now = at(0) + SignedDuration::from_nanos(7);
        let result = ordered(&pods, &[], now);
        let reach = reachable(&result, now);
        for late in 0..result.len() {
            for early in 0..late {
                let overruled = rules_prefer(&result[late], &result[early], now);
                prop_assert!(!overruled || reach[early][late], "no cycle explains this order");
            }
        }
    }

    #[test]
    fn order_does_not_depend_on_order_of_list(pods in any_pods(9), turn in 0..9_usize) {
        let now = at(0) + SignedDuration::from_nanos(7);
        let expected = ordered(&pods, &pods, now);
        let mut listed = pods;
        let length = listed.len().max(1);
        listed.rotate_left(turn % length);
        listed.reverse();
        let result = ordered(&listed, &listed, now);
        prop_assert_eq!(names(&result), names(&expected));
    }

    #[test]
    fn larger_count_contains_victims_of_smaller_count(pods in any_pods(9)) {
        let now = at(0);
        for count in 1..pods.len() {
            let (fewer, more) = (choose(&pods, &pods, count - 1, now), choose(&pods, &pods, count, now));
            prop_assert_eq!(names(&fewer), names(&more[..count - 1]));
        }
    }
}
