//! The output of the demo: a screen on a terminal, otherwise one line for each change.
//!
//! Both keep the last displayed snapshot, so that only changes are printed.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ratatui::backend::{CrosstermBackend, TestBackend};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame, Terminal};
use tracing_subscriber::EnvFilter;
use windlass::env::{Env, Instant};

use crate::observed::{ClusterSnapshot, PodStage, PodView, WorkloadView};
use crate::panel::ControllerView;
use crate::picture;
use crate::render::{changes, pods, word};

/// Number of lines that the screen keeps.
const KEPT: usize = 100;

/// A key command of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// Stops the demo.
    Quit,
}

/// The output of the demo.
#[derive(Debug)]
pub(crate) struct Screen {
    env: Env,
    begun: Instant,
    terminal: Option<DefaultTerminal>,
    picture: ScreenState,
    ready_printed: bool,
}

/// The content of a frame.
#[derive(Debug, Default)]
struct ScreenState {
    elapsed: Duration,
    address: String,
    invitation: Vec<String>,
    observed: ClusterSnapshot,
    controllers: Vec<ControllerView>,
    changes: VecDeque<String>,
}

/// Installs a log subscriber for errors only; on a screen the log is disabled. Events rejected by faults are not
/// logged.
pub(crate) fn quieten(on_terminal: bool) {
    let filter = if on_terminal { "off" } else { "error,kube_client=off,windlass_events=off" };
    let log = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter)).with_writer(io::stderr);
    // Fails if a subscriber is installed already, which is fine.
    let _ = log.try_init();
}

impl Screen {
    /// Opens standard output; on a terminal, takes over the whole screen.
    ///
    /// # Errors
    /// When the terminal cannot be taken over.
    pub(crate) fn open(on_terminal: bool, env: &Env, begun: Instant) -> Result<Self> {
        let terminal = on_terminal.then(take_over).transpose().context("cannot take over the terminal")?;
        Ok(Self { env: env.clone(), begun, terminal, picture: ScreenState::default(), ready_printed: false })
    }

    /// Prints the address of the cluster and commands to try.
    ///
    /// # Errors
    /// When the output is closed.
    pub(crate) fn greet(&mut self, address: &str, invitation: &[String]) -> Result<()> {
        self.picture.address = address.to_owned();
        self.picture.invitation = invitation.to_vec();
        self.print_line(&format!("A cluster is served on {address}. In another terminal:"))?;
        invitation.iter().try_for_each(|line| self.print_line(&format!("    {line}")))?;
        self.print_line("Press Ctrl-C to stop. Changes:")
    }

    /// Displays the current state and the changes.
    ///
    /// # Errors
    /// When the output is closed.
    pub(crate) fn show(&mut self, observed: &ClusterSnapshot, controllers: &[ControllerView]) -> Result<()> {
        let changes = changes(&self.picture.observed, observed);
        changes.iter().try_for_each(|line| self.print_line(&format!("    {line}")))?;
        if !self.ready_printed && observed.count(PodStage::Ready) > 0 {
            self.ready_printed = true;
            let ms = self.env.now().saturating_duration_since(self.begun).as_millis();
            self.print_line(&format!("The first pods were ready {ms} ms after the start of this process."))?;
        }
        self.picture.observed = observed.clone();
        self.picture.controllers = controllers.to_vec();
        self.draw()
    }

    /// Prints a line with the seconds since the start.
    ///
    /// # Errors
    /// When the output is closed.
    pub(crate) fn print_line(&mut self, line: &str) -> Result<()> {
        let elapsed = self.env.now().saturating_duration_since(self.begun);
        let line = format!("{:>7.1} s  {line}", elapsed.as_secs_f64());
        let printed = match self.terminal {
            Some(_) => Ok(()),
            None => writeln!(io::stdout(), "{line}").context("cannot write to standard output"),
        };
        self.picture.changes.push_back(line);
        if self.picture.changes.len() > KEPT {
            self.picture.changes.pop_front();
        }
        printed
    }

