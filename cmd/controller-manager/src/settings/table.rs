//! What one row of the table of settings is, and the macro that makes everything else from the rows.
//!
//! Guarantees: a setting is written down once. Its flag, its field, its help, its default and its place in
//! [`Settings`](super::Settings) come from one row, so none of them can be forgotten or differ.

use super::kinds::Shape;

/// One setting, as the command line, the file and the documentation see it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The flag, without its dashes.
    pub(crate) name: &'static str,
    /// The path of the field in the file, from the top, with dots.
    pub(crate) field: &'static str,
    /// The heading under which `--help` shows it.
    pub(crate) section: &'static str,
    /// One or more sentences, wrapped as in the source.
    pub(crate) help: &'static str,
    /// What its value is called where it is counted or shown: the unit of a number.
    pub(crate) unit: &'static str,
    /// As it would be written on the command line; empty for none.
    pub(crate) default: &'static str,
    /// What it looks like in a file.
    pub(crate) shape: Shape,
}

impl Setting {
    /// The help in one line.
    pub(crate) fn sentence(&self) -> String {
        self.help.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The default as people read it.
    pub(crate) fn shown_default(&self) -> &'static str {
        if self.default.is_empty() { "none" } else { self.default }
    }
}

/// The name of a Rust field as that of a flag: `kube_api_qps` as `kube-api-qps`.
pub(crate) const fn dashed<const LENGTH: usize>(name: &str) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    let mut at = 0;
    while at < LENGTH {
        let byte = name.as_bytes()[at];
        bytes[at] = if byte == b'_' { b'-' } else { byte };
        at += 1;
    }
    bytes
}

/// Those bytes as text again.
pub(crate) const fn text(bytes: &'static [u8]) -> &'static str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("names of Rust fields are UTF-8"),
    }
}

/// Makes `TABLE` and `Settings` of sections of rows: help, name, kind of value, default, unit, field.
macro_rules! settings {
    ($( $section:literal $part:ident: $Part:ident { $(
        $(#[doc = $help:literal])+
        $name:ident: $kind:ty = $default:literal in $unit:literal at $field:literal;
    )+ } )+) => {
        /// Every setting there is, in the order of `--help`.
        pub(crate) const TABLE: &[Setting] = &[ $($( Setting {
            name: {
                const LENGTH: usize = stringify!($name).len();
                const BYTES: [u8; LENGTH] = table::dashed(stringify!($name));
                table::text(&BYTES)
            },
            field: $field,
            section: $section,
            help: concat!($($help, "\n"),+),
            unit: $unit,
            default: $default,
            shape: <$kind as Kind>::SHAPE,
        }, )+)+ ];

        /// The value of every setting, and where it comes from.
        #[derive(Clone, Debug)]
        pub(crate) struct Settings { $(
            pub(crate) $part: $Part,
        )+ }

        $(
            #[doc = concat!("The section ", $section, ".")]
            #[derive(Clone, Debug)]
            pub(crate) struct $Part { $(
                $(#[doc = $help])+
                pub(crate) $name: Given<$kind>,
            )+ }
        )+

        impl Settings {
            /// Every setting from whoever gives it first: the command line, the file, the table.
            ///
            /// # Errors
            /// The first value that could not even be used if it stood alone.
            pub(crate) fn read(sources: &Sources) -> Result<Self, InvalidSetting> {
                let mut rows = TABLE.iter();
                let mut row = || rows.next().expect("the table has a row for each field, in this order");
                Ok(Self { $( $part: $Part { $( $name: sources.given(row())?, )+ }, )+ })
            }

            /// Every value as it stands in a file, with the setting it belongs to.
            pub(crate) fn written(&self) -> Vec<(&'static Setting, serde_json::Value)> {
                vec![ $($( self.$part.$name.written(), )+)+ ]
            }
        }
    };
}

pub(crate) use settings;
