//! Answers about names at one address: gRPC (`fibula.v1.Lookup`) and plain HTTP.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /lookup?name=A&name=B` | | JSON |
//! | `POST /lookup` | one name per line, in the dialect of [`fib::text`] | JSON |
//! | gRPC `Lookup` | [`LookupRequest`] | [`LookupReply`] |
//!
//! JSON: `{"answers":[{"name":"A","outcome":"found","port":17},{"name":"B","outcome":"unknown"}]}`, in the order of the
//! names; with an error, `{"error":"..."}` and a status of 400 (not a name of the switch's kind), 413 (too many names
//! or bytes) or 503 (no table yet).
//!
//! Limits: [`MAX_LOOKUP_NAMES`] names and [`MAX_LOOKUP_BYTES`] bytes per request.

use crate::REFUSED_ITEM;
use crate::address::Address;
use crate::gate::{Gate, admit_web};
use crate::v1::lookup_server::{Lookup, LookupServer};
use crate::v1::{LookupAnswer, LookupOutcome, LookupReply, LookupRequest};
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use fib::text::{self, Dialect, Line, LineError, Lines, bounded, unpacked};
use serde_json::{Map, Value, json};
use std::io::Read;
use std::sync::Arc;
use tonic::{Code, Request, Status};

/// Names a request may have.
pub const MAX_LOOKUP_NAMES: usize = 1 << 16;
/// Bytes a request may have.
pub const MAX_LOOKUP_BYTES: usize = 16 << 20;

/// The source of the answers.
pub trait LookupSource: Send + Sync + 'static {
    /// The answers to these names, in their order. There are at most [`MAX_LOOKUP_NAMES`].
    /// # Errors
    /// A status that says what to do.
    fn lookup(&self, names: &[&str]) -> Result<Vec<LookupAnswer>, Status>;

    /// The dialect of a list of names of the switch's kind.
    fn dialect(&self) -> Dialect {
        Dialect::Plain
    }

    /// Counts a request that was refused before it reached [`LookupSource::lookup`].
    fn refused(&self) {}
}

/// Serves `source` on `address` to peers that `gate` admits, until the runtime ends, and returns the address it listens
/// on (port 0: the system's choice).
/// # Errors
/// When the address cannot be bound.
pub async fn serve(address: &Address, gate: &Arc<Gate>, source: Arc<dyn LookupSource>) -> std::io::Result<Address> {
    let listener = gate.listen(address, true).await?;
    let bound = listener.address().clone();
    let service = Service(source);
    let grpc = LookupServer::new(service.clone())
        .max_decoding_message_size(MAX_LOOKUP_BYTES)
        .max_encoding_message_size(MAX_LOOKUP_BYTES);
    let router = Router::new()
        .route("/lookup", get(by_query).post(by_lines))
        .layer(DefaultBodyLimit::max(MAX_LOOKUP_BYTES))
        .with_state(service)
        .route_service("/fibula.v1.Lookup/{*method}", grpc)
        .layer(listener.limits())
        .layer(from_fn_with_state(Arc::clone(gate), admit_web));
    crate::serve::serve(listener, router, &gate.limits().limits());
    Ok(bound)
}

#[derive(Clone)]
struct Service(Arc<dyn LookupSource>);

impl Service {
    fn answers(&self, names: &[&str]) -> Result<Vec<LookupAnswer>, Status> {
        if names.len() > MAX_LOOKUP_NAMES {
            self.0.refused();
            let got = names.len();
            return Err(Status::resource_exhausted(format!(
                "{got} names are too many for one request; send at most {MAX_LOOKUP_NAMES} in each"
            )));
        }
        self.0.lookup(names)
    }

    /// `lines`: the line numbers of the names, if they came as lines.
    fn json(&self, names: &[&str], lines: &[u64]) -> Response {
        let answers = match self.answers(names) {
            Ok(answers) => answers,
            Err(status) => {
                let line = refused_item(&status).and_then(|item| lines.get(item));
                let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
                return error(code_of(&status), &(place + status.message()));
            }
        };
        let rows: Vec<Value> = names.iter().zip(answers).map(|(name, answer)| row(name, &answer)).collect();
        ([(CONTENT_TYPE, "application/json")], json!({ "answers": rows }).to_string()).into_response()
    }

    fn refuse(&self, message: &str) -> Response {
        self.0.refused();
        error(StatusCode::BAD_REQUEST, message)
    }
}

/// The index of the refused name in a request, from 0.
pub fn refused_item(status: &Status) -> Option<usize> {
    status.metadata().get(REFUSED_ITEM)?.to_str().ok()?.parse().ok()
}

#[tonic::async_trait]
impl Lookup for Service {
    async fn lookup(&self, request: Request<LookupRequest>) -> Result<tonic::Response<LookupReply>, Status> {
        let LookupRequest { names } = request.into_inner();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let answers = self.answers(&names)?;
        Ok(tonic::Response::new(LookupReply { answers }))
    }
}

