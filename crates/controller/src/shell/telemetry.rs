//! Traces of changes, for a collector of OpenTelemetry: from the request of an operator to the acknowledgement of the last switch.
//!
//! ```text
//! put_names          ├────────────────────────────────┤  from the request to the last acknowledgement
//!   queue            ├──┤                                until the writer takes it
//!   apply               ├──┤                             in the RIB and the graphs
//!   commit                 ├──────┤                      to the store, with others
//!   push                          ├──┤                   messages are made and handed on
//!   acknowledge, s1                  ├────────┤          by each switch that the change concerns
//!   acknowledge, s2                  ├────────────────┤
//! ```
//! Off unless `[telemetry]` names the collector. Then a random part of the changes carries a
//! [`Trace`] from their arrival on. What follows an acknowledgement is a task of its own; neither the writer nor the pusher waits for one,
//! or for the collector. Everything is bounded: open traces, those that wait for the collector, and the spans of each. What
//! exceeds a bound is counted.
//!
//! Limits: switches that another controller serves are not seen; what switches find on their own is not traced.

mod export;

use crate::core::owner::Awaited;
use crate::shell::config;
use crate::shell::session::Session;
use api::clock;
use api::otlp::v1::{KeyValue, Span, SpanKind, SpanStatus, SpanStatusCode};
use api::otlp::{attribute, channel};
use api::seam::now;
use api::status::MetricsText;
use api::tls::{Foreign, TlsError};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Traces that are open at a time; changes beyond are not traced.
const MAX_OPEN: usize = 64;

/// Traces that wait for the collector.
const MAX_WAITING: usize = 256;

/// Switches of a trace that have a span; the last one that acknowledges is always among them.
const MAX_SWITCHES: usize = 32;

/// How long to wait for the acknowledgement of a switch.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes traces and sends them.
#[derive(Debug)]
pub(crate) struct Telemetry {
    ratio: f64,
    runtime: Handle,
    finished: mpsc::Sender<Vec<Span>>,
    n_open: AtomicUsize,
    counts: Arc<Counts>,
}

/// Counts of traces by their outcome.
#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    lost: AtomicU64,
    left_out: AtomicU64,
}

impl Telemetry {
    /// Needs a runtime around it, in which it runs. `instance` identifies this controller.
    /// # Errors
    /// The certificates for the collector cannot be used.
    pub(crate) fn start(settings: &config::Telemetry, instance: &str) -> Result<Arc<Self>, TlsError> {
        let cert = settings.cert.as_deref().zip(settings.key.as_deref());
        let tls = settings.ca.as_deref().map(|ca| Foreign::load(ca, cert)).transpose()?;
        let (finished, waiting) = mpsc::channel(MAX_WAITING);
        let counts = Arc::<Counts>::default();
        let collector = channel(&settings.otlp.member, tls.as_ref(), export::ANSWER)
            .unwrap_or_else(|_| unreachable!("the address was checked when the configuration was read"));
        tokio::spawn(export::run(collector, instance.to_owned(), waiting, Arc::clone(&counts)));
        let (ratio, runtime) = (settings.ratio, Handle::current());
        Ok(Arc::new(Self { ratio, runtime, finished, n_open: AtomicUsize::new(0), counts }))
    }

    /// The trace of a change that comes now, if it is chosen.
    pub(crate) fn begin(self: &Arc<Self>, what: &'static str) -> Option<Box<Trace>> {
        if rand::random::<f64>() >= self.ratio {
            return None;
        }
        let open = Open(Arc::clone(self));
        if self.n_open.fetch_add(1, Relaxed) >= MAX_OPEN {
            self.counts.left_out.fetch_add(1, Relaxed);
            return None;
        }
        let (begin, date) = (now(), clock::now());
        let root = Marks { begin, taken: begin, applied: begin, committed: begin };
        let ids = Ids { trace: rand::random(), root: rand::random(), begin, date };
        Some(Box::new(Trace { open, what, ids, marks: root, attributes: Vec::new() }))
    }

    /// Hands a trace to the collector, if there is room.
    fn finish(&self, spans: Vec<Span>) {
        if self.finished.try_send(spans).is_err() {
            self.counts.lost.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn metrics(&self, text: &mut MetricsText) {
        let Counts { sent, lost, left_out } = &*self.counts;
        let outcomes = [("sent", sent), ("lost", lost), ("left_out", left_out)];
        let outcomes = outcomes.map(|(outcome, n)| (format!("outcome=\"{outcome}\""), n.load(Relaxed)));
        text.counter("fibula_traces_total", "Traces of changes, by outcome.", outcomes);
    }
}

/// A place among the traces that are open.
#[derive(Debug)]
struct Open(Arc<Telemetry>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.n_open.fetch_sub(1, Relaxed);
    }
}

/// The ids of a trace, and the date of its beginning, from which times are measured.
#[derive(Clone, Copy, Debug)]
struct Ids {
    trace: [u8; 16],
    root: [u8; 8],
    begin: Instant,
    date: SystemTime,
}

/// The times of the steps.
#[derive(Debug)]
struct Marks {
    begin: Instant,
    taken: Instant,
    applied: Instant,
    committed: Instant,
}

/// One change on its way. A trace that is dropped is not reported.
#[derive(Debug)]
pub(crate) struct Trace {
    open: Open,
    what: &'static str,
    ids: Ids,
    marks: Marks,
    attributes: Vec<KeyValue>,
}

impl Ids {
    fn nanoseconds(&self, at: Instant) -> u64 {
        let date = self.date.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at = date + at.saturating_duration_since(self.begin);
        u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
    }

