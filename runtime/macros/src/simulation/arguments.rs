//! Arguments of `#[simulation(..)]`.

use std::collections::BTreeMap;

use quote::ToTokens as _;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, Ident, Lit, Result, Token};

/// All arguments, each with an example for error messages.
const KNOWN: &[(&str, &str)] = &[
    ("faults", "faults = all"),
    ("minutes", "minutes = 3"),
    ("hours", "hours = 3"),
    ("days", "days = 3"),
    ("plans", "plans = 20"),
    ("crashes", "crashes = all"),
    ("rejections", "rejections = all"),
    ("plan", "plan = FaultPlan::from_json(..).expect(\"a printed plan\")"),
    ("seed", "seed = 7"),
    ("replicas", "replicas = 3"),
    ("caches", "caches = [Service]"),
    ("resources", "resources = [\"services\"]"),
    ("permissions", "permissions = exact"),
];

/// Arguments by name, without duplicates.
pub(super) struct Arguments(BTreeMap<&'static str, Argument>);

struct Argument {
    name: Ident,
    example: &'static str,
    value: Expr,
}

/// Kind of campaign.
pub(super) enum Campaign<'a> {
    /// One run without faults.
    Once,
    /// Runs under random plans.
    Random(RandomPlans<'a>),
    /// Two runs with a crash for each write.
    Crashes,
    /// Two runs with an error for each write.
    Rejections,
    /// One run under this plan.
    Replay(&'a Expr),
}

/// Settings of random plans.
pub(super) struct RandomPlans<'a> {
    pub(super) faults: Faults<'a>,
    /// Duration of the faults.
    pub(super) span: Option<(Unit, &'a Expr)>,
    /// Number of plans.
    pub(super) plans: Option<&'a Expr>,
}

/// Kinds of faults.
pub(super) enum Faults<'a> {
    All,
    Kinds(Vec<&'a Expr>),
    Value(&'a Expr),
}

/// Units of time.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Minutes,
    Hours,
    Days,
}

impl Unit {
    const ALL: [(Unit, &str); 3] = [(Unit::Minutes, "minutes"), (Unit::Hours, "hours"), (Unit::Days, "days")];
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut arguments = BTreeMap::new();
        for argument in Punctuated::<Argument, Token![,]>::parse_terminated(input)? {
            let (name, key) = (argument.name.clone(), argument.key());
            if arguments.insert(key, argument).is_some() {
                return Err(Error::new(name.span(), format!("`{key}` is given twice: remove one")));
            }
        }
        Ok(Arguments(arguments))
    }
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name: Ident = input.parse()?;
        let Some((_, example)) = KNOWN.iter().find(|(known, _)| name == known) else {
            let known: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
            let message = format!("a simulation has no argument `{name}`: use one of {}", known.join(", "));
            return Err(Error::new(name.span(), message));
        };
        if !input.peek(Token![=]) || input.peek(Token![==]) {
            return Err(Error::new(name.span(), format!("`{name}` needs a value: write `{example}`")));
        }
        input.parse::<Token![=]>()?;
        if input.is_empty() || input.peek(Token![,]) {
            return Err(Error::new(name.span(), format!("`{name}` needs a value: write `{example}`")));
        }
        Ok(Argument { name, example, value: input.parse()? })
    }
}

impl Argument {
    fn key(&self) -> &'static str {
        KNOWN.iter().find(|(known, _)| self.name == known).map_or("", |(known, _)| known)
    }

    /// Returns an error about its value. `what` completes the sentence "must be".
    fn wrong(&self, what: &str) -> Error {
        let message = format!("`{}` must be {what}: write `{}`", self.name, self.example);
        Error::new_spanned(self.value.to_token_stream(), message)
    }

    /// Returns an error about its presence.
    fn misplaced(&self, why: &str) -> Error {
        Error::new(self.name.span(), why)
    }
}

