//! Keys and certificates of one control plane, signed by its own certificate authority.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

use crate::layout::Layout;

/// Names in the API server's certificate.
const SERVER_NAMES: [&str; 4] = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc"];

/// Signs the certificates of one control plane.
#[derive(Debug)]
pub(crate) struct CertificateAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    layout: Layout,
}

impl CertificateAuthority {
    /// Creates the certificate authority, the API server's certificate and the key pair for ServiceAccount tokens, and
    /// writes them into the `pki` folder.
    pub(crate) fn create(layout: &Layout) -> anyhow::Result<Self> {
        let mut params = named("windlass-test-authority", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        fs::write(layout.pki("ca.crt"), issuer.pem())?;
        write_secret(&layout.pki("ca.key"), &issuer.key().serialize_pem())?;

        let authority = Self { issuer, layout: layout.clone() };
        let mut server = CertificateParams::new(SERVER_NAMES.map(String::from))?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        authority.issue("api-server", server, ExtendedKeyUsagePurpose::ServerAuth)?;

        let tokens = KeyPair::generate()?;
        fs::write(layout.pki("service-account.pub"), tokens.public_key_pem())?;
        write_secret(&layout.pki("service-account.key"), &tokens.serialize_pem())?;
        Ok(authority)
    }

    /// Writes a kubeconfig for `user`, in `group` if given, with its own certificate, as `identity`.
    pub(crate) fn kubeconfig(
        &self,
        identity: &str,
        user: &str,
        group: Option<&str>,
        server: &str,
    ) -> anyhow::Result<()> {
        self.issue(identity, named(user, group), ExtendedKeyUsagePurpose::ClientAuth)?;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "windlass", "cluster": {
                "server": server, "certificate-authority": self.layout.pki("ca.crt"),
            }}],
            "users": [{ "name": identity, "user": {
                "client-certificate": self.layout.pki(&format!("{identity}.crt")),
                "client-key": self.layout.pki(&format!("{identity}.key")),
            }}],
            "contexts": [{ "name": "windlass", "context": { "cluster": "windlass", "user": identity } }],
            "current-context": "windlass",
        });
        let path = self.layout.kubeconfig(identity);
        fs::write(&path, serde_json::to_string_pretty(&config)?)
            .with_context(|| format!("writing {}", path.display()))
    }

    fn issue(
        &self,
        name: &str,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
    ) -> anyhow::Result<()> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        fs::write(self.layout.pki(&format!("{name}.crt")), certificate.pem())?;
        write_secret(&self.layout.pki(&format!("{name}.key")), &key.serialize_pem())
    }
}

/// Returns a subject in Kubernetes form: the common name is the user, the organization a group.
fn named(user: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params
}

fn write_secret(path: &Path, pem: &str) -> anyhow::Result<()> {
    let mut file = fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(file.write_all(pem.as_bytes())?)
}
