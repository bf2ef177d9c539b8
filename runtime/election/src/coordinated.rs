//! Candidates for elections in which the API server's coordinator chooses the leader.
//!
//! The coordinator reads `LeaseCandidate` objects, periodically checks whether their replicas are alive (a *ping*), and
//! writes the chosen one into the Lease. A candidate states its version, answers pings, and renews itself every few
//! minutes. Its name is the replica's identity, which the coordinator writes as the holder.
//!
//! The candidate fetches its object once per retry period, or once per second if that is shorter, because the
//! coordinator waits 5 s for an answer. It does not watch the object: a stalled watch cannot be distinguished from an
//! idle one for minutes, and the coordinator skips a candidate that does not answer. The cost is one small request per
//! second, and an answer that is up to a second late. The coordinator compares the renew time with its own times, so an
//! answer never states an earlier time than the ping.
//!
//! The coordinator can also lose track of a Lease. For example, it can assign the Lease to a candidate that has just
//! died, and then wait for changes of candidates that never occur. A candidate that observes no leader therefore renews
//! itself once per lease duration.
//!
//! The coordinator does not write an expired Lease again when it chooses the same holder, and does not remove a
//! preferred holder that has died. A candidate therefore releases a Lease that names it and that it could not use, one
//! lease duration after it observed this.
//!
//! The coordinator checks expiry by its own wall clock. If that clock is ahead of a holder's clock, a candidate that
//! has not observed this holder can lead before the holder's fence closes.

use std::time::Duration;

use k8s_openapi::api::coordination::v1beta1::{LeaseCandidate, LeaseCandidateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use windlass_env::watch_channel::{Sender, channel};
use windlass_env::{Env, Instant};
use windlass_object::time;

use crate::config::{CoordinatedConfig, Election};
use crate::error::{ElectionError, LeaseError};
use crate::record::strictly_after;

/// Interval at which an idle candidate renews itself, the same as in client-go. A candidate that was not renewed for
/// half an hour is garbage collected.
const RENEW_INTERVAL: Duration = Duration::from_secs(300);

/// Maximum pause between two fetches.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Next action of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CandidateAction {
    Create,
    Renew,
    Wait,
}

/// This replica as a candidate.
#[derive(Clone)]
pub(crate) struct Candidate {
    env: Env,
    api: Api<LeaseCandidate>,
    name: String,
    lease: String,
    namespace: String,
    config: CoordinatedConfig,
    /// Time since which no replica leads, as observed by the elector. Clones share it.
    leaderless_since: Sender<Option<Instant>>,
    lease_duration: Duration,
    pause: Duration,
    attempt: Duration,
}

impl Candidate {
    /// Returns the candidate of this configuration; `None` without a coordinated election.
    pub(crate) fn of(env: &Env, client: &kube::Client, election: &Election) -> Option<Self> {
        let Election { namespace, config } = election;
        Some(Self {
            env: env.clone(),
            api: Api::namespaced(client.clone(), namespace),
            name: config.identity.clone(),
            lease: config.lease_name.clone(),
            namespace: namespace.clone(),
            config: config.coordinated.clone()?,
            leaderless_since: channel(None).0,
            lease_duration: config.lease_duration,
            pause: config.retry_period.min(MAX_PAUSE),
            attempt: config.attempt(),
        })
    }

    /// Records whether the elector observes a leader.
    pub(crate) fn set_led(&self, led: bool) {
        let since = if led { None } else { self.leaderless_since.get().or_else(|| Some(self.env.now())) };
        if self.leaderless_since.get() != since {
            self.leaderless_since.set(since);
        }
    }

    /// Runs the candidate. Returns only if the API server does not support candidates. Other failures are logged once
    /// and retried.
    ///
    /// # Cancel safety
    /// Safe: another call starts with a fetch.
    pub(crate) async fn run(self) -> ElectionError {
        let (mut renewed, mut last_failure) = (None, None);
        loop {
            match self.maintain(&mut renewed).await {
                Ok(()) => last_failure = None,
                // Only a create returns this, and only if the API is missing, because the namespace exists.
                Err(LeaseError::NotFound(message)) => return ElectionError::NotCoordinated { message },
                Err(LeaseError::Conflict) => {}
                Err(failure) => {
                    let text = failure.to_string();
                    if last_failure.as_ref() != Some(&text) {
                        tracing::warn!(candidate = %self.name, error = %text, "candidate request failed");
                        last_failure = Some(text);
                    }
                }
            }
            self.env.sleep(self.pause).await;
        }
    }

