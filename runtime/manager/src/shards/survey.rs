//! What the holder of shard 0 looks at for all: what each namespace weighs, whether one is too heavy for any shard, and
//! whether the ring is worth cutting anew.
//!
//! Guarantees:
//! - It looks when it gets shard 0, then every few minutes, and sooner after a look that failed.
//! - A namespace that outweighs a fair share is named whenever it becomes so, whether cuts move or not.
//! - Cuts move only for a division that is much better, and rarely: each one moved costs a hand-over with its drain. A
//!   ring that is still divided evenly was chosen by nobody, and is cut at the first look.
//!
//! A look is cheap where little has changed: it asks for one object of each kind, and for how many more there are. Only
//! when these numbers have moved, or after an hour, are objects counted, in pages of their metadata. The caches here cannot
//! tell, for they hold the shards of one replica.
//!
//! It refuses to move anything itself: it proposes, and the election moves.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use futures_util::future::Either;
use tokio_util::sync::CancellationToken;
use windlass_client::{RawClient, RequestError, one_line};
use windlass_env::{Env, Instant, Rng};
use windlass_informer::{InformerFactory, Shards};
use windlass_object::shard::{Division, HeavyNamespace, hash};
use windlass_object::{ResourceKind, Scope};

use super::weights::Count;
use crate::race::first;

/// Between two looks. Namespaces grow over minutes, and a look may cost a list of everything that has changed since.
const INTERVAL: Duration = Duration::from_secs(300);

/// After a look that failed: as long as it takes an API server to come back.
const RETRY: Duration = Duration::from_secs(30);

/// By how much of itself a pause may be longer, so that clusters and replicas do not ask together.
const JITTER: f64 = 0.2;

/// For how long cuts stay where they are at least: three looks. What comes and goes faster than that is not followed.
const STANDS: Duration = Duration::from_secs(900);

/// How many objects less the heaviest shard must have for cuts to move: fewer are worked on in less time than it takes to
/// drain.
const RELIEF: u64 = 100;

/// Looks, and remembers what it told.
pub(super) struct Survey {
    env: Env,
    rng: Rng,
    reader: RawClient,
    factory: InformerFactory,
    /// The division that counts, and since when it has been seen here.
    division: Option<(Division, Instant)>,
    /// The heavy namespaces that were told of.
    told: BTreeSet<String>,
    failed: bool,
}

/// What a look found, and until when others follow it.
pub(super) struct Found {
    count: Result<Count, RequestError>,
    over: CancellationToken,
}

/// When to look.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum When {
    Now,
    Later(Duration),
}

impl Survey {
    pub(super) fn new(env: Env, factory: InformerFactory, reader: RawClient) -> Self {
        let rng = env.rng("survey of shards");
        Self { env, rng, reader, factory, division: None, told: BTreeSet::new(), failed: false }
    }

    /// The ring is divided so from now on.
    pub(super) fn divided(&mut self, division: Option<&Division>) {
        let known = self.division.as_ref().map(|(division, _)| division);
        if known != division {
            self.division = division.map(|division| (division.clone(), self.env.now()));
        }
    }

    /// The first look; nothing comes of it if shard 0 is let go of before.
    pub(super) fn begin(
        &self,
        over: CancellationToken,
    ) -> impl Future<Output = Option<Found>> + Send + 'static {
        self.look(When::Now, None, over)
    }

    /// The look after one.
    pub(super) fn go_on(&mut self, found: Found) -> impl Future<Output = Option<Found>> + Send + 'static {
        let (pause, last) = match found.count {
            Ok(count) => (INTERVAL, Some(count)),
            Err(_) => (RETRY, None),
        };
        let pause = self.rng.jitter(pause, JITTER);
        self.look(When::Later(pause), last, found.over)
    }

    fn look(
        &self,
        when: When,
        last: Option<Count>,
        over: CancellationToken,
    ) -> impl Future<Output = Option<Found>> + Send + 'static {
        let (env, reader, factory) = (self.env.clone(), self.reader.clone(), self.factory.clone());
        async move {
            let count = async {
                if let When::Later(pause) = when {
                    env.sleep(pause).await;
                }
                Count::renewed(last, &reader, &kinds(&factory)).await
            };
            match first(over.cancelled(), count).await {
                Either::Left(()) => None,
                Either::Right(count) => Some(Found { count, over }),
            }
        }
    }

    /// What to propose after a look: heavy namespaces in any case, other cuts where they are worth it.
    pub(super) fn weigh(&mut self, found: &Found) -> Option<(Division, Vec<HeavyNamespace>)> {
        let count = match &found.count {
            Ok(count) => count,
            Err(error) => {
                if !std::mem::replace(&mut self.failed, true) {
                    tracing::warn!(
                        error = one_line(error),
                        "namespaces cannot be counted: shards stay cut as they are until that succeeds"
                    );
                }
                return None;
            }
        };
        self.failed = false;
        let (division, since) = self.division.clone()?;
        let (better, heavy) = Division::weighted(division.len(), &count.weights);
        self.tell(&heavy);
        let cut = match self.env.now().saturating_duration_since(since) < STANDS {
            true => Cut::Stands,
            false => Cut::MayMove,
        };
        Some((choose(division, better, &count.weights, cut), heavy))
    }

    /// Names the namespaces that became too heavy, and those that no longer are.
    fn tell(&mut self, heavy: &[HeavyNamespace]) {
        for HeavyNamespace { name, weight, fair_share } in heavy {
            if self.told.insert(name.clone()) {
                tracing::warn!(
                    namespace = name,
                    weight,
                    fair_share,
                    "a namespace is heavier than a fair share: no division balances it"
                );
            }
        }
        self.told.retain(|namespace| {
            let is_heavy = heavy.iter().any(|one| one.name == *namespace);
            if !is_heavy {
                tracing::info!(namespace, "a namespace is no longer heavier than a fair share");
            }
            is_heavy
        });
    }
}

