//! The image is read as a container runtime reads it: layout, manifest, configuration, layer, entry point.

use std::collections::BTreeMap;
use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::Value;
use tar::Archive;

use super::binary::{check, is_static, ordinary_compiler};
use super::layer::{CERTIFICATES, PROGRAM};
use super::layout::{USER, sha256};
use super::sbom::{Crates, checksums};
use super::*;

/// The time of images in tests.
const CREATED: i64 = 1_700_000_000;

fn image_of(program: &[u8], seconds: i64) -> Image {
    let metadata = Metadata::new(Timestamp::from_second(seconds).expect("a time"));
    Image::new(&Files::new(program), &metadata).expect("an image")
}

/// A layout on disk, whose blobs are verified when they are read.
struct Layout<'a>(&'a Path);

impl Layout<'_> {
    fn blob(&self, descriptor: &Value, media_type: &str) -> Vec<u8> {
        assert_eq!(descriptor["mediaType"], media_type);
        let digest = descriptor["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
        let digest = digest.expect("a digest");
        let content = read(&self.0.join("blobs/sha256").join(digest)).expect("the blob");
        assert_eq!(
            (descriptor["size"].as_u64(), sha256(&content).as_str()),
            (Some(content.len() as u64), digest)
        );
        content
    }

    fn json(&self, descriptor: &Value, kind: &str) -> Value {
        let media_type = format!("application/vnd.oci.image.{kind}.v1+json");
        serde_json::from_slice(&self.blob(descriptor, &media_type)).expect("JSON")
    }

    /// Returns the digest of the manifest, the configuration and the archive of the only layer.
    fn image(&self) -> (String, Value, Vec<u8>) {
        let parse = |name: &str| -> Value {
            serde_json::from_slice(&read(&self.0.join(name)).expect(name)).expect("JSON")
        };
        assert_eq!(parse("oci-layout"), serde_json::json!({ "imageLayoutVersion": "1.0.0" }));
        let index = parse("index.json");
        assert_eq!(
            (&index["schemaVersion"], index["manifests"].as_array().map(Vec::len)),
            (&2.into(), Some(1))
        );
        let descriptor = &index["manifests"][0];
        assert_eq!(descriptor["platform"]["os"], "linux");
        let manifest = self.json(descriptor, "manifest");
        assert_eq!(
            (&manifest["schemaVersion"], manifest["layers"].as_array().map(Vec::len)),
            (&2.into(), Some(1))
        );
        let config = self.json(&manifest["config"], "config");
        assert_eq!(config["architecture"], descriptor["platform"]["architecture"]);
        let layer = self.blob(&manifest["layers"][0], "application/vnd.oci.image.layer.v1.tar+gzip");
        let mut archive = Vec::new();
        GzDecoder::new(&*layer).read_to_end(&mut archive).expect("gzip");
        let archived = format!("sha256:{}", sha256(&archive));
        assert_eq!(config["rootfs"], serde_json::json!({ "type": "layers", "diff_ids": [archived] }));
        (descriptor["digest"].as_str().expect("a digest").to_owned(), config, archive)
    }
}

/// Returns path, mode, user, group and time of each entry of an archive.
fn entries(archive: &[u8]) -> Vec<(String, u32, u64, u64, u64)> {
    let mut archive = Archive::new(archive);
    let entries = archive.entries().expect("an archive");
    entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            let (path, header) = (entry.path().expect("a path").display().to_string(), entry.header());
            let number = |number: std::io::Result<u64>| number.expect("a number");
            let time = number(header.mtime());
            (path, header.mode().expect("a mode"), number(header.uid()), number(header.gid()), time)
        })
        .collect()
}

