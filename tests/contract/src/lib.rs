//! A suite of API behaviors that runs unchanged against the in-process server and against kube-apiserver.
//!
//! A [`Behavior`] is a sentence and a short sequence of requests that observes the server only as a client does.
//! `tests/suite.rs` runs all behaviors on both servers; the binary `contract` runs them on an existing server.
//!
//! Guarantees: every behavior has a name and its own namespace. Deliberate differences between the servers are listed
//! with their reasons in [`differences`], and the list is exact.
//!
//! Responses that clients match on are not normalized: messages are compared exactly.

pub mod behaviours;
pub mod case;
pub mod check;
pub mod differences;
pub mod plane;
pub mod subject;

use std::{collections::BTreeMap, pin::Pin, time::Duration};

use anyhow::{Error, anyhow};
use futures_util::{StreamExt as _, stream};

pub use self::{
    case::Case,
    differences::Difference,
    subject::{TestResponse, TestServer, Watch},
};

/// Result of a behavior; an error is a deviation.
pub type Outcome = Result<(), Error>;

/// One sentence about the API, and the requests that verify it.
#[derive(Clone, Copy, Debug)]
pub struct Behavior {
    /// The sentence, with words joined by underscores.
    pub name: &'static str,
    /// Requests and checks.
    pub run: fn(Case) -> Pin<Box<dyn Future<Output = Outcome> + Send>>,
}

/// Creates a table of behaviors from the names of their functions.
#[macro_export]
macro_rules! behaviours {
    ($($name:ident),* $(,)?) => {
        &[$($crate::Behavior { name: stringify!($name), run: |case| Box::pin($name(case)) }),*]
    };
}

/// Timeout of one behavior, for machines that are busy building.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns whether `name`, as `group::behavior`, is the name of a behavior.
#[must_use]
pub fn is_behaviour(name: &str) -> bool {
    let named = |(group, table): &(&str, &[Behavior])| {
        table.iter().any(|behaviour| name.strip_prefix(group) == Some(&format!("::{}", behaviour.name)))
    };
    behaviours::ALL.iter().any(named)
}

/// Runs `group` on `subject`, with `at_once` concurrent behaviors, and returns the outcome of each.
pub async fn run(
    subject: &TestServer,
    group: &[Behavior],
    at_once: usize,
) -> BTreeMap<&'static str, Outcome> {
    stream::iter(
        group.iter().map(|behaviour| async move { (behaviour.name, run_one(subject, behaviour).await) }),
    )
    .buffer_unordered(at_once)
    .collect()
    .await
}

async fn run_one(subject: &TestServer, behaviour: &Behavior) -> Outcome {
    let case = Case::fresh(subject).await?;
    match tokio::time::timeout(TIMEOUT, (behaviour.run)(case)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(anyhow!("timed out after {TIMEOUT:?}")),
    }
}

/// Returns the violations in these outcomes of `group`, one line each. Behaviors in `differing` must fail with the
/// listed text.
#[must_use]
pub fn complaints(
    group: &str,
    outcomes: &BTreeMap<&'static str, Outcome>,
    differing: &[Difference],
) -> Vec<String> {
    let listed = |name: &str| differing.iter().find(|it| it.behaviour == format!("{group}::{name}"));
    let complaint = |name: &str, outcome: &Outcome| match (outcome, listed(name)) {
        (Err(error), None) => Some(format!("{name}: {error:#}")),
        (Err(error), Some(difference)) if !format!("{error:#}").contains(difference.shows) => Some(format!(
            "{name}: fails differently than listed: expected {:?} in {error:#}",
            difference.shows
        )),
        (Ok(()), Some(_)) => Some(format!("{name}: listed as a difference, but it does not fail")),
        (Ok(()), None) | (Err(_), Some(_)) => None,
    };
    outcomes.iter().filter_map(|(name, outcome)| complaint(name, outcome)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(first: Outcome) -> BTreeMap<&'static str, Outcome> {
        BTreeMap::from([("first", first), ("second", Ok(()))])
    }

    const FIRST: Difference = Difference { behaviour: "g::first", shows: "why", reason: "reason" };

    // parity: fake-client, fake-differs-real-server
    #[test]
    fn failure_is_reported_unless_it_is_listed() {
        assert_eq!(complaints("g", &outcomes(Err(anyhow!("why"))), &[]), ["first: why"]);
        assert!(complaints("g", &outcomes(Err(anyhow!("this is why"))), &[FIRST]).is_empty());
    }

    #[test]
    fn listed_difference_with_another_failure_is_reported() {
        let complaints = complaints("g", &outcomes(Err(anyhow!("no namespace"))), &[FIRST]);
        assert_eq!(complaints, ["first: fails differently than listed: expected \"why\" in no namespace"]);
    }

    // parity: fake-client, fake-differs-real-server
    #[test]
    fn listed_difference_that_does_not_fail_is_reported() {
        let second = Difference { behaviour: "h::second", ..FIRST };
        let complaints = complaints("g", &outcomes(Ok(())), &[FIRST, second]);
        assert_eq!(complaints, ["first: listed as a difference, but it does not fail"]);
    }

    #[test]
    fn behavior_is_found_by_group_and_name() {
        assert!(is_behaviour("create::a_taken_name_is_refused"));
        assert!(!is_behaviour("delete::a_taken_name_is_refused"));
    }
}
