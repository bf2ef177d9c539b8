//! The files of the image, and the archive that contains them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use super::write;

/// The path of the binary in the image.
pub(super) const PROGRAM: &str = "windlass";

/// The file that rustls reads on Linux if a kubeconfig names no CA.
pub(super) const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

/// Files by path. The archive also contains their folders.
#[derive(Debug)]
pub(super) struct Files<'a>(BTreeMap<&'static str, File<'a>>);

#[derive(Debug)]
struct File<'a> {
    content: Cow<'a, [u8]>,
    mode: u32,
}

impl<'a> Files<'a> {
    pub(super) fn new(program: &'a [u8]) -> Self {
        Self(BTreeMap::from([
            (PROGRAM, File { content: program.into(), mode: 0o755 }),
            (CERTIFICATES, File { content: certificates().into_bytes().into(), mode: 0o644 }),
        ]))
    }

    /// Writes the files below a folder.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        for (path, file) in &self.0 {
            let path = folder.join(path);
            write(&path, &file.content)?;
            let mode = std::fs::Permissions::from_mode(file.mode);
            std::fs::set_permissions(&path, mode)
                .with_context(|| format!("cannot set the mode of {path:?}"))?;
        }
        Ok(())
    }

    /// Returns all files as an archive. Each belongs to root, so that the process cannot change it.
    pub(super) fn archive(&self, modified: u64) -> Result<Vec<u8>> {
        let mut archive = Archive { builder: Builder::new(Vec::new()), modified };
        let mut folders = BTreeSet::new();
        for (path, file) in &self.0 {
            for (end, _) in path.match_indices('/') {
                let folder = &path[..=end];
                if folders.insert(folder) {
                    archive.add(folder, EntryType::Directory, 0o755, &[])?;
                }
            }
            archive.add(path, EntryType::Regular, file.mode, &file.content)?;
        }
        archive.builder.into_inner().context("cannot complete the archive")
    }
}

struct Archive {
    builder: Builder<Vec<u8>>,
    modified: u64,
}

impl Archive {
    fn add(&mut self, path: &str, kind: EntryType, mode: u32, content: &[u8]) -> Result<()> {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(self.modified);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(content.len() as u64);
        let added = self.builder.append_data(&mut header, path, content);
        added.with_context(|| format!("cannot add {path} to the archive"))
    }
}

/// Compresses an archive; the header contains no time and no name.
pub(super) fn compressed(archive: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(archive).context("cannot compress the archive")?;
    encoder.finish().context("cannot compress the archive")
}

/// Returns the certificate authorities that Mozilla trusts for servers, in PEM.
fn certificates() -> String {
    let mut text = String::new();
    for certificate in TLS_SERVER_ROOT_CERTS {
        text += "-----BEGIN CERTIFICATE-----\n";
        let encoded = STANDARD.encode(certificate);
        for line in encoded.as_bytes().chunks(64) {
            text.extend(line.iter().copied().map(char::from));
            text.push('\n');
        }
        text += "-----END CERTIFICATE-----\n";
    }
    text
}
