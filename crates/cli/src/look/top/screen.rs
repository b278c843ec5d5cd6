//! What `fibula top` shows, and what its keys do.

use super::{Look, rate, state, waiting};
use crate::look::{plain, time_of_day};
use api::v1;
use ratatui::Frame;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState};
use std::collections::VecDeque;

/// Events that are kept for the lower part of the screen.
const EVENTS: usize = 200;

/// What the switches are in the order of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Name,
    State,
    Frames,
    Drops,
}

impl Order {
    fn next(self) -> Order {
        match self {
            Order::Name => Order::State,
            Order::State => Order::Frames,
            Order::Frames => Order::Drops,
            Order::Drops => Order::Name,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Order::Name => "name",
            Order::State => "state",
            Order::Frames => "frames",
            Order::Drops => "drops",
        }
    }
}

/// What follows from a key.
pub(super) enum Step {
    Go,
    /// Look at the controller at once.
    Look,
    End,
}

/// The screen.
pub(super) struct Screen {
    look: Look,
    changes_per_second: Option<f64>,
    messages_per_second: Option<f64>,
    /// Why the controller does not answer.
    lost: Option<String>,
    order: Order,
    selected: TableState,
    /// Whether the details of the selected switch are shown.
    is_open: bool,
    events: VecDeque<v1::Event>,
    last_event: u64,
}

impl Screen {
    pub(super) fn new(look: Look) -> Self {
        let mut screen = Self {
            look,
            changes_per_second: None,
            messages_per_second: None,
            lost: None,
            order: Order::Name,
            selected: TableState::default().with_selected(Some(0)),
            is_open: false,
            events: VecDeque::new(),
            last_event: 0,
        };
        screen.sort();
        screen
    }

    /// The last event that is known.
    pub(super) fn last_event(&self) -> u64 {
        self.last_event
    }

    /// The switch whose details are shown.
    pub(super) fn details_of(&self) -> Option<&str> {
        let selected = self.look.switches.get(self.selected.selected()?)?;
        self.is_open.then_some(&selected.name)
    }

    /// The controller answered.
    pub(super) fn look(&mut self, look: Look) {
        let seconds = match (self.look.at, look.at) {
            (Some(before), Some(now)) => now.duration_since(before).as_secs_f64(),
            _ => 0.0,
        };
        if seconds > 0.1 {
            let rate = |now: u64, before: u64| Some(now.saturating_sub(before) as f64 / seconds);
            self.changes_per_second = rate(look.status.changes, self.look.status.changes);
            self.messages_per_second = rate(look.status.messages, self.look.status.messages);
        }
        let selected = self.selected.selected().and_then(|row| Some(self.look.switches.get(row)?.name.clone()));
        (self.look, self.lost) = (look, None);
        self.sort();
        // The same switch stays selected wherever it is now.
        if let Some(row) = selected.and_then(|name| self.look.switches.iter().position(|switch| switch.name == name)) {
            self.selected.select(Some(row));
        }
    }

    /// The controller did not answer.
    pub(super) fn lost(&mut self, why: String) {
        self.lost = Some(why);
    }

