//! Which shards this process holds, changeable while it runs.
//!
//! A [`ShardSet`] is a shared handle: whoever holds a clone sees, and may make, every change. An informer over a set
//! follows each of its shards for itself, as one over a [`NamespaceSet`](crate::NamespaceSet) does its namespaces, and
//! is still one informer, with one store and one stream of events:
//!
//! - A shard that joins is listed and watched; its objects are told as additions of an initial list.
//! - One that leaves takes its objects along: each is told as a deletion that was inferred, because it was deselected.
//! - One whose ranges change leaves, and joins with the new ones.
//! - Nobody in the set, nothing followed: such an informer has synced, and is empty.
//!
//! The API server is asked for the shard alone, and whatever it sends is filtered again before it is decoded: servers
//! that know nothing of shards pass over the question in silence, and those that do know do not always filter. Such a
//! server sends everything once for every shard.
//!
//! By namespace are sharded the kinds that have namespaces, by uid the others. An object changes neither, so that none
//! ever passes from one shard to another.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use windlass_env::watch_channel::{Receiver, Sender, channel};
use windlass_object::shard::{self, HashRanges, ShardField, ShardId};
use windlass_object::{ObjectKey, Uid};

/// The shards that a process holds. Cheap to clone; clones are one set.
#[derive(Clone)]
pub struct ShardSet {
    /// Replaced and never changed, so that who asks takes no copy.
    members: Arc<Sender<Arc<BTreeMap<ShardId, HashRanges>>>>,
}

/// One shard of the objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    /// Its number.
    pub id: ShardId,
    /// What is hashed.
    pub field: ShardField,
    /// What the hashes of its objects lie in.
    pub ranges: HashRanges,
}

/// Which shards an informer is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shards {
    /// Those that the process holds, if its factory has a set of them
    /// ([`FactoryOptions::shards`](crate::FactoryOptions::shards)); everything otherwise.
    #[default]
    Held,
    /// All of them, whatever the process holds: for what every replica has to see whole, such as nodes.
    Every,
    /// This one, for good. So sources are asked for one of many, too.
    One(Arc<Shard>),
}

/// Two shards of one set have hashes in common.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "shard {joining} cannot join: it overlaps shard {member}, which is held; remove shard {member} first"
)]
pub struct ShardsOverlap {
    /// The one that is not let in.
    pub joining: ShardId,
    /// The one that is there.
    pub member: ShardId,
}

impl ShardSet {
    /// A set of no shards.
    pub fn new() -> Self {
        Self { members: Arc::new(channel(Arc::default()).0) }
    }

    /// Lets a shard in, or gives one that is in other ranges; `false` if it is there with these ranges already.
    ///
    /// # Errors
    ///
    /// [`ShardsOverlap`] if another shard of the set has some of these hashes; nothing is changed then.
    pub fn join(&self, shard: ShardId, ranges: HashRanges) -> Result<bool, ShardsOverlap> {
        let mut outcome = Ok(false);
        self.members.send_modify(|members| {
            let others = members.iter().filter(|(member, _)| **member != shard);
            let overlapped = others.clone().find(|(_, others)| others.overlaps(&ranges));
            if let Some((member, _)) = overlapped {
                outcome = Err(ShardsOverlap { joining: shard, member: *member });
            } else if members.get(&shard) != Some(&ranges) {
                Arc::make_mut(members).insert(shard, ranges);
                outcome = Ok(true);
            }
        });
        outcome
    }

    /// Lets a shard go; `false` if it was not there.
    pub fn leave(&self, shard: ShardId) -> bool {
        let mut left = false;
        self.members.send_modify(|members| left = Arc::make_mut(members).remove(&shard).is_some());
        left
    }

    /// The shards, with what each owns.
    pub fn members(&self) -> Arc<BTreeMap<ShardId, HashRanges>> {
        self.members.get()
    }

    /// The shard of the set that a hash belongs to, if one does.
    pub fn shard_of(&self, hash: u64) -> Option<ShardId> {
        self.members().iter().find(|(_, ranges)| ranges.contains(hash)).map(|(shard, _)| *shard)
    }

    /// The set as it changes. What it is now counts as seen.
    pub fn observe(&self) -> Receiver<Arc<BTreeMap<ShardId, HashRanges>>> {
        self.members.subscribe()
    }
}

impl Shard {
    /// Whether an object is of this shard. One whose uid cannot be read counts as having an empty one, as servers see it.
    pub fn holds(&self, key: &ObjectKey, uid: Option<&Uid>) -> bool {
        self.ranges.contains(self.hash_of(key, uid))
    }

    /// Where an object lies on the ring, as this shard's field tells.
    pub(crate) fn hash_of(&self, key: &ObjectKey, uid: Option<&Uid>) -> u64 {
        shard::hash(match self.field {
            ShardField::Namespace => key.namespace().unwrap_or_default(),
            ShardField::Uid => uid.map(Uid::as_str).unwrap_or_default(),
        })
    }

    /// As API servers are asked for it; none if nothing can be of it.
    pub fn selector(&self) -> Option<String> {
        shard::selector(self.field, &self.ranges)
    }
}

impl Default for ShardSet {
    fn default() -> Self {
        Self::new()
    }
}

/// Two handles are equal if they are of one set: sets that happen to hold the same go their own ways.
impl PartialEq for ShardSet {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.members, &other.members)
    }
}

impl Eq for ShardSet {}

impl fmt::Debug for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.members().iter()).finish()
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
    fn shards_that_overlap_are_never_in_one_set() {
        let ([lower, upper], set) = (halves(), ShardSet::new());
        assert_eq!(set.join(ShardId(0), lower.clone()), Ok(true));
        assert_eq!(set.join(ShardId(0), lower.clone()), Ok(false));
        let overlap = ShardsOverlap { joining: ShardId(1), member: ShardId(0) };
        assert_eq!(set.join(ShardId(1), HashRanges::whole()), Err(overlap));
        assert_eq!(*set.members(), BTreeMap::from([(ShardId(0), lower)]));
        assert_eq!(set.join(ShardId(1), upper), Ok(true));
        assert_eq!(set.shard_of(u64::MAX), Some(ShardId(1)));
        assert!(set.leave(ShardId(1)) && !set.leave(ShardId(1)));
        assert_eq!(set.shard_of(u64::MAX), None);
    }

    #[test]
    fn shard_may_take_over_what_it_held_itself() {
        let ([lower, _], set) = (halves(), ShardSet::new());
        assert_eq!(set.join(ShardId(0), lower), Ok(true));
        assert_eq!(set.join(ShardId(0), HashRanges::whole()), Ok(true));
    }

    #[test]
    fn objects_belong_to_a_shard_by_namespace_or_by_uid() {
        let [lower, upper] = halves();
        let shard = |field, ranges: &HashRanges| Shard { id: ShardId(0), field, ranges: ranges.clone() };
        let (key, uid) = (ObjectKey::namespaced("tenant-1", "a"), Uid::from("some-uid"));
        for (field, hashed) in [(ShardField::Namespace, "tenant-1"), (ShardField::Uid, "some-uid")] {
            let of_upper = shard::hash(hashed) >= 1 << 63;
            assert_eq!(shard(field, &upper).holds(&key, Some(&uid)), of_upper);
            assert_eq!(shard(field, &lower).holds(&key, Some(&uid)), !of_upper);
        }
    }
}
