//! Standing as a candidate where the API server's coordinator chooses who leads.
//!
//! The coordinator reads `LeaseCandidate` objects, asks them from time to time whether their replicas still live (a
//! *ping*), and writes the one that it chooses into the Lease. A candidate says what version it is, answers pings, and
//! renews itself every few minutes. It is named after the replica's identity, which is what the coordinator writes.
//!
//! The object is fetched once per retry period, or second where that is shorter: the coordinator waits 5 s for an answer.
//! It is not watched, on purpose: a watch that has stalled looks like one on which nothing happens, for minutes, and a
//! candidate that does not answer is passed over. The price is one small request a second, and an answer that comes up to a
//! second later than it could.
//! When it was renewed is compared by the coordinator with times of its own, so an answer never states an earlier time
//! than the question.
//!
//! The coordinator may also forget about a Lease: it gives it to a candidate that died a moment ago, say, and then waits for
//! news of candidates which do not come. So a candidate that sees nobody lead renews itself once per lease duration.
//!
//! An expired Lease is not written again when the coordinator chooses the same holder as before, and a preferred holder
//! that has died since is never removed from it. So a candidate releases a Lease that names it and that it could not use,
//! one lease duration after it saw that.
//!
//! The coordinator judges expiry by its own wall clock. If that clock is ahead of a holder's, a candidate that has not
//! observed this holder can lead before the holder's fence closes.

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

/// How long a candidate that is not asked goes without renewing itself. Upstream's; one that has not been renewed for
/// half an hour is collected.
const RENEWED_INTERVAL: Duration = Duration::from_secs(300);

/// The longest pause between two looks.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// What a candidate does next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ElectionAction {
    Create,
    Renew,
    Rest,
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
    /// Since when nobody leads, as far as its elector sees. Clones share it.
    unled_since: Sender<Option<Instant>>,
    lease_duration: Duration,
    pause: Duration,
    attempt: Duration,
}

impl Candidate {
    /// The candidate of this configuration, if it is one of a coordinated election.
    pub(crate) fn of(env: &Env, client: &kube::Client, election: &Election) -> Option<Self> {
        let Election { namespace, config } = election;
        Some(Self {
            env: env.clone(),
            api: Api::namespaced(client.clone(), namespace),
            name: config.identity.clone(),
            lease: config.lease_name.clone(),
            namespace: namespace.clone(),
            config: config.coordinated.clone()?,
            unled_since: channel(None).0,
            lease_duration: config.lease_duration,
            pause: config.retry_period.min(MAX_PAUSE),
            attempt: config.attempt(),
        })
    }

    /// Its elector sees that somebody leads, or nobody.
    pub(crate) fn note(&self, led: bool) {
        let since = if led { None } else { self.unled_since.get().or_else(|| Some(self.env.now())) };
        if self.unled_since.get() != since {
            self.unled_since.set(since);
        }
    }

    /// Stands until the API server says that it knows no candidates. Other failures are logged once each and tried again.
    ///
    /// # Cancel safety
    /// Safe: whoever stands again looks first.
    pub(crate) async fn stand(self) -> ElectionError {
        let (mut renewed, mut complaint) = (None, None);
        loop {
            match self.look_after(&mut renewed).await {
                Ok(()) => complaint = None,
                // Only a creation ends so, and for no other reason once the namespace exists.
                Err(LeaseError::NotFound(message)) => return ElectionError::NotCoordinated { message },
                Err(LeaseError::Conflict) => {}
                Err(failure) => {
                    let told = failure.to_string();
                    if complaint.as_ref() != Some(&told) {
                        tracing::warn!(candidate = %self.name, error = %told, "cannot stand as a candidate");
                        complaint = Some(told);
                    }
                }
            }
            self.env.sleep(self.pause).await;
        }
    }

    async fn look_after(&self, renewed: &mut Option<Instant>) -> Result<(), LeaseError> {
        let found = self.bounded(self.api.get_opt(&self.name)).await?;
        let now = self.env.now();
        let forgotten = self.unled_since.get().is_some_and(|since| {
            now >= renewed.map_or(since, |renewed| since.max(renewed)) + self.lease_duration
        });
        let step = match next_step(found.as_ref().map(|found| &found.spec), *renewed, now) {
            ElectionAction::Rest if forgotten => ElectionAction::Renew,
            step => step,
        };
        match (step, found) {
            (ElectionAction::Rest, _) => return Ok(()),
            (ElectionAction::Renew, Some(mut found)) => {
                found.spec.renew_time = Some(self.stamp(found.spec.ping_time.as_ref()));
                let replaced =
                    self.bounded(self.api.replace(&self.name, &PostParams::default(), &found)).await;
                // It was deleted since it was fetched, which says nothing of the server.
                replaced.map_err(|failure| match failure {
                    LeaseError::NotFound(_) => LeaseError::Conflict,
                    failure => failure,
                })?;
            }
            (ElectionAction::Create | ElectionAction::Renew, _) => {
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
            renew_time: Some(self.stamp(None)),
            strategy: self.config.strategy.as_str().to_owned(),
            ..LeaseCandidateSpec::default()
        };
        LeaseCandidate { metadata, spec }
    }

    fn stamp(&self, ping: Option<&MicroTime>) -> MicroTime {
        strictly_after(time::micros(self.env.wall()), ping)
    }

    async fn bounded<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, LeaseError> {
        match self.env.timeout(self.attempt, request).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(LeaseError::Timeout(self.attempt)),
        }
    }
}

