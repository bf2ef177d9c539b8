//! Caches from lists and watches in protobuf, without a link, which would remove protobuf.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use windlass_api_server::{ApiServer, ApiServerOptions};
use windlass_client::WireFormat;
use windlass_env::Env;
use windlass_macros::View;
use windlass_object::{HasMetadata as _, Metadata};

use super::*;

#[derive(View, Debug, PartialEq)]
#[view(of = "v1/Pod", crate = windlass_object)]
struct PodView {
    metadata: Metadata,
    #[view(path = "metadata.annotations[text]")]
    text: Option<String>,
    #[view(path = "spec.volumes")]
    volumes: Vec<VolumeView>,
    #[view(path = "spec.containers")]
    containers: Vec<ContainerView>,
    #[view(path = "spec.automountServiceAccountToken")]
    has_token: Option<bool>,
}

#[derive(View, Debug, PartialEq)]
#[view(of = "v1/Pod", at = "spec.volumes", crate = windlass_object)]
struct VolumeView {
    #[view(path = "name")]
    name: Arc<str>,
    #[view(path = "emptyDir.sizeLimit")]
    size: Option<String>,
}

#[derive(View, Debug, PartialEq)]
#[view(of = "v1/Pod", at = "spec.containers", crate = windlass_object)]
struct ContainerView {
    #[view(path = "resources.requests[cpu]")]
    cpu: Option<Quantity>,
    #[view(path = "livenessProbe.httpGet.port")]
    port: Option<IntOrString>,
}

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

type Cached = (Vec<Arc<Pod>>, Vec<ObjectMeta>, Vec<Arc<PodView>>);

/// Returns the cached Pods, their metadata and their views after a list and two changes.
async fn cached(format: WireFormat, keep_managed_fields: bool) -> Cached {
    let env = Env::virtual_time(1);
    let server = ApiServer::new(&env, ApiServerOptions::default());
    let client = kube::Client::new(server, "default");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    pods.create(&PostParams::default(), &pod("listed")).await.expect("a pod");

    let options = FactoryOptions { keep_managed_fields, ..FactoryOptions::default() };
    let factory = InformerFactory::new(env.clone(), Metrics::new(), options);
    let informer = factory.informer(TypedObjects::<Pod>::new(), Selection::default());
    let metadata = factory.informer(MetadataObjects::new(ResourceKind::of::<Pod>()), Selection::default());
    let views = factory.typed::<PodView>();
    let client = RawClient::new(client, env.clone()).with_format(format);
    factory.start(Arc::new(ApiServerSources::new(client)));
    env.sleep(Duration::from_secs(1)).await;

    pods.create(&PostParams::default(), &pod("watched")).await.expect("a pod");
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app": "db"}}}));
    pods.patch("listed", &PatchParams::default(), &patch).await.expect("a patched pod");
    env.sleep(Duration::from_secs(1)).await;
    let metadata = metadata.lister().list();
    let metadata = metadata.iter().map(|it| it.metadata.clone()).collect();
    (informer.lister().list(), metadata, views.lister().list())
}

#[tokio::test(start_paused = true)]
async fn caches_are_equal_in_json_and_protobuf() {
    for keep_managed_fields in [false, true] {
        let json = cached(WireFormat::Json, keep_managed_fields).await;
        assert_eq!(json, cached(WireFormat::Protobuf, keep_managed_fields).await);
        let (pods, metadata, views) = json;
        let names: Vec<_> = metadata.iter().filter_map(|it| it.name.as_deref()).collect();
        assert_eq!(names, ["listed", "watched"]);
        let label = |pod: &Pod| pod.metadata.labels.as_ref().and_then(|labels| labels.get("app").cloned());
        assert_eq!((pods.len(), label(&pods[0]).as_deref()), (2, Some("db")));
        assert_eq!(pods[0].metadata.managed_fields.is_some(), keep_managed_fields);
        assert_eq!((views.len(), views[0].metadata().labels().get("app")), (2, Some("db")));
        assert_eq!((views[0].text.as_deref(), views[0].has_token), (Some("a \"b\"\n\u{e9}"), Some(false)));
        let volume = VolumeView { name: "v".into(), size: Some("1Gi".into()) };
        let port = Some(IntOrString::String("http".into()));
        let container = ContainerView { cpu: Some(Quantity("100m".into())), port };
        assert_eq!((&views[0].volumes, &views[0].containers), (&vec![volume], &vec![container]));
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
    factory.start(Arc::new(ApiServerSources::new(client).without_watch_list()));
    env.sleep(Duration::from_secs(1)).await;
    assert_eq!(names(&informer).len(), 600);
    assert!(informer.lister().list().iter().all(|map| map.metadata.resource_version.is_some()));
}
