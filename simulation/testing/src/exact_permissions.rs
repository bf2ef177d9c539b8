//! Least-privilege checks: the processes of a campaign have exactly the generated roles and must use all rules that
//! they declare.
//!
//! Guarantees:
//! - The server denies requests that the roles of a process do not grant. The run fails with the request, even if the
//!   response is lost. The process must handle other 403 responses, such as those of a quota.
//! - A campaign fails if a setup declares a rule that no request of the process used. Rules that the runtime adds are
//!   exempt: election, events, `list` next to `watch` (a server can stream a list), and `<resource>/finalizers`, which
//!   the API server checks without a request.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::{HeaderValue, Request, header};
use k8s_openapi::api::rbac::v1::{PolicyRule, Subject};
use kube::client::Body;
use tower::Service;
use windlass_api_server::faults::{Link, LinkError, Server};
use windlass_api_server::{DenialObserver, Grant, RecordedAccess};
use windlass_controller::Registration;
use windlass_env::Env;
use windlass_manager::{ManagerConfig, ManagerError, ManifestOptions, Manifests, Registry};
use windlass_object::{Rule, Verb};

use crate::oracle::Oracle;
use crate::permissions::{permits, rules_from_role};
use crate::violation::Violation;

/// Namespace of the ServiceAccounts.
const NAMESPACE: &str = "default";

/// Rules that the processes of a campaign declare, and the accesses that they use.
#[derive(Default)]
pub(crate) struct ExactPermissions(Mutex<State>);

#[derive(Default)]
struct State {
    /// Declared rules by controller or runnable.
    declared: BTreeMap<&'static str, Vec<Rule>>,
    /// Users that are restricted.
    users: BTreeSet<String>,
    used: BTreeSet<RecordedAccess>,
}

impl ExactPermissions {
    /// Restricts the users of a process to its generated roles, and returns the user of the process.
    pub(crate) fn restrict(
        &self,
        server: &dyn Server,
        registrations: &[Registration],
        config: &ManagerConfig,
        oracle: &Arc<Oracle>,
    ) -> Result<String, ManagerError> {
        let mut registry = Registry::new();
        for registration in registrations {
            registry.register(registration.clone())?;
        }
        let manifests = Manifests::of(&registry, config, &ManifestOptions::new(NAMESPACE))?;
        let oracle = Arc::clone(oracle);
        let observer: DenialObserver = Arc::new(move |denied| oracle.report(Violation::Forbidden(denied)));
        for (user, grants) in grants(&manifests) {
            server.restrict(&user, grants, Arc::clone(&observer));
            self.lock().users.insert(user);
        }
        for one in registry.declarations_for(&Env::virtual_time(0), config)? {
            let is_own = registrations.iter().any(|it| it.descriptor().name == one.descriptor.name);
            if is_own {
                self.lock().declared.insert(one.descriptor.name, one.rules);
            }
        }
        Ok(user(NAMESPACE, &config.name))
    }

    /// Adds the accesses of the restricted users of one run.
    pub(crate) fn add(&self, used: BTreeSet<RecordedAccess>) {
        let State { users, used: all, .. } = &mut *self.lock();
        all.extend(used.into_iter().filter(|used| users.contains(&used.user)));
    }

    /// Returns a violation if the campaign left a declared rule unused.
    pub(crate) fn unused(&self) -> Option<Violation> {
        let State { declared, used, .. } = &*self.lock();
        let unused: Vec<String> = declared
            .iter()
            .flat_map(|(controller, rules)| {
                rules.iter().filter_map(move |rule| unused(controller, rule, used))
            })
            .collect();
        (!unused.is_empty()).then(|| Violation::UnusedPermissions(unused.join("\n")))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the unused part of a rule as one line.
fn unused(controller: &str, rule: &Rule, used: &BTreeSet<RecordedAccess>) -> Option<String> {
    if rule.resource == "events" || rule.resource.ends_with("/finalizers") {
        return None;
    }
    let is_used = |verb: Verb| used.iter().any(|used| used.verb == verb && permits(rule, used));
    let is_needed = |verb: Verb| is_used(verb) || (verb == Verb::List && is_used(Verb::Watch));
    let idle: Vec<Verb> = rule.verbs.iter().copied().filter(|verb| !is_needed(*verb)).collect();
    let rule = Rule::new(rule.group.clone(), rule.resource.clone(), idle);
    (!rule.verbs.is_empty()).then(|| format!("{controller}: {}", rule.to_yaml()))
}

/// Returns the grants of the roles, by user.
fn grants(manifests: &Manifests) -> BTreeMap<String, Vec<Grant>> {
    let mut grants: BTreeMap<String, Vec<Grant>> = BTreeMap::new();
    let mut bind = |subjects: Option<&Vec<Subject>>, namespace: Option<&String>, rules: &[PolicyRule]| {
        for subject in subjects.into_iter().flatten() {
            let user = user(subject.namespace.as_deref().unwrap_or_default(), &subject.name);
            grants.entry(user).or_default().extend(rules.iter().flat_map(|rule| granted(namespace, rule)));
        }
    };
    for binding in &manifests.cluster_role_bindings {
        let is_bound = |name: Option<&String>| name == Some(&binding.role_ref.name);
        for role in manifests.cluster_roles.iter().filter(|role| is_bound(role.metadata.name.as_ref())) {
            bind(binding.subjects.as_ref(), None, role.rules.as_deref().unwrap_or_default());
        }
    }
    for binding in &manifests.role_bindings {
        // A Role and its binding have the same name and namespace.
        for role in manifests.roles.iter().filter(|role| role.metadata == binding.metadata) {
            let namespace = binding.metadata.namespace.as_ref();
            bind(binding.subjects.as_ref(), namespace, role.rules.as_deref().unwrap_or_default());
        }
    }
    grants
}

fn granted(namespace: Option<&String>, rule: &PolicyRule) -> impl Iterator<Item = Grant> + use<> {
    let (namespace, names) = (namespace.cloned(), rule.resource_names.clone().unwrap_or_default());
    let rules = rules_from_role(std::slice::from_ref(rule)).into_iter();
    rules.map(move |rule| Grant { namespace: namespace.clone(), names: names.clone(), rule })
}

fn user(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

/// Link of a process with exact permissions: it sends requests as a user.
#[derive(Clone)]
pub(crate) struct UserLink {
    pub(crate) link: Link,
    /// Impersonated user; `None` for unrestricted access.
    pub(crate) user: Option<HeaderValue>,
}

impl Service<Request<Body>> for UserLink {
    type Response = <Link as Service<Request<Body>>>::Response;
    type Error = LinkError;
    type Future = <Link as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        Service::<Request<Body>>::poll_ready(&mut self.link, cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // A token already identifies the ServiceAccount of a controller.
        if let Some(user) = self.user.clone()
            && !request.headers().contains_key(header::AUTHORIZATION)
        {
            request.headers_mut().insert("impersonate-user", user);
        }
        self.link.call(request)
    }
}

impl fmt::Debug for ExactPermissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExactPermissions").finish_non_exhaustive()
    }
}
