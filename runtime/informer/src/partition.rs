//! The part of an informer that one reflector follows.
//!
//! An informer of everything, or of one namespace, has one part. One that holds many namespaces
//! ([`NamespaceSet`](crate::NamespaceSet)) or some shards ([`ShardSet`](crate::ShardSet)) has a part for each: every part
//! is listed and watched for itself and comes to its own version, and a list of one part says nothing about the objects
//! of another.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future;
use windlass_env::watch_channel::Receiver;
use windlass_object::shard::{self, HashRanges, ShardField, ShardId};
use windlass_object::{ObjectKey, Scope, Uid};

use crate::list_watch::Selection;
use crate::namespaces::NamespaceSet;
use crate::shards::{Shard, ShardSet, Shards};

/// Which part. The parts of one informer do not overlap: it is either whole, or consists of namespaces, or of shards.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Partition {
    /// All of it.
    Whole,
    /// What is in this namespace.
    Namespace(Arc<str>),
    /// What is of this shard.
    Shard(Arc<Shard>),
}

/// Why everything in a part went at once.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RemovalReason {
    /// The namespace or the shard is not selected any more.
    Deselected,
    /// The source does not serve the kind any more, so there is nothing of it.
    Unserved,
}

/// Where an object is, as far as that tells its part: in a namespace, or, if its kind has none, anywhere with this uid.
/// Neither means everywhere.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectLocation<'a> {
    /// Its namespace.
    pub namespace: Option<&'a str>,
    /// Its identity. Nobody asks for that of an object in a namespace.
    pub uid: Option<&'a Uid>,
}

impl ObjectLocation<'_> {
    /// Where it lies on the ring of what this field tells apart, if that is known.
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

impl Partition {
    /// The namespace, if the part is one.
    pub fn namespace(&self) -> Option<&Arc<str>> {
        match self {
            Partition::Namespace(namespace) => Some(namespace),
            Partition::Whole | Partition::Shard(_) => None,
        }
    }

    /// Whether something at `site` can belong to this part.
    pub(crate) fn can_hold(&self, site: ObjectLocation<'_>) -> bool {
        match self {
            Partition::Whole => true,
            Partition::Namespace(own) => site.namespace.is_none_or(|namespace| namespace == &**own),
            Partition::Shard(shard) => site.hash(shard.field).is_none_or(|hash| shard.ranges.contains(hash)),
        }
    }

    /// Whether an object of that key and identity belongs to this part.
    pub fn holds(&self, key: &ObjectKey, uid: Option<&Uid>) -> bool {
        match self {
            Partition::Whole => true,
            Partition::Namespace(namespace) => key.namespace() == Some(namespace),
            Partition::Shard(shard) => shard.holds(key, uid),
        }
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Partition::Whole => f.write_str("everything"),
            Partition::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Partition::Shard(shard) => shard.fmt(f),
        }
    }
}

/// Of which parts an informer consists, where these may come and go.
///
/// Of namespaces within shards only those are followed that hash into one of the shards: a source is then asked for
/// each namespace, as it would be without shards.
#[derive(Clone, Debug)]
pub(crate) enum PartitionSet {
    Namespaces(NamespaceSet),
    Shards(ShardSet, ShardField),
    NamespacesWithin(NamespaceSet, ShardSet),
    /// One shard, for good.
    One(Arc<Shard>),
}

/// Tells when members may have come or gone.
pub(crate) struct PartitionChanges {
    namespaces: Option<Receiver<Arc<BTreeSet<String>>>>,
    shards: Option<Receiver<Arc<BTreeMap<ShardId, HashRanges>>>>,
}

