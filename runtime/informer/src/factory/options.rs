//! What the informers of a factory have in common.

use std::any::TypeId;
use std::time::Duration;

use windlass_object::ResourceKind;

use super::kinds::Kinds;
use super::selectors::{Selectors, both};
use crate::list_watch::Selection;
use crate::namespaces::NamespaceSet;
use crate::settings::{InformerSettings, Transform};
use crate::shards::{ShardSet, Shards};

/// What the informers of a factory have in common.
#[derive(Clone, Debug)]
pub struct FactoryOptions {
    /// How often handlers that do not say otherwise ([`HandlerOptions`](crate::HandlerOptions)) are told of every
    /// object although nothing happened; at least [`Resync::SHORTEST`](crate::Resync::SHORTEST). `None` by default:
    /// level-triggered controllers that need another look ask for it themselves, per key.
    pub resync: Option<Duration>,
    /// Whether the objects' `managedFields` are kept. They are dropped by default: hardly anybody reads them, and they
    /// are a third of a typical object.
    pub keep_managed_fields: bool,
    /// How many bytes each informer may hold, counted by what its objects had on the wire. `None` by default: as many
    /// as there are. What does not fit is refused as a whole, see [`Lag::OverBudget`](crate::Lag::OverBudget);
    /// [`SharedInformer::set_byte_budget`](crate::Informer::set_byte_budget) sets that of one informer.
    pub byte_budget: Option<u64>,
    /// The namespaces of every informer that is not asked for with others: of namespaced kinds, that is; kinds without
    /// namespaces ignore it. `None` by default: all of them, in one list and one watch. With a set, each namespace is
    /// listed and watched for itself, so roles in those namespaces are enough.
    pub namespaces: Option<NamespaceSet>,
    /// The shards of every informer that is not asked for [of every shard](Selection::of_every_shard), or in one namespace.
    /// `None` by default: everything, in one list and one watch. With a set, each shard is listed and watched for itself,
    /// and what belongs to none is left out: kinds with namespaces by namespace, others by uid. Together with
    /// [`namespaces`](Self::namespaces), those namespaces are followed that belong to one of the shards.
    pub shards: Option<ShardSet>,
    /// What every informer selects by, next to what it is asked for. Nothing by default.
    pub selectors: Selectors,
    /// What differs for the informers of single kinds. Nothing by default.
    pub kinds: Kinds,
    /// Whether to follow the custom resource definitions, so that a kind that is installed is asked for at once, not
    /// within a minute. Needs the right to list and watch `customresourcedefinitions.apiextensions.k8s.io`, and is off
    /// by default for that. If the factory has an informer of all definitions anyway, that one serves.
    pub follow_definitions: bool,
    /// Tells this factory's random numbers from those of another in the same [`Env`](windlass_env::Env). Two factories
    /// of one name in one Env cannot both start an informer of the same kind.
    pub name: String,
}

impl Default for FactoryOptions {
    fn default() -> Self {
        Self {
            resync: None,
            keep_managed_fields: false,
            byte_budget: None,
            namespaces: None,
            shards: None,
            selectors: Selectors::default(),
            kinds: Kinds::default(),
            follow_definitions: false,
            name: "informers".to_owned(),
        }
    }
}

impl FactoryOptions {
    pub(super) fn settings(&self, kind: &ResourceKind) -> InformerSettings {
        let Self { resync, keep_managed_fields, byte_budget, .. } = *self;
        let of_kind = self.kinds.get(&kind.group_resource());
        InformerSettings {
            resync,
            keep_managed_fields: of_kind.and_then(|it| it.keep_managed_fields).unwrap_or(keep_managed_fields),
            byte_budget: of_kind.and_then(|it| it.byte_budget).or(byte_budget),
        }
    }

    /// The namespaces of informers of this kind.
    pub(super) fn namespaces_of(&self, kind: &ResourceKind) -> Option<NamespaceSet> {
        let of_kind = self.kinds.get(&kind.group_resource()).and_then(|it| it.namespaces.clone());
        of_kind.or_else(|| self.namespaces.clone())
    }

    /// How objects of this type are changed before they are stored.
    pub(super) fn transform(&self, kind: &ResourceKind, object: TypeId) -> Option<Transform> {
        self.kinds.get(&kind.group_resource())?.transform(object)
    }

    /// What an informer selects that is asked for with `selection`: both must hold.
    pub(super) fn narrow(&self, kind: &ResourceKind, selection: Selection) -> Selection {
        let of_kind = self.kinds.get(&kind.group_resource()).and_then(|it| it.selectors.as_ref());
        let Selectors { labels, fields } = of_kind.unwrap_or(&self.selectors);
        self.without_needless_shards(Selection {
            labels: both(selection.labels, labels.as_deref()),
            fields: both(selection.fields, fields.as_deref()),
            namespace: selection.namespace,
            shards: selection.shards,
        })
    }

    /// The same of every shard. Without shards that is the same informer.
    pub(super) fn every_shard(&self, selection: Selection) -> Selection {
        match self.shards {
            Some(_) => selection.of_every_shard(),
            None => selection,
        }
    }

    fn without_needless_shards(&self, mut selection: Selection) -> Selection {
        let needless = self.shards.is_none() && selection.shards == Shards::Every;
        if needless {
            selection.shards = Shards::Held;
        }
        selection
    }
}
