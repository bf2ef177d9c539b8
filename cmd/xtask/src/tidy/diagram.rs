//! The diagram of crates in `ARCHITECTURE.md` shows the dependencies of the manifests.
//!
//! Guarantees: the edges of the diagram are the normal and build dependencies between crates of the workspace, without
//! those that other edges imply. A missing edge and a surplus edge are findings with the line to write or to delete.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::Graph;
use super::tree::{Finding, SourceFile, Tree};

/// The page with the diagram.
const PAGE: &str = "ARCHITECTURE.md";

/// An arrow from a crate to a crate that it depends on.
type Edge<'a> = (&'a str, &'a str);

/// Compares the diagram with the manifests.
pub(super) fn diagram_shows_dependencies(tree: &Tree, graph: &Graph) -> Vec<Finding> {
    let all = graph.edges();
    let expected: BTreeSet<Edge<'_>> = all.iter().copied().filter(|edge| !is_implied(*edge, &all)).collect();
    tree.find(PAGE).map_or_else(Vec::new, |page| differences(page, &expected))
}

fn differences(page: &SourceFile, expected: &BTreeSet<Edge<'_>>) -> Vec<Finding> {
    let shown = edges_of_diagram(&page.text);
    let surplus = shown.iter().filter(|(edge, _)| !expected.contains(*edge)).map(|((from, to), line)| {
        page.finding(
            *line,
            format!("no crate depends so, or another arrow implies it: delete `{from} --> {to}`"),
        )
    });
    let missing = expected.iter().filter(|edge| !shown.contains_key(*edge)).map(|(from, to)| {
        page.finding(0, format!("{from} depends on {to}: add `{from} --> {to}` to the diagram"))
    });
    surplus.chain(missing).collect()
}

/// Returns the arrows of the mermaid block with their lines.
fn edges_of_diagram(text: &str) -> BTreeMap<Edge<'_>, usize> {
    let mut edges = BTreeMap::new();
    let mut is_diagram = false;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        match line.strip_prefix("```") {
            Some(language) => is_diagram = language == "mermaid",
            None if is_diagram => {
                let arrow = line.split_once(" --> ").or_else(|| line.split_once(" -.-> "));
                edges.extend(arrow.map(|edge| (edge, at + 1)));
            }
            None => {}
        }
    }
    edges
}

/// Returns whether a longer path of `edges` leads from one end to the other.
fn is_implied((from, to): Edge<'_>, edges: &BTreeSet<Edge<'_>>) -> bool {
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    let mut open: Vec<&str> =
        edges.iter().filter(|(start, end)| *start == from && *end != to).map(|it| it.1).collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(edges.iter().filter(|(start, _)| *start == next).map(|it| it.1));
        }
    }
    reached.contains(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn implied_edges_are_left_out() {
        let edges = BTreeSet::from([("app", "queue"), ("app", "env"), ("queue", "env")]);
        assert!(is_implied(("app", "env"), &edges));
        assert!(!is_implied(("app", "queue"), &edges));
    }

    #[test]
    fn missing_and_surplus_arrows_are_found() {
        let text = "a --> no\n```mermaid\nflowchart TD\n  app --> queue\n  app -.-> env\n```\nb --> no\n";
        let tree = Tree::of(&[(PAGE, text)]);
        let page = tree.find(PAGE).unwrap();
        let expected = BTreeSet::from([("app", "queue"), ("queue", "env")]);
        let found: Vec<_> =
            differences(page, &expected).into_iter().map(|it| (it.line, it.message)).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].0 == 5 && found[0].1.contains("delete `app --> env`"), "{found:?}");
        assert!(found[1].1.contains("add `queue --> env`"), "{found:?}");
    }
}
