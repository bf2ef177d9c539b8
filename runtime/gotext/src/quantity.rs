//! Quantities as upstream's `resource.Quantity`: exact amounts, sums, comparison and canonical text.
//!
//! Texts and errors equal those of upstream, with its limits: an amount finer than a billionth is rounded up, a binary
//! amount is at most 2^63-1, and a sum that no suffix can express has none.

use std::cmp::Ordering;
use std::fmt;

/// Number of decimals of the finest amount; finer amounts are rounded up.
const NANO: i32 = 9;
/// Most digits of a quantity. Upstream has no limit, but needs time in proportion to their square.
const MAX_DIGITS: usize = 10_000;
/// Largest exponent of a quantity. Upstream has none, but needs memory in proportion.
const MAX_EXPONENT: i32 = 400;

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, i32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// The letters of suffixes.
const SUFFIX_LETTERS: &str = "eEinumkKMGTP";

/// A text is no quantity. The messages are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It is not a number with a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Malformed,
    /// The suffix does not exist, or its exponent is too large.
    #[error("unable to parse quantity's suffix")]
    UnknownSuffix,
    /// The number cannot be parsed.
    #[error("unable to parse numeric part of quantity")]
    NoNumber,
}

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
    has_digits: bool,
    /// Power of the suffix: of two for binary suffixes, otherwise of ten.
    exponent: i32,
    format: Format,
}