    async fn maintain(&self, renewed: &mut Option<Instant>) -> Result<(), LeaseError> {
        let found = self.bounded(self.api.get_opt(&self.name)).await?;
        let now = self.env.now();
        let forgotten = self.leaderless_since.get().is_some_and(|since| {
            now >= renewed.map_or(since, |renewed| since.max(renewed)) + self.lease_duration
        });
        let step = match next_step(found.as_ref().map(|found| &found.spec), *renewed, now) {
            CandidateAction::Wait if forgotten => CandidateAction::Renew,
            step => step,
        };
        match (step, found) {
            (CandidateAction::Wait, _) => return Ok(()),
            (CandidateAction::Renew, Some(mut found)) => {
                found.spec.renew_time = Some(self.renew_time(found.spec.ping_time.as_ref()));
                let replaced =
                    self.bounded(self.api.replace(&self.name, &PostParams::default(), &found)).await;
                // The object was deleted after the fetch, so this does not concern the API.
                replaced.map_err(|failure| match failure {
                    LeaseError::NotFound(_) => LeaseError::Conflict,
                    failure => failure,
                })?;
            }
            (CandidateAction::Create | CandidateAction::Renew, _) => {
                self.bounded(self.api.create(&PostParams::default(), &self.first())).await?;
            }
        }
        *renewed = Some(now);
        Ok(())
    }

    fn first(&self) -> LeaseCandidate {
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            ..ObjectMeta::default()
        };
        let spec = LeaseCandidateSpec {
            binary_version: self.config.binary_version.clone(),
            emulation_version: Some(self.config.emulation_version.clone()),
            lease_name: self.lease.clone(),
            renew_time: Some(self.renew_time(None)),
            strategy: self.config.strategy.as_str().to_owned(),
            ..LeaseCandidateSpec::default()
        };
        LeaseCandidate { metadata, spec }
    }

    fn renew_time(&self, ping: Option<&MicroTime>) -> MicroTime {
        strictly_after(time::micros(self.env.wall()), ping)
    }

    async fn bounded<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, LeaseError> {
        match self.env.timeout(self.attempt, request).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(LeaseError::Timeout(self.attempt)),
        }
    }
}