impl Arguments {
    /// Returns the campaign that the arguments define together.
    ///
    /// # Errors
    /// If an argument conflicts with another one, or would have no effect.
    pub(super) fn campaign(&self) -> Result<Campaign<'_>> {
        if let Some(plan) = self.0.get("plan") {
            self.reject(
                &["seed", "faults", "minutes", "hours", "days", "plans", "crashes", "rejections"],
                "a plan contains its seed and its faults: remove this, or remove `plan`",
            )?;
            return Ok(Campaign::Replay(&plan.value));
        }
        if let Some(campaign) = self.each_write()? {
            return Ok(campaign);
        }
        let span = self.span()?;
        let plans = self.number("plans", 1)?;
        let Some(faults) = self.faults()? else {
            self.reject(
                &["minutes", "hours", "days"],
                "duration of faults without faults: add `faults = all`",
            )?;
            self.reject(&["plans"], "number of random plans without faults: add `faults = all`")?;
            return Ok(Campaign::Once);
        };
        Ok(Campaign::Random(RandomPlans { faults, span, plans }))
    }

    /// Returns the campaign with one fault for each write, if there is one.
    fn each_write(&self) -> Result<Option<Campaign<'_>>> {
        for (name, campaign) in [("crashes", Campaign::Crashes), ("rejections", Campaign::Rejections)] {
            let Some(argument) = self.0.get(name) else { continue };
            if word(&argument.value).is_none_or(|word| word != "all") {
                return Err(argument.wrong("`all` or absent"));
            }
            let others = ["faults", "minutes", "hours", "days", "plans", "crashes", "rejections"];
            let others: Vec<_> = others.into_iter().filter(|it| *it != name).collect();
            let why = format!("`{name} = all` uses one fault per run: remove this, or make it a second test");
            self.reject(&others, &why)?;
            return Ok(Some(campaign));
        }
        Ok(None)
    }

    /// Returns whether permissions are exact.
    pub(super) fn has_exact_permissions(&self) -> Result<bool> {
        match self.0.get("permissions") {
            Some(permissions) if word(&permissions.value).is_none_or(|word| word != "exact") => {
                Err(permissions.wrong("`exact` or absent"))
            }
            permissions => Ok(permissions.is_some()),
        }
    }

    /// Returns a whole number. A literal must be at least `least`.
    pub(super) fn number(&self, name: &str, least: u64) -> Result<Option<&Expr>> {
        let Some(argument) = self.0.get(name) else { return Ok(None) };
        match &argument.value {
            Expr::Lit(ExprLit { lit: Lit::Int(number), .. })
                if number.base10_parse::<u64>().is_ok_and(|number| number < least) =>
            {
                return Err(argument.wrong(&format!("at least {least}")));
            }
            // Other expressions can be constants or computations.
            Expr::Lit(ExprLit { lit: Lit::Int(_), .. }) => {}
            Expr::Lit(_) | Expr::Array(_) | Expr::Unary(_) => return Err(argument.wrong("a whole number")),
            _ => {}
        }
        Ok(Some(&argument.value))
    }

    /// Returns the elements of a list in brackets.
    pub(super) fn list(&self, name: &str) -> Result<Option<Vec<&Expr>>> {
        let Some(argument) = self.0.get(name) else { return Ok(None) };
        match &argument.value {
            Expr::Array(array) if !array.elems.is_empty() => Ok(Some(array.elems.iter().collect())),
            _ => Err(argument.wrong("a list in brackets")),
        }
    }

    fn span(&self) -> Result<Option<(Unit, &Expr)>> {
        let mut found = None;
        for (unit, name) in Unit::ALL {
            let Some(length) = self.number(name, 1)? else { continue };
            if found.is_some() {
                self.reject(
                    &[name],
                    "the duration of faults is given twice: keep one of minutes, hours and days",
                )?;
            }
            found = Some((unit, length));
        }
        Ok(found)
    }

    /// Returns the kinds of faults, if any.
    fn faults(&self) -> Result<Option<Faults<'_>>> {
        let Some(argument) = self.0.get("faults") else { return Ok(None) };
        let wrong = || {
            argument
                .wrong("`all`, `none`, a list of kinds such as `[Crash, Watch]`, or a value of type `Faults`")
        };
        Ok(Some(match &argument.value {
            Expr::Array(kinds) if !kinds.elems.is_empty() => {
                let kinds: Vec<&Expr> = kinds.elems.iter().collect();
                if let Some(kind) = kinds.iter().find(|kind| word(kind).is_none()) {
                    let message = "not a kind of fault: write a kind such as `Crash`";
                    return Err(Error::new_spanned(kind.to_token_stream(), message));
                }
                Faults::Kinds(kinds)
            }
            Expr::Call(_) | Expr::MethodCall(_) => Faults::Value(&argument.value),
            value => match word(value).map(ToString::to_string).as_deref() {
                Some("all") => Faults::All,
                Some("none") => return Ok(None),
                _ => return Err(wrong()),
            },
        }))
    }

    /// Rejects the first of `names` that is present.
    fn reject(&self, names: &[&str], why: &str) -> Result<()> {
        match names.iter().find_map(|name| self.0.get(name)) {
            Some(argument) => Err(argument.misplaced(why)),
            None => Ok(()),
        }
    }
}

/// Returns the identifier if the value is a single one.
fn word(value: &Expr) -> Option<&Ident> {
    match value {
        Expr::Path(path) if path.attrs.is_empty() => path.path.get_ident(),
        _ => None,
    }
}
