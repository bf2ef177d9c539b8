mod lists;
mod selectors;
mod watches;

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_env::Env;

use super::*;
use crate::storage::{Change, Collection, InMemoryStorage, Key, Precondition, Storage};

/// A storage and a live view of it, with short helpers for writes.
struct World {
    env: Env,
    storage: Arc<InMemoryStorage>,
    view: ReadView,
}

fn pods() -> Collection {
    Collection::new("", "pods")
}

/// Parses a key; the default namespace is `default`.
fn key(name: &str) -> Key {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    Key::new(namespace, name)
}

fn pod(name: &str, labels: &Value, phase: &str) -> Value {
    let key = key(name);
    let metadata = json!({"name": *key.name, "namespace": *key.namespace, "labels": labels});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": phase}})
}

fn in_namespace(namespace: &str) -> Selection {
    Selection::all(Some(namespace.into()))
}

fn labeled(text: &str) -> Selection {
    Selection { labels: LabelSelector::parse(text).unwrap(), ..Selection::default() }
}

impl World {
    fn new() -> World {
        World::of(InMemoryStorage::default())
    }

    fn of(storage: InMemoryStorage) -> World {
        let (env, storage) = (Env::virtual_time(1), Arc::new(storage));
        let view = ReadView::live(Arc::clone(&storage) as Arc<dyn Storage>, env.rng("watches"));
        World { env, storage, view }
    }

    /// Creates or replaces the pod.
    fn put(&self, name: &str, labels: &Value) -> u64 {
        let held = self.storage.get(&pods(), &key(name));
        let expected = held.map_or(Precondition::Absent, |it| Precondition::Revision(it.revision));
        let change = Change::Put(pod(name, labels, "Running"));
        self.storage.commit(&pods(), &key(name), expected, change).unwrap().revision
    }

    fn delete(&self, name: &str) -> u64 {
        let held = self.storage.get(&pods(), &key(name)).unwrap();
        let (expected, change) = (Precondition::Revision(held.revision), Change::Delete(held.value.clone()));
        self.storage.commit(&pods(), &key(name), expected, change).unwrap().revision
    }

    /// Writes to another collection, which wakes no watch of pods.
    fn elsewhere(&self) -> u64 {
        let (nodes, change) = (Collection::new("", "nodes"), Change::Put(pod("n", &json!({}), "")));
        let key = Key::new("", format!("node-{}", self.storage.revision()));
        self.storage.commit(&nodes, &key, Precondition::Absent, change).unwrap().revision
    }
}
