use super::*;
use crate::v1::lookup_client::LookupClient;
use crate::v1::{LookupAnswer, LookupRequest};
use bytes::Bytes;
use http_body::{Body, Frame};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tower::Service;

mod floods;

struct Nothing;

impl crate::lookup::LookupSource for Nothing {
    fn lookup(&self, names: &[&str]) -> Result<Vec<LookupAnswer>, Status> {
        Ok(names.iter().map(|_| LookupAnswer::default()).collect())
    }
}

async fn serve(limits: Limits) -> (SocketAddr, Arc<Guard>) {
    let guard = Guard::new(limits);
    let gate = crate::gate::Gate::new(None, false, Arc::clone(&guard), None);
    let address = crate::lookup::serve(&"127.0.0.1:0".parse().unwrap(), &gate, Arc::new(Nothing)).await.unwrap();
    (address.tcp().unwrap(), guard)
}

async fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

async fn ask(address: SocketAddr, names: usize) -> Result<usize, Status> {
    let request = LookupRequest { names: vec!["x".repeat(100); names] };
    Ok(LookupClient::new(channel(address).await).lookup(request).await?.into_inner().answers.len())
}

/// A gRPC message that says it has `len` bytes, sends a few of them, and goes on for ever.
struct Unfinished(Option<Bytes>);

impl Unfinished {
    fn of(len: u32) -> Self {
        let mut start = vec![0];
        start.extend(len.to_be_bytes());
        start.extend([0; 1000]);
        Unfinished(Some(start.into()))
    }
}

impl Body for Unfinished {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.0.take().map_or(Poll::Pending, |data| Poll::Ready(Some(Ok(Frame::data(data)))))
    }
}

/// Begins a request with an unfinished message; its refusal, if it is answered.
async fn begin(mut channel: Channel, len: u32) -> Status {
    let request = axum::http::Request::post("http://x/fibula.v1.Lookup/Lookup")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(Unfinished::of(len)))
        .unwrap();
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
    let response = channel.call(request).await.unwrap();
    Status::from_header_map(response.headers()).expect("a request that never ends is refused or waits")
}

/// Whether the other end closed the connection; waits until it does.
async fn is_closed(mut stream: TcpStream) -> bool {
    // The server speaks first in HTTP/2 only.
    stream.read(&mut [0; 16]).await.is_ok_and(|n| n == 0)
}

