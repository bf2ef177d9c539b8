//! One ServiceAccount: creates it if it is missing, and requests tokens for it.
//!
//! The token is requested first, because the ServiceAccount usually exists: this is one request, and it needs no
//! permission to read ServiceAccounts.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use kube::client::Body;
use serde::Deserialize;
use serde_json::json;
use tower::BoxError;
use windlass_object::names::{is_dns_label, is_dns_subdomain};
use windlass_object::{Status, wire};

use crate::{
    error::{
        ClientError, IdentityCause, IdentityError, MissingPermission, advised_by_headers, advised_by_status,
        one_line,
    },
    stack::{Next, read},
};

/// Requested lifetime of tokens, as in upstream. The server can issue a shorter one.
const LIFETIME: Duration = Duration::from_secs(3600);

/// Maximum lifetime of a token, regardless of the lifetime that the server issues.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// The name of a ServiceAccount, and the client for requests about it, which uses the credentials of the process.
#[derive(Clone)]
pub(crate) struct ServiceAccountClient {
    namespace: String,
    name: String,
    root: Next,
}

/// A token as a header value. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(HeaderValue);

/// A token that the server issued.
#[derive(Clone, Debug)]
pub(crate) struct IssuedToken {
    pub(crate) token: Token,
    /// The lifetime, counted from the time of the request.
    pub(crate) lifetime: Duration,
}

/// A failed attempt to obtain a token.
#[derive(Clone, Debug)]
pub(crate) struct TokenFailure {
    pub(crate) error: IdentityError,
    /// The retry delay that the server requests.
    pub(crate) advice: Option<Duration>,
}

/// The result of a failed request about the ServiceAccount.
enum TokenRequestError {
    /// The server returned an error.
    Rejected(Box<Status>, Option<Duration>),
    /// The server returned no complete response.
    Unanswered(BoxError),
    /// The response is not valid.
    NoToken,
}

const ACCOUNT: &str = "the service account";
const TOKEN: &str = "a token";

impl ServiceAccountClient {
    /// # Errors
    /// If account or namespace name are not valid: both become part of a path.
    pub(crate) fn new(namespace: &str, name: &str, root: Next) -> Result<Self, ClientError> {
        Self::check_namespace(namespace)?;
        if !is_dns_subdomain(name) {
            return Err(ClientError::AccountName(name.into()));
        }
        Ok(Self { namespace: namespace.into(), name: name.into(), root })
    }

    /// # Errors
    /// If the name is not a valid namespace name.
    pub(crate) fn check_namespace(namespace: &str) -> Result<(), ClientError> {
        if is_dns_label(namespace) { Ok(()) } else { Err(ClientError::AccountNamespace(namespace.into())) }
    }

    /// Returns the user name of the ServiceAccount.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// Requests a new token. Creates the ServiceAccount if it is missing.
    pub(crate) async fn issue(&self) -> Result<IssuedToken, TokenFailure> {
        match self.token().await {
            Err(TokenRequestError::Rejected(status, _)) if status.code == 404 => self.make().await?,
            outcome => return outcome.map_err(|error| self.failure(TOKEN, error)),
        }
        self.token().await.map_err(|error| self.failure(TOKEN, error))
    }

