//! The client side of an OpenTelemetry collector: OTLP over gRPC, as far as traces of changes need it.

/// The generated messages, client and server.
pub mod v1 {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::allow_attributes_without_reason,
        reason = "generated; documented in the .proto file"
    )]
    tonic::include_proto!("opentelemetry.proto.collector.trace.v1");
}

pub use crate::etcd::channel;

use v1::KeyValue;
use v1::any_value::Value;

/// An attribute of a span or of a program.
pub fn attribute(key: &str, value: impl Into<Value>) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(v1::AnyValue { value: Some(value.into()) }) }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::StringValue(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Value::IntValue(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Self {
        Value::BoolValue(is)
    }
}
