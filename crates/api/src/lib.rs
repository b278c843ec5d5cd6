//! The gRPC services, their messages, conversions to and from the domain types, and a client.