/// `renewed` is when this replica last wrote it, by the local clock.
fn next_step(found: Option<&LeaseCandidateSpec>, renewed: Option<Instant>, now: Instant) -> ElectionAction {
    let Some(found) = found else { return ElectionAction::Create };
    let asked = match (&found.ping_time, &found.renew_time) {
        (Some(ping), Some(answer)) => ping.0 > answer.0,
        (Some(_), None) => true,
        (None, _) => false,
    };
    let due = renewed.is_none_or(|renewed| now >= renewed + RENEWED_INTERVAL);
    if asked || due { ElectionAction::Renew } else { ElectionAction::Rest }
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
    async fn candidate_is_created_renewed_every_five_minutes_and_at_once_when_it_is_asked() {
        let now = Env::virtual_time(1).now() + Duration::from_secs(1_000);
        let recently = Some(now - Duration::from_secs(299));
        assert_eq!(next_step(None, recently, now), ElectionAction::Create);
        assert_eq!(next_step(Some(&spec(None, Some(5))), recently, now), ElectionAction::Rest);
        assert_eq!(next_step(Some(&spec(Some(5), Some(5))), recently, now), ElectionAction::Rest);
        assert_eq!(next_step(Some(&spec(Some(6), Some(5))), recently, now), ElectionAction::Renew);
        assert_eq!(next_step(Some(&spec(Some(6), None)), recently, now), ElectionAction::Renew);
        let long_ago = Some(now - Duration::from_secs(300));
        assert_eq!(next_step(Some(&spec(None, Some(5))), long_ago, now), ElectionAction::Renew);
        assert_eq!(next_step(Some(&spec(None, Some(5))), None, now), ElectionAction::Renew);
    }

    fn answer(code: u16, object: &serde_json::Value) -> http::Response<Body> {
        let mut answer = http::Response::new(Body::from(object.to_string().into_bytes()));
        *answer.status_mut() = http::StatusCode::from_u16(code).expect("a status code");
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn candidate_deleted_between_its_look_and_its_renewal_is_created_anew() {
        let env = Env::virtual_time(1);
        let methods = Arc::new(Mutex::new(Vec::new()));
        let heard = methods.clone();
        let service = service_fn(move |request: http::Request<Body>| {
            let mut heard = heard.lock().expect("not poisoned");
            heard.push(request.method().to_string());
            let mut candidate = json!({
                "apiVersion": "coordination.k8s.io/v1beta1", "kind": "LeaseCandidate",
                "metadata": { "name": "me", "namespace": "kube-system", "resourceVersion": "1" },
                "spec": { "leaseName": "windlass", "strategy": "OldestEmulationVersion", "binaryVersion": "1.0.0" },
            });
            let missing = json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound" });
            // It is there for the first look only, until it is created.
            let created = heard.iter().any(|method| method == "POST");
            candidate["spec"]["renewTime"] = json!("2026-01-01T00:00:00.000000Z");
            let found = created || heard.len() == 1;
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
        assert!(env.timeout(Duration::from_secs(10), candidate.stand()).await.is_err(), "it stands");
        assert_eq!(methods.lock().expect("not poisoned")[..4].join(" "), "GET PUT GET POST");
    }

    // parity: test-lease-candidate-creation
    #[tokio::test(start_paused = true)]
    async fn candidate_that_sees_nobody_lead_reminds_the_coordinator_once_per_lease_duration() {
        let env = Env::virtual_time(1);
        let renewals = Arc::new(Mutex::new(0));
        let heard = renewals.clone();
        let service = service_fn(move |request: http::Request<Body>| {
            *heard.lock().expect("not poisoned") += u32::from(request.method() == http::Method::PUT);
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
            let stand = candidate.clone().stand();
            assert!(env.timeout(Duration::from_secs(100), stand).await.is_err(), "it stands");
            std::mem::take(&mut *renewals.lock().expect("not poisoned"))
        };
        assert_eq!(stands().await, 1, "as it begins to stand");
        candidate.note(false);
        assert_eq!(stands().await, 1 + 6, "nobody leads");
        candidate.note(true);
        assert_eq!(stands().await, 1);
    }
}
