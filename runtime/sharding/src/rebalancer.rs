//! The rebalancer on the holder of shard 0: it counts the objects of each namespace, reports namespaces that exceed a
//! fair share, and proposes a better division.
//!
//! Guarantees:
//! - It counts when this replica acquires shard 0, then every few minutes, and earlier after a failed count.
//! - A namespace that exceeds a fair share is reported, whether or not the division changes.
//! - The division changes rarely, and only for a large improvement, because each shard that moves is drained. An even
//!   division is replaced at the first count.
//!
//! A count is cheap if little has changed: it lists one object of each kind, with the total. Only if the totals have
//! changed, or after an hour, all objects are counted, in pages of their metadata. The caches of this replica do not
//! suffice, because they contain only its shards.
//!
//! It does not move shards: the election moves them once the proposal is in the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass_client::{RawClient, RequestError, one_line};
use windlass_env::{Env, Instant, Rng};
use windlass_informer::{InformerFactory, ShardSelection};
use windlass_object::shard::{HeavyNamespace, ShardMap, hash};
use windlass_object::{ResourceKind, Scope};

use crate::namespace_counts::NamespaceCounts;

/// The time between two counts. Namespaces grow over minutes, and a count can list all objects.
const INTERVAL: Duration = Duration::from_secs(300);

/// The time after a failed count, in which an API server can restart.
const RETRY: Duration = Duration::from_secs(30);

/// The part by which a pause is longer at most, so that clusters and replicas do not count at the same time.
const JITTER: f64 = 0.2;

/// The minimum time between two changes of the division: three counts. Shorter peaks are ignored.
const COOLDOWN: Duration = Duration::from_secs(900);

/// The minimum number of objects that a change takes from the heaviest shard: fewer are reconciled faster than a shard
/// is drained.
const MIN_RELIEF: u64 = 100;

/// Counts objects and proposes divisions.
pub struct Rebalancer {
    env: Env,
    rng: Rng,
    reader: RawClient,
    factory: InformerFactory,
    /// The division of the plan, and when it was first observed.
    shard_map: Option<(ShardMap, Instant)>,
    /// The heavy namespaces that were logged.
    logged: BTreeSet<String>,
    has_failed: bool,
}

/// The result of a count.
#[derive(Debug)]
pub struct CountOutcome {
    counts: Result<NamespaceCounts, RequestError>,
    cancel: CancellationToken,
}

/// The time of the next count.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum NextCount {
    Now,
    After(Duration),
}

impl Rebalancer {
    /// Returns a rebalancer that counts the objects of the kinds in `factory`.
    pub fn new(env: Env, factory: InformerFactory, reader: RawClient) -> Self {
        let rng = env.rng("survey of shards");
        Self { env, rng, reader, factory, shard_map: None, logged: BTreeSet::new(), has_failed: false }
    }

    /// Sets the division of the plan.
    pub fn set_shard_map(&mut self, shard_map: Option<&ShardMap>) {
        let known = self.shard_map.as_ref().map(|(shard_map, _)| shard_map);
        if known != shard_map {
            self.shard_map = shard_map.map(|shard_map| (shard_map.clone(), self.env.now()));
        }
    }

