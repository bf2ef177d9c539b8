//! Watches that are opened again and again: who does so without a wait spins.
//!
//! How often an honest process opens a watch depends on how often it ends, and on how much it tells each time: a bound
//! for a whole run would have to allow for so much that a loop of a second went unseen. So each watch has an account.
//! An opening costs, time pays, and so does news: a watch that brings something new may be opened again at once.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use windlass_api_server::faults::{ProcessId, RequestSummary};

use crate::violation::Violation;

/// What an opening costs. Honest waits begin at 0.8 s, on a clock that may be fast by half and more.
const COST: Duration = Duration::from_millis(250);
/// Up to what debt watches may be opened in a row: several clients of one process may watch the same.
const DEBT: Duration = Duration::from_secs(10);

/// The accounts of all watches.
#[derive(Default)]
pub(crate) struct WatchRateOracle {
    accounts: Vec<WatchAccount>,
    /// By life and what is watched.
    known: BTreeMap<(ProcessId, String), usize>,
    /// By the number of the request.
    watches: BTreeMap<u64, usize>,
}

#[derive(Default)]
struct WatchAccount {
    /// When all openings will have been paid for.
    paid_at: Duration,
    times: u64,
    /// The highest version that was told.
    newest: u64,
}

/// As much of an event as tells whether it is news.
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
    /// A watch is opened.
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

    /// A watch tells something.
    pub(crate) fn told(&mut self, id: u64, frame: &[u8]) {
        let Some(account) = self.watches.get(&id).map(|index| &mut self.accounts[*index]) else { return };
        let event: Event = serde_json::from_slice(frame).unwrap_or_default();
        let version = event.object.metadata.resource_version.parse().unwrap_or_default();
        // What was told before is no news: a server that repeats itself could be asked forever.
        if version > account.newest {
            account.newest = version;
            account.paid_at = account.paid_at.saturating_sub(COST);
        }
    }
}

/// What is watched, without from where on and for how long.
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

    /// Opens a watch so many times at this pace, each of which tells of one version; how often it took to object.
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
    fn watch_opened_every_few_milliseconds_is_found_before_a_second_is_over() {
        let pace = Duration::from_millis(5);
        let repeats = |_| Some(7);
        for found in [objection(200, pace, |_| None), objection(200, pace, repeats)] {
            assert!(found.is_some_and(|time| time < 60), "{found:?}");
        }
    }

    #[test]
    fn waits_and_news_are_honest() {
        assert_eq!(
            objection(10_000, Duration::from_millis(400), |_| None),
            None,
            "0.8 s on a clock twice as fast"
        );
        assert_eq!(
            objection(10_000, Duration::from_millis(2), |time| Some(time + 1)),
            None,
            "news each time"
        );
        assert_eq!(objection(40, Duration::ZERO, |_| None), None, "all clients of a process at once");
    }

    #[test]
    fn each_life_and_each_watch_has_an_account_of_its_own() {
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
