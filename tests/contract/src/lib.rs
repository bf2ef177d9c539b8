//! A suite of API behaviors that runs unchanged against the in-process server and against kube-apiserver.
//!
//! A [`Behavior`] is a sentence and a short sequence of requests that observes the server only as a client does.
//! `tests/suite.rs` runs all behaviors on both servers; the binary `contract` runs them on an existing server.
//!
//! Guarantees: every behavior has a name and its own namespace. Deliberate differences between the servers are listed
//! with their reasons in [`differences`], and the list is exact.
//!
//! Responses that clients match on are not normalized: messages are compared exactly.

pub mod behaviors;
pub mod case;
pub mod check;
pub mod control_plane;
pub mod differences;
pub mod sequences;
pub mod test_server;
pub mod webhooks;

use std::{collections::BTreeMap, pin::Pin, time::Duration};

use anyhow::{Error, anyhow};
use futures_util::{StreamExt as _, stream};

pub use self::{
    case::Case,
    differences::Difference,
    test_server::{TestResponse, TestServer, Watch},
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
macro_rules! behaviors {
    ($($name:ident),* $(,)?) => {
        &[$($crate::Behavior { name: stringify!($name), run: |case| Box::pin($name(case)) }),*]
    };
}

/// Timeout of one behavior, for machines that are busy building.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns whether `name`, as `group::behavior`, is the name of a behavior.
#[must_use]
pub fn is_behavior(name: &str) -> bool {
    let named = |(group, table): &(&str, &[Behavior])| {
        table.iter().any(|behavior| name.strip_prefix(group) == Some(&format!("::{}", behavior.name)))
    };
    behaviors::ALL.iter().any(named)
}

/// Runs `group` on `server`, with `at_once` concurrent behaviors, and returns the outcome of each.
pub async fn run(server: &TestServer, group: &[Behavior], at_once: usize) -> BTreeMap<&'static str, Outcome> {
    stream::iter(group.iter().map(|behavior| async move { (behavior.name, run_one(server, behavior).await) }))
        .buffer_unordered(at_once)
        .collect()
        .await
}

async fn run_one(server: &TestServer, behavior: &Behavior) -> Outcome {
    let case = Case::fresh(server).await?;
    match tokio::time::timeout(TIMEOUT, (behavior.run)(case)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(anyhow!("timed out after {TIMEOUT:?}")),
    }
}

/// Returns the violations in these outcomes of `group`, one line each. Behaviors in `differing` must fail with the
/// listed text.
#[must_use]
pub fn violations(
    group: &str,
    outcomes: &BTreeMap<&'static str, Outcome>,
    differing: &[Difference],
) -> Vec<String> {
    let listed = |name: &str| differing.iter().find(|it| it.behavior == format!("{group}::{name}"));
    let violation = |name: &str, outcome: &Outcome| match (outcome, listed(name)) {
        (Err(error), None) => Some(format!("{name}: {error:#}")),
        (Err(error), Some(difference)) if !format!("{error:#}").contains(difference.failure) => Some(
            format!("{name}: fails differently than listed: expected {:?} in {error:#}", difference.failure),
        ),
        (Ok(()), Some(_)) => Some(format!("{name}: listed as a difference, but it does not fail")),
        (Ok(()), None) | (Err(_), Some(_)) => None,
    };
    outcomes.iter().filter_map(|(name, outcome)| violation(name, outcome)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(first: Outcome) -> BTreeMap<&'static str, Outcome> {
        BTreeMap::from([("first", first), ("second", Ok(()))])
    }

    const FIRST: Difference = Difference { behavior: "g::first", failure: "why", reason: "reason" };

    // parity: fake-client, fake-differs-real-server
    #[test]
    fn failure_is_reported_unless_it_is_listed() {
        assert_eq!(violations("g", &outcomes(Err(anyhow!("why"))), &[]), ["first: why"]);
        assert!(violations("g", &outcomes(Err(anyhow!("this is why"))), &[FIRST]).is_empty());
    }

    #[test]
    fn listed_difference_with_another_failure_is_reported() {
        let violations = violations("g", &outcomes(Err(anyhow!("no namespace"))), &[FIRST]);
        assert_eq!(violations, ["first: fails differently than listed: expected \"why\" in no namespace"]);
    }

    // parity: fake-client, fake-differs-real-server
    #[test]
    fn listed_difference_that_does_not_fail_is_reported() {
        let second = Difference { behavior: "h::second", ..FIRST };
        let violations = violations("g", &outcomes(Ok(())), &[FIRST, second]);
        assert_eq!(violations, ["first: listed as a difference, but it does not fail"]);
    }

    #[test]
    fn behavior_is_found_by_group_and_name() {
        assert!(is_behavior("create::existing_name_is_rejected"));
        assert!(!is_behavior("delete::existing_name_is_rejected"));
    }
}
