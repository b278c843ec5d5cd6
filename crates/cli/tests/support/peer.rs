//! Requests of HTTP/2 as bytes: a client library would wait for its windows, and end its messages.

/// What a client sends first: the preface, and settings that are the defaults.
pub(crate) const FIRST: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
}

/// A request of gRPC on `stream` whose message has `len` bytes, of which only a few come.
pub(crate) fn unfinished(stream: u32, path: &str, len: u32) -> Vec<u8> {
    let mut data = vec![0];
    data.extend(len.to_be_bytes());
    data.extend([0; 1000]);
    request(stream, path, &data, 0)
}

/// A whole request of gRPC on `stream`.
pub(crate) fn whole(stream: u32, path: &str, message: &[u8]) -> Vec<u8> {
    let mut data = vec![0];
    data.extend((message.len() as u32).to_be_bytes());
    data.extend(message);
    request(stream, path, &data, 1)
}

fn request(stream: u32, path: &str, data: &[u8], flags: u8) -> Vec<u8> {
    let mut headers = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "x"),
        (":path", path),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        // A literal without indexing, its name and its value as they are.
        headers.push(0);
        for text in [name, value] {
            headers.push(text.len() as u8);
            headers.extend(text.as_bytes());
        }
    }
    let mut out = Vec::new();
    frame(&mut out, 1, 4, stream, &headers);
    frame(&mut out, 0, flags, stream, data);
    out
}
