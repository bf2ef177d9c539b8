//! Converts quantities to canonical form.

/// Upstream's message for an invalid quantity.
const MALFORMED: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const UNKNOWN_SUFFIX: &str = "unable to parse quantity's suffix";

/// Smallest power of ten of a quantity; finer amounts are rounded up.
const NANO: i32 = -9;

/// Returns a quantity in upstream's canonical form: `1000m` is `1`, `0.5` is `500m`, `2048Mi` is `2Gi`.
///
/// # Errors
///
/// Returns upstream's message if the text is not a quantity.
pub fn canonical_quantity(text: &str) -> Result<String, &'static str> {
    let text = text.trim();
    if text.is_empty() {
        return Err(MALFORMED);
    }
    let parts = Parts::of(text)?;
    let suffix = Suffix::of(parts.suffix).ok_or(UNKNOWN_SUFFIX)?;
    if parts.kept_as_written(suffix) {
        return Ok(text.to_owned());
    }
    Ok(Amount::of(&parts, suffix).written())
}

/// Parts of a quantity.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros; `0` if there are none.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Parts<'a>, &'static str> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let letters = suffix.trim_start_matches(|letter| "eEinumkKMGTP".contains(letter));
        let exponent = if letters.len() < suffix.len() {
            letters.strip_prefix(['+', '-']).unwrap_or(letters)
        } else {
            letters
        };
        if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(MALFORMED);
        }
        let whole = whole.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        Ok(Parts { negative: text.starts_with('-'), whole, fraction, suffix })
    }

    /// Returns whether upstream accepts the text as canonical without parsing it fully.
    fn kept_as_written(&self, suffix: Suffix) -> bool {
        let digits = format!("{}{}", self.whole, self.fraction);
        let length = i32::try_from(digits.len()).unwrap_or(i32::MAX);
        match suffix {
            Suffix::Binary(power) => {
                let odd = digits.parse::<u64>().is_ok_and(|number| number & 7 != 0);
                self.fraction.is_empty() && 15 - length - power * 3 > 0 && odd
            }
            Suffix::Decimal(power) | Suffix::Exponent(power) => {
                let scale = power.saturating_sub(i32::try_from(self.fraction.len()).unwrap_or(i32::MAX));
                length <= 18
                    && scale >= NANO
                    && scale % 3 == 0
                    && !digits.ends_with("000")
                    && !digits.starts_with('0')
            }
        }
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Suffix after the digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suffix {
    /// `n` to `E`, a power of ten.
    Decimal(i32),
    /// `Ki` to `Ei`, a power of 1024.
    Binary(i32),
    /// `e3`, a power of ten.
    Exponent(i32),
}

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Suffix {
    fn of(text: &str) -> Option<Suffix> {
        if let Some((_, power)) = DECIMAL.iter().find(|(suffix, _)| *suffix == text) {
            return Some(Suffix::Decimal(*power));
        }
        if let Some(power) = BINARY.iter().position(|suffix| *suffix == text) {
            return i32::try_from(power).ok().map(Suffix::Binary);
        }
        let exponent = text.strip_prefix(['e', 'E']).filter(|exponent| !exponent.is_empty())?;
        exponent.parse().ok().map(Suffix::Exponent)
    }
}

/// `mantissa` times ten to the power of `scale`. Larger values are capped.
struct Amount {
    mantissa: i128,
    scale: i32,
    suffix: Suffix,
}

impl Amount {
    fn of(parts: &Parts<'_>, suffix: Suffix) -> Amount {
        let digits = format!("{}{}", parts.whole, parts.fraction);
        let mut mantissa: i128 = digits.parse().unwrap_or(i128::MAX);
        let fraction = i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
        let mut scale = 0_i32.saturating_sub(fraction);
        match suffix {
            Suffix::Binary(power) => {
                for _ in 0..power {
                    mantissa = mantissa.saturating_mul(1024);
                }
            }
            Suffix::Decimal(power) | Suffix::Exponent(power) => scale = scale.saturating_add(power),
        }
        while scale < NANO && mantissa != 0 {
            mantissa = mantissa / 10 + i128::from(mantissa % 10 != 0);
            scale += 1;
            if mantissa == 1 {
                // Rounding the remainder changes nothing.
                scale = scale.max(NANO);
            }
        }
        let mut amount = Amount { mantissa, scale, suffix };
        if matches!(suffix, Suffix::Binary(_)) && amount.integer().is_some_and(|it| it > i128::from(i64::MAX))
        {
            amount = Amount { mantissa: i128::from(i64::MAX), scale: 0, suffix };
        }
        if parts.negative {
            amount.mantissa = -amount.mantissa;
        }
        amount
    }

    /// Returns its value if it is a whole number.
    fn integer(&self) -> Option<i128> {
        let power = 10_i128.checked_pow(self.scale.unsigned_abs())?;
        if self.scale >= 0 {
            return self.mantissa.checked_mul(power);
        }
        (self.mantissa % power == 0).then_some(self.mantissa / power)
    }

    /// Returns whether its absolute value is 1024 or more.
    fn large(&self) -> bool {
        match 10_i128.checked_pow(self.scale.unsigned_abs()) {
            Some(power) if self.scale < 0 => (self.mantissa / power).abs() >= 1024,
            Some(power) => self.mantissa.saturating_mul(power).saturating_abs() >= 1024,
            None => self.scale >= 0,
        }
    }

    fn written(&self) -> String {
        if self.mantissa == 0 {
            return "0".to_owned();
        }
        if let (Suffix::Binary(_), true, Some(mut number)) = (self.suffix, self.large(), self.integer()) {
            let mut power = 0;
            while number % 1024 == 0 && power + 1 < BINARY.len() {
                (number, power) = (number / 1024, power + 1);
            }
            return format!("{number}{}", BINARY.get(power).copied().unwrap_or_default());
        }
        let (mut mantissa, mut scale) = (self.mantissa, self.scale);
        while mantissa % 10 == 0 {
            (mantissa, scale) = (mantissa / 10, scale.saturating_add(1));
        }
        let exponent = matches!(self.suffix, Suffix::Exponent(_));
        while scale % 3 != 0 || (scale > 18 && !exponent) {
            (mantissa, scale) = (mantissa.saturating_mul(10), scale - 1);
        }
        match DECIMAL.iter().find(|(_, power)| *power == scale) {
            Some((suffix, _)) if !exponent => format!("{mantissa}{suffix}"),
            _ if scale == 0 => mantissa.to_string(),
            _ => format!("{mantissa}e{scale}"),
        }
    }
}
