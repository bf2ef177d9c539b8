//! What is different between two moments, one line for each kind of change. Pure.

use std::collections::BTreeSet;

use crate::observed::{Observed, Stage};

/// How many names a line lists before it counts the rest.
const LISTED: usize = 4;

/// What is different in `after`. Nothing when nothing that is shown is.
pub(crate) fn changes(before: &Observed, after: &Observed) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, set) in &after.sets {
        if before.sets.get(name).map(|was| was.wanted) != Some(set.wanted) {
            lines.push(format!("ReplicaSet {name} wants {}", pods(set.wanted)));
        }
    }
    let gone = before.sets.keys().filter(|name| !after.sets.contains_key(*name));
    lines.extend(gone.map(|name| format!("ReplicaSet {name} is gone")));
    lines.extend(pod_changes(before, after));
    lines.extend(address_changes(before, after));
    for (name, set) in &after.sets {
        if before.sets.get(name).map_or(0, |was| was.ready) != set.ready {
            lines.push(format!("ReplicaSet {name} reports {} of {} ready", set.ready, set.wanted));
        }
    }
    lines
}

/// How many pods, in words.
pub(crate) fn pods(count: u64) -> String {
    format!("{count} {}", if count == 1 { "pod" } else { "pods" })
}

/// One word for a stage.
pub(crate) fn word(stage: Stage) -> &'static str {
    match stage {
        Stage::Waiting => "waiting",
        Stage::Starting => "starting",
        Stage::Ready => "ready",
        Stage::Ending => "ending",
        Stage::Over => "over",
    }
}

fn pod_changes(before: &Observed, after: &Observed) -> Vec<String> {
    let was = |name: &String| before.pods.get(name).map(|pod| pod.stage);
    let entered = |stage: Stage| {
        let now = after.pods.iter().filter(move |(name, pod)| pod.stage == stage && was(name) != Some(stage));
        now.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
    };
    let created = after.pods.keys().filter(|name| was(name).is_none()).map(String::as_str).collect();
    let gone = before.pods.keys().filter(|name| !after.pods.contains_key(*name));
    let happened = [
        ("pods created", created),
        ("pods ready", entered(Stage::Ready)),
        ("pods ending", entered(Stage::Ending)),
        ("pods over", entered(Stage::Over)),
        ("pods gone", gone.map(String::as_str).collect()),
    ];
    happened.iter().filter_map(|(what, names)| listing(what, names)).collect()
}

fn address_changes(before: &Observed, after: &Observed) -> Vec<String> {
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
    use crate::observed::{PodView, SetView};

    fn observed(stages: &[Stage], addresses: &[&str]) -> Observed {
        let pod = |(number, stage): (usize, &Stage)| {
            (format!("shop/web-{number}"), PodView { node: None, address: None, stage: *stage })
        };
        let wanted = u64::try_from(stages.len()).expect("a few");
        Observed {
            sets: [("shop/web".to_owned(), SetView { wanted, ..SetView::default() })].into(),
            pods: stages.iter().enumerate().map(pod).collect(),
            addresses: [("shop/web".to_owned(), addresses.iter().map(|&ip| ip.to_owned()).collect())].into(),
            ..Observed::default()
        }
    }

    #[test]
    fn every_change_is_a_line_and_nothing_else_is() {
        let before = observed(&[Stage::Ready, Stage::Starting], &["10.0.0.1"]);
        assert_eq!(changes(&before, &before), Vec::<String>::new());
        let mut after = observed(&[Stage::Ending, Stage::Ready, Stage::Waiting], &["10.0.0.2"]);
        after.sets.get_mut("shop/web").expect("the set").ready = 1;
        let expected = [
            "ReplicaSet shop/web wants 3 pods",
            "pods created: shop/web-2",
            "pods ready: shop/web-1",
            "pods ending: shop/web-0",
            "Endpoints shop/web gain: 10.0.0.2",
            "Endpoints shop/web lose: 10.0.0.1",
            "ReplicaSet shop/web reports 1 of 3 ready",
        ];
        assert_eq!(changes(&before, &after), expected);
        let gone = changes(&after, &Observed::default());
        assert!(gone.contains(&"ReplicaSet shop/web is gone".to_owned()), "{gone:?}");
        assert!(gone.contains(&"pods gone: shop/web-0, shop/web-1, shop/web-2".to_owned()), "{gone:?}");
    }

    #[test]
    fn many_names_are_counted() {
        let lines = changes(&Observed::default(), &observed(&[Stage::Waiting; 8], &[]));
        let line = "pods created: shop/web-0, shop/web-1, shop/web-2, shop/web-3 and 4 more";
        assert!(lines.contains(&line.to_owned()), "{lines:?}");
    }
}
