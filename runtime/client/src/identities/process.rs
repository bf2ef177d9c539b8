//! The credentials of the process, which follow what they are read from.
//!
//! Guarantees:
//! - A token file is read again each minute. While it cannot be read, the last token is used. White space around a token
//!   is no part of it.
//! - A client certificate and its key are read again within a second of a change, when a connection is acquired; from
//!   then on requests use connections that were opened with the new pair. kube reads the CA file again itself.
//! - After a 401 everything is read again, or the credential plugin run again, once for all requests that wait and at
//!   most every ten seconds. Then the request is sent once more: what was refused so had no effect. kube itself runs a
//!   plugin again a minute before its token expires; a plugin's certificate is replaced after the first 401.
//! - A failure is kept for readiness ([`ProcessCredentials::problem`]) until a request is authenticated again.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};
use std::time::Duration;

use http::{Request, StatusCode};
use kube::{
    Config,
    client::{Body, ConfigExt as _, middleware::AuthLayer},
};
use tower::Layer as _;
use windlass_env::{Env, Instant};

use crate::{
    error::ClientError,
    stack::{Answer, AsService, Next, Notes, Step, copy, credentials::CredentialsError, over},
};

/// How old a token file's token can be, as client-go.
const TOKEN_FILE_INTERVAL: Duration = Duration::from_secs(60);
/// How often certificate files are compared.
const IDENTITY_INTERVAL: Duration = Duration::from_secs(1);
/// How often credentials are renewed because they are rejected: a server that rejects all must not run a plugin each time.
const REJECTION_INTERVAL: Duration = Duration::from_secs(10);

/// The credentials of the process. Clones are the same.
#[derive(Clone)]
pub(crate) struct ProcessCredentials(Arc<Inner>);

struct Inner {
    env: Env,
    config: Config,
    loaded: Mutex<Loaded>,
    /// Held while credentials are loaded, so that requests that need the same wait for one load.
    loading: tokio::sync::Mutex<()>,
    identity: Mutex<Identity>,
    identity_number: AtomicU64,
    problem: Mutex<Option<CredentialsError>>,
}

#[derive(Clone)]
struct Loaded {
    layer: Option<Arc<AuthLayer>>,
    number: u64,
    at: Instant,
    renewed_at: Option<Instant>,
}

/// The certificate files as they were when they were compared last.
struct Identity {
    compared_at: Instant,
    files: Vec<Option<Vec<u8>>>,
}

impl ProcessCredentials {
    /// Loads the credentials of this configuration.
    ///
    /// # Errors
    /// When they cannot be used.
    pub(crate) fn load(env: Env, config: Config) -> Result<Self, ClientError> {
        let at = env.now();
        let layer = load(&config)?;
        let identity = Identity { compared_at: at, files: identity_files(&config) };
        Ok(Self(Arc::new(Inner {
            loaded: Mutex::new(Loaded { layer, number: 0, at, renewed_at: None }),
            loading: tokio::sync::Mutex::new(()),
            identity: Mutex::new(identity),
            identity_number: AtomicU64::new(0),
            problem: Mutex::default(),
            env,
            config,
        })))
    }

    /// Returns why requests are not authenticated, if so.
    pub(crate) fn problem(&self) -> Option<CredentialsError> {
        lock(&self.0.problem).clone()
    }

    pub(crate) fn set_problem(&self, problem: Option<CredentialsError>) {
        *lock(&self.0.problem) = problem;
    }

