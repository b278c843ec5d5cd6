//! Views that are made a few parts at a time.

use crate::designs::{CONCISE, LINE};
use crate::network::laws::lab::{Lab, Random, end, mac, settings};
use crate::network::*;
use crate::replica::{Limits, MemoryTables, Replica};
use crate::rib::Attachment;

#[test]
fn view_made_a_few_parts_at_a_time_while_names_change_is_the_view_of_the_end() {
    let seed = lookup::testkit::seed();
    for design in [&CONCISE, &LINE] {
        let mut random = Random(seed);
        let (mut lab, nodes) =
            Lab::ring(Settings { gateway: design, core: design, max_names: 100_000, ..settings(ValueMode::Port) }, 4);
        let at = |random: &mut Random| Attachment::new(nodes[random.below(4)], PortId(100 + random.below(2) as u16));
        let names: Vec<_> = (0..60_000).map(|i| (mac(i), at(&mut random))).collect();
        lab.change(|net| net.put_names(&names));
        lab.live.extend(names);

        let late = nodes[1];
        lab.network.detach(late);
        lab.replicas.insert(late, Replica::new(Limits::default(), MemoryTables::default()));
        let mut n_turns = 0;
        while !lab.network.prepare_view(late, &mut 200).unwrap() {
            n_turns += 1;
            for i in [random.below(60_000), 60_000 + random.below(20_000)] {
                let place = at(&mut random);
                lab.put(&mac(i), place);
            }
            lab.remove(&mac(n_turns));
            match n_turns {
                // Every part changes, then every value.
                2 => {
                    let batch: Vec<_> = (70_000..90_000).map(|i| (mac(i), at(&mut random))).collect();
                    lab.change(|net| net.put_names(&batch));
                    lab.live.extend(batch);
                }
                4 => lab.change(|net| net.set_link_up(end(nodes[1], 1), false)),
                6 => {
                    lab.change(|net| net.add_host_port(end(nodes[3], 102)));
                    lab.put(&mac(7), Attachment::new(nodes[3], PortId(102)));
                }
                _ => {}
            }
        }
        assert!(n_turns > 7, "{n_turns} turns");
        lab.attach(late);
        lab.check();
    }
}

#[test]
fn frequent_changes_do_not_keep_a_view_from_being_made() {
    let (mut lab, nodes) = Lab::ring(settings(ValueMode::Port), 2);
    let names: Vec<_> = (0..40_000).map(|i| (mac(i), Attachment::new(nodes[0], PortId(100)))).collect();
    lab.change(|net| net.put_names(&names));
    lab.network.detach(nodes[1]);
    let mut n_turns = 0;
    while !lab.network.prepare_view(nodes[1], &mut 1).unwrap() {
        // A name of nearly every part changes.
        for i in 0..60 {
            let port = 100 + (n_turns % 2) as u16;
            lab.change(|net| net.set_name(&mac(i), Attachment::new(nodes[0], PortId(port))));
        }
        n_turns += 1;
        assert!(n_turns < 200, "one part a turn at least, of some twenty");
    }
    assert!(n_turns > 5, "{n_turns} turns");
}
