//! Permissions of users, as RBAC roles grant them.
//!
//! Guarantees:
//! - An unrestricted user has all permissions.
//! - A restricted user can send only requests that a grant covers. Other requests for objects fail with 403 before
//!   any other check, with the message of upstream's RBAC authorizer. The observer receives every denied request,
//!   also if the response is lost.
//!
//! Non-goal: reading roles and bindings from storage. Tests pass the grants.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_object::{Rule, Verb};

use crate::status::{ResourceName, Status};

/// One RBAC rule that is granted to a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Namespace of the binding; `None` for a cluster-wide binding.
    pub namespace: Option<String>,
    /// Names of the objects; empty for all.
    pub names: Vec<String>,
    /// The rule.
    pub rule: Rule,
}

/// A callback that receives each denied request, such as `create secrets in kube-public`.
pub type DenialObserver = Arc<dyn Fn(String) + Send + Sync>;

/// The attributes of a request that authorization uses.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Access<'a> {
    pub(crate) verb: Verb,
    pub(crate) group: &'a str,
    /// Plural name of the resource, with its subresource.
    pub(crate) resource: &'a str,
    /// Empty for none or all.
    pub(crate) namespace: &'a str,
    /// Empty for collections and creates.
    pub(crate) name: &'a str,
}

/// The grants of restricted users.
#[derive(Default)]
pub(crate) struct Rights(Mutex<State>);

#[derive(Default)]
struct State {
    users: BTreeMap<String, Vec<Grant>>,
    observer: Option<DenialObserver>,
}

impl Rights {
    /// Restricts `user` to these grants and those of earlier calls.
    pub(crate) fn restrict(&self, user: &str, grants: Vec<Grant>) {
        let mut state = self.lock();
        let known = state.users.entry(user.to_owned()).or_default();
        known.extend(grants.into_iter().filter(|grant| !known.contains(grant)).collect::<Vec<_>>());
    }

    /// Sets the observer of denied requests.
    pub(crate) fn observe_denials(&self, observer: DenialObserver) {
        self.lock().observer = Some(observer);
    }

    /// Checks whether `user` has the permission.
    ///
    /// # Errors
    /// 403 if no grant covers the request.
    pub(crate) fn check(&self, user: &str, access: Access<'_>) -> Result<(), Status> {
        let observer = {
            let state = self.lock();
            let Some(grants) = state.users.get(user) else { return Ok(()) };
            if grants.iter().any(|grant| grant.covers(access)) {
                return Ok(());
            }
            state.observer.clone()
        };
        if let Some(observer) = observer {
            observer(access.to_string());
        }
        Err(access.denied(user))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Grant {
    fn covers(&self, access: Access<'_>) -> bool {
        let covers = |granted: &str, asked: &str| granted == "*" || granted == asked;
        covers(&self.rule.group, access.group)
            && covers(&self.rule.resource, access.resource)
            && self.rule.verbs.contains(&access.verb)
            && self.namespace.as_deref().is_none_or(|namespace| namespace == access.namespace)
            && (self.names.is_empty() || self.names.iter().any(|name| name == access.name))
    }
}

impl Access<'_> {
    fn denied(self, user: &str) -> Status {
        let Access { verb, group, resource, namespace, name } = self;
        let place = match namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let why = format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {place}");
        let plural = resource.split('/').next().unwrap_or_default();
        Status::forbidden(ResourceName { group, resource: plural }, name, &why)
    }
}

impl fmt::Display for Access<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Access { verb, group, resource, namespace, name } = self;
        write!(f, "{verb} {resource}")?;
        for (before, part) in [(".", group), (" ", name), (" in ", namespace)] {
            if !part.is_empty() {
                write!(f, "{before}{part}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: Access<'_> =
        Access { verb: Verb::Get, group: "", resource: "pods", namespace: "shop", name: "web" };

    fn grant(namespace: Option<&str>, names: &[&str], verbs: &[Verb]) -> Grant {
        Grant {
            namespace: namespace.map(str::to_owned),
            names: names.iter().map(ToString::to_string).collect(),
            rule: Rule::new("", "pods", verbs.iter().copied()),
        }
    }

    #[test]
    fn grant_covers_its_verbs_namespace_and_names() {
        let everywhere = grant(None, &[], &[Verb::Get]);
        assert!(everywhere.covers(POD));
        assert!(!everywhere.covers(Access { verb: Verb::List, ..POD }));
        assert!(!everywhere.covers(Access { resource: "pods/status", ..POD }));
        assert!(!everywhere.covers(Access { group: "apps", ..POD }));
        assert!(grant(Some("shop"), &[], &[Verb::Get]).covers(POD));
        assert!(!grant(Some("other"), &[], &[Verb::Get]).covers(POD));
        assert!(!grant(Some("shop"), &[], &[Verb::Get]).covers(Access { namespace: "", ..POD }));
        assert!(grant(None, &["web"], &[Verb::Get]).covers(POD));
        assert!(!grant(None, &["mail"], &[Verb::Get]).covers(POD));
    }

    #[test]
    fn restricted_user_gets_rbac_forbidden_message() {
        let rights = Rights::default();
        assert!(rights.check("keeper", POD).is_ok(), "nothing restricts the user");
        rights.restrict("keeper", vec![grant(None, &[], &[Verb::List])]);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        rights.observe_denials(Arc::new(move |denied| hears.lock().expect("no panic").push(denied)));
        let denied = rights.check("keeper", POD).expect_err("no grant has the verb");
        let message = "pods \"web\" is forbidden: User \"keeper\" cannot get resource \"pods\" in API group \"\" in the \
                       namespace \"shop\"";
        assert_eq!((denied.code, &*denied.message), (403, message));
        rights.restrict("keeper", vec![grant(None, &[], &[Verb::Get])]);
        assert!(rights.check("keeper", POD).is_ok());
        assert_eq!(*heard.lock().expect("no panic"), ["get pods web in shop"]);
    }
}
