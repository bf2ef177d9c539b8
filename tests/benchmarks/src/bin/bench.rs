//! Runs scenarios and writes their results. `cargo xtask bench` builds all programs and starts this one.

// The output is the result of a measurement.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use lexopt::prelude::*;
use windlass_benchmarks::machine::Machine;
use windlass_benchmarks::plot::Plot;
use windlass_benchmarks::report::{Report, Run, amount};
use windlass_benchmarks::results::Sample;
use windlass_benchmarks::scenarios::{Context, SCENARIOS, Scenario};

/// The markers around the table in a page.
const BEGIN: &str = "<!-- results: begin -->";
const END: &str = "<!-- results: end -->";

struct Options {
    context: Context,
    /// Folder of the results.
    output: PathBuf,
    /// A page that receives the table. The curves are written to the folder with the name of the page.
    document: Option<PathBuf>,
    scenarios: Vec<&'static Scenario>,
}

fn main() -> Result<()> {
    let options = options()?;
    std::fs::create_dir_all(&options.output)?;
    let results = options.output.join("results.json");
    let mut report = Report::load(&results)?;
    for scenario in options.scenarios {
        let (machine, rounds) = (Machine::read()?, options.context.rounds);
        let mut samples = Vec::new();
        scenario.run(&options.context, &mut |sample| {
            print_progress(&sample);
            samples.push(sample);
            Ok(())
        })?;
        report.runs.insert(scenario.name.to_owned(), Run { machine, rounds, samples });
        report.save(&results)?;
    }
    let table = report.markdown();
    std::fs::write(options.output.join("table.md"), &table)?;
    write_plots(&report, &options.output)?;
    if let Some(page) = options.document {
        replace_table(&page, &table)?;
        write_plots(&report, &page.with_extension(""))?;
    }
    println!("{table}");
    Ok(())
}

fn write_plots(report: &Report, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for plot in Plot::of(&report.comparisons()) {
        std::fs::write(folder.join(plot.file_name()), plot.svg())?;
    }
    Ok(())
}

/// Replaces the text between the markers in a page.
fn replace_table(page: &Path, table: &str) -> Result<()> {
    let text = std::fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let (before, rest) = text.split_once(BEGIN).context("the page has no marker of the beginning")?;
    let (_, after) = rest.split_once(END).context("the page has no marker of the end")?;
    Ok(std::fs::write(page, format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))?)
}

fn print_progress(sample: &Sample) {
    let Sample { workload, size, metric, contender, value } = sample;
    let size = size.map(|size| format!(", {size} objects")).unwrap_or_default();
    eprintln!("{workload}{size}: {}: {}: {}", contender.name, metric.name, amount(*value, metric.unit));
}

fn options() -> Result<Options> {
    let mut context = Context { rounds: 5, pods: vec![10_000] };
    let (mut output, mut document, mut scenarios) = (None, None, Vec::new());
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("rounds") => context.rounds = arguments.value()?.parse()?,
            Long("pods") => context.pods = numbers(&arguments.value()?.string()?)?,
            Long("output") => output = Some(PathBuf::from(arguments.value()?)),
            Long("document") => document = Some(PathBuf::from(arguments.value()?)),
            Value(name) => scenarios.push(scenario(&name.string()?)?),
            Short(_) | Long(_) => return Err(argument.unexpected().into()),
        }
    }
    if context.rounds == 0 {
        bail!("cannot measure: --rounds is 0; use at least 1");
    }
    let output = output.context("cannot write results: --output is missing")?;
    Ok(Options { context, output, document, scenarios })
}

fn numbers(text: &str) -> Result<Vec<usize>> {
    text.split(',').map(|number| number.parse().with_context(|| format!("--pods: {number}"))).collect()
}

fn scenario(name: &str) -> Result<&'static Scenario> {
    SCENARIOS
        .iter()
        .find(|scenario| scenario.name == name)
        .with_context(|| format!("unknown scenario {name}"))
}
