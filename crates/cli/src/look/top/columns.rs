//! Tables and lines that fit a terminal's width: parts that do not fit are left out whole, and no number is ever cut.

use ratatui::text::{Line, Span};

/// Cells between two columns.
const GAP: usize = 1;

/// A text is cut to this many characters before a column is left out.
const SHORTEST_TEXT: usize = 8;

/// A column before the available width is known.
pub(super) struct Column {
    /// The heading where there is room, and the short one.
    headings: [&'static str; 2],
    cells: Vec<String>,
    is_number: bool,
    /// When columns do not fit, the one with the highest rank is left out first.
    rank: u8,
}

impl Column {
    pub(super) fn number(rank: u8, long: &'static str, short: &'static str, cells: Vec<String>) -> Self {
        Self { headings: [long, short], cells, is_number: true, rank }
    }

    pub(super) fn text(rank: u8, heading: &'static str, cells: Vec<String>) -> Self {
        Self { headings: [heading; 2], cells, is_number: false, rank }
    }

    /// The width of the widest cell, and of the heading.
    fn content(&self, heading: usize) -> usize {
        self.cells.iter().map(|cell| length(cell)).fold(length(self.headings[heading]), usize::max)
    }

    /// Minimum width: all digits of a number, the beginning of a text.
    fn least(&self, heading: usize) -> usize {
        let content = self.content(heading);
        if self.is_number { content } else { content.min(SHORTEST_TEXT.max(length(self.headings[heading]))) }
    }
}

/// A column with its width.
pub(super) struct Fitted {
    pub(super) width: usize,
    pub(super) heading: String,
    pub(super) cells: Vec<String>,
    pub(super) is_number: bool,
}

impl Fitted {
    /// A cell or the heading, padded to the full width.
    pub(super) fn padded(&self, text: &str) -> String {
        let width = self.width;
        if self.is_number { format!("{text:>width$}") } else { format!("{text:<width$}") }
    }
}

/// The columns that fit in `width`, in their order: all with long headings, all with short ones, or those with the
/// lowest ranks. The first column always stays, and is cut if it is alone and too wide.
pub(super) fn fit(mut columns: Vec<Column>, width: usize) -> Vec<Fitted> {
    let needs = |columns: &[Column], heading: usize| {
        columns.iter().map(|column| column.least(heading) + GAP).sum::<usize>().saturating_sub(GAP)
    };
    let heading = usize::from(needs(&columns, 0) > width);
    while columns.len() > 1 && needs(&columns, heading) > width {
        let last = (1..columns.len()).max_by_key(|&at| columns[at].rank).unwrap_or(1);
        columns.remove(last);
    }
    let mut spare = width.saturating_sub(needs(&columns, heading));
    columns
        .into_iter()
        .map(|column| {
            let least = column.least(heading).min(width);
            let more = spare.min(column.content(heading).saturating_sub(least));
            spare -= more;
            let width = least + more;
            let cells = column.cells.iter().map(|cell| shortened(cell, width)).collect();
            let heading = shortened(column.headings[heading], width);
            Fitted { width, heading, cells, is_number: column.is_number }
        })
        .collect()
}

/// A line of parts in `width`. All parts from the first one that does not fit are left out, and a mark shows that; a
/// `sentence` after the parts is cut instead.
pub(super) fn line(parts: Vec<Span<'static>>, sentence: Option<Span<'static>>, width: usize) -> Line<'static> {
    let mut line = Line::default();
    let (mut left, n_parts) = (width, parts.len());
    for (at, part) in (1..).zip(parts) {
        // Room for the mark, if something follows.
        let mark = usize::from(at < n_parts || sentence.is_some());
        if part.width() + mark > left {
            line.push_span(Span::raw("…"));
            return line;
        }
        left -= part.width();
        line.push_span(part);
    }
    if let Some(sentence) = sentence {
        line.push_span(Span::styled(shortened(&sentence.content, left), sentence.style));
    }
    line
}

/// A text in at most `width` characters, with a mark where it is cut.
fn shortened(text: &str, width: usize) -> String {
    if length(text) <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).take(width).collect()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        let cells = |text: &str| vec![text.to_owned()];
        vec![
            Column::text(0, "switch", cells("a-long-name-of-a-switch")),
            Column::number(1, "frames in/s", "in/s", cells("123.4k")),
            Column::number(3, "waiting", "waiting", cells("1234567890")),
            Column::number(2, "drops/s", "drops/s", cells("0")),
        ]
    }

    #[test]
    fn columns_shorten_headings_then_go_by_rank_and_numbers_stay_whole() {
        let expected: [(usize, &[&str], &[&str]); 7] = [
            (
                54,
                &["switch", "frames in/s", "waiting", "drops/s"],
                &["a-long-name-of-a-switch", "123.4k", "1234567890", "0"],
            ),
            (39, &["switch", "frames in/s", "waiting", "drops/s"], &["a-long-…", "123.4k", "1234567890", "0"]),
            (38, &["switch", "in/s", "waiting", "drops/s"], &["a-long-name…", "123.4k", "1234567890", "0"]),
            (33, &["switch", "in/s", "drops/s"], &["a-long-name-of-a-…", "123.4k", "0"]),
            (22, &["switch", "in/s"], &["a-long-name-of…", "123.4k"]),
            (14, &["switch"], &["a-long-name-o…"]),
            (3, &["sw…"], &["a-…"]),
        ];
        for (width, headings, cells) in expected {
            let fitted = fit(columns(), width);
            assert_eq!(fitted.iter().map(|column| &*column.heading).collect::<Vec<_>>(), headings, "{width}");
            assert_eq!(fitted.iter().map(|column| &*column.cells[0]).collect::<Vec<_>>(), cells, "{width}");
            let row = fitted.iter().map(|column| column.padded(&column.cells[0])).collect::<Vec<_>>().join(" ");
            assert_eq!(length(&row), width, "{row}");
        }
        assert_eq!(fit(columns(), 0)[0].width, 0);
    }

    #[test]
    fn a_line_leaves_parts_out_whole_and_cuts_only_a_sentence() {
        let text = |sentence: Option<&'static str>, width| {
            let parts = ["12 links", ", 345 cut"].map(Span::raw).to_vec();
            line(parts, sentence.map(Span::raw), width).to_string()
        };
        assert_eq!(text(None, 17), "12 links, 345 cut");
        assert_eq!(text(None, 16), "12 links…");
        assert_eq!(text(None, 8), "…");
        assert_eq!(text(Some(", a trouble"), 40), "12 links, 345 cut, a trouble");
        assert_eq!(text(Some(", a trouble"), 22), "12 links, 345 cut, a …");
    }
}