    /// Counts for the first time; the result is `None` if `cancel` is canceled before.
    pub fn first_count(
        &self,
        cancel: CancellationToken,
    ) -> impl Future<Output = Option<CountOutcome>> + Send + 'static {
        self.count(NextCount::Now, None, cancel)
    }

    /// Counts again after a pause.
    pub fn next_count(
        &mut self,
        last: CountOutcome,
    ) -> impl Future<Output = Option<CountOutcome>> + Send + 'static {
        let (pause, counts) = match last.counts {
            Ok(counts) => (INTERVAL, Some(counts)),
            Err(_) => (RETRY, None),
        };
        let pause = self.rng.jitter(pause, JITTER);
        self.count(NextCount::After(pause), counts, last.cancel)
    }

    fn count(
        &self,
        next: NextCount,
        last: Option<NamespaceCounts>,
        cancel: CancellationToken,
    ) -> impl Future<Output = Option<CountOutcome>> + Send + 'static {
        let (env, reader, factory) = (self.env.clone(), self.reader.clone(), self.factory.clone());
        async move {
            let count = async {
                if let NextCount::After(pause) = next {
                    env.sleep(pause).await;
                }
                NamespaceCounts::refresh(last, &reader, &sharded_kinds(&factory)).await
            };
            let counts = tokio::select! {
                biased;
                () = cancel.cancelled() => return None,
                counts = count => counts,
            };
            Some(CountOutcome { counts, cancel })
        }
    }

    /// Returns the proposal after a count: the heavy namespaces, and another division if it is much better.
    pub fn proposal(&mut self, outcome: &CountOutcome) -> Option<(ShardMap, Vec<HeavyNamespace>)> {
        let weights = match &outcome.counts {
            Ok(counts) => &counts.weights,
            Err(error) => {
                self.log_failure(error);
                return None;
            }
        };
        self.has_failed = false;
        let (shard_map, since) = self.shard_map.clone()?;
        let (better, heavy) = ShardMap::weighted(shard_map.len(), weights);
        self.log_heavy(&heavy);
        let cooldown = match self.env.now().saturating_duration_since(since) < COOLDOWN {
            true => Cooldown::Running,
            false => Cooldown::Over,
        };
        Some((choose(shard_map, better, weights, cooldown), heavy))
    }

    fn log_failure(&mut self, error: &RequestError) {
        if !std::mem::replace(&mut self.has_failed, true) {
            let error = one_line(error);
            tracing::warn!(error, "count of objects failed; keeping the shard map");
        }
    }

    /// Logs the namespaces that became too heavy, and those that no longer are.
    fn log_heavy(&mut self, heavy: &[HeavyNamespace]) {
        for HeavyNamespace { name, weight, fair_share } in heavy {
            if self.logged.insert(name.clone()) {
                tracing::warn!(
                    namespace = name,
                    weight,
                    fair_share,
                    "namespace exceeds a fair share; no shard map can balance it"
                );
            }
        }
        self.logged.retain(|namespace| {
            let is_heavy = heavy.iter().any(|one| one.name == *namespace);
            if !is_heavy {
                tracing::info!(namespace, "namespace no longer exceeds a fair share");
            }
            is_heavy
        });
    }
}

impl fmt::Debug for Rebalancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rebalancer").field("shard_map", &self.shard_map).finish_non_exhaustive()
    }
}

