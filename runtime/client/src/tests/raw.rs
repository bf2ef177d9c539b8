use windlass_object::{Frame, Projection, ResourceKind, ResourceVersion, WireError};

use super::*;
use crate::{ListQuery, RawClient, RequestError, VersionMatch, WatchQuery, WireFormat};

const BOTH_FORMATS: &str = "application/vnd.kubernetes.protobuf,application/json";

fn kind() -> ResourceKind {
    ResourceKind::of::<ConfigMap>()
}

fn raw(world: &World) -> RawClient {
    world.clients.for_informers().unwrap()
}

fn watch_query() -> WatchQuery {
    WatchQuery { version: "7".into(), timeout: seconds(300), bookmarks: true, ..Default::default() }
}

const ADDED: &str = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n";

// parity: list-watch
#[tokio::test(start_paused = true)]
async fn list_sends_its_query_and_decodes_nothing() {
    let page = r#"{"metadata":{"resourceVersion":"9","continue":"next"},"items":[{"metadata":{"name":"a"}},{"broken":1}]}"#;
    let world = World::new(answer(200, page));
    let query = ListQuery {
        labels: Some("tier in (front,back)".into()),
        limit: Some(500),
        version: Some("0".into()),
        version_match: Some(VersionMatch::NotOlderThan),
        ..Default::default()
    };
    let list = raw(&world).list(&kind(), Some("web"), &query).await.unwrap();
    assert_eq!((list.items.len(), list.version), (2, Some(ResourceVersion::new("9"))));
    let seen = &world.seen()[0];
    assert_eq!(
        seen.uri.path_and_query().unwrap().as_str(),
        "/prefix/api/v1/namespaces/web/configmaps?labelSelector=tier+in+%28front%2Cback%29&limit=500&resourceVersion=0&resourceVersionMatch=NotOlderThan"
    );
    assert_eq!(seen.headers["accept"], BOTH_FORMATS);
}

