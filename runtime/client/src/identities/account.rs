//! One account: made if it is missing, and the tokens that the server makes out for it.
//!
//! A token is asked for first, since the account is there nearly always: one request, and no right to read accounts.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use kube::client::Body;
use serde::Deserialize;
use serde_json::json;
use tower::BoxError;
use windlass_object::{Status, wire};

use crate::{
    error::{
        ClientError, IdentityCause, IdentityError, MissingPermission, advised_by_headers, advised_by_status,
        one_line,
    },
    stack::{Next, read},
};

/// How long tokens are asked to last, as upstream's. The server may grant less.
const LIFETIME: Duration = Duration::from_secs(3600);

/// No token is used for longer, whatever the server grants.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Where an account is, and the client that asks about it: the process's own.
#[derive(Clone)]
pub(crate) struct ServiceAccountClient {
    namespace: String,
    name: String,
    root: Next,
}

/// A token as it goes into a header. Prints as nothing.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(HeaderValue);

/// A token that was made out.
#[derive(Clone, Debug)]
pub(crate) struct IssuedToken {
    pub(crate) token: Token,
    /// For how long it is good, counted from when it was asked for.
    pub(crate) lifetime: Duration,
}

/// No token could be had.
#[derive(Clone, Debug)]
pub(crate) struct TokenFailure {
    pub(crate) error: IdentityError,
    /// How long the server asks to be left alone.
    pub(crate) advice: Option<Duration>,
}

/// How one request about the account failed.
enum TokenRequestError {
    /// The server answered.
    Refused(Box<Status>, Option<Duration>),
    /// It did not, or not to the end.
    Unanswered(BoxError),
    /// It answered nonsense.
    NoToken,
}

const ACCOUNT: &str = "the service account";
const TOKEN: &str = "a token";

impl ServiceAccountClient {
    /// # Errors
    /// When no account may be called so, or no namespace: both become part of a path.
    pub(crate) fn new(namespace: &str, name: &str, root: Next) -> Result<Self, ClientError> {
        Self::check_namespace(namespace)?;
        if name.len() > MAX_NAME || !name.split('.').all(is_label) {
            return Err(ClientError::AccountName(name.into()));
        }
        Ok(Self { namespace: namespace.into(), name: name.into(), root })
    }

    /// # Errors
    /// When no namespace may be called so.
    pub(crate) fn check_namespace(namespace: &str) -> Result<(), ClientError> {
        if is_label(namespace) { Ok(()) } else { Err(ClientError::AccountNamespace(namespace.into())) }
    }

    /// The user that the server knows it as.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// A new token. Makes the account if it is not there.
    pub(crate) async fn issue(&self) -> Result<IssuedToken, TokenFailure> {
        match self.token().await {
            Err(TokenRequestError::Refused(status, _)) if status.code == 404 => self.make().await?,
            outcome => return outcome.map_err(|trouble| self.failure(TOKEN, trouble)),
        }
        self.token().await.map_err(|trouble| self.failure(TOKEN, trouble))
    }

    async fn token(&self) -> Result<IssuedToken, TokenRequestError> {
        let path = format!("{}/{}/token", self.collection(), self.name);
        // No audience: the server's own.
        let wanted = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "audiences": [], "expirationSeconds": LIFETIME.as_secs() },
        });
        let answer = self.post(path, &wanted).await?;
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
                tracing::info!(user = self.user(), "made a service account that was not there");
                Ok(())
            }
            // Somebody else was faster, another replica for instance.
            Err(TokenRequestError::Refused(status, _)) if status.code == 409 => Ok(()),
            Err(trouble) => Err(self.failure(ACCOUNT, trouble)),
        }
    }

    async fn post(&self, path: String, body: &serde_json::Value) -> Result<Bytes, TokenRequestError> {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Body::from(body.to_string().into_bytes()))
            .map_err(|error| TokenRequestError::Unanswered(error.into()))?;
        let (head, body) = self.root.send(request).await.map_err(TokenRequestError::Unanswered)?.into_parts();
        let body = read(body).await.map_err(TokenRequestError::Unanswered)?;
        if head.status.is_success() {
            return Ok(body);
        }
        let status = wire::status(head.status.as_u16(), &body);
        let advice = advised_by_headers(&head.headers).or_else(|| advised_by_status(&status));
        Err(TokenRequestError::Refused(Box::new(status), advice))
    }

    fn collection(&self) -> String {
        format!("/api/v1/namespaces/{}/serviceaccounts", self.namespace)
    }

    fn failure(&self, what: &'static str, trouble: TokenRequestError) -> TokenFailure {
        let (cause, advice) = match trouble {
            TokenRequestError::Unanswered(error) => {
                let reason = one_line(error.as_ref());
                (IdentityCause::Unreachable { what, reason }, None)
            }
            TokenRequestError::NoToken => (IdentityCause::NoToken, None),
            TokenRequestError::Refused(status, advice) => (self.refused(what, &status), advice),
        };
        TokenFailure { error: IdentityError { user: self.user(), cause }, advice }
    }

    fn refused(&self, what: &'static str, status: &Status) -> IdentityCause {
        let about = status.details.as_ref().map_or("", |details| details.kind.as_str());
        // An account is never missing when it is made; only its namespace can be.
        if status.code == StatusCode::NOT_FOUND && (what == ACCOUNT || about == "namespaces") {
            return IdentityCause::NoNamespace(self.namespace.clone());
        }
        if let Some(denial) = MissingPermission::of(status) {
            return IdentityCause::Denied(denial);
        }
        let message = status.message.split_whitespace().collect::<Vec<_>>().join(" ");
        IdentityCause::Refused { what, message, code: status.code }
    }
}

impl IssuedToken {
    /// Reads the server's answer. What it cannot read it does not quote.
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
    /// What the server granted, which may be less than what was asked for.
    expiration_seconds: Option<i64>,
}

#[derive(Deserialize)]
struct TokenStatus {
    #[serde(default)]
    token: String,
}

impl Token {
    /// `None` for what is no token: nothing, blanks, or what a header cannot hold.
    fn new(token: &str) -> Option<Self> {
        if token.is_empty() || token.contains(char::is_whitespace) {
            return None;
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }

    /// What the header `Authorization` is to say.
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
        f.debug_tuple("Account").field(&self.user()).finish()
    }
}

/// The longest name of an object, in bytes.
const MAX_NAME: usize = 253;

/// Whether the API takes this as the name of a namespace: a DNS label.
fn is_label(text: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: &str, token: &str) -> Option<IssuedToken> {
        IssuedToken::read(format!(r#"{{"spec":{{{spec}}},"status":{{"token":"{token}"}}}}"#).as_bytes())
    }

    #[test]
    fn token_is_what_the_server_granted_for_as_long_as_it_granted_it() {
        let grant = read(r#""expirationSeconds":1800"#, "s3cr3t").unwrap();
        assert_eq!(grant.lifetime, Duration::from_secs(1800));
        assert_eq!(grant.token.header(), "Bearer s3cr3t");
        assert!(grant.token.header().is_sensitive());
        assert_eq!(read(r#""expirationSeconds":9223372036854775807"#, "s").unwrap().lifetime, MAX_LIFETIME);
    }

    #[test]
    fn answer_without_token_or_lifetime_is_none() {
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
