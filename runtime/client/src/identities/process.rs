//! The credentials of the process, which are reloaded when their source changes.
//!
//! Guarantees:
//! - A token file is read again every minute, and a credential plugin runs again one minute before its credential
//!   expires. During that load, and if it fails, requests use the previous credential until it expires. White space
//!   around a token is removed.
//! - A client certificate and its key are read again within a second of a change, when a connection is acquired. From
//!   then on, requests use connections that were opened with the new pair. The same applies to the pair of a plugin. If
//!   a new certificate is not available, no connection is opened without a certificate. kube reloads the CA file.
//! - After a 401 the files are read again, or the plugin runs again, and the request is repeated once: a request that
//!   failed with 401 had no effect.
//! - One load at a time serves all waiting requests, and continues when they are dropped. The next load starts at least
//!   10 s later.
//! - The reason why requests are not authenticated is kept for readiness ([`ProcessCredentials::problem`]) until a
//!   request is authenticated.
//!
//! A plugin that does not exit is reported, but it is not stopped, and no second one is started.

use crate::stack::BoxedRequest;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use kube::{
    Config,
    client::{ConfigExt as _, middleware::AuthLayer},
    config::AuthInfo,
};
use tower::Layer as _;
use windlass_env::{Env, Instant};

use super::plugin::{self, Pair};
use crate::{
    error::{ClientError, CredentialsError},
    stack::{Middleware, Next, RequestState, ResponseResult, StackService, copy, over},
};

/// Maximum age of a token from a token file, as in client-go.
const TOKEN_FILE_INTERVAL: Duration = Duration::from_secs(60);
/// Time before the expiry of its credential at which a plugin is run again, as in kube.
const EXPIRY_MARGIN: SignedDuration = SignedDuration::from_secs(60);
/// Interval of checks for changed certificate files.
const IDENTITY_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between loads: a server that rejects every request must not run a plugin each time.
const LOAD_INTERVAL: Duration = Duration::from_secs(10);
/// Time after which a plugin that is still running is reported.
const SLOW: Duration = Duration::from_secs(30);

/// The credentials of the process. Clones share them.
#[derive(Clone)]
pub(crate) struct ProcessCredentials(Arc<Inner>);

struct Inner {
    env: Env,
    config: Config,
    loaded: Mutex<Loaded>,
    /// Locked during a load.
    loading: Arc<tokio::sync::Mutex<()>>,
    identity: Mutex<Identity>,
    identity_number: AtomicU64,
    problem: Mutex<Option<CredentialsError>>,
}

#[derive(Clone)]
struct Loaded {
    credentials: Arc<Credentials>,
    /// Number of successful loads.
    number: u64,
    at: Instant,
    /// Time when the last load ended, except the first.
    tried_at: Option<Instant>,
    /// Error of the last load, if it failed.
    failure: Option<CredentialsError>,
    loading_since: Option<Instant>,
}

/// The result of one load.
struct Credentials {
    /// Adds the token, or user name and password, to a request.
    layer: Option<AuthLayer>,
    /// The client certificate of a plugin.
    pair: Option<Pair>,
    expires_at: Option<Timestamp>,
}

/// The content of the certificate files at the last comparison.
struct Identity {
    /// `None` if the next connection must compare the files.
    compared_at: Option<Instant>,
    files: Vec<Option<Vec<u8>>>,
}

/// The urgency of a reload.
enum Need {
    None,
    /// The credentials expire soon, or are old.
    Soon,
    /// The credentials have expired.
    Now,
}

impl ProcessCredentials {
    /// Loads the credentials of this configuration. Waits until a plugin exits.
    ///
    /// # Errors
    /// If they cannot be used.
    pub(crate) fn load(env: Env, config: Config) -> Result<Self, ClientError> {
        let at = env.now();
        let credentials = Arc::new(load(&config)?);
        let identity = Identity { compared_at: Some(at), files: identity_files(&config) };
        Ok(Self(Arc::new(Inner {
            loaded: Mutex::new(Loaded {
                credentials,
                number: 0,
                at,
                tried_at: None,
                failure: None,
                loading_since: None,
            }),
            loading: Arc::default(),
            identity: Mutex::new(identity),
            identity_number: AtomicU64::new(0),
            problem: Mutex::default(),
            env,
            config,
        })))
    }

    /// Returns the reason why requests are not authenticated; `None` if they are.
    pub(crate) fn problem(&self) -> Option<CredentialsError> {
        let problem = lock(&self.0.problem).clone();
        problem.or_else(|| self.is_slow().then_some(CredentialsError::PluginSlow))
    }

    /// Returns whether requests wait for a load that takes long.
    fn is_slow(&self) -> bool {
        let now = self.0.env.now();
        let is_slow = |since: Instant| now.saturating_duration_since(since) >= SLOW;
        self.loaded().loading_since.is_some_and(is_slow) && matches!(self.need(), Need::Now)
    }