impl PartitionSet {
    /// Those of an informer; none if it is one whole. Who names a namespace has said what is meant: of namespaces and
    /// shards, neither narrows that down.
    pub(crate) fn of(
        scope: Scope,
        selection: &Selection,
        namespaces: Option<NamespaceSet>,
        shards: Option<ShardSet>,
    ) -> Option<Self> {
        let named = scope == Scope::Namespaced && selection.namespace.is_some();
        let namespaces = namespaces.filter(|_| scope == Scope::Namespaced && !named);
        let shards = match &selection.shards {
            Shards::Held => shards.filter(|_| !named),
            Shards::Every => None,
            Shards::One(shard) => return Some(PartitionSet::One(Arc::clone(shard))),
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

    /// What tells them apart, if they are shards, or within such.
    pub(crate) fn field(&self) -> Option<ShardField> {
        match self {
            PartitionSet::Namespaces(_) => None,
            PartitionSet::NamespacesWithin(..) => Some(ShardField::Namespace),
            PartitionSet::Shards(_, field) => Some(*field),
            PartitionSet::One(shard) => Some(shard.field),
        }
    }

    /// How they are called in the name of an informer, which says by itself if it is about one shard.
    pub(crate) fn of_what(&self) -> Option<&'static str> {
        match self {
            PartitionSet::Namespaces(_) => Some("of a set of namespaces"),
            PartitionSet::Shards(..) => Some("of a set of shards"),
            PartitionSet::NamespacesWithin(..) => Some("of a set of namespaces within a set of shards"),
            PartitionSet::One(_) => None,
        }
    }

    /// The parts that there are to be.
    pub(crate) fn current(&self) -> BTreeSet<Partition> {
        let namespace = |name: String| Partition::Namespace(name.into());
        match self {
            PartitionSet::Namespaces(namespaces) => namespaces.current().into_iter().map(namespace).collect(),
            PartitionSet::NamespacesWithin(namespaces, shards) => {
                let held = shards.members();
                let within = |name: &String| held.values().any(|ranges| ranges.contains(shard::hash(name)));
                namespaces.current().into_iter().filter(within).map(namespace).collect()
            }
            PartitionSet::Shards(shards, field) => {
                let held = shards.members();
                let held = held.iter().filter(|(_, ranges)| !ranges.is_empty());
                let shard = |(id, ranges): (&ShardId, &HashRanges)| {
                    Partition::Shard(Arc::new(Shard { id: *id, field: *field, ranges: ranges.clone() }))
                };
                held.map(shard).collect()
            }
            PartitionSet::One(shard) => BTreeSet::from([Partition::Shard(Arc::clone(shard))]),
        }
    }

    /// Whether a part that holds what is there is there to be.
    pub(crate) fn expects(&self, site: ObjectLocation<'_>) -> bool {
        let named = |set: &NamespaceSet| site.namespace.is_some_and(|namespace| set.contains(namespace));
        let hash = self.field().and_then(|field| site.hash(field));
        let held = |shards: &ShardSet| hash.and_then(|hash| shards.shard_of(hash)).is_some();
        match self {
            PartitionSet::Namespaces(namespaces) => named(namespaces),
            PartitionSet::NamespacesWithin(namespaces, shards) => named(namespaces) && held(shards),
            PartitionSet::Shards(shards, _) => held(shards),
            PartitionSet::One(shard) => hash.is_some_and(|hash| shard.ranges.contains(hash)),
        }
    }

    /// What they are now counts as seen.
    pub(crate) fn observe(&self) -> PartitionChanges {
        PartitionChanges {
            namespaces: self.namespaces().map(NamespaceSet::observe),
            shards: self.shards().map(ShardSet::observe),
        }
    }

    /// Waits until there is to be no such part.
    pub(crate) async fn lack(&self, partition: &Partition) {
        let mut changes = self.observe();
        while self.current().contains(partition) {
            changes.changed().await;
        }
    }
}

impl PartitionChanges {
    /// Waits for the next change.
    ///
    /// # Cancel safety
    /// A change that was not waited for to the end is told the next time.
    pub(crate) async fn changed(&mut self) {
        let Self { namespaces, shards } = self;
        future::select(pin!(next(namespaces)), pin!(next(shards))).await;
    }
}

async fn next<T: Clone + Send + Sync + 'static>(changes: &mut Option<Receiver<T>>) {
    match changes {
        // It closes only with the last handle on the set: nothing changes any more.
        Some(changes) => match changes.changed().await {
            Ok(_) => {}
            Err(_) => pending().await,
        },
        None => pending().await,
    }
}