    pub(super) fn heard(&mut self, event: v1::Event) {
        self.last_event = event.sequence;
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn sort(&mut self) {
        let frames =
            |switch: &v1::Switch| switch.rates.as_ref().map_or(0.0, |rates| rates.frames_in + rates.frames_out);
        let drops = |switch: &v1::Switch| switch.rates.as_ref().map_or(0.0, |rates| rates.drops);
        let rank = |switch: &v1::Switch| match state(switch) {
            "away" => 0,
            "full" => 1,
            "behind" => 2,
            _ => 3,
        };
        self.look.switches.sort_by(|a, b| {
            let first = match self.order {
                Order::Name => std::cmp::Ordering::Equal,
                Order::State => rank(a).cmp(&rank(b)),
                Order::Frames => frames(b).total_cmp(&frames(a)),
                Order::Drops => drops(b).total_cmp(&drops(a)),
            };
            first.then_with(|| a.name.cmp(&b.name))
        });
    }

    pub(super) fn key(&mut self, event: &Event) -> Step {
        let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else { return Step::Go };
        let last = self.look.switches.len().saturating_sub(1);
        let at = self.selected.selected().unwrap_or(0);
        let to = match code {
            KeyCode::Char('q') => return Step::End,
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return Step::End,
            KeyCode::Esc if !self.is_open => return Step::End,
            KeyCode::Esc => {
                self.is_open = false;
                return Step::Go;
            }
            KeyCode::Enter => {
                self.is_open = !self.is_open;
                return Step::Look;
            }
            KeyCode::Char('s') => {
                self.order = self.order.next();
                self.sort();
                return Step::Look;
            }
            KeyCode::Down | KeyCode::Char('j') => at + 1,
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::PageDown => at + 10,
            KeyCode::PageUp => at.saturating_sub(10),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return Step::Go,
        };
        self.selected.select(Some(to.min(last)));
        if self.is_open { Step::Look } else { Step::Go }
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let n_events = (area.height / 4).clamp(3, 10);
        let [head, middle, below] =
            Layout::vertical([Constraint::Length(4), Constraint::Min(4), Constraint::Length(n_events + 1)]).areas(area);
        frame.render_widget(Paragraph::new(self.head()), head);
        if let (true, Some(details)) = (self.is_open, self.look.details.as_ref()) {
            let [left, right] = Layout::horizontal([Constraint::Percentage(45), Constraint::Min(30)]).areas(middle);
            let table = self.switches(true);
            frame.render_stateful_widget(table, left, &mut self.selected);
            draw_details(frame, right, details);
        } else {
            let table = self.switches(false);
            frame.render_stateful_widget(table, middle, &mut self.selected);
        }
        frame.render_widget(self.events(n_events as usize), below);
    }

    fn head(&self) -> Vec<Line<'static>> {
        let v1::Status { version, names, max_names, uptime_seconds, leader, switches, connected, .. } =
            &self.look.status;
        let up = *uptime_seconds as u64;
        let role = if leader.is_empty() { "leads".to_owned() } else { format!("follows {}", plain(leader)) };
        let (n_changes, n_messages) = (
            self.changes_per_second.map_or("-".to_owned(), rate),
            self.messages_per_second.map_or("-".to_owned(), rate),
        );
        let links = &self.look.links;
        let n_cut = links.links.iter().filter(|link| link.cut).count();
        let n_down = links.links.iter().filter(|link| !link.up).count();
        let first = match &self.lost {
            Some(why) => Line::from(vec![
                Span::styled(" no answer ", Style::new().fg(Color::White).bg(Color::Red)),
                Span::raw(format!(" {}; what follows is old; trying again", plain(why))),
            ]),
            None => Line::from(vec![
                Span::styled("fibula", Style::new().add_modifier(Modifier::BOLD)),
                Span::raw(format!(" {version}  {role}, up {}:{:02}:{:02}", up / 3600, up / 60 % 60, up % 60)),
            ]),
        };
        let second = format!(
            "{names} of {max_names} names, {n_changes} changes/s   {connected} of {switches} switches, {n_messages} messages/s"
        );
        let mut third = vec![Span::raw(format!("{} links", links.links.len()))];
        let mut say = |n: usize, what: &str, color: Color| {
            if n > 0 {
                third.push(Span::styled(format!(", {n} {what}"), Style::new().fg(color)));
            }
        };
        say(n_cut, "cut", Color::Red);
        say(n_down, "taken down", Color::Yellow);
        say(links.found.len(), "found and not added (fibula link accept)", Color::Yellow);
        say(self.look.pending.len(), "switches wait to be accepted (fibula switch pending)", Color::Yellow);
        if let Some(trouble) = links.troubles.first() {
            let others = links.troubles.len() - 1;
            let others = if others == 0 { String::new() } else { format!(" (and {others} others: fibula link list)") };
            third.push(Span::styled(format!(", {}{others}", plain(trouble)), Style::new().fg(Color::Red)));
        }
        let keys = format!("↑ ↓ select   enter details   s sort (by {})   q end", self.order.word());
        vec![first, Line::raw(second), Line::from(third), Line::styled(keys, Style::new().fg(Color::DarkGray))]
    }

