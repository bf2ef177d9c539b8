//! How what is observed is written down: as a table that is redrawn, or as one line per change. Pure.

use super::observed::{NAME, Observed, PodView, Stage};

/// How many names a line lists before it counts the rest.
const LISTED: usize = 4;

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// Lines that fit `size`: a summary, then a row per pod. Pods that find no room are counted.
pub(super) fn table(observed: &Observed, size: Size) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        format!("  ReplicaSet {NAME}   {}", set_summary(observed)),
        format!("  Endpoints {NAME}    {}", addresses(observed.addresses.len())),
        String::new(),
        row(HEADINGS),
    ];
    // One row stays free for the cursor, and one for the count of what is left out.
    let room = size.rows.saturating_sub(lines.len() + 2);
    lines.extend(observed.pods.iter().take(room).map(|pod| pod_row(pod, observed)));
    if observed.pods.len() > room {
        lines.push(format!("  ... and {} more", observed.pods.len() - room));
    }
    lines.iter().map(|line| line.chars().take(size.columns).collect()).collect()
}

/// What is different in `after`, a line per kind of change. Nothing when nothing that is shown is.
pub(super) fn changes(before: &Observed, after: &Observed) -> Vec<String> {
    let mut lines = Vec::new();
    match after.wanted {
        wanted if wanted == before.wanted => {}
        Some(wanted) => lines.push(format!("ReplicaSet {NAME} wants {}", pods(wanted))),
        None => lines.push(format!("ReplicaSet {NAME} is gone")),
    }
    let was = |pod: &PodView| before.pod(&pod.name).map(|pod| pod.stage);
    let entered = |stage| after.pods.iter().filter(move |pod| pod.stage == stage && was(pod) != Some(stage));
    let names = |stage| entered(stage).map(|pod| pod.name.clone()).collect::<Vec<_>>();
    let created = after.pods.iter().filter(|pod| was(pod).is_none()).map(|pod| pod.name.clone()).collect();
    let gone = before.pods.iter().filter(|pod| after.pod(&pod.name).is_none()).map(|pod| pod.name.clone());
    let ips = |one: &Observed, other: &Observed| {
        one.addresses.difference(&other.addresses).map(|address| address.ip.clone()).collect()
    };
    let happened = [
        ("pods created", created),
        ("pods ready", names(Stage::Ready)),
        ("pods ending", names(Stage::Ending)),
        ("pods gone", gone.collect()),
        ("Endpoints gain", ips(after, before)),
        ("Endpoints lose", ips(before, after)),
    ];
    lines.extend(happened.iter().filter_map(|(what, names)| listing(what, names)));
    if before.reported_ready != after.reported_ready {
        lines.push(format!("ReplicaSet {NAME} reports {} ready", after.reported_ready));
    }
    lines
}

/// What is observed, in one line.
pub(super) fn summary(observed: &Observed) -> String {
    format!("{}; {} in Endpoints", set_summary(observed), addresses(observed.addresses.len()))
}

const HEADINGS: [&str; 5] = ["POD", "NODE", "ADDRESS", "STATE", "IN ENDPOINTS"];

fn pod_row(pod: &PodView, observed: &Observed) -> String {
    let is_listed = pod.as_address().is_some_and(|address| observed.addresses.contains(&address));
    row([
        &pod.name,
        pod.node.as_deref().unwrap_or("-"),
        pod.address.as_deref().unwrap_or("-"),
        word(pod.stage),
        if is_listed { "yes" } else { "no" },
    ])
}

fn row([name, node, address, state, listed]: [&str; 5]) -> String {
    format!("  {name:<10} {node:<8} {address:<16} {state:<9} {listed}")
}

fn set_summary(observed: &Observed) -> String {
    let Some(wanted) = observed.wanted else { return "not there".to_owned() };
    format!("{wanted} wanted, {}, {} ready", pods(observed.pods.len()), observed.ready_pods().count())
}

fn pods(count: usize) -> String {
    format!("{count} {}", if count == 1 { "pod" } else { "pods" })
}

fn addresses(count: usize) -> String {
    format!("{count} {}", if count == 1 { "address" } else { "addresses" })
}

