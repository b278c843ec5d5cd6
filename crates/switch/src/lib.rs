//! The data plane: parse, lookup in batches, act, transmit; ports, counters, ARP and ND answers; the daemon around it.
