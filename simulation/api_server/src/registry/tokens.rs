//! Tokens of service accounts: opaque, kept in memory, each made out for one user until some time.
//!
//! A snapshot of the storage does not hold them: after a restart everybody asks for new ones. Those that have expired
//! are forgotten when the next one is made. A token is its account's: it ends with it, and is not that of another
//! account of the same name.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass_env::Rng;

use super::invalid::FieldErrors;
use super::request::{Target, WriteOptions, Written};
use super::writer::{self, Writer, seconds};
use super::{Answer, convert, value};
use crate::status::{Named, Status};
use crate::storage::{Collection, Storage};

/// How long a token lasts if nothing else is asked: an hour, as upstream's.
const LIFETIME: i64 = 3600;
/// The shortest lifetime that can be asked for.
const SHORTEST: i64 = 600;

/// The tokens made out so far.
#[derive(Debug, Default)]
pub(crate) struct Tokens(BTreeMap<String, (Owner, Timestamp)>);

/// The account that a token was made out for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    namespace: String,
    name: String,
    uid: String,
}

impl Owner {
    /// The user that it is, as long as it is there.
    pub(crate) fn user(&self, storage: &dyn Storage) -> Option<String> {
        let Self { namespace, name, uid } = self;
        let account = storage.get(&Collection::new("", "serviceaccounts"), &writer::key(namespace, name))?;
        let same = value::text(&account.value, &["metadata", "uid"]) == uid;
        same.then(|| format!("system:serviceaccount:{namespace}:{name}"))
    }
}

impl Tokens {
    /// The account of a token that has not expired.
    pub(crate) fn owner(&self, token: &str, now: Timestamp) -> Option<Owner> {
        self.0.get(token).filter(|it| it.1 > now).map(|it| it.0.clone())
    }

    fn make(&mut self, rng: &mut Rng, owner: Owner, now: Timestamp, until: Timestamp) -> String {
        self.0.retain(|_, it| it.1 > now);
        let token = format!("windlass.{}.{}", rng.identifier(), rng.identifier());
        self.0.insert(token.clone(), (owner, until));
        token
    }
}

impl Writer<'_> {
    /// The user that a token was made out for, unless it has expired or its account is gone.
    pub(crate) fn user(&self, token: &str) -> Option<String> {
        let now = self.env.wall();
        let owner = self.tokens.lock().unwrap_or_else(PoisonError::into_inner).owner(token, now);
        owner?.user(&**self.storage)
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
        let owner = Owner {
            namespace: to.namespace.clone(),
            name: to.name.clone(),
            uid: value::text(&account.value, &["metadata", "uid"]).to_owned(),
        };
        let token = match options.dry_run {
            true => String::new(),
            false => {
                let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
                tokens.make(&mut self.state.rng, owner, now, until)
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
        let owner = |name: &str| Owner { namespace: "n".into(), name: name.into(), uid: "u".into() };
        let first = tokens.make(&mut rng, owner("a"), at(0), at(10));
        let second = tokens.make(&mut rng, owner("b"), at(5), at(15));
        assert_eq!((tokens.0.len(), tokens.owner(&first, at(9))), (2, Some(owner("a"))));
        tokens.make(&mut rng, owner("c"), at(10), at(20));
        assert_eq!(tokens.0.len(), 2);
        assert_eq!(tokens.owner(&first, at(9)), None);
        assert_eq!(tokens.owner(&second, at(11)), Some(owner("b")));
    }
}
