//! The subresource `serviceaccounts/token`, which issues tokens.

use std::sync::PoisonError;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::invalid::FieldErrors;
use super::request::{ResponseObject, Target, WriteOptions, WriteResponse};
use super::tokens::Owner;
use super::writer::{WriteTransaction, seconds};
use super::{convert, value};
use crate::status::{ResourceName, Status};
use crate::storage::Collection;

/// Default lifetime of a token: one hour, as upstream.
const LIFETIME: i64 = 3600;
/// Minimum lifetime of a token.
const MIN_LIFETIME: i64 = 600;

impl WriteTransaction<'_> {
    /// Returns the user of a token, unless the token has expired or its ServiceAccount was deleted.
    pub(crate) fn user(&self, token: &str) -> Option<String> {
        let now = self.time();
        let owner = self.tokens.lock().unwrap_or_else(PoisonError::into_inner).owner(token, now);
        owner?.user(&**self.storage)
    }

    /// Checks that the bound object exists.
    fn check_bound(&self, namespace: &str, bound: &Value) -> Result<(), Status> {
        let (plural, namespace) = match value::text(bound, &["kind"]) {
            "Pod" => ("pods", namespace),
            "Secret" => ("secrets", namespace),
            "Node" => ("nodes", ""),
            _ => return Ok(()),
        };
        let (name, uid) = (value::text(bound, &["name"]), value::text(bound, &["uid"]));
        let found = self.find(&Collection::new("", plural), namespace, name);
        let named = ResourceName { group: "", resource: plural };
        let found = found.ok_or_else(|| Status::not_found(named, name))?;
        if uid.is_empty() || uid == value::text(&found.value, &["metadata", "uid"]) {
            return Ok(());
        }
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        Err(Status::conflict(ResourceName { group: "", resource: value::text(bound, &["kind"]) }, name, &why))
    }

    /// Issues a token for a ServiceAccount.
    pub(crate) fn token(
        &mut self,
        to: &Target,
        mut request: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        let account = self.find(&convert::collection(&to.resource), &to.namespace, &to.name);
        let account = account.ok_or_else(|| to.not_found())?;
        self.check_bound(&to.namespace, value::at(&request, &["spec", "boundObjectRef"]))?;
        let asked = value::integer(&request, &["spec", "expirationSeconds"]).unwrap_or(LIFETIME);
        if asked < MIN_LIFETIME {
            let mut errors = FieldErrors::default();
            let detail = "may not specify a duration less than 10 minutes";
            errors.invalid("spec.expirationSeconds", asked, detail);
            errors.into_result("authentication.k8s.io", "TokenRequest", &to.name)?;
        }
        let now = self.time();
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
        Ok(WriteResponse { answer: ResponseObject::Value(request), created: true, warnings: Vec::new() })
    }
}