    /// Returns the key command since the last call.
    ///
    /// # Errors
    /// When the terminal is closed.
    pub(crate) fn key(&mut self) -> Result<Option<Key>> {
        while self.terminal.is_some() && event::poll(Duration::ZERO).context("cannot read the keyboard")? {
            let Event::Key(key) = event::read().context("cannot read the keyboard")? else { continue };
            let interrupts = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if interrupts || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(Some(Key::Quit));
            }
        }
        Ok(None)
    }

    /// Restores the terminal. Later output is printed as lines.
    ///
    /// # Errors
    /// When the terminal is closed.
    pub(crate) fn close(&mut self) -> Result<()> {
        if self.terminal.take().is_some() {
            ratatui::try_restore().context("cannot restore the terminal")?;
        }
        // The last state remains in the scrollback.
        let summary = summary(&self.picture.observed);
        self.print_line(&format!("Final state: {summary}. Stopping the controllers and the control plane."))
    }

    /// Writes the last frame as an SVG picture.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write_picture(&self, path: &Path) -> Result<()> {
        let mut terminal = Terminal::new(TestBackend::new(picture::SIZE.0, picture::SIZE.1))?;
        terminal.draw(|frame| self.picture.draw(frame))?;
        let svg = picture::svg(terminal.backend().buffer());
        fs::write(path, svg).with_context(|| format!("cannot write the picture to {}", path.display()))
    }

    fn draw(&mut self) -> Result<()> {
        self.picture.elapsed = self.env.now().saturating_duration_since(self.begun);
        let picture = &self.picture;
        match &mut self.terminal {
            Some(terminal) => {
                terminal.draw(|frame| picture.draw(frame)).map(drop).context("cannot draw on the terminal")
            }
            None => Ok(()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.terminal.take().is_some() {
            ratatui::restore();
        }
    }
}

impl ScreenState {
    fn draw(&self, frame: &mut Frame<'_>) {
        let controllers = u16::try_from(self.controllers.len()).unwrap_or(u16::MAX).saturating_add(3);
        let header = u16::try_from(self.invitation.len()).unwrap_or(u16::MAX).saturating_add(3);
        let parts = [
            Constraint::Length(header),
            Constraint::Fill(2),
            Constraint::Length(controllers),
            Constraint::Fill(1),
            Constraint::Length(1),
        ];
        let [top, middle, panel, changes, foot] = Layout::vertical(parts).areas(frame.area());
        let halves = [Constraint::Percentage(45), Constraint::Percentage(55)];
        let [left, right] = Layout::horizontal(halves).spacing(2).areas(middle);
        self.draw_header(frame, top);
        self.draw_workloads(frame, left);
        self.draw_pods(frame, right);
        self.draw_controllers(frame, panel);
        self.draw_changes(frame, changes);
        frame.render_widget(Line::from(" q or Ctrl-C stops the demo").style(Modifier::DIM), foot);
    }

    fn draw_header(&self, frame: &mut Frame<'_>, area: Rect) {
        let running =
            format!("{} for {} s, {}", self.address, self.elapsed.as_secs(), summary(&self.observed));
        let mut lines = vec![Line::from(running)];
        lines.extend(self.invitation.iter().map(|line| Line::from(Span::styled(line, Color::Cyan))));
        frame.render_widget(Paragraph::new(lines).block(titled("windlass")), area);
    }

    fn draw_workloads(&self, frame: &mut Frame<'_>, area: Rect) {
        let widths = [
            Constraint::Fill(1),
            Constraint::Length(7),
            Constraint::Length(5),
            Constraint::Length(5),
            Constraint::Length(9),
        ];
        let headings = ["NAME", "DESIRED", "PODS", "READY", "ADDRESSES"];
        let rows = self.observed.workloads.iter().map(|((kind, name), view)| self.row(kind, name, view));
        let table = Table::new(rows, widths).header(heading(headings));
        frame.render_widget(table.block(titled("Workloads and the Endpoints of their name")), area);
    }

    fn row(&self, kind: &str, name: &String, view: &WorkloadView) -> Row<'static> {
        let addresses = self.observed.addresses.get(name).map(|it| it.len().to_string()).unwrap_or_default();
        let [desired, reported, ready] = [view.desired, view.reported, view.ready].map(|it| it.to_string());
        let name = Cell::from(format!("{} {name}", short(kind)));
        let cells = [name, desired.into(), reported.into(), ready.into(), addresses.into()];
        Row::new(cells).style(color(view.ready == view.desired))
    }

    fn draw_pods(&self, frame: &mut Frame<'_>, area: Rect) {
        // Changing pods come first: ready pods are all alike.
        let changing = self.observed.pods.iter().filter(|(_, pod)| pod.stage != PodStage::Ready);
        let ready = self.observed.pods.iter().filter(|(_, pod)| pod.stage == PodStage::Ready);
        let rows = changing.chain(ready).take(area.height.into()).map(pod_row);
        let widths =
            [Constraint::Fill(1), Constraint::Length(9), Constraint::Length(15), Constraint::Length(8)];
        let table = Table::new(rows, widths).header(heading(["POD", "NODE", "ADDRESS", "STATE"]));
        let counts =
            self.observed.stages().into_iter().map(|(stage, count)| format!("{count} {}", word(stage)));
        let title = ["Pods".to_owned()].into_iter().chain(counts).collect::<Vec<_>>().join(", ");
        frame.render_widget(table.block(titled(&title)), area);
    }

    fn draw_controllers(&self, frame: &mut Frame<'_>, area: Rect) {
        let row = |controller: &ControllerView| {
            Row::new([
                controller.name.to_owned(),
                controller.depth.to_string(),
                format!("{}/{}", controller.workers.0, controller.workers.1),
                controller.reconciles.to_string(),
                controller.errors.to_string(),
                controller.last.clone().unwrap_or_default(),
            ])
        };
        let widths = [
            Constraint::Length(33),
            Constraint::Length(6),
            Constraint::Length(7),
            Constraint::Length(10),
            Constraint::Length(7),
            Constraint::Fill(1),
        ];
        let headings = ["CONTROLLER", "QUEUE", "WORKERS", "RECONCILES", "ERRORS", "LAST WRITE"];
        let table = Table::new(self.controllers.iter().map(row), widths).header(heading(headings));
        frame.render_widget(table.block(titled("Controllers")), area);
    }

    fn draw_changes(&self, frame: &mut Frame<'_>, area: Rect) {
        let room = usize::from(area.height.saturating_sub(1));
        let hidden = self.changes.len().saturating_sub(room);
        let lines: Vec<Line<'_>> =
            self.changes.iter().skip(hidden).map(|line| Line::from(line.as_str())).collect();
        frame.render_widget(Paragraph::new(lines).block(titled("Changes")), area);
    }
}

