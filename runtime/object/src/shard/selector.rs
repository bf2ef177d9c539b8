//! The query parameter `shardSelector` of lists and watches, which selects a part of the ring.

use super::ranges::{HashRange, HashRanges};
use crate::Scope;

/// The field whose hash assigns an object to a shard. A selector uses one field.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShardField {
    /// The namespace, so that an object and its dependents are in the same shard.
    Namespace,
    /// The UID, for cluster-scoped kinds.
    Uid,
}

impl ShardField {
    /// Returns the field for kinds of this scope.
    pub const fn of(scope: Scope) -> Self {
        match scope {
            Scope::Namespaced => ShardField::Namespace,
            Scope::Cluster => ShardField::Uid,
        }
    }

    /// Returns the name of the field in selectors.
    pub const fn as_str(self) -> &'static str {
        match self {
            ShardField::Namespace => "object.metadata.namespace",
            ShardField::Uid => "object.metadata.uid",
        }
    }
}

/// Formats a selector for these ranges as API servers write it. Returns `None` if there are no ranges, because an empty
/// selector selects everything.
pub fn selector(field: ShardField, ranges: &HashRanges) -> Option<String> {
    let field = field.as_str();
    let call =
        |range: HashRange| format!("shardRange({field}, '{:#018x}', '{:#018x}')", range.start(), range.end());
    let ranges: Vec<String> = ranges.iter().map(call).collect();
    (!ranges.is_empty()).then(|| ranges.join(" || "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_selector_has_upstream_format() {
        let upper = HashRanges::from(HashRange::new(1 << 63, 1 << 64).unwrap());
        assert_eq!(
            selector(ShardField::Uid, &upper).unwrap(),
            "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"
        );
        let edges = [HashRange::new(0, 170).unwrap(), HashRange::new(255, 256).unwrap()];
        assert_eq!(
            selector(ShardField::Namespace, &edges.into_iter().collect()).unwrap(),
            "shardRange(object.metadata.namespace, '0x0000000000000000', '0x00000000000000aa') || \
             shardRange(object.metadata.namespace, '0x00000000000000ff', '0x0000000000000100')"
        );
    }

    #[test]
    fn shard_selector_is_none_without_ranges() {
        assert_eq!(selector(ShardField::Namespace, &HashRanges::none()), None);
    }
}
