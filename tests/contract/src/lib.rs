//! One suite of API behaviors, run unchanged against the server in the process and against kube-apiserver.
//!
//! A [`Behavior`] is a sentence and a short program of requests; it sees nothing of the server but what any client
//! sees. `tests/suite.rs` runs all of them on both servers; the binary `contract` runs them on a server that is there
//! already.
//!
//! Guarantees: every behavior has a name and its own namespace; where the two servers differ on purpose, the
//! difference is listed with its reason in [`differences`], and the list is exact.
//!
//! It refuses to normalise what clients match on: messages are compared to the letter.

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

/// Anything that behaves otherwise has failed.
pub type Outcome = Result<(), Error>;

/// One sentence about the API, and the requests that show it.
#[derive(Clone, Copy, Debug)]
pub struct Behavior {
    /// The sentence, words joined by underscores.
    pub name: &'static str,
    /// The requests.
    pub run: fn(Case) -> Pin<Box<dyn Future<Output = Outcome> + Send>>,
}

/// A table of behaviors from the names of their functions.
#[macro_export]
macro_rules! behaviours {
    ($($name:ident),* $(,)?) => {
        &[$($crate::Behavior { name: stringify!($name), run: |case| Box::pin($name(case)) }),*]
    };
}

/// How long one behavior may take, for machines that are busy building.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Whether `name`, as `group::behaviour`, is that of a behavior.
#[must_use]
pub fn is_behaviour(name: &str) -> bool {
    let named = |(group, table): &(&str, &[Behavior])| {
        table.iter().any(|behaviour| name.strip_prefix(group) == Some(&format!("::{}", behaviour.name)))
    };
    behaviours::ALL.iter().any(named)
}

/// Runs `group` on `subject`, `at_once` behaviors at a time; says of each whether it held, and if not, why.
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
        Err(_) => Err(anyhow!("not done after {TIMEOUT:?}")),
    }
}

/// What is wrong with these outcomes of `group`, a line each, given the behaviors in which this server differs on
/// purpose: those have to fail, and in the words that are listed.
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
            "{name}: differs otherwise than is listed: expected {:?} in {error:#}",
            difference.shows
        )),
        (Ok(()), Some(_)) => Some(format!("{name}: listed as a difference, but there is none")),
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
    fn failure_is_complained_of_unless_it_is_listed() {
        assert_eq!(complaints("g", &outcomes(Err(anyhow!("why"))), &[]), ["first: why"]);
        assert!(complaints("g", &outcomes(Err(anyhow!("this is why"))), &[FIRST]).is_empty());
    }

    #[test]
    fn listed_difference_that_shows_otherwise_is_complained_of() {
        let complaints = complaints("g", &outcomes(Err(anyhow!("no namespace"))), &[FIRST]);
        assert_eq!(complaints, ["first: differs otherwise than is listed: expected \"why\" in no namespace"]);
    }

    // parity: fake-client, fake-differs-real-server
    #[test]
    fn listed_difference_that_is_none_is_complained_of() {
        let second = Difference { behaviour: "h::second", ..FIRST };
        let complaints = complaints("g", &outcomes(Ok(())), &[FIRST, second]);
        assert_eq!(complaints, ["first: listed as a difference, but there is none"]);
    }

    #[test]
    fn behaviour_is_known_by_group_and_name() {
        assert!(is_behaviour("create::a_taken_name_is_refused"));
        assert!(!is_behaviour("delete::a_taken_name_is_refused"));
    }
}
