//! The states of a flow, and how long a flow stays in each without a packet.

use super::packet::{ICMP, ICMPV6, TCP, UDP};

/// The direction of a packet in its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Direction {
    /// The direction of the first packet.
    Original = 0,
    /// The opposite one.
    Reply = 1,
}

macro_rules! states {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $seconds:literal;)*) => {
        /// The state of a flow.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum State { $($(#[$doc])* $variant,)* }

        impl State {
            /// All states.
            pub const ALL: &[State] = &[$(State::$variant,)*];

            /// Its name, which is also that of its timeout.
            pub fn name(self) -> &'static str {
                match self { $(State::$variant => $name,)* }
            }

            /// The default timeout in seconds: how long a flow stays in the state without a packet.
            pub fn default_timeout(self) -> u16 {
                match self { $(State::$variant => $seconds,)* }
            }
        }
    };
}

states! {
    /// There is a SYN without an answer yet.
    SynSent = "syn_sent", 30;
    /// There is an answer to the SYN.
    SynReceived = "syn_received", 30;
    /// Open. RFC 5382 asks for at least two hours and four minutes.
    Established = "established", 7440;
    /// One side has sent its FIN.
    FinWait = "fin_wait", 240;
    /// The other side has acknowledged it.
    CloseWait = "close_wait", 240;
    /// Both sides have sent their FIN.
    LastAck = "last_ack", 30;
    /// Both FINs are acknowledged.
    TimeWait = "time_wait", 120;
    /// Reset.
    Closed = "closed", 10;
    /// UDP in one direction so far.
    UdpNew = "udp_new", 30;
    /// UDP in both directions (RFC 4787 asks for two minutes at least, and five by default).
    UdpReplied = "udp_replied", 300;
    /// ICMP echo (RFC 5508: a minute at least).
    Echo = "echo", 60;
    /// Another protocol in one direction so far.
    OtherNew = "other_new", 30;
    /// Another protocol in both directions.
    OtherReplied = "other_replied", 600;
}

/// Seconds that a flow stays in each state without a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts([u16; State::ALL.len()]);

impl Default for Timeouts {
    fn default() -> Self {
        Self(std::array::from_fn(|i| State::ALL[i].default_timeout()))
    }
}

impl Timeouts {
    /// Seconds of a state.
    #[inline]
    pub fn of(&self, state: State) -> u16 {
        self.0[state as usize]
    }

    /// Sets the seconds of a state.
    pub fn set(&mut self, state: State, seconds: u16) {
        self.0[state as usize] = seconds;
    }
}

/// The usual name of a protocol, or its number.
pub fn protocol_name(protocol: u8) -> String {
    match protocol {
        TCP => "tcp".to_owned(),
        UDP => "udp".to_owned(),
        ICMP => "icmp".to_owned(),
        ICMPV6 => "icmpv6".to_owned(),
        other => other.to_string(),
    }
}
