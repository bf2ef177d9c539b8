//! Generation of sequences from seeds.

use fastrand::Rng;
use http::Method;
use serde_json::{Value, json};

use super::edits::{Edit, edit, job_count_edit, job_status_edit, status_edit};
use super::objects::{KINDS, Kind, pick};
use crate::case::patch;

/// Number of requests of one sequence.
pub const LENGTH: usize = 120;

/// A request of a sequence. Text in braces is replaced per server: `{ns}` by the namespace, `{seed}` by a number below
/// 256, `{version}`, `{uid}` and `{continue}` by values of earlier responses.
#[derive(Clone, Debug)]
pub struct Step {
    /// HTTP method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// Path of the object that the request is about; its last known state is used by the body.
    pub object: String,
    /// Headers.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: StepBody,
}

/// The body of a request.
#[derive(Clone, Debug)]
pub enum StepBody {
    /// Text, or nothing.
    Text(String),
    /// JSON.
    Json(Value),
    /// The last known state of the object with changes, or a new object.
    Edited {
        /// Document if the object is not known.
        otherwise: Value,
        /// Changes.
        edits: Vec<Edit>,
        /// Damage to the text.
        damage: Damage,
    },
}

/// Damage to the text of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// None.
    None,
    /// The second half is missing.
    Truncated,
    /// A field occurs twice.
    Duplicate,
}

/// A generator of steps.
pub(super) struct Generator {
    rng: Rng,
}

/// Returns the requests of the sequence of this seed.
#[must_use]
pub fn steps(seed: u64) -> Vec<Step> {
    let mut generator = Generator::of(seed);
    (0..LENGTH).map(|_| generator.step()).collect()
}

/// Returns the requests of a sequence about the status of one Job: it is created and deleted again and again, and its
/// status and counts change in between.
#[must_use]
pub fn job_status_steps(seed: u64) -> Vec<Step> {
    let mut generator = Generator::of(seed);
    (0..LENGTH).map(|index| generator.job_status_step(index)).collect()
}

const NAMES: &[&str] = &["a", "b", "web"];

/// Number of requests after which a Job is replaced.
const JOB_LIFETIME: usize = 12;

