//! The controller: a thin shell round fib::network with a durable store, the northbound and the southbound service.
