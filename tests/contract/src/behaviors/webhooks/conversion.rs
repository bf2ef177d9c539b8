//! Conversion of custom objects by a webhook. Lamps have one string of colors in `v1`, and a list in `v2`, which is
//! stored.

use anyhow::Result;
use serde_json::{Value, json};

use super::setup::{Type, allowed, install, patched, remove, rule, serve, webhook};
use crate::case::patch;
use crate::webhooks::Reply;
use crate::{Case, Outcome, has, same};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A CRD with a conversion webhook.
struct Lamps<'a> {
    case: &'a Case,
    group: String,
}

impl<'a> Lamps<'a> {
    async fn define(case: &'a Case, conversion: Value) -> Result<Lamps<'a>> {
        let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        Lamps::with_schema(case, conversion, anything).await
    }

    async fn with_schema(case: &'a Case, conversion: Value, schema: Value) -> Result<Lamps<'a>> {
        let group = format!("{}.example.com", case.namespace);
        let version = |name: &str, storage: bool| json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": schema } });
        let definition = json!({
            "metadata": { "name": format!("lamps.{group}") },
            "spec": { "group": group, "scope": "Namespaced", "names": { "plural": "lamps", "kind": "Lamp" },
                "conversion": conversion, "versions": [version("v1", false), version("v2", true)] },
        });
        case.make(DEFINITIONS, definition).await?;
        let lamps = Lamps { case, group };
        for version in ["v1", "v2"] {
            case.until(&lamps.path(version), |answer| answer.status == 200).await?;
        }
        Ok(lamps)
    }

    fn path(&self, version: &str) -> String {
        format!("{}/{version} lamps", self.group)
    }

    fn one(&self, version: &str, name: &str) -> String {
        format!("{}/{name}", self.path(version))
    }

    fn lamp(&self, version: &str, name: &str, spec: Value) -> Value {
        json!({ "apiVersion": format!("{}/{version}", self.group), "kind": "Lamp",
            "metadata": { "name": name }, "spec": spec })
    }

    async fn make(&self, version: &str, name: &str, spec: Value) -> Result<Value> {
        self.case.make(&self.path(version), self.lamp(version, name, spec)).await
    }

    async fn remove(&self) -> Outcome {
        self.case.delete(&format!("{DEFINITIONS}/lamps.{}", self.group)).await?.is(200)?;
        Ok(())
    }

    fn failed(&self, from: &str, why: &str) -> String {
        format!("conversion webhook for {}/{from}, Kind=Lamp {why}", self.group)
    }
}

/// Returns the conversion of a CRD by the webhook at this client configuration.
fn by(client: &Value) -> Value {
    json!({ "strategy": "Webhook",
        "webhook": { "clientConfig": client, "conversionReviewVersions": ["v1"] } })
}

/// Returns the response with converted lamps.
fn converted(request: &Value) -> Reply {
    let desired = request["desiredAPIVersion"].clone();
    let lamps = request["objects"].as_array().into_iter().flatten();
    let lamps: Vec<Value> = lamps.map(|lamp| with_version(lamp, &desired)).collect();
    Reply::Response(json!({ "convertedObjects": lamps, "result": { "status": "Success" } }))
}

fn with_version(lamp: &Value, desired: &Value) -> Value {
    let mut lamp = lamp.clone();
    let spec = lamp["spec"].clone();
    lamp["spec"] = match desired.as_str().unwrap_or_default().ends_with("/v2") {
        true => {
            json!({ "colors": spec["color"].as_str().unwrap_or_default().split('+').collect::<Vec<_>>() })
        }
        false => {
            let colors: Vec<_> =
                spec["colors"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            json!({ "color": colors.join("+") })
        }
    };
    lamp["apiVersion"] = desired.clone();
    lamp
}

/// Converts, except lamps with this color.
fn failing_for(color: &'static str) -> impl Fn(&Value) -> Reply + Send + Sync {
    move |request| {
        if request["objects"].to_string().contains(color) {
            let result = json!({ "status": "Failure", "message": format!("no lamp is {color}") });
            return Reply::Response(json!({ "convertedObjects": [], "result": result }));
        }
        converted(request)
    }
}

pub(super) async fn object_is_read_in_other_version_by_conversion(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "convert", converted);
    let lamps = Lamps::define(&case, by(&client)).await?;
    lamps.make("v2", "hall", json!({ "colors": ["red", "blue"] })).await?;
    let read = case.read(&lamps.one("v1", "hall")).await?;
    same!(
        (&read["apiVersion"], &read["spec"]),
        (&json!(format!("{}/v1", lamps.group)), &json!({ "color": "red+blue" }))
    );
    has!(requests.last()?, { "desiredAPIVersion": format!("{}/v1", lamps.group),
        "objects": [{ "kind": "Lamp", "spec": { "colors": ["red", "blue"] } }] });
    same!(case.read(&lamps.one("v2", "hall")).await?["spec"], json!({ "colors": ["red", "blue"] }));
    lamps.remove().await
}

pub(super) async fn write_is_stored_in_storage_version(case: Case) -> Outcome {
    let (client, _) = serve(&case, "convert", converted);
    let lamps = Lamps::define(&case, by(&client)).await?;
    let made = lamps.make("v1", "hall", json!({ "color": "red+blue" })).await?;
    same!(made["spec"], json!({ "color": "red+blue" }));
    same!(made["metadata"]["generation"], 1);
    let read = case.read(&lamps.one("v2", "hall")).await?;
    same!(read["spec"], json!({ "colors": ["red", "blue"] }));
    same!(read["metadata"]["uid"], made["metadata"]["uid"]);
    let mut changed = made.clone();
    changed["spec"]["color"] = json!("green");
    let changed = case.replace(&lamps.one("v1", "hall"), changed).await?;
    same!(changed["metadata"]["generation"], 2);
    same!(case.read(&lamps.one("v2", "hall")).await?["spec"], json!({ "colors": ["green"] }));
    // An update without a change keeps the version.
    let same = case.replace(&lamps.one("v1", "hall"), changed.clone()).await?;
    same!(same["metadata"]["resourceVersion"], changed["metadata"]["resourceVersion"]);
    lamps.remove().await
}

pub(super) async fn patch_in_other_version_changes_stored_object(case: Case) -> Outcome {
    let (client, _) = serve(&case, "convert", converted);
    let lamps = Lamps::define(&case, by(&client)).await?;
    lamps.make("v2", "hall", json!({ "colors": ["red"] })).await?;
    let merged = case.merge(&lamps.one("v1", "hall"), json!({ "spec": { "color": "a+b" } })).await?;
    same!(merged["spec"], json!({ "color": "a+b" }));
    let test = json!([{ "op": "test", "path": "/spec/color", "value": "a+b" },
        { "op": "replace", "path": "/spec/color", "value": "c" }]);
    case.patch(patch::JSON, &lamps.one("v1", "hall"), test).await?.is(200)?;
    same!(case.read(&lamps.one("v2", "hall")).await?["spec"], json!({ "colors": ["c"] }));
    case.delete(&lamps.one("v1", "hall")).await?.is(200)?;
    case.get(&lamps.one("v2", "hall")).await?.expect_rejected_with_reason(404, "NotFound")?;
    lamps.remove().await
}

pub(super) async fn list_is_converted_to_requested_version(case: Case) -> Outcome {
    let (client, _) = serve(&case, "convert", converted);
    let lamps = Lamps::define(&case, by(&client)).await?;
    lamps.make("v1", "a", json!({ "color": "red" })).await?;
    lamps.make("v2", "b", json!({ "colors": ["x", "y"] })).await?;
    for (version, first, second) in [
        ("v1", json!({ "color": "red" }), json!({ "color": "x+y" })),
        ("v2", json!({ "colors": ["red"] }), json!({ "colors": ["x", "y"] })),
    ] {
        let list = case.read(&lamps.path(version)).await?;
        let api_version = format!("{}/{version}", lamps.group);
        has!(list, { "apiVersion": api_version, "kind": "LampList", "items": [
            { "apiVersion": api_version, "metadata": { "name": "a" }, "spec": first },
            { "apiVersion": api_version, "metadata": { "name": "b" }, "spec": second },
        ] });
    }
    lamps.remove().await
}

pub(super) async fn watch_delivers_converted_objects(case: Case) -> Outcome {
    let (client, _) = serve(&case, "convert", converted);
    let lamps = Lamps::define(&case, by(&client)).await?;
    let list = case.read(&lamps.path("v1")).await?;
    let since = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let mut watch = case.watch(&format!("{}?resourceVersion={since}", lamps.path("v1"))).await?;
    lamps.make("v2", "hall", json!({ "colors": ["red", "blue"] })).await?;
    let frame = watch.change().await?;
    same!((frame.kind.as_str(), &frame.object["spec"]), ("ADDED", &json!({ "color": "red+blue" })));
    same!(frame.object["apiVersion"], format!("{}/v1", lamps.group));
    case.delete(&lamps.one("v2", "hall")).await?.is(200)?;
    let frame = watch.change().await?;
    same!((frame.kind.as_str(), &frame.object["spec"]), ("DELETED", &json!({ "color": "red+blue" })));
    lamps.remove().await
}

pub(super) async fn converted_object_keeps_its_metadata(case: Case) -> Outcome {
    let (client, _) = serve(&case, "convert", |request| match converted(request) {
        Reply::Response(mut response) => {
            let metadata = &mut response["convertedObjects"][0]["metadata"];
            metadata["finalizers"] = json!(["example.com/added"]);
            metadata["labels"] = json!({ "converted": "yes" });
            if metadata["name"] == "renamed" {
                metadata["name"] = json!("other");
            }
            Reply::Response(response)
        }
        other => other,
    });
    let lamps = Lamps::define(&case, by(&client)).await?;
    lamps.make("v2", "hall", json!({ "colors": ["red"] })).await?;
    let read = case.read(&lamps.one("v1", "hall")).await?;
    has!(read["metadata"], { "finalizers": null, "labels": { "converted": "yes" } });
    lamps.make("v2", "renamed", json!({ "colors": ["red"] })).await?;
    let answer = case.get(&lamps.one("v1", "renamed")).await?;
    let why = "returned invalid object: must have the same name: renamed != other";
    same!((answer.status, &answer.body["message"]), (500, &json!(lamps.failed("v2", why))));
    lamps.remove().await
}

pub(super) async fn failed_conversion_fails_read(case: Case) -> Outcome {
    let (client, _) = serve(&case, "convert", failing_for("black"));
    let lamps = Lamps::define(&case, by(&client)).await?;
    lamps.make("v2", "good", json!({ "colors": ["red"] })).await?;
    lamps.make("v2", "bad", json!({ "colors": ["black"] })).await?;
    let answer = case.get(&lamps.one("v1", "bad")).await?;
    let expected = lamps.failed("v2", "failed: no lamp is black");
    same!((answer.status, &answer.body["message"]), (500, &json!(expected)));
    case.read(&lamps.one("v1", "good")).await?;
    // Only the version that needs the conversion is affected.
    case.read(&lamps.path("v2")).await?;
    lamps.remove().await
}

pub(super) async fn failed_conversion_fails_list(case: Case) -> Outcome {
    let (client, _) = serve(&case, "convert", failing_for("black"));
    let lamps = Lamps::define(&case, by(&client)).await?;
    lamps.make("v2", "good", json!({ "colors": ["red"] })).await?;
    lamps.make("v2", "bad", json!({ "colors": ["black"] })).await?;
    let answer = case.get(&lamps.path("v1")).await?;
    let expected = lamps.failed("v2", "failed: no lamp is black");
    same!((answer.status, &answer.body["message"]), (500, &json!(expected)));
    case.delete(&lamps.one("v2", "bad")).await?.is(200)?;
    case.until(&lamps.path("v1"), |answer| answer.status == 200).await?;
    lamps.remove().await
}

pub(super) async fn failed_conversion_fails_write(case: Case) -> Outcome {
    let (client, _) = serve(&case, "convert", failing_for("black"));
    let lamps = Lamps::define(&case, by(&client)).await?;
    let answer = case.post(&lamps.path("v1"), lamps.lamp("v1", "bad", json!({ "color": "black" }))).await?;
    let expected = lamps.failed("v1", "failed: no lamp is black");
    same!((answer.status, &answer.body["message"]), (500, &json!(expected)));
    case.get(&lamps.one("v2", "bad")).await?.expect_rejected_with_reason(404, "NotFound")?;
    lamps.remove().await
}

pub(super) async fn failed_conversion_fails_review(case: Case) -> Outcome {
    let (client, _) = serve(&case, "convert", failing_for("black"));
    let lamps = Lamps::define(&case, by(&client)).await?;
    let (client, requests) = serve(&case, "see", allowed);
    let mut see = webhook(&case, "see", &client);
    see["rules"] = json!([rule(&lamps.group, "v2", &["lamps"], &["CREATE"])]);
    see["failurePolicy"] = json!("Ignore");
    let name = install(&case, Type::Validating, "see", &[see]).await?;
    let answer = case.post(&lamps.path("v1"), lamps.lamp("v1", "bad", json!({ "color": "black" }))).await?;
    let why = lamps.failed("v1", "failed: no lamp is black");
    answer.expect_rejected(500, "InternalError", &format!("Internal error occurred: {why}"))?;
    same!(requests.all().len(), 0);
    remove(&case, Type::Validating, &name).await?;
    lamps.remove().await
}

pub(super) async fn mutated_custom_object_is_checked_by_schema(case: Case) -> Outcome {
    let spec = json!({ "type": "object", "properties": {
        "size": { "type": "integer" }, "color": { "type": "string", "default": "red" } } });
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    let lamps = Lamps::with_schema(&case, json!({ "strategy": "None" }), schema).await?;
    let (client, _) = serve(&case, "spoil", |request| match request["name"].as_str() {
        Some("wrong") => patched(json!([{ "op": "add", "path": "/spec/size", "value": "big" }])),
        _ => patched(json!([{ "op": "add", "path": "/spec/unknown", "value": 1 },
            { "op": "remove", "path": "/spec/color" }])),
    });
    let mut spoil = webhook(&case, "spoil", &client);
    spoil["rules"] = json!([rule(&lamps.group, "v1", &["lamps"], &["CREATE", "UPDATE"])]);
    let name = install(&case, Type::Mutating, "spoil", &[spoil]).await?;
    let answer = case.post(&lamps.path("v1"), lamps.lamp("v1", "wrong", json!({}))).await?;
    let why = "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"";
    answer.expect_rejected_containing(422, "Invalid", why)?;
    let made = lamps.make("v1", "hall", json!({ "color": "blue", "size": 2 })).await?;
    same!(made["spec"], json!({ "color": "red", "size": 2 }));
    let merged = case.merge(&lamps.one("v1", "hall"), json!({ "spec": { "color": "green" } })).await?;
    same!(merged["spec"], json!({ "color": "red", "size": 2 }));
    remove(&case, Type::Mutating, &name).await?;
    lamps.remove().await
}

pub(super) async fn mutation_cannot_change_kind_of_custom_object(case: Case) -> Outcome {
    let lamps = Lamps::define(&case, json!({ "strategy": "None" })).await?;
    let (client, _) = serve(&case, "spoil", |request| match request["name"].as_str() {
        Some("bare") => patched(json!([{ "op": "remove", "path": "/kind" }])),
        _ => patched(json!([{ "op": "replace", "path": "/kind", "value": "Candle" }])),
    });
    let mut spoil = webhook(&case, "spoil", &client);
    spoil["rules"] = json!([rule(&lamps.group, "v1", &["lamps"], &["CREATE"])]);
    let name = install(&case, Type::Mutating, "spoil", &[spoil]).await?;
    let lamp = |name: &str| lamps.lamp("v1", name, json!({ "color": "red" }));
    let answer = case.post(&lamps.path("v1"), lamp("bare")).await?;
    answer.expect_rejected_containing(500, "InternalError", "Object 'Kind' is missing in '")?;
    let answer = case.post(&lamps.path("v1"), lamp("candle")).await?;
    answer.expect_rejected_containing(422, "Invalid", "kind: Invalid value: \"Candle\": must be Lamp")?;
    remove(&case, Type::Mutating, &name).await?;
    lamps.remove().await
}

pub(super) async fn conversion_review_has_first_known_version(case: Case) -> Outcome {
    // Only the older version accepts a response with another UID.
    let (client, _) = serve(&case, "convert", |request| match converted(request) {
        Reply::Response(mut response) => {
            response["uid"] = json!("other");
            Reply::Response(response)
        }
        other => other,
    });
    let mut conversion = by(&client);
    conversion["webhook"]["conversionReviewVersions"] = json!(["v7", "v1beta1", "v1"]);
    let lamps = Lamps::define(&case, conversion).await?;
    lamps.make("v2", "hall", json!({ "colors": ["red"] })).await?;
    same!(case.read(&lamps.one("v1", "hall")).await?["spec"], json!({ "color": "red" }));
    lamps.remove().await
}

pub(super) async fn converted_labels_are_validated(case: Case) -> Outcome {
    let (client, _) = serve(&case, "convert", |request| match converted(request) {
        Reply::Response(mut response) => {
            let metadata = &mut response["convertedObjects"][0]["metadata"];
            let is_number = metadata["name"] == "number";
            metadata["labels"] = if is_number { json!({ "a": 1 }) } else { json!({ "a": "no space" }) };
            Reply::Response(response)
        }
        other => other,
    });
    let lamps = Lamps::define(&case, by(&client)).await?;
    for (name, why) in [
        ("number", "metadata.labels[a] must be a string, but is int64 in converted object"),
        ("space", "metadata.labels: Invalid value: \"no space\": a valid label must be"),
    ] {
        lamps.make("v2", name, json!({ "colors": ["red"] })).await?;
        let answer = case.get(&lamps.one("v1", name)).await?;
        let expected = lamps.failed("v2", &format!("returned invalid metadata: {why}"));
        let found = answer.body["message"].as_str().unwrap_or_default();
        anyhow::ensure!(answer.status == 500 && found.starts_with(&expected), "{found}");
        case.delete(&lamps.one("v2", name)).await?.is(200)?;
    }
    lamps.remove().await
}

pub(super) async fn unreachable_conversion_fails_read(case: Case) -> Outcome {
    let client = json!({ "url": "https://127.0.0.1:1/none" });
    let lamps = Lamps::define(&case, by(&client)).await?;
    lamps.make("v2", "hall", json!({ "colors": ["red"] })).await?;
    let answer = case.get(&lamps.one("v1", "hall")).await?;
    let why = "failed: Post \"https://127.0.0.1:1/none?timeout=30s\": dial tcp 127.0.0.1:1: connect: connection refused";
    same!((answer.status, &answer.body["message"]), (500, &json!(lamps.failed("v2", why))));
    lamps.remove().await
}

pub(super) async fn webhook_reviews_equivalent_version(case: Case) -> Outcome {
    let (client, _) = serve(&case, "convert", converted);
    let lamps = Lamps::define(&case, by(&client)).await?;
    let (client, requests) = serve(&case, "see", allowed);
    let mut equivalent = webhook(&case, "see", &client);
    equivalent["rules"] = json!([rule(&lamps.group, "v2", &["lamps"], &["CREATE"])]);
    let (client, exact_requests) = serve(&case, "exact", allowed);
    let mut exact = webhook(&case, "exact", &client);
    exact["rules"] = equivalent["rules"].clone();
    exact["matchPolicy"] = json!("Exact");
    let name = install(&case, Type::Validating, "see", &[equivalent, exact]).await?;
    lamps.make("v1", "hall", json!({ "color": "red+blue" })).await?;
    has!(requests.last()?, {
        "kind": { "group": lamps.group, "version": "v2", "kind": "Lamp" },
        "resource": { "group": lamps.group, "version": "v2", "resource": "lamps" },
        "requestKind": { "group": lamps.group, "version": "v1", "kind": "Lamp" },
        "requestResource": { "group": lamps.group, "version": "v1", "resource": "lamps" },
        "object": { "apiVersion": format!("{}/v2", lamps.group), "spec": { "colors": ["red", "blue"] } },
    });
    same!(exact_requests.all().len(), 0);
    remove(&case, Type::Validating, &name).await?;
    lamps.remove().await
}
