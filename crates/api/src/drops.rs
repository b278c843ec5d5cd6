//! What the reasons for which switches drop frames mean, and what an operator can do: for the pages and commands that show them.

/// Each reason, by the name of its counter, with a sentence or two. The reasons themselves are those of the switch.
pub const REASONS: &[(&str, &str)] = &[
    ("runt", "The frame is shorter than an Ethernet header: look at the card and the cable."),
    (
        "truncated",
        "The frame ends inside a header, or a header claims more bytes than there are: the sender is at fault.",
    ),
    (
        "no_shim",
        "A frame without our shim came from a trunk: what is at its other end is no switch. Make the port a host port, or join it to a switch.",
    ),
    (
        "kernel_chatter",
        "The kernel of the machine at the other end of a trunk speaks for itself: it looks for IPv6 routers, or says which multicast groups it wants. Nothing is wrong. `ip link set IF addrgenmode none` there, or `sysctl net.ipv6.conf.IF.disable_ipv6=1`, ends most of it.",
    ),
    (
        "vlan_tags",
        "The frame has more than two VLAN tags, behind which nothing is looked for. Send it with two at most.",
    ),
    ("no_name", "The frame has no name of the kind that this network forwards by; it is of another protocol."),
    (
        "fragment",
        "A later fragment of a packet has no ports, so it has no name here, and no access list can judge it. Lower the MTU of the sender.",
    ),
    ("alien", "A host sent to a name that no host has. `fibula name list` shows those that exist."),
    ("acl", "No rule of the port's access list lets the packet in."),
    (
        "source_mac",
        "A host sent from a MAC address that is no name at its port. Declare the name there, or let the port learn (`learn = \"accept\"`).",
    ),
    (
        "source_arp",
        "An ARP packet speaks for an address that is not its sender's: a misconfigured host, or one that poses as another.",
    ),
    (
        "source_nd",
        "Neighbour discovery speaks for an address that is not its sender's, or for a router: a misconfigured host, or one that poses as another. Where a router is, write `ra_trusted = true` at its port in switch.toml.",
    ),
    (
        "source_ip",
        "A host sent from an IP address that belongs to a name elsewhere, or is not its own: a misconfigured host, or one that poses as another.",
    ),
    (
        "no_route",
        "The name was removed, or no path leads to its switch. `fibula trace NAME` shows where it ends; `fibula link list` shows links that are cut.",
    ),
    (
        "no_action",
        "The table gave a value that has no action: frames to unknown names have such values. Many of them for names that exist would be a fault of the tables: `fibula switch verify`.",
    ),
    ("no_fib", "The switch has no table yet: it waits for its controller."),
    (
        "no_field",
        "Names of this kind cannot be read from frames: they are text, or a fixed field without an offset in switch.toml.",
    ),
    ("unsupported", "The action is one that this data plane does not have."),
    (
        "no_port",
        "The table names a port that this switch does not have: declare the port in switch.toml, or correct the link or host.",
    ),
    (
        "input_port",
        "The frame would leave by the port where it came in: its destination is behind the same port, or its sender sees a bridge there.",
    ),
    (
        "not_local",
        "The frame reached the switch of another host than its own: it was sent to an unknown name, or while the name moved.",
    ),
    (
        "hop_limit",
        "The frame has passed as many switches as a frame may. While paths change that happens; for longer it is a loop: `fibula trace NAME`.",
    ),
    ("no_headroom", "The buffer has no room for the shim."),
    ("port_down", "The port of exit is down: look at its cable and its device."),
    (
        "tx_full",
        "The port of exit takes no more: more is sent to it than it carries, or its device is up and has no carrier. Look at its cable.",
    ),
    ("tx_refused", "The port of exit cannot send so long a frame. Raise the MTU of trunks by the 4 bytes of the shim."),
    (
        "dhcp",
        "A host asked for an address in the name of another MAC address, or sent DHCP that is malformed. Where a relay or a server is, write `dhcp_trusted = true` at its port in switch.toml.",
    ),
    (
        "dhcp_relay",
        "A host sent a DHCP request that says that a relay passed it on (its address, or option 82): it may ask for an address of another place so. Where a relay is, write `dhcp_trusted = true` at its port in switch.toml.",
    ),
    (
        "dhcp_rate",
        "A port sent more DHCP requests, to everybody or to the server, than it may (`dhcp_requests_per_second` in switch.toml): somebody takes addresses, or many hosts came at one time and will ask again.",
    ),
    (
        "dhcp_server",
        "A host answered a DHCP client, and no server is to be at its port: find out who it is. If it is a server, name it as `dhcp_server` or write `dhcp_trusted = true` at its port in switch.toml.",
    ),
    (
        "group_rate",
        "A host sent more to everybody than its port may (`group_frames_per_second` in switch.toml), or its tenant than is copied in a second: look for a storm.",
    ),
    (
        "broadcast",
        "A broadcast that nobody is to hear: it is carried if its sender's tenant is among `[groups] tenants` in controller.toml. ARP requests are answered where they come in.",
    ),
    (
        "link_local",
        "A frame for the other end of its cable alone came from a host port: LACP, spanning tree or the like of a device, or a hello, a question or another frame of a switch. If a trunk leads to a host port, `fibula link list` says so.",
    ),
    (
        "multicast",
        "A multicast that nobody is to hear: it is carried if its sender's tenant is among `[groups] tenants` in controller.toml. Neighbour solicitations are answered where they come in.",
    ),
    (
        "arp_unknown",
        "A host asked for an IP address that no name has, and its tenant is not among `[groups] tenants` in controller.toml.",
    ),
    ("arp_own", "A host asked for its own address, which needs no answer."),
    (
        "nd_unknown",
        "A host asked for an IPv6 address that no name has, and its tenant is not among `[groups] tenants` in controller.toml.",
    ),
    ("nd_own", "A host asked whether its own IPv6 address is taken, which needs no answer."),
    (
        "router_solicitation",
        "A host asked for an IPv6 router, and nobody is to hear it: it is carried if its tenant is among `[groups] tenants` in controller.toml.",
    ),
    (
        "listener_report",
        "A host said which multicast groups it wants. The switch keeps that, and nobody else is to hear it; where its tenant is not among `[groups] tenants` in controller.toml, nothing comes of it.",
    ),
    (
        "listener_refused",
        "A host said which multicast groups it wants in a wrong form, more often than its port may, or of more groups than a name or a port may have (`[subscriptions]` in switch.toml): look for a flood.",
    ),
    (
        "listener_query",
        "A host asked which multicast groups others want, as multicast routers do. Its switch asks itself, and carries no such question to other hosts.",
    ),
    (
        "no_subscriber",
        "A multicast to a group that no other host of its sender's tenant has joined: `fibula group list`. `[groups] unknown_multicast = \"flood\"` in controller.toml carries it to the whole tenant.",
    ),
    ("flow_refused", "No rule of the flow stage accepts the connection."),
    (
        "flow_invalid",
        "The packet is malformed, of no connection, or impossible in its state: the connection ended, or began elsewhere.",
    ),
    ("flow_fragment", "The flow stage cannot tell of which connection a fragment is. Lower the MTU of the sender."),
    (
        "flow_table",
        "The table of connections is full: raise its size in switch.toml, or look for a flood with `fibula flow list`.",
    ),
    ("flow_no_server", "The virtual address has no server that takes new connections: `fibula flow servers`."),
    ("flow_no_port", "Source NAT has no free port for the connection: give it more addresses."),
    ("bad_header", "The IP header or its checksum is wrong: the sender, or the way to it, is at fault."),
    ("ttl_expired", "The packet has passed too many routers: there is a loop outside, or somebody traces the route."),
    (
        "too_big",
        "A packet is longer than the link outside takes by which it has to leave. Its sender is told, and sends shorter ones; if it goes on, something keeps ICMP from it.",
    ),
    ("not_for_gateway", "A frame from outside is not addressed to the gateway."),
    ("not_routable", "Routers do not forward packets to or from this address."),
    (
        "no_neighbour",
        "The next hop outside has not yet said its MAC address: the gateway has asked. If it stays so, the next hop is down.",
    ),
    ("neighbour_learnt", "The answer of a next hop outside, which has no other use: nothing is wrong."),
    (
        "rx_oversized",
        "A frame that came in is longer than the buffers of the switch, so its device discarded it. Lower the MTU of the sender, or turn off what joins or delays frames there (`ethtool -K IF gro off tso off gso off`).",
    ),
    (
        "rx_overrun",
        "Frames came faster than the switch took them from the device, whose ring was full. Raise `ring_frames` or `workers` in switch.toml, or see what else takes the processors.",
    ),
    (
        "rx_stale",
        "The frame waited for longer than `restart_wait_ms` while the switch was restarted: it was too old to be sent on.",
    ),
    (
        "rx_malformed",
        "The device delivered a frame that is damaged or not whole. Look at the cable and the card (`ip -s -s link show IF`, `ethtool -S IF`).",
    ),
    (
        "bundle_member",
        "The frame came by a member of a bundle that takes none: LACP has not agreed there. The state of each member is in `/status`.",
    ),
    (
        "if_rx_dropped",
        "The kernel or the card discarded frames at an interface before the switch had them: they were longer than its MTU, or its queues were full. Compare the MTU with that at the other end, and see `ip -s -s link show IF`.",
    ),
    (
        "if_rx_errors",
        "The card received damaged frames at an interface: look at the cable and at the other end (`ip -s -s link show IF`, `ethtool -S IF`).",
    ),
    (
        "if_tx_errors",
        "The card took frames at an interface and could not send them: look at the cable and at the other end (`ip -s -s link show IF`, `ethtool -S IF`).",
    ),
];

