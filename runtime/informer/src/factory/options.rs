//! Options that the informers of a factory share.

use std::any::TypeId;
use std::time::Duration;

use windlass_object::ResourceKind;

use super::kinds::KindOptionsMap;
use super::selectors::{Selectors, both};
use crate::compact::ObjectForm;
use crate::list_watch::Selection;
use crate::namespaces::NamespaceSet;
use crate::settings::{InformerSettings, Transform};
use crate::shards::{ShardSelection, ShardSet};

/// Options that the informers of a factory share.
#[derive(Clone, Debug)]
pub struct FactoryOptions {
    /// The resync period of handlers that set none ([`HandlerOptions`](crate::HandlerOptions)); at least
    /// [`Resync::MIN`](crate::Resync::MIN). `None` by default: a level-triggered handler that processes every event
    /// needs no resync. A manager sets 12 h, because a resync also corrects a mapper or reconcile that dropped a
    /// change.
    pub resync: Option<Duration>,
    /// Whether the objects keep `managedFields`. They are dropped by default: they are a third of a typical object, and
    /// few controllers read them.
    pub keep_managed_fields: bool,
    /// The form in which informers store objects: [compact](ObjectForm::Compact) by default.
    pub form: ObjectForm,
    /// The maximum number of bytes that each informer holds, measured by the size of its objects on the wire. `None` by
    /// default: no limit. A list that exceeds the limit is rejected as a whole, see
    /// [`UnsyncedReason::OverBudget`](crate::UnsyncedReason::OverBudget).
    /// [`Informer::set_byte_budget`](crate::Informer::set_byte_budget) sets the limit of one informer.
    pub byte_budget: Option<u64>,
    /// The namespaces of every informer of a namespaced kind that is not requested with other namespaces. `None` by
    /// default: all namespaces, in one list and one watch. With a set, each namespace has its own list and watch, so
    /// roles in those namespaces are sufficient.
    pub namespaces: Option<NamespaceSet>,
    /// The shards of every informer that is not requested for [every shard](Selection::with_every_shard) or for one
    /// namespace. `None` by default: all objects, in one list and one watch. With a set, each shard has its own list
    /// and watch, and objects of other shards are left out. Namespaced kinds are sharded by namespace, other kinds by
    /// UID. If [`namespaces`](Self::namespaces) is set as well, the informer follows the namespaces of the set that
    /// belong to one of the shards.
    pub shards: Option<ShardSet>,
    /// Selectors of every informer, combined with the selectors of the request. Empty by default.
    pub selectors: Selectors,
    /// Options for single kinds. Empty by default.
    pub kinds: KindOptionsMap,
    /// Whether to watch CustomResourceDefinitions. If true, an informer lists a kind immediately after its CRD is
    /// installed instead of within a minute. Requires permission to list and watch
    /// `customresourcedefinitions.apiextensions.k8s.io`, so it is off by default. If the factory has an informer of all
    /// CRDs, that informer is used.
    pub watch_crds: bool,
    /// The name of this factory. It separates its random numbers from those of another factory in the same
    /// [`Env`](windlass_env::Env). If two factories with the same name in one Env start an informer of the same
    /// kind, the second start panics.
    pub name: String,
}

impl Default for FactoryOptions {
    fn default() -> Self {
        Self {
            resync: None,
            keep_managed_fields: false,
            form: ObjectForm::default(),
            byte_budget: None,
            namespaces: None,
            shards: None,
            selectors: Selectors::default(),
            kinds: KindOptionsMap::default(),
            watch_crds: false,
            name: "informers".to_owned(),
        }
    }
}

impl FactoryOptions {
    pub(super) fn settings(&self, kind: &ResourceKind) -> InformerSettings {
        let Self { resync, keep_managed_fields, form, byte_budget, .. } = *self;
        let of_kind = self.kinds.get(&kind.group_resource());
        InformerSettings {
            resync,
            keep_managed_fields: of_kind.and_then(|it| it.keep_managed_fields).unwrap_or(keep_managed_fields),
            form: of_kind.and_then(|it| it.form).unwrap_or(form),
            byte_budget: of_kind.and_then(|it| it.byte_budget).or(byte_budget),
        }
    }

    /// Returns the namespaces of informers of this kind.
    pub(super) fn namespaces_of(&self, kind: &ResourceKind) -> Option<NamespaceSet> {
        let of_kind = self.kinds.get(&kind.group_resource()).and_then(|it| it.namespaces.clone());
        of_kind.or_else(|| self.namespaces.clone())
    }

    /// Returns the transform of objects of this type.
    pub(super) fn transform(&self, kind: &ResourceKind, object: TypeId) -> Option<Transform> {
        self.kinds.get(&kind.group_resource())?.transform(object)
    }

    /// Returns the selection combined with the selectors of the options: both must match.
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

    /// Returns the selection for every shard. Without shards that is the same informer.
    pub(super) fn every_shard(&self, selection: Selection) -> Selection {
        match self.shards {
            Some(_) => selection.with_every_shard(),
            None => selection,
        }
    }

    fn without_needless_shards(&self, mut selection: Selection) -> Selection {
        let needless = self.shards.is_none() && selection.shards == ShardSelection::Every;
        if needless {
            selection.shards = ShardSelection::Held;
        }
        selection
    }
}
