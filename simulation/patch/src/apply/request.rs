//! Handles one apply request, from the stored object and the request to the new object.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::managed::{self, ManagedFields, ManagerKey, Operation};
use super::owners::{self, Apply, ApplyFailure};
use super::schema_cursor::SchemaCursor;
use super::set::FieldSet;
use super::{
    ApplyError, Conflict, Manager, UNOWNED, api_version, check, compare, last_applied, name, remove,
    subresource,
};

/// Manager of the fields that existed before the first apply, if they have no owner.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Parameters of an apply.
pub(super) struct Request<'a> {
    pub(super) cursor: SchemaCursor<'a>,
    pub(super) applied: &'a Value,
    pub(super) manager: &'a Manager,
    pub(super) reset: &'a FieldSet,
    pub(super) now: Timestamp,
}

/// A live object without its entries.
struct Live {
    object: Value,
    managed: ManagedFields,
}

impl Request<'_> {
    pub(super) fn run(&self, live: Option<&Value>) -> Result<Value, ApplyError> {
        let live = self.live(live)?;
        if managed::raw(self.applied).is_some_and(|fields| !fields.is_null()) {
            return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
        }
        check::check(self.cursor, self.applied, false).map_err(|text| {
            let text = format!("failed to create typed patch object ({}): {text}", described(self.applied));
            ApplyError::Invalid(text)
        })?;
        let mut object = match self.attempt(&live, self.manager.force) {
            Err(ApplyFailure::Conflicts(conflicts)) if self.manager.name == last_applied::MANAGER => {
                let version = api_version(self.applied);
                let left = last_applied::without_taken_over(self.cursor, &live.object, version, conflicts);
                if left.is_empty() { self.attempt(&live, true) } else { Err(ApplyFailure::Conflicts(left)) }
            }
            outcome => outcome,
        }
        .map_err(refused)?;
        if self.manager.name == last_applied::MANAGER {
            last_applied::refresh(&mut object, self.applied);
        }
        Ok(object)
    }

    fn live(&self, live: Option<&Value>) -> Result<Live, ApplyError> {
        let empty = Value::Object(Map::new());
        let mut object = live.unwrap_or(&empty).clone();
        let mut managed = ManagedFields::read(&object)
            .map_err(|error| ApplyError::Invalid(format!("failed to decode managed fields: {error}")))?;
        managed::take(&mut object);
        if managed.is_empty() {
            self.check_identities(&object)?;
            let version = api_version(self.applied);
            let first =
                ManagerKey::new(BEFORE_FIRST_APPLY, Operation::Update, version, subresource(self.manager));
            let difference = compare::between(self.cursor, &empty, &object).without(self.reset);
            if owners::update(&mut managed.owners, &difference, &first, version, &UNOWNED) {
                managed.times.insert(first, self.now);
            }
        }
        owners::reconcile(self.cursor, &mut managed.owners);
        Ok(Live { object, managed })
    }

    /// Checks that all items of an existing object have an identity, so that its fields can have an owner.
    fn check_identities(&self, object: &Value) -> Result<(), ApplyError> {
        if !self.cursor.has_unkeyed_items(object) {
            return Ok(());
        }
        check::check(self.cursor, object, true).map_err(|text| {
            let object = described(object);
            ApplyError::Invalid(format!(
                "failed to create manager for existing fields: failed to convert new object ({object}) to smd typed: \
                 {text}"
            ))
        })
    }

    fn attempt(&self, live: &Live, force: bool) -> Result<Value, ApplyFailure<ManagerKey>> {
        let version = api_version(self.applied);
        let key = ManagerKey::new(name(self.manager), Operation::Apply, version, subresource(self.manager));
        let apply = Apply { config: self.applied, version, manager: &key, force, reset: self.reset };
        let mut managed = live.managed.clone();
        let new = owners::apply(self.cursor, &live.object, &mut managed.owners, &apply)?;
        strip(&mut managed, &key);
        if new.is_some() {
            managed.times.insert(key, self.now);
        }
        let mut object = match new {
            Some(mut new) => {
                remove::drop_emptied(&live.object, self.applied, &mut new);
                new
            }
            None => live.object.clone(),
        };
        managed.write(&mut object);
        Ok(object)
    }
}

fn strip(managed: &mut ManagedFields, key: &ManagerKey) {
    let Some(owned) = managed.owners.get_mut(key) else { return };
    owned.set = owned.set.difference(&UNOWNED);
    if owned.set.is_empty() {
        managed.owners.remove(key);
    }
}

fn refused(failure: ApplyFailure<ManagerKey>) -> ApplyError {
    match failure {
        ApplyFailure::Merge(text) => ApplyError::Invalid(text),
        ApplyFailure::Conflicts(conflicts) => {
            let conflict = |(manager, path)| Conflict { manager, path };
            ApplyError::Conflicts(conflicts.into_iter().map(conflict).collect())
        }
    }
}

/// Returns `namespace/name; group/version, Kind=Kind`.
fn described(object: &Value) -> String {
    let metadata = |field: &str| object.get("metadata").and_then(|it| it.get(field)).and_then(Value::as_str);
    let version = api_version(object);
    let group = if version.contains('/') { "" } else { "/" };
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (metadata("namespace").unwrap_or_default(), metadata("name").unwrap_or_default());
    format!("{namespace}/{name}; {group}{version}, Kind={kind}")
}
