//! Whether a frame gets into the network: the switch where it enters first checks its sender.
//!
//! The check is the switch's own ([`dataplane::source`]), over the names as the controller knows them. When it needs a
//! fact, the fact is requested and the check starts again, until it needs no more: one round trip for the sender, and
//! one more for each name or address that ARP or neighbour discovery mentions.

use super::mac_of;
use crate::remote::{Client, answer, refusal};
use api::v1;
use dataplane::mac::Mac;
use dataplane::source::{self, Known};
use fib::action::PortId;
use fib::name::{Name, NameKind};
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use tonic::Code;

/// Further effects that depend on a switch's own configuration and connections.
pub(super) const NOT_LOOKED_AT: &str = "which of several paths the frame takes, as each switch chooses by its own seed: where a hop has several, the \
     next hops are those of the first path; effects of the switches' own settings: check_source other than mac, learning, access lists, rates, \
     connections, translation and gateways; whether the switch itself answers";

/// Like [`NOT_LOOKED_AT`], where names are not MAC addresses.
pub(super) const NO_SENDERS: &str = "the sender; which of several paths the frame takes, as each switch chooses by its own seed: where a hop has \
     several, the next hops are those of the first path; effects of the switches' own settings: check_source, learning, access lists, rates, \
     connections, translation and gateways; whether the switch itself answers";

/// How a frame comes into the network.
pub(super) enum Entry {
    /// By the port where its sender is.
    By(v1::LinkEnd),
    /// Not at all.
    Dropped(v1::Path),
}

/// A frame that the switch where it enters drops.
pub(super) fn dropped(switch: &str, reason: &str) -> v1::Path {
    let sentence = format!("{switch} drops it where it enters (`{reason}`). {}", api::drops::why(reason));
    of_one_hop(switch, reason, sentence)
}

fn of_one_hop(switch: &str, reason: &str, sentence: String) -> v1::Path {
    let does = format!("drops it: {reason}");
    let hop = v1::Hop { switch: switch.to_owned(), does, ..v1::Hop::default() };
    v1::Path { from: switch.to_owned(), hops: vec![hop], end: "dropped".to_owned(), sentence }
}

/// Checks the sender of a frame, where names are MAC addresses. The frame enters at the switch `from`, or, if that is
/// empty, where its sender is.
/// # Errors
/// Those of the controller.
pub(super) async fn enter(client: &mut Client, frame: &[u8], from: String) -> anyhow::Result<Entry> {
    let sender = Name::from_bytes(NameKind::Mac, &frame[6..12]).map(|name| name.to_string()).unwrap_or_default();
    let whose = Mac::try_from(&frame[6..12]).unwrap_or_default();
    let mut told = Told::default();
    let at = told.ask_name(client, whose, &from).await?;
    let why = api::drops::why("source_mac");
    let Some(at) = at else {
        let switch = if from.is_empty() { "every switch" } else { &from };
        let sentence =
            format!("its sender {sender} is not a name, so {switch} drops it where it enters (`source_mac`). {why}");
        return Ok(Entry::Dropped(of_one_hop(switch, "source_mac", sentence)));
    };
    if !from.is_empty() && at.switch != from {
        let v1::LinkEnd { switch, port } = at;
        let sentence =
            format!("its sender {sender} is at {switch}:{port}, not at a port of {from} (`source_mac`). {why}");
        return Ok(Entry::Dropped(of_one_hop(&from, "source_mac", sentence)));
    }
    told.here.clone_from(&at.switch);
    loop {
        let verdict = source::check(frame, PortId(at.port as u16), &told);
        let questions = told.questions.take();
        if questions.is_empty() {
            return Ok(match verdict {
                Ok(()) => Entry::By(at),
                Err(reason) => Entry::Dropped(dropped(&at.switch, reason.name())),
            });
        }
        for question in questions {
            match question {
                Question::Name(mac) => _ = told.ask_name(client, mac, &at.switch).await?,
                Question::Owner(ip) => told.ask_owner(client, ip).await?,
            }
        }
    }
}

/// A fact that the check needs.
enum Question {
    Name(Mac),
    Owner(IpAddr),
}

/// The controller's answer about a name: its record, and where it is.
type AboutName = Option<(v1::NameRecord, v1::LinkEnd)>;

/// Known facts, and questions without an answer.
#[derive(Default)]
struct Told {
    here: String,
    names: HashMap<Mac, AboutName>,
    owners: HashMap<IpAddr, Option<Mac>>,
    questions: RefCell<Vec<Question>>,
}

impl Told {
    /// Asks for a name, and returns where it is. An unknown switch is an error.
    async fn ask_name(&mut self, client: &mut Client, mac: Mac, from: &str) -> anyhow::Result<Option<v1::LinkEnd>> {
        let Ok(name) = Name::from_bytes(NameKind::Mac, &mac) else {
            self.names.insert(mac, None);
            return Ok(None);
        };
        let ask = v1::TraceRequest { name: name.to_string(), from: from.to_owned() };
        let v1::TraceReply { record, at, .. } = answer(client.trace(ask).await)?;
        let told = record.zip(at);
        let at = told.as_ref().map(|(_, at)| at.clone());
        self.names.insert(mac, told);
        Ok(at)
    }

    async fn ask_owner(&mut self, client: &mut Client, ip: IpAddr) -> anyhow::Result<()> {
        let ask = v1::GetNameRequest { name: String::new(), ip: ip.to_string() };
        let owner = match client.get_name(ask).await {
            Ok(record) => mac_of(&record.into_inner().name),
            Err(status) if status.code() == Code::NotFound => None,
            Err(status) => return Err(refusal(&status)),
        };
        self.owners.insert(ip, owner);
        Ok(())
    }

    fn name(&self, mac: Mac) -> Option<&(v1::NameRecord, v1::LinkEnd)> {
        match self.names.get(&mac) {
            Some(told) => told.as_ref(),
            None => {
                self.questions.borrow_mut().push(Question::Name(mac));
                None
            }
        }
    }
}

impl Known for Told {
    fn kind(&self) -> NameKind {
        NameKind::Mac
    }

    fn port_of(&self, name: &[u8]) -> Option<PortId> {
        let (_, at) = self.name(Mac::try_from(name).ok()?)?;
        (at.switch == self.here).then_some(PortId(at.port as u16))
    }

    fn owner_of(&self, ip: IpAddr) -> Option<Mac> {
        match self.owners.get(&ip) {
            Some(owner) => *owner,
            None => {
                self.questions.borrow_mut().push(Question::Owner(ip));
                None
            }
        }
    }

    fn address_of(&self, mac: Mac) -> Option<IpAddr> {
        self.name(mac)?.0.ip.parse().ok()
    }

    fn is_valid(&self, mac: Mac) -> bool {
        self.name(mac).is_some()
    }
}
