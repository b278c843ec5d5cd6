//! The reasons for which switches drop frames: what they mean, and what an operator can do, for the pages and commands
//! that show them.

/// Each reason, by the name of its counter, with its explanation. The switch defines the reasons.
pub const REASONS: &[(&str, &str)] = &[
    ("runt", "The frame is shorter than an Ethernet header: check the network card and the cable."),
    ("truncated", "The frame ends inside a header, or a header claims more bytes than it has: the sender is at fault."),
    (
        "no_shim",
        "A frame without the shim came from a trunk: its other end is not a switch. Make the port a host port, or connect it to a switch.",
    ),
    (
        "kernel_chatter",
        "The kernel of the machine at the other end of a trunk sends frames of its own: it solicits IPv6 routers, or reports multicast groups. Nothing is wrong. `ip link set IF addrgenmode none` there, or `sysctl net.ipv6.conf.IF.disable_ipv6=1`, stops most of them.",
    ),
    ("vlan_tags", "The frame has more than two VLAN tags, which are not parsed further. Send it with at most two."),
    ("no_name", "The frame has no name of the kind that this network forwards by; it belongs to another protocol."),
    (
        "fragment",
        "A later fragment of a packet has no ports, so it has no name here, and access lists cannot check it. Lower the MTU of the sender.",
    ),
    ("alien", "A host sent to a name that no host has. `fibula name list` shows those that exist."),
    ("acl", "No rule of the port's access list permits the packet."),
    (
        "source_mac",
        "A host sent from a MAC address that is not a name at its port. Declare the name there, or let the port learn (`learn = \"accept\"`).",
    ),
    (
        "source_arp",
        "An ARP packet claims an address that is not its sender's: the host is misconfigured, or impersonates another.",
    ),
    (
        "source_nd",
        "A neighbour discovery packet claims an address that is not its sender's, or a router: the host is misconfigured, or impersonates another. If a router is there, write `ra_trusted = true` at its port in switch.toml.",
    ),
    (
        "source_ip",
        "A host sent from an IP address that belongs to a name elsewhere, or is not its own: the host is misconfigured, or impersonates another.",
    ),
    (
        "no_route",
        "The name was removed, or no path leads to its switch. `fibula trace NAME` shows where it ends; `fibula link list` shows links that are cut.",
    ),
    (
        "no_action",
        "The table gave a value without an action, as happens for unknown names. Many of these for names that exist would mean damaged tables: `fibula switch verify`.",
    ),
    ("no_fib", "The switch has no table yet: it is waiting for its controller."),
    (
        "no_field",
        "Names of this kind cannot be read from frames: they are text, or a fixed field without an offset in switch.toml.",
    ),
    ("unsupported", "This data plane does not support the action."),
    (
        "no_port",
        "The table names a port that this switch does not have: declare the port in switch.toml, or correct the link or host.",
    ),
    (
        "input_port",
        "The frame would leave by its input port: its destination is behind the same port, or its sender is behind a bridge.",
    ),
    (
        "not_local",
        "The frame reached a switch without its destination: it was sent to an unknown name, or while the name moved.",
    ),
    (
        "hop_limit",
        "The frame has passed the maximum number of switches. This happens while paths change; if it lasts, there is a loop: `fibula trace NAME`.",
    ),
    ("no_headroom", "The buffer has no room for the shim."),
    ("port_down", "The output port is down: check its cable and its device."),
    (
        "tx_full",
        "The queue of the output port is full: more is sent to it than it can carry, or its device is up without a carrier. Check its cable.",
    ),
    ("tx_refused", "The frame is too long for the output port. Raise the MTU of trunks by the 4 bytes of the shim."),
    (
        "dhcp",
        "A host requested an address for another MAC address, or sent malformed DHCP. If a relay or a server is there, write `dhcp_trusted = true` at its port in switch.toml.",
    ),
    (
        "dhcp_relay",
        "A host sent a DHCP request with the marks of a relay (its address, or option 82), with which it could get an address of another subnet. If a relay is there, write `dhcp_trusted = true` at its port in switch.toml.",
    ),
    (
        "dhcp_rate",
        "A port sent more DHCP requests, broadcast or to the server, than allowed (`dhcp_requests_per_second` in switch.toml): a host exhausts addresses, or many hosts started at once and will retry.",
    ),
    (
        "dhcp_server",
        "A host answered a DHCP client, but its port is not trusted as one of a server: find out which host it is. If it is a server, set `dhcp_server` to it or write `dhcp_trusted = true` at its port in switch.toml.",
    ),
    (
        "group_rate",
        "A host sent more broadcasts than allowed at its port (`group_frames_per_second` in switch.toml), or its tenant more than are copied per second: look for a broadcast storm.",
    ),
    (
        "broadcast",
        "A broadcast without receivers: it is carried if its sender's tenant is in `[groups] tenants` in controller.toml. ARP requests are answered where they enter.",
    ),
    (
        "link_local",
        "A link-local frame came from a host port: LACP, spanning tree or the like of a device, or a hello, a query or another frame of a switch. If a trunk leads to a host port, `fibula link list` says so.",
    ),
    (
        "multicast",
        "A multicast without receivers: it is carried if its sender's tenant is in `[groups] tenants` in controller.toml. Neighbour solicitations are answered where they enter.",
    ),
    (
        "arp_unknown",
        "A host asked for an IP address that no name has, and its tenant is not in `[groups] tenants` in controller.toml.",
    ),
    ("arp_own", "A host asked for its own address, which needs no answer."),
    (
        "nd_unknown",
        "A host asked for an IPv6 address that no name has, and its tenant is not in `[groups] tenants` in controller.toml.",
    ),
    ("nd_own", "A host asked whether its own IPv6 address is taken, which needs no answer."),
    (
        "router_solicitation",
        "A host asked for an IPv6 router, and there are no receivers: such a frame is carried if its tenant is in `[groups] tenants` in controller.toml.",
    ),
    (
        "listener_report",
        "A host reported its multicast groups. The switch records the report and does not forward it; if the tenant is not in `[groups] tenants` in controller.toml, it has no effect.",
    ),
    (
        "listener_refused",
        "A host's report of multicast groups is malformed, or exceeds the rate of its port or the number of groups of a name or a port (`[subscriptions]` in switch.toml): look for a flood.",
    ),
    (
        "listener_query",
        "A host queried the multicast groups of others, as multicast routers do. The switch sends its own queries, and forwards none of hosts.",
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
    ("flow_fragment", "The flow stage cannot match a fragment to a connection. Lower the MTU of the sender."),
    (
        "flow_table",
        "The table of connections is full: raise its size in switch.toml, or look for a flood with `fibula flow list`.",
    ),
    ("flow_no_server", "The virtual address has no server that takes new connections: `fibula flow servers`."),
    ("flow_no_port", "Source NAT has no free port for the connection: give it more addresses."),
    ("bad_header", "The IP header or its checksum is wrong: the sender, or the way to it, is at fault."),
    ("ttl_expired", "The packet has passed too many routers: there is a loop outside, or a traceroute."),
    (
        "too_big",
        "A packet is too long for its outside link. Its sender is told, and should send shorter ones; if this continues, ICMP does not reach the sender.",
    ),
    ("not_for_gateway", "A frame from outside is not addressed to the gateway."),
    ("not_routable", "Routers do not forward packets to or from this address."),
    (
        "no_neighbour",
        "The MAC address of the outside next hop is not known yet: the gateway has asked for it. If this continues, the next hop is down.",
    ),
    ("neighbour_learnt", "The answer of an outside next hop, which has no further use: nothing is wrong."),
    (
        "rx_oversized",
        "A received frame is longer than the buffers of the switch, so its device discarded it. Lower the MTU of the sender, or turn off the offloads that merge frames there (`ethtool -K IF gro off tso off gso off`).",
    ),
    (
        "rx_overrun",
        "Frames came faster than the switch took them from the device, whose ring was full. Raise `ring_frames` or `workers` in switch.toml, or find out what else uses the processors.",
    ),
    (
        "rx_stale",
        "The frame waited for longer than `restart_wait_ms` while the switch was restarted: it was too old to be forwarded.",
    ),
    (
        "rx_malformed",
        "The device delivered a damaged or incomplete frame. Check the cable and the network card (`ip -s -s link show IF`, `ethtool -S IF`).",
    ),
    (
        "bundle_member",
        "The frame arrived at a member of a bundle that accepts none: LACP has not agreed there. The state of each member is in `/status`.",
    ),
    (
        "if_rx_dropped",
        "The kernel or the network card discarded frames at an interface before they reached the switch: they were longer than its MTU, or its queues were full. Compare the MTU with that at the other end, and check `ip -s -s link show IF`.",
    ),
    (
        "if_rx_errors",
        "The network card received damaged frames at an interface: check the cable and the other end (`ip -s -s link show IF`, `ethtool -S IF`).",
    ),
    (
        "if_tx_errors",
        "The network card accepted frames at an interface but could not send them: check the cable and the other end (`ip -s -s link show IF`, `ethtool -S IF`).",
    ),
];

/// Reasons that should not occur in a working network: when one starts, there is an event.
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

/// Number of reasons that cause an event.
pub const N_EVENTS: usize = FAULTS.len();

/// The number of frames dropped per second for a reason that causes an event; none: the reason is expected.
pub fn worth_an_event(reason: &str) -> Option<f64> {
    match reason {
        // A sender that is faster than its receiver fills queues, and slows down because of the losses.
        "tx_full" => Some(100.0),
        _ => FAULTS.contains(&reason).then_some(0.0),
    }
}

/// The explanation of a reason; empty for an unknown one.
pub fn why(reason: &str) -> &'static str {
    REASONS.iter().find(|(name, _)| *name == reason).map_or("", |(_, why)| why)
}

/// Reasons for which frames are dropped on purpose: these drops are never missed.
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

/// Whether drops for this reason are expected.
pub fn is_expected(reason: &str) -> bool {
    EXPECTED.contains(&reason)
}
