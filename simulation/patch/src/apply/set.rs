//! Sets of paths.

use std::cmp::Ordering;

use super::element::PathElement;

/// A path from the root of an object.
pub type Path = Vec<PathElement>;

/// A set of paths as a tree. A node is in the tree if its path is in the set, if a longer path is, or both. Always
/// sorted and without empty branches, so that equal sets are equal values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    pub(super) nodes: Vec<Node>,
}

/// One node of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) element: PathElement,
    /// Whether the path of this node is in the set.
    pub(super) owned: bool,
    /// Paths below this node.
    pub(super) below: FieldSet,
}

impl FieldSet {
    /// Returns the empty set.
    pub const fn new() -> FieldSet {
        FieldSet { nodes: Vec::new() }
    }

    /// Returns the set of these paths of field names: `FieldSet::of_fields(&[&["metadata", "name"], &["kind"]])`.
    pub fn of_fields(paths: &[&[&str]]) -> FieldSet {
        let mut set = FieldSet::new();
        for path in paths {
            set.insert(&path.iter().map(|name| PathElement::field(name)).collect::<Vec<_>>());
        }
        set
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the number of paths in the set.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.owned) + node.below.len()).sum()
    }

    /// Adds a path without its parents. The root itself cannot be in a set.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let at = match self.position(first) {
            Ok(at) => at,
            Err(at) => {
                self.nodes.insert(at, Node::new(first.clone(), false, FieldSet::new()));
                at
            }
        };
        if rest.is_empty() {
            self.nodes[at].owned = true;
        } else {
            self.nodes[at].below.insert(rest);
        }
    }

    /// Returns whether exactly this path is in the set.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.node(last).is_some_and(|node| node.owned),
            [first, rest @ ..] => self.node(first).is_some_and(|node| node.below.contains(rest)),
        }
    }

    /// Returns all paths; shorter paths at a level precede the longer ones.
    pub fn paths(&self) -> Vec<Path> {
        let mut out = Vec::with_capacity(self.len());
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut Path, out: &mut Vec<Path>) {
        for node in self.nodes.iter().filter(|node| node.owned) {
            let mut path = prefix.clone();
            path.push(node.element.clone());
            out.push(path);
        }
        for node in self.nodes.iter().filter(|node| !node.below.is_empty()) {
            prefix.push(node.element.clone());
            node.below.collect(prefix, out);
            prefix.pop();
        }
    }

    /// Returns the paths in either set.
    #[must_use]
    pub fn union(&self, other: &FieldSet) -> FieldSet {
        if self.is_empty() {
            return other.clone();
        }
        let mut out = FieldSet { nodes: Vec::with_capacity(self.nodes.len().max(other.nodes.len())) };
        for pair in Pairs::of(self, other) {
            out.nodes.push(match pair {
                (Some(one), Some(other)) => {
                    Node::new(one.element.clone(), one.owned || other.owned, one.below.union(&other.below))
                }
                (Some(one), None) | (None, Some(one)) => one.clone(),
                (None, None) => continue,
            });
        }
        out
    }

    /// Returns the paths in both sets.
    #[must_use]
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut out = FieldSet::new();
        for pair in Pairs::of(self, other) {
            if let (Some(one), Some(other)) = pair {
                let below = one.below.intersection(&other.below);
                out.put(&one.element, one.owned && other.owned, below);
            }
        }
        out
    }

    /// Returns the paths in this set and not in the other. A path stays if only paths above or below it are in the
    /// other set.
    #[must_use]
    pub fn difference(&self, other: &FieldSet) -> FieldSet {
        let mut out = FieldSet { nodes: Vec::with_capacity(self.nodes.len()) };
        for pair in Pairs::of(self, other) {
            match pair {
                (Some(one), None) => out.nodes.push(one.clone()),
                (Some(one), Some(other)) => {
                    out.put(&one.element, one.owned && !other.owned, one.below.difference(&other.below));
                }
                (None, _) => {}
            }
        }
        out
    }

    /// Returns the paths in this set that are neither in the other set nor below one of its paths.
    #[must_use]
    pub fn recursive_difference(&self, other: &FieldSet) -> FieldSet {
        let mut out = FieldSet { nodes: Vec::with_capacity(self.nodes.len()) };
        for pair in Pairs::of(self, other) {
            match pair {
                (Some(one), None) => out.nodes.push(one.clone()),
                (Some(one), Some(other)) if !other.owned => {
                    out.put(&one.element, one.owned, one.below.recursive_difference(&other.below));
                }
                _ => {}
            }
        }
        out
    }

    /// Returns the paths without paths below them.
    #[must_use]
    pub fn leaves(&self) -> FieldSet {
        let mut out = FieldSet::new();
        for node in &self.nodes {
            out.put(&node.element, node.owned && node.below.is_empty(), node.below.leaves());
        }
        out
    }

    /// Returns whether the sets have a common path.
    pub fn intersects(&self, other: &FieldSet) -> bool {
        Pairs::of(self, other).any(|pair| match pair {
            (Some(one), Some(other)) => (one.owned && other.owned) || one.below.intersects(&other.below),
            _ => false,
        })
    }

    pub(super) fn node(&self, element: &PathElement) -> Option<&Node> {
        self.position(element).ok().and_then(|at| self.nodes.get(at))
    }

    /// Returns the node of a field without creating a path element.
    pub(super) fn field(&self, name: &str) -> Option<&Node> {
        let order = |node: &Node| match &node.element {
            PathElement::Field(their) => (**their).cmp(name),
            _ => Ordering::Greater,
        };
        self.nodes.binary_search_by(order).ok().and_then(|at| self.nodes.get(at))
    }

    /// Adds a node unless it is empty. Cheap in sorted order; otherwise merged with the existing node.
    pub(super) fn put(&mut self, element: &PathElement, owned: bool, below: FieldSet) {
        if owned || !below.is_empty() {
            self.put_node(Node::new(element.clone(), owned, below));
        }
    }

    fn put_node(&mut self, node: Node) {
        if self.nodes.last().is_none_or(|last| last.element < node.element) {
            self.nodes.push(node);
            return;
        }
        match self.position(&node.element) {
            Err(at) => self.nodes.insert(at, node),
            Ok(at) => {
                let there = &mut self.nodes[at];
                there.owned |= node.owned;
                there.below = there.below.union(&node.below);
            }
        }
    }

    fn position(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }
}

impl Node {
    fn new(element: PathElement, owned: bool, below: FieldSet) -> Node {
        Node { element, owned, below }
    }
}

/// Iterates over two sorted lists in parallel.
struct Pairs<'a> {
    one: &'a [Node],
    other: &'a [Node],
}

impl<'a> Pairs<'a> {
    fn of(one: &'a FieldSet, other: &'a FieldSet) -> Pairs<'a> {
        Pairs { one: &one.nodes, other: &other.nodes }
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (Option<&'a Node>, Option<&'a Node>);

    fn next(&mut self) -> Option<Self::Item> {
        let order = match (self.one.first(), self.other.first()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) => one.element.cmp(&other.element),
        };
        let one = if order == Ordering::Greater { None } else { pop(&mut self.one) };
        let other = if order == Ordering::Less { None } else { pop(&mut self.other) };
        Some((one, other))
    }
}

fn pop<'a>(list: &mut &'a [Node]) -> Option<&'a Node> {
    let (first, rest) = list.split_first()?;
    *list = rest;
    Some(first)
}
