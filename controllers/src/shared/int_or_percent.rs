//! Numbers that are absolute or a percentage.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Rounding of a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To the next larger number.
    Up,
    /// To the next smaller number.
    Down,
}

/// Returns the number, or the percentage of `total`; `None` if the value is malformed.
pub(crate) fn scaled(value: &IntOrString, total: i32, rounding: Rounding) -> Option<i32> {
    let percent = match value {
        IntOrString::Int(number) => return Some(*number),
        IntOrString::String(text) => i64::from(text.strip_suffix('%')?.parse::<i32>().ok()?),
    };
    let hundredfold = percent * i64::from(total);
    let rounded = match rounding {
        Rounding::Up => hundredfold.div_euclid(100) + i64::from(hundredfold.rem_euclid(100) > 0),
        Rounding::Down => hundredfold.div_euclid(100),
    };
    i32::try_from(rounded).ok()
}

#[cfg(test)]
mod tests {
    use super::{IntOrString, Rounding, scaled};

    #[test]
    fn percentage_is_rounded_and_number_is_kept() {
        let percent =
            |text: &str, total, rounding| scaled(&IntOrString::String(text.into()), total, rounding);
        assert_eq!(scaled(&IntOrString::Int(7), 3, Rounding::Up), Some(7));
        assert_eq!(percent("25%", 10, Rounding::Up), Some(3));
        assert_eq!(percent("25%", 10, Rounding::Down), Some(2));
        assert_eq!(percent("100%", 10, Rounding::Down), Some(10));
        assert_eq!(percent("0%", 10, Rounding::Up), Some(0));
        assert_eq!(percent("25", 10, Rounding::Up), None);
        assert_eq!(percent("many%", 10, Rounding::Up), None);
    }
}
