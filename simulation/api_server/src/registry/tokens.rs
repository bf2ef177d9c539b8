//! ServiceAccount tokens: opaque, in memory, each for one user and with an expiry.
//!
//! A snapshot of the storage does not contain them, so clients must request new tokens after a restart. Expired
//! tokens are dropped when the next one is issued. A token is bound to one ServiceAccount: it becomes invalid with
//! its deletion, also if another one gets the same name.

use std::collections::BTreeMap;

use jiff::Timestamp;
use windlass_env::Rng;

use super::value;
use crate::storage::{Collection, Key, Storage};

/// Issued tokens.
#[derive(Debug, Default)]
pub(crate) struct Tokens(BTreeMap<String, (Owner, Timestamp)>);

/// The ServiceAccount of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Owner {
    /// Returns the user name, while the ServiceAccount exists.
    pub(crate) fn user(&self, storage: &dyn Storage) -> Option<String> {
        let Self { namespace, name, uid } = self;
        let account = storage
            .get(&Collection::new("", "serviceaccounts"), &Key::new(namespace.as_str(), name.as_str()))?;
        let same = value::text(&account.value, &["metadata", "uid"]) == uid;
        same.then(|| format!("system:serviceaccount:{namespace}:{name}"))
    }
}

impl Tokens {
    /// Returns the ServiceAccount of a token that has not expired.
    pub(crate) fn owner(&self, token: &str, now: Timestamp) -> Option<Owner> {
        self.0.get(token).filter(|it| it.1 > now).map(|it| it.0.clone())
    }

    /// Issues a token for a ServiceAccount, and drops expired tokens.
    pub(crate) fn make(&mut self, rng: &mut Rng, owner: Owner, now: Timestamp, until: Timestamp) -> String {
        self.0.retain(|_, it| it.1 > now);
        let token = format!("windlass.{}.{}", rng.identifier(), rng.identifier());
        self.0.insert(token.clone(), (owner, until));
        token
    }
}

#[cfg(test)]
mod tests {
    use windlass_env::Env;

    use super::*;

    #[test]
    fn expired_tokens_are_dropped_when_one_is_issued() {
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
