//! Detects watches that a client reopens repeatedly without a backoff.
//!
//! The number of openings of a correct client depends on how often its watches end and on the number of events. A limit
//! for the whole run would be too high to detect a one-second loop. So each watch has a budget: an opening costs,
//! elapsed time and new events repay. A watch that delivers new events can be reopened immediately.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use windlass_api_server::faults::{ProcessId, RequestSummary};

use crate::violation::Violation;

/// Cost of an opening. Correct backoffs begin at 0.8 s, on a clock that can be fast by more than half.
const COST: Duration = Duration::from_millis(250);
/// Debt limit for consecutive openings: several clients of one process can watch the same resource.
const DEBT: Duration = Duration::from_secs(10);

/// Budgets of all watches.
#[derive(Default)]
pub(crate) struct WatchRateOracle {
    accounts: Vec<WatchAccount>,
    /// Index of the budget by incarnation and watch.
    known: BTreeMap<(ProcessId, String), usize>,
    /// Index of the budget by request number.
    watches: BTreeMap<u64, usize>,
}

#[derive(Default)]
struct WatchAccount {
    /// Time at which all openings will have been repaid.
    paid_at: Duration,
    times: u64,
    /// Highest version that was delivered.
    newest: u64,
}

/// Fields of an event that show whether it is new.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    object: Object,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

impl WatchRateOracle {
    /// Records that a watch was opened.
    pub(crate) fn opened(
        &mut self,
        at: Duration,
        who: &ProcessId,
        id: u64,
        asked: &RequestSummary,
    ) -> Option<Violation> {
        let watch = watched(asked);
        let index = *self.known.entry((who.clone(), watch.clone())).or_insert_with(|| {
            self.accounts.push(WatchAccount::default());
            self.accounts.len() - 1
        });
        self.watches.insert(id, index);
        let account = &mut self.accounts[index];
        account.times += 1;
        account.paid_at = account.paid_at.max(at) + COST;
        let times = account.times;
        (account.paid_at > at + DEBT).then(|| Violation::Spinning { who: who.to_string(), watch, times, at })
    }

    /// Records a frame of a watch.
    pub(crate) fn told(&mut self, id: u64, frame: &[u8]) {
        let Some(account) = self.watches.get(&id).map(|index| &mut self.accounts[*index]) else { return };
        let event: Event = serde_json::from_slice(frame).unwrap_or_default();
        let version = event.object.metadata.resource_version.parse().unwrap_or_default();
        // A repeated version repays nothing: otherwise a server that replays events would hide the loop.
        if version > account.newest {
            account.newest = version;
            account.paid_at = account.paid_at.saturating_sub(COST);
        }
    }
}

/// Returns the watched path and query, without start version and timeout.
fn watched(asked: &RequestSummary) -> String {
    let (path, query) = asked.uri.split_once('?').unwrap_or((&asked.uri, ""));
    let passing = |pair: &&str| pair.starts_with("resourceVersion=") || pair.starts_with("timeoutSeconds=");
    let lasting: Vec<&str> = query.split('&').filter(|pair| !passing(pair)).collect();
    format!("{path}?{}", lasting.join("&"))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use windlass_object::Verb;

    use super::*;

    fn asked(version: u64) -> RequestSummary {
        RequestSummary {
            method: Method::GET,
            uri: format!(
                "/api/v1/pods?watch=true&resourceVersion={version}&timeoutSeconds={}",
                300 + version % 7
            ),
            verb: Some(Verb::Watch),
            group: String::new(),
            resource: "pods".into(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
            user_agent: String::new(),
        }
    }

    /// Opens a watch `times` times at this pace, each with an event of the given version. Returns the opening that is a
    /// violation.
    fn objection(times: u64, every: Duration, version: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let (mut openings, who) = (WatchRateOracle::default(), ProcessId { instance: "a".into(), life: 0 });
        (0..times).find(|&time| {
            let at = every * u32::try_from(time).expect("few");
            let flaw = openings.opened(at, &who, time, &asked(time));
            if let Some(version) = version(time) {
                let event = format!(
                    r#"{{"type":"ADDED","object":{{"metadata":{{"resourceVersion":"{version}"}}}}}}"#
                );
                openings.told(time, event.as_bytes());
            }
            matches!(flaw, Some(Violation::Spinning { times, .. }) if times == time + 1)
        })
    }

    #[test]
    fn watch_reopened_every_few_milliseconds_is_reported() {
        let pace = Duration::from_millis(5);
        let repeats = |_| Some(7);
        for found in [objection(200, pace, |_| None), objection(200, pace, repeats)] {
            assert!(found.is_some_and(|time| time < 60), "{found:?}");
        }
    }

    #[test]
    fn backoff_or_new_events_prevent_a_report() {
        assert_eq!(
            objection(10_000, Duration::from_millis(400), |_| None),
            None,
            "0.8 s on a clock twice as fast"
        );
        assert_eq!(
            objection(10_000, Duration::from_millis(2), |time| Some(time + 1)),
            None,
            "new events each time"
        );
        assert_eq!(objection(40, Duration::ZERO, |_| None), None, "all clients of a process together");
    }

    #[test]
    fn each_incarnation_and_each_watch_has_its_own_budget() {
        let mut openings = WatchRateOracle::default();
        for number in 0..1_000 {
            let who = ProcessId { instance: "a".into(), life: number };
            assert_eq!(openings.opened(Duration::ZERO, &who, number, &asked(0)), None);
            let other = RequestSummary {
                uri: format!("/api/v1/pods?watch=true&labelSelector=n%3D{number}"),
                ..asked(0)
            };
            let who = ProcessId { instance: "b".into(), life: 0 };
            assert_eq!(openings.opened(Duration::ZERO, &who, 1_000 + number, &other), None);
        }
    }
}
