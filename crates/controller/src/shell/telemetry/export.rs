//! Sends traces to the collector, as fast as it takes them. While it is away they are counted as lost.

use super::Counts;
use api::otlp::attribute;
use api::otlp::v1::trace_service_client::TraceServiceClient;
use api::otlp::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse, InstrumentationScope, Resource, ResourceSpans, ScopeSpans,
    Span,
};
use fib::name::clip;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::transport::Channel;

/// How long the collector may take.
pub(super) const ANSWER: Duration = Duration::from_secs(5);

/// Pause before it is asked again after it failed.
const PAUSE: Duration = Duration::from_secs(5);

/// Traces in one request.
const TOGETHER: usize = 32;

/// Runs until the controller ends.
pub(super) async fn run(
    collector: Channel,
    instance: String,
    mut waiting: mpsc::Receiver<Vec<Span>>,
    counts: Arc<Counts>,
) {
    let mut client = TraceServiceClient::new(collector);
    let (mut was_away, mut has_rejected) = (false, false);
    loop {
        let mut traces = Vec::new();
        let n_traces = waiting.recv_many(&mut traces, TOGETHER).await as u64;
        if n_traces == 0 {
            return;
        }
        let request = request(&instance, traces.into_iter().flatten().collect());
        let error = match tokio::time::timeout(ANSWER, client.export(request)).await {
            Ok(Ok(answer)) => {
                // It has the others, and would reject these again.
                if let Some(error) =
                    rejection(answer.into_inner()).filter(|_| !std::mem::replace(&mut has_rejected, true))
                {
                    tracing::warn!(
                        error,
                        "the collector of [telemetry] does not accept all of each trace; this is logged once"
                    );
                }
                None
            }
            Ok(Err(status)) => Some(api::client::reason(&status)),
            Err(_) => Some(format!("no answer within {} s", ANSWER.as_secs())),
        };
        let Some(error) = error else {
            counts.sent.fetch_add(n_traces, Relaxed);
            if std::mem::take(&mut was_away) {
                tracing::info!("the collector of traces answers again");
            }
            continue;
        };
        counts.lost.fetch_add(n_traces, Relaxed);
        if !std::mem::replace(&mut was_away, true) {
            tracing::warn!(error, "the collector of [telemetry] accepts no traces; they are lost until it does");
        }
        #[expect(clippy::disallowed_methods, reason = "a collector that is away is not asked all the time")]
        tokio::time::sleep(PAUSE).await;
    }
}

fn request(instance: &str, spans: Vec<Span>) -> ExportTraceServiceRequest {
    let version = env!("CARGO_PKG_VERSION");
    let attributes = vec![
        attribute("service.name", "fibula-controller"),
        attribute("service.version", version),
        attribute("service.instance.id", instance),
    ];
    let scope = InstrumentationScope { name: "fibula_controller".to_owned(), version: version.to_owned() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
    let resource = Some(Resource { attributes });
    ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { resource, scope_spans }] }
}

/// Why the collector took a part only.
fn rejection(answer: ExportTraceServiceResponse) -> Option<String> {
    let partial = answer.partial_success.filter(|partial| partial.rejected_spans > 0)?;
    Some(format!("it rejected {} spans: {}", partial.rejected_spans, clip(&partial.error_message)))
}
