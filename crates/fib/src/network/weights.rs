//! Weights of links, and switches of versions that do not know them.
//!
//! What the network keeps of a switch, and the versions of its action table, do not depend on whether it knows weights: controllers that
//! follow count alike, whichever of them serves a switch. Only what such a switch is sent has no weights, and so has the digest that
//! is expected of it. When it comes back as one that knows them, that digest is another one, and it is sent its table.

use super::{Effects, Network, NetworkError, Switch};
use crate::action::Action;
use crate::messages::Body;
use crate::topology::{End, NodeId};
use std::borrow::Cow;

impl Network {
    /// Sets a link's share of flows relative to others on paths of the same length, given one of its ends.
    /// # Errors
    /// [`TopologyError::NoLink`](crate::topology::TopologyError::NoLink),
    /// [`TopologyError::Weight`](crate::topology::TopologyError::Weight).
    pub fn set_link_weight(&mut self, end: End, weight: u8) -> Result<Effects, NetworkError> {
        let link = self.topology.set_weight(end, weight)?;
        Ok(self.link_changed(link))
    }

    /// Says whether a switch knows weights of ways; until then it does. To be called before [`Network::attach_lacking`]. One that does
    /// not is sent all ways as of one weight.
    pub fn set_weighs(&mut self, node: NodeId, weighs: bool) {
        if let Some(switch) = self.switches.get_mut(&node) {
            switch.weighs = weighs;
        }
    }

    /// Whether a switch knows weights of ways, according to its last report.
    pub fn weighs(&self, node: NodeId) -> bool {
        self.switches.get(&node).is_some_and(|switch| switch.weighs)
    }
}

impl Switch {
    /// The action table as this switch can read it.
    pub(super) fn known_actions(&self) -> Cow<'_, [Action]> {
        if self.weighs {
            return Cow::Borrowed(&self.actions);
        }
        Cow::Owned(self.actions.iter().map(|action| action.evened()).collect())
    }

    /// Its action table, to be sent.
    pub(super) fn actions_body(&self) -> Body {
        Body::Actions { version: self.actions_version, actions: self.known_actions().into_owned() }
    }

    /// A message of another action table, as this switch can read it.
    pub(super) fn known(&self, body: Body) -> Body {
        match body {
            Body::Actions { version, actions } if !self.weighs => {
                Body::Actions { version, actions: actions.into_iter().map(Action::evened).collect() }
            }
            other => other,
        }
    }
}