    async fn token(&self) -> Result<IssuedToken, TokenRequestError> {
        let path = format!("{}/{}/token", self.collection(), self.name);
        // No audience means the audience of the server.
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "audiences": [], "expirationSeconds": LIFETIME.as_secs() },
        });
        let answer = self.post(path, &body).await?;
        IssuedToken::read(&answer).ok_or(TokenRequestError::NoToken)
    }

    async fn make(&self) -> Result<(), TokenFailure> {
        let account = json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": self.name, "namespace": self.namespace },
        });
        match self.post(self.collection(), &account).await {
            Ok(_) => {
                tracing::info!(user = self.user(), "missing service account created");
                Ok(())
            }
            // Another client created it first, for example another replica.
            Err(TokenRequestError::Rejected(status, _)) if status.code == 409 => Ok(()),
            Err(error) => Err(self.failure(ACCOUNT, error)),
        }
    }

    async fn post(&self, path: String, body: &serde_json::Value) -> Result<Bytes, TokenRequestError> {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Body::from(body.to_string().into_bytes()))
            .map_err(|error| TokenRequestError::Unanswered(error.into()))?;
        let (head, body) =
            self.root.send(Box::new(request)).await.map_err(TokenRequestError::Unanswered)?.into_parts();
        let body = read(body).await.map_err(TokenRequestError::Unanswered)?;
        if head.status.is_success() {
            return Ok(body);
        }
        let status = wire::status(head.status.as_u16(), &body);
        let advice = advised_by_headers(&head.headers).or_else(|| advised_by_status(&status));
        Err(TokenRequestError::Rejected(Box::new(status), advice))
    }

    fn collection(&self) -> String {
        format!("/api/v1/namespaces/{}/serviceaccounts", self.namespace)
    }

    fn failure(&self, what: &'static str, error: TokenRequestError) -> TokenFailure {
        let (cause, advice) = match error {
            TokenRequestError::Unanswered(error) => {
                let reason = one_line(error.as_ref());
                (IdentityCause::Unreachable { what, reason }, None)
            }
            TokenRequestError::NoToken => (IdentityCause::NoToken, None),
            TokenRequestError::Rejected(status, advice) => (self.refused(what, &status), advice),
        };
        TokenFailure { error: IdentityError { user: self.user(), cause }, advice }
    }

    fn refused(&self, what: &'static str, status: &Status) -> IdentityCause {
        let about = status.details.as_ref().map_or("", |details| details.kind.as_str());
        // For a create request, only the namespace can be missing.
        if status.code == StatusCode::NOT_FOUND && (what == ACCOUNT || about == "namespaces") {
            return IdentityCause::NoNamespace(self.namespace.clone());
        }
        if let Some(denial) = MissingPermission::of(status) {
            return IdentityCause::Denied(denial);
        }
        let message = status.message.split_whitespace().collect::<Vec<_>>().join(" ");
        IdentityCause::Rejected { what, message, code: status.code }
    }
}

impl IssuedToken {
    /// Parses the response. Does not quote a response that it cannot parse.
    fn read(answer: &[u8]) -> Option<Self> {
        let TokenResponse { spec, status } = serde_json::from_slice(answer).ok()?;
        let seconds = u64::try_from(spec.expiration_seconds?).ok().filter(|seconds| *seconds > 0)?;
        let lifetime = Duration::from_secs(seconds).min(MAX_LIFETIME);
        Some(Self { token: Token::new(&status.token)?, lifetime })
    }
}

#[derive(Deserialize)]
struct TokenResponse {
    spec: TokenSpec,
    status: TokenStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenSpec {
    /// The issued lifetime, which can be shorter than requested.
    expiration_seconds: Option<i64>,
}

#[derive(Deserialize)]
struct TokenStatus {
    #[serde(default)]
    token: String,
}

impl Token {
    /// Returns `None` for a token that is empty, contains white space, or is not a valid header value.
    fn new(token: &str) -> Option<Self> {
        if token.is_empty() || token.contains(char::is_whitespace) {
            return None;
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }

    /// Returns the value of the header `Authorization`.
    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl fmt::Debug for ServiceAccountClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServiceAccountClient").field(&self.user()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: &str, token: &str) -> Option<IssuedToken> {
        IssuedToken::read(format!(r#"{{"spec":{{{spec}}},"status":{{"token":"{token}"}}}}"#).as_bytes())
    }

    #[test]
    fn issued_token_has_the_lifetime_that_the_server_granted() {
        let grant = read(r#""expirationSeconds":1800"#, "s3cr3t").unwrap();
        assert_eq!(grant.lifetime, Duration::from_secs(1800));
        assert_eq!(grant.token.header(), "Bearer s3cr3t");
        assert!(grant.token.header().is_sensitive());
        assert_eq!(read(r#""expirationSeconds":9223372036854775807"#, "s").unwrap().lifetime, MAX_LIFETIME);
    }

    #[test]
    fn response_without_token_or_lifetime_is_not_a_token() {
        let lasts = r#""expirationSeconds":1800"#;
        for (spec, token) in [
            (lasts, ""),
            (lasts, " "),
            (lasts, "two words"),
            (lasts, "line\\nbreak"),
            (lasts, "\\u0000"),
            ("", "s3cr3t"),
            (r#""expirationSeconds":0"#, "s3cr3t"),
            (r#""expirationSeconds":-5"#, "s3cr3t"),
        ] {
            assert!(read(spec, token).is_none(), "{spec} {token}");
        }
        for nonsense in ["", "{}", "[]", r#"{"spec":{"expirationSeconds":1800}}"#, "s3cr3t"] {
            assert!(IssuedToken::read(nonsense.as_bytes()).is_none(), "{nonsense}");
        }
    }
}
