//! Caches from lists and watches in protobuf, without a link, which would remove protobuf.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use windlass_api_server::{ApiServer, ApiServerOptions};
use windlass_client::WireFormat;
use windlass_env::Env;

use super::*;

fn pod(name: &str) -> Pod {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": "web"}, "annotations": {"text": "a \"b\"\n\u{e9}"}},
        "spec": {
            "automountServiceAccountToken": false,
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
            "containers": [{
                "name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}},
                "livenessProbe": {"httpGet": {"port": "http"}},
            }],
        },
    });
    serde_json::from_value(pod).expect("a pod")
}

/// Returns the cached Pods and their metadata after a list and two changes.
async fn cached(format: WireFormat, keep_managed_fields: bool) -> (Vec<Arc<Pod>>, Vec<ObjectMeta>) {
    let env = Env::virtual_time(1);
    let server = ApiServer::new(&env, ApiServerOptions::default());
    let client = kube::Client::new(server, "default");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    pods.create(&PostParams::default(), &pod("listed")).await.expect("a pod");

    let options = FactoryOptions { keep_managed_fields, ..FactoryOptions::default() };
    let factory = InformerFactory::new(env.clone(), Metrics::new(), options);
    let informer = factory.informer(TypedObjects::<Pod>::new(), Selection::default());
    let metadata = factory.informer(MetadataObjects::new(ResourceKind::of::<Pod>()), Selection::default());
    let client = RawClient::new(client, env.clone()).with_format(format);
    factory.start(Arc::new(ApiServerSources::new(client)));
    env.sleep(Duration::from_secs(1)).await;

    pods.create(&PostParams::default(), &pod("watched")).await.expect("a pod");
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app": "db"}}}));
    pods.patch("listed", &PatchParams::default(), &patch).await.expect("a patched pod");
    env.sleep(Duration::from_secs(1)).await;
    let metadata = metadata.lister().list();
    (informer.lister().list(), metadata.iter().map(|it| it.metadata.clone()).collect())
}

#[tokio::test(start_paused = true)]
async fn caches_are_equal_in_json_and_protobuf() {
    for keep_managed_fields in [false, true] {
        let json = cached(WireFormat::Json, keep_managed_fields).await;
        assert_eq!(json, cached(WireFormat::Protobuf, keep_managed_fields).await);
        let (pods, metadata) = json;
        let names: Vec<_> = metadata.iter().filter_map(|it| it.name.as_deref()).collect();
        assert_eq!(names, ["listed", "watched"]);
        let label = |pod: &Pod| pod.metadata.labels.as_ref().and_then(|labels| labels.get("app").cloned());
        assert_eq!((pods.len(), label(&pods[0]).as_deref()), (2, Some("db")));
        assert_eq!(pods[0].metadata.managed_fields.is_some(), keep_managed_fields);
    }
}

#[tokio::test(start_paused = true)]
async fn lists_in_pages_are_read_in_protobuf() {
    let env = Env::virtual_time(1);
    let server = ApiServer::new(&env, ApiServerOptions::default());
    let client = kube::Client::new(server, "default");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    for number in 0..600 {
        let map = json!({"metadata": {"name": format!("map-{number}")}, "data": {"k": "v"}});
        let map = serde_json::from_value(map).expect("a config map");
        maps.create(&PostParams::default(), &map).await.expect("a config map");
    }
    let client = RawClient::new(client, env.clone()).with_format(WireFormat::Protobuf);
    let factory = InformerFactory::new(env.clone(), Metrics::new(), FactoryOptions::default());
    let informer = factory.informer(super::maps(), Selection::in_namespace("default"));
    factory.start(Arc::new(ApiServerSources::new(client).paged()));
    env.sleep(Duration::from_secs(1)).await;
    assert_eq!(names(&informer).len(), 600);
    assert!(informer.lister().list().iter().all(|map| map.metadata.resource_version.is_some()));
}
