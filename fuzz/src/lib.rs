//! Fuzz targets: one function for each kind of bytes that come from outside.
//!
//! | target | bytes | what must hold besides "no panic" |
//! |---|---|---|
//! | `southbound` | messages of a controller, one after another | a refused message changes nothing that is served; what is held can be saved and loaded |
//! | `saved` | the saved image of a switch | what loads can be saved, and loads again as the same |
//! | `files` | files of FIBs, filters, counting filters, prefixes | what was read is written as the same bytes |
//! | `frames` | frames on the ports of a switch | every frame is sent, a hello that means the same when written, or counted as dropped |
//! | `flows` | the same, with connection tracking, load balancer and source NAT | as above |
//! | `gateway` | the same, with IP routing and connection tracking | as above |
//! | `dhcp` | the same, at ports that check sources, learn, and lead DHCP to a server | as above |
//! | `lacp` | frames of LACP at the members of a bundle | members that send take what comes, lead to one partner, and are enough |
//! | `hellos` | hellos of switches at a trunk | what is read means the same when written; no link is up to nobody |
//! | `groups` | reports of multicast groups, with right checksums | subscriptions stay within their limits, and end |
//! | `etcd` | the answers of etcd to a controller that follows, and to one that leads | commits follow one another; one that failed does not count |
//! | `lldp` | frames of LLDP at a port, one after another | texts are bounded and have no control characters, and so many neighbours are kept |
//! | `text` | lists of names, configuration files, topologies | what is read means the same when written |
//! | `northbound` | requests of operators, one after another | a network restored from its rows is the network; a switch that follows answers as it should |
//! | `hello` | the first bytes of a connection with TLS; certificates | nobody is let in |
//! | `uplink` | what a switch sends to its controller | what was read is written as the same bytes |
//!
//! The binary `fuzz` runs one of them under libFuzzer: see `fuzz/README.md`. The tests run each over its seeds, over inputs
//! that once failed (`fuzz/found`), and over random changes of both; so the targets build and hold without libFuzzer, too.

mod etcd;
mod files;
mod frames;
mod groups;
mod hellos;
mod lacp;
mod lldp;
mod northbound;
mod pieces;
mod southbound;
mod text;
mod tls;

/// One kind of bytes.
pub struct Target {
    /// Its name at the command line.
    pub name: &'static str,
    /// Reads the bytes; panics if something does not hold.
    pub run: fn(&[u8]),
    /// Good inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets. They know the designs of the papers, too.
pub fn targets() -> &'static [Target] {
    papers::add();
    TARGETS
}

static TARGETS: &[Target] = &[
    Target { name: "southbound", run: southbound::messages, seeds: southbound::message_seeds },
    Target { name: "saved", run: southbound::saved, seeds: southbound::saved_seeds },
    Target { name: "uplink", run: southbound::uplink, seeds: southbound::uplink_seeds },
    Target { name: "files", run: files::files, seeds: files::seeds },
    Target { name: "frames", run: frames::plain, seeds: frames::plain_seeds },
    Target { name: "flows", run: frames::flows, seeds: frames::flow_seeds },
    Target { name: "gateway", run: frames::gateway, seeds: frames::gateway_seeds },
    Target { name: "dhcp", run: frames::dhcp, seeds: frames::dhcp_seeds },
    Target { name: "lacp", run: lacp::run, seeds: lacp::seeds },
    Target { name: "hellos", run: hellos::run, seeds: hellos::seeds },
    Target { name: "groups", run: groups::run, seeds: groups::seeds },
    Target { name: "etcd", run: etcd::answers, seeds: etcd::seeds },
    Target { name: "lldp", run: lldp::run, seeds: lldp::seeds },
    Target { name: "text", run: text::text, seeds: text::seeds },
    Target { name: "hello", run: tls::hello, seeds: tls::seeds },
    Target { name: "northbound", run: northbound::requests, seeds: northbound::seeds },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    targets().iter().find(|target| target.name == name)
}