/// The kinds whose objects are shared, in order: by namespace or, of those that have none and that each replica sees whole,
/// by name.
fn kinds(factory: &InformerFactory) -> Vec<ResourceKind> {
    let is_shared = |kind: &ResourceKind, shards: &Shards| match kind.scope {
        Scope::Namespaced => *shards == Shards::Held,
        Scope::Cluster => *shards == Shards::Every,
    };
    let all = factory.kinds().into_iter();
    let shared = all.filter(|(kind, selection)| is_shared(kind, &selection.shards)).map(|(kind, _)| kind);
    shared.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Whether cuts have been where they are for long enough.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Cut {
    Stands,
    MayMove,
}

/// The division to have: another only if that is much better, and the present one does not have to stand yet.
fn choose(present: Division, better: Division, weights: &BTreeMap<String, u64>, cut: Cut) -> Division {
    // Nobody has chosen equal ranges, and they are badly unbalanced: any weights are better.
    let is_first = present == Division::even(present.len()) && !weights.is_empty();
    let moves = is_first || cut == Cut::MayMove && is_worth_it(&present, &better, weights);
    if moves { better } else { present }
}

/// Whether the heaviest shard has more than one and a half fair shares, and would have a quarter less. A heavy namespace
/// that no cut divides is worth none.
fn is_worth_it(present: &Division, better: &Division, weights: &BTreeMap<String, u64>) -> bool {
    let total: u64 = weights.values().sum();
    let fair_share = total.div_ceil(u64::from(present.len().get()));
    let (heaviest, then) = (heaviest(present, weights), self::heaviest(better, weights));
    let relief = heaviest.saturating_sub(then);
    let worth =
        heaviest.saturating_mul(2) > fair_share.saturating_mul(3) && relief >= (heaviest / 4).max(RELIEF);
    if worth {
        tracing::info!(
            heaviest,
            then,
            fair_share,
            "shards are cut anew: one has many more objects than it must"
        );
    }
    worth
}

/// The weight of the heaviest shard.
fn heaviest(division: &Division, weights: &BTreeMap<String, u64>) -> u64 {
    let mut loads = vec![0; usize::from(division.len().get())];
    for (namespace, weight) in weights {
        if let Some(load) = loads.get_mut(usize::from(division.shard_of(hash(namespace)).0)) {
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

    fn weighted(weights: &BTreeMap<String, u64>) -> Division {
        Division::weighted(FOUR, weights).0
    }

    /// The weights in which those of one shard of `division` are so many times as heavy.
    fn grown(weights: &BTreeMap<String, u64>, division: &Division, tenths: u64) -> BTreeMap<String, u64> {
        let is_in = |name: &str| division.shard_of(hash(name)).0 == 1;
        let grown = |(name, weight): (&String, &u64)| {
            (name.clone(), if is_in(name) { weight * tenths / 10 } else { *weight })
        };
        weights.iter().map(grown).collect()
    }

    #[test]
    fn cuts_move_for_much_and_not_for_little_and_not_before_they_stood_a_while() {
        let even = tenants(|_| 100);
        let present = weighted(&even);
        for (tenths, cut, moves) in [
            (10, Cut::MayMove, false),
            (14, Cut::MayMove, false),
            (40, Cut::MayMove, true),
            (40, Cut::Stands, false),
        ] {
            let weights = grown(&even, &present, tenths);
            let chosen = choose(present.clone(), weighted(&weights), &weights, cut);
            assert_eq!(chosen != present, moves, "{tenths} tenths, {cut:?}");
            assert!(moves || chosen == present);
        }
        let few = grown(&tenants(|_| 2), &present, 40);
        let chosen = choose(present.clone(), weighted(&few), &few, Cut::MayMove);
        assert_eq!(chosen, present, "of so few objects nobody is relieved");
    }

    #[test]
    fn a_ring_that_nobody_has_cut_is_cut_at_once_unless_there_is_nothing() {
        let (even, weights) = (Division::even(FOUR), tenants(|_| 1));
        assert_eq!(choose(even.clone(), weighted(&weights), &weights, Cut::Stands), weighted(&weights));
        let nothing = BTreeMap::new();
        assert_eq!(choose(even.clone(), weighted(&nothing), &nothing, Cut::MayMove), even);
    }

    #[test]
    fn one_namespace_that_outweighs_all_others_moves_no_cut_that_would_not_relieve_it() {
        let weights = tenants(|number| if number == 7 { 100_000 } else { 10 });
        let present = weighted(&tenants(|_| 10));
        assert_eq!(choose(present.clone(), weighted(&weights), &weights, Cut::MayMove), present);
    }

    #[test]
    fn what_moved_once_stays_whatever_the_weights_were() {
        for seed in 0..200 {
            let before = tenants(|number| (number * 7 + seed * 13) % 1_000);
            let after = tenants(|number| (number * 131 + seed * 17) % 5_000);
            let present = choose(weighted(&before), weighted(&after), &after, Cut::MayMove);
            assert_eq!(choose(present.clone(), weighted(&after), &after, Cut::MayMove), present);
        }
    }
}
