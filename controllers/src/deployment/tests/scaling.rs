//! Upstream's tables about sizes: rolling updates, proportions, limits.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

use super::super::annotations::{DESIRED_REPLICAS, MAX_REPLICAS};
use super::super::scaling::proportion;
use super::super::spec::{max_surge, max_unavailable, replicas, resolve_limits};
use super::fixtures::{
    annotated, changed, planned, planner, recreating, rolling, set, size_of, steps, with_available,
};

#[test]
fn new_set_grows_within_the_surge() {
    // Desired, surge, old, new, and the new size if it changes.
    let cases = [
        (10, 0, 10, 0, None),
        (10, 2, 10, 0, Some(2)),
        (10, 2, 5, 0, Some(7)),
        (10, 2, 10, 2, None),
        (10, 2, 2, 11, Some(10)),
        (1, 1, 5, 5, Some(1)),
        (6, 10, 5, 2, Some(6)),
    ];
    for (desired, surge, old, new, expected) in cases {
        let sets = [set("old", "old", old, 1), set("new", "new", new, 2)];
        let mut planner = planner(&rolling(desired, surge, 0), &sets);
        assert_eq!(planner.grow_new_set(), expected.is_some());
        assert_eq!(size_of(&planner, "new"), expected.unwrap_or(new), "{desired} {surge} {old} {new}");
    }
}

#[test]
fn size_of_the_new_set_follows_the_strategy() {
    let sets = [set("old", "old", 5, 1)];
    assert_eq!(planner(&rolling(1, 1, 1), &sets).size_of_new_set(5), 5);
    assert_eq!(planner(&rolling(6, 10, 1), &sets).size_of_new_set(2), 6);
    assert_eq!(planner(&recreating(3), &sets).size_of_new_set(1), 3);
}

#[test]
fn old_sets_shrink_as_far_as_availability_permits() {
    // Limit, old, new, available old, and the old size if it changes.
    let cases = [
        (0, 10, 0, 10, Some(9)),
        (2, 10, 0, 10, Some(8)),
        (2, 10, 0, 8, Some(8)),
        (2, 10, 0, 9, Some(8)),
        (2, 8, 2, 8, None),
    ];
    for (limit, old, new, available, expected) in cases {
        let sets = [with_available(set("old", "old", old, 1), available), set("new", "new", new, 2)];
        let mut planner = planner(&rolling(10, 0, limit), &sets);
        assert_eq!(planner.shrink_old_sets(), expected.is_some());
        assert_eq!(size_of(&planner, "old"), expected.unwrap_or(old), "{limit} {old} {new} {available}");
    }
}

#[test]
fn unhealthy_pods_of_old_sets_are_removed_first() {
    let sets = [
        with_available(set("first", "first", 5, 1), 5),
        with_available(set("broken", "broken", 5, 2), 2),
        set("new", "new", 0, 3),
    ];
    let mut planner = planner(&rolling(10, 0, 3), &sets);
    assert!(planner.shrink_old_sets());
    assert_eq!((size_of(&planner, "first"), size_of(&planner, "broken")), (5, 2));
}

#[test]
fn removal_of_unhealthy_pods_has_a_limit() {
    // Available pods of ten, the limit, and the number of removed pods.
    for (available, most, expected) in [(8, 1, 1), (8, 3, 2), (8, 0, 0), (10, 3, 0)] {
        let mut planner = planner(&rolling(10, 2, 2), &[with_available(set("old", "old", 10, 1), available)]);
        assert_eq!(planner.remove_unhealthy(&[0], most), Some(expected), "{available} {most}");
        assert_eq!(size_of(&planner, "old"), 10 - expected, "{available} {most}");
    }
}

#[test]
fn removal_of_healthy_pods_keeps_the_available_minimum() {
    // Limit of unavailable pods, available pods, and the size of the old set before and after.
    let cases = [(0, 10, 10, 9), (2, 10, 10, 8), (2, 8, 10, 10), (2, 10, 0, 0), (2, 1, 10, 10)];
    for (limit, available, size, expected) in cases {
        let deployment = rolling(10, 0, limit);
        let mut planner = planner(&deployment, &[with_available(set("old", "old", size, 1), available)]);
        let old = planner.active_old_sets();
        let removed = planner.remove_healthy(&old, 10 - max_unavailable(&deployment));
        assert_eq!(removed, size - expected, "{limit} {available} {size}");
        assert_eq!(size_of(&planner, "old"), expected, "{limit} {available} {size}");
    }
}

