//! Waiting for the API server, so that a wrong address is one clear error.

use std::time::Duration;

use windlass_client::one_line;
use windlass_env::Env;

use crate::error::ManagerError;

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// Polls `/healthz` until the API server reports that it is healthy, for at most `within`.
///
/// A response with status 401, 403 or 404 counts as healthy: the work itself reports missing permissions.
pub(crate) async fn wait_for_api_server(
    env: &Env,
    client: &kube::Client,
    within: Duration,
) -> Result<(), ManagerError> {
    let deadline = env.now() + within;
    loop {
        let left = deadline.saturating_duration_since(env.now());
        let last = match env.timeout(left, probe(client)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(reason)) => reason,
            Err(_) => "no answer".to_owned(),
        };
        if env.now() + PAUSE >= deadline {
            return Err(ManagerError::ApiServerUnreachable { waited: within, last });
        }
        tracing::info!(%last, "waiting for the API server");
        env.sleep(PAUSE).await;
    }
}

async fn probe(client: &kube::Client) -> Result<(), String> {
    let request = http::Request::get("/healthz").body(Vec::new()).map_err(|error| error.to_string())?;
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403 | 404) => Ok(()),
        Err(error) => Err(one_line(&error)),
    }
}
