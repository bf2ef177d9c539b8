//! Tests of writes that wait for webhooks, with handlers that the test controls.

use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use windlass_env::Env;

use super::*;
use crate::{ApiServerOptions, WebhookHandler};

/// A server with a webhook that admits after a delay, and the objects that it has reviewed.
struct World {
    env: Env,
    client: Client,
    reviewed: Arc<Mutex<Vec<Value>>>,
}

impl World {
    fn new(delay: Duration) -> World {
        let env = Env::virtual_time(1);
        let server = ApiServer::new(&env.with_incarnation("server", 0), ApiServerOptions::default());
        let reviewed = Arc::<Mutex<Vec<Value>>>::default();
        server.serve_webhooks("w.ops.svc:443", Some(admitting(&env, delay, &reviewed)));
        World { client: Client::new(server, "default"), env, reviewed }
    }

    /// Creates a validating configuration for all writes of this resource.
    async fn validate(&self, resource: &str) {
        let configuration: ValidatingWebhookConfiguration =
            serde_json::from_value(configuration(resource)).expect("valid");
        Api::all(self.client.clone()).create(&PostParams::default(), &configuration).await.expect("created");
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.client.clone())
    }

    async fn merge(&self, name: &str, data: Value) -> ConfigMap {
        let patch = Patch::Merge(json!({ "data": data }));
        self.maps().patch(name, &PatchParams::default(), &patch).await.expect("patched")
    }

    /// Returns the values at a pointer of the reviewed objects.
    fn reviewed(&self, pointer: &str) -> Vec<Value> {
        let reviewed = self.reviewed.lock().expect("not poisoned");
        reviewed.iter().map(|it| it.pointer(pointer).cloned().unwrap_or_default()).collect()
    }
}

fn admitting(env: &Env, delay: Duration, reviewed: &Arc<Mutex<Vec<Value>>>) -> WebhookHandler {
    let (env, reviewed) = (env.clone(), Arc::clone(reviewed));
    Arc::new(move |request| {
        let (env, reviewed) = (env.clone(), Arc::clone(&reviewed));
        async move {
            let review: Value = serde_json::from_slice(request.body()).expect("JSON");
            reviewed.lock().expect("not poisoned").push(review["request"]["object"].clone());
            env.sleep(delay).await;
            let response = json!({ "uid": review["request"]["uid"], "allowed": true });
            let body =
                json!({ "apiVersion": review["apiVersion"], "kind": review["kind"], "response": response });
            Ok(Response::new(Bytes::from(body.to_string())))
        }
        .boxed()
    })
}

fn configuration(resource: &str) -> Value {
    let rule =
        json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": [resource] });
    json!({ "metadata": { "name": "w" }, "webhooks": [{
        "name": "w.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [rule],
        "clientConfig": { "service": { "name": "w", "namespace": "ops" } },
    }] })
}

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

#[tokio::test(start_paused = true)]
async fn webhook_reviews_object_again_that_changed_meanwhile() {
    let world = World::new(Duration::from_secs(2));
    world.maps().create(&PostParams::default(), &map("a")).await.expect("created");
    world.validate("configmaps").await;
    let late = async {
        world.env.sleep(Duration::from_secs(1)).await;
        world.merge("a", json!({ "second": "2" })).await
    };
    let (first, second) = join(world.merge("a", json!({ "first": "1" })), late).await;
    assert_eq!(first.data.expect("data").len(), 1);
    assert_eq!(second.data.expect("data").len(), 2, "no write is lost");
    let both = json!({ "first": "1", "second": "2" });
    assert_eq!(world.reviewed("/data"), [json!({ "first": "1" }), json!({ "second": "2" }), both]);
}

#[tokio::test(start_paused = true)]
async fn write_that_waits_for_webhook_does_not_block_others() {
    let world = World::new(Duration::from_secs(5));
    world.validate("configmaps").await;
    let created = async { world.maps().create(&PostParams::default(), &map("a")).await };
    let other = async {
        let namespace =
            k8s_openapi::api::core::v1::Namespace { metadata: map("other").metadata, ..Default::default() };
        let begun = world.env.now();
        let other = Api::all(world.client.clone()).create(&PostParams::default(), &namespace).await;
        other.expect("created");
        world.env.now().saturating_duration_since(begun)
    };
    let (created, waited) = join(created, other).await;
    assert!(created.is_ok() && waited < Duration::from_secs(1), "waited {waited:?}");
}

/// A Service gets a random address, and an object a random UID, before the validating webhooks review it.
#[tokio::test(start_paused = true)]
async fn waiting_write_keeps_its_time_and_random_values() {
    let world = World::new(Duration::from_secs(3));
    world.validate("services").await;
    let mut service: Service =
        serde_json::from_value(json!({ "spec": { "ports": [{ "port": 80 }] } })).expect("valid");
    service.metadata.generate_name = Some("a-".to_owned());
    let services = Api::<Service>::default_namespaced(world.client.clone());
    let made = services.create(&PostParams::default(), &service).await.expect("created");
    let address = made.spec.clone().and_then(|spec| spec.cluster_ip);
    assert_eq!(world.reviewed("/spec/clusterIP"), [json!(address)]);
    assert_eq!(world.reviewed("/metadata/uid"), [json!(made.uid())]);
    assert_eq!(world.reviewed("/metadata/name"), [json!(made.name_any())]);
}

#[tokio::test(start_paused = true)]
async fn mutating_webhook_reviews_object_before_it_has_a_uid() {
    let world = World::new(Duration::ZERO);
    let configuration: MutatingWebhookConfiguration =
        serde_json::from_value(configuration("configmaps")).expect("valid");
    Api::all(world.client.clone()).create(&PostParams::default(), &configuration).await.expect("created");
    world.maps().create(&PostParams::default(), &map("a")).await.expect("created");
    assert_eq!(world.reviewed("/metadata/uid"), [Value::Null]);
}

/// Two webhooks need 20 s each. Upstream limits the whole write to 34 s.
#[tokio::test(start_paused = true)]
async fn write_ends_at_time_limit_of_all_its_webhooks() {
    let world = World::new(Duration::from_secs(20));
    let mut configuration = configuration("configmaps");
    configuration["webhooks"][0]["timeoutSeconds"] = json!(30);
    let mut second = configuration["webhooks"][0].clone();
    second["name"] = json!("second.w.example.com");
    configuration["webhooks"].as_array_mut().expect("webhooks").push(second);
    let configuration: MutatingWebhookConfiguration = serde_json::from_value(configuration).expect("valid");
    Api::all(world.client.clone()).create(&PostParams::default(), &configuration).await.expect("created");
    let begun = world.env.now();
    let error = world.maps().create(&PostParams::default(), &map("a")).await.expect_err("too slow");
    let kube::Error::Api(status) = error else { panic!("{error}") };
    assert_eq!((status.code, status.reason.as_str()), (504, "Timeout"));
    assert_eq!(world.env.now().saturating_duration_since(begun), Duration::from_secs(34));
    assert_eq!(world.reviewed("/metadata/name").len(), 2);
    assert!(world.maps().get_opt("a").await.expect("read").is_none());
}
