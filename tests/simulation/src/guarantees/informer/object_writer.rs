//! User operations on the server, recorded in the history.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use windlass_object::ObjectKey;
use windlass_testing::api_server::faults::FaultyServer;

use super::history::History;
use super::version_of;

/// Writes the objects of one kind.
pub(super) struct ObjectWriter {
    pub(super) server: FaultyServer,
    pub(super) history: Arc<History>,
    /// Prefix of request paths.
    group: &'static str,
    plural: &'static str,
    writes: u64,
}

impl ObjectWriter {
    pub(super) fn new(server: &FaultyServer, group: &'static str, plural: &'static str) -> Self {
        ObjectWriter { server: server.clone(), history: Arc::default(), group, plural, writes: 0 }
    }

    pub(super) fn exists(&self, namespace: &str, name: &str) -> bool {
        self.history.is_present(&ObjectKey::namespaced(namespace, name))
    }

    /// Creates or changes an object, with this index value and this size.
    pub(super) fn put(&mut self, namespace: &str, name: &str, value: &str, bulk: usize) {
        self.writes += 1;
        let data = json!({ "value": value, "write": self.writes.to_string(), "bulk": "x".repeat(bulk) });
        let path = self.path(namespace, name);
        if self.server.object(&path).is_some_and(|it| it["data"].is_number()) {
            // A patch cannot be merged into an undecodable object.
            self.server.overwrite_unchecked(&path, |object| object["data"] = json!({}));
            self.history.wrote(namespace, name, &self.server.object(&path).expect("it is there"));
        }
        let written = self.server.upsert(&path, json!({ "data": data }));
        self.history.wrote(namespace, name, &written);
    }

    /// Makes an object undecodable.
    pub(super) fn make_undecodable(&self, namespace: &str, name: &str) {
        let path = self.path(namespace, name);
        self.server.overwrite_unchecked(&path, |object| object["data"] = json!(7));
        let written = self.server.object(&path).expect("it is there");
        self.history.wrote(namespace, name, &written);
    }

    pub(super) fn delete(&self, namespace: &str, name: &str) {
        self.server.delete(&self.path(namespace, name));
        self.history.deleted(namespace, name, self.latest());
    }

    /// Performs an operation that deletes all objects one after the other.
    pub(super) fn lose_all(&self, how: impl FnOnce(&FaultyServer)) {
        let before = self.latest();
        how(&self.server);
        let after = self.latest();
        for key in self.history.keys().iter().filter(|key| self.history.is_present(key)) {
            self.history.was_deleted_between(key, before, after);
        }
    }

    /// Restores the server to its state at a version.
    pub(super) fn restore(&self, version: u64) {
        self.server.restore(version);
        self.history.restored(version);
    }

    /// Returns all objects.
    pub(super) fn all(&self) -> Vec<Value> {
        self.server.all(&format!("{}/{}", self.group, self.plural))
    }

    /// Returns the version of the newest write.
    fn latest(&self) -> u64 {
        version_of(&self.server.request(&Method::GET, "/api/v1/configmaps?limit=1", None).1)
    }

    fn path(&self, namespace: &str, name: &str) -> String {
        format!("{}/namespaces/{namespace}/{}/{name}", self.group, self.plural)
    }
}
