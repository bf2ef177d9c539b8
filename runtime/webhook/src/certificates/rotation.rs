//! Rotates the certificates of one replica: reads the cluster, executes the next step, serves the leaf.
//!
//! Every replica rotates, by compare-and-swap on the version of the Secret. An elected leader would start after the
//! caches, which can need a conversion webhook.
//!
//! The order of a check is fixed: first the `caBundle`s, then the Secret, then the write. A `caBundle` is only written
//! with the version that was read before the Secret, so a replica with an old Secret cannot remove an authority.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Resource as _;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio_util::sync::CancellationToken;
use windlass_client::one_line_with_rule;
use windlass_env::Env;
use windlass_metrics::WebhookMetrics;
use windlass_serving::Certificates;

use super::bundle::{Found, Target};
use super::issue::{self, IssueError};
use super::state::{Leaf, Lifetimes, State, Step, leaf_to_serve, next_step};

/// The key of the state in the Secret.
const STATE_KEY: &str = "state.json";

/// The key of the certificates of authorities in the Secret, for humans.
const AUTHORITIES_KEY: &str = "ca.crt";

/// Limit of the steps of one check. A first start takes five.
const STEPS: usize = 16;

/// The rotation of one replica.
pub(crate) struct Rotation {
    pub(crate) env: Env,
    pub(crate) client: kube::Client,
    pub(crate) secret: String,
    pub(crate) names: Vec<String>,
    pub(crate) targets: Vec<Target>,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) metrics: WebhookMetrics,
    pub(crate) served: Arc<ServedCertificate>,
}

/// The certificate that a replica serves. Shared by the rotation and the server.
#[derive(Default)]
pub(crate) struct ServedCertificate {
    state: Mutex<Served>,
    /// Canceled when there is a certificate.
    available: CancellationToken,
}

#[derive(Default)]
struct Served {
    certificates: Option<Arc<Certificates>>,
    leaf: Option<Leaf>,
    /// The last error; empty before the first check.
    fault: Option<String>,
}

/// The error of a check.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RotationError {
    #[error("{}", one_line_with_rule(.0))]
    Request(#[from] kube::Error),
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The position only: the message of the decoder can quote a key.
    #[error(
        "the state in the Secret cannot be decoded: error in column {column}; delete the Secret to create new certificates"
    )]
    State { column: usize },
    #[error("another replica changes the certificates in every step; run the same version on all replicas")]
    TooManySteps,
}

impl ServedCertificate {
    /// Waits for the first certificate.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub(crate) async fn available(&self) -> Arc<Certificates> {
        loop {
            self.available.cancelled().await;
            if let Some(certificates) = &self.lock().certificates {
                return Arc::clone(certificates);
            }
        }
    }

    /// Returns whether the server has a certificate that every `caBundle` covers and that is valid at `now`.
    pub(crate) fn check(&self, now: Timestamp) -> Result<(), String> {
        let served = self.lock();
        let fault = || served.fault.clone().unwrap_or_default();
        match &served.leaf {
            None if served.fault.is_none() => Err("waiting for the certificate".to_owned()),
            None => Err(fault()),
            Some(leaf) if now >= leaf.not_after => Err(format!("the certificate has expired: {}", fault())),
            // A certificate that is served continues to work while the API server cannot be reached.
            Some(_) => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Served> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaf(&self) -> Option<Leaf> {
        self.lock().leaf.clone()
    }

    /// Serves a leaf; returns whether it replaced another one.
    fn serve(&self, leaf: &Leaf) -> Result<bool, IssueError> {
        let certified = issue::certified(leaf)?;
        let mut served = self.lock();
        let is_replaced = served.certificates.is_some();
        match &served.certificates {
            Some(certificates) => certificates.replace(certified),
            None => served.certificates = Some(Certificates::new(certified)),
        }
        served.leaf = Some(leaf.clone());
        drop(served);
        self.available.cancel();
        Ok(is_replaced)
    }

    /// Returns the certificate that new connections get.
    #[cfg(test)]
    pub(crate) fn current(&self) -> Option<rustls::pki_types::CertificateDer<'static>> {
        let served = self.lock();
        served.certificates.as_ref().map(|it| it.current().cert[0].clone())
    }
}

impl Rotation {
    /// Checks the certificates periodically; never returns.
    ///
    /// # Cancel safety
    /// A step that has been sent can take effect. Another check continues from there.
    pub(crate) async fn run(self) {
        let mut random = self.env.rng("webhook certificates");
        loop {
            let checked = self.check().await;
            self.report(checked.err());
            // Replicas do not write at the same time.
            self.env.sleep(random.jitter(self.lifetimes.period, 0.1)).await;
        }
    }

    fn report(&self, error: Option<RotationError>) {
        let fault = error.map(|error| error.to_string());
        let mut served = self.served.lock();
        if fault != served.fault {
            match &fault {
                Some(error) => tracing::warn!(%error, "checking webhook certificates failed; retrying"),
                None => tracing::info!("webhook certificates are current"),
            }
        }
        served.fault = fault;
        if let Some(leaf) = &served.leaf {
            let remaining = leaf.not_after.duration_since(self.env.wall());
            self.metrics.certificate_remaining.set(remaining.as_secs_f64());
        }
    }