    fn switches(&self, is_narrow: bool) -> Table<'static> {
        let row = |switch: &v1::Switch| {
            let of =
                |value: fn(&v1::Rates) -> f64| switch.rates.as_ref().map_or("-".to_owned(), |rates| rate(value(rates)));
            let word = state(switch);
            let color = match word {
                "in step" => Color::Green,
                "behind" => Color::Yellow,
                _ => Color::Red,
            };
            let state = Cell::new(Span::styled(word, Style::new().fg(color)));
            let memory = switch.memory.as_ref().map_or("-".to_owned(), |memory| rate(memory.resident_bytes as f64));
            let drops = of(|rates| rates.drops);
            let mut cells =
                vec![Cell::new(plain(&switch.name)), state, right(of(|rates| rates.frames_in)), right(drops)];
            if !is_narrow {
                cells.splice(
                    3..3,
                    [
                        right(of(|rates| rates.frames_out)),
                        right(of(|rates| 8.0 * rates.bytes_in)),
                        right(of(|rates| 8.0 * rates.bytes_out)),
                    ],
                );
                cells.extend([right(waiting(switch).to_string()), right(memory), right(switch.hosts.to_string())]);
            }
            Row::new(cells)
        };
        let mut head = vec!["switch", "state", "frames in/s", "drops/s"];
        let mut widths =
            vec![Constraint::Min(12), Constraint::Length(8), Constraint::Length(11), Constraint::Length(8)];
        if !is_narrow {
            head.splice(3..3, ["frames out/s", "bit/s in", "bit/s out"]);
            head.extend(["waiting", "memory", "hosts"]);
            widths.splice(3..3, [12, 9, 9].map(Constraint::Length));
            widths.extend([8, 7, 6].map(Constraint::Length));
        }
        let head = head
            .into_iter()
            .enumerate()
            .map(|(at, text)| if at < 2 { Cell::new(text) } else { right(text.to_owned()) });
        let style = Style::new().add_modifier(Modifier::BOLD);
        Table::new(self.look.switches.iter().map(row).collect::<Vec<_>>(), widths)
            .header(Row::new(head.collect::<Vec<_>>()).style(style))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
            .block(Block::new().borders(Borders::TOP))
    }

    fn events(&self, n_lines: usize) -> Paragraph<'static> {
        let line = |event: &v1::Event| {
            let color = match &*event.level {
                "good" => Color::Green,
                "warning" => Color::Yellow,
                "bad" => Color::Red,
                _ => Color::Reset,
            };
            let time = if event.at_ms == 0 { String::new() } else { time_of_day(event.at_ms) };
            Line::from(vec![
                Span::styled(format!("{time}  "), Style::new().fg(Color::DarkGray)),
                Span::styled(plain(&event.subject), Style::new().fg(color)),
                Span::raw(format!(": {}", plain(&event.text))),
            ])
        };
        let first = self.events.len().saturating_sub(n_lines);
        let lines: Vec<Line<'_>> = self.events.iter().skip(first).map(line).collect();
        Paragraph::new(lines).block(Block::new().borders(Borders::TOP).title(" events "))
    }
}

fn right(text: String) -> Cell<'static> {
    Cell::new(Line::raw(text).right_aligned())
}

