//! The partitions of an informer: one per reflector.
//!
//! An informer of all objects, or of one namespace, has one partition. An informer with a set of namespaces
//! ([`NamespaceSet`]) or of shards ([`ShardSet`]) has one partition per member.
//! Each partition has its own list, watch and version. A list of one partition contains no information about the
//! objects of another.

use std::collections::BTreeSet;
use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future;
use windlass_env::watch_channel::Receiver;
use windlass_object::shard::{self, ShardField, ShardId};
use windlass_object::{ObjectKey, Scope, Uid};

use crate::list_watch::Selection;
use crate::namespaces::NamespaceSet;
use crate::shards::{Shard, ShardMember, ShardMembers, ShardSelection, ShardSet};

/// A partition of an informer. The partitions of one informer do not overlap: one partition for the whole, or one per
/// namespace or per shard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Partition {
    /// All objects of the informer.
    Whole,
    /// The objects in a namespace.
    Namespace(NamespacePartition),
    /// The objects in this shard.
    Shard(Arc<Shard>),
}

/// A namespace that has its own reflector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamespacePartition {
    /// The name of the namespace.
    pub name: Arc<str>,
    /// The term of the shard that contains it ([`Shard::term`]); 0 without shards.
    pub term: u64,
}

/// The reason why all objects of a partition were removed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RemovalReason {
    /// The namespace or the shard is no longer selected.
    Deselected,
    /// The source no longer serves the kind, so none of its objects exist.
    Unserved,
}

/// The location of an object, as far as it determines the partition: a namespace, or a UID for a kind without
/// namespaces. A location without both means any location.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectLocation<'a> {
    /// The namespace of the object.
    pub namespace: Option<&'a str>,
    /// The UID of the object. Not used for objects in a namespace.
    pub uid: Option<&'a Uid>,
}

impl ObjectLocation<'_> {
    /// Returns the hash that this shard field yields for the location, if it is known.
    pub(crate) fn hash(self, field: ShardField) -> Option<u64> {
        match field {
            ShardField::Namespace => self.namespace.map(shard::hash),
            ShardField::Uid => self.uid.map(|uid| shard::hash(uid.as_str())),
        }
    }
}

impl<'a> From<Option<&'a str>> for ObjectLocation<'a> {
    fn from(namespace: Option<&'a str>) -> Self {
        Self { namespace, uid: None }
    }
}

impl<'a> From<&'a str> for ObjectLocation<'a> {
    fn from(namespace: &'a str) -> Self {
        Some(namespace).into()
    }
}

impl From<&str> for NamespacePartition {
    fn from(name: &str) -> Self {
        Self { name: name.into(), term: 0 }
    }
}

impl Partition {
    /// Returns the namespace, if the partition is a namespace.
    pub fn namespace(&self) -> Option<&Arc<str>> {
        match self {
            Partition::Namespace(namespace) => Some(&namespace.name),
            Partition::Whole | Partition::Shard(_) => None,
        }
    }

    /// Returns whether an object at `location` can belong to this partition.
    pub(crate) fn can_contain(&self, location: ObjectLocation<'_>) -> bool {
        match self {
            Partition::Whole => true,
            Partition::Namespace(own) => location.namespace.is_none_or(|namespace| namespace == &*own.name),
            Partition::Shard(shard) => {
                location.hash(shard.field).is_none_or(|hash| shard.ranges.contains(hash))
            }
        }
    }

    /// Returns whether both are terms of one namespace or of one shard.
    pub(crate) fn is_term_of_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Partition::Namespace(one), Partition::Namespace(other)) => one.name == other.name,
            (Partition::Shard(one), Partition::Shard(other)) => one.ranges.overlaps(&other.ranges),
            (one, other) => one == other,
        }
    }

    /// Returns whether an object with that key and UID belongs to this partition.
    pub fn contains(&self, key: &ObjectKey, uid: Option<&Uid>) -> bool {
        match self {
            Partition::Whole => true,
            Partition::Namespace(namespace) => key.namespace() == Some(&namespace.name),
            Partition::Shard(shard) => shard.contains(key, uid),
        }
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Partition::Whole => f.write_str("all"),
            Partition::Namespace(namespace) => write!(f, "namespace {}", namespace.name),
            Partition::Shard(shard) => shard.fmt(f),
        }
    }
}

/// The desired partitions of an informer; they can change.
///
/// Of namespaces within shards, only namespaces whose hash belongs to one of the shards are followed. Requests to the
/// source then name the namespace, as they do without shards.
#[derive(Clone, Debug)]
pub(crate) enum PartitionSet {
    Namespaces(NamespaceSet),
    Shards(ShardSet, ShardField),
    NamespacesWithin(NamespaceSet, ShardSet),
    /// One fixed shard.
    One(Arc<Shard>),
}

/// Notifications that partitions might have joined or left.
pub(crate) struct PartitionChanges {
    namespaces: Option<Receiver<Arc<BTreeSet<String>>>>,
    shards: Option<Receiver<ShardMembers>>,
}