/// Takes over the whole terminal. A panic of this thread restores it before the message is printed. Panics of other
/// threads, which the runtime catches and counts, would only corrupt the screen.
fn take_over() -> io::Result<DefaultTerminal> {
    let screen_thread = std::thread::current().id();
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() == screen_thread {
            ratatui::restore();
            default_hook(panic);
        }
    }));
    enable_raw_mode()?;
    let taken = execute!(io::stdout(), EnterAlternateScreen);
    taken
        .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())))
        .inspect_err(|_| ratatui::restore())
}

fn summary(observed: &ClusterSnapshot) -> String {
    let of = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let ready = observed.count(PodStage::Ready);
    let all = pods(u64::try_from(observed.pods.len()).unwrap_or(u64::MAX));
    format!(
        "{}, {}, {all}, {ready} ready",
        of(observed.nodes, "node"),
        of(observed.workloads.len(), "workload")
    )
}

/// Returns the short name of a kind, as kubectl uses it.
fn short(kind: &str) -> &'static str {
    match kind {
        "Deployment" => "deploy",
        "DaemonSet" => "ds",
        "ReplicaSet" => "rs",
        _ => "sts",
    }
}

fn pod_row<'a>((name, pod): (&'a String, &'a PodView)) -> Row<'a> {
    let (node, address) = (pod.node.as_deref().unwrap_or("-"), pod.address.as_deref().unwrap_or("-"));
    Row::new([name.as_str(), node, address, word(pod.stage)]).style(color(pod.stage == PodStage::Ready))
}

fn titled(title: &str) -> Block<'_> {
    Block::new().borders(ratatui::widgets::Borders::TOP).title(format!(" {title} "))
}

fn heading<const N: usize>(names: [&'static str; N]) -> Row<'static> {
    Row::new(names).style(Modifier::BOLD)
}

fn color(is_well: bool) -> Style {
    Style::new().fg(if is_well { Color::Green } else { Color::Yellow })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture() -> ScreenState {
        let pod = |stage| PodView { node: Some("node-0".into()), address: Some("10.128.0.1".into()), stage };
        ScreenState {
            address: "http://127.0.0.1:1".into(),
            invitation: vec!["export KUBECONFIG=k".into()],
            observed: ClusterSnapshot {
                workloads: [(
                    ("Deployment", "shop/web".into()),
                    WorkloadView { desired: 2, reported: 2, ready: 1 },
                )]
                .into(),
                pods: [
                    ("shop/web-1".into(), pod(PodStage::Ready)),
                    ("shop/web-2".into(), pod(PodStage::Starting)),
                ]
                .into(),
                ..ClusterSnapshot::default()
            },
            controllers: vec![ControllerView {
                name: "replicaset-controller",
                reconciles: 7,
                last: Some("create shop/pods".into()),
                ..ControllerView::default()
            }],
            ..ScreenState::default()
        }
    }

    fn drawn(width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal of memory");
        terminal.draw(|frame| picture().draw(frame)).expect("it draws");
        terminal.backend().to_string()
    }

    #[test]
    fn frame_shows_objects_controllers_and_commands() {
        let text = drawn(120, 40);
        for shown in [
            "export KUBECONFIG=k",
            "deploy shop/web ",
            "1 starting, 1 ready",
            "node-0",
            "replicaset-controller",
            "create shop/pods",
            "q or Ctrl-C",
        ] {
            assert!(text.contains(shown), "{shown} is missing:\n{text}");
        }
        let (starting, ready) = (text.find("shop/web-2"), text.find("shop/web-1"));
        assert!(starting < ready, "changing pods come first:\n{text}");
    }

    #[test]
    fn tiny_terminal_does_not_panic() {
        for (width, height) in [(1, 1), (10, 4), (200, 2)] {
            drawn(width, height);
        }
    }
}