    /// A span below the first one.
    fn span(&self, name: &str, from: Instant, to: Instant, attributes: Vec<KeyValue>) -> Span {
        Span {
            trace_id: Bytes::copy_from_slice(&self.trace),
            span_id: Bytes::copy_from_slice(&rand::random::<[u8; 8]>()),
            parent_span_id: Bytes::copy_from_slice(&self.root),
            name: name.to_owned(),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: self.nanoseconds(from),
            end_time_unix_nano: self.nanoseconds(to),
            attributes,
            status: None,
        }
    }

    /// The first span.
    fn root(&self, name: &str, to: Instant, attributes: Vec<KeyValue>) -> Span {
        let span = self.span(name, self.begin, to, attributes);
        let span_id = Bytes::copy_from_slice(&self.root);
        Span { span_id, parent_span_id: Bytes::new(), kind: SpanKind::Server.into(), ..span }
    }
}

fn failed(span: Span, why: &str) -> Span {
    let status = SpanStatus { message: why.to_owned(), code: SpanStatusCode::StatusCodeError.into() };
    Span { status: Some(status), ..span }
}

impl Trace {
    /// The writer takes the change.
    pub(crate) fn taken(&mut self) {
        self.marks.taken = now();
    }

    /// Notes that the change was refused: nothing follows. The audit trail has the reason, with the names in it.
    pub(crate) fn refused(self) {
        let (Self { open, what, ids, marks, attributes }, end) = (self, now());
        let queue = ids.span("queue", marks.begin, marks.taken, Vec::new());
        let root = failed(ids.root(what, end, attributes), "refused");
        open.0.finish(vec![root, queue]);
    }

    /// Notes that it is carried out in memory, and the result: objects, and the number of the last change.
    pub(crate) fn applied(&mut self, changed: u64, unchanged: u64, change: u64) {
        self.marks.applied = now();
        self.attributes.extend([
            attribute("fibula.changed", changed),
            attribute("fibula.unchanged", unchanged),
            attribute("fibula.change", change),
        ]);
    }

    /// Notes that it is durable.
    pub(crate) fn committed(&mut self) {
        self.marks.committed = now();
    }

    /// Notes that its messages are made. The rest is followed in a task of its own.
    pub(crate) fn pushed(self, awaited: Vec<Awaited<Arc<Session>>>) {
        let pushed = now();
        let runtime = self.open.0.runtime.clone();
        runtime.spawn(self.follow(pushed, awaited));
    }

    /// Waits for the acknowledgements, and finishes.
    async fn follow(self, pushed: Instant, awaited: Vec<Awaited<Arc<Session>>>) {
        let Self { open, what, ids, marks, mut attributes } = self;
        let Marks { begin, taken, applied, committed } = marks;
        let steps = [("queue", begin, taken), ("apply", taken, applied), ("commit", applied, committed)];
        let steps = steps.into_iter().chain([("push", committed, pushed)]);
        let mut spans: Vec<Span> = steps.map(|(name, from, to)| ids.span(name, from, to, Vec::new())).collect();

        let n_awaited = awaited.len();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut answers = JoinSet::new();
        for Awaited { switch, line: session, change } in awaited {
            answers.spawn(async move {
                let is_served = tokio::time::timeout_at(deadline, session.serves(change)).await;
                (switch, is_served, now())
            });
        }
        let (mut end, mut n_acknowledged, mut switches) = (pushed, 0_u64, Vec::new());
        while let Some(answer) = answers.join_next().await {
            let Ok((switch, is_served, at)) = answer else { continue };
            let span = ids.span("acknowledge", pushed, at, vec![attribute("fibula.switch", &*switch)]);
            let span = match is_served {
                Ok(true) => {
                    n_acknowledged += 1;
                    span
                }
                Ok(false) => failed(span, "its stream ended"),
                Err(_) => failed(span, "no acknowledgement in time"),
            };
            end = end.max(at);
            // The last ones are those that took long.
            if switches.len() == MAX_SWITCHES {
                switches.remove(0);
            }
            switches.push(span);
        }
        attributes.push(attribute("fibula.switches", n_awaited as u64));
        attributes.push(attribute("fibula.acknowledged", n_acknowledged));
        attributes.push(attribute("fibula.switches_left_out", (n_awaited - switches.len()) as u64));
        let root = ids.root(what, end, attributes);
        let root = if n_acknowledged < n_awaited as u64 { failed(root, "not every switch acknowledged") } else { root };
        spans.insert(0, root);
        spans.append(&mut switches);
        open.0.finish(spans);
    }
}