#[test]
fn layout_contains_the_program_and_certificates_only() {
    let program = b"a program";
    let image = image_of(program, CREATED);
    let folder = tempfile::tempdir().expect("a folder");
    let layout = folder.path().join("layout");
    image.write(&layout).expect("a layout");
    let (digest, config, archive) = Layout(&layout).image();
    assert_eq!(digest, image.digest());

    let time = u64::try_from(CREATED).expect("positive");
    let folders = ["etc/", "etc/ssl/", "etc/ssl/certs/"].map(|path| (path.to_owned(), 0o755, 0, 0, time));
    let files =
        [(CERTIFICATES, 0o644), (PROGRAM, 0o755)].map(|(path, mode)| (path.to_owned(), mode, 0, 0, time));
    assert_eq!(entries(&archive), [&folders[..], &files[..]].concat());
    let root = folder.path().join("root");
    Archive::new(&*archive).unpack(&root).expect("unpacked");
    assert_eq!(read(&root.join(PROGRAM)).expect("the program"), program);

    let settings = &config["config"];
    assert_eq!((&settings["User"], &settings["Entrypoint"][0]), (&"65532:65532".into(), &"/windlass".into()));
}

#[test]
fn program_that_needs_a_dynamic_linker_or_does_not_start_is_rejected() {
    let own = std::env::current_exe().expect("the path of this test");
    let program = read(&own).expect("this test");
    let error = check(&program, &own).expect_err("linked dynamically").to_string();
    assert!(error.ends_with("is not linked statically"), "{error}");
    assert!(is_static(b"#!/bin/sh").is_err(), "a script is not a binary");
}

#[test]
fn image_above_a_limit_is_rejected() {
    check_size("unpacked", 5, 5).expect("within the limit");
    let error = check_size("unpacked", 6, 5).expect_err("too large").to_string();
    assert_eq!(error, "the unpacked image has 6 bytes, more than the limit of 5");
}

#[test]
fn digest_depends_on_content_and_declared_time_only() {
    let digest = |program: &str, seconds| image_of(program.as_bytes(), seconds).digest().to_owned();
    assert_eq!(digest("a", CREATED), digest("a", CREATED));
    assert_ne!(digest("a", CREATED), digest("b", CREATED));
    assert_ne!(digest("a", CREATED), digest("a", CREATED + 1));
}

#[test]
fn certificates_are_those_of_public_authorities() {
    let folder = tempfile::tempdir().expect("a folder");
    Files::new(b"program").write(folder.path()).expect("written");
    let text = std::fs::read_to_string(folder.path().join(CERTIFICATES)).expect("certificates");
    let blocks = text.matches("-----BEGIN CERTIFICATE-----\n").count();
    assert!(blocks > 100 && blocks == text.matches("-----END CERTIFICATE-----\n").count(), "{blocks}");
    assert!(text.lines().all(|line| line.len() <= 64));
}

#[test]
fn folder_with_other_files_is_not_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = folder.path().join("layout");
    remove_layout(&layout).expect("absent");
    image_of(b"a", CREATED).write(&layout).expect("a layout");
    remove_layout(&layout).expect("a layout");
    assert!(!layout.exists());
    write(&layout.join("notes.txt"), b"mine").expect("written");
    let error = remove_layout(&layout).expect_err("not a layout").to_string();
    assert!(error.contains("is not an image layout; choose another folder"), "{error}");
    assert!(layout.join("notes.txt").exists());
}

