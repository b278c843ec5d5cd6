//! The details of a switch beside the table of all: its ports, and what it dropped and why.

use super::columns::{Column, Fitted, fit};
use super::rate;
use crate::look::plain;
use api::v1;
use api::words::counted;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph};

/// A rate, if it is known.
pub(super) fn rate_of(rates: Option<&v1::Rates>, value: fn(&v1::Rates) -> f64) -> String {
    rates.map_or("-".to_owned(), |rates| rate(value(rates)))
}

/// The table of ports in `width`, as lines; headings first.
fn ports(ports: &[v1::PortCounters], width: usize) -> Vec<Line<'static>> {
    let all = |cell: &dyn Fn(&v1::PortCounters) -> String| ports.iter().map(cell).collect::<Vec<_>>();
    let of = |value: fn(&v1::Rates) -> f64| all(&|port| rate_of(port.rates.as_ref(), value));
    let fitted = fit(
        vec![
            Column::number(0, "port", "port", all(&|port| port.port.to_string())),
            Column::text(3, "device", all(&|port| plain(&port.device))),
            Column::text(4, "role", all(&|port| plain(&port.role))),
            Column::number(1, "frames in/s", "in/s", of(|rates| rates.frames_in)),
            Column::number(2, "frames out/s", "out/s", of(|rates| rates.frames_out)),
            Column::number(5, "bit/s in", "bit/s in", of(|rates| 8.0 * rates.bytes_in)),
            Column::number(6, "bit/s out", "bit/s out", of(|rates| 8.0 * rates.bytes_out)),
        ],
        width,
    );
    let row = |of: &dyn Fn(&Fitted) -> String| fitted.iter().map(of).collect::<Vec<_>>().join(" ");
    let head = row(&|column| column.padded(&column.heading));
    let mut lines = vec![Line::styled(head, Style::new().add_modifier(Modifier::BOLD))];
    for (at, port) in ports.iter().enumerate() {
        let style = if port.up { Style::new() } else { Style::new().fg(Color::Red) };
        lines.push(Line::styled(row(&|column| column.padded(&column.cells[at])), style));
        if port.hellos_lost > 0 {
            let lost = format!("     {} lost", counted(port.hellos_lost, "hello", "hellos"));
            lines.push(Line::styled(lost, Style::new().fg(Color::Yellow)));
        }
        if !port.losses.is_empty() {
            let losses = port.losses.iter().map(|loss| format!("{} {}", loss.reason, loss.total));
            let text = format!("     lost: {}", losses.collect::<Vec<_>>().join(", "));
            lines.push(Line::styled(text, Style::new().fg(Color::Yellow)));
        }
        if 0 < port.mtu && port.mtu < port.mtu_needed {
            let text = format!("     MTU {}, and frames of hosts take {}", port.mtu, port.mtu_needed);
            lines.push(Line::styled(text, Style::new().fg(Color::Red)));
        }
        // What the neighbour says about itself in LLDP.
        if !port.device_there.is_empty() {
            lines.push(Line::raw(format!("     says: {}", plain(&port.device_there))));
        }
    }
    lines
}

/// Draws the ports of a switch and its drops with reasons, without the first `scrolled` lines. Reduces `scrolled` if it
/// would leave empty room below the last line.
pub(super) fn draw_details(frame: &mut Frame<'_>, area: Rect, details: &v1::SwitchDetails, scrolled: &mut usize) {
    let name = details.switch.as_ref().map(|switch| plain(&switch.name)).unwrap_or_default();
    let block = Block::new().borders(Borders::TOP | Borders::LEFT).title(format!(" {name} "));
    let mut lines = Vec::new();
    let bold = Style::new().add_modifier(Modifier::BOLD);
    match &details.counters {
        None => lines.push(Line::raw("it has not reported its counters")),
        Some(counters) => {
            lines.extend(ports(&counters.ports, block.inner(area).width.into()));
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
    let wrapped = Paragraph::new(lines).wrap(ratatui::widgets::Wrap { trim: false });
    let inner = block.inner(area);
    let beyond = wrapped.line_count(inner.width).saturating_sub(inner.height.into());
    *scrolled = (*scrolled).min(beyond);
    let block = if *scrolled < beyond { block.title(Line::raw(" PgDn more ").right_aligned()) } else { block };
    let above = u16::try_from(*scrolled).unwrap_or(u16::MAX);
    frame.render_widget(wrapped.block(block).scroll((above, 0)), area);
}
