//! The names, labels and annotations of the Leases of the election.

use windlass_object::shard::{ShardId, hash};

/// The label on every Lease of the election; its value is the prefix of their names.
pub const SHARDS_LABEL: &str = "windlass.dev/shards";
/// On the plan and on each shard: the generation of the plan.
pub const GENERATION_ANNOTATION: &str = "windlass.dev/generation";
/// On the plan: the ranges of each shard.
pub const DIVISION_ANNOTATION: &str = "windlass.dev/division";
/// On the plan: namespaces with more objects than one shard's fair share, as a JSON object from name to weight and fair
/// share.
pub const HEAVY_ANNOTATION: &str = "windlass.dev/heavy-namespaces";
/// On a shard: the hash ranges of its current or last holder.
pub const RANGES_ANNOTATION: &str = "windlass.dev/ranges";
/// On a member: the number of shards that it requests.
pub const WANTED_ANNOTATION: &str = "windlass.dev/wanted-shards";

/// The names of the Leases of one election.
#[derive(Clone, Debug)]
pub(crate) struct LeaseNames {
    prefix: String,
}

/// The role of a Lease in the election.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaseRole {
    Plan,
    Shard(ShardId),
    Member,
}

impl LeaseNames {
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

    /// Returns the label selector of all Leases of the election.
    pub(crate) fn selector(&self) -> String {
        format!("{SHARDS_LABEL}={}", self.prefix)
    }

    /// Returns the role of the Lease `name`; `None` if it only has the label.
    pub(crate) fn role(&self, name: &str) -> Option<LeaseRole> {
        let rest = name.strip_prefix(&self.prefix)?;
        if rest == "-shards" {
            return Some(LeaseRole::Plan);
        }
        if rest.starts_with("-member-") {
            return Some(LeaseRole::Member);
        }
        rest.strip_prefix("-shard-")?.parse().ok().map(|number| LeaseRole::Shard(ShardId(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_is_parsed_from_every_generated_name_and_no_other() {
        let names = LeaseNames::new("windlass");
        assert_eq!(names.role(&names.plan()), Some(LeaseRole::Plan));
        assert_eq!(names.role(&names.member("a-1")), Some(LeaseRole::Member));
        for number in [0, 7, u16::MAX] {
            let shard = ShardId(number);
            assert_eq!(names.role(&names.shard(shard)), Some(LeaseRole::Shard(shard)));
        }
        for other in ["windlass", "windlass-shard-", "windlass-shard-65536", "other-shard-1", ""] {
            assert_eq!(names.role(other), None, "{other}");
        }
    }
}