    /// Returns the number of the client certificate to connect with. It changes with the certificate.
    pub(crate) fn identity(&self) -> u64 {
        let Inner { env, config, identity, identity_number, .. } = &*self.0;
        let mut identity = lock(identity);
        let now = env.now();
        if now.saturating_duration_since(identity.compared_at) >= IDENTITY_INTERVAL {
            identity.compared_at = now;
            let files = identity_files(config);
            if files != identity.files {
                identity.files = files;
                identity_number.fetch_add(1, Ordering::Relaxed);
            }
        }
        identity_number.load(Ordering::Relaxed)
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

    /// Reads a token file again that was read a minute ago.
    async fn follow_file(&self) {
        let is_old = || self.0.env.now().saturating_duration_since(self.loaded().at) >= TOKEN_FILE_INTERVAL;
        if self.0.config.auth_info.token_file.is_none() || !is_old() {
            return;
        }
        let _loading = self.0.loading.lock().await;
        if is_old() {
            self.load_again().await;
        }
    }

    /// Renews the credentials of this number after the server rejected them. False if there are no others.
    async fn renew(&self, number: u64) -> bool {
        let _loading = self.0.loading.lock().await;
        let (now, loaded) = (self.0.env.now(), self.loaded());
        if loaded.number != number {
            return true;
        }
        let is_early = |at: Instant| now.saturating_duration_since(at) < REJECTION_INTERVAL;
        if loaded.renewed_at.is_some_and(is_early) {
            return false;
        }
        lock(&self.0.loaded).renewed_at = Some(now);
        self.0.identity_number.fetch_add(1, Ordering::Relaxed);
        self.load_again().await
    }

    /// Loads the credentials again; the last ones stay if that fails.
    #[expect(clippy::disallowed_methods, reason = "files and plugins are no part of a simulation")]
    async fn load_again(&self) -> bool {
        let config = self.0.config.clone();
        // A plugin is a process that is waited for.
        let loading = tokio::task::spawn_blocking(move || load(&config)).await;
        let (now, mut loaded) = (self.0.env.now(), lock(&self.0.loaded));
        loaded.at = now;
        match loading.unwrap_or(Err(ClientError::Credentials(CredentialsError::Other))) {
            Ok(layer) => {
                (loaded.layer, loaded.number) = (layer, loaded.number + 1);
                true
            }
            Err(error) => {
                drop(loaded);
                self.set_problem(Some(problem_of(error)));
                false
            }
        }
    }

    async fn authorized(&self, loaded: &Loaded, request: Request<Body>, next: &Next) -> Answer {
        let answer = match &loaded.layer {
            Some(layer) => over(layer.layer(AsService(Arc::clone(next)))).send(request).await,
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
        let is_rejected = response.status() == StatusCode::UNAUTHORIZED;
        if is_rejected && self.problem().is_none() {
            self.set_problem(Some(CredentialsError::Rejected));
        } else if !is_rejected {
            self.set_problem(None);
        }
        Ok(response)
    }
}

impl Step for ProcessCredentials {
    async fn handle(self, mut request: Request<Body>, next: Next) -> Answer {
        let notes = Notes::of(&mut request);
        self.follow_file().await;
        let loaded = self.loaded();
        // A body that is a stream can be sent once only.
        let again = copy(&request).filter(|_| self.can_renew());
        let response = self.authorized(&loaded, request, &next).await?;
        let Some(again) = again.filter(|_| response.status() == StatusCode::UNAUTHORIZED) else {
            return Ok(response);
        };
        if !self.renew(loaded.number).await {
            return Ok(response);
        }
        notes.mark_refused();
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

/// Loads by kube's means, but for token files: kube sends their white space, which no header can carry.
fn load(config: &Config) -> Result<Option<Arc<AuthLayer>>, ClientError> {
    let mut config = config.clone();
    let path = config.auth_info.token_file.take().filter(|_| config.auth_info.token.is_none());
    if let Some(path) = path {
        let failed = |reason| CredentialsError::TokenFile { path: path.clone().into(), reason };
        let token = std::fs::read_to_string(&path).map_err(|error| failed(error.kind()));
        let token = token.map_err(ClientError::Credentials)?;
        if token.trim().is_empty() {
            return Err(ClientError::Credentials(failed(std::io::ErrorKind::InvalidData)));
        }
        config.auth_info.token = Some(token.trim().to_owned().into());
    }
    let layer = config.auth_layer();
    let failed = |error: kube::Error| {
        CredentialsError::among(&error).map_or(ClientError::Headers(error), ClientError::Credentials)
    };
    Ok(layer.map_err(failed)?.map(Arc::new))
}

/// What the certificate files hold; `None` for each that cannot be read.
fn identity_files(config: &Config) -> Vec<Option<Vec<u8>>> {
    let auth = &config.auth_info;
    let paths = [auth.client_certificate.as_ref(), auth.client_key.as_ref()];
    paths.into_iter().flatten().map(|path| std::fs::read(path).ok()).collect()
}
