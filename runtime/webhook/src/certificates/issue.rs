//! Creates certificates of authorities and leaves.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::state::{Authority, Leaf, Lifetimes};

/// Time before the creation from which a certificate is valid: the clocks of API servers can be slow.
const BACKDATED: Duration = Duration::from_secs(60 * 60);

/// The reason why a certificate cannot be created or used. Contains no key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssueError {
    #[error("cannot create a certificate: {0}")]
    Create(#[from] rcgen::Error),
    #[error(
        "the certificate in the Secret cannot be used: {0}; delete the Secret to create new certificates"
    )]
    Unusable(#[from] rustls::Error),
    #[error("the certificate in the Secret is not PEM; delete the Secret to create new certificates")]
    NotPem,
}

/// Creates an authority with this unique name.
pub(crate) fn authority(
    name: String,
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Result<Authority, IssueError> {
    let not_after = later(now, lifetimes.authority);
    let mut params = authority_params(&name)?;
    limit(&mut params, now, not_after);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    let renew_at = later(now, two_thirds(lifetimes.authority));
    Ok(Authority { name, certificate, key: key.serialize_pem(), not_after, renew_at, announced: None })
}

/// Issues a leaf for these names and addresses. It does not outlive its authority.
pub(crate) fn leaf(
    authority: &Authority,
    names: &[String],
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Result<Leaf, IssueError> {
    let issuer = Issuer::new(authority_params(&authority.name)?, KeyPair::from_pem(&authority.key)?);
    let not_after = later(now, lifetimes.leaf).min(authority.not_after);
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name.push(DnType::CommonName, names.first().map(String::as_str).unwrap_or_default());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    limit(&mut params, now, not_after);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?.pem();
    let lifetime = not_after.duration_since(now).unsigned_abs();
    Ok(Leaf {
        certificate,
        key: key.serialize_pem(),
        names: names.to_vec(),
        issuer: authority.name.clone(),
        not_after,
        renew_at: later(now, two_thirds(lifetime)),
    })
}

/// Returns a leaf in the form in which it is served.
pub(crate) fn certified(leaf: &Leaf) -> Result<CertifiedKey, IssueError> {
    let certificate =
        CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).map_err(|_| IssueError::NotPem)?;
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).map_err(|_| IssueError::NotPem)?;
    Ok(CertifiedKey::from_der(vec![certificate], key, &windlass_serving::provider())?)
}

fn authority_params(name: &str) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn two_thirds(lifetime: Duration) -> Duration {
    lifetime / 3 * 2
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    now.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// Sets the dates of a certificate, in whole seconds.
fn limit(params: &mut CertificateParams, now: Timestamp, not_after: Timestamp) {
    // The type of the dates belongs to a dependency of rcgen.
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let seconds = |at: Timestamp| Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default());
    params.not_before = epoch + seconds(now).saturating_sub(BACKDATED);
    params.not_after = epoch + seconds(not_after);
}