#[test]
fn rollout_keeps_the_available_minimum_of_pods() {
    // Desired pods, limit of unavailable pods, and the smallest permitted number of available pods.
    let cases = [
        (10, json!(5), 5),
        (10, json!(10), 0),
        (5, json!(10), 0),
        (0, json!(10), 0),
        (10, json!("60%"), 4),
        (10, json!("100%"), 0),
        (5, json!("100%"), 0),
    ];
    for (desired, limit, expected) in cases {
        let sets = [with_available(set("old", "old", 10, 1), 10), set("new", "new", 0, 2)];
        let mut planner = planner(&rolling(desired, 1, limit.clone()), &sets);
        assert!(planner.shrink_old_sets(), "{desired} {limit}");
        assert_eq!(size_of(&planner, "old"), expected, "{desired} {limit}");
    }
}

#[test]
fn status_that_is_older_than_its_size_stops_the_removal() {
    let sets = [with_available(set("old", "old", 3, 1), 5), set("new", "new", 0, 2)];
    let mut planner = planner(&rolling(2, 0, 1), &sets);
    assert!(!planner.shrink_old_sets());
    assert_eq!(size_of(&planner, "old"), 3);
}

/// A size change: name, size before and after it.
type Sized = (&'static str, i32, i32);

fn check_scale(from: (i32, i32), to: (i32, i32), new: Option<Sized>, old: &[Sized]) {
    let unchanged = rolling(from.0, from.1, 1);
    let annotate = |set| {
        let set = annotated(&set, DESIRED_REPLICAS, &replicas(&unchanged).to_string());
        annotated(&set, MAX_REPLICAS, &(replicas(&unchanged) + max_surge(&unchanged)).to_string())
    };
    let newest = i64::try_from(old.len()).expect("few sets");
    let mut sets: Vec<_> = (0..)
        .zip(old)
        .map(|(index, (name, size, _))| annotate(set(name, name, *size, newest - index)))
        .collect();
    sets.extend(new.map(|(name, size, _)| annotate(set(name, "new", size, newest + 1))));
    let mut planner = planner(&rolling(to.0, to.1, 1), &sets);
    planner.scale();
    for (name, before, expected) in old.iter().copied().chain(new) {
        assert_eq!(size_of(&planner, name), expected, "{name} from {before}: {from:?} to {to:?}");
    }
}

#[test]
fn scaling_distributes_pods_in_proportion() {
    let check = |from, to, new, old: &[Sized]| check_scale((from, 0), (to, 0), new, old);
    check(10, 12, Some(("v1", 10, 12)), &[]);
    check(10, 5, Some(("v1", 10, 5)), &[]);
    check(5, 10, Some(("v2", 2, 4)), &[("v1", 3, 6)]);
    check(5, 3, Some(("v2", 2, 1)), &[("v1", 3, 2)]);
    check(9, 4, Some(("v2", 8, 4)), &[("v1", 1, 0)]);
    check(7, 10, Some(("v3", 2, 3)), &[("v2", 3, 4), ("v1", 2, 3)]);
    check(13, 8, Some(("v3", 2, 1)), &[("v2", 8, 5), ("v1", 3, 2)]);
    check(3, 4, Some(("v3", 1, 2)), &[("v2", 1, 1), ("v1", 1, 1)]);
    check(3, 2, Some(("v3", 1, 1)), &[("v2", 1, 1), ("v1", 1, 0)]);
    check(4, 5, None, &[("v2", 2, 3), ("v1", 2, 2)]);
    check(6, 0, Some(("v3", 3, 0)), &[("v2", 2, 0), ("v1", 1, 0)]);
    check(6, 6, Some(("v3", 0, 6)), &[("v2", 0, 0), ("v1", 0, 0)]);
    check(10, 14, None, &[("v2", 7, 10), ("v1", 3, 4)]);
    check_scale((10, 2), (20, 2), Some(("v2", 6, 11)), &[("v1", 6, 11)]);
    check_scale((10, 3), (50, 6), Some(("v2", 5, 22)), &[("v1", 8, 34)]);
    check_scale((2, 1), (2, 1), Some(("v2", 2, 2)), &[("v1", 1, 1)]);
}

#[test]
fn set_that_missed_a_scaling_receives_the_added_pod() {
    let scaled = |name: &str, image: &str, size: i32, age: i64, desired: &str| {
        let set = annotated(&set(name, image, size, age), DESIRED_REPLICAS, desired);
        annotated(&set, MAX_REPLICAS, desired)
    };
    let sets = [
        scaled("v1", "v1", 1, 1, "5"),
        // The earlier change from three to five pods did not reach this set.
        scaled("v2", "v2", 1, 2, "3"),
        scaled("v3", "new", 2, 3, "5"),
    ];
    let mut planner = planner(&rolling(5, 0, 1), &sets);
    planner.scale();
    assert_eq!(["v1", "v2", "v3"].map(|name| size_of(&planner, name)), [1, 2, 2]);
}

#[test]
fn shares_keep_the_part_of_a_set_in_the_whole() {
    // Desired, surge, pods in the status, pods of the set, annotation, and the change.
    let cases = [
        (0, 0, 0, 10, None, -10),
        (10, 0, 0, 5, None, 0),
        (10, 0, 0, 5, Some("0"), 0),
        (120, 0, 100, 50, None, 10),
        (120, 0, 100, 50, Some("0"), 10),
        (120, 0, 0, 50, Some("100"), 10),
        (120, 10, 0, 50, Some("110"), 9),
        (10, 0, 0, 6, Some("12"), -1),
        (100, 10, 0, 50, Some("130"), -8),
    ];
    for (desired, surge, in_status, size, annotation, expected) in cases {
        let deployment = changed(&rolling(desired, surge, 1), json!({ "status": { "replicas": in_status } }));
        let set = set("set", "old", size, 1);
        let set = annotation.map_or_else(|| set.clone(), |value| annotated(&set, MAX_REPLICAS, value));
        let limit = if expected < 0 { -1000 } else { 1000 };
        assert_eq!(
            proportion(&deployment, &set, limit, 0),
            expected,
            "{desired} {surge} {size} {annotation:?}"
        );
    }
}

#[test]
fn limits_resolve_to_numbers_of_pods() {
    let text = |value: &str| Some(IntOrString::String(value.to_owned()));
    let cases = [
        (text("0%"), text("0%"), 0, Some((0, 1))),
        (text("39%"), text("39%"), 10, Some((4, 3))),
        (text("oops"), text("39%"), 10, None),
        (text("55%"), text("urg"), 10, None),
        (None, text("39%"), 10, Some((0, 3))),
        (text("39%"), None, 10, Some((4, 0))),
        (None, None, 10, Some((0, 1))),
    ];
    for (surge, unavailable, desired, expected) in cases {
        assert_eq!(resolve_limits(surge.as_ref(), unavailable.as_ref(), desired), expected);
    }
}

#[test]
fn unavailable_pods_never_exceed_the_desired_pods() {
    let numbers = [(10, 5, 5), (10, 10, 10), (5, 10, 5), (0, 10, 0)];
    for (desired, limit, expected) in numbers {
        assert_eq!(max_unavailable(&rolling(desired, 1, limit)), expected);
    }
    for (desired, limit, expected) in [(10, "50%", 5), (10, "100%", 10), (5, "100%", 5)] {
        assert_eq!(max_unavailable(&rolling(desired, 1, limit)), expected);
    }
    assert_eq!(max_unavailable(&recreating(5)), 0);
}

#[test]
fn saturated_new_set_takes_over_adopted_pods() {
    let new = annotated(&with_available(set("new", "new", 2, 2), 2), DESIRED_REPLICAS, "2");
    let plan = planned(
        &changed(&rolling(2, 1, 1), json!({ "spec": { "paused": true } })),
        &[set("adopted", "old", 3, 1), new],
    );
    assert!(steps(&plan).contains(&"scale adopted 3->0".to_owned()), "{:?}", steps(&plan));
}

#[test]
fn two_scale_downs_of_one_set_are_one_update_with_both_sizes() {
    let sets = [with_available(set("old", "old", 10, 1), 9), set("new", "new", 3, 2)];
    let plan = planned(&rolling(10, 3, 2), &sets);
    assert!(steps(&plan).contains(&"scale old 10->9->8".to_owned()), "{:?}", steps(&plan));
}