fn word(stage: Stage) -> &'static str {
    match stage {
        Stage::Waiting => "waiting",
        Stage::Starting => "starting",
        Stage::Ready => "ready",
        Stage::Ending => "ending",
    }
}

fn listing(what: &str, names: &[String]) -> Option<String> {
    let first = names.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => None,
        count if count > LISTED => Some(format!("{what}: {first} and {} more", count - LISTED)),
        _ => Some(format!("{what}: {first}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Size = Size { columns: 80, rows: 24 };

    fn pod(number: usize, stage: Stage) -> PodView {
        let placed = |text: String| (stage != Stage::Waiting).then_some(text);
        PodView {
            name: format!("web-{number:05}"),
            node: placed("node-0".to_owned()),
            address: placed(format!("10.128.0.{number}")),
            stage,
        }
    }

    fn observed(stages: &[Stage], addresses: &[usize]) -> Observed {
        Observed {
            wanted: Some(stages.len()),
            reported_ready: 0,
            pods: stages.iter().enumerate().map(|(number, stage)| pod(number + 1, *stage)).collect(),
            addresses: addresses
                .iter()
                .map(|number| pod(*number, Stage::Ready).as_address().unwrap())
                .collect(),
        }
    }

    #[test]
    fn the_table_has_a_row_per_pod_and_says_whose_address_is_listed() {
        let lines = table(&observed(&[Stage::Ready, Stage::Starting, Stage::Waiting], &[1]), WIDE);
        let expected = [
            "",
            "  ReplicaSet web   3 wanted, 3 pods, 1 ready",
            "  Endpoints web    1 address",
            "",
            "  POD        NODE     ADDRESS          STATE     IN ENDPOINTS",
            "  web-00001  node-0   10.128.0.1       ready     yes",
            "  web-00002  node-0   10.128.0.2       starting  no",
            "  web-00003  -        -                waiting   no",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_table_never_outgrows_its_terminal() {
        let crowd = observed(&[Stage::Ready; 100], &[]);
        let lines = table(&crowd, WIDE);
        assert_eq!(lines.len(), WIDE.rows - 1);
        assert_eq!(lines.last().unwrap(), "  ... and 83 more");
        let small = Size { columns: 12, rows: 9 };
        let lines = table(&crowd, small);
        assert!(
            lines.len() < small.rows && lines.iter().all(|line| line.len() <= small.columns),
            "{lines:?}"
        );
    }

    #[test]
    fn every_change_is_a_line_and_nothing_else_is() {
        let before = observed(&[Stage::Ready, Stage::Starting], &[1]);
        assert_eq!(changes(&before, &before), Vec::<String>::new());
        let mut after = observed(&[Stage::Ending, Stage::Ready, Stage::Waiting], &[2]);
        after.reported_ready = 1;
        let expected = [
            "ReplicaSet web wants 3 pods",
            "pods created: web-00003",
            "pods ready: web-00002",
            "pods ending: web-00001",
            "Endpoints gain: 10.128.0.2",
            "Endpoints lose: 10.128.0.1",
            "ReplicaSet web reports 1 ready",
        ];
        assert_eq!(changes(&before, &after), expected);
        after.pods.remove(0);
        assert!(changes(&before, &after).contains(&"pods gone: web-00001".to_owned()));
    }

    #[test]
    fn a_deleted_replica_set_is_told() {
        let gone = Observed { wanted: None, ..observed(&[], &[]) };
        assert_eq!(changes(&observed(&[], &[]), &gone), ["ReplicaSet web is gone"]);
        assert_eq!(changes(&Observed::default(), &gone), Vec::<String>::new());
    }

    #[test]
    fn many_names_are_counted() {
        let crowd = observed(&[Stage::Waiting; 8], &[]);
        let line = "pods created: web-00001, web-00002, web-00003, web-00004 and 4 more";
        assert!(changes(&Observed::default(), &crowd).contains(&line.to_owned()));
    }

    #[test]
    fn a_summary_says_what_is_missing() {
        assert_eq!(summary(&Observed::default()), "not there; 0 addresses in Endpoints");
        let one = observed(&[Stage::Ready], &[1]);
        assert_eq!(summary(&one), "1 wanted, 1 pod, 1 ready; 1 address in Endpoints");
    }
}
