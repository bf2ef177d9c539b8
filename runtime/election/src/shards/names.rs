//! Which Leases belong to an election of shards, and what is written on them beside the record.

use windlass_object::shard::{ShardId, hash};

/// The label on every Lease of the election; its value is the prefix of their names.
pub const SHARDS_LABEL: &str = "windlass.dev/shards";
/// On the plan and on each shard: under which plan.
pub const GENERATION_ANNOTATION: &str = "windlass.dev/generation";
/// On the plan: which shard has which ranges.
pub const DIVISION_ANNOTATION: &str = "windlass.dev/division";
/// On the plan: namespaces heavier than a fair share, as a JSON object from name to weight and fair share.
pub const HEAVY_ANNOTATION: &str = "windlass.dev/heavy-namespaces";
/// On a shard: the ranges of hashes that its holder acts on, or acted on.
pub const RANGES_ANNOTATION: &str = "windlass.dev/ranges";
/// On a member: how many shards it wants there to be.
pub const WANTED_ANNOTATION: &str = "windlass.dev/wanted-shards";

/// The names of one election's Leases.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
}

/// What a Lease of the election is about.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Plan,
    Shard(ShardId),
    Member,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn plan(&self) -> String {
        format!("{}-shards", self.prefix)
    }

    pub(crate) fn shard(&self, shard: ShardId) -> String {
        format!("{}-shard-{}", self.prefix, shard.0)
    }

    pub(crate) fn member(&self, identity: &str) -> String {
        format!("{}-member-{:016x}", self.prefix, hash(identity))
    }

    /// The selector of all of them.
    pub(crate) fn selector(&self) -> String {
        format!("{SHARDS_LABEL}={}", self.prefix)
    }

    /// What the Lease of this name is about; nothing if it only bears the label.
    pub(crate) fn place(&self, name: &str) -> Option<Place> {
        let rest = name.strip_prefix(&self.prefix)?;
        if rest == "-shards" {
            return Some(Place::Plan);
        }
        if rest.starts_with("-member-") {
            return Some(Place::Member);
        }
        rest.strip_prefix("-shard-")?.parse().ok().map(|number| Place::Shard(ShardId(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_made_is_understood_and_no_other() {
        let names = Names::new("windlass");
        assert_eq!(names.place(&names.plan()), Some(Place::Plan));
        assert_eq!(names.place(&names.member("a-1")), Some(Place::Member));
        for number in [0, 7, u16::MAX] {
            let shard = ShardId(number);
            assert_eq!(names.place(&names.shard(shard)), Some(Place::Shard(shard)));
        }
        for other in ["windlass", "windlass-shard-", "windlass-shard-65536", "other-shard-1", ""] {
            assert_eq!(names.place(other), None, "{other}");
        }
    }
}
