//! Generates self-signed certificates at start, and persists them if a directory is configured.
//!
//! Guarantees: existing files are never overwritten. If two processes generate a pair in one directory at the same
//! time, one succeeds, and the other fails because the file exists. Only the owner can read the key.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use jiff::{Timestamp, tz::TimeZone};
use rcgen::{
    Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use windlass_serving::{CertificateError, CertificateFiles};

/// Validity of a generated certificate in years: longer than any process runs.
const YEARS: i32 = 10;

/// File modes of certificate and key, as in upstream.
const CERTIFICATE_MODE: u32 = 0o644;
const KEY_MODE: u32 = 0o600;

/// Returns a self-signed certificate for this host and the address, valid from the day before `now`.
pub(crate) fn self_signed(
    provider: &CryptoProvider,
    address: IpAddr,
    now: Timestamp,
) -> Result<CertifiedKey, CertificateError> {
    let (certificate, key) = make(address, now)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    CertifiedKey::from_der(vec![certificate.der().clone()], key, provider).map_err(CertificateError::Provider)
}

/// Generates a pair and writes it, with the missing directories, if neither file exists.
///
/// # Errors
/// When only one of the files exists, or they cannot be written.
pub(crate) fn keep(
    files: &CertificateFiles,
    address: IpAddr,
    now: Timestamp,
) -> Result<(), CertificateError> {
    let CertificateFiles { certificate: at, key: key_at } = files;
    match (is_there(at)?, is_there(key_at)?) {
        (true, true) => return Ok(()),
        (true, false) => return Err(CertificateError::Half { there: at.clone(), missing: key_at.clone() }),
        (false, true) => return Err(CertificateError::Half { there: key_at.clone(), missing: at.clone() }),
        (false, false) => {}
    }
    let (certificate, key) = make(address, now)?;
    for folder in [at, key_at].into_iter().filter_map(|path| path.parent()) {
        fs::create_dir_all(folder).map_err(|source| unwritable(folder, source))?;
    }
    write_new(key_at, &key.serialize_pem(), KEY_MODE)?;
    if let Err(error) = write_new(at, &certificate.pem(), CERTIFICATE_MODE) {
        // A single file would block the next start. The first error is the one to return.
        let _ = fs::remove_file(key_at);
        return Err(error);
    }
    tracing::info!(certificate = %at.display(), "self-signed certificate generated");
    Ok(())
}

fn is_there(path: &Path) -> Result<bool, CertificateError> {
    path.try_exists().map_err(|source| CertificateError::Unreadable { path: path.to_owned(), source })
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|source| unwritable(path, source))
}

fn unwritable(path: &Path, source: std::io::Error) -> CertificateError {
    CertificateError::Unwritable { path: path.to_owned(), source }
}

fn make(address: IpAddr, now: Timestamp) -> Result<(Certificate, KeyPair), CertificateError> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let params = match params(names(Some(&host), address), &host, now) {
        Ok(params) => params,
        // The host name might be invalid in a certificate.
        Err(_) => params(names(None, address), "localhost", now)?,
    };
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?, key))
}

fn params(names: Vec<String>, common: &str, now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, common);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let today = now.to_zoned(TimeZone::UTC).date();
    // The clocks of clients can be slow.
    let begin = today.yesterday().unwrap_or(today);
    let (year, month) = (i32::from(begin.year()), begin.month().unsigned_abs());
    params.not_before = date_time_ymd(year, month, begin.day().unsigned_abs());
    // A day that exists in every month.
    params.not_after = date_time_ymd(year + YEARS, month, begin.day().unsigned_abs().min(28));
    Ok(params)
}

/// Returns the names and addresses under which clients reach the server.
fn names(host: Option<&str>, address: IpAddr) -> Vec<String> {
    let mut names: Vec<String> = host.into_iter().chain(["localhost"]).map(str::to_owned).collect();
    let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    let address = if address.is_unspecified() { loopback.to_vec() } else { vec![address] };
    names.extend(address.iter().map(IpAddr::to_string));
    names.dedup();
    names
}
