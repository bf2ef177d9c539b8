//! Sending of a sequence to one server.

use std::collections::BTreeMap;

use anyhow::Result;
use http::Method;
use serde_json::{Value, json};

use super::generate::{Damage, Step, StepBody};
use super::normalize::Names;
use crate::test_server::{TestRequest, TestResponse, TestServer};

/// A response in comparable form.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// Texts of the warnings.
    pub warnings: Vec<String>,
    /// Body without generated values.
    pub body: Value,
}

/// A request as sent, with its response.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Method, path and body.
    pub request: String,
    /// Response.
    pub answer: Answer,
}

struct Session<'a> {
    server: &'a TestServer,
    namespace: String,
    seed: u64,
    names: Names,
    objects: BTreeMap<String, Value>,
    continue_token: String,
}

/// Sends the steps of a seed to a server and returns the exchanges.
///
/// # Errors
/// Returns an error if the server does not answer, or rejects the namespace.
pub async fn send(server: &TestServer, seed: u64, steps: &[Step]) -> Result<Vec<Exchange>> {
    let namespace = format!("sequence-{seed}");
    let (objects, continue_token) = (BTreeMap::new(), String::new());
    let names = Names::default();
    let mut session = Session { server, namespace, seed, names, objects, continue_token };
    session.prepare().await?;
    let mut exchanges = Vec::with_capacity(steps.len());
    for step in steps {
        exchanges.push(session.exchange(step).await?);
    }
    Ok(exchanges)
}

impl Session<'_> {
    /// Creates the namespace, and the ServiceAccounts of its pods, which get no token.
    async fn prepare(&self) -> Result<()> {
        self.create("namespaces", json!({ "metadata": { "name": self.namespace } })).await?;
        let accounts = format!("namespaces/{}/serviceaccounts", self.namespace);
        for name in ["default", "runner"] {
            let account = json!({ "metadata": { "name": name }, "automountServiceAccountToken": false });
            self.create(&accounts, account).await?;
        }
        Ok(())
    }

    async fn create(&self, collection: &str, object: Value) -> Result<()> {
        let request = TestRequest {
            method: Method::POST,
            path: format!("/api/v1/{collection}"),
            headers: vec![("content-type", "application/json".to_owned())],
            body: object.to_string().into_bytes(),
        };
        self.server.send(request).await?.is(201).map(drop)
    }

    async fn exchange(&mut self, step: &Step) -> Result<Exchange> {
        let body = self.body(step);
        let path = self.resolve(&step.path, &step.object);
        let object = self.resolve(&step.object, &step.object);
        let request = TestRequest {
            method: step.method.clone(),
            path: path.clone(),
            headers: step.headers.clone(),
            body: body.clone().into_bytes(),
        };
        let response = self.server.send(request).await?;
        self.observe(&object, step, &response);
        let media = step.headers.first().map(|(_, value)| value.as_str()).unwrap_or_default();
        let request = format!("{} {path} ({media})\n  {body}", step.method);
        let warnings = response.warnings();
        let resource = step.object.split('/').skip_while(|part| !part.starts_with('v')).find(|part| {
            super::objects::KINDS.iter().any(|kind| kind.plural == *part && *part != "namespaces")
        });
        let body = self.names.value(resource.unwrap_or("namespaces"), response.body);
        let warnings = warnings.iter().map(|text| self.names.text(text)).collect();
        let answer = Answer { status: response.status, warnings, body };
        Ok(Exchange { request, answer })
    }

    fn observe(&mut self, object: &str, step: &Step, response: &TestResponse) {
        if let Some(token) = response.body["metadata"]["continue"].as_str() {
            self.continue_token = token.to_owned();
        }
        let is_object = response.body["metadata"]["uid"].is_string() && response.body["kind"] != "Scale";
        let plain = step.method == Method::GET || !step.path.contains("dryRun=All");
        let named = object.rsplit('/').next() == response.body["metadata"]["name"].as_str();
        if response.status < 300
            && is_object
            && plain
            && named
            && response.body["kind"] != "PartialObjectMetadata"
        {
            self.objects.insert(object.to_owned(), response.body.clone());
        }
    }

    fn resolve(&self, text: &str, object: &str) -> String {
        let text = text.replace("{ns}", &self.namespace).replace("{seed}", &(self.seed % 250).to_string());
        if !text.contains('{') {
            return text;
        }
        let object = self.objects.get(&object.replace("{ns}", &self.namespace));
        let field = |name: &str| object.and_then(|it| it["metadata"][name].as_str()).unwrap_or("7");
        text.replace("{version}", field("resourceVersion"))
            .replace("{uid}", field("uid"))
            .replace("{continue}", &self.continue_token)
    }

    fn body(&self, step: &Step) -> String {
        match &step.body {
            StepBody::Text(text) => text.clone(),
            StepBody::Json(value) => self.resolve(&value.to_string(), &step.object),
            StepBody::Edited { otherwise, edits, damage } => {
                let known = self.objects.get(&self.resolve(&step.object, &step.object));
                let mut document = known.unwrap_or(otherwise).clone();
                for edit in edits {
                    edit.apply(&mut document);
                }
                let text = self.resolve(&document.to_string(), &step.object);
                match damage {
                    Damage::None => text,
                    Damage::Truncated => text.chars().take(text.chars().count() / 2).collect(),
                    Damage::Duplicate => text.replacen("\"name\":", "\"name\":\"twice\",\"name\":", 1),
                }
            }
        }
    }
}