/// Returns the next action. `renewed` is the local time of this replica's last write.
fn next_step(found: Option<&LeaseCandidateSpec>, renewed: Option<Instant>, now: Instant) -> CandidateAction {
    let Some(found) = found else { return CandidateAction::Create };
    let is_pinged = match (&found.ping_time, &found.renew_time) {
        (Some(ping), Some(answer)) => ping.0 > answer.0,
        (Some(_), None) => true,
        (None, _) => false,
    };
    let due = renewed.is_none_or(|renewed| now >= renewed + RENEW_INTERVAL);
    if is_pinged || due { CandidateAction::Renew } else { CandidateAction::Wait }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use jiff::Timestamp;
    use kube::client::Body;
    use serde_json::json;
    use tower::{BoxError, service_fn};

    fn spec(ping: Option<i64>, renewed: Option<i64>) -> LeaseCandidateSpec {
        let at = |second: i64| MicroTime(Timestamp::from_second(second).expect("in range"));
        LeaseCandidateSpec {
            ping_time: ping.map(at),
            renew_time: renewed.map(at),
            ..LeaseCandidateSpec::default()
        }
    }

    // parity: test-lease-candidate-creation, coordinated-election-lease-candidate
    #[tokio::test(start_paused = true)]
    async fn candidate_is_created_renewed_and_answers_pings() {
        let now = Env::virtual_time(1).now() + Duration::from_secs(1_000);
        let recently = Some(now - Duration::from_secs(299));
        assert_eq!(next_step(None, recently, now), CandidateAction::Create);
        assert_eq!(next_step(Some(&spec(None, Some(5))), recently, now), CandidateAction::Wait);
        assert_eq!(next_step(Some(&spec(Some(5), Some(5))), recently, now), CandidateAction::Wait);
        assert_eq!(next_step(Some(&spec(Some(6), Some(5))), recently, now), CandidateAction::Renew);
        assert_eq!(next_step(Some(&spec(Some(6), None)), recently, now), CandidateAction::Renew);
        let long_ago = Some(now - Duration::from_secs(300));
        assert_eq!(next_step(Some(&spec(None, Some(5))), long_ago, now), CandidateAction::Renew);
        assert_eq!(next_step(Some(&spec(None, Some(5))), None, now), CandidateAction::Renew);
    }

    fn answer(code: u16, object: &serde_json::Value) -> http::Response<Body> {
        let mut answer = http::Response::new(Body::from(object.to_string().into_bytes()));
        *answer.status_mut() = http::StatusCode::from_u16(code).expect("a status code");
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn candidate_deleted_before_its_renewal_is_recreated() {
        let env = Env::virtual_time(1);
        let methods = Arc::new(Mutex::new(Vec::new()));
        let recorded = methods.clone();
        let service = service_fn(move |request: http::Request<Body>| {
            let mut recorded = recorded.lock().expect("not poisoned");
            recorded.push(request.method().to_string());
            let mut candidate = json!({
                "apiVersion": "coordination.k8s.io/v1beta1", "kind": "LeaseCandidate",
                "metadata": { "name": "me", "namespace": "kube-system", "resourceVersion": "1" },
                "spec": { "leaseName": "windlass", "strategy": "OldestEmulationVersion", "binaryVersion": "1.0.0" },
            });
            let missing = json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound" });
            // Present for the first fetch only, until it is created.
            let created = recorded.iter().any(|method| method == "POST");
            candidate["spec"]["renewTime"] = json!("2026-01-01T00:00:00.000000Z");
            let found = created || recorded.len() == 1;
            std::future::ready(Ok::<_, BoxError>(if found {
                answer(200, &candidate)
            } else {
                answer(404, &missing)
            }))
        });
        let mut config = crate::ElectionConfig::new("me");
        config.coordinated = Some(CoordinatedConfig::new("1.0.0"));
        let client = kube::Client::new(service, "default");
        let candidate = Candidate::of(&env, &client, &config.resolve("kube-system")).expect("coordinated");
        assert!(
            env.timeout(Duration::from_secs(10), candidate.run()).await.is_err(),
            "the candidate keeps running"
        );
        assert_eq!(methods.lock().expect("not poisoned")[..4].join(" "), "GET PUT GET POST");
    }

    // parity: test-lease-candidate-creation
    #[tokio::test(start_paused = true)]
    async fn candidate_without_leader_renews_once_per_lease_duration() {
        let env = Env::virtual_time(1);
        let renewals = Arc::new(Mutex::new(0));
        let recorded = renewals.clone();
        let service = service_fn(move |request: http::Request<Body>| {
            *recorded.lock().expect("not poisoned") += u32::from(request.method() == http::Method::PUT);
            let candidate = json!({
                "apiVersion": "coordination.k8s.io/v1beta1", "kind": "LeaseCandidate",
                "metadata": { "name": "me", "namespace": "kube-system", "resourceVersion": "1" },
                "spec": { "leaseName": "windlass", "strategy": "OldestEmulationVersion", "binaryVersion": "1.0.0" },
            });
            std::future::ready(Ok::<_, BoxError>(answer(200, &candidate)))
        });
        let mut config = crate::ElectionConfig::new("me");
        config.coordinated = Some(CoordinatedConfig::new("1.0.0"));
        let client = kube::Client::new(service, "default");
        let candidate = Candidate::of(&env, &client, &config.resolve("kube-system")).expect("coordinated");
        let stands = async || {
            let stand = candidate.clone().run();
            assert!(
                env.timeout(Duration::from_secs(100), stand).await.is_err(),
                "the candidate keeps running"
            );
            std::mem::take(&mut *renewals.lock().expect("not poisoned"))
        };
        assert_eq!(stands().await, 1, "at the start");
        candidate.set_led(false);
        assert_eq!(stands().await, 1 + 6, "no replica leads");
        candidate.set_led(true);
        assert_eq!(stands().await, 1);
    }
}
