//! User of a request.

use ::http::HeaderMap;
use ::http::header::AUTHORIZATION;

use crate::server::ApiServer;
use crate::status::Status;

/// User of requests without credentials. Permissions are recorded, not enforced.
const DEFAULT_USER: &str = "system:admin";

/// Returns the user of a request: the impersonated user, else the user of the server handle, else the user of the
/// bearer token.
pub(super) fn user(server: &ApiServer, headers: &HeaderMap) -> Result<String, Status> {
    let impersonated = headers.get("impersonate-user").and_then(|value| value.to_str().ok());
    if let Some(user) = impersonated.filter(|user| !user.is_empty()) {
        return Ok(user.to_owned());
    }
    if let Some(user) = server.user() {
        return Ok(user.to_owned());
    }
    let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => {
            let user = server.registry().user(token.trim());
            user.ok_or_else(|| Status::new(401, "Unauthorized", "Unauthorized"))
        }
        _ => Ok(DEFAULT_USER.to_owned()),
    }
}
