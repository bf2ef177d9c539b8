//! The image as blobs, in the layout that the OCI image specification 1.1 defines.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::layer::{Files, PROGRAM, compressed};
use super::write;

/// The file that marks a layout.
pub(super) const MARKER: &str = "oci-layout";

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The user and the group of the process.
pub(super) const USER: &str = "65532:65532";

/// The port of the server, as documentation. The chart sets the port too.
const PORT: &str = "10257/tcp";

/// Values in the documents of the image.
#[derive(Debug)]
pub(super) struct Metadata {
    created: Timestamp,
    version: &'static str,
    architecture: &'static str,
}

impl Metadata {
    pub(super) fn new(created: Timestamp) -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { created, version: env!("CARGO_PKG_VERSION"), architecture }
    }

    fn annotations(&self) -> Value {
        json!({
            "org.opencontainers.image.created": self.created.to_string(),
            "org.opencontainers.image.description": "Kubernetes controllers in Rust",
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.title": "windlass",
            "org.opencontainers.image.version": self.version,
        })
    }
}

/// An image.
#[derive(Debug)]
pub(super) struct Image {
    /// Content by digest, without the algorithm.
    blobs: BTreeMap<String, Vec<u8>>,
    index: Value,
    manifest: String,
    /// Size of the files in bytes, with the headers of the archive.
    pub(super) unpacked_size: usize,
}

impl Image {
    /// Creates the documents of an image with these files.
    pub(super) fn new(files: &Files<'_>, metadata: &Metadata) -> Result<Self> {
        let modified = u64::try_from(metadata.created.as_second()).context("the time is before 1970")?;
        let archive = files.archive(modified)?;
        let mut blobs = BTreeMap::new();
        let layer = add(&mut blobs, LAYER, compressed(&archive)?);
        let config = config(metadata, &sha256(&archive));
        let config = add(&mut blobs, CONFIG, serde_json::to_vec(&config)?);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": [layer],
            "annotations": metadata.annotations(),
        });
        let mut manifest = add(&mut blobs, MANIFEST, serde_json::to_vec(&manifest)?);
        let digest = manifest["digest"].as_str().context("a descriptor has a digest")?.to_owned();
        manifest["platform"] = json!({ "architecture": metadata.architecture, "os": "linux" });
        manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": metadata.version });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest] });
        Ok(Self { blobs, index, manifest: digest, unpacked_size: archive.len() })
    }

    /// Returns the digest of the manifest, by which a chart selects the image.
    pub(super) fn digest(&self) -> &str {
        &self.manifest
    }

    /// Returns the size of all blobs in bytes, which a node downloads.
    pub(super) fn compressed_size(&self) -> usize {
        self.blobs.values().map(Vec::len).sum()
    }

    /// Writes the layout into a folder.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        for (digest, content) in &self.blobs {
            write(&folder.join("blobs/sha256").join(digest), content)?;
        }
        write(&folder.join("index.json"), &serde_json::to_vec(&self.index)?)?;
        write(&folder.join(MARKER), br#"{"imageLayoutVersion":"1.0.0"}"#)
    }
}

/// Returns the configuration that a container runtime reads.
fn config(metadata: &Metadata, archive: &str) -> Value {
    let created = metadata.created.to_string();
    json!({
        "architecture": metadata.architecture,
        "os": "linux",
        "created": created,
        "config": {
            "User": USER,
            "Entrypoint": [format!("/{PROGRAM}")],
            "WorkingDir": "/",
            "ExposedPorts": { PORT: {} },
            "Labels": metadata.annotations(),
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{archive}")] },
        "history": [{ "created": created, "created_by": "cargo xtask image" }],
    })
}

/// Adds a blob and returns its descriptor.
fn add(blobs: &mut BTreeMap<String, Vec<u8>>, media_type: &str, content: Vec<u8>) -> Value {
    let digest = sha256(&content);
    let descriptor = json!({
        "mediaType": media_type,
        "digest": format!("sha256:{digest}"),
        "size": content.len(),
    });
    blobs.insert(digest, content);
    descriptor
}

/// Returns the SHA-256 digest in hexadecimal digits.
pub(super) fn sha256(content: &[u8]) -> String {
    digest(&SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
