//! Rolling updates.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::plan::Observed;
use super::super::rollout::{Limits, limits, roll_out};
use super::fixtures::{Cluster, HASH, pod, ready, set, surge, tainted, unavailable, with_pod_spec};
use crate::shared::fixtures::{at, being_deleted};
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// Returns a cluster whose pods are ready and have an old template, during an update with this strategy.
fn outdated(nodes: usize, strategy: Value) -> Cluster {
    let mut cluster = Cluster::new(set(json!({})), nodes);
    "old".clone_into(&mut cluster.hash);
    cluster.sync();
    cluster.set_all_ready();
    cluster.update("new", set(strategy));
    cluster
}

#[test]
fn update_replaces_as_many_pods_as_can_be_unavailable() {
    let mut cluster = outdated(5, unavailable(2));
    for expected in [[(0, 2), (2, 0)], [(0, 2), (2, 0)], [(0, 1), (1, 0)]] {
        assert_eq!(cluster.syncs(), expected);
        cluster.set_all_ready();
    }
    assert_eq!(cluster.syncs(), []);
}

#[test]
fn update_waits_for_new_pods_that_are_not_ready() {
    let mut cluster = outdated(5, unavailable(3));
    assert_eq!(cluster.syncs(), [(0, 3), (3, 0)]);
    // The next template replaces the unavailable pods first.
    cluster.update("newer", set(unavailable(3)));
    assert_eq!(cluster.syncs(), [(0, 3), (3, 0)]);
    let old = cluster.pods.values().filter(|pod| pods::is_ready(pod)).count();
    assert_eq!(old, 2);
}

#[test]
fn unavailable_old_pods_are_replaced_beyond_the_limit() {
    let mut cluster = outdated(20, unavailable(10));
    assert_eq!(cluster.syncs(), [(0, 10), (10, 0)]);
    let available = |cluster: &Cluster| {
        let ready = cluster.pods.values().filter(|pod| pods::is_ready(pod));
        ready.map(|pod| pods::name(&pod.metadata).to_owned()).collect::<Vec<_>>()
    };
    let kept = available(&cluster);
    for limit in [0, 1, 5, 9] {
        cluster.update(&format!("new-{limit}"), set(unavailable(limit)));
        assert_eq!(cluster.syncs(), [(0, 10), (10, 0)], "{limit}");
        assert_eq!(available(&cluster), kept);
    }
    cluster.update("newest", set(unavailable(11)));
    assert_eq!(cluster.syncs(), [(0, 11), (11, 0)]);
    assert_eq!(available(&cluster).len(), 9);
}

#[test]
fn unavailable_old_pods_are_replaced_next_to_unavailable_new_ones() {
    let mut cluster = outdated(100, unavailable(10));
    for _ in 0..10 {
        assert_eq!(cluster.syncs(), [(0, 10), (10, 0)]);
        cluster.set_all_ready();
    }
    assert_eq!(cluster.syncs(), []);
    // 10 available old pods, 2 unavailable old pods, 88 unavailable new pods.
    cluster.set_ready(false, 90, |_, _| true);
    let names: Vec<_> = cluster.pods.keys().cloned().collect();
    let (mut ready, mut unready) = (10, 2);
    for name in names {
        let is_ready = pods::is_ready(&cluster.pods[&name]);
        let left = if is_ready { &mut ready } else { &mut unready };
        if *left > 0 {
            *left -= 1;
            let node = cluster.pods[&name].node.clone();
            let old = pod(&name, &node, "old", 0);
            cluster.add(if is_ready { super::fixtures::ready(old, 0) } else { old });
        }
    }
    assert_eq!(cluster.syncs(), [(0, 2), (2, 0)]);
}

#[test]
fn update_replaces_all_pods_if_no_pod_becomes_ready() {
    let mut cluster = Cluster::new(set(unavailable(3)), 5);
    assert_eq!(cluster.syncs(), [(5, 0)], "no pod becomes ready");
    cluster.update("newer", set(unavailable(3)));
    assert_eq!(cluster.syncs(), [(0, 5), (5, 0)]);
}

#[test]
fn on_delete_update_replaces_only_deleted_pods() {
    let mut cluster = outdated(3, json!({}));
    assert_eq!(cluster.syncs(), []);
    let first = cluster.pods.keys().next().expect("a pod").clone();
    cluster.pods.remove(&first);
    assert_eq!(cluster.syncs(), [(1, 0)]);
    assert_eq!(cluster.pods.values().filter(|pod| cluster.is_updated(pod)).count(), 1);
}

