//! The configured false-positive rate, at the switches of a network.

use super::lab::{Lab, mac, settings};
use crate::network::*;
use crate::rib::Attachment;

const ALIENS: usize = 40_000;

/// Aliens to which the table of a switch gives an action.
fn passed(lab: &Lab, node: NodeId) -> usize {
    (0..ALIENS).filter(|i| lab.replicas[&node].action(&mac((1 << 40) + i)) != Action::Drop).count()
}

pub(crate) fn settings_of(design: &'static Design, rate: f64) -> Settings {
    Settings { gateway: design, false_positives: Some(rate), ..settings(ValueMode::Port) }
}

/// Three standard deviations above what is wanted, as a fixed key and fixed names give it.
fn most(rate: f64) -> f64 {
    let wanted = rate * ALIENS as f64;
    wanted + 3.0 * wanted.sqrt()
}

/// Switches hold the configured rate while names come and go, and after another one is configured.
pub fn switches_hold_the_configured_rate(designs: &[&'static Design]) {
    for design in designs.iter().copied().filter(|design| !design.is_static) {
        let Ok(network) = Network::new(settings_of(design, 0.01), 1) else { continue };
        drop(network);
        let (mut lab, nodes) = Lab::ring(settings_of(design, 0.01), 2);
        let at = |i: usize| Attachment::new(nodes[i % 2], PortId(100 + (i / 2 % 2) as u16));
        let batch: Vec<_> = (0..3000).map(|i| (mac(i), at(i))).collect();
        lab.change(|net| net.put_names(&batch));
        for i in 0..3000 {
            lab.change(|net| net.remove_name(&mac(i)));
            lab.change(|net| net.set_name(&mac(3000 + i), at(i)));
        }
        let before = passed(&lab, nodes[0]);
        assert!(before as f64 <= most(0.01), "{design}: {before} of {ALIENS} aliens passed, 1 % wanted");

        // Another rate: switches get tables with other fingerprints, and keep their names.
        let tight = Settings { false_positives: Some(0.0005), ..lab.network.settings().clone() };
        let (network, rows) = Network::restore(tight, 2, lab.stored()).unwrap();
        lab.network = network;
        lab.write(rows);
        nodes.iter().for_each(|node| lab.attach(*node));
        let after = passed(&lab, nodes[0]);
        assert!(after as f64 <= most(0.0005), "{design}: {after} of {ALIENS} aliens passed, 0.05 % wanted");
        for i in 3000..6000 {
            assert_eq!(lab.replicas[&nodes[0]].action(&mac(i)), lab.network.action(nodes[0], &mac(i)));
        }
        // Without a rate, a table stays as it is.
        let open = Settings { false_positives: None, ..lab.network.settings().clone() };
        assert_eq!(Network::restore(open, 3, lab.stored()).unwrap().1, [], "{design}");
    }
}
