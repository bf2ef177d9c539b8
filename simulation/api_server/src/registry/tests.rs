//! Tests of the registry's guarantees, on the built-in kinds and its own storage.

mod creation;
mod custom;
mod deletion;
mod kinds;
mod quotas;
mod subresources;
mod updates;

use std::ops::Deref;
use std::sync::Arc;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use windlass_env::Env;
use windlass_schema::Catalog;

use super::{
    DeleteOptions, DeleteResponse, FieldValidation, PatchKind, Registry, Target, WriteOptions, WriteResponse,
    value,
};
use crate::read::{ListOptions, Selection};
use crate::status::Status;
use crate::storage::{InMemoryStorage, MemoryOptions, Storage, Stored};

/// A registry for an empty storage, with the default resources.
struct World {
    storage: Arc<dyn Storage>,
    registry: Ready,
}

/// A registry whose operations wait for no webhook.
struct Ready(Registry);

impl World {
    fn new() -> World {
        let storage: Arc<dyn Storage> = Arc::new(InMemoryStorage::new(MemoryOptions::default()));
        let registry = Registry::new(&Env::system("test"), Arc::clone(&storage), Catalog::built_in());
        World { storage, registry: Ready(registry) }
    }

    /// Returns the target for `pods`, `apps/v1/replicasets` or `pods/status`, in the namespace `default` if it is
    /// namespaced.
    fn at(&self, path: &str, name: &str) -> Target {
        let (path, subresource) = match path.split('/').collect::<Vec<_>>().as_slice() {
            [core] => (("", "v1", (*core).to_owned()), ""),
            [core, below] => (("", "v1", (*core).to_owned()), *below),
            [group, version, plural] => ((*group, *version, (*plural).to_owned()), ""),
            [group, version, plural, below] => ((*group, *version, (*plural).to_owned()), *below),
            _ => unreachable!("a path has at most four parts"),
        };
        let catalog = self.registry.catalog();
        let resource = catalog.resource(path.0, path.1, &path.2).cloned().expect("a resource that is served");
        let namespace = if resource.namespaced { "default" } else { "" }.to_owned();
        Target { resource, namespace, name: name.to_owned(), subresource: subresource.to_owned() }
    }

    fn create(&self, path: &str, body: Value) -> Result<Value, Status> {
        self.registry.create(&self.at(path, ""), body, &options()).map(|it| it.answer.value().clone())
    }

    fn made(&self, path: &str, body: Value) -> Value {
        self.create(path, body).expect("the object is created")
    }

    fn update(&self, path: &str, body: Value) -> Result<Value, Status> {
        let name = value::text(&body, &["metadata", "name"]).to_owned();
        self.registry.update(&self.at(path, &name), body, &options()).map(|it| it.answer.value().clone())
    }

    fn patch(&self, path: &str, name: &str, kind: PatchKind, body: Value) -> Result<Value, Status> {
        let written = self.registry.patch(&self.at(path, name), kind, body, &options())?;
        Ok(written.answer.value().clone())
    }

    fn delete(&self, path: &str, name: &str, options: &DeleteOptions) -> Result<DeleteResponse, Status> {
        self.registry.delete(&self.at(path, name), options)
    }

    fn get(&self, path: &str, name: &str) -> Option<Value> {
        self.registry.get(&self.at(path, name)).ok().map(|it| it.value().clone())
    }

    /// Writes a status as a controller or kubelet does.
    fn status(&self, path: &str, name: &str, status: Value) -> Value {
        let mut object = self.get(path.trim_end_matches("/status"), name).expect("the object exists");
        object["status"] = status;
        self.update(path, object).expect("the status is written")
    }
}

impl Ready {
    fn create(&self, to: &Target, body: Value, options: &WriteOptions) -> Result<WriteResponse, Status> {
        ready(self.0.create(to, body, options))
    }

    fn update(&self, to: &Target, body: Value, options: &WriteOptions) -> Result<WriteResponse, Status> {
        ready(self.0.update(to, body, options))
    }

    fn patch(
        &self,
        to: &Target,
        kind: PatchKind,
        body: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        ready(self.0.patch(to, kind, body, options))
    }

    fn delete(&self, at: &Target, options: &DeleteOptions) -> Result<DeleteResponse, Status> {
        ready(self.0.delete(at, options)).0
    }

    fn delete_collection(
        &self,
        at: &Target,
        selection: &Selection,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Stored>>, Status> {
        ready(self.0.delete_collection(at, selection, list, options)).0
    }
}

impl Deref for Ready {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.0
    }
}

/// Returns the result of an operation that waits for no webhook.
fn ready<T>(operation: impl Future<Output = T>) -> T {
    operation.now_or_never().expect("no webhook is called")
}

fn options() -> WriteOptions {
    WriteOptions { field_manager: "test".to_owned(), user: "somebody".to_owned(), ..WriteOptions::default() }
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}})
}

fn replica_set(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
            },
        },
    })
}

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "1"}})
}

/// Returns the part of an object at a pointer.
fn part<'a>(object: &'a Value, pointer: &str) -> &'a Value {
    object.pointer(pointer).unwrap_or(&Value::Null)
}