/// The ports of a switch and what it dropped.
fn draw_details(frame: &mut Frame<'_>, area: Rect, details: &v1::SwitchDetails) {
    let name = details.switch.as_ref().map(|switch| plain(&switch.name)).unwrap_or_default();
    let mut lines = Vec::new();
    let bold = Style::new().add_modifier(Modifier::BOLD);
    match &details.counters {
        None => lines.push(Line::raw("it has not said what it counted")),
        Some(counters) => {
            let head = format!(
                "{:>5} {:<12} {:<7} {:>9} {:>9} {:>9} {:>9}",
                "port", "device", "role", "in/s", "out/s", "bit/s in", "out"
            );
            lines.push(Line::styled(head, bold));
            for port in &counters.ports {
                let of = |value: fn(&v1::Rates) -> f64| {
                    port.rates.as_ref().map_or("-".to_owned(), |rates| rate(value(rates)))
                };
                let device: String = plain(&port.device).chars().take(12).collect();
                let lost = match port.hellos_lost {
                    0 => String::new(),
                    n => format!("  {n} hellos lost"),
                };
                // What it says itself, in LLDP.
                let there = match &*port.device_there {
                    "" => String::new(),
                    there => format!("  says: {}", plain(there)),
                };
                let text = format!(
                    "{:>5} {device:<12} {:<7} {:>9} {:>9} {:>9} {:>9}{lost}{there}",
                    port.port,
                    port.role,
                    of(|r| r.frames_in),
                    of(|r| r.frames_out),
                    of(|r| 8.0 * r.bytes_in),
                    of(|r| 8.0 * r.bytes_out)
                );
                let style = if port.up { Style::new() } else { Style::new().fg(Color::Red) };
                lines.push(Line::styled(text, style));
            }
            lines.push(Line::raw(""));
            lines.push(Line::styled("dropped", bold));
            if counters.drops.is_empty() {
                lines.push(Line::raw("nothing"));
            }
            let mut drops: Vec<&v1::DropCount> = counters.drops.iter().collect();
            drops.sort_by(|a, b| b.a_second.total_cmp(&a.a_second).then(b.total.cmp(&a.total)));
            for drop in drops {
                lines.push(Line::raw(format!(
                    "{:<16} {:>9}/s  {} in all",
                    drop.reason,
                    rate(drop.a_second),
                    drop.total
                )));
                lines.push(Line::styled(format!("  {}", drop.why), Style::new().fg(Color::DarkGray)));
            }
        }
    }
    let block = Block::new().borders(Borders::TOP | Borders::LEFT).title(format!(" {name} "));
    let wrapped = Paragraph::new(lines).block(block).wrap(ratatui::widgets::Wrap { trim: false });
    frame.render_widget(wrapped, area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn switch(name: &str, frames_in: f64, drops: f64) -> v1::Switch {
        let rates = v1::Rates { frames_in, drops, ..v1::Rates::default() };
        v1::Switch {
            name: name.to_owned(),
            connected: true,
            in_step: true,
            rates: Some(rates),
            ..v1::Switch::default()
        }
    }

    fn screen() -> Screen {
        let away = v1::Switch { name: "s3".to_owned(), ..v1::Switch::default() };
        let cut = v1::Link { up: true, cut: true, ..v1::Link::default() };
        let drop = v1::DropCount {
            reason: "alien".to_owned(),
            total: 77,
            why: "Nobody has it.".to_owned(),
            ..v1::DropCount::default()
        };
        let there = "server9\u{1b}, eno1".to_owned();
        let port = v1::PortCounters { hellos_lost: 13, device_there: there, ..v1::PortCounters::default() };
        let counters = v1::Counters { ports: vec![port], drops: vec![drop], ..v1::Counters::default() };
        let mut screen = Screen::new(Look {
            switches: vec![away, switch("s1", 10.0, 5.0), switch("s2\u{1b}[2J", 99.0, 0.0)],
            links: v1::LinkList { links: vec![cut], ..v1::LinkList::default() },
            details: Some(v1::SwitchDetails { counters: Some(counters), ..v1::SwitchDetails::default() }),
            ..Look::default()
        });
        screen.heard(v1::Event {
            sequence: 4,
            subject: "s1:1".to_owned(),
            text: "cut".to_owned(),
            ..v1::Event::default()
        });
        screen
    }

    fn drawn(screen: &mut Screen, width: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..24).map(|y| row(y).trim_end().to_owned() + "\n").collect()
    }

    fn press(code: KeyCode) -> Event {
        Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    /// The order in which switches are drawn.
    fn order(text: &str) -> Vec<usize> {
        let mut at: Vec<(usize, usize)> = (1..=3).filter_map(|n| Some((text.find(&format!("\ns{n}"))?, n))).collect();
        at.sort_unstable();
        at.into_iter().map(|(_, n)| n).collect()
    }

    #[test]
    fn the_screen_shows_switches_links_and_events_and_obeys_no_name() {
        let mut screen = screen();
        let text = drawn(&mut screen, 110);
        for part in ["in step", "away", "1 links, 1 cut", "s1:1: cut", "s2\u{fffd}[2J", "q end"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains('\u{1b}'));
        assert_eq!(screen.last_event(), 4);
        // Nothing is drawn outside a small terminal.
        drawn(&mut screen, 20);
    }

    #[test]
    fn keys_sort_select_open_and_end() {
        let mut screen = screen();
        assert_eq!(order(&drawn(&mut screen, 110)), [1, 2, 3]);
        screen.key(&press(KeyCode::Char('s')));
        assert_eq!(order(&drawn(&mut screen, 110)), [3, 1, 2], "by state");
        screen.key(&press(KeyCode::Char('s')));
        assert_eq!(order(&drawn(&mut screen, 110)), [2, 1, 3], "by frames");
        screen.key(&press(KeyCode::Down));
        assert_eq!(screen.details_of(), None);
        assert!(matches!(screen.key(&press(KeyCode::Enter)), Step::Look));
        assert_eq!(screen.details_of(), Some("s1"));
        let text = drawn(&mut screen, 110);
        assert!(text.contains("alien") && text.contains("77 in all") && text.contains("Nobody has it."), "{text}");
        assert!(text.contains("13 hellos lost") && text.contains("says: server9\u{fffd}, eno1"), "{text}");
        screen.key(&press(KeyCode::End));
        assert_eq!(screen.details_of(), Some("s3"));
        assert!(matches!(screen.key(&press(KeyCode::Esc)), Step::Go));
        assert!(matches!(screen.key(&press(KeyCode::Char('q'))), Step::End));
    }

    #[test]
    fn a_controller_that_is_away_is_said_and_what_was_known_stays() {
        let mut screen = screen();
        screen.lost("connection refused".to_owned());
        let text = drawn(&mut screen, 110);
        assert!(
            text.contains("no answer") && text.contains("connection refused") && text.contains("in step"),
            "{text}"
        );
        screen.look(Look::default());
        assert!(!drawn(&mut screen, 110).contains("no answer"));
    }
}
