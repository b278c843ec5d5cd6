//! Tables of a switch that are not as their digests say.

use crate::designs::{Burst, Reader, Table, TableError};
use crate::messages::{Held, Updates};
use crate::network::laws::lab::{Lab, mac, settings};
use crate::network::*;
use crate::replica::{MemoryTables, Replica};
use crate::rib::Attachment;
use lookup::traits::{Applied, ApplyError, HeldPart, PartId};

/// A table whose words are not those of its digest.
struct Damaged(Box<dyn Table>);

impl Table for Damaged {
    fn lookup_batch(&self, burst: &Burst<'_>, values: &mut [u64]) {
        self.0.lookup_batch(burst, values);
    }
    fn apply(&mut self, update: &[u8]) -> Result<Applied, TableError> {
        self.0.apply(update)
    }
    fn apply_batch(&mut self, updates: &Updates) -> (usize, Result<(), TableError>) {
        self.0.apply_batch(updates)
    }
    fn overwrite(&mut self, _: &[u8]) -> Result<(), TableError> {
        Err(TableError::NotWhole)
    }
    fn image(&self) -> Vec<u8> {
        self.0.image()
    }
    fn verify(&self) -> Result<(), TableError> {
        Err(ApplyError::WrongDigest { part: PartId::WHOLE, got: 1, expected: 2 }.into())
    }
    fn held(&self) -> Vec<HeldPart> {
        self.0.held()
    }
    fn alien_rate(&self) -> Option<f64> {
        self.0.alien_rate()
    }

    fn size_bits(&self) -> u64 {
        self.0.size_bits()
    }
    fn prefetches(&self) -> bool {
        self.0.prefetches()
    }
    fn reader(&self) -> Box<Reader> {
        self.0.reader()
    }
}

#[test]
fn damage_in_memory_is_found_by_a_verification_and_mended_by_its_report() {
    let (mut lab, nodes) = Lab::ring(settings(ValueMode::Port), 4);
    for i in 0..400 {
        let attachment = Attachment::new(nodes[i % 4], PortId(100));
        lab.live.insert(mac(i), attachment);
        lab.change(|net| net.set_name(&mac(i), attachment));
    }
    let node = nodes[1];
    let expected = lab.network.held(node).unwrap();
    let verify = |lab: &mut Lab| lab.replicas.get_mut(&node).unwrap().verify();
    let found = verify(&mut lab);
    assert_eq!((found.damage, &found.report), (vec![], &expected));

    type Damage = fn(&mut Replica<MemoryTables>);
    let damages: [(&str, Damage); 4] = [
        ("the FIB", |replica| replica.replace_fib(|fib| Box::new(Damaged(fib)))),
        ("the valid names", |replica| _ = replica.tables_mut().valid.remove(&mac(3))),
        ("the local names", |replica| _ = replica.tables_mut().local.insert(mac(1), PortId(101))),
        ("the local names", |replica| _ = replica.tables_mut().local.insert(mac(4000), PortId(101))),
    ];
    for (table, damage) in damages {
        damage(lab.replicas.get_mut(&node).unwrap());
        let found = verify(&mut lab);
        assert!(found.damage.len() == 1 && found.damage[0].starts_with(table), "{:?}", found.damage);
        assert_ne!(found.report, expected, "{table}");
        lab.attach(node);
        let found = verify(&mut lab);
        assert_eq!((found.damage, &found.report), (vec![], &expected), "{table}");
        lab.check();
    }
}

#[test]
fn names_that_came_into_a_table_without_any_are_found_and_go() {
    let (mut lab, nodes) = Lab::ring(settings(ValueMode::Port), 4);
    let node = nodes[1];
    assert_eq!(lab.network.held(node).unwrap().local, Held::default());
    let replica = lab.replicas.get_mut(&node).unwrap();
    replica.tables_mut().local.insert(mac(1), PortId(100));
    assert_eq!(replica.verify().damage.len(), 1);
    lab.attach(node);
    let replica = lab.replicas.get_mut(&node).unwrap();
    assert!(replica.tables().local.is_empty() && replica.verify().damage.is_empty());
}