impl GoQuantity {
    /// Parses a quantity like upstream.
    ///
    /// # Errors
    /// The text is no quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let text = text.trim();
        if text == "0" {
            let format = Format::DecimalSi;
            return Ok(Self { amount: Amount::default(), format, cache: text.to_owned() });
        }
        if text.is_empty() {
            return Err(QuantityError::Malformed);
        }
        let parts = Parts::of(text)?;
        if parts.whole.len().saturating_add(parts.fraction.len()) > MAX_DIGITS {
            return Err(QuantityError::NoNumber);
        }
        match parts.small(text) {
            Some(small) => Ok(small),
            // Upstream reads a suffix without digits as zero, but only in the form with 64 bits.
            None if !parts.has_digits => Err(QuantityError::NoNumber),
            None => parts.exact().ok_or(QuantityError::NoNumber),
        }
    }

    /// Returns whether the amount is zero.
    pub fn is_zero(&self) -> bool {
        match &self.amount {
            Amount::Small { value, .. } => *value == 0,
            Amount::Exact(number) => number.words.is_empty(),
        }
    }

    /// Adds a quantity. The sum has the format of this quantity, or of the other one if this one is zero.
    pub fn add(&mut self, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        self.cache.clear();
        self.amount = sum(self, other, false);
    }

    /// Subtracts a quantity. The format is as in [`add`](Self::add).
    pub fn subtract(&mut self, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        self.cache.clear();
        self.amount = sum(self, other, true);
    }

    /// Returns the amount in thousandths, rounded up, away from zero; `None` if it is too large.
    pub fn thousandths(&self) -> Option<i128> {
        const MILLI: i32 = 3;
        let scale = self.decimals().max(MILLI);
        let (negative, mut words) = self.scaled(scale);
        let mut is_inexact = false;
        for _ in MILLI..scale {
            is_inexact |= divide_by(&mut words, 10) != 0;
        }
        if is_inexact {
            add(&mut words, 1);
        }
        let amount = match words[..] {
            [] => 0,
            [low] => i128::from(low),
            [low, high] => i128::try_from((u128::from(high) << 64) | u128::from(low)).ok()?,
            _ => return None,
        };
        Some(if negative { -amount } else { amount })
    }

    /// Returns the canonical text: the text that was parsed if upstream takes it for canonical, otherwise the shortest
    /// whole number with a suffix of its format. `1000m` is `1`, `0.5` is `500m`, `2048Mi` is `2Gi`.
    pub fn canonical(&self) -> String {
        if !self.cache.is_empty() {
            return self.cache.clone();
        }
        let (negative, words) = self.scaled(self.decimals());
        if words.is_empty() {
            return "0".to_owned();
        }
        let whole = match self.format {
            Format::BinarySi => self.whole().filter(|whole| magnitude(whole, &[1024]) != Ordering::Less),
            Format::Missing | Format::DecimalSi | Format::DecimalExponent => None,
        };
        let (number, suffix) = match whole {
            Some(whole) => canonical_binary(whole),
            None => canonical_decimal(words, self.decimals(), self.format),
        };
        let sign = if negative { "-" } else { "" };
        format!("{sign}{}{suffix}", digits_of(number))
    }

    /// Returns the absolute amount, if it is a whole number.
    fn whole(&self) -> Option<Vec<u64>> {
        let (_, mut words) = self.scaled(self.decimals().max(0));
        let mut is_whole = true;
        for _ in 0..self.decimals() {
            is_whole &= divide_by(&mut words, 10) == 0;
        }
        is_whole.then_some(words)
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

/// Returns the sum or the difference: with 64 bits if they suffice, as upstream.
fn sum(one: &GoQuantity, other: &GoQuantity, is_difference: bool) -> Amount {
    if let (Amount::Small { value: a, scale: a_scale }, Amount::Small { value: b, scale: b_scale }) =
        (&one.amount, &other.amount)
        && let Some(small) =
            small_sum((*a, *a_scale), (if is_difference { b.wrapping_neg() } else { *b }, *b_scale))
    {
        return small;
    }
    let scale = one.decimals().max(other.decimals());
    let ((negative, words), (other_negative, others)) = (one.scaled(scale), other.scaled(scale));
    let other_negative = other_negative != is_difference;
    let (negative, words) = match (negative == other_negative, magnitude(&words, &others)) {
        (true, _) => (negative, add_words(words, &others)),
        (false, Ordering::Less) => (other_negative, subtract_words(others, &words)),
        (false, _) => (negative, subtract_words(words, &others)),
    };
    let negative = negative && !words.is_empty();
    Amount::Exact(Decimal { negative, words, scale })
}

/// Adds two numbers with powers of ten; `None` if 64 bits do not suffice.
fn small_sum((a, a_scale): (i64, i32), (b, b_scale): (i64, i32)) -> Option<Amount> {
    let (value, scale) = match () {
        () if b == 0 => (a, a_scale),
        () if a == 0 => (b, b_scale),
        () => {
            let scale = a_scale.min(b_scale);
            let scaled = |value: i64, from: i32| {
                let power = 10_i64.checked_pow(u32::try_from(from.checked_sub(scale)?).ok()?)?;
                value.checked_mul(power)
            };
            (scaled(a, a_scale)?.checked_add(scaled(b, b_scale)?)?, scale)
        }
    };
    Some(Amount::Small { value, scale })
}

/// Removes a factor as often as possible, and returns the rest of a number that is not zero, and how often.
fn remove_factor(mut number: Vec<u64>, factor: u128) -> (Vec<u64>, i32) {
    let mut times = 0;
    loop {
        let mut shorter = number.clone();
        if divide_by(&mut shorter, factor) != 0 {
            return (number, times);
        }
        (number, times) = (shorter, times + 1);
    }
}

/// Removes factors of 1024, and returns the number and its suffix.
fn canonical_binary(number: Vec<u64>) -> (Vec<u64>, String) {
    let (number, times) = remove_factor(number, 1024);
    let suffix = BINARY.iter().find(|(_, power)| *power == times * 10).map_or("", |(suffix, _)| suffix);
    (number, suffix.to_owned())
}

/// Removes factors of ten until the exponent is a multiple of three, and returns the number and its suffix.
fn canonical_decimal(number: Vec<u64>, decimals: i32, format: Format) -> (Vec<u64>, String) {
    let (mut number, times) = remove_factor(number, 10);
    let mut exponent = times.saturating_sub(decimals);
    while exponent % 3 != 0 {
        multiply_add(&mut number, 10, 0);
        exponent -= 1;
    }
    let suffix = match format {
        Format::DecimalSi | Format::BinarySi => DECIMAL
            .iter()
            .find(|(_, of_suffix)| *of_suffix == exponent)
            .map_or("", |(suffix, _)| suffix)
            .to_owned(),
        Format::Missing | Format::DecimalExponent if exponent == 0 => String::new(),
        Format::Missing | Format::DecimalExponent => format!("e{exponent}"),
    };
    (number, suffix)
}

/// Returns the decimal digits of a number that is not zero.
fn digits_of(mut number: Vec<u64>) -> String {
    let mut digits = Vec::new();
    while !number.is_empty() {
        digits.push(char::from(b'0' + u8::try_from(divide_by(&mut number, 10)).unwrap_or_default()));
    }
    digits.iter().rev().collect()
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, QuantityError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let letters = suffix.trim_start_matches(|it| SUFFIX_LETTERS.contains(it));
        let exponent = letters.strip_prefix(['+', '-']).unwrap_or(letters);
        if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Malformed);
        }
        let (exponent, format) = suffix_of(suffix).ok_or(QuantityError::UnknownSuffix)?;
        let has_digits = !whole.is_empty() || !fraction.is_empty();
        let whole = whole.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        // With any lower exponent the amount is rounded up to a billionth.
        let digits = i32::try_from(whole.len()).unwrap_or(i32::MAX);
        let exponent = exponent.max((-MAX_EXPONENT).saturating_sub(digits));
        Ok(Self { negative: text.starts_with('-'), whole, fraction, has_digits, exponent, format })
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
                inexact |= divide_by(&mut words, 10) != 0;
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
    let power_of = |table: &[(&str, i32)]| table.iter().find(|(name, _)| *name == suffix).map(|(_, it)| *it);
    if let Some(power) = power_of(&DECIMAL) {
        return Some((power, Format::DecimalSi));
    }
    if let Some(power) = power_of(&BINARY) {
        return Some((power, Format::BinarySi));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (exponent <= MAX_EXPONENT).then_some((exponent, Format::DecimalExponent))
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

fn add_words(mut words: Vec<u64>, others: &[u64]) -> Vec<u64> {
    words.resize(words.len().max(others.len()), 0);
    let mut carry = 0_u128;
    for (index, word) in words.iter_mut().enumerate() {
        carry += u128::from(*word) + u128::from(others.get(index).copied().unwrap_or_default());
        *word = low(carry);
        carry >>= 64;
    }
    if carry > 0 {
        words.push(low(carry));
    }
    words
}

/// Subtracts a number that is not larger.
fn subtract_words(mut words: Vec<u64>, others: &[u64]) -> Vec<u64> {
    let mut has_borrowed = false;
    for (index, word) in words.iter_mut().enumerate() {
        let (less, first) = word.overflowing_sub(others.get(index).copied().unwrap_or_default());
        let (less, second) = less.overflowing_sub(u64::from(has_borrowed));
        (*word, has_borrowed) = (less, first || second);
    }
    while words.last() == Some(&0) {
        words.pop();
    }
    words
}

/// Divides by a number, and returns the remainder.
fn divide_by(words: &mut Vec<u64>, divisor: u128) -> u64 {
    let mut remainder = 0_u128;
    for word in words.iter_mut().rev() {
        let dividend = (remainder << 64) | u128::from(*word);
        *word = low(dividend / divisor);
        remainder = dividend % divisor;
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
