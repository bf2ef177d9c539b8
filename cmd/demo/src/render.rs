//! Differences between two snapshots, one line for each kind of change. Pure.

use std::collections::BTreeSet;

use crate::observed::{ClusterSnapshot, PodStage};

/// Number of names in a line before the rest is counted.
const LISTED: usize = 4;

/// Returns the differences; empty if nothing displayed has changed.
pub(crate) fn changes(before: &ClusterSnapshot, after: &ClusterSnapshot) -> Vec<String> {
    let mut lines = Vec::new();
    for (workload, now) in &after.workloads {
        if before.workloads.get(workload).map(|was| was.desired) != Some(now.desired) {
            let (kind, name) = workload;
            lines.push(format!("{kind} {name} desires {}", pods(now.desired)));
        }
    }
    let gone = before.workloads.keys().filter(|workload| !after.workloads.contains_key(*workload));
    lines.extend(gone.map(|(kind, name)| format!("{kind} {name} was deleted")));
    lines.extend(pod_changes(before, after));
    lines.extend(address_changes(before, after));
    for (workload, now) in &after.workloads {
        if before.workloads.get(workload).map_or(0, |was| was.ready) != now.ready {
            let (kind, name) = workload;
            lines.push(format!("{kind} {name} reports {} of {} ready", now.ready, now.desired));
        }
    }
    lines
}

/// Formats a number of pods.
pub(crate) fn pods(count: u64) -> String {
    format!("{count} {}", if count == 1 { "pod" } else { "pods" })
}

/// Returns the name of a stage.
pub(crate) fn word(stage: PodStage) -> &'static str {
    match stage {
        PodStage::Waiting => "waiting",
        PodStage::Starting => "starting",
        PodStage::Ready => "ready",
        PodStage::Ending => "ending",
        PodStage::Over => "over",
    }
}

fn pod_changes(before: &ClusterSnapshot, after: &ClusterSnapshot) -> Vec<String> {
    let was = |name: &String| before.pods.get(name).map(|pod| pod.stage);
    let entered = |stage: PodStage| {
        let now = after.pods.iter().filter(move |(name, pod)| pod.stage == stage && was(name) != Some(stage));
        now.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
    };
    let created = after.pods.keys().filter(|name| was(name).is_none()).map(String::as_str).collect();
    let gone = before.pods.keys().filter(|name| !after.pods.contains_key(*name));
    let happened = [
        ("pods created", created),
        ("pods ready", entered(PodStage::Ready)),
        ("pods terminating", entered(PodStage::Ending)),
        ("pods completed", entered(PodStage::Over)),
        ("pods deleted", gone.map(String::as_str).collect()),
    ];
    happened.iter().filter_map(|(what, names)| listing(what, names)).collect()
}

fn address_changes(before: &ClusterSnapshot, after: &ClusterSnapshot) -> Vec<String> {
    let none = BTreeSet::new();
    let names: BTreeSet<_> = before.addresses.keys().chain(after.addresses.keys()).collect();
    let change = |name: &String| {
        let (was, is) =
            (before.addresses.get(name).unwrap_or(&none), after.addresses.get(name).unwrap_or(&none));
        let only = |one: &BTreeSet<String>, other: &BTreeSet<String>, what: &str| {
            let ips: Vec<_> = one.difference(other).map(String::as_str).collect();
            listing(&format!("Endpoints {name} {what}"), &ips)
        };
        [only(is, was, "gain"), only(was, is, "lose")]
    };
    names.into_iter().flat_map(change).flatten().collect()
}

fn listing(what: &str, names: &[&str]) -> Option<String> {
    let first = names.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => None,
        count if count > LISTED => Some(format!("{what}: {first} and {} more", count - LISTED)),
        _ => Some(format!("{what}: {first}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::{PodView, WorkloadView};

    fn web() -> (&'static str, String) {
        ("ReplicaSet", "shop/web".to_owned())
    }

    fn observed(stages: &[PodStage], addresses: &[&str]) -> ClusterSnapshot {
        let pod = |(number, stage): (usize, &PodStage)| {
            (format!("shop/web-{number}"), PodView { node: None, address: None, stage: *stage })
        };
        let desired = u64::try_from(stages.len()).expect("a few");
        ClusterSnapshot {
            workloads: [(web(), WorkloadView { desired, ..WorkloadView::default() })].into(),
            pods: stages.iter().enumerate().map(pod).collect(),
            addresses: [("shop/web".to_owned(), addresses.iter().map(|&ip| ip.to_owned()).collect())].into(),
            ..ClusterSnapshot::default()
        }
    }

    #[test]
    fn each_change_is_one_line() {
        let before = observed(&[PodStage::Ready, PodStage::Starting], &["10.0.0.1"]);
        assert_eq!(changes(&before, &before), Vec::<String>::new());
        let mut after = observed(&[PodStage::Ending, PodStage::Ready, PodStage::Waiting], &["10.0.0.2"]);
        after.workloads.get_mut(&web()).expect("the ReplicaSet").ready = 1;
        let expected = [
            "ReplicaSet shop/web desires 3 pods",
            "pods created: shop/web-2",
            "pods ready: shop/web-1",
            "pods terminating: shop/web-0",
            "Endpoints shop/web gain: 10.0.0.2",
            "Endpoints shop/web lose: 10.0.0.1",
            "ReplicaSet shop/web reports 1 of 3 ready",
        ];
        assert_eq!(changes(&before, &after), expected);
        let gone = changes(&after, &ClusterSnapshot::default());
        assert!(gone.contains(&"ReplicaSet shop/web was deleted".to_owned()), "{gone:?}");
        assert!(gone.contains(&"pods deleted: shop/web-0, shop/web-1, shop/web-2".to_owned()), "{gone:?}");
    }

    #[test]
    fn many_names_are_counted() {
        let lines = changes(&ClusterSnapshot::default(), &observed(&[PodStage::Waiting; 8], &[]));
        let line = "pods created: shop/web-0, shop/web-1, shop/web-2, shop/web-3 and 4 more";
        assert!(lines.contains(&line.to_owned()), "{lines:?}");
    }
}
