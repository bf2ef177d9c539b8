//! Pod templates and quantities as Go prints them.

use std::cmp::Ordering;

use serde_json::Value;
use windlass_gotext::quantity::GoQuantity;
use windlass_gotext::{Numbers, dump_template, equal_templates, revision_data, set_template_defaults};

/// The texts of a template depend only on its fields: they are the same after the template was encoded and decoded.
/// The data of its revision contains a template with the same data, and a template equals itself.
pub(crate) fn texts_of_a_template_are_stable(data: &[u8]) {
    let Ok(mut template) = serde_json::from_slice::<Value>(data) else { return };
    set_template_defaults(&mut template);
    let defaulted = template.clone();
    set_template_defaults(&mut template);
    assert_eq!(template, defaulted, "defaults are set once");

    let decoded: Value = serde_json::from_str(&template.to_string()).expect("an encoded value");
    assert_eq!(dump_template(&template), dump_template(&decoded), "{template}");
    assert!(equal_templates(&template, &decoded), "{template}");
    for numbers in [Numbers::Float, Numbers::Integer] {
        let Ok(revision) = revision_data(&template, numbers) else { continue };
        let patch: Value =
            serde_json::from_str(&revision).unwrap_or_else(|error| panic!("{revision}: {error}"));
        let recorded = revision_data(&patch["spec"]["template"], numbers);
        assert_eq!(recorded.as_deref(), Ok(&*revision), "{template}");
    }
}

/// Quantities are totally ordered, and subtraction reverses addition. A canonical text is the text of the same amount.
/// Each line is a quantity.
pub(crate) fn quantities_are_ordered(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let quantities: Vec<_> = text.lines().take(3).filter_map(|it| GoQuantity::parse(it).ok()).collect();
    for one in &quantities {
        assert_eq!(one.compare(one), Ordering::Equal, "{text:?}");
        for other in &quantities {
            assert_eq!(one.compare(other), other.compare(one).reverse(), "{text:?}");
            let mut sum = one.clone();
            sum.add(other);
            sum.subtract(other);
            assert_eq!(sum.compare(one), Ordering::Equal, "{text:?}");
        }
        let canonical = one.canonical();
        // No suffix expresses an amount beyond these limits.
        let is_expressible = one.thousandths().is_some_and(|it| it.unsigned_abs() < 1 << 70);
        if is_expressible && let Ok(again) = GoQuantity::parse(&canonical) {
            assert_eq!(again.compare(one), Ordering::Equal, "{text:?} {canonical}");
            assert_eq!(again.canonical(), canonical, "{text:?}");
        }
    }
    if let [a, b, c] = &quantities[..]
        && a.compare(b) == b.compare(c)
    {
        assert_eq!(a.compare(c), a.compare(b), "{text:?}");
    }
}
