//! What a queue can be told: who is limited how, what ages, and who shares with whom.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Key;
use crate::limiter::{RateLimiter, default_limiter};

/// What a queue is made with.
pub struct QueueOptions<K> {
    /// How long a failing key waits. By default [`default_limiter`].
    pub limiter: Box<dyn RateLimiter<K>>,
    /// What keeps low priorities from starving. `None` is strict priority: a level is served only when every higher
    /// one is empty.
    pub ageing: Option<Ageing>,
    /// Which keys share a turn. By default all do.
    pub tenancy: Tenancy<K>,
}

impl<K: Key> Default for QueueOptions<K> {
    fn default() -> Self {
        QueueOptions { limiter: default_limiter(), ageing: Some(Ageing::default()), tenancy: Tenancy::none() }
    }
}

impl<K> fmt::Debug for QueueOptions<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limiter: _, ageing, tenancy } = self;
        f.debug_struct("QueueOptions")
            .field("ageing", ageing)
            .field("tenancy", tenancy)
            .finish_non_exhaustive()
    }
}

/// What keeps a low priority from starving: once the next key of a level has waited for `after`, while a higher level
/// has keys too, every `share`th turn is the lower level's. Of several such levels, the one whose next key has waited
/// longest.
///
/// So a key of low priority waits for `after`, and then for at most `share` turns per key before it that waits as
/// long; and the higher level keeps all other turns, however long the lower one's line is. A key that is raised goes to
/// the back of its new level, where younger ones may be before it: it waits for at most `after` once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ageing {
    /// How long a level's next key waits before it claims a turn.
    pub after: Duration,
    /// Every how many turns the claim is granted. One means always; zero is taken as one.
    pub share: u32,
}

impl Default for Ageing {
    /// Ten seconds hide the bursts that priorities are for, and are short beside the minutes after which people
    /// notice; an eighth of the workers' turns is little to take and much to get.
    fn default() -> Self {
        Ageing { after: Duration::from_secs(10), share: 8 }
    }
}

type NameOf<K> = dyn for<'k> Fn(&'k K) -> &'k str + Send + Sync;

/// Whose key is whose: keys of one priority are handed out by tenant in turn, each as many at a time as its weight
/// says, so that a tenant with a hundred thousand keys waiting cannot make another wait for them.
pub struct Tenancy<K> {
    name: Option<Arc<NameOf<K>>>,
    weights: BTreeMap<String, u32>,
}

impl<K> Tenancy<K> {
    /// All keys belong to one.
    pub fn none() -> Self {
        Tenancy { name: None, weights: BTreeMap::new() }
    }

    /// A key belongs to the tenant that `name` says; each has the weight 1 until told otherwise. `name` runs under
    /// the queue's lock, once per key that enters: let it read a field, and keep it away from the queue.
    pub fn by(name: impl for<'k> Fn(&'k K) -> &'k str + Send + Sync + 'static) -> Self {
        Tenancy { name: Some(Arc::new(name)), weights: BTreeMap::new() }
    }

    /// Gives `tenant` `weight` turns where others have one. Zero is taken as one: nobody is shut out.
    #[must_use]
    pub fn weight(mut self, tenant: impl Into<String>, weight: u32) -> Self {
        self.weights.insert(tenant.into(), weight.max(1));
        self
    }

    /// The tenant of `key`; none when all keys belong to one.
    pub(crate) fn tenant<'k>(&self, key: &'k K) -> Option<&'k str> {
        self.name.as_ref().map(|name| name(key))
    }

    pub(crate) fn weight_of(&self, tenant: &str) -> u32 {
        self.weights.get(tenant).copied().unwrap_or(1)
    }
}

impl<K> Clone for Tenancy<K> {
    fn clone(&self) -> Self {
        Tenancy { name: self.name.clone(), weights: self.weights.clone() }
    }
}

impl<K> fmt::Debug for Tenancy<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenancy")
            .field("by_name", &self.name.is_some())
            .field("weights", &self.weights)
            .finish()
    }
}