#[test]
fn surge_creates_new_pods_before_old_ones_are_deleted() {
    let mut cluster = outdated(5, surge(2));
    for expected in [&[(2, 0)][..], &[(0, 2), (2, 0)], &[(0, 2), (1, 0)], &[(0, 1)], &[]] {
        assert_eq!(cluster.syncs(), expected);
        cluster.set_all_ready();
    }
}

#[test]
fn surge_replaces_unavailable_pods_beyond_its_limit() {
    let surging = |minimum: i32| {
        let mut strategy = surge(3);
        strategy["minReadySeconds"] = json!(minimum);
        set(strategy)
    };
    let mut cluster = Cluster::new(surging(0), 5);
    assert_eq!(cluster.sync(), (5, 0));
    cluster.update("second", surging(0));
    cluster.now = 100;
    assert_eq!(cluster.sync(), (5, 0), "all old pods are unavailable");
    cluster.now = 200;
    assert_eq!(cluster.sync(), (0, 5));
    cluster.set_all_ready();
    cluster.update("third", surging(15));
    cluster.now = 300;
    assert_eq!(cluster.syncs(), [(3, 0)]);
    cluster.set_ready(true, 2, |pod, cluster| cluster.is_updated(pod));
    cluster.set_ready(false, 1, |pod, cluster| {
        let is_replaced =
            |other: &crate::shared::pod_view::PodView| other.node == pod.node && cluster.is_updated(other);
        !cluster.is_updated(pod) && !cluster.pods.values().any(is_replaced)
    });
    cluster.now = 310;
    assert_eq!(cluster.sync(), (1, 0), "the old pod that became unready");
    cluster.now = 320;
    assert_eq!(cluster.syncs(), [(0, 3), (1, 0)]);
    cluster.set_ready(true, 3, |pod, cluster| cluster.is_updated(pod));
    cluster.now = 340;
    assert_eq!(cluster.syncs(), [(0, 2)]);
    assert!(cluster.pods.values().all(|pod| cluster.is_updated(pod)));
}

#[test]
fn surge_deletes_a_misplaced_pod_when_another_node_replaces_it() {
    let tolerations = json!([{ "key": "dedicated", "operator": "Exists" }]);
    let mut tolerating = surge(1);
    tolerating["template"] = json!({ "spec": { "tolerations": tolerations } });
    let mut cluster = Cluster::new(set(tolerating), 5);
    cluster.nodes[0] = Arc::new(tainted("node-0", "dedicated", "NoSchedule"));
    assert_eq!(cluster.syncs(), [(5, 0)]);
    cluster.set_all_ready();
    cluster.update("newer", set(surge(1)));
    // Five pods are available and four are desired.
    for expected in [&[(1, 1)][..], &[(0, 1), (1, 0)], &[(0, 1), (1, 0)], &[(0, 1), (1, 0)], &[(0, 1)], &[]] {
        assert_eq!(cluster.syncs(), expected);
        cluster.set_all_ready();
    }
}

#[test]
fn surge_fails_for_an_old_pod_on_a_missing_node() {
    let (set, pods) = (set(surge(1)), [Arc::new(ready(pod("a", "missing", "old", 0), 0))]);
    let error = roll_out(&Observed::new(&set, &[], &pods, HASH, at(0))).expect_err("an error");
    assert_eq!(error.to_string(), "couldn't get node for nodeName \"missing\": node \"missing\" not found");
}

#[test]
fn pod_that_cannot_be_deleted_does_not_stop_an_update() {
    let mut cluster = outdated(5, unavailable(1));
    for _ in 0..30 {
        cluster.sync_with_failures_on("node-0");
        cluster.set_all_ready();
    }
    assert_eq!(cluster.pods.values().filter(|pod| cluster.is_updated(pod)).count(), 4);
}

#[test]
fn node_that_rejects_a_new_pod_does_not_stop_a_surge() {
    for limit in 1..=3 {
        let mut cluster = outdated(5, surge(limit));
        for _ in 0..60 {
            cluster.sync_with_failures_on("node-0");
            cluster.set_all_ready();
        }
        assert_eq!(cluster.pods.values().filter(|pod| cluster.is_updated(pod)).count(), 4, "{limit}");
        // An unavailable pod is replaced in any case, and its node is the first in the list.
        let mut cluster = outdated(5, surge(limit));
        let unready = cluster.pods.values().find(|pod| &*pod.node == "node-0").expect("a pod").clone();
        cluster.add(PodView { ready: None, ..unready });
        for _ in 0..60 {
            cluster.sync_with_failures_on("node-0");
            let unready =
                cluster.pods.values().filter(|pod| !pods::is_ready(pod) && &*pod.node != "node-0").count();
            cluster.set_ready(true, unready, |pod, _| &*pod.node != "node-0");
        }
        assert_eq!(cluster.pods.values().filter(|pod| cluster.is_updated(pod)).count(), 4, "{limit}");
    }
}

