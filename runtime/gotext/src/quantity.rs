//! Quantities as upstream's `resource.Quantity` holds them.

use std::cmp::Ordering;
use std::fmt;

/// Number of decimals of the finest amount; finer amounts are rounded up.
const NANO: i32 = 9;
/// Limit of the exponent of a quantity. API servers store no larger exponents.
const MAX_EXPONENT: i32 = 400;

/// A quantity in the two forms of upstream: 64 bits with a power of ten, or an exact number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoQuantity {
    amount: Amount,
    format: Format,
    /// The text that upstream keeps, because it takes it for canonical.
    cache: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Amount {
    Small { value: i64, scale: i32 },
    Exact(Decimal),
}

impl Default for Amount {
    fn default() -> Self {
        Amount::Small { value: 0, scale: 0 }
    }
}

/// A number with `scale` decimals; `words` has the lowest word first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decimal {
    negative: bool,
    words: Vec<u64>,
    scale: i32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Format {
    #[default]
    Missing,
    DecimalSi,
    BinarySi,
    DecimalExponent,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Missing => "",
            Format::DecimalSi => "DecimalSI",
            Format::BinarySi => "BinarySI",
            Format::DecimalExponent => "DecimalExponent",
        }
    }
}

/// The parts of the text of a quantity.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    /// Power of the suffix: of two for binary suffixes, otherwise of ten.
    exponent: i32,
    format: Format,
}

impl GoQuantity {
    /// Parses a quantity like upstream. `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text == "0" {
            return Some(Self {
                amount: Amount::default(),
                format: Format::DecimalSi,
                cache: text.to_owned(),
            });
        }
        let parts = Parts::of(text)?;
        parts.small(text).or_else(|| parts.exact())
    }

    /// Compares the values; the format does not count.
    pub fn compare(&self, other: &Self) -> Ordering {
        let scale = self.decimals().max(other.decimals());
        let ((negative, words), (other_negative, others)) = (self.scaled(scale), other.scaled(scale));
        match (negative && !words.is_empty(), other_negative && !others.is_empty()) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => magnitude(&words, &others),
            (true, true) => magnitude(&others, &words),
        }
    }

    fn decimals(&self) -> i32 {
        match &self.amount {
            Amount::Small { scale, .. } => -scale,
            Amount::Exact(number) => number.scale,
        }
    }

    /// Returns the sign and the value times ten to the power of `scale`, which is at least [`Self::decimals`].
    fn scaled(&self, scale: i32) -> (bool, Vec<u64>) {
        let (negative, mut words) = match &self.amount {
            Amount::Small { value, .. } => {
                (*value < 0, if *value == 0 { Vec::new() } else { vec![value.unsigned_abs()] })
            }
            Amount::Exact(number) => (number.negative, number.words.clone()),
        };
        for _ in self.decimals()..scale {
            multiply_add(&mut words, 10, 0);
        }
        (negative, words)
    }
}

