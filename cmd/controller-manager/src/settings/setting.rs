//! A row of the table of settings, the value that a process has for it, and the macro that expands the table.
//!
//! Guarantees: a flag overrides the field, and the field overrides the default; a field is parsed even if a flag
//! overrides it; an error names the flag or the position of the field that the user wrote.

use std::collections::BTreeMap;
use std::ops::Deref;

use super::invalid::{InvalidInput, assignment};
use super::value::{Value, ValueShape};

/// A setting, as the command line, the file and the documentation have it.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The flag, without its dashes.
    pub(crate) flag: String,
    /// The path of the field in the file, with dots.
    pub(crate) field: &'static str,
    /// The heading in `--help`.
    pub(crate) section: &'static str,
    /// One or more sentences.
    pub(crate) help: String,
    /// The placeholder of the value in `--help`.
    pub(crate) unit: &'static str,
    /// The default as a flag has it; empty for none.
    pub(crate) default: &'static str,
    pub(crate) shape: ValueShape,
    /// Returns lines about the possible values.
    pub(crate) choices: fn() -> Vec<String>,
}

impl Setting {
    /// Creates a row from what [`settings!`] captures: the name of the Rust field, and the lines of its documentation.
    pub(crate) fn new<T: Value>(
        name: &str,
        help: &[&str],
        section: &'static str,
        [default, unit, field]: [&'static str; 3],
    ) -> Self {
        let help = help.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        let flag = name.replace('_', "-");
        Self { flag, field, section, help, unit, default, shape: T::SHAPE, choices: T::choices }
    }

    /// Returns the default for readers.
    pub(crate) fn shown_default(&self) -> &'static str {
        if self.default.is_empty() { "none" } else { self.default }
    }
}

/// The value of a setting, and its source.
#[derive(Clone, Debug)]
pub(crate) struct SettingValue<T> {
    pub(crate) value: T,
    source: Source,
}

impl<T> Deref for SettingValue<T> {
    type Target = Source;

    fn deref(&self) -> &Source {
        &self.source
    }
}

impl<T: Value> SettingValue<T> {
    fn parse(setting: &'static Setting, text: &str, origin: ValueSource) -> Result<Self, InvalidInput> {
        let source = Source { setting, text: text.to_owned(), origin, is_default: false };
        match T::parse(text) {
            Ok(value) => Ok(Self { value, source }),
            Err(invalid) => Err(invalid.at(&source.assignment())),
        }
    }

    pub(crate) fn to_row(&self) -> (&'static Setting, serde_json::Value) {
        (self.setting, serde_json::json!(self.value))
    }
}

/// The part of the input that sets a value.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    setting: &'static Setting,
    text: String,
    origin: ValueSource,
    is_default: bool,
}

#[derive(Clone, Debug)]
enum ValueSource {
    Default,
    Flag,
    File(Position),
}

impl Source {
    /// Returns an error about this value, which is not valid next to the others.
    pub(crate) fn invalid(&self, problem: impl ToString, remedy: impl ToString) -> InvalidInput {
        InvalidInput::new(&self.assignment(), problem, remedy)
    }

    /// Returns the name that the user wrote; the flag for a default.
    pub(crate) fn name(&self) -> String {
        match &self.origin {
            ValueSource::Default | ValueSource::Flag => format!("--{}", self.setting.flag),
            ValueSource::File(position) => format!("{} (line {})", self.setting.field, position.line),
        }
    }

    /// Returns whether the command line has the flag.
    pub(crate) fn is_flag(&self) -> bool {
        matches!(self.origin, ValueSource::Flag)
    }

    /// Returns whether the command line or the file sets the value.
    pub(crate) fn is_given(&self) -> bool {
        !matches!(self.origin, ValueSource::Default)
    }

    /// Returns whether the value equals the default. A file with all settings contains defaults.
    pub(crate) fn is_default(&self) -> bool {
        self.is_default
    }

    fn assignment(&self) -> String {
        match &self.origin {
            ValueSource::Default => format!("{} (the default)", assignment(&self.name(), &self.text)),
            ValueSource::Flag => assignment(&self.name(), &self.text),
            ValueSource::File(Position { file, line, column }) => {
                let text = if self.text.is_empty() { "\"\"" } else { &self.text };
                format!("{file}:{line}:{column}: {}", assignment(self.setting.field, text))
            }
        }
    }
}

/// The command line and the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingSources {
    /// The text of each flag on the command line, by its name without dashes.
    pub(crate) flags: BTreeMap<&'static str, String>,
    /// The text of each field in the file, by the same name.
    pub(crate) file: BTreeMap<&'static str, (String, Position)>,
}

/// A position in a file. Line and column start at 1.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    pub(crate) file: String,
    pub(crate) line: u64,
    pub(crate) column: u64,
}

impl SettingSources {
    /// Returns the value of a setting.
    ///
    /// # Errors
    /// The flag or the field has a text that is not a value.
    pub(crate) fn given<T: Value>(&self, setting: &'static Setting) -> Result<SettingValue<T>, InvalidInput> {
        let default = SettingValue::<T>::parse(setting, setting.default, ValueSource::Default)?;
        let field = self.file.get(setting.flag.as_str());
        let field =
            field.map(|(text, at)| SettingValue::<T>::parse(setting, text, ValueSource::File(at.clone())));
        let flag = self.flags.get(setting.flag.as_str());
        let flag = flag.map(|text| SettingValue::<T>::parse(setting, text, ValueSource::Flag));
        let mut given = match (flag.transpose()?, field.transpose()?) {
            (Some(flag), Some(field)) => SettingValue { value: flag.value.over(field.value), ..flag },
            (Some(given), None) | (None, Some(given)) => given,
            (None, None) => default.clone(),
        };
        given.source.is_default = given.value == default.value;
        Ok(given)
    }
}

/// Expands sections of rows, each with help, name, type, default, unit and field, to `TABLE` and `Settings`.
macro_rules! settings {
    ($( $section:literal $part:ident: $Part:ident { $(
        $(#[doc = $help:literal])+
        $name:ident: $type:ty = $default:literal, $unit:literal, $field:literal;
    )+ } )+) => {
        /// All settings, in the order of `--help`.
        pub(crate) static TABLE: LazyLock<Vec<Setting>> = LazyLock::new(|| vec![ $($(
            Setting::new::<$type>(stringify!($name), &[$($help),+], $section, [$default, $unit, $field]),
        )+)+ ]);

        /// The value of every setting.
        #[derive(Clone, Debug)]
        pub(crate) struct Settings { $(
            pub(crate) $part: $Part,
        )+ }

        $(
            #[doc = concat!("The section ", $section, ".")]
            #[derive(Clone, Debug)]
            pub(crate) struct $Part { $(
                $(#[doc = $help])+
                pub(crate) $name: SettingValue<$type>,
            )+ }
        )+

        impl Settings {
            /// Returns the value of every setting.
            ///
            /// # Errors
            /// The first text that is not a value.
            pub(crate) fn read(sources: &SettingSources) -> Result<Self, InvalidInput> {
                let mut rows = TABLE.iter();
                let mut row = || rows.next().expect("the table has one row for each field, in this order");
                Ok(Self { $( $part: $Part { $( $name: sources.given(row())?, )+ }, )+ })
            }

            /// Returns every value as JSON.
            fn rows(&self) -> Vec<(&'static Setting, serde_json::Value)> {
                vec![ $($( self.$part.$name.to_row(), )+)+ ]
            }
        }
    };
}

pub(crate) use settings;
