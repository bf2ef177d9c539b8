//! Development tasks of this workspace, one subcommand and one module per task.

// The output of a task is its result.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod book;
mod build_times;
mod chart;
mod ci;
mod control_plane;
mod dependencies;
mod describe;
mod fuzz;
mod image;
mod lint;
mod miri;
mod mutants;
mod new_operator;
mod packages;
mod programs;
mod release;
mod semver;
mod soak;
mod steps;
mod test;
mod tidy;
mod tools;
mod workflows;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Development tasks of this workspace, the same on developer machines and in CI.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Builds, starts and stops a real Kubernetes control plane on this machine.
    ControlPlane(control_plane::Arguments),
    /// Runs all tests. Builds the control plane, Helm and the binary first if necessary.
    Test(test::Arguments),
    /// Measures Windlass next to its peers: caches, queues, informers, controller managers, API servers.
    Bench(bench::Arguments),
    /// Runs one process under churn and faults on a real control plane, and fails if its resource usage grows.
    Soak(soak::Arguments),
    /// Reports crates and machine code of the production binary and its build time, and checks for growth.
    BuildTimes(build_times::Arguments),
    /// Runs all static checks: formatting, tidy, workflows, dependencies, packages, clippy, documentation, build size.
    Lint,
    /// Checks the dependencies for known vulnerabilities; fails if the database cannot be fetched.
    Advisories,
    /// Compares the API of the published crates with the last release; fails if the version does not state the change.
    Semver(semver::Arguments),
    /// Checks that the crates, the chart and the list of changes have the version of a tag.
    Release(release::Arguments),
    /// Generates roles, default values and documentation of the Helm charts in `deploy/`, or packages the charts.
    Chart(chart::Arguments),
    /// Builds the book of `docs/` as HTML in the target directory, and checks its links.
    Book,
    /// Builds the container image of the production binary as an OCI layout, and the list of its crates.
    Image(image::Arguments),
    /// Creates a project for an operator: kind, controller, webhook, tests, chart and CI.
    NewOperator(new_operator::Arguments),
    /// Generates the tables of built-in kinds in `simulation/schema` from upstream sources.
    Describe(describe::Arguments),
    /// Fuzzes the parsers of external input with libFuzzer; needs a nightly toolchain and a C++ compiler.
    Fuzz(fuzz::Arguments),
    /// Runs the tests of shared data structures under Miri; needs a nightly toolchain.
    Miri(miri::Arguments),
    /// Applies defects to a copy of the workspace and runs the tests that must find them.
    Mutants(mutants::Arguments),
    /// Checks the rules that clippy cannot express: module cycles, determinism, links, language.
    Tidy(tidy::Arguments),
    /// Runs `lint`, then `test`: the checks that a change must pass.
    Ci,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Task::ControlPlane(arguments) => control_plane::run(arguments),
        Task::Test(arguments) => test::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Soak(arguments) => soak::run(&arguments),
        Task::BuildTimes(arguments) => build_times::run(&arguments),
        Task::Book => steps::with_progress("book", book::run),
        Task::Chart(arguments) => chart::run(&arguments),
        Task::Image(arguments) => image::run(&arguments),
        Task::NewOperator(arguments) => new_operator::run(&arguments),
        Task::Describe(arguments) => steps::with_progress("describe", || describe::run(&arguments)),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Miri(arguments) => miri::run(&arguments),
        Task::Mutants(arguments) => mutants::run(&arguments),
        Task::Lint => lint::run(),
        Task::Advisories => steps::with_progress("advisories", dependencies::check_advisories),
        Task::Semver(arguments) => semver::run(&arguments),
        Task::Release(arguments) => release::run(&arguments),
        Task::Tidy(arguments) => {
            steps::with_progress("tidy", || tidy::run_with(&arguments, &workspace::root()))
        }
        Task::Ci => ci::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