    pub(crate) fn set_problem(&self, problem: Option<CredentialsError>) {
        *lock(&self.0.problem) = problem;
    }

    /// Returns the number of the client certificate to connect with. It changes with the certificate.
    pub(crate) fn identity(&self) -> u64 {
        let Inner { env, config, identity, identity_number, .. } = &*self.0;
        let mut identity = lock(identity);
        let now = env.now();
        let is_due = |at: Instant| now.saturating_duration_since(at) >= IDENTITY_INTERVAL;
        if identity.compared_at.is_none_or(is_due) {
            identity.compared_at = Some(now);
            let files = identity_files(config);
            if files != identity.files {
                identity.files = files;
                identity_number.fetch_add(1, Ordering::Relaxed);
            }
        }
        identity_number.load(Ordering::Relaxed)
    }

    /// Returns the client certificate to connect with, without other credentials: kube would run a plugin per
    /// connector.
    pub(crate) fn client_certificate(&self) -> AuthInfo {
        let configured = &self.0.config.auth_info;
        let mut auth = AuthInfo {
            client_certificate: configured.client_certificate.clone(),
            client_certificate_data: configured.client_certificate_data.clone(),
            client_key: configured.client_key.clone(),
            client_key_data: configured.client_key_data.clone(),
            ..AuthInfo::default()
        };
        if let Some(pair) = &self.loaded().credentials.pair {
            pair.apply(&mut auth);
        }
        auth
    }

    fn loaded(&self) -> Loaded {
        lock(&self.0.loaded).clone()
    }

    fn can_renew(&self) -> bool {
        let auth = &self.0.config.auth_info;
        auth.exec.is_some()
            || auth.auth_provider.is_some()
            || auth.token_file.is_some()
            || auth.client_certificate.is_some()
            || auth.client_key.is_some()
    }

    fn need(&self) -> Need {
        let Inner { env, config, .. } = &*self.0;
        let Loaded { credentials, at, .. } = self.loaded();
        let is_old = env.now().saturating_duration_since(at) >= TOKEN_FILE_INTERVAL;
        match credentials.expires_at {
            Some(expires_at) if env.wall() >= expires_at => Need::Now,
            Some(expires_at) if env.wall().duration_until(expires_at) <= EXPIRY_MARGIN => Need::Soon,
            _ if is_old && config.auth_info.token_file.is_some() => Need::Soon,
            _ => Need::None,
        }
    }

    /// Reloads the credentials: without waiting if they expire soon, and with waiting if they have expired.
    ///
    /// # Errors
    /// If they have expired and cannot be loaded.
    async fn follow(&self) -> Result<(), CredentialsError> {
        match self.need() {
            Need::None => Ok(()),
            Need::Soon => {
                if let Ok(turn) = Arc::clone(&self.0.loading).try_lock_owned() {
                    drop(self.begin_load(self.loaded().number, turn));
                }
                Ok(())
            }
            Need::Now if self.renew(self.loaded().number).await => Ok(()),
            // A credential that is expired when it is loaded is still sent: the clock of the plugin can differ.
            Need::Now => self.loaded().failure.map_or(Ok(()), Err),
        }
    }

    /// Replaces the credentials with this number, which expired or were rejected. Returns `false` if there are no
    /// others.
    ///
    /// # Cancel safety
    /// A load that has started continues.
    async fn renew(&self, number: u64) -> bool {
        let turn = Arc::clone(&self.0.loading).lock_owned().await;
        if let Some(load) = self.begin_load(number, turn) {
            // A load that panicked did not replace the credentials, so the number is unchanged.
            let _ = load.await;
        }
        self.loaded().number != number
    }

    /// Starts a load in a separate task, unless these credentials were replaced or the last load ended less than
    /// [`LOAD_INTERVAL`] ago.
    fn begin_load(
        &self,
        number: u64,
        turn: tokio::sync::OwnedMutexGuard<()>,
    ) -> Option<windlass_env::Task<()>> {
        let now = self.0.env.now();
        {
            let mut loaded = lock(&self.0.loaded);
            let is_early = |at: Instant| now.saturating_duration_since(at) < LOAD_INTERVAL;
            if loaded.number != number || loaded.tried_at.is_some_and(is_early) {
                return None;
            }
            loaded.loading_since = Some(now);
        }
        let this = self.clone();
        Some(self.0.env.spawn("credentials", async move {
            this.load_again().await;
            drop(turn);
        }))
    }

