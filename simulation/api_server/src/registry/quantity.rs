//! Quantities, as in quotas: `5`, `1k`, `2Ki`.

/// Parses a quantity in thousandths, because CPU quantities can be fractions. `None` if it is malformed or too large.
pub(crate) fn thousandths(text: &str) -> Option<i128> {
    let split = text.find(|it: char| !(it.is_ascii_digit() || "+-.".contains(it))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let (multiplier, divisor) = scale(suffix)?;
    let negative = number.starts_with('-');
    let number = number.trim_start_matches(['+', '-']);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: String = [whole, fraction].concat();
    let value: i128 = digits.parse().ok()?;
    let fraction = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scaled = value.checked_mul(1000)?.checked_mul(multiplier)?;
    let divisor = divisor.checked_mul(fraction)?;
    // Upstream rounds away from zero.
    let rounded = scaled.checked_add(divisor - 1)? / divisor;
    Some(if negative { -rounded } else { rounded })
}

/// Formats thousandths with the suffix of a similar quantity, if the number stays whole.
pub(crate) fn written(amount: i128, like: &str) -> String {
    let suffix = like.trim_start_matches(|it: char| it.is_ascii_digit() || "+-.".contains(it));
    let unit = scale(suffix).map_or(0, |(multiplier, divisor)| 1000 * multiplier / divisor);
    match () {
        () if unit > 0 && amount % unit == 0 => format!("{}{suffix}", amount / unit),
        () if amount % 1000 == 0 => (amount / 1000).to_string(),
        () => format!("{amount}m"),
    }
}

fn scale(suffix: &str) -> Option<(i128, i128)> {
    let scale = match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let factor = 10_i128.checked_pow(power.unsigned_abs())?;
            if power < 0 { (1, factor) } else { (factor, 1) }
        }
    };
    Some(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_with_every_suffix() {
        let cases = [
            ("5", Some(5000)),
            ("100m", Some(100)),
            ("1.5", Some(1500)),
            ("2Ki", Some(2_048_000)),
            ("1k", Some(1_000_000)),
            ("-1", Some(-1000)),
            ("1e3", Some(1_000_000)),
            ("", None),
            ("1x", None),
            ("abc", None),
        ];
        for (text, expected) in cases {
            assert_eq!(thousandths(text), expected, "{text:?}");
        }
    }
}
