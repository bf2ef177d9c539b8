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
const OPENING_COST: Duration = Duration::from_millis(250);
/// Debt limit for consecutive openings: several clients of one process can watch the same resource.
const MAX_DEBT: Duration = Duration::from_secs(10);

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
    count: u64,
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
        process: &ProcessId,
        id: u64,
        request: &RequestSummary,
    ) -> Option<Violation> {
        let watch = watched(request);
        let index = *self.known.entry((process.clone(), watch.clone())).or_insert_with(|| {
            self.accounts.push(WatchAccount::default());
            self.accounts.len() - 1
        });
        self.watches.insert(id, index);
        let account = &mut self.accounts[index];
        account.count += 1;
        account.paid_at = account.paid_at.max(at) + OPENING_COST;
        let count = account.count;
        (account.paid_at > at + MAX_DEBT).then(|| Violation::WatchReopenedTooOften {
            process: process.to_string(),
            watch,
            count,
            at,
        })
    }

    /// Records a frame of a watch.
    pub(crate) fn on_frame(&mut self, id: u64, frame: &[u8]) {
        let Some(account) = self.watches.get(&id).map(|index| &mut self.accounts[*index]) else { return };
        let event: Event = serde_json::from_slice(frame).unwrap_or_default();
        let version = event.object.metadata.resource_version.parse().unwrap_or_default();
        // A repeated version repays nothing: otherwise a server that replays events would hide the loop.
        if version > account.newest {
            account.newest = version;
            account.paid_at = account.paid_at.saturating_sub(OPENING_COST);
        }
    }
}

/// Returns the watched path and query, without start version and timeout.
fn watched(request: &RequestSummary) -> String {
    let (path, query) = request.uri.split_once('?').unwrap_or((&request.uri, ""));
    let passing = |pair: &&str| pair.starts_with("resourceVersion=") || pair.starts_with("timeoutSeconds=");
    let lasting: Vec<&str> = query.split('&').filter(|pair| !passing(pair)).collect();
    format!("{path}?{}", lasting.join("&"))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use windlass_object::Verb;

    use super::*;

    fn request(version: u64) -> RequestSummary {
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

    /// Opens a watch `count` times at this pace, each with an event of the given version. Returns the opening that is a
    /// violation.
    fn first_violation(count: u64, every: Duration, version: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let (mut watch_rate, process) =
            (WatchRateOracle::default(), ProcessId { instance: "a".into(), incarnation: 0 });
        (0..count).find(|&time| {
            let at = every * u32::try_from(time).expect("few");
            let violation = watch_rate.opened(at, &process, time, &request(time));
            if let Some(version) = version(time) {
                let event = format!(
                    r#"{{"type":"ADDED","object":{{"metadata":{{"resourceVersion":"{version}"}}}}}}"#
                );
                watch_rate.on_frame(time, event.as_bytes());
            }
            matches!(violation, Some(Violation::WatchReopenedTooOften { count, .. }) if count == time + 1)
        })
    }

    #[test]
    fn watch_reopened_every_few_milliseconds_is_reported() {
        let pace = Duration::from_millis(5);
        let repeats = |_| Some(7);
        for found in [first_violation(200, pace, |_| None), first_violation(200, pace, repeats)] {
            assert!(found.is_some_and(|time| time < 60), "{found:?}");
        }
    }

    #[test]
    fn backoff_or_new_events_prevent_a_report() {
        assert_eq!(
            first_violation(10_000, Duration::from_millis(400), |_| None),
            None,
            "0.8 s on a clock twice as fast"
        );
        assert_eq!(
            first_violation(10_000, Duration::from_millis(2), |time| Some(time + 1)),
            None,
            "new events each time"
        );
        assert_eq!(first_violation(40, Duration::ZERO, |_| None), None, "all clients of a process together");
    }

    #[test]
    fn each_incarnation_and_each_watch_has_its_own_budget() {
        let mut watch_rate = WatchRateOracle::default();
        for number in 0..1_000 {
            let process = ProcessId { instance: "a".into(), incarnation: number };
            assert_eq!(watch_rate.opened(Duration::ZERO, &process, number, &request(0)), None);
            let other = RequestSummary {
                uri: format!("/api/v1/pods?watch=true&labelSelector=n%3D{number}"),
                ..request(0)
            };
            let process = ProcessId { instance: "b".into(), incarnation: 0 };
            assert_eq!(watch_rate.opened(Duration::ZERO, &process, 1_000 + number, &other), None);
        }
    }
}
