//! Immutable text that is stored in place if it is short. UIDs and versions of an API server are, so a header needs one
//! allocation for its key, and none for its other parts.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Text that is stored in place up to `N` bytes, and shared by its clones if it is longer.
#[derive(Clone)]
pub(crate) struct ShortText<const N: usize>(Form<N>);

#[derive(Clone)]
enum Form<const N: usize> {
    Inline { length: u8, bytes: [u8; N] },
    Shared(Arc<str>),
}

impl<const N: usize> ShortText<N> {
    pub(crate) fn as_str(&self) -> &str {
        match &self.0 {
            Form::Inline { .. } => str::from_utf8(self.as_bytes()).expect("the bytes were copied from text"),
            Form::Shared(text) => text,
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Form::Shared(text) => text.as_bytes(),
        }
    }
}

impl<const N: usize> From<&str> for ShortText<N> {
    fn from(text: &str) -> Self {
        let mut bytes = [0; N];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(start), Ok(length)) => {
                start.copy_from_slice(text.as_bytes());
                Self(Form::Inline { length, bytes })
            }
            _ => Self(Form::Shared(text.into())),
        }
    }
}

/// Texts with equal bytes are equal, in whichever form.
impl<const N: usize> PartialEq for ShortText<N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl<const N: usize> Eq for ShortText<N> {}

impl<const N: usize> PartialOrd for ShortText<N> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<const N: usize> Ord for ShortText<N> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl<const N: usize> Hash for ShortText<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher as _;

    use foldhash::fast::FixedState;
    use proptest::prelude::*;

    use super::*;

    type Text = ShortText<8>;

    proptest! {
        #[test]
        fn short_text_behaves_like_text(a in "[aé]{0,10}", b in "[aé]{0,10}") {
            let (short_a, short_b) = (Text::from(&*a), Text::from(&*b));
            prop_assert_eq!(short_a.as_str(), &*a);
            prop_assert_eq!(short_a == short_b, a == b);
            prop_assert_eq!(short_a.cmp(&short_b), a.cmp(&b));
            let hash = |text: &Text| FixedState::default().hash_one(text);
            prop_assert!(a != b || hash(&short_a) == hash(&short_b));
        }
    }

    #[test]
    fn text_up_to_the_limit_is_inline() {
        assert!(matches!(Text::from("12345678").0, Form::Inline { .. }));
        assert!(matches!(Text::from("123456789").0, Form::Shared(_)));
        assert_eq!(size_of::<Option<ShortText<38>>>(), 40);
    }
}
