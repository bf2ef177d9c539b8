//! How a part of the ring is requested: the query parameter `shardSelector` of lists and watches.

use super::ranges::{HashRange, HashRanges};
use crate::Scope;

/// The field whose hash assigns an object to a shard. A selector has one field.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShardField {
    /// The namespace: an object and what it owns are then in one shard.
    Namespace,
    /// The uid, for kinds without namespaces.
    Uid,
}

impl ShardField {
    /// That of a kind.
    pub const fn of(scope: Scope) -> Self {
        match scope {
            Scope::Namespaced => ShardField::Namespace,
            Scope::Cluster => ShardField::Uid,
        }
    }

    /// The field as selectors write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            ShardField::Namespace => "object.metadata.namespace",
            ShardField::Uid => "object.metadata.uid",
        }
    }
}

/// Returns the selector of these ranges as API servers write it. `None` if there are none: an empty selector would select
/// everything.
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
    fn ranges_are_asked_for_in_the_words_of_api_servers() {
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
    fn no_selector_is_made_of_no_ranges_since_it_would_select_everything() {
        assert_eq!(selector(ShardField::Namespace, &HashRanges::none()), None);
    }
}
