//! An API server and clients for one test, without a simulation: real requests, no faults, no oracles.
//!
//! Guarantees: what [`client`] gives works in any tokio runtime, needs no TLS provider and no port, and shares nothing
//! with other tests.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{self, Either};
use http::Uri;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use windlass_api_server::{ApiServer, ApiServerOptions};
use windlass_client::{Clients, Fence};
use windlass_controller::Registration;
use windlass_env::{Env, TaskError};
use windlass_manager::{Manager, ManagerConfig, ManagerError, ShutdownSignals};
use windlass_metrics::Metrics;

use crate::rights::undeclared;

/// A client of a fresh API server of its own, in real time.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn client() -> kube::Client {
    client_of(&server(&Env::system("test")))
}

/// A fresh API server in the world of `env`: with [`Env::system`] in real time, with [`Env::virtual_time`] under
/// tokio's paused clock, where its drawn names, UIDs and times follow from a seed.
///
/// # Panics
/// If this `env` already has a server.
pub fn server(env: &Env) -> ApiServer {
    ApiServer::new(env, ApiServerOptions::default())
}

/// A client of this server, in the namespace `default`. `server.as_user("name")` makes it a client of that user.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn client_of(server: &ApiServer) -> kube::Client {
    kube::Client::new(server.clone(), "default")
}

/// An object from JSON. What every manifest repeats may be left out: `apiVersion`, `kind`, and the namespace, which is
/// `default` then.
///
/// # Panics
/// When the JSON is not that of a `K`.
pub fn object<K>(mut manifest: Value) -> K
where
    K: kube::Resource<DynamicType = (), Scope: windlass_object::Scoped> + DeserializeOwned,
{
    if <K::Scope as windlass_object::Scoped>::SCOPE == windlass_object::Scope::Namespaced {
        let namespace = &mut manifest["metadata"]["namespace"];
        if namespace.is_null() {
            *namespace = json!("default");
        }
    }
    serde_json::from_value(manifest).unwrap_or_else(|error| panic!("this is no {}: {error}", K::kind(&())))
}

/// Runs controllers on this server as `user` for as long as `script` takes, then stops them in order.
///
/// There are no faults, no election and no limit of requests; [`Simulation`](crate::Simulation) has all three.
///
/// # Errors
/// When the controllers cannot be set up, which ends the script, or do not stop as they should.
///
/// # Panics
/// When a controller made a request that it did not declare in its set-up: it was refused before it was sent, and would
/// be a missing role elsewhere. When `env` has run controllers as this user before: both would draw the same random numbers. When a controller's
/// set-up panics, with its message.
pub async fn with_controllers<T>(
    env: &Env,
    server: &ApiServer,
    user: &str,
    registrations: impl IntoIterator<Item = Registration>,
    script: impl Future<Output = T>,
) -> Result<T, ManagerError> {
    let env = env.incarnation(user, 0);
    let served = server.as_user(user);
    let connect = move |env: &Env, config: &ManagerConfig, metrics: &Metrics, fence: Arc<dyn Fence>| {
        let uri = Uri::from_static("http://kubernetes.default.svc");
        Clients::over_service(env.clone(), served, uri, config.client.clone(), metrics, fence)
    };
    let config = ManagerConfig { election: None, ..ManagerConfig::new(user) };
    let manager = Manager::with_clients(env.clone(), config, connect)?;
    let manager = registrations.into_iter().fold(manager, Manager::register);
    let metrics = manager.metrics().clone();
    let (trigger, signals) = ShutdownSignals::manual();
    let running = env.spawn("manager", manager.run(signals));
    let ended = |end: Result<Result<(), ManagerError>, TaskError>| {
        end.unwrap_or_else(|error| panic!("the controllers of {user:?} are no more: {error}"))
    };
    match future::select(pin!(script), running).await {
        Either::Left((outcome, running)) => {
            trigger.fire();
            ended(running.await)?;
            if let Some(requests) = undeclared(&metrics) {
                panic!("the controllers of {user:?} made requests that they did not declare: {requests}");
            }
            Ok(outcome)
        }
        // Without controllers, what the script waits for may never come.
        Either::Right((end, script)) => {
            ended(end)?;
            Ok(script.await)
        }
    }
}