#[test]
fn list_contains_each_linked_crate_with_its_dependencies() {
    let lock = "version = 4\n\n[[package]]\nname = \"b\"\nversion = \"2.0.0\"\nsource = \"registry\"\n\
                checksum = \"cafe\"\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\ndependencies = [\n \"b\",\n]\n";
    let tree = "0|a v1.0.0 (/w/a)|Apache-2.0|\n1|b v2.0.0|MIT/Apache-2.0|\n1|c v3.0.0 (/w/c)|Apache-2.0|\n\
                2|b v2.0.0|MIT/Apache-2.0| (*)\n";
    let crates = Crates::from_tree(tree, &checksums(lock)).expect("a tree");
    let document = crates.document("sha256:1", "2");
    assert_eq!(document["metadata"]["component"]["hashes"][0]["content"], "2");
    // Attestations require a number; it must be the same for the same image, and a UUID.
    let number = |image| crates.document(image, "2")["serialNumber"].as_str().map(str::to_owned);
    assert_eq!(number("sha256:1").as_deref(), Some("urn:uuid:51ae7fa0-0c92-825c-8194-04a3a6d400e5"));
    assert_ne!(number("sha256:1"), number("sha256:2"));
    let libraries = document["components"].as_array().expect("libraries");
    let purls: Vec<_> = libraries.iter().map(|library| library["purl"].as_str().expect("a URL")).collect();
    assert_eq!(purls, ["pkg:cargo/b@2.0.0", "pkg:cargo/c@3.0.0"]);
    assert_eq!(libraries[0]["hashes"][0]["content"], "cafe");
    assert_eq!(libraries[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
    let edges: BTreeMap<_, _> = document["dependencies"]
        .as_array()
        .expect("edges")
        .iter()
        .map(|edge| (edge["ref"].as_str(), &edge["dependsOn"]))
        .collect();
    assert_eq!(
        edges[&Some("pkg:cargo/a@1.0.0")],
        &serde_json::json!(["pkg:cargo/b@2.0.0", "pkg:cargo/c@3.0.0"])
    );
    assert_eq!(edges[&Some("pkg:cargo/c@3.0.0")], &serde_json::json!(["pkg:cargo/b@2.0.0"]));
}

#[test]
fn list_of_this_checkout_has_licenses_and_no_test_crates() {
    let list = sbom::read(&image_of(b"a", CREATED), b"a").expect("a list");
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let components = list["components"].as_array().expect("components");
    let names: Vec<_> = components.iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(["tokio", "rustls", "windlass-informer"].iter().all(|name| names.contains(name)), "{names:?}");
    let of_tests = ["windlass-api-server", "windlass-testing", "windlass-demo", "windlass-harness"];
    assert!(!of_tests.iter().any(|name| names.contains(name)), "{names:?}");
    for one in components {
        let license = one["licenses"][0]["expression"].as_str().unwrap_or_default();
        let is_ours = one["name"].as_str().is_some_and(|name| name.starts_with("windlass"));
        assert!(!license.is_empty() && (is_ours || one["hashes"].is_array()), "{one}");
    }
}

/// A project of the template builds its image with an ordinary compiler too.
#[test]
fn template_selects_the_compiler_of_the_image() {
    let path = root().join("templates/operator/.cargo/config.toml");
    let text = String::from_utf8(read(&path).expect("the file")).expect("text");
    let set: BTreeMap<_, _> = text.lines().filter_map(|line| line.split_once(" = ")).collect();
    let targets = ["aarch64-unknown-linux-musl", "x86_64-unknown-linux-musl"];
    let expected: BTreeMap<_, _> = targets.into_iter().flat_map(ordinary_compiler).collect();
    let expected: Vec<_> = expected.into_iter().map(|(name, value)| (name, format!("{value:?}"))).collect();
    let set: Vec<_> = set.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    assert_eq!(set, expected);
}

#[test]
fn containerfile_agrees_with_the_image() {
    let text = std::fs::read_to_string(root().join("deploy/Containerfile")).expect("a Containerfile");
    let toolchain = std::fs::read_to_string(root().join("rust-toolchain.toml")).expect("a toolchain");
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = \"")?.strip_suffix('"'));
    let compiler = format!("FROM docker.io/library/rust:{}-slim ", channel.expect("a channel"));
    let user = format!("USER {USER}");
    let entry_point = format!("ENTRYPOINT [\"/{PROGRAM}\"]");
    for part in [compiler.as_str(), "FROM scratch", &user, &entry_point, "EXPOSE 10257/tcp"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}
