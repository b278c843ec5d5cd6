//! Networks of forwarders: every node of a topology a switch.
