//! Validation of IP addresses and ranges of addresses, with upstream's messages.

use std::net::IpAddr;

use super::super::invalid::FieldErrors;

const INVALID: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// Validates an IP address of a field that accepts addresses in non-canonical form.
pub(super) fn validate(text: &str, field: &str, errors: &mut FieldErrors) {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            errors.invalid(field, text, "must not be an IPv4-mapped IPv6 address");
        }
        Ok(_) => {}
        Err(_) if parse(text).is_some() => errors.invalid(field, text, "must not have leading 0s"),
        Err(_) => errors.invalid(field, text, INVALID),
    }
}

/// Validates an IP address in canonical form.
pub(super) fn validate_canonical(text: &str, field: &str, errors: &mut FieldErrors) {
    let before = errors.0.len();
    validate(text, field, errors);
    if errors.0.len() == before
        && let Ok(address) = text.parse::<IpAddr>()
        && address.to_string() != text
    {
        errors.invalid(field, text, &format!("must be in canonical form ({:?})", address.to_string()));
    }
}

/// Rejects addresses that an endpoint cannot have.
pub(super) fn validate_endpoint(text: &str, field: &str, errors: &mut FieldErrors) {
    let Some(address) = parse(text) else {
        errors.invalid(field, text, "must be a valid IP address");
        return;
    };
    let (local, multicast) = match address {
        IpAddr::V4(it) => (it.is_link_local(), it.octets().starts_with(&[224, 0, 0])),
        IpAddr::V6(it) => (it.segments()[0] & 0xffc0 == 0xfe80, it.segments()[0] & 0xff0f == 0xff02),
    };
    if address.is_unspecified() {
        errors.invalid(field, text, &format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        errors.invalid(field, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if local {
        errors.invalid(field, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        let detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        errors.invalid(field, text, detail);
    }
}

/// Validates a range of addresses.
pub(super) fn validate_range(text: &str, field: &str, errors: &mut FieldErrors) {
    let parsed = text.split_once('/').and_then(|(address, length)| {
        let digits = length.bytes().all(|it| it.is_ascii_digit());
        Some((address, length, parse(address)?, length.parse::<u32>().ok().filter(|_| digits)?))
    });
    let fits = |address: &IpAddr, length: u32| length <= if address.is_ipv4() { 32 } else { 128 };
    let Some((address, length, parsed, number)) = parsed.filter(|it| fits(&it.2, it.3)) else {
        errors.invalid(field, text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
        return;
    };
    let rest = match parsed {
        IpAddr::V4(it) => u128::from(u32::from(it).checked_shl(number).unwrap_or_default()),
        IpAddr::V6(it) => u128::from(it).checked_shl(number).unwrap_or_default(),
    };
    if address.parse::<IpAddr>().is_err() || (length.len() > 1 && length.starts_with('0')) {
        errors.invalid(field, text, "must not have leading 0s in IP or prefix length");
    } else if matches!(parsed, IpAddr::V6(it) if it.to_ipv4_mapped().is_some()) {
        errors.invalid(field, text, "must not have an IPv4-mapped IPv6 address");
    } else if rest != 0 {
        errors.invalid(field, text, "must not have bits set beyond the prefix length");
    }
}

/// Parses an address as upstream does: numbers of IPv4 can have leading zeros.
pub(super) fn parse(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let number = |part: &str| {
        let digits = !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
        digits.then(|| part.parse::<u8>().ok()).flatten()
    };
    let parts: Vec<u8> = text.split('.').map(number).collect::<Option<_>>()?;
    <[u8; 4]>::try_from(parts).ok().map(IpAddr::from)
}