impl fmt::Display for GoQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, scale) = match &self.amount {
            Amount::Small { value, scale } => (*value, *scale),
            Amount::Exact(_) => (0, 0),
        };
        write!(f, "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}}")?;
        f.write_str(" d:(resource.infDecAmount){Dec:(*inf.Dec)")?;
        match &self.amount {
            Amount::Small { .. } => f.write_str("<nil>")?,
            Amount::Exact(number) => write!(f, "{number}")?,
        }
        write!(f, "}} s:(string){} Format:(resource.Format){}}}", self.cache, self.format.name())
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.words.iter().map(u64::to_string).collect();
        write!(f, "{{unscaled:(big.Int){{neg:(bool){} abs:(big.nat)", self.negative)?;
        if words.is_empty() {
            f.write_str("<nil>")?;
        } else {
            write!(f, "[{}]", words.join(" "))?;
        }
        write!(f, "}} scale:(inf.Scale){}}}", self.scale)
    }
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (exponent, format) = suffix_of(suffix)?;
        let whole = whole.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        Some(Self { negative: text.starts_with('-'), whole, fraction, exponent, format })
    }

    fn digits(&self) -> String {
        [self.whole, self.fraction].concat()
    }

    fn fraction_length(&self) -> i32 {
        i32::try_from(self.fraction.len()).unwrap_or(i32::MAX)
    }

    /// Returns the form with 64 bits; `None` if the number has too many digits for it.
    fn small(&self, text: &str) -> Option<GoQuantity> {
        let digits = self.digits();
        let length = i32::try_from(digits.len()).ok()?;
        let (scale, multiplier, fits) = match self.format {
            Format::BinarySi => {
                // Upstream estimates the digits of the suffix.
                let fits = self.fraction.is_empty() && 15 - length - self.exponent * 3 / 10 > 0;
                (0, 1_i64.checked_shl(u32::try_from(self.exponent).ok()?)?, fits)
            }
            _ => (self.exponent.checked_sub(self.fraction_length())?, 1, length <= 18),
        };
        if !fits || scale < -NANO {
            return None;
        }
        let number: i64 = digits.parse().ok()?;
        let value = number.checked_mul(multiplier)?;
        let value = if self.negative { -value } else { value };
        let kept = match self.format {
            Format::BinarySi => number & 7 != 0,
            _ => scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0'),
        };
        let cache = if kept { text.to_owned() } else { String::new() };
        Some(GoQuantity { amount: Amount::Small { value, scale }, format: self.format, cache })
    }

    fn exact(&self) -> Option<GoQuantity> {
        let mut words = Vec::new();
        for digit in self.digits().bytes() {
            multiply_add(&mut words, 10, u64::from(digit - b'0'));
        }
        let mut scale = self.fraction_length();
        let mut format = self.format;
        if format == Format::BinarySi {
            (0..self.exponent).for_each(|_| multiply_add(&mut words, 2, 0));
        } else {
            scale = scale.checked_sub(self.exponent)?;
        }
        if !words.is_empty() {
            while scale < NANO {
                multiply_add(&mut words, 10, 0);
                scale += 1;
            }
            let mut inexact = false;
            while scale > NANO {
                inexact |= divide_by_ten(&mut words) != 0;
                scale -= 1;
            }
            if inexact {
                add(&mut words, 1);
            }
        }
        if format == Format::BinarySi {
            let one = [1_000_000_000];
            if magnitude(&words, &max_binary()) == Ordering::Greater {
                (words, scale) = (vec![u64::try_from(i64::MAX).unwrap_or(u64::MAX)], 0);
            } else if !words.is_empty() && magnitude(&words, &one) == Ordering::Less {
                format = Format::DecimalSi;
            }
        }
        let negative = self.negative && !words.is_empty();
        let amount = Amount::Exact(Decimal { negative, words, scale });
        Some(GoQuantity { amount, format, cache: String::new() })
    }
}

/// Returns the largest binary quantity, in units of nano.
fn max_binary() -> Vec<u64> {
    let mut words = vec![u64::try_from(i64::MAX).unwrap_or(u64::MAX)];
    multiply_add(&mut words, 1_000_000_000, 0);
    words
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn suffix_of(suffix: &str) -> Option<(i32, Format)> {
    const DECIMAL: [(&str, i32); 10] = [
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("", 0),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    ];
    const BINARY: [(&str, i32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
    let power_of = |table: &[(&str, i32)]| table.iter().find(|(name, _)| *name == suffix).map(|(_, it)| *it);
    if let Some(power) = power_of(&DECIMAL) {
        return Some((power, Format::DecimalSi));
    }
    if let Some(power) = power_of(&BINARY) {
        return Some((power, Format::BinarySi));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (-MAX_EXPONENT..=MAX_EXPONENT).contains(&exponent).then_some((exponent, Format::DecimalExponent))
}

/// Returns the order of two numbers without leading zero words.
fn magnitude(words: &[u64], others: &[u64]) -> Ordering {
    words.len().cmp(&others.len()).then_with(|| words.iter().rev().cmp(others.iter().rev()))
}

fn multiply_add(words: &mut Vec<u64>, factor: u64, addend: u64) {
    let mut carry = u128::from(addend);
    for word in &mut *words {
        carry += u128::from(*word) * u128::from(factor);
        *word = low(carry);
        carry >>= 64;
    }
    if carry > 0 {
        words.push(low(carry));
    }
}

fn add(words: &mut Vec<u64>, addend: u64) {
    multiply_add(words, 1, addend);
}

fn divide_by_ten(words: &mut Vec<u64>) -> u64 {
    let mut remainder = 0_u128;
    for word in words.iter_mut().rev() {
        let dividend = (remainder << 64) | u128::from(*word);
        *word = low(dividend / 10);
        remainder = dividend % 10;
    }
    while words.last() == Some(&0) {
        words.pop();
    }
    low(remainder)
}

/// Returns the lower 64 bits.
fn low(number: u128) -> u64 {
    u64::try_from(number & u128::from(u64::MAX)).unwrap_or(u64::MAX)
}