async fn by_query(State(service): State<Service>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let encoded = query.split('&').filter_map(|pair| pair.strip_prefix("name="));
    let Some(names) = encoded.map(percent_decoded).collect::<Option<Vec<String>>>().filter(|names| !names.is_empty())
    else {
        let how =
            "ask with GET /lookup?name=NAME (percent-encoded, repeatable), or POST /lookup with one name per line";
        return service.refuse(how);
    };
    service.json(&names.iter().map(String::as_str).collect::<Vec<_>>(), &[])
}

/// Decodes a value of a query; none if the result is not text.
fn percent_decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (digits, tail) = rest.split_first_chunk::<2>()?;
                rest = tail;
                let digit = |byte: u8| char::from(byte).to_digit(16);
                (digit(digits[0])? * 16 + digit(digits[1])?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

async fn by_lines(State(service): State<Service>, body: Result<Bytes, BytesRejection>) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => {
            service.0.refused();
            return error(rejection.status(), &rejection.body_text());
        }
    };
    let (mut names, mut lines) = (Vec::new(), Vec::new());
    for line in questions(&body, service.0.dialect()) {
        match line {
            Ok(line) => {
                lines.push(line.number);
                names.push(line.text);
            }
            Err(wrong) => return service.refuse(&wrong.to_string()),
        }
        if names.len() > MAX_LOOKUP_NAMES {
            break;
        }
    }
    service.json(&names.iter().map(String::as_str).collect::<Vec<_>>(), &lines)
}

/// The lines of a request that contain names. A packed request is unpacked only up to the limits of a request.
fn questions(body: &[u8], dialect: Dialect) -> impl Iterator<Item = Result<Line, LineError>> {
    let names: Box<dyn Read + '_> = match unpacked(body) {
        Ok(names) => Box::new(bounded(names, MAX_LOOKUP_BYTES as u64)),
        // Reports the error again, with the line.
        Err(_) => Box::new(body),
    };
    text::names(Lines::new(names), dialect)
}

/// The word for an outcome in JSON and tables.
pub fn word(outcome: LookupOutcome) -> &'static str {
    match outcome {
        LookupOutcome::Unknown => "unknown",
        LookupOutcome::Found => "found",
        LookupOutcome::Unchecked => "unchecked",
        LookupOutcome::Unreachable => "unreachable",
    }
}

/// The port of an answer that has one.
pub fn port(answer: &LookupAnswer) -> Option<u32> {
    matches!(answer.outcome(), LookupOutcome::Found | LookupOutcome::Unchecked).then_some(answer.port)
}

fn row(name: &str, answer: &LookupAnswer) -> Value {
    let mut row = Map::new();
    row.insert("name".to_owned(), name.into());
    row.insert("outcome".to_owned(), word(answer.outcome()).into());
    if let Some(port) = port(answer) {
        row.insert("port".to_owned(), port.into());
    }
    row.into()
}

fn code_of(status: &Status) -> StatusCode {
    match status.code() {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::ResourceExhausted => StatusCode::PAYLOAD_TOO_LARGE,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn error(code: StatusCode, message: &str) -> Response {
    (code, [(CONTENT_TYPE, "application/json")], json!({ "error": message }).to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_a_body_are_read_as_any_list() {
        let read = |body: &[u8], dialect| {
            let lines = questions(body, dialect).map(|line| line.map(|line| (line.number, line.text)));
            lines.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())
        };
        let text = "\u{feff}name\r\n# mine\r\n 10.0.0.1 \r\n\r\n10.0.0.2,,";
        let names = vec![(3, "10.0.0.1".to_owned()), (5, "10.0.0.2".to_owned())];
        assert_eq!(read(text.as_bytes(), Dialect::Plain), Ok(names.clone()));
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, text.as_bytes()).unwrap();
        assert_eq!(read(&packed.finish().unwrap(), Dialect::Plain), Ok(names));
        assert_eq!(read(b"# a\n b ", Dialect::Literal), Ok(vec![(1, "# a".to_owned()), (2, " b ".to_owned())]));
        assert!(read(b"10.0.0.1\n\xff", Dialect::Plain).unwrap_err().starts_with("line 2: "));
        assert!(read(b"PK\x03\x04", Dialect::Plain).unwrap_err().starts_with("line 1: this is a zip"));
    }

    #[test]
    fn names_come_out_of_a_query_as_they_were_put_in() {
        for (encoded, name) in [
            ("http%3A%2F%2Fcdn%2Fa%2Bb%3Fx%3D1%26y", "http://cdn/a+b?x=1&y"),
            ("/srv/video/intro.mp4", "/srv/video/intro.mp4"),
            ("a+b%20c", "a b c"),
            ("%C3%BC", "ü"),
        ] {
            assert_eq!(percent_decoded(encoded).as_deref(), Some(name));
        }
        for wrong in ["%", "%4", "%zz", "%+1", "%ff"] {
            assert_eq!(percent_decoded(wrong), None, "{wrong}");
        }
    }
}
