//! Sets of shards that this process holds; they can change while it runs.
//!
//! A [`ShardSet`] is a shared handle: every clone can make changes and observes the changes of the others. An informer
//! with a set has a separate reflector per shard, as with a [`NamespaceSet`](crate::NamespaceSet). It is still one
//! informer with one store and one stream of events:
//!
//! - If a shard joins, it is listed and watched. Its objects are delivered as additions of an initial list.
//! - If a shard leaves, its objects are removed. Each is delivered as an inferred deletion with the cause `Deselected`.
//! - If the ranges of a shard change, the shard leaves and joins again.
//! - A shard that leaves and joins again is listed again, also if the informer observes both changes at once. It counts
//!   as listed only after this list.
//! - An informer with an empty set is synced and empty.
//!
//! Requests to the API server contain the shard selector, and the client filters the response again before it decodes
//! objects. Servers without shard support ignore the selector, and servers with support do not always filter. Such a
//! server sends all objects once per shard.
//!
//! Namespaced kinds are sharded by namespace, other kinds by UID. Both are immutable, so an object never moves to
//! another shard.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use windlass_env::watch_channel::{Receiver, Sender, channel};
use windlass_object::shard::{self, HashRanges, ShardField, ShardId};
use windlass_object::{ObjectKey, Uid};

/// The shards that a process holds. Cheap to clone; clones share one set.
#[derive(Clone)]
pub struct ShardSet {
    shards: Arc<Sender<ShardMembers>>,
}

/// The members of a set. Copy-on-write, so that readers need no copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardMembers {
    shards: Arc<BTreeMap<ShardId, ShardMember>>,
    /// The number of terms so far.
    terms: u64,
}

/// A shard of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardMember {
    pub(crate) ranges: HashRanges,
    /// The number of this term.
    pub(crate) term: u64,
}

/// One shard of the objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    /// The number of the shard.
    pub id: ShardId,
    /// The field that is hashed.
    pub field: ShardField,
    /// The ranges of the hashes of its objects.
    pub ranges: HashRanges,
    /// The number of its term in a [`ShardSet`], so that a shard that leaves and joins again is another one; 0 for a
    /// shard that is in no set.
    pub term: u64,
}

/// The shards that an informer covers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShardSelection {
    /// The shards that the process holds, if its factory has a set of them
    /// ([`FactoryOptions::shards`](crate::FactoryOptions::shards)); all objects otherwise.
    #[default]
    Held,
    /// All shards, whatever the process holds: for kinds that every replica needs completely, such as nodes.
    Every,
    /// This shard only. Requests to the source contain its selector.
    One(Arc<Shard>),
}

/// An error: two shards of one set have hashes in common.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "shard {joining} cannot join: it overlaps shard {member}, which is held; remove shard {member} first"
)]
pub struct ShardsOverlap {
    /// The shard that was rejected.
    pub joining: ShardId,
    /// The shard that is in the set.
    pub member: ShardId,
}

impl ShardSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self { shards: Arc::new(channel(ShardMembers::default()).0) }
    }

    /// Adds a shard or changes its ranges. Returns `false` if the shard has these ranges already.
    ///
    /// # Errors
    ///
    /// [`ShardsOverlap`] if another shard of the set has some of these hashes; the set is then unchanged.
    pub fn insert(&self, shard: ShardId, ranges: HashRanges) -> Result<bool, ShardsOverlap> {
        let mut outcome = Ok(false);
        self.shards.send_modify(|ShardMembers { shards, terms }| {
            let mut others = shards.iter().filter(|(member, _)| **member != shard);
            let overlapped = others.find(|(_, other)| other.ranges.overlaps(&ranges));
            if let Some((member, _)) = overlapped {
                outcome = Err(ShardsOverlap { joining: shard, member: *member });
            } else if shards.get(&shard).is_none_or(|member| member.ranges != ranges) {
                *terms += 1;
                Arc::make_mut(shards).insert(shard, ShardMember { ranges, term: *terms });
                outcome = Ok(true);
            }
        });
        outcome
    }

    /// Removes a shard. Returns `false` if it was not present.
    pub fn remove(&self, shard: ShardId) -> bool {
        let mut left = false;
        self.shards.send_modify(|members| left = Arc::make_mut(&mut members.shards).remove(&shard).is_some());
        left
    }

    /// Returns the shards with their ranges.
    pub fn current(&self) -> BTreeMap<ShardId, HashRanges> {
        self.members().iter().map(|(shard, member)| (*shard, member.ranges.clone())).collect()
    }

    pub(crate) fn members(&self) -> Arc<BTreeMap<ShardId, ShardMember>> {
        self.shards.get().shards
    }

    /// Returns the shard of the set that contains a hash, if there is one.
    pub fn shard_of(&self, hash: u64) -> Option<ShardId> {
        self.members().iter().find(|(_, member)| member.ranges.contains(hash)).map(|(shard, _)| *shard)
    }

    /// Returns a receiver of the changes. The current value counts as seen.
    pub(crate) fn subscribe(&self) -> Receiver<ShardMembers> {
        self.shards.subscribe()
    }
}

