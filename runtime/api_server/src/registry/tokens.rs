//! Tokens of service accounts: opaque, kept in memory, each made out for one user until some time.
//!
//! A snapshot of the storage does not hold them: after a restart everybody asks for new ones. Those that have expired
//! are forgotten when the next one is made.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass_env::Rng;

use super::invalid::FieldErrors;
use super::request::{Target, WriteOptions, Written};
use super::writer::{Writer, seconds};
use super::{Answer, convert, value};
use crate::status::{Named, Status};
use crate::storage::Collection;

/// How long a token lasts if nothing else is asked: an hour, as upstream's.
const LIFETIME: i64 = 3600;
/// The shortest lifetime that can be asked for.
const SHORTEST: i64 = 600;

/// The tokens made out so far.
#[derive(Debug, Default)]
pub(crate) struct Tokens(BTreeMap<String, (String, Timestamp)>);

impl Tokens {
    /// The user of a token that has not expired.
    pub(crate) fn user(&self, token: &str, now: Timestamp) -> Option<String> {
        self.0.get(token).filter(|it| it.1 > now).map(|it| it.0.clone())
    }

    fn make(&mut self, rng: &mut Rng, user: String, now: Timestamp, until: Timestamp) -> String {
        self.0.retain(|_, it| it.1 > now);
        let token = format!("windlass.{}.{}", rng.identifier(), rng.identifier());
        self.0.insert(token.clone(), (user, until));
        token
    }
}

impl Writer<'_> {
    /// The user that a token was made out for, unless it has expired.
    pub(crate) fn user(&self, token: &str) -> Option<String> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).user(token, self.env.wall())
    }

    /// What a token is bound to must be there.
    fn check_bound(&self, namespace: &str, bound: &Value) -> Result<(), Status> {
        let (plural, namespace) = match value::text(bound, &["kind"]) {
            "Pod" => ("pods", namespace),
            "Secret" => ("secrets", namespace),
            "Node" => ("nodes", ""),
            _ => return Ok(()),
        };
        let (name, uid) = (value::text(bound, &["name"]), value::text(bound, &["uid"]));
        let found = self.find(&Collection::new("", plural), namespace, name);
        let named = Named { group: "", resource: plural };
        let found = found.ok_or_else(|| Status::not_found(named, name))?;
        if uid.is_empty() || uid == value::text(&found.value, &["metadata", "uid"]) {
            return Ok(());
        }
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        Err(Status::conflict(Named { group: "", resource: value::text(bound, &["kind"]) }, name, &why))
    }

    /// `serviceaccounts/token`.
    pub(crate) fn token(
        &mut self,
        to: &Target,
        mut request: Value,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let account = self.find(&convert::collection(&to.resource), &to.namespace, &to.name);
        let account = account.ok_or_else(|| to.not_found())?;
        self.check_bound(&to.namespace, value::at(&request, &["spec", "boundObjectRef"]))?;
        let asked = value::integer(&request, &["spec", "expirationSeconds"]).unwrap_or(LIFETIME);
        if asked < SHORTEST {
            let mut errors = FieldErrors::default();
            let detail = "may not specify a duration less than 10 minutes";
            errors.invalid("spec.expirationSeconds", asked, detail);
            errors.refuse("authentication.k8s.io", "TokenRequest", &to.name)?;
        }
        let now = self.env.wall();
        let until = now.saturating_add(SignedDuration::from_secs(asked)).unwrap_or(now);
        let user = format!("system:serviceaccount:{}:{}", to.namespace, to.name);
        let token = match options.dry_run {
            true => String::new(),
            false => {
                let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
                tokens.make(&mut self.state.rng, user, now, until)
            }
        };
        value::set(&mut request, &["kind"], "TokenRequest");
        value::set(&mut request, &["apiVersion"], "authentication.k8s.io/v1");
        value::set(&mut request, &["metadata", "name"], to.name.clone());
        value::set(&mut request, &["metadata", "namespace"], to.namespace.clone());
        value::set(&mut request, &["metadata", "creationTimestamp"], seconds(now));
        value::set(&mut request, &["spec", "expirationSeconds"], asked);
        if value::is_empty(&request, &["spec", "audiences"]) {
            value::set(&mut request, &["spec", "audiences"], json!(["https://kubernetes.default.svc"]));
        }
        value::default(&mut request, &["spec", "boundObjectRef"], Value::Null);
        value::set(&mut request, &["status"], json!({"token": token, "expirationTimestamp": seconds(until)}));
        drop(account);
        Ok(Written { answer: Answer::Value(request), created: true, warnings: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use windlass_env::Env;

    use super::*;

    #[test]
    fn expired_tokens_are_forgotten_when_another_is_made() {
        let (mut tokens, mut rng) = (Tokens::default(), Env::system("test").rng("tokens"));
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = tokens.make(&mut rng, "a".to_owned(), at(0), at(10));
        let second = tokens.make(&mut rng, "b".to_owned(), at(5), at(15));
        assert_eq!((tokens.0.len(), tokens.user(&first, at(9)).as_deref()), (2, Some("a")));
        tokens.make(&mut rng, "c".to_owned(), at(10), at(20));
        assert_eq!(tokens.0.len(), 2);
        assert_eq!(tokens.user(&first, at(9)), None);
        assert_eq!(tokens.user(&second, at(11)).as_deref(), Some("b"));
    }
}
