//! A client that reads the bytes of all Pods and discards them: the lower limit of the workload `cache`.
//!
//! It takes a kubeconfig and a media type (`json`, `protobuf` or `metadata`), and reads a streamed list. It prints
//! `synced <number of bytes>` and `idle`, and keeps its connection until its standard input ends. It must not use the
//! library of this package, which links an allocator that counts.

// The parent process reads the output.
#![allow(clippy::print_stdout)]

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::pin::pin;

use anyhow::{Context as _, Result, bail};
use http_body_util::BodyExt as _;
use kube::client::Body;
use windlass_client::load_config;

const STREAMED_LIST: &str = "/api/v1/pods?watch=true&sendInitialEvents=true&allowWatchBookmarks=true\
                             &resourceVersion=&resourceVersionMatch=NotOlderThan";
/// The annotation of the bookmark after the last object.
const LAST: &[u8] = b"k8s.io/initial-events-end";
/// The number of bytes at the end of the stream that are searched for the annotation.
const TAIL: usize = 512;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kubeconfig, media] = arguments.as_slice() else { bail!("usage: <kubeconfig> <media type>") };
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        bail!("a provider of cryptography is already installed");
    }
    let config = load_config(Some(Path::new(kubeconfig)), None).await?;
    let client = kube::Client::try_from(config)?;
    let request = http::Request::get(STREAMED_LIST).header(http::header::ACCEPT, accept(media)?);
    let response = client.send(request.body(Body::empty())?).await?;
    if !response.status().is_success() {
        bail!("the server returned {}", response.status());
    }
    let mut body = pin!(response.into_body());
    let (mut bytes, mut tail) = (0, Vec::new());
    while !contains_last(&tail) {
        let frame = body.frame().await.context("the stream ended before its bookmark")??;
        let Ok(data) = frame.into_data() else { continue };
        bytes += data.len();
        // The annotation can be split between two chunks, and a few fields can follow it.
        tail.extend_from_slice(&data[data.len().saturating_sub(TAIL)..]);
        tail.drain(..tail.len().saturating_sub(TAIL));
    }
    println!("synced {bytes}\nidle");
    std::io::stdout().flush()?;
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

fn contains_last(tail: &[u8]) -> bool {
    tail.windows(LAST.len()).any(|window| window == LAST)
}

fn accept(media: &str) -> Result<&'static str> {
    match media {
        "json" => Ok("application/json"),
        "protobuf" => Ok("application/vnd.kubernetes.protobuf"),
        "metadata" => Ok("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
        other => bail!("unknown media type {other}"),
    }
}