#[test]
fn update_keeps_the_pods_of_an_undecodable_node() {
    let planned = |strategy: Value, is_ready: bool, exists: bool| {
        let mut cluster = outdated(2, strategy);
        let lost = cluster.nodes.remove(0);
        let name = lost.metadata.header.key.name();
        if !is_ready {
            cluster.set_ready(false, 1, |pod, _| &*pod.node == name);
        }
        let pods: Vec<_> = cluster.pods.values().cloned().map(Arc::new).collect();
        let observed = Observed::new(&cluster.set, &cluster.nodes, &pods, &cluster.hash, cluster.time());
        let observed = observed.with_undecodable(|node| exists && node == name);
        let plan = roll_out(&observed).expect("a plan");
        let deleted = plan.delete.iter().map(|pod| pod.node.to_string()).collect::<Vec<_>>();
        (deleted, plan.create.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let (none, second) = (Vec::<String>::new(), vec!["node-1".to_owned()]);
    assert_eq!(planned(unavailable(1), true, true), (second.clone(), none.clone()));
    assert_eq!(
        planned(unavailable(1), false, true),
        (none.clone(), none.clone()),
        "it counts as unavailable"
    );
    assert_eq!(planned(unavailable(1), false, false).0, ["node-0"], "the node does not exist");
    assert_eq!(planned(surge(1), true, true), (none.clone(), second.clone()));
    assert_eq!(planned(surge(1), false, true), (none, second));
}

#[test]
fn limits_are_numbers_or_percentages_of_the_desired_nodes() {
    let check = |strategy: Value, nodes: usize, surge: usize, unavailable: usize| {
        let cluster = Cluster::new(set(strategy.clone()), nodes);
        let observed = Observed::new(&cluster.set, &cluster.nodes, &[], HASH, at(0));
        let expected = Limits { surge, unavailable, desired: nodes };
        assert_eq!(limits(&observed), Ok(expected), "{strategy}");
    };
    check(unavailable(0), 0, 0, 0);
    check(unavailable(1), 2, 0, 1);
    check(unavailable(0), 2, 0, 1);
    check(surge(0), 2, 0, 1);
    check(unavailable("50%"), 2, 0, 1);
    check(unavailable("50%"), 3, 0, 2);
    check(surge("50%"), 2, 1, 0);
    check(surge("100%"), 2, 2, 0);
    let malformed = |strategy: Value| {
        let set = set(strategy);
        limits(&Observed::new(&set, &[], &[], HASH, at(0))).expect_err("an error").to_string()
    };
    let prefix = "couldn't get unavailable numbers: invalid value for";
    assert_eq!(malformed(surge("some")), format!("{prefix} MaxSurge: \"some\" is not a percentage"));
    assert_eq!(
        malformed(unavailable(Value::Null)),
        format!("{prefix} MaxUnavailable: nil value for IntOrString")
    );
}

#[test]
fn limits_do_not_depend_on_the_pods_of_the_nodes() {
    // Nodes, ready pods, of which the last is being deleted, and the limits for surge and unavailable pods.
    let cases = [
        (unavailable(0), 0, 0, false, (0, 0)),
        (unavailable(1), 2, 2, false, (0, 1)),
        (unavailable(0), 2, 1, false, (0, 1)),
        (surge(0), 2, 1, false, (0, 1)),
        (unavailable("50%"), 2, 2, false, (0, 1)),
        (surge("50%"), 2, 2, false, (1, 0)),
        (surge("100%"), 2, 2, false, (2, 0)),
        (unavailable("50%"), 3, 2, true, (0, 2)),
    ];
    for (strategy, nodes, pods, is_last_deleted, (surge, unavailable)) in cases {
        let cluster = Cluster::new(set(strategy.clone()), nodes);
        let mut pods: Vec<_> = (0..pods)
            .map(|number| ready(pod(&format!("pod-{number}"), &format!("node-{number}"), HASH, 0), 0))
            .collect();
        if is_last_deleted {
            let last = pods.pop().expect("a pod");
            pods.push(being_deleted(last));
        }
        let pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
        let observed = Observed::new(&cluster.set, &cluster.nodes, &pods, HASH, at(0));
        assert_eq!(limits(&observed), Ok(Limits { surge, unavailable, desired: nodes }), "{strategy}");
    }
}

#[test]
fn nodes_that_do_not_fit_do_not_count_for_limits() {
    let cluster = Cluster::new(with_pod_spec(json!({ "nodeName": "node-1" })), 3);
    let observed = Observed::new(&cluster.set, &cluster.nodes, &[], HASH, at(0));
    assert_eq!(limits(&observed).map(|limits| limits.desired), Ok(1));
}