/// Waits for what a task of this thread will do.
async fn until(mut done: impl FnMut() -> bool) {
    let waiting = async {
        while !done() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it happens soon");
}

#[tokio::test]
async fn connections_that_do_nothing_lock_nobody_out() {
    let (address, guard) = serve(Limits { connections: 20, connections_per_peer: 8, ..Limits::default() }).await;
    let mut idle = Vec::new();
    for _ in 0..50 {
        idle.push(TcpStream::connect(address).await.unwrap());
        assert_eq!(ask(address, 3).await.unwrap(), 3);
    }
    assert!(guard.connections() <= 8 && guard.refused(Limit::Replaced) >= 42, "{guard:?}");
    assert!(is_closed(idle.swap_remove(0)).await, "the oldest is closed");
}

#[tokio::test]
async fn strangers_close_each_other_and_not_who_has_asked_something() {
    let (address, guard) = serve(Limits { connections: 4, ..Limits::default() }).await;
    let mut operator = TcpStream::connect(address).await.unwrap();
    let get = b"GET /lookup?name=x HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut begun = b"POST /fibula.v1.Lookup/Lookup HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc\r\n\
        Content-Length: 5005\r\n\r\n"
        .to_vec();
    begun.extend([0, 0, 0, 0x13, 0x88]);
    let (mut answer, mut strangers) = ([0; 4096], Vec::new());
    for n_strangers in 1..=9 {
        // Between its requests there are more strangers than connections.
        if n_strangers == 1 || n_strangers == 9 {
            operator.write_all(get).await.unwrap();
            let n = operator.read(&mut answer).await.unwrap_or(0);
            assert!(answer[..n].starts_with(b"HTTP/1.1 200"), "strangers: {n_strangers}, {:?}", &answer[..n]);
        }
        let mut stranger = TcpStream::connect(address).await.unwrap();
        // The requests of two thirds never end.
        if n_strangers % 3 > 0 {
            stranger.write_all(&begun).await.unwrap();
        }
        strangers.push(stranger);
        until(|| guard.connections() + guard.refused(Limit::Replaced) as usize == 1 + n_strangers).await;
    }
    until(|| guard.request_bytes() == 2 * 5000).await;
    assert_eq!((guard.connections(), guard.refused(Limit::Connections)), (4, 0), "others can be closed");
    // It may see an answer first, or a reset. The newest stays open.
    let _ = strangers[0].read_to_end(&mut Vec::new()).await;
    let newest = strangers.last_mut().unwrap();
    assert_eq!(newest.try_read(&mut answer).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn newcomer_is_closed_when_all_connections_have_requests() {
    let (address, guard) = serve(Limits { connections: 1, ..Limits::default() }).await;
    let busy = channel(address).await;
    LookupClient::new(busy.clone()).lookup(LookupRequest::default()).await.unwrap();
    let request = tokio::spawn(begin(busy, 5000));
    until(|| guard.request_bytes() > 0).await;
    assert!(is_closed(TcpStream::connect(address).await.unwrap()).await);
    assert_eq!(guard.refused(Limit::Connections), 1);
    request.abort();
}

#[tokio::test]
async fn connection_without_a_request_is_closed_in_time() {
    let (address, guard) = serve(Limits { first_request_ms: 30, idle_ms: 40, ..Limits::default() }).await;
    assert!(is_closed(TcpStream::connect(address).await.unwrap()).await);
    assert_eq!((guard.refused(Limit::FirstRequest), guard.refused(Limit::Idle)), (1, 0));

    let mut asking = TcpStream::connect(address).await.unwrap();
    asking.write_all(b"GET /lookup?name=x HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    asking.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "answered first");
    assert_eq!(guard.refused(Limit::Idle), 1);
    until(|| guard.connections() == 0).await;
}

#[tokio::test]
async fn unfinished_messages_are_bounded_by_connection_and_in_all() {
    let kib = 1 << 10;
    let limits = Limits {
        message_bytes: 100 * kib,
        connection_bytes: 250 * kib,
        peer_bytes: 400 * kib,
        total_bytes: 400 * kib,
        ..Limits::default()
    };
    let (address, guard) = serve(limits).await;
    let one = channel(address).await;
    let too_large = begin(one.clone(), 60 << 20).await;
    assert_eq!(too_large.code(), Code::ResourceExhausted);
    assert!(too_large.message().contains("limits.message_bytes"), "{too_large}");

    // Each is counted whole when it begins: the third of one connection is over.
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..3 {
        waiting.spawn(begin(one.clone(), 100 << 10));
    }
    let refused = waiting.join_next().await.unwrap().unwrap();
    assert!(refused.message().contains("limits.connection_bytes"), "{refused}");
    assert_eq!(guard.request_bytes(), 200 << 10);
    // Two more fit in all.
    let other = channel(address).await;
    for _ in 0..2 {
        waiting.spawn(begin(other.clone(), 100 << 10));
    }
    until(|| guard.request_bytes() == 400 << 10).await;
    // Nobody else at this address is served meanwhile, and everybody afterwards.
    let refused = ask(address, 1).await.unwrap_err();
    assert!(refused.message().contains("limits.peer_bytes"), "{refused}");
    waiting.shutdown().await;
    drop((one, other));
    until(|| guard.request_bytes() == 0).await;
    assert_eq!(ask(address, 900).await.unwrap(), 900);
}

#[tokio::test]
async fn empty_items_take_what_they_cost_once_decoded() {
    let limits = Limits { message_bytes: 1 << 20, connection_bytes: 1 << 20, ..Limits::default() };
    let (address, guard) = serve(limits).await;
    let empty = |n| LookupRequest { names: vec![String::new(); n] };
    let mut client = LookupClient::new(channel(address).await);
    // 100 KB of bytes, and 5 MB once decoded.
    let refused = client.lookup(empty(50_000)).await.unwrap_err();
    assert!(refused.message().contains("limits.connection_bytes"), "{refused}");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(client.lookup(empty(1000)).await.unwrap().into_inner().answers.len(), 1000);
    drop(client);
    until(|| guard.request_bytes() == 0).await;
}

#[tokio::test]
async fn message_that_does_not_come_to_its_end_is_given_up() {
    let (address, guard) = serve(Limits { message_ms: 30, ..Limits::default() }).await;
    let status = begin(channel(address).await, 5000).await;
    assert_eq!((status.code(), guard.refused(Limit::MessageTime)), (Code::DeadlineExceeded, 1), "{status}");
}

#[tokio::test]
async fn peer_makes_as_many_requests_a_second_as_it_may() {
    let (address, guard) = serve(Limits { requests_per_second: 1, ..Limits::default() }).await;
    let mut client = LookupClient::new(channel(address).await);
    let mut codes = Vec::new();
    for _ in 0..6 {
        codes.push(client.lookup(LookupRequest::default()).await.map_or_else(|status| status.code(), |_| Code::Ok));
    }
    assert_eq!(codes[..2], [Code::Ok; 2]);
    assert!(codes.contains(&Code::ResourceExhausted) && guard.refused(Limit::Requests) > 0, "{codes:?}");
}

#[test]
fn limits_that_contradict_each_other_are_refused() {
    assert_eq!(Limits::default().check(), Ok(()));
    assert!(Limits::default().most_bytes() < 2 << 30);
    let cases = [
        (Limits { connections: 0, ..Limits::default() }, "limits.connections = 0"),
        (Limits { peer_bytes: 1 << 20, ..Limits::default() }, "is more than limits.peer_bytes"),
        (Limits { message_bytes: 1 << 40, ..Limits::default() }, "limits.message_bytes"),
    ];
    for (limits, reason) in cases {
        let error = limits.check().unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}