/// Returns the kinds whose keys are sharded, in order: namespaced kinds, and kinds without namespaces that each replica
/// caches completely.
fn sharded_kinds(factory: &InformerFactory) -> Vec<ResourceKind> {
    let is_sharded = |kind: &ResourceKind, shards: &ShardSelection| match kind.scope {
        Scope::Namespaced => *shards == ShardSelection::Held,
        Scope::Cluster => *shards == ShardSelection::Every,
    };
    let all = factory.kinds().into_iter();
    let sharded = all.filter(|(kind, selection)| is_sharded(kind, &selection.shards)).map(|(kind, _)| kind);
    sharded.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Whether the division changed recently.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Cooldown {
    Running,
    Over,
}

/// Returns `better` if it is much better and the cooldown is over, otherwise `present`.
fn choose(
    present: ShardMap,
    better: ShardMap,
    weights: &BTreeMap<String, u64>,
    cooldown: Cooldown,
) -> ShardMap {
    // An even division was not chosen by weight, and is badly balanced.
    let is_first = present == ShardMap::even(present.len()) && !weights.is_empty();
    let changes = is_first || cooldown == Cooldown::Over && is_worth_it(&present, &better, weights);
    if changes { better } else { present }
}

/// Returns whether the heaviest shard has more than 1.5 fair shares, and would have 25 % less. A single heavy namespace
/// cannot be divided.
fn is_worth_it(present: &ShardMap, better: &ShardMap, weights: &BTreeMap<String, u64>) -> bool {
    let total: u64 = weights.values().sum();
    let fair_share = total.div_ceil(u64::from(present.len().get()));
    let (heaviest, then) = (heaviest(present, weights), self::heaviest(better, weights));
    let relief = heaviest.saturating_sub(then);
    let is_worth_it =
        heaviest.saturating_mul(2) > fair_share.saturating_mul(3) && relief >= (heaviest / 4).max(MIN_RELIEF);
    if is_worth_it {
        tracing::info!(heaviest, then, fair_share, "rebalancing; one shard far exceeds its fair share");
    }
    is_worth_it
}

/// Returns the weight of the heaviest shard.
fn heaviest(shard_map: &ShardMap, weights: &BTreeMap<String, u64>) -> u64 {
    let mut loads = vec![0; usize::from(shard_map.len().get())];
    for (namespace, weight) in weights {
        if let Some(load) = loads.get_mut(usize::from(shard_map.shard_of(hash(namespace)).0)) {
            *load += *weight;
        }
    }
    loads.into_iter().max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    const FOUR: NonZeroU16 = NonZeroU16::new(4).expect("some");

    fn tenants(weight: impl Fn(u64) -> u64) -> BTreeMap<String, u64> {
        (0..40).map(|number| (format!("tenant-{number}"), weight(number))).collect()
    }

    fn weighted(weights: &BTreeMap<String, u64>) -> ShardMap {
        ShardMap::weighted(FOUR, weights).0
    }

    /// Multiplies the weights in one shard of `shard_map`.
    fn grown(weights: &BTreeMap<String, u64>, shard_map: &ShardMap, tenths: u64) -> BTreeMap<String, u64> {
        let is_in = |name: &str| shard_map.shard_of(hash(name)).0 == 1;
        let grown = |(name, weight): (&String, &u64)| {
            (name.clone(), if is_in(name) { weight * tenths / 10 } else { *weight })
        };
        weights.iter().map(grown).collect()
    }

    // parity: elected-stays-however-work
    #[test]
    fn division_changes_only_for_large_gain_after_cooldown() {
        let even = tenants(|_| 100);
        let present = weighted(&even);
        for (tenths, cooldown, changes) in [
            (10, Cooldown::Over, false),
            (14, Cooldown::Over, false),
            (40, Cooldown::Over, true),
            (40, Cooldown::Running, false),
        ] {
            let weights = grown(&even, &present, tenths);
            let chosen = choose(present.clone(), weighted(&weights), &weights, cooldown);
            assert_eq!(chosen != present, changes, "{tenths} tenths, {cooldown:?}");
            assert!(changes || chosen == present);
        }
        let few = grown(&tenants(|_| 2), &present, 40);
        let chosen = choose(present.clone(), weighted(&few), &few, Cooldown::Over);
        assert_eq!(chosen, present, "too few objects");
    }

    #[test]
    fn even_division_is_replaced_at_first_count() {
        let (even, weights) = (ShardMap::even(FOUR), tenants(|_| 1));
        assert_eq!(choose(even.clone(), weighted(&weights), &weights, Cooldown::Running), weighted(&weights));
        let nothing = BTreeMap::new();
        assert_eq!(choose(even.clone(), weighted(&nothing), &nothing, Cooldown::Over), even);
    }

    #[test]
    fn single_heavy_namespace_does_not_change_division() {
        let weights = tenants(|number| if number == 7 { 100_000 } else { 10 });
        let present = weighted(&tenants(|_| 10));
        assert_eq!(choose(present.clone(), weighted(&weights), &weights, Cooldown::Over), present);
    }

    #[test]
    fn chosen_division_is_stable_for_same_weights() {
        for seed in 0..200 {
            let before = tenants(|number| (number * 7 + seed * 13) % 1_000);
            let after = tenants(|number| (number * 131 + seed * 17) % 5_000);
            let present = choose(weighted(&before), weighted(&after), &after, Cooldown::Over);
            assert_eq!(choose(present.clone(), weighted(&after), &after, Cooldown::Over), present);
        }
    }
}