impl Shard {
    /// Returns whether an object belongs to this shard. An unreadable UID counts as empty, as it does on API servers.
    pub fn contains(&self, key: &ObjectKey, uid: Option<&Uid>) -> bool {
        self.ranges.contains(self.hash_of(key, uid))
    }

    /// Returns the hash of an object by the field of this shard.
    pub(crate) fn hash_of(&self, key: &ObjectKey, uid: Option<&Uid>) -> u64 {
        shard::hash(match self.field {
            ShardField::Namespace => key.namespace().unwrap_or_default(),
            ShardField::Uid => uid.map(Uid::as_str).unwrap_or_default(),
        })
    }

    /// Returns the shard selector for requests to API servers, or `None` if the shard is empty.
    pub fn selector(&self) -> Option<String> {
        shard::selector(self.field, &self.ranges)
    }
}

impl Default for ShardSet {
    fn default() -> Self {
        Self::new()
    }
}

/// Two handles are equal if they refer to the same set, not if their sets have equal contents.
impl PartialEq for ShardSet {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shards, &other.shards)
    }
}

impl Eq for ShardSet {}

impl fmt::Debug for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.current().iter()).finish()
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} ({})", self.id, self.ranges)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use windlass_object::shard::ShardMap;

    use super::*;

    fn halves() -> [HashRanges; 2] {
        let halves = ShardMap::even(NonZeroU16::new(2).unwrap());
        [0, 1].map(|shard| halves.ranges(ShardId(shard)).clone())
    }

    #[test]
    fn shard_set_rejects_overlapping_shards() {
        let ([lower, upper], set) = (halves(), ShardSet::new());
        assert_eq!(set.insert(ShardId(0), lower.clone()), Ok(true));
        assert_eq!(set.insert(ShardId(0), lower.clone()), Ok(false));
        let overlap = ShardsOverlap { joining: ShardId(1), member: ShardId(0) };
        assert_eq!(set.insert(ShardId(1), HashRanges::whole()), Err(overlap));
        assert_eq!(set.current(), BTreeMap::from([(ShardId(0), lower)]));
        assert_eq!(set.insert(ShardId(1), upper), Ok(true));
        assert_eq!(set.shard_of(u64::MAX), Some(ShardId(1)));
        assert!(set.remove(ShardId(1)) && !set.remove(ShardId(1)));
        assert_eq!(set.shard_of(u64::MAX), None);
    }

    #[test]
    fn shard_can_extend_its_own_ranges() {
        let ([lower, _], set) = (halves(), ShardSet::new());
        assert_eq!(set.insert(ShardId(0), lower), Ok(true));
        assert_eq!(set.insert(ShardId(0), HashRanges::whole()), Ok(true));
    }

    #[test]
    fn objects_belong_to_a_shard_by_namespace_or_by_uid() {
        let [lower, upper] = halves();
        let shard =
            |field, ranges: &HashRanges| Shard { id: ShardId(0), field, ranges: ranges.clone(), term: 0 };
        let (key, uid) = (ObjectKey::namespaced("tenant-1", "a"), Uid::from("some-uid"));
        for (field, hashed) in [(ShardField::Namespace, "tenant-1"), (ShardField::Uid, "some-uid")] {
            let of_upper = shard::hash(hashed) >= 1 << 63;
            assert_eq!(shard(field, &upper).contains(&key, Some(&uid)), of_upper);
            assert_eq!(shard(field, &lower).contains(&key, Some(&uid)), !of_upper);
        }
    }
}