    /// Executes steps until nothing is left to do, then serves the leaf.
    pub(crate) async fn check(&self) -> Result<(), RotationError> {
        for _ in 0..STEPS {
            if self.advance().await? == Step::Wait {
                return Ok(());
            }
        }
        Err(RotationError::TooManySteps)
    }

    /// Executes the next step and returns it.
    async fn advance(&self) -> Result<Step, RotationError> {
        let found = self.read_targets().await?;
        let (secret, state) = self.read_state().await?;
        let now = self.env.wall();
        if let Some(leaf) = leaf_to_serve(&state, self.served.leaf().as_ref(), &self.lifetimes, now)
            && self.served.serve(leaf)?
        {
            self.metrics.serving.certificate_replaced.inc();
            tracing::info!(issuer = leaf.issuer, not_after = %leaf.not_after, "webhook certificate replaced");
        }
        let authorities: Vec<&str> = state
            .authorities
            .iter()
            .filter(|it| now < it.not_after)
            .map(|it| it.certificate.as_str())
            .collect();
        let is_injected = found.iter().all(|(_, found)| found.contains(&authorities));
        let step = next_step(&state, is_injected, &self.names, &self.lifetimes, now);
        match step {
            Step::Wait => {}
            Step::Inject => {
                for (target, found) in found.iter().filter(|(_, found)| !found.contains(&authorities)) {
                    unless_conflict(target.inject(&self.client, found, &authorities, now).await)?;
                }
            }
            _ => {
                self.write_state(secret, self.changed(state, step)?).await?;
                tracing::info!(?step, "webhook certificates changed");
            }
        }
        Ok(step)
    }

    /// Returns the state after a step.
    fn changed(&self, mut state: State, step: Step) -> Result<State, IssueError> {
        let now = self.env.wall();
        match step {
            Step::CreateAuthority => {
                // The name distinguishes authorities with one time of creation, which replicas can create at once.
                let name =
                    format!("{} webhooks {now}", self.names.first().map(String::as_str).unwrap_or_default());
                state.authorities.push(issue::authority(name, &self.lifetimes, now)?);
            }
            Step::Announce => {
                if let Some(newest) = state.authorities.last_mut() {
                    newest.announced = Some(now);
                }
            }
            Step::IssueLeaf { authority } => {
                if let Some(authority) = state.authorities.get(authority) {
                    state.leaf = Some(issue::leaf(authority, &self.names, &self.lifetimes, now)?);
                }
            }
            Step::DropExpired => state.authorities.retain(|it| now < it.not_after),
            Step::Inject | Step::Wait => {}
        }
        Ok(state)
    }

    async fn read_targets(&self) -> Result<Vec<(&Target, Found)>, kube::Error> {
        let mut all = Vec::new();
        for target in &self.targets {
            if let Some(found) = target.read(&self.client).await? {
                all.push((target, found));
            }
        }
        Ok(all)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::default_namespaced(self.client.clone())
    }

    async fn read_state(&self) -> Result<(Option<Secret>, State), RotationError> {
        let Some(secret) = self.secrets().get_opt(&self.secret).await? else {
            return Ok((None, State::default()));
        };
        let state = match secret.data.as_ref().and_then(|data| data.get(STATE_KEY)) {
            Some(ByteString(bytes)) => serde_json::from_slice(bytes).map_err(undecodable)?,
            None => State::default(),
        };
        Ok((Some(secret), state))
    }

    /// Writes the state unless another replica has written it since.
    async fn write_state(&self, secret: Option<Secret>, state: State) -> Result<(), RotationError> {
        let encoded = serde_json::to_vec(&state).map_err(undecodable)?;
        let bundle: String = state.authorities.iter().map(|it| it.certificate.as_str()).collect();
        let data = BTreeMap::from([
            (STATE_KEY.to_owned(), ByteString(encoded)),
            (AUTHORITIES_KEY.to_owned(), ByteString(bundle.into_bytes())),
        ]);
        let params = PostParams::default();
        let written = match secret {
            None => {
                let metadata = ObjectMeta { name: Some(self.secret.clone()), ..ObjectMeta::default() };
                let secret = Secret { metadata, data: Some(data), ..Secret::default() };
                self.secrets().create(&params, &secret).await
            }
            Some(mut secret) => {
                secret.meta_mut().managed_fields = None;
                secret.data = Some(data);
                self.secrets().replace(&self.secret, &params, &secret).await
            }
        };
        unless_conflict(written)?;
        Ok(())
    }
}

fn undecodable(error: serde_json::Error) -> RotationError {
    RotationError::State { column: error.column() }
}

/// Ignores a conflict: another replica was faster, and the next step starts from its result.
fn unless_conflict<T>(written: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match written {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop),
    }
}