impl Generator {
    fn of(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)) }
    }

    fn one_in(&mut self, odds: u32) -> bool {
        self.rng.u32(..odds) == 0
    }

    fn kind(&mut self) -> &'static Kind {
        let total: u32 = KINDS.iter().map(|kind| kind.weight).sum();
        let mut drawn = self.rng.u32(..total);
        for kind in KINDS {
            match drawn.checked_sub(kind.weight) {
                Some(rest) => drawn = rest,
                None => return kind,
            }
        }
        &KINDS[0]
    }

    fn step(&mut self) -> Step {
        let kind = self.kind();
        match self.rng.u32(..100) {
            0..=25 => self.create(kind),
            26..=42 => self.update(kind),
            43..=58 => self.patch(kind),
            59..=66 => self.apply(kind),
            67..=71 => self.get(kind),
            72..=79 => self.list(kind),
            80..=88 => self.delete(kind),
            89..=90 => self.delete_collection(kind),
            91..=94 => self.subresource(kind),
            95..=97 => self.scale(kind),
            _ => self.odd(kind),
        }
    }

    fn name(&mut self, kind: &Kind) -> String {
        let name = pick(&mut self.rng, NAMES);
        if kind.namespaced { name.to_owned() } else { format!("{{ns}}-{name}") }
    }

    fn collection(kind: &Kind) -> String {
        let root = if kind.version.contains('/') { "/apis" } else { "/api" };
        let namespace = if kind.namespaced { "/namespaces/{ns}" } else { "" };
        format!("{root}/{}{namespace}/{}", kind.version, kind.plural)
    }

    fn document(&mut self, kind: &Kind, name: &str) -> Value {
        kind.object(name, &mut self.rng)
    }

    /// Returns a document with up to three changes.
    fn changes(&mut self, kind: &Kind, document: &Value) -> Vec<Edit> {
        let count = match self.rng.u32(..10) {
            0..=5 => 1,
            6..=8 => 2,
            _ => 3,
        };
        (0..count).map(|_| edit(&mut self.rng, kind.kind, document)).collect()
    }

    /// Returns the query of a write.
    fn query(&mut self, extra: &[&str]) -> String {
        let mut parts: Vec<String> = extra.iter().map(|part| (*part).to_owned()).collect();
        if self.one_in(8) {
            parts.push("dryRun=All".to_owned());
        } else if self.one_in(50) {
            parts.push(pick(&mut self.rng, &["dryRun=Some", "dryRun="]).to_owned());
        }
        match self.rng.u32(..20) {
            0..=2 => parts.push("fieldValidation=Strict".to_owned()),
            3 => parts.push("fieldValidation=Ignore".to_owned()),
            4 => parts.push("fieldValidation=Warn".to_owned()),
            5 if self.one_in(3) => parts.push("fieldValidation=Maybe".to_owned()),
            _ => {}
        }
        if self.one_in(8) && !extra.iter().any(|part| part.starts_with("fieldManager")) {
            parts.push(
                pick(&mut self.rng, &["fieldManager=m1", "fieldManager=m2", "fieldManager=m3"]).to_owned(),
            );
        }
        if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
    }

    fn damage(&mut self) -> Damage {
        match self.rng.u32(..60) {
            0 => Damage::Truncated,
            1 => Damage::Duplicate,
            _ => Damage::None,
        }
    }

    fn create(&mut self, kind: &'static Kind) -> Step {
        let name = self.name(kind);
        let mut document = self.document(kind, &name);
        let mut edits = Vec::new();
        let set = |path: &str, value: Value| Edit::Set(path.to_owned(), value);
        match self.rng.u32(..40) {
            0..=15 => {}
            16..=31 => edits = self.changes(kind, &document),
            32 => edits.push(set(
                "/metadata/resourceVersion",
                json!(pick(&mut self.rng, &["1", "0", "abc", "{version}", "99999999"])),
            )),
            33 => edits.push(set("/metadata/uid", json!(pick(&mut self.rng, &["u-1", "{uid}"])))),
            34 => {
                edits.push(Edit::Remove("/metadata/name".to_owned()));
                edits.push(set(
                    "/metadata/generateName",
                    json!(pick(&mut self.rng, &["gen-", "gen-", "Bad_", "{ns}-"])),
                ));
            }
            35 => edits.push(set(
                "/metadata/name",
                json!(pick(
                    &mut self.rng,
                    &["Upper", "under_score", "-dash", "a.b", "", "a/b", "x%y", "..", "a..b", "a b"]
                )),
            )),
            36 => {
                let long = "x".repeat(pick(&mut self.rng, &[53, 64, 254]));
                edits.push(set("/metadata/name", json!(long)));
            }
            37 => edits.push(set(
                "/apiVersion",
                json!(pick(&mut self.rng, &["v2", "apps/v1", "batch/v1", "apps/v1beta1", "", "a/b/c"])),
            )),
            38 => edits.push(set(
                "/kind",
                json!(pick(&mut self.rng, &["Pod", "ConfigMap", "Nope", "", "Deployment"])),
            )),
            _ => edits.push(Edit::Remove(
                pick(&mut self.rng, &["/metadata/name", "/metadata", "/kind", "/apiVersion", "/spec"])
                    .to_owned(),
            )),
        }
        for edit in &edits {
            edit.apply(&mut document);
        }
        let damage = self.damage();
        let body = StepBody::Edited {
            otherwise: document.clone(),
            edits: vec![Edit::Set(String::new(), document)],
            damage,
        };
        let collection = Self::collection(kind);
        Step {
            method: Method::POST,
            path: format!("{collection}{}", self.query(&[])),
            object: format!("{collection}/{name}"),
            headers: json_header(),
            body,
        }
    }

    fn identity_edits(&mut self) -> Vec<Edit> {
        let version = "/metadata/resourceVersion".to_owned();
        let uid = "/metadata/uid".to_owned();
        match self.rng.u32(..20) {
            0..=2 => vec![Edit::Remove(version)],
            3 => vec![Edit::Set(version, json!("1"))],
            4 => vec![Edit::Set(version, json!(pick(&mut self.rng, &["abc", "0", "99999999", "", "-1"])))],
            5 => vec![Edit::Set(uid, json!("00000000-0000-0000-0000-000000000000"))],
            6 => vec![Edit::Remove(uid)],
            7 => vec![Edit::Set("/metadata/name".to_owned(), json!(pick(&mut self.rng, &["other", ""])))],
            _ => Vec::new(),
        }
    }

    fn update(&mut self, kind: &'static Kind) -> Step {
        let name = self.name(kind);
        let document = self.document(kind, &name);
        let mut edits = match self.rng.u32(..10) {
            0 => Vec::new(),
            // Replaces the whole object by a new one.
            1 | 2 => vec![Edit::Set(String::new(), document.clone())],
            _ => self.changes(kind, &document),
        };
        edits.extend(self.identity_edits());
        let object = format!("{}/{name}", Self::collection(kind));
        let damage = self.damage();
        Step {
            method: Method::PUT,
            path: format!("{object}{}", self.query(&[])),
            object,
            headers: json_header(),
            body: StepBody::Edited { otherwise: document, edits, damage },
        }
    }

    fn patch(&mut self, kind: &'static Kind) -> Step {
        let name = self.name(kind);
        let document = self.document(kind, &name);
        let edits = self.changes(kind, &document);
        let media = pick(&mut self.rng, &[patch::JSON, patch::MERGE, patch::STRATEGIC]);
        let body = match self.rng.u32(..14) {
            0 => StepBody::Text(
                pick(
                    &mut self.rng,
                    &[
                        "{",
                        "",
                        "x",
                        "[]",
                        "{}",
                        "null",
                        "5",
                        "\"x\"",
                        "[{}]",
                        "[{\"op\":\"add\"}]",
                        "[{\"op\":\"nope\",\"path\":\"/a\"}]",
                        "{\"spec\":",
                        "[1]",
                        "[{\"op\":\"test\",\"path\":\"/metadata/name\",\"value\":\"zzz\"}]",
                        "[{\"op\":\"replace\",\"path\":\"a\",\"value\":1}]",
                    ],
                )
                .to_owned(),
            ),
            _ if media == patch::JSON => {
                let rng = &mut self.rng;
                let mut operations: Vec<Value> = edits.iter().flat_map(|edit| edit.operations(rng)).collect();
                if self.one_in(6) {
                    let name = name.clone();
                    operations.insert(0, json!({ "op": "test", "path": "/metadata/name", "value": name }));
                }
                StepBody::Json(Value::Array(operations))
            }
            1 => StepBody::Json(
                json!({ "metadata": { "resourceVersion": pick(&mut self.rng, &["{version}", "1", "abc"]) } }),
            ),
            2 => StepBody::Json(json!({ "metadata": { "labels": { "app": null, "new": "label" } } })),
            3 => StepBody::Json(json!({ "metadata": { "name": "other" } })),
            4 if media == patch::STRATEGIC => {
                StepBody::Json(json!({ "spec": { "template": { "spec": { "containers": [
                { "name": "main", "image": "nginx:2" }, { "name": "sidecar", "$patch": "delete" },
            ] } } } }))
            }
            5 => StepBody::Json(json!({ "kind": pick(&mut self.rng, &["Pod", "Nope"]) })),
            6 => StepBody::Json(json!({ "apiVersion": pick(&mut self.rng, &["v1", "v2", "apps/v1"]) })),
            _ => {
                let mut whole = json!({});
                for edit in &edits {
                    merge(&mut whole, edit.merge_patch());
                }
                StepBody::Json(whole)
            }
        };
        let object = format!("{}/{name}", Self::collection(kind));
        let media = if self.one_in(60) { "application/json" } else { media };
        let force: &[&str] = if self.one_in(30) { &["force=true"] } else { &[] };
        Step {
            method: Method::PATCH,
            path: format!("{object}{}", self.query(force)),
            object,
            headers: vec![("content-type", media.to_owned())],
            body,
        }
    }

    fn apply(&mut self, kind: &'static Kind) -> Step {
        let name = self.name(kind);
        let mut document = self.document(kind, &name);
        match self.rng.u32(..12) {
            0..=4 => {}
            5..=7 => {
                for edit in self.changes(kind, &document) {
                    edit.apply(&mut document);
                }
            }
            8 => {
                // A part of the object.
                let drop = document["spec"].as_object().map(|spec| spec.keys().cloned().collect::<Vec<_>>());
                for field in drop.unwrap_or_default() {
                    if self.rng.bool() {
                        Edit::Remove(format!("/spec/{field}")).apply(&mut document);
                    }
                }
            }
            9 => {
                let (path, value) = pick(
                    &mut self.rng,
                    &[
                        ("/metadata/resourceVersion", "1"),
                        ("/metadata/uid", "u-1"),
                        ("/metadata/name", "other"),
                        ("/kind", "Nope"),
                        ("/apiVersion", "v2"),
                        ("/metadata/namespace", "other"),
                    ],
                );
                Edit::Set(path.to_owned(), json!(value)).apply(&mut document);
            }
            10 => {
                let path =
                    pick(&mut self.rng, &["/apiVersion", "/kind", "/metadata/name", "/metadata", "/spec"]);
                Edit::Remove(path.to_owned()).apply(&mut document);
            }
            _ => {
                let metadata = json!({ "name": name, "labels": { "app": "web" } });
                document = json!({ "apiVersion": kind.version, "kind": kind.kind, "metadata": metadata });
            }
        }
        let body = match self.rng.u32(..25) {
            0 => StepBody::Text(
                pick(&mut self.rng, &["{", "", "a: [", "[]", "x", "apiVersion: v1"]).to_owned(),
            ),
            _ => StepBody::Json(document),
        };
        let mut extra = Vec::new();
        if !self.one_in(25) {
            extra.push(pick(&mut self.rng, &["fieldManager=m1", "fieldManager=m2"]));
        }
        match self.rng.u32(..5) {
            0 | 1 => extra.push("force=true"),
            2 => extra.push("force=false"),
            _ => {}
        }
        let object = format!("{}/{name}", Self::collection(kind));
        Step {
            method: Method::PATCH,
            path: format!("{object}{}", self.query(&extra)),
            object,
            headers: vec![("content-type", patch::APPLY.to_owned())],
            body,
        }
    }

    fn get(&mut self, kind: &'static Kind) -> Step {
        let name = self.name(kind);
        let object = format!("{}/{name}", Self::collection(kind));
        let query = match self.rng.u32(..12) {
            0 => "?resourceVersion=0",
            1 => "?resourceVersion=abc",
            _ => "",
        };
        Step {
            method: Method::GET,
            path: format!("{object}{query}"),
            object,
            headers: Vec::new(),
            body: nothing(),
        }
    }

    fn list(&mut self, kind: &'static Kind) -> Step {
        let queries = [
            "",
            "labelSelector=app%3Dweb",
            "labelSelector=app%21%3Dweb",
            "labelSelector=app%20in%20(web,db),tier",
            "labelSelector=!app",
            "labelSelector=a%20b%3Dc",
            "labelSelector=%3D%3Dx",
            "labelSelector=app%3D%3Dweb,tier%20notin%20(one)",
            "labelSelector=app%3Dnot%20valid",
            "labelSelector=app%20in%20(",
            "labelSelector=app%3E5",
            "fieldSelector=metadata.name%3Da",
            "fieldSelector=metadata.name!%3Da",
            "fieldSelector=metadata.namespace%3D{ns}",
            "fieldSelector=status.phase%3DPending",
            "fieldSelector=spec.nodeName%3Dnode-1",
            "fieldSelector=spec.nope%3Dx",
            "fieldSelector=type%3DOpaque",
            "fieldSelector=involvedObject.name%3Dweb",
            "fieldSelector=metadata.name",
            "fieldSelector=spec.type%3DNodePort",
            "limit=1",
            "limit=2",
            "limit=1&continue={continue}",
            "limit=-1",
            "limit=x",
            "continue=nonsense",
            "resourceVersion=0",
            "resourceVersion=abc",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersionMatch=Odd&resourceVersion=1",
            "resourceVersionMatch=NotOlderThan",
            "resourceVersion=0&resourceVersionMatch=NotOlderThan",
            "timeoutSeconds=x",
            "sendInitialEvents=true",
        ];
        let collection = Self::collection(kind);
        let query = if self.one_in(3) { "" } else { pick(&mut self.rng, &queries) };
        // Only objects of this sequence are comparable.
        let mine = if kind.namespaced { "" } else { "fieldSelector=metadata.name%3D{ns}-a&" };
        let path = format!("{collection}?{mine}{query}");
        let accept = match self.rng.u32(..12) {
            0 => "application/json;as=Table;v=v1;g=meta.k8s.io",
            1 => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            _ => "application/json",
        };
        let headers = vec![("accept", accept.to_owned())];
        Step { method: Method::GET, path, object: collection, headers, body: nothing() }
    }

    fn delete_options(&mut self) -> StepBody {
        match self.rng.u32(..16) {
            0..=5 => nothing(),
            6 => StepBody::Json(
                json!({ "propagationPolicy": pick(&mut self.rng, &["Foreground", "Background", "Orphan", "Odd"]) }),
            ),
            7 => StepBody::Json(
                json!({ "preconditions": { "uid": pick(&mut self.rng, &["{uid}", "wrong"]) } }),
            ),
            8 => StepBody::Json(
                json!({ "preconditions": { "resourceVersion": pick(&mut self.rng, &["{version}", "1"]) } }),
            ),
            9 => StepBody::Json(json!({ "gracePeriodSeconds": pick(&mut self.rng, &[0, 1, 30, -1]) })),
            10 => StepBody::Json(json!({ "dryRun": pick(&mut self.rng, &[["All"], ["Odd"]]) })),
            11 => StepBody::Json(json!({ "orphanDependents": self.rng.bool() })),
            12 => StepBody::Json(json!({ "orphanDependents": true, "propagationPolicy": "Orphan" })),
            13 => StepBody::Json(
                json!({ "kind": pick(&mut self.rng, &["DeleteOptions", "Pod", "Nope"]), "apiVersion": pick(&mut self.rng, &["v1", "meta.k8s.io/v1", "v2"]) }),
            ),
            14 => StepBody::Text(pick(&mut self.rng, &["{", "[]", "x", "{}", "null"]).to_owned()),
            _ => StepBody::Json(json!({ "gracePeriodSeconds": "x", "unknown": 1 })),
        }
    }

    fn delete_query(&mut self) -> &'static str {
        match self.rng.u32(..10) {
            0 => "?dryRun=All",
            1 => "?gracePeriodSeconds=0",
            2 => "?propagationPolicy=Foreground",
            3 => pick(
                &mut self.rng,
                &[
                    "?propagationPolicy=Odd",
                    "?gracePeriodSeconds=x",
                    "?dryRun=Odd",
                    "?orphanDependents=true",
                    "?propagationPolicy=Orphan",
                ],
            ),
            _ => "",
        }
    }

    fn delete(&mut self, kind: &'static Kind) -> Step {
        let name = self.name(kind);
        let object = format!("{}/{name}", Self::collection(kind));
        let body = self.delete_options();
        let path = format!("{object}{}", self.delete_query());
        Step { method: Method::DELETE, path, object, headers: json_header(), body }
    }

    fn delete_collection(&mut self, kind: &'static Kind) -> Step {
        let collection = Self::collection(kind);
        let query = match self.rng.u32(..8) {
            0 | 1 => "labelSelector=app%3Dweb",
            2 => "fieldSelector=metadata.name%3Da",
            3 => "dryRun=All",
            4 => "limit=1",
            5 => pick(
                &mut self.rng,
                &["labelSelector=a%20b", "fieldSelector=x", "dryRun=Odd", "propagationPolicy=Odd"],
            ),
            _ => "",
        };
        let mine = match kind.kind {
            // The ServiceAccounts of pods have no labels and stay.
            "ServiceAccount" => "labelSelector=app&",
            _ if kind.namespaced => "",
            _ => "fieldSelector=metadata.name%3D{ns}-a&",
        };
        let body = self.delete_options();
        let path = format!("{collection}?{mine}{query}");
        Step { method: Method::DELETE, path, object: collection, headers: json_header(), body }
    }

    fn subresource(&mut self, kind: &'static Kind) -> Step {
        let Some(subresource) = kind.subresources.get(self.rng.usize(..kind.subresources.len().max(1)))
        else {
            return self.update(kind);
        };
        let name = self.name(kind);
        let object = format!("{}/{name}", Self::collection(kind));
        let document = self.document(kind, &name);
        let count = self.rng.u32(1..4);
        let mut edits: Vec<Edit> = (0..count).map(|_| status_edit(&mut self.rng)).collect();
        let path = format!("{object}/{subresource}{}", self.query(&[]));
        // A status that creates a Service is a deliberate difference, on which later requests would depend.
        let can_create = kind.kind == "Service";
        match self.rng.u32(..6) {
            0 => Step { method: Method::GET, path, object, headers: Vec::new(), body: nothing() },
            1 | 2 if !can_create => {
                edits.extend(self.identity_edits());
                let body = StepBody::Edited { otherwise: document, edits, damage: Damage::None };
                Step { method: Method::PUT, path, object, headers: json_header(), body }
            }
            3 if *subresource == "status" && !can_create => {
                let mut body =
                    json!({ "apiVersion": kind.version, "kind": kind.kind, "metadata": { "name": name } });
                for edit in &edits {
                    edit.apply(&mut body);
                }
                let path = format!("{object}/status?fieldManager=m3&force=true");
                let headers = vec![("content-type", patch::APPLY.to_owned())];
                Step { method: Method::PATCH, path, object, headers, body: StepBody::Json(body) }
            }
            _ => {
                let mut whole = json!({});
                for edit in &edits {
                    merge(&mut whole, edit.merge_patch());
                }
                let media = pick(&mut self.rng, &[patch::MERGE, patch::STRATEGIC]);
                let headers = vec![("content-type", media.to_owned())];
                Step { method: Method::PATCH, path, object, headers, body: StepBody::Json(whole) }
            }
        }
    }

    fn job_status_step(&mut self, index: usize) -> Step {
        let job = KINDS.iter().find(|kind| kind.kind == "Job").unwrap_or(&KINDS[0]);
        let (collection, name) = (Self::collection(job), format!("job-{}", index / JOB_LIFETIME));
        let object = format!("{collection}/{name}");
        let mut otherwise = self.document(job, &name);
        let is_new = index.is_multiple_of(JOB_LIFETIME);
        let count = self.rng.u32(1..5);
        let edits: Vec<Edit> = match is_new {
            true => (0..count).map(|_| job_count_edit(&mut self.rng)).collect(),
            false if self.one_in(8) => vec![job_count_edit(&mut self.rng)],
            false => (0..count).map(|_| job_status_edit(&mut self.rng)).collect(),
        };
        let is_spec = edits.iter().all(|it| matches!(it, Edit::Set(path, _) if path.starts_with("/spec")));
        let (method, path) = match (is_new, is_spec) {
            (true, _) => (Method::POST, collection),
            (false, true) => (Method::PUT, object.clone()),
            (false, false) => (Method::PUT, format!("{object}/status")),
        };
        if is_new {
            edits.iter().for_each(|edit| edit.apply(&mut otherwise));
            // kube-apiserver panics on a success policy without completions.
            if otherwise["spec"]["completions"].is_null() && !otherwise["spec"]["successPolicy"].is_null() {
                otherwise["spec"]["completions"] = json!(3);
            }
        }
        let edits = if is_new { vec![Edit::Set(String::new(), otherwise.clone())] } else { edits };
        let body = StepBody::Edited { otherwise, edits, damage: Damage::None };
        Step { method, path, object, headers: json_header(), body }
    }

    fn scale(&mut self, kind: &'static Kind) -> Step {
        if !kind.scales {
            return self.patch(kind);
        }
        let name = self.name(kind);
        let object = format!("{}/{name}", Self::collection(kind));
        let query = self.query(&[]);
        let path = format!("{object}/scale{query}");
        let replicas: Value =
            pick(&mut self.rng, &["3", "0", "-1", "\"x\"", "null", "1.5"]).parse().unwrap_or_default();
        match self.rng.u32(..5) {
            0 => Step {
                method: Method::GET,
                path: format!("{object}/scale"),
                object,
                headers: Vec::new(),
                body: nothing(),
            },
            1 | 2 => {
                let mut scale = json!({
                    "apiVersion": "autoscaling/v1", "kind": "Scale",
                    "metadata": { "name": name, "namespace": "{ns}" }, "spec": { "replicas": replicas },
                });
                match self.rng.u32(..8) {
                    0 => scale["metadata"]["resourceVersion"] = json!("{version}"),
                    1 => scale["metadata"]["resourceVersion"] = json!("1"),
                    2 => scale["metadata"]["name"] = json!("other"),
                    3 => scale["kind"] = json!("Pod"),
                    4 => scale["metadata"] = json!({}),
                    5 => scale["metadata"]["uid"] = json!("u-1"),
                    _ => {}
                }
                Step {
                    method: Method::PUT,
                    path,
                    object,
                    headers: json_header(),
                    body: StepBody::Json(scale),
                }
            }
            _ => {
                let media = pick(&mut self.rng, &[patch::MERGE, patch::STRATEGIC, patch::JSON]);
                let mut body = match media {
                    patch::JSON => json!([{ "op": "replace", "path": "/spec/replicas", "value": replicas }]),
                    _ => json!({ "spec": { "replicas": replicas } }),
                };
                match (body.as_array_mut(), self.rng.u32(..6)) {
                    (Some(operations), 0) => {
                        operations.push(json!({ "op": "add", "path": "/spec/unknown", "value": 1 }));
                    }
                    (None, 0) => body["spec"]["unknown"] = json!(1),
                    (None, 1) => body["unknown"] = json!({ "a": 1 }),
                    (None, 2) => body["metadata"] = json!({ "name": "other" }),
                    _ => {}
                }
                let headers = vec![("content-type", media.to_owned())];
                Step { method: Method::PATCH, path, object, headers, body: StepBody::Json(body) }
            }
        }
    }

    /// Returns a request that is unusual in another respect.
    fn odd(&mut self, kind: &'static Kind) -> Step {
        let name = self.name(kind);
        let collection = Self::collection(kind);
        let object = format!("{collection}/{name}");
        let document = self.document(kind, &name);
        let mut step = Step {
            method: Method::POST,
            path: object.clone(),
            object,
            headers: json_header(),
            body: nothing(),
        };
        match self.rng.u32(..9) {
            // POST to an object.
            0 => step.body = StepBody::Json(document),
            1 => {
                step.method = pick(&mut self.rng, &[&Method::PUT, &Method::PATCH]).clone();
                step.path = collection;
                step.body = StepBody::Json(document);
            }
            2 => {
                step.method = Method::GET;
                step.path = format!("{}/nope", step.object);
            }
            3 => {
                step.method = Method::GET;
                step.path = step.object.replace("{ns}", "missing-namespace");
            }
            4 if kind.namespaced => {
                step.path = collection.replace("{ns}", "missing-namespace");
                step.body = StepBody::Json(document);
            }
            5 => {
                step.path = collection;
                let media = pick(&mut self.rng, &MEDIA_TYPES);
                step.headers = vec![("content-type", media.to_owned())];
                step.body = StepBody::Json(document);
            }
            6 => {
                step.path = collection;
                step.body = StepBody::Text(pick(&mut self.rng, &BODIES).to_owned());
            }
            7 => {
                step.method = Method::PUT;
                step.body = StepBody::Text(pick(&mut self.rng, &["", "{", "[]", "null", "{}"]).to_owned());
            }
            _ => {
                step.method = Method::GET;
                step.headers = vec![("accept", pick(&mut self.rng, &FORMS).to_owned())];
            }
        }
        step
    }
}

/// Media types of bodies that are no JSON.
const MEDIA_TYPES: [&str; 3] = ["text/plain", "application/yaml", "application/x-www-form-urlencoded"];

/// Bodies that are no object of a kind.
const BODIES: [&str; 10] =
    ["", "{", "[]", "null", "x", "5", "{}", "\"x\"", "{\"kind\":5}", "{\"metadata\":{\"name\":\"a\"}} x"];

/// Unusual forms of responses.
const FORMS: [&str; 3] = [
    "text/html",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
];

fn json_header() -> Vec<(&'static str, String)> {
    vec![("content-type", "application/json".to_owned())]
}

fn nothing() -> StepBody {
    StepBody::Text(String::new())
}

/// Merges two documents; lists and plain values of the second replace those of the first.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
