//! Packet input and output behind one trait: in-memory ports, pcap files, AF_PACKET rings.
