//! Names, actions, RIB, topology, and the network that derives a FIB a switch from one shared graph. No I/O, no clock.