/// Reasons of which no frame is expected to be dropped in a network that works: when one begins, there is an event.
const FAULTS: &[&str] = &[
    "rx_oversized",
    "rx_overrun",
    "rx_malformed",
    "if_rx_dropped",
    "if_rx_errors",
    "if_tx_errors",
    "tx_full",
    "tx_refused",
    "no_headroom",
    "flow_table",
    "flow_no_server",
    "flow_no_port",
    "no_shim",
];

/// How many reasons are worth an event.
pub const N_EVENTS: usize = FAULTS.len();

/// How many frames in a second have to be dropped for a reason so that it is worth an event; none: it is expected.
pub fn worth_an_event(reason: &str) -> Option<f64> {
    match reason {
        // A sender that is faster than its receiver fills queues, and slows down by what is lost.
        "tx_full" => Some(100.0),
        _ => FAULTS.contains(&reason).then_some(0.0),
    }
}

/// What a reason means, and what to do; empty for one that is not known here.
pub fn why(reason: &str) -> &'static str {
    REASONS.iter().find(|(name, _)| *name == reason).map_or("", |(_, why)| why)
}

/// Reasons for which a frame is dropped as it should be: nobody misses it, however many there are.
const EXPECTED: [&str; 12] = [
    "kernel_chatter",
    "broadcast",
    "multicast",
    "link_local",
    "arp_unknown",
    "arp_own",
    "nd_unknown",
    "nd_own",
    "router_solicitation",
    "listener_report",
    "listener_query",
    "neighbour_learnt",
];

/// Whether a drop for this reason is as it should be.
pub fn is_expected(reason: &str) -> bool {
    EXPECTED.contains(&reason)
}
