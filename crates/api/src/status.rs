//! `/metrics` (Prometheus text) and `/status` (JSON) of a daemon, over HTTP.

use crate::address::Address;
use crate::gate::{Gate, admit_web};
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A daemon's report about itself, computed on request.
pub trait StatusSource: Send + Sync + 'static {
    /// One JSON object.
    fn status_json(&self) -> String;
    /// Prometheus text; see [`MetricsText`].
    fn metrics_text(&self) -> String;
}

/// Serves `source` on `address` until the runtime ends, and returns the address it listens on (port 0: the system's
/// choice). `gate` requires a reader's certificate, unless other machines cannot reach the address, or `open`.
/// # Errors
/// When the address cannot be bound.
pub async fn serve(
    address: &Address,
    gate: &Arc<Gate>,
    open: bool,
    source: Arc<dyn StatusSource>,
) -> std::io::Result<Address> {
    serve_with(address, gate, open, source, Router::new()).await
}

/// As [`serve`], with further pages.
/// # Errors
/// When the address cannot be bound.
pub async fn serve_with(
    address: &Address,
    gate: &Arc<Gate>,
    open: bool,
    source: Arc<dyn StatusSource>,
    pages: Router,
) -> std::io::Result<Address> {
    let listener = gate.listen_for_pages(address, open).await?;
    let bound = listener.address().clone();
    let metrics = {
        let source = Arc::clone(&source);
        move || async move { ([(CONTENT_TYPE, "text/plain; version=0.0.4")], source.metrics_text()) }
    };
    let status = move || async move { ([(CONTENT_TYPE, "application/json")], source.status_json()) };
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .merge(pages)
        .layer(listener.limits())
        // Unknown pages are not found, for any peer.
        .route_layer(from_fn_with_state(Arc::clone(gate), admit_web));
    crate::serve::serve(listener, router, &gate.limits().limits());
    Ok(bound)
}

/// Durations, counted by bound. It can be updated concurrently.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; Histogram::BOUNDS_US.len()],
    beyond: AtomicU64,
    sum_us: AtomicU64,
}

impl Histogram {
    /// In microseconds.
    const BOUNDS_US: [u64; 14] = [
        200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 5_000_000,
        20_000_000,
    ];

    /// Counts a duration.
    pub fn record(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = Self::BOUNDS_US.iter().position(|bound| us <= *bound);
        bucket.map_or(&self.beyond, |bucket| &self.counts[bucket]).fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
    }
}

/// Builds Prometheus text, one metric after another.
#[derive(Debug, Default)]
pub struct MetricsText(String);

impl MetricsText {
    /// A value that only grows, with one sample for each set of labels (`port="1"`, or empty).
    pub fn counter(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (String, u64)>) {
        self.metric("counter", name, help, samples);
    }

    /// A value that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (String, u64)>) {
        self.metric("gauge", name, help, samples);
    }

    /// Cumulative counts of values by upper bound, in seconds: see [`Histogram`].
    pub fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        let text = &mut self.0;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut below = 0;
        for (bound, count) in Histogram::BOUNDS_US.iter().zip(&histogram.counts) {
            below += count.load(Relaxed);
            let _ = writeln!(text, "{name}_bucket{{le=\"{}\"}} {below}", *bound as f64 / 1e6);
        }
        below += histogram.beyond.load(Relaxed);
        let sum = histogram.sum_us.load(Relaxed) as f64 / 1e6;
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {below}\n{name}_sum {sum}\n{name}_count {below}");
    }

    /// The memory of this process: the resident size, and the parts that count themselves.
    pub fn memory(&mut self, parts: &[(&str, u64)]) {
        if let Some(resident) = crate::memory::resident() {
            self.gauge("fibula_resident_bytes", "Bytes of resident memory.", plain(resident.now));
            self.gauge("fibula_resident_peak_bytes", "Peak of resident memory, in bytes.", plain(resident.peak));
        }
        let parts = parts.iter().map(|(part, bytes)| (format!("part=\"{part}\""), *bytes));
        self.gauge("fibula_memory_bytes", "Bytes of memory, by part.", parts);
    }

    fn metric(&mut self, kind: &str, name: &str, help: &str, samples: impl IntoIterator<Item = (String, u64)>) {
        let text = &mut self.0;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = if labels.is_empty() {
                writeln!(text, "{name} {value}")
            } else {
                writeln!(text, "{name}{{{labels}}} {value}")
            };
        }
    }

    /// The text so far.
    pub fn finish(self) -> String {
        self.0
    }
}

/// The samples of a metric without labels.
pub fn plain(value: u64) -> [(String, u64); 1] {
    [(String::new(), value)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Guard, Limits};
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

    struct Fixed;
    impl StatusSource for Fixed {
        fn status_json(&self) -> String {
            "{\"ok\":true}".to_owned()
        }
        fn metrics_text(&self) -> String {
            let mut text = MetricsText::default();
            text.gauge("fibula_names", "Names.", plain(3));
            text.counter("fibula_frames_total", "Frames.", [("port=\"1\"".to_owned(), 9)]);
            text.finish()
        }
    }

    async fn get_path(address: &Address, path: &str) -> String {
        match address {
            Address::Tcp(address) => get(tokio::net::TcpStream::connect(address).await.unwrap(), path).await,
            Address::Unix { path: file, .. } => get(tokio::net::UnixStream::connect(file).await.unwrap(), path).await,
        }
    }

    async fn get(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[test]
    fn a_histogram_counts_every_time_under_each_bound_that_it_does_not_exceed() {
        let histogram = Histogram::default();
        for us in [100, 200, 201, 3_000_000, 60_000_000] {
            histogram.record(Duration::from_micros(us));
        }
        let mut text = MetricsText::default();
        text.histogram("fibula_update_seconds", "Times.", &histogram);
        let text = text.finish();
        for line in [
            "# TYPE fibula_update_seconds histogram\n",
            "fibula_update_seconds_bucket{le=\"0.0002\"} 2\n",
            "fibula_update_seconds_bucket{le=\"0.0005\"} 3\n",
            "fibula_update_seconds_bucket{le=\"20\"} 4\n",
            "fibula_update_seconds_bucket{le=\"+Inf\"} 5\n",
            "fibula_update_seconds_sum 63.000501\n",
            "fibula_update_seconds_count 5\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[tokio::test]
    async fn both_pages_are_served_and_others_are_not_found() {
        let gate = Gate::new(None, false, Guard::new(Limits::default()), None);
        let directory = tempfile::tempdir().unwrap();
        let socket = format!("unix:{}/status.sock", directory.path().display());
        for address in ["127.0.0.1:0", &socket] {
            let address = serve(&address.parse().unwrap(), &gate, false, Arc::new(Fixed)).await.unwrap();
            let metrics = get_path(&address, "/metrics").await;
            assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
            assert!(metrics.contains("# TYPE fibula_names gauge\nfibula_names 3\n"), "{metrics}");
            assert!(metrics.contains("fibula_frames_total{port=\"1\"} 9\n"), "{metrics}");
            assert!(get_path(&address, "/status").await.ends_with("{\"ok\":true}"));
            assert!(get_path(&address, "/other").await.starts_with("HTTP/1.1 404"));
        }
    }
}
