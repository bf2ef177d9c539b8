//! Certificates that nobody gave: made at start, and kept in a folder if one is named.
//!
//! Guarantees: what is there is never written over. Of two processes that make a pair in one folder at the same time, one
//! writes it, and the other says that the file exists. The key is readable for its owner alone.

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

use crate::certificates::{CertificateError, Files};

/// For how many years a certificate that is made is good: longer than any process runs.
const YEARS: i32 = 10;

/// Who may read which half, as upstream writes them.
const CERTIFICATE_MODE: u32 = 0o644;
const KEY_MODE: u32 = 0o600;

/// A certificate that nobody vouches for, for this host and the address, good from the day before `now`.
pub(crate) fn self_signed(
    provider: &CryptoProvider,
    address: IpAddr,
    now: Timestamp,
) -> Result<CertifiedKey, CertificateError> {
    let (certificate, key) = make(address, now)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    CertifiedKey::from_der(vec![certificate.der().clone()], key, provider).map_err(CertificateError::Provider)
}

/// Makes such a pair and writes it, with the folders it needs, if neither file is there.
///
/// # Errors
/// When one of the two is there, or they cannot be written.
pub(crate) fn keep(files: &Files, address: IpAddr, now: Timestamp) -> Result<(), CertificateError> {
    let Files { certificate: at, key: key_at } = files;
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
        // Half a pair would be in the way of the next start; the first error is the one to tell.
        let _ = fs::remove_file(key_at);
        return Err(error);
    }
    tracing::info!(certificate = %at.display(), "made a self-signed certificate");
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
        // A host may be called what no certificate can say.
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
    // The clocks of readers may be behind.
    let begin = today.yesterday().unwrap_or(today);
    let (year, month) = (i32::from(begin.year()), begin.month().unsigned_abs());
    params.not_before = date_time_ymd(year, month, begin.day().unsigned_abs());
    // A day that every month of every year has.
    params.not_after = date_time_ymd(year + YEARS, month, begin.day().unsigned_abs().min(28));
    Ok(params)
}

/// What the server is asked for by.
fn names(host: Option<&str>, address: IpAddr) -> Vec<String> {
    let mut names: Vec<String> = host.into_iter().chain(["localhost"]).map(str::to_owned).collect();
    let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    let address = if address.is_unspecified() { loopback.to_vec() } else { vec![address] };
    names.extend(address.iter().map(IpAddr::to_string));
    names.dedup();
    names
}