// parity: no-protobuf-no-cbor
#[tokio::test(start_paused = true)]
async fn kinds_without_protobuf_are_requested_in_json() {
    let world = World::new(answer(200, r#"{"metadata":{},"items":[]}"#));
    let mut widget = kind();
    widget.group = "example.com".into();
    let query = ListQuery::default();
    raw(&world).list(&widget, None, &query).await.unwrap();
    let json = raw(&world).with_format(WireFormat::Json);
    json.list(&kind(), None, &query).await.unwrap();
    drop(json.watch(&kind(), None, &watch_query()).await.unwrap());
    assert!(world.seen().iter().all(|seen| seen.headers["accept"] == "application/json"));
    // Metadata of all kinds has an encoding.
    let query = ListQuery { projection: Projection::Metadata, ..query };
    raw(&world).list(&widget, None, &query).await.unwrap();
    let accept = world.seen()[3].headers["accept"].clone();
    assert!(
        accept.to_str().unwrap().starts_with("application/vnd.kubernetes.protobuf;as=Partial"),
        "{accept:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn request_is_repeated_in_json_when_protobuf_is_not_acceptable() {
    let world = World::new(|seen: &Seen| {
        let rejected = seen.headers["accept"] == BOTH_FORMATS;
        let (code, body) =
            if rejected { (406, "not acceptable") } else { (200, r#"{"metadata":{},"items":[]}"#) };
        answer(code, body)(seen)
    });
    let client = raw(&world);
    for _ in 0..2 {
        client.clone().list(&kind(), None, &ListQuery::default()).await.unwrap();
    }
    drop(client.watch(&kind(), None, &watch_query()).await.unwrap());
    let accepts: Vec<_> = world.seen().iter().map(|seen| seen.headers["accept"].clone()).collect();
    assert_eq!(accepts, [BOTH_FORMATS, "application/json", "application/json", "application/json"]);
}

#[tokio::test(start_paused = true)]
async fn kind_that_is_unknown_in_protobuf_is_requested_in_json_next() {
    const UNKNOWN: &[u8] = b"k8s\0\x0a\x08\x0a\x02v9\x12\x02No\x12\0";
    let event = [&[10, 5][..], b"ADDED", &[18, 18, 10, 16], UNKNOWN].concat();
    let frame = [&[0, 0, 0, u8::try_from(event.len()).unwrap()][..], &event].concat();
    let world = World::new(move |seen: &Seen| {
        let watch = seen.uri.query().is_some_and(|query| query.contains("watch=true"));
        let chunk = if watch { Bytes::from(frame.clone()) } else { Bytes::from_static(UNKNOWN) };
        streamed(stream::iter([chunk]).boxed())
    });
    for watch in [false, true] {
        let client = raw(&world);
        let error = if watch {
            let frames: Vec<_> = client.watch(&kind(), None, &watch_query()).await.unwrap().collect().await;
            frames.into_iter().next_back().unwrap().unwrap_err()
        } else {
            client.list(&kind(), None, &ListQuery::default()).await.unwrap_err()
        };
        let RequestError::Wire(error) = error else { panic!("{error}") };
        assert!(error.is_unknown_kind(), "{error}");
        drop(client.watch(&kind(), None, &watch_query()).await.unwrap());
    }
    let accepts: Vec<_> = world.seen().iter().map(|seen| seen.headers["accept"].clone()).collect();
    assert_eq!(accepts, [BOTH_FORMATS, "application/json", BOTH_FORMATS, "application/json"]);
}

// parity: sharded-list-watch-gate
#[tokio::test(start_paused = true)]
async fn shard_selector_is_sent_for_lists_watches_and_every_page() {
    let world = World::new(answer(200, r#"{"metadata":{},"items":[]}"#));
    let shards = Some("shardRange(object.metadata.uid, 'a', 'b')".to_owned());
    let asked = "shardSelector=shardRange%28object.metadata.uid%2C+%27a%27%2C+%27b%27%29";
    let page =
        ListQuery { shards: shards.clone(), continue_token: Some("next".into()), ..Default::default() };
    raw(&world).list(&kind(), None, &page).await.unwrap();
    let watch = WatchQuery { shards, ..watch_query() };
    raw(&world).watch(&kind(), None, &watch).await.map(drop).unwrap();
    let queries: Vec<_> = world.seen().iter().map(|seen| seen.uri.query().unwrap().to_owned()).collect();
    assert_eq!(queries[0], format!("{asked}&continue=next"));
    assert!(queries[1].contains(asked), "{}", queries[1]);
}

#[tokio::test(start_paused = true)]
async fn continued_list_has_no_version() {
    let world = World::new(answer(200, r#"{"metadata":{},"items":[]}"#));
    let query = ListQuery {
        continue_token: Some("a/b=".into()),
        version: Some("5".into()),
        version_match: Some(VersionMatch::Exact),
        ..Default::default()
    };
    raw(&world).list(&kind(), None, &query).await.unwrap();
    assert_eq!(world.seen()[0].uri.query(), Some("continue=a%2Fb%3D"));
}

#[tokio::test(start_paused = true)]
async fn empty_version_requests_the_newest() {
    let world = World::new(answer(200, r#"{"metadata":{},"items":[]}"#));
    let query = ListQuery {
        version: Some(String::new()),
        version_match: Some(VersionMatch::Exact),
        ..Default::default()
    };
    raw(&world).list(&kind(), None, &query).await.unwrap();
    assert_eq!(world.seen()[0].uri.query().unwrap_or_default(), "");
}

// parity: list-watch
#[tokio::test(start_paused = true)]
async fn watch_returns_frames_and_ends_with_the_server() {
    let chunks = vec![Bytes::from(&ADDED[..20]), Bytes::from(&ADDED[20..]), Bytes::from(ADDED)];
    let world = World::new(move |_| streamed(stream::iter(chunks.clone()).boxed()));
    let frames: Vec<_> = raw(&world).watch(&kind(), None, &watch_query()).await.unwrap().collect().await;
    let added = Frame::Added(r#"{"metadata":{"name":"a"}}"#.into());
    assert_eq!(frames, [Ok(added.clone()), Ok(added)]);
    assert_eq!(
        world.seen()[0].uri.query(),
        Some("watch=true&resourceVersion=7&timeoutSeconds=300&allowWatchBookmarks=true")
    );
}

// parity: http-2-pings-after
#[tokio::test(start_paused = true)]
async fn watch_without_data_ends() {
    let world = World::new(|_| streamed(then_silence(vec![ADDED.into()])));
    let frames: Vec<_> = raw(&world).watch(&kind(), None, &watch_query()).await.unwrap().collect().await;
    assert_eq!((frames.len(), &frames[1]), (2, &Err(RequestError::WatchIdle)));
    assert_eq!(world.env.now().since_origin(), seconds(300 + 30));
}

#[tokio::test(start_paused = true)]
async fn watch_with_data_in_time_continues() {
    let world = World::new(|_| {
        let env = Env::virtual_time(0);
        let ticks = stream::unfold((env, 0), |(env, count)| async move {
            env.sleep(Duration::from_secs(200)).await;
            (count < 5).then(|| (Bytes::from(ADDED), (env, count + 1)))
        });
        streamed(ticks.boxed())
    });
    let frames: Vec<_> = raw(&world).watch(&kind(), None, &watch_query()).await.unwrap().collect().await;
    assert!(frames.len() == 5 && frames.iter().all(Result::is_ok), "{frames:?}");
}

#[tokio::test(start_paused = true)]
async fn watch_without_data_ends_with_any_client() {
    let service =
        service_fn(|_: Request<Body>| async { Ok::<_, BoxError>(streamed(then_silence(vec![])).await) });
    let env = Env::virtual_time(1);
    let raw = RawClient::new(kube::Client::new(service, "default"), env.clone());
    let frames: Vec<_> = raw.watch(&kind(), None, &watch_query()).await.unwrap().collect().await;
    assert_eq!(frames, [Err(RequestError::WatchIdle)]);
    assert_eq!(env.now().since_origin(), seconds(330));
}

#[tokio::test(start_paused = true)]
async fn unanswered_watch_request_ends_at_its_time_limit() {
    let world = World::new(hang);
    let error = raw(&world).watch(&kind(), None, &watch_query()).await.err().unwrap();
    assert_eq!(error, RequestError::Deadline);
    assert_eq!(world.env.now().since_origin(), seconds(60));
}

#[tokio::test(start_paused = true)]
async fn watch_truncated_inside_a_frame_is_an_error() {
    let world = World::new(|_| streamed(stream::iter([Bytes::from(&ADDED[..10])]).boxed()));
    let frames: Vec<_> = raw(&world).watch(&kind(), None, &watch_query()).await.unwrap().collect().await;
    assert_eq!(frames, [Err(RequestError::Wire(WireError::Truncated { bytes: 10 }))]);
}

// parity: test-close-watch-channel-on-error, garbled-watch-errors
#[tokio::test(start_paused = true)]
async fn watch_ends_after_an_error() {
    let chunks = vec![Bytes::from_static(b"{\"type\":\"ADDED\"}\n"), Bytes::from(ADDED)];
    let world = World::new(move |_| streamed(stream::iter(chunks.clone()).boxed()));
    let frames: Vec<_> = raw(&world).watch(&kind(), None, &watch_query()).await.unwrap().collect().await;
    assert!(
        matches!(
            frames.as_slice(),
            [Err(RequestError::Wire(WireError::Malformed { what: "watch frame", .. }))]
        ),
        "{frames:?}"
    );
}

// parity: factories-listers-metadatainformer, metadata-watches
#[tokio::test(start_paused = true)]
async fn metadata_requests_accept_full_objects_as_well() {
    let world = World::new(answer(200, r#"{"metadata":{},"items":[]}"#));
    let query = ListQuery { projection: Projection::Metadata, ..Default::default() };
    raw(&world).list(&kind(), None, &query).await.unwrap();
    let query = WatchQuery { projection: Projection::Metadata, ..watch_query() };
    drop(raw(&world).watch(&kind(), None, &query).await.unwrap());
    let asked: Vec<_> = world.seen().iter().map(|seen| seen.headers["accept"].clone()).collect();
    assert_eq!(
        asked,
        [
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
        ]
    );
}

// parity: prepare-watch-list-options-from-list
#[tokio::test(start_paused = true)]
async fn streaming_list_is_sent_with_all_required_parameters() {
    let world = World::new(move |_| streamed(stream::empty().boxed()));
    for version in ["", "7"] {
        let query =
            WatchQuery { version: version.into(), bookmarks: false, initial_events: true, ..watch_query() };
        drop(raw(&world).watch(&kind(), None, &query).await.unwrap());
    }
    let asked: Vec<_> =
        world.seen().iter().map(|seen| seen.uri.query().unwrap_or_default().to_owned()).collect();
    let rest = "timeoutSeconds=300&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    assert_eq!(asked, [format!("watch=true&{rest}"), format!("watch=true&resourceVersion=7&{rest}")]);
}

#[tokio::test(start_paused = true)]
async fn reading_stops_when_the_response_exceeds_the_limit() {
    let list = r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#;
    let most = |max_bytes| ListQuery { max_bytes: Some(max_bytes), ..Default::default() };
    let long = u64::try_from(list.len()).unwrap();
    let world = World::new(answer(200, list));
    assert!(raw(&world).list(&kind(), None, &most(long)).await.is_ok());
    let error = raw(&world).list(&kind(), None, &most(long - 1)).await.unwrap_err();
    assert!(matches!(error, RequestError::BudgetExceeded(_)), "{error}");
    // An endless response without a content length.
    let endless = || stream::repeat(Bytes::from_static(b"[[[[[[[[")).boxed();
    let world = World::new(move |_| streamed(endless()));
    let error = raw(&world).list(&kind(), None, &most(1000)).await.unwrap_err();
    assert_eq!(error.to_string(), "the response exceeds the limit of 1000 bytes");
}

async fn list_error(serve: impl Fn(&Seen) -> Reply + Clone + Send + Sync + 'static) -> RequestError {
    raw(&World::new(serve)).list(&kind(), None, &ListQuery::default()).await.unwrap_err()
}

// parity: garbled-watch-errors
#[tokio::test(start_paused = true)]
async fn error_responses_are_distinguished_in_any_format() {
    let expired = r#"{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old"}"#;
    assert!(list_error(answer(410, expired)).await.is_expired());
    assert!(list_error(answer(404, "404 page not found")).await.is_not_found());
    assert!(list_error(answer(403, "k8s\0binary")).await.is_forbidden());
    let invalid = list_error(answer(200, "k8s\0binary")).await;
    assert!(matches!(invalid, RequestError::Wire(WireError::Protobuf(_))), "{invalid}");
}

/// Proxies in front of an API server send other formats; kube-rs returns them unchanged (kube#1986, #2061).
// parity: garbled-watch-errors
#[tokio::test(start_paused = true)]
async fn non_status_error_of_a_watch_is_one_line_with_its_code() {
    let page = "<html>\r\n<head><title>502</title></head>\n<body>Bad Gateway</body>\n</html>\n";
    for (code, body) in [(502, page), (500, "{}"), (503, r#"{"kind":"Status","metadata":{}}"#), (504, "")] {
        let world = World::new(answer(code, body));
        let refused = raw(&world).watch(&kind(), None, &watch_query()).await.err().expect("refused");
        assert_eq!(refused.status().map(|status| status.code), Some(code), "{refused:?}");
        let message = refused.to_string();
        assert!(message.contains(&code.to_string()) && message.lines().count() == 1, "{message:?}");
    }
    let chunk = Bytes::from_static(b"{\"type\":\"ERROR\",\"object\":{}}\n");
    let world = World::new(move |_| streamed(stream::iter([chunk.clone()]).boxed()));
    let frames: Vec<_> = raw(&world).watch(&kind(), None, &watch_query()).await.unwrap().collect().await;
    let [Ok(Frame::Error(status))] = frames.as_slice() else { panic!("{frames:?}") };
    assert!(status.code == 500 && !status.message.is_empty(), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_a_busy_server_is_returned() {
    let error = list_error(|_| {
        let response =
            Response::builder().status(429).header("retry-after", "4").body(full("busy".into())).unwrap();
        futures_util::future::ready(response).boxed()
    });
    let RequestError::TooManyRequests { retry_after, status } = error.await else { panic!() };
    assert_eq!((retry_after, status.message.as_str()), (Some(seconds(4)), "busy"));
}

#[tokio::test(start_paused = true)]
async fn unthrottled_list_skips_the_rate_limit() {
    let options = ClientOptions { qps: 1.0, burst: 1, ..ClientOptions::default() };
    let world = World::with(options, |_| Arc::new(OpenFence), answer(200, r#"{"metadata":{},"items":[]}"#));
    let client = raw(&world);
    for unthrottled in [false, true, true, true, false] {
        let query = ListQuery { unthrottled, ..Default::default() };
        client.list(&kind(), None, &query).await.unwrap();
    }
    assert_eq!(world.arrivals(), [0, 0, 0, 0, 1000], "they use no tokens either");
}