    /// Loads the credentials again. If that fails, the previous ones are kept.
    #[expect(clippy::disallowed_methods, reason = "simulations do not use files or plugins")]
    async fn load_again(&self) {
        let config = self.0.config.clone();
        // A plugin blocks until it exits.
        let result = tokio::task::spawn_blocking(move || load(&config)).await;
        let result = result.unwrap_or(Err(ClientError::Credentials(CredentialsError::Other)));
        let now = self.0.env.now();
        lock(&self.0.identity).compared_at = None;
        let mut loaded = lock(&self.0.loaded);
        (loaded.tried_at, loaded.loading_since) = (Some(now), None);
        match result {
            Ok(credentials) => {
                if credentials.pair != loaded.credentials.pair {
                    self.0.identity_number.fetch_add(1, Ordering::Relaxed);
                }
                (loaded.credentials, loaded.number) = (Arc::new(credentials), loaded.number + 1);
                (loaded.at, loaded.failure) = (now, None);
            }
            Err(error) => {
                let failure = problem_of(error);
                tracing::warn!(error = %failure, "credential renewal failed");
                (loaded.at, loaded.failure) = (now, Some(failure));
            }
        }
    }

    async fn authorized(&self, loaded: &Loaded, request: BoxedRequest, next: &Next) -> ResponseResult {
        let answer = match &loaded.credentials.layer {
            Some(layer) => over(layer.layer(StackService(Arc::clone(next)))).send(request).await,
            None => next.send(request).await,
        };
        let hidden = |error: tower::BoxError| match CredentialsError::among(error.as_ref()) {
            Some(problem) => {
                self.set_problem(Some(problem.clone()));
                problem.into()
            }
            None => error,
        };
        let response = answer.map_err(hidden)?;
        match response.status() {
            StatusCode::UNAUTHORIZED if self.problem().is_none() => {
                self.set_problem(Some(CredentialsError::Rejected));
            }
            status if is_authenticated(status) => self.set_problem(None),
            _ => {}
        }
        Ok(response)
    }
}

/// Returns whether a response with this status shows that the server authenticated the request. A busy server and a
/// proxy can respond before authentication.
fn is_authenticated(status: StatusCode) -> bool {
    let is_before = matches!(
        status,
        StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
    );
    !is_before && !status.is_server_error()
}

impl Middleware for ProcessCredentials {
    async fn handle(self, mut request: BoxedRequest, next: Next) -> ResponseResult {
        let state = RequestState::of(&mut request);
        if let Err(problem) = self.follow().await {
            self.set_problem(Some(problem.clone()));
            return Err(problem.into());
        }
        let loaded = self.loaded();
        // A streaming body can be sent only once.
        let again = if self.can_renew() { copy(&request) } else { None };
        let response = self.authorized(&loaded, request, &next).await?;
        let Some(again) = again.filter(|_| response.status() == StatusCode::UNAUTHORIZED) else {
            return Ok(response);
        };
        if !self.renew(loaded.number).await {
            if let Some(failure) = self.loaded().failure {
                self.set_problem(Some(failure));
            }
            return Ok(response);
        }
        state.mark_rejected();
        drop(response);
        self.authorized(&self.loaded(), again, &next).await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn problem_of(error: ClientError) -> CredentialsError {
    match error {
        ClientError::Credentials(problem) => problem,
        _ => CredentialsError::Other,
    }
}

/// Reads the token file and runs the plugin; kube handles other credentials. kube sends the white space of a token
/// file, which is not valid in a header, and does not return the certificate of a plugin.
fn load(config: &Config) -> Result<Credentials, ClientError> {
    let mut config = config.clone();
    let auth = &mut config.auth_info;
    let (mut pair, mut expires_at) = (None, None);
    // As in kube, other configured credentials have precedence.
    let has_others = auth.token.is_some()
        || auth.token_file.is_some()
        || auth.auth_provider.is_some()
        || auth.username.is_some() && auth.password.is_some();
    if let Some(exec) = auth.exec.take().filter(|_| !has_others) {
        let credential = plugin::run(&exec).map_err(ClientError::Credentials)?;
        (pair, expires_at) = (credential.pair, credential.expires_at);
        auth.token = credential.token.map(Into::into);
    }
    if let Some(path) = auth.token_file.take().filter(|_| auth.token.is_none()) {
        auth.token = Some(read_token(path)?.into());
    }
    let failed = |error: kube::Error| {
        CredentialsError::among(&error).map_or(ClientError::Headers(error), ClientError::Credentials)
    };
    let layer = config.auth_layer().map_err(failed)?;
    Ok(Credentials { layer, pair, expires_at })
}

fn read_token(path: String) -> Result<String, ClientError> {
    let failed =
        |reason| ClientError::Credentials(CredentialsError::TokenFile { path: path.clone().into(), reason });
    let token = std::fs::read_to_string(&path).map_err(|error| failed(error.kind()))?;
    match token.trim() {
        "" => Err(failed(std::io::ErrorKind::InvalidData)),
        token => Ok(token.to_owned()),
    }
}

/// Returns the content of the certificate files; `None` for each file that cannot be read.
fn identity_files(config: &Config) -> Vec<Option<Vec<u8>>> {
    let auth = &config.auth_info;
    let paths = [auth.client_certificate.as_ref(), auth.client_key.as_ref()];
    paths.into_iter().flatten().map(|path| std::fs::read(path).ok()).collect()
}
