//! The screen of `fibula top`, and its keys.

use super::columns::{Column, fit, line};
use super::details::{draw_details, rate_of};
use super::{Look, rate, state, waiting};
use crate::look::{plain, time_of_day};
use api::v1;
use api::words::counted;
use command::order::natural;
use ratatui::Frame;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState};
use std::collections::VecDeque;

/// Events kept for the lower part of the screen.
const EVENTS: usize = 200;

/// From this width on, the table of switches stays beside the details of one.
const BESIDE: u16 = 60;

/// Width of the details where there is room for all columns of their table; the rest is for the switches.
const DETAILS: u16 = 56;
const SWITCHES: u16 = 20;

/// The order of the switches.
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

/// How far a page key moves, in rows of switches or lines of details.
const PAGE: usize = 10;

/// The effect of a key.
pub(super) enum Step {
    Go,
    /// Ask the controller at once.
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
    /// How many of their lines are scrolled out of view above.
    scrolled: usize,
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
            scrolled: 0,
            events: VecDeque::new(),
            last_event: 0,
        };
        screen.sort();
        screen
    }

    /// The number of the last known event.
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
        // The same switch stays selected, wherever it is now.
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
            first.then_with(|| natural(&a.name, &b.name))
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
                (self.is_open, self.scrolled) = (!self.is_open, 0);
                return Step::Look;
            }
            KeyCode::Char('s') => {
                self.order = self.order.next();
                self.sort();
                return Step::Look;
            }
            KeyCode::Down | KeyCode::Char('j') => at + 1,
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            // Moves the details; their end is known only when they are drawn.
            KeyCode::PageDown if self.is_open => {
                self.scrolled += PAGE;
                return Step::Go;
            }
            KeyCode::PageUp if self.is_open => {
                self.scrolled = self.scrolled.saturating_sub(PAGE);
                return Step::Go;
            }
            KeyCode::PageDown => at + PAGE,
            KeyCode::PageUp => at.saturating_sub(PAGE),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return Step::Go,
        };
        if to.min(last) != at {
            self.scrolled = 0;
        }
        self.selected.select(Some(to.min(last)));
        if self.is_open { Step::Look } else { Step::Go }
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let n_events = (area.height / 4).clamp(3, 10);
        let [head, middle, below] =
            Layout::vertical([Constraint::Length(4), Constraint::Min(4), Constraint::Length(n_events + 1)]).areas(area);
        let width = usize::from(area.width);
        frame.render_widget(Paragraph::new(self.head(width)), head);
        if let (true, Some(details)) = (self.is_open, self.look.details.as_ref()) {
            let n_details = (middle.width * 11 / 20).max(DETAILS.min(middle.width.saturating_sub(SWITCHES)));
            let n_details = if middle.width < BESIDE { middle.width } else { n_details };
            let [left, right] = Layout::horizontal([Constraint::Min(0), Constraint::Length(n_details)]).areas(middle);
            draw_details(frame, right, details, &mut self.scrolled);
            self.draw_switches(frame, left);
        } else {
            self.draw_switches(frame, middle);
        }
        frame.render_widget(self.events(n_events as usize, width), below);
    }

    fn head(&self, width: usize) -> Vec<Line<'static>> {
        let v1::Status { version, names, max_names, uptime_seconds, leader, switches, connected, .. } =
            &self.look.status;
        let up = *uptime_seconds as u64;
        let up = format!(", up {}:{:02}:{:02}", up / 3600, up / 60 % 60, up % 60);
        let role = if leader.is_empty() { "leads".to_owned() } else { format!("follows {}", plain(leader)) };
        let links = &self.look.links;
        let n_cut = links.links.iter().filter(|link| link.cut).count();
        let n_down = links.links.iter().filter(|link| !link.up).count();
        let first = match &self.lost {
            Some(why) => {
                let alarm = Span::styled(" no answer ", Style::new().fg(Color::White).bg(Color::Red));
                let sentence = format!(" the values below are old; trying again: {}", plain(why));
                line(vec![alarm], Some(Span::raw(sentence)), width)
            }
            None => {
                let bold = Style::new().add_modifier(Modifier::BOLD);
                let parts = [Span::styled("fibula", bold), Span::raw(format!(" {version}")), Span::raw(up)];
                line(parts.to_vec(), Some(Span::raw(format!(", {role}"))), width)
            }
        };
        let each_second =
            |n: Option<f64>, what: &str| Span::raw(format!(", {} {what}/s", n.map_or("-".to_owned(), rate)));
        let second = vec![
            Span::raw(format!("{connected} of {}", counted(*switches, "switch", "switches"))),
            Span::raw(format!(", {names} of {max_names} names")),
            each_second(self.changes_per_second, "changes"),
            each_second(self.messages_per_second, "messages"),
        ];
        let mut third = vec![Span::raw(counted(links.links.len() as u64, "link", "links"))];
        let mut say = |n: usize, what: String, color: Color| {
            if n > 0 {
                third.push(Span::styled(what, Style::new().fg(color)));
            }
        };
        say(n_cut, format!(", {n_cut} cut"), Color::Red);
        say(n_down, format!(", {n_down} taken down"), Color::Yellow);
        let n_found = links.found.len();
        say(n_found, format!(", {n_found} found and not added (fibula link accept)"), Color::Yellow);
        let n_pending = self.look.pending.len();
        let wait = counted(n_pending as u64, "switch waits", "switches wait");
        say(n_pending, format!(", {wait} to be accepted (fibula switch pending)"), Color::Yellow);
        let trouble = links.troubles.first().map(|trouble| {
            let others = (links.troubles.len() - 1) as u64;
            let others = match others {
                0 => String::new(),
                n => format!(", {} (fibula link list)", counted(n + 1, "trouble", "troubles")),
            };
            Span::styled(format!("{others}, {}", plain(trouble)), Style::new().fg(Color::Red))
        });
        let keys = [
            format!("↑ ↓ select   enter details   s sort (by {})   q end", self.order.word()),
            "↑ ↓ select  enter details  s sort  q end".to_owned(),
            "↑ ↓  enter  s  q end".to_owned(),
            "q end".to_owned(),
        ];
        let keys = keys.into_iter().find(|keys| keys.chars().count() <= width).unwrap_or_default();
        let keys = Line::styled(keys, Style::new().fg(Color::DarkGray));
        vec![first, line(second, None, width), line(third, trouble, width), keys]
    }

    fn draw_switches(&mut self, frame: &mut Frame<'_>, area: Rect) {
        // Below the top line and the headings. When room grows, the first switches come back.
        let n_rows = usize::from(area.height.saturating_sub(2));
        let last_offset = self.look.switches.len().saturating_sub(n_rows);
        *self.selected.offset_mut() = self.selected.offset().min(last_offset);
        let table = self.switches(area.width.into());
        frame.render_stateful_widget(table, area, &mut self.selected);
    }

    fn switches(&self, width: usize) -> Table<'static> {
        let all = |cell: &dyn Fn(&v1::Switch) -> String| self.look.switches.iter().map(cell).collect::<Vec<_>>();
        let of = |value: fn(&v1::Rates) -> f64| all(&|switch| rate_of(switch.rates.as_ref(), value));
        let memory = |switch: &v1::Switch| {
            switch.memory.as_ref().map_or("-".to_owned(), |memory| rate(memory.resident_bytes as f64))
        };
        let fitted = fit(
            vec![
                Column::text(0, "switch", all(&|switch| plain(&switch.name))),
                Column::text(1, "state", all(&|switch| state(switch).to_owned())),
                Column::number(2, "frames in/s", "in/s", of(|rates| rates.frames_in)),
                Column::number(4, "frames out/s", "out/s", of(|rates| rates.frames_out)),
                Column::number(5, "bit/s in", "bit/s in", of(|rates| 8.0 * rates.bytes_in)),
                Column::number(6, "bit/s out", "bit/s out", of(|rates| 8.0 * rates.bytes_out)),
                Column::number(3, "drops/s", "drops/s", of(|rates| rates.drops)),
                Column::number(8, "waiting", "waiting", all(&|switch| waiting(switch).to_string())),
                Column::number(9, "memory", "memory", all(&memory)),
                Column::number(7, "hosts", "hosts", all(&|switch| switch.hosts.to_string())),
            ],
            width,
        );
        let rows = self.look.switches.iter().enumerate().map(|(at, switch)| {
            let color = match state(switch) {
                "in step" => Color::Green,
                "behind" => Color::Yellow,
                _ => Color::Red,
            };
            Row::new(fitted.iter().map(|column| {
                let style = if column.heading == "state" { Style::new().fg(color) } else { Style::new() };
                Cell::new(Span::styled(column.padded(&column.cells[at]), style))
            }))
        });
        let rows: Vec<Row<'_>> = rows.collect();
        let head = fitted.iter().map(|column| Cell::new(column.padded(&column.heading)));
        let style = Style::new().add_modifier(Modifier::BOLD);
        Table::new(rows, fitted.iter().map(|column| Constraint::Length(column.width as u16)))
            .header(Row::new(head).style(style))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
            .block(Block::new().borders(Borders::TOP))
    }

    fn events(&self, n_lines: usize, width: usize) -> Paragraph<'static> {
        let of = |event: &v1::Event| {
            let color = match &*event.level {
                "good" => Color::Green,
                "warning" => Color::Yellow,
                "bad" => Color::Red,
                _ => Color::Reset,
            };
            let time = if event.at_ms == 0 { String::new() } else { time_of_day(event.at_ms) };
            let parts = vec![
                Span::styled(format!("{time}  "), Style::new().fg(Color::DarkGray)),
                Span::styled(plain(&event.subject), Style::new().fg(color)),
            ];
            line(parts, Some(Span::raw(format!(": {}", plain(&event.text)))), width)
        };
        let first = self.events.len().saturating_sub(n_lines);
        let lines: Vec<Line<'_>> = self.events.iter().skip(first).map(of).collect();
        Paragraph::new(lines).block(Block::new().borders(Borders::TOP).title(" events "))
    }
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
        drawn_in(screen, width, 24)
    }

    fn drawn_in(screen: &mut Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_owned() + "\n").collect()
    }

    /// A network under load: all rates of a switch or port differ in their first digits.
    fn loaded() -> Screen {
        let rates = v1::Rates {
            age_ms: 0,
            frames_in: 22_534.0,
            frames_out: 33_534.0,
            bytes_in: 55e6,
            bytes_out: 66e6,
            drops: 8_765.0,
            expected_drops: 0.0,
        };
        let of = |i: u32| v1::Switch {
            rates: Some(rates),
            hosts: 9_602,
            sent_messages: 1_234,
            memory: Some(v1::MemoryUse { resident_bytes: 39_900_000, ..v1::MemoryUse::default() }),
            ..switch(&format!("switch-{i:02}"), 0.0, 0.0)
        };
        let port = |(port, role): (u32, &str)| v1::PortCounters {
            port,
            device: format!("enp{port}s0f1"),
            role: role.to_owned(),
            up: true,
            rates: Some(rates),
            ..v1::PortCounters::default()
        };
        let ports = [(1, "host"), (254, "outside")].map(port).to_vec();
        let counters = Some(v1::Counters { ports, ..v1::Counters::default() });
        let switches: Vec<v1::Switch> = (1..=8).map(of).collect();
        let details = v1::SwitchDetails { switch: Some(switches[0].clone()), counters, ..v1::SwitchDetails::default() };
        let status =
            v1::Status { names: 654_321, max_names: 16_777_216, connected: 8, switches: 8, ..v1::Status::default() };
        let troubles = vec!["the port s1:7 is at two links".to_owned(), "another".to_owned()];
        let links = v1::LinkList { links: vec![v1::Link::default(); 345], troubles, ..v1::LinkList::default() };
        Screen::new(Look { status, switches, links, details: Some(details), ..Look::default() })
    }

    const FULL: [(&str, &str); 8] = [
        ("in/s", "22.5k"),
        ("out/s", "33.5k"),
        ("bit/s in", "440M"),
        ("bit/s out", "528M"),
        ("drops/s", "8.77k"),
        ("waiting", "1234"),
        ("memory", "39.9M"),
        ("hosts", "9602"),
    ];

    /// Checks that each number in `row` is one of a loaded network, whole, and ends below the heading that it belongs to. Returns
    /// how many there are.
    fn numbers_below_headings(head: &str, row: &str) -> usize {
        // Cells, in characters.
        let end_of = |line: &str, at: usize| line[..at].chars().count();
        let mut n = 0;
        for (at, word) in row.match_indices(|c: char| !c.is_whitespace()).filter_map(|(at, _)| {
            let begins = at == 0 || row[..at].ends_with(char::is_whitespace);
            begins.then(|| (at, row[at..].split_whitespace().next().unwrap()))
        }) {
            let Some((heading, _)) = FULL.iter().find(|(_, value)| *value == word) else {
                let known =
                    word.starts_with("switch-0") || ["in", "step", "host", "outside", "1", "254"].contains(&word);
                assert!(known || word.starts_with("enp"), "{word} in\n{head}\n{row}");
                continue;
            };
            let end = end_of(row, at + word.len());
            let below = head.match_indices(heading).any(|(at, text)| end_of(head, at + text.len()) == end);
            assert!(below, "{word} is not below {heading}:\n{head}\n{row}");
            n += 1;
        }
        n
    }

    fn line_with<'a>(text: &'a str, part: &str) -> &'a str {
        text.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part} is not in\n{text}"))
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
        for part in ["in step", "away", "1 link, 1 cut", "s1:1: cut", "s2\\u001b[2J", "q end"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains('\u{1b}'));
        assert_eq!(screen.last_event(), 4);
        // Nothing is drawn outside a small terminal.
        drawn(&mut screen, 20);
    }

    #[test]
    fn numbers_are_whole_below_whole_headings_in_every_terminal() {
        // At 80 columns nothing is left out.
        for (width, n) in [(20, 0), (40, 3), (50, 4), (60, 5), (80, 8), (120, 8)] {
            let text = drawn(&mut loaded(), width);
            let head = text.lines().find(|line| line.starts_with("switch ")).unwrap();
            let row = line_with(&text, "switch-01");
            assert_eq!(numbers_below_headings(head, row), n, "{width}\n{text}");
            assert!(text.contains("q end"), "{text}");
        }
        assert!(drawn(&mut loaded(), 120).contains("frames out/s"));
    }

    #[test]
    fn ports_are_below_their_headings_in_every_terminal() {
        for (width, n) in [(40, 2), (50, 3), (60, 2), (80, 4), (120, 4)] {
            let mut screen = loaded();
            screen.key(&press(KeyCode::Enter));
            let text = drawn(&mut screen, width);
            let (head, row) = (line_with(&text, "│port"), line_with(&text, "enp254s"));
            let part = |line: &str| line.split_once('│').unwrap().1.to_owned();
            assert_eq!(numbers_below_headings(&part(head), &part(row)), n, "{width}\n{text}");
            assert!(text.contains(" switch-01 ") && text.contains("dropped"), "{text}");
        }
    }

    #[test]
    fn what_is_above_the_table_is_left_out_whole_or_has_a_mark() {
        let lines = |width| drawn(&mut loaded(), width).lines().skip(1).take(2).map(str::to_owned).collect::<Vec<_>>();
        let wide = lines(120);
        assert_eq!(wide[0], "8 of 8 switches, 654321 of 16777216 names, - changes/s, - messages/s");
        let troubles = "345 links, 345 taken down, 2 troubles (fibula link list), the port s1:7 is at two links";
        assert_eq!(wide[1], troubles);
        let narrow = lines(40);
        assert_eq!(narrow, ["8 of 8 switches…", "345 links, 345 taken down, 2 troubles (…"]);
    }

    #[test]
    fn rows_come_back_when_there_is_room_again() {
        let mut screen = loaded();
        screen.key(&press(KeyCode::End));
        let small = drawn_in(&mut screen, 50, 12);
        assert!(!small.contains("switch-01") && small.contains("switch-08"), "{small}");
        let large = drawn(&mut screen, 80);
        assert!(large.contains("switch-01") && large.contains("switch-08"), "{large}");
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
        assert!(text.contains("13 hellos lost") && text.contains(r"says: server9\u001b, eno1"), "{text}");
        screen.key(&press(KeyCode::End));
        assert_eq!(screen.details_of(), Some("s3"));
        assert!(matches!(screen.key(&press(KeyCode::Esc)), Step::Go));
        assert!(matches!(screen.key(&press(KeyCode::Char('q'))), Step::End));
    }

    #[test]
    fn all_ports_and_drops_of_a_switch_can_be_read_in_a_low_terminal() {
        let mut screen = loaded();
        let counters = screen.look.details.as_mut().unwrap().counters.as_mut().unwrap();
        counters.ports = (1..=48)
            .map(|port| v1::PortCounters { port, device: format!("eth{port}-"), ..v1::PortCounters::default() })
            .collect();
        screen.key(&press(KeyCode::Enter));
        for width in [50, 80, 120] {
            let first = drawn(&mut screen, width);
            assert!(first.contains("eth1-") && !first.contains("eth48-") && first.contains("PgDn"), "{first}");
            let mut seen = first;
            for _ in 0..20 {
                screen.key(&press(KeyCode::PageDown));
                seen += &drawn(&mut screen, width);
            }
            assert!((1..=48).all(|port| seen.contains(&format!("eth{port}-"))), "{seen}");
            let last = drawn(&mut screen, width);
            assert!(
                last.contains("nothing") && !last.contains("PgDn") && last.contains("eth48-"),
                "the end stays: {last}"
            );
            // One key back shows earlier lines at once: nothing beyond the end was counted.
            screen.key(&press(KeyCode::PageUp));
            assert!(!drawn(&mut screen, width).contains("nothing"));
            screen.key(&press(KeyCode::Down));
            assert!(drawn(&mut screen, width).contains("eth1-"), "another switch begins at its top");
            screen.key(&press(KeyCode::Up));
        }
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