impl PartitionSet {
    /// Returns the partitions of an informer, or `None` if it has a single one. If the selection names a namespace, the
    /// sets of namespaces and shards do not apply.
    pub(crate) fn of(
        scope: Scope,
        selection: &Selection,
        namespaces: Option<NamespaceSet>,
        shards: Option<ShardSet>,
    ) -> Option<Self> {
        let named = scope == Scope::Namespaced && selection.namespace.is_some();
        let namespaces = namespaces.filter(|_| scope == Scope::Namespaced && !named);
        let shards = match &selection.shards {
            ShardSelection::Held => shards.filter(|_| !named),
            ShardSelection::Every => None,
            ShardSelection::One(shard) => return Some(PartitionSet::One(Arc::clone(shard))),
        };
        match (namespaces, shards) {
            (None, None) => None,
            (Some(namespaces), None) => Some(PartitionSet::Namespaces(namespaces)),
            (None, Some(shards)) => Some(PartitionSet::Shards(shards, ShardField::of(scope))),
            (Some(namespaces), Some(shards)) => Some(PartitionSet::NamespacesWithin(namespaces, shards)),
        }
    }

    pub(crate) fn namespaces(&self) -> Option<&NamespaceSet> {
        match self {
            PartitionSet::Namespaces(namespaces) | PartitionSet::NamespacesWithin(namespaces, _) => {
                Some(namespaces)
            }
            PartitionSet::Shards(..) | PartitionSet::One(_) => None,
        }
    }

    pub(crate) fn shards(&self) -> Option<&ShardSet> {
        match self {
            PartitionSet::Shards(shards, _) | PartitionSet::NamespacesWithin(_, shards) => Some(shards),
            PartitionSet::Namespaces(_) | PartitionSet::One(_) => None,
        }
    }

    /// Returns the field by which objects are assigned to shards, if the partitions depend on shards.
    pub(crate) fn shard_field(&self) -> Option<ShardField> {
        match self {
            PartitionSet::Namespaces(_) => None,
            PartitionSet::NamespacesWithin(..) => Some(ShardField::Namespace),
            PartitionSet::Shards(_, field) => Some(*field),
            PartitionSet::One(shard) => Some(shard.field),
        }
    }

    /// Returns the description of the partitions for the name of an informer. The name already identifies a single
    /// shard.
    pub(crate) fn description(&self) -> Option<&'static str> {
        match self {
            PartitionSet::Namespaces(_) => Some("of a set of namespaces"),
            PartitionSet::Shards(..) => Some("of a set of shards"),
            PartitionSet::NamespacesWithin(..) => Some("of a set of namespaces within a set of shards"),
            PartitionSet::One(_) => None,
        }
    }

    /// Returns the desired partitions.
    pub(crate) fn current(&self) -> BTreeSet<Partition> {
        let namespace =
            |name: String, term| Partition::Namespace(NamespacePartition { name: name.into(), term });
        match self {
            PartitionSet::Namespaces(namespaces) => {
                namespaces.current().into_iter().map(|name| namespace(name, 0)).collect()
            }
            PartitionSet::NamespacesWithin(namespaces, shards) => {
                let held = shards.members();
                let within = |name: String| {
                    let hash = shard::hash(&name);
                    let member = held.values().find(|member| member.ranges.contains(hash))?;
                    Some(namespace(name, member.term))
                };
                namespaces.current().into_iter().filter_map(within).collect()
            }
            PartitionSet::Shards(shards, field) => {
                let held = shards.members();
                let held = held.iter().filter(|(_, member)| !member.ranges.is_empty());
                let shard = |(id, member): (&ShardId, &ShardMember)| {
                    let ShardMember { ranges, term } = member.clone();
                    Partition::Shard(Arc::new(Shard { id: *id, field: *field, ranges, term }))
                };
                held.map(shard).collect()
            }
            PartitionSet::One(shard) => BTreeSet::from([Partition::Shard(Arc::clone(shard))]),
        }
    }

    /// Returns whether a partition for objects at `location` is desired.
    pub(crate) fn expects(&self, location: ObjectLocation<'_>) -> bool {
        let named = |set: &NamespaceSet| location.namespace.is_some_and(|namespace| set.contains(namespace));
        let hash = self.shard_field().and_then(|field| location.hash(field));
        let held = |shards: &ShardSet| hash.and_then(|hash| shards.shard_of(hash)).is_some();
        match self {
            PartitionSet::Namespaces(namespaces) => named(namespaces),
            PartitionSet::NamespacesWithin(namespaces, shards) => named(namespaces) && held(shards),
            PartitionSet::Shards(shards, _) => held(shards),
            PartitionSet::One(shard) => hash.is_some_and(|hash| shard.ranges.contains(hash)),
        }
    }

    /// Returns the changes of the sets. The current values count as seen.
    pub(crate) fn subscribe(&self) -> PartitionChanges {
        PartitionChanges {
            namespaces: self.namespaces().map(NamespaceSet::subscribe),
            shards: self.shards().map(ShardSet::subscribe),
        }
    }

    /// Waits until this partition is no longer desired.
    pub(crate) async fn wait_removed(&self, partition: &Partition) {
        let mut changes = self.subscribe();
        while self.current().contains(partition) {
            changes.changed().await;
        }
    }
}

impl PartitionChanges {
    /// Waits for the next change.
    ///
    /// # Cancel safety
    /// A change that occurs after the future was dropped is reported by the next call.
    pub(crate) async fn changed(&mut self) {
        let Self { namespaces, shards } = self;
        future::select(pin!(next(namespaces)), pin!(next(shards))).await;
    }
}

async fn next<T: Clone + Send + Sync + 'static>(changes: &mut Option<Receiver<T>>) {
    match changes {
        // It closes only when the last handle to the set is dropped; then nothing changes anymore.
        Some(changes) => match changes.changed().await {
            Ok(_) => {}
            Err(_) => pending().await,
        },
        None => pending().await,
    }
}
