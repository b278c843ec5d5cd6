use super::*;
use crate::core::change::Change;
use crate::hosts::Hosts;
use fib::network::Settings as NetworkSettings;
use fib::topology::Wanted;
use lookup::hash::SecretKey;
use lookup::testkit::{Rng, seed};

const NAME_A: u8 = 0xa;
const NAME_B: u8 = 0xb;

/// Switches s1 and s2, joined at their ports 9. The host `declared` at s2:3 has the name 02:…:01 with the address 10.0.0.1.
struct Bench {
    state: State,
    learning: Learning,
    now: Instant,
}

fn place(switch: &str, port: u16) -> Place {
    Place { switch: switch.to_owned(), port: PortId(port) }
}

fn text(index: u8) -> String {
    format!("02:00:00:00:00:{index:02x}")
}

fn seen(port: u32, index: u8, ip: &str) -> SeenHost {
    let ip = match ip.parse() {
        Ok(IpAddr::V4(ip)) => ip.octets().to_vec(),
        Ok(IpAddr::V6(ip)) => ip.octets().to_vec(),
        Err(_) => Vec::new(),
    };
    let name = vec![2, 0, 0, 0, 0, index];
    SeenHost { port, name: name.into(), ip: ip.into(), accept: true, tenant: 0, max_names: 3, announces: false }
}

impl Bench {
    fn new() -> Self {
        let network = Network::new(NetworkSettings::new(7, SecretKey::from_seed(1)), 1).unwrap();
        let mut state = State { network, hosts: Hosts::default() };
        let record = Record { name: text(1), host: "declared".to_owned(), tenant: 0, ip: Some([10, 0, 0, 1].into()) };
        for change in [
            Change::AddSwitches { names: vec!["s1".to_owned(), "s2".to_owned()] },
            Change::AddLink { a: place("s1", 9), b: place("s2", 9), wanted: Wanted::default() },
            Change::AddHosts { hosts: vec![("declared".to_owned(), place("s2", 3))] },
            Change::PutNames { records: vec![record], only_new: true },
        ] {
            state.carry_out(change).unwrap();
        }
        Self { state, learning: Learning::default(), now: Instant::now() }
    }

    /// A switch has seen hosts. The names that were learnt, with where they are then.
    fn see(&mut self, switch: &str, hosts: &[SeenHost]) -> Vec<String> {
        self.see_at(switch, hosts, 1_700_000_000_000)
    }

    fn see_at(&mut self, switch: &str, hosts: &[SeenHost], at_ms: u64) -> Vec<String> {
        let node = self.state.node(switch).unwrap();
        let decided = self.learning.decide(&self.state, node, hosts, self.now, at_ms);
        let (losses, lost) = decided.losses(&self.state);
        self.state.carry_out(Change::Learn { records: losses, at_ms, more: lost }).unwrap();
        let more = decided.more();
        let Decided { hosts, records, .. } = decided;
        let names: Vec<String> = records.iter().map(|record| record.name.clone()).collect();
        self.state.carry_out(Change::AddHosts { hosts }).unwrap();
        self.state.carry_out(Change::Learn { records: records.clone(), at_ms, more }).unwrap();
        self.learning.done(&self.state, &records);
        names.iter().map(|name| format!("{name} {}", self.at(name))).collect()
    }

    fn carry_out(&mut self, hosts: Vec<(String, Place)>, records: Vec<Record>, at_ms: u64) {
        self.state.carry_out(Change::AddHosts { hosts }).unwrap();
        self.state.carry_out(Change::Learn { records: records.clone(), at_ms, more: Vec::new() }).unwrap();
        self.learning.done(&self.state, &records);
    }

    /// Host and address of a name.
    fn at(&self, name: &str) -> String {
        let name = self.state.parse(name).unwrap();
        let Some(at) = self.state.network.rib().get(&name) else { return "nowhere".to_owned() };
        let Record { host, ip, .. } = self.state.record(&name, &at);
        format!("{host} {}", ip.map(|ip| ip.to_string()).unwrap_or_default())
    }

    /// The addresses of a name beside that of its record.
    fn more(&self, index: u8) -> Vec<String> {
        let more = self.state.hosts.learnt.more_of(&self.state.parse(&text(index)).unwrap());
        more.iter().map(ToString::to_string).collect()
    }

    fn is_learnt(&self, index: u8) -> bool {
        self.state.hosts.learnt.since_ms(&self.state.parse(&text(index)).unwrap()).is_some()
    }

    fn trouble(&self) -> String {
        self.learning.troubles(self.now).join("; ")
    }

    /// Each name that is claimed otherwise than it is, how, and where.
    fn conflicts(&mut self) -> Vec<(String, String, String)> {
        let conflicts = self.learning.conflicts(&self.state, self.now);
        let told = |HostConflict { name, at, state, why, .. }: HostConflict| {
            assert!(why.starts_with(&name) && self.trouble().contains(&why), "{why}");
            let at = at.unwrap();
            (name, state, format!("{}:{}", at.switch, at.port))
        };
        conflicts.into_iter().map(told).collect()
    }

    fn counts(&self) -> Counts {
        self.learning.counts().0
    }
}

#[test]
fn what_is_seen_becomes_a_name_moves_and_gets_its_address() {
    let mut bench = Bench::new();
    assert_eq!(bench.see("s1", &[seen(1, NAME_A, "")]), [format!("{} s1.1 ", text(NAME_A))]);
    assert_eq!(bench.see("s1", &[seen(1, NAME_A, "")]), [""; 0], "it is there");
    bench.see("s1", &[seen(1, NAME_A, "fd00::a")]);
    bench.see("s1", &[seen(1, NAME_A, "fe80::a")]);
    assert_eq!(bench.at(&text(NAME_A)), "s1.1 fd00::a");
    bench.see("s1", &[seen(1, NAME_A, "10.0.0.10")]);
    bench.see("s1", &[seen(1, NAME_A, "fd00::b")]);
    assert_eq!(bench.at(&text(NAME_A)), "s1.1 10.0.0.10", "one of IPv4 is kept rather than one of IPv6");
    // To a port that has a host, and to one that has none.
    assert_eq!(bench.see("s2", &[seen(3, NAME_A, "")]), [format!("{} declared 10.0.0.10", text(NAME_A))]);
    assert_eq!(bench.see("s2", &[seen(4, NAME_A, "10.0.0.11")]), [format!("{} s2.4 10.0.0.10", text(NAME_A))]);
    assert_eq!(bench.more(NAME_A), ["fd00::a", "fd00::b", "10.0.0.11"], "and it keeps all of them");
    let end = |switch, port| End { node: bench.state.node(switch).unwrap(), port: PortId(port) };
    let learnt = &bench.state.hosts.learnt;
    assert_eq!([("s1", 1), ("s2", 3), ("s2", 4)].map(|(switch, port)| learnt.count(end(switch, port))), [0, 0, 1]);
    assert_eq!(bench.trouble(), "");
    let Counts { learnt, moved, addresses, .. } = bench.counts();
    assert_eq!((learnt, moved, addresses), (1, 2, 3));
}

#[test]
fn the_word_of_an_operator_stands() {
    let mut bench = Bench::new();
    // At another place, and with another's address.
    assert_eq!(bench.see("s1", &[seen(1, 1, "10.0.0.9")]), [""; 0]);
    assert_eq!(bench.trouble(), "02:00:00:00:00:01 is seen at s1:1, but was declared to be at s2:3");
    assert_eq!(bench.conflicts(), [(text(1), "elsewhere".to_owned(), "s1:1".to_owned())]);
    bench.see("s2", &[seen(3, 1, "10.0.0.9")]);
    assert_eq!(bench.at(&text(1)), "declared 10.0.0.1");
    // It answers for the gateway: its name is learnt, the address stays where it is.
    bench.see("s1", &[seen(2, NAME_A, "10.0.0.1")]);
    assert_eq!(bench.at(&text(NAME_A)), "s1.2 ");
    assert!(bench.trouble().contains("claims 10.0.0.1, which 02:00:00:00:00:01 has"), "{}", bench.trouble());
    assert!(bench.conflicts().contains(&(text(NAME_A), "address".to_owned(), "s1:2".to_owned())));
    // Two in one report.
    bench.see("s1", &[seen(2, NAME_A, "10.0.0.5"), seen(2, NAME_B, "10.0.0.5")]);
    assert_eq!([NAME_A, NAME_B].map(|name| bench.at(&text(name))), ["s1.2 10.0.0.5", "s1.2 "]);
    assert_eq!((bench.counts().declared, bench.counts().taken), (1, 2));

    // A learnt name belongs to an operator from the moment the operator declares it.
    let record = Record { name: text(NAME_A), host: "s1.2".to_owned(), tenant: 0, ip: Some([10, 0, 0, 5].into()) };
    let put = Change::PutNames { records: vec![record], only_new: false };
    assert_eq!(bench.state.carry_out(put).unwrap().changed.changed, 1);
    assert_eq!([NAME_A, NAME_B].map(|name| bench.is_learnt(name)), [false, true]);
    assert_eq!(bench.see("s2", &[seen(4, NAME_A, "")]), [""; 0]);
    let remove = Change::RemoveNames { names: vec![text(NAME_B)], ignore_missing: false };
    assert_eq!(bench.state.carry_out(remove).unwrap().rows.len(), 1, "the row of a learnt name goes with it");
    assert!(bench.state.hosts.learnt.is_empty());
}

#[test]
fn made_up_names_fill_a_quota_and_nothing_else() {
    let mut bench = Bench::new();
    let mut rng = Rng::new(seed());
    for _ in 0..100 {
        let hosts: Vec<SeenHost> = (0..100).map(|_| seen(1, 16 + rng.below(200) as u8, "10.0.0.1")).collect();
        bench.see("s1", &hosts);
    }
    assert_eq!(bench.state.hosts.learnt.len(), 3);
    assert!(bench.counts().full > 9000);
    assert_eq!(bench.learning.counts().1, 0, "what a full port does not learn is not listed either");
    assert!(bench.trouble().contains("s1:1 has 3 learnt names, which is the maximum"), "{}", bench.trouble());
    assert!(bench.learning.troubles(bench.now).len() <= MAX_TROUBLES);
    // Others still learn there and elsewhere.
    assert_eq!(bench.see("s2", &[seen(4, NAME_A, "10.0.0.10")]).len(), 1);
    assert_eq!(bench.at(&text(1)), "declared 10.0.0.1");
    // The controller's own limit holds whatever a switch says.
    let bench = &mut Bench::new();
    bench.learning.set(Settings { max_names_per_port: 2, ..Settings::default() });
    let hosts: Vec<SeenHost> = (1..9).map(|i| SeenHost { max_names: u32::MAX, ..seen(1, 16 + i, "") }).collect();
    bench.see("s1", &hosts);
    assert_eq!(bench.state.hosts.learnt.len(), 2);
}

#[test]
fn a_name_that_moves_again_and_again_stays_where_it_was_before() {
    let mut bench = Bench::new();
    bench.see("s1", &[seen(1, NAME_A, "")]);
    let port = |i: usize| if i.is_multiple_of(2) { ("s2", 4) } else { ("s1", 1) };
    for i in 0..MOST_MOVES {
        let (switch, at) = port(i);
        assert_eq!(bench.see(switch, &[seen(at, NAME_A, "")]).len(), 1, "{i}");
    }
    // It is at s2:4 now, and was at s1:1 before all this: there alone it may go.
    assert_eq!(bench.see("s2", &[seen(5, NAME_A, "")]), [""; 0]);
    for i in MOST_MOVES..MOST_MOVES + 4 {
        let (switch, at) = port(i);
        let n_moves = usize::from(i == MOST_MOVES);
        assert_eq!(bench.see(switch, &[seen(at, NAME_A, "")]).len(), n_moves, "{i}");
        assert_eq!(bench.at(&text(NAME_A)), "s1.1 ");
        bench.now += FROZEN / 5;
    }
    let said = "moves repeatedly between s1:1 and s2:4: two hosts have it, or frames loop; it stays at s1:1, where";
    assert!(bench.trouble().contains(said), "{}", bench.trouble());
    assert_eq!(bench.conflicts(), [(text(NAME_A), "frozen".to_owned(), "s2:4".to_owned())]);
    bench.now += FROZEN;
    assert_eq!(bench.conflicts(), []);
    assert_eq!(bench.see("s2", &[seen(4, NAME_A, "")]).len(), 1);
    // Slow moves never freeze it.
    for i in 0..3 * MOST_MOVES {
        bench.now += MOVES_WITHIN;
        let (switch, at) = port(MOST_MOVES + i);
        assert_eq!(bench.see(switch, &[seen(at, NAME_A, "")]).len(), 1);
    }
}

#[test]
fn what_is_only_reported_is_listed_until_it_is_accepted() {
    let mut bench = Bench::new();
    let only_seen = |port, index, ip| SeenHost { accept: false, tenant: 7, ..seen(port, index, ip) };
    bench.see_at("s1", &[only_seen(1, NAME_A, "10.0.0.10")], 1000);
    bench.see_at("s1", &[only_seen(1, NAME_A, ""), only_seen(2, NAME_B, "")], 2000);
    let list = |bench: &mut Bench| {
        let all = bench.learning.unknown(&bench.state, bench.now, MAX_UNKNOWN).0.into_iter();
        all.map(|host| (host.name, host.ip, host.at.unwrap().port, host.tenant, host.first_ms, host.last_ms))
            .collect::<Vec<_>>()
    };
    let a = (text(NAME_A), "10.0.0.10".to_owned(), 1, 7, 1000, 2000);
    let b = (text(NAME_B), String::new(), 2, 7, 2000, 2000);
    assert_eq!(list(&mut bench), [a.clone(), b.clone()]);
    assert!(bench.state.hosts.learnt.is_empty());

    let unknown = bench.state.parse(&text(9)).unwrap();
    assert!(bench.learning.accept(&bench.state, &[unknown], bench.now).unwrap_err().contains("no switch has seen"));
    let name = bench.state.parse(&text(NAME_A)).unwrap();
    let Decided { hosts, records, .. } = bench.learning.accept(&bench.state, &[name], bench.now).unwrap();
    bench.carry_out(hosts, records, 3000);
    assert_eq!((bench.at(&a.0), bench.is_learnt(NAME_A)), ("s1.1 10.0.0.10".to_owned(), true));
    assert_eq!(list(&mut bench), [b]);
    let Decided { hosts, records, .. } = bench.learning.accept(&bench.state, &[], bench.now).unwrap();
    assert_eq!((hosts.len(), records.len()), (1, 1));
    // An operator declares it at the last moment, which takes precedence.
    let put = Record { host: "declared".to_owned(), tenant: 0, ip: None, ..records[0].clone() };
    bench.state.carry_out(Change::PutNames { records: vec![put], only_new: true }).unwrap();
    let b = bench.state.parse(&text(NAME_B)).unwrap();
    assert!(bench.learning.accept(&bench.state, &[b], bench.now).unwrap_err().contains("is already declared"));
    bench.carry_out(hosts, records, 4000);
    assert_eq!((bench.at(&text(NAME_B)), bench.is_learnt(NAME_B)), ("declared ".to_owned(), false));
    bench.now += LISTED_FOR;
    assert_eq!(list(&mut bench), []);
    // The controller may set that for all ports.
    let mut bench = Bench::new();
    bench.learning.set(Settings { accept: false, ..Settings::default() });
    bench.see("s1", &[seen(1, NAME_A, "")]);
    assert_eq!((list(&mut bench).len(), bench.state.hosts.learnt.len()), (1, 0));
}

#[test]
fn all_are_accepted_that_ports_and_switches_may_have_and_more_by_name() {
    let mut bench = Bench::new();
    bench.learning.set(Settings { max_names_per_switch: 5, ..Settings::default() });
    bench.see("s1", &[seen(1, 0x20, "")]);
    let only_seen = |port, index| SeenHost { accept: false, ..seen(port, index, "") };
    // Three are the most at a port: one is there, and three more want to be; at the other switch two do.
    for i in 0..3 {
        bench.see("s1", &[only_seen(1, 0x21 + i), only_seen(2, 0x31 + i), only_seen(3, 0x41 + i)]);
    }
    bench.see("s2", &[only_seen(1, 0x51), only_seen(1, 0x52)]);
    let Decided { hosts, records, left, .. } = bench.learning.accept(&bench.state, &[], bench.now).unwrap();
    let names: Vec<&str> = records.iter().map(|record| &record.name[15..]).collect();
    assert_eq!((names, left), (vec!["21", "31", "41", "22", "51", "52"], 5));
    bench.carry_out(hosts, records, 1000);
    // Their next frames do not change why.
    bench.see("s1", &[only_seen(1, 0x23)]);
    let (list, _) = bench.learning.unknown(&bench.state, bench.now, MAX_UNKNOWN);
    assert!(list.len() == 5 && list.iter().all(|host| host.why.contains("at its limit of learnt names")), "{list:?}");
    let Decided { records, left, .. } = bench.learning.accept(&bench.state, &[], bench.now).unwrap();
    assert_eq!((records.len(), left), (0, 5));
    let (first, n) = bench.learning.unknown(&bench.state, bench.now, 2);
    assert_eq!((&first[..], n), (&list[..2], 5));
    // What an operator names is wanted.
    let name = bench.state.parse(&list[0].name).unwrap();
    let Decided { records, left, .. } = bench.learning.accept(&bench.state, &[name], bench.now).unwrap();
    assert_eq!((records.len(), left), (1, 0));
}

#[test]
fn room_is_for_who_was_seen_first_and_not_for_who_is_gone() {
    let mut bench = Bench::new();
    let only_seen = |index| SeenHost { accept: false, ..seen(1, index, "") };
    let accepted = |bench: &mut Bench| {
        let Decided { records, left, .. } = bench.learning.accept(&bench.state, &[], bench.now).unwrap();
        (records.iter().map(|record| record.name[15..].to_owned()).collect::<Vec<_>>(), left)
    };
    // Made-up names come before all others in order, and go.
    bench.see_at("s1", &[only_seen(2), only_seen(3), only_seen(4)], 1000);
    bench.now += LISTED_FOR;
    bench.see_at("s1", &[only_seen(0x99)], 2000);
    assert_eq!(accepted(&mut bench), (vec!["99".to_owned()], 0));
    // They come after those that were there before.
    bench.see_at("s1", &[only_seen(5), only_seen(6), only_seen(7)], 3000);
    bench.see_at("s1", &[only_seen(0x99)], 4000);
    assert_eq!(accepted(&mut bench), (vec!["99".to_owned(), "05".to_owned(), "06".to_owned()], 1));
    // Nor does the date count, which may be set back.
    bench.see_at("s1", &[only_seen(4)], 500);
    assert_eq!(accepted(&mut bench), (vec!["99".to_owned(), "05".to_owned(), "06".to_owned()], 2));
    let (list, _) = bench.learning.unknown(&bench.state, bench.now, usize::MAX);
    assert!(list.iter().any(|unknown| unknown.name == text(4) && unknown.first_ms == 500));
}

#[test]
fn what_no_host_can_be_is_passed_over() {
    let mut bench = Bench::new();
    let group = SeenHost { name: vec![1, 0, 0, 0, 0, 1].into(), ..seen(1, 0, "") };
    let short = SeenHost { name: vec![2].into(), ..seen(1, 0, "") };
    let trunk = seen(9, NAME_A, "");
    let port = seen(1 << 16, NAME_A, "");
    assert_eq!(bench.see("s1", &[group, short, trunk, port]), [""; 0]);
    assert_eq!(bench.counts().refused, 4);
    for ip in ["127.0.0.1", "224.0.0.1", "169.254.1.1", "0.0.0.0", "ff02::1"] {
        bench.see("s1", &[seen(1, NAME_A, ip)]);
        assert_eq!(bench.at(&text(NAME_A)), "s1.1 ", "{ip}");
    }
    let odd = SeenHost { ip: vec![1, 2, 3].into(), ..seen(1, NAME_A, "") };
    assert_eq!(bench.see("s1", &[odd]), [""; 0]);
}

#[test]
fn learnt_names_come_back_from_their_rows() {
    let mut bench = Bench::new();
    bench.see_at("s1", &[seen(1, NAME_A, ""), seen(2, NAME_B, "")], 5000);
    let (network, learnt) = (&bench.state.network, &bench.state.hosts.learnt);
    let mut again = crate::hosts::names::Learnt::default();
    for row in learnt.rows() {
        again.restore(network, &row.key, row.value.as_deref().unwrap());
    }
    assert_eq!(&again, learnt);
    again.restore(network, &[2, 0, 0, 0, 0, 0xf], &[0; 8]);
    again.restore(network, &[2, 0, 0, 0, 0, 1], &[0; 7]);
    again.restore(network, b"?", &[0; 8]);
    assert_eq!(&again, learnt, "what the network does not have, and what is damaged");
}

#[test]
fn names_that_say_nothing_are_forgotten_where_the_port_says_so() {
    let mut bench = Bench::new();
    let say = |bench: &mut Bench, switch, ports: &[u32]| {
        let ports: Vec<_> = ports.iter().map(|&port| ForgetfulPort { port, forget_s: 60 }).collect();
        bench.learning.set_forgetful(bench.state.node(switch).unwrap(), &ports, bench.now);
    };
    let forgetful = |port, index| seen(port, index, "");
    say(&mut bench, "s1", &[1]);
    say(&mut bench, "s2", &[3]);
    let minute = Duration::from_secs(60);
    bench.see("s1", &[forgetful(1, NAME_A), forgetful(1, NAME_B), seen(2, 0xc, "")]);
    // A declared name at such a port is none of these.
    bench.see("s2", &[forgetful(3, 1)]);
    let silent = |bench: &mut Bench| bench.learning.silent(&bench.state, bench.now);
    assert_eq!(silent(&mut bench), [""; 0]);
    bench.now += minute / 2;
    bench.see("s1", &[forgetful(1, NAME_B)]);
    bench.now += minute / 2;
    assert_eq!(silent(&mut bench), [text(NAME_A)]);
    bench.now += 10 * minute;
    assert_eq!(silent(&mut bench), [""; 0], "the switch is away, or its port forgets nobody any more");
    say(&mut bench, "s1", &[1]);
    assert_eq!(silent(&mut bench), [""; 0], "what was not heard meanwhile has its time again");
    bench.now += minute;
    say(&mut bench, "s1", &[]);
    assert_eq!(silent(&mut bench), [""; 0]);
    say(&mut bench, "s1", &[1]);
    assert_eq!(silent(&mut bench), [""; 0]);
    bench.now += minute;
    say(&mut bench, "s1", &[1]);
    let mut gone = silent(&mut bench);
    gone.sort();
    assert_eq!(gone, [text(NAME_A), text(NAME_B)], "and that at port 2 stays");
    assert_eq!(silent(&mut bench), gone, "as long as nobody has removed them");
    bench.state.carry_out(Change::RemoveNames { names: vec![text(NAME_B)], ignore_missing: false }).unwrap();

    // Another process leads: it has heard no names, and forgets none before a time of its own.
    bench.learning = Learning::default();
    say(&mut bench, "s1", &[1]);
    bench.see("s1", &[forgetful(1, 0xe)]);
    assert_eq!(silent(&mut bench), [""; 0]);
    bench.now += minute;
    let mut gone = silent(&mut bench);
    gone.sort();
    assert_eq!(gone, [text(NAME_A), text(0xe)]);
}

#[test]
fn what_a_host_says_twice_in_one_report_is_one_name_with_the_better_address() {
    let mut bench = Bench::new();
    let twice =
        [seen(1, NAME_A, "fd00::a"), seen(1, NAME_A, "10.0.0.10"), seen(1, NAME_A, "fd00::b"), seen(1, NAME_A, "")];
    assert_eq!(bench.see("s1", &twice), [format!("{} s1.1 10.0.0.10", text(NAME_A))]);
    // It counts once: there is room for two more.
    assert_eq!(bench.see("s1", &[seen(1, NAME_B, ""), seen(1, NAME_B, ""), seen(1, 0xc, "")]).len(), 2);
    assert_eq!(bench.trouble(), "");
}

#[test]
fn a_port_that_claims_what_others_have_fills_its_part_of_the_list_and_no_more() {
    let (mut seen, now) = (Seen::default(), Instant::now());
    let mut claim = |port: u16, i: u32| {
        let name = Name::from_bytes(fib::name::NameKind::Mac, &[&[2, 0][..], &i.to_be_bytes()].concat()).unwrap();
        let end = End { node: NodeId(0), port: PortId(port) };
        let sight = Sight { name, end, ip: None, tenant: 0, accepts: true, announces: false, max_names: 9 };
        seen.conflict(&sight, "elsewhere", String::new(), (now, 0));
        seen.conflicts.len()
    };
    let n = (0..2000).map(|i| claim(1, i)).last();
    assert_eq!((n, claim(2, 5000)), (Some(MAX_CONFLICTS_OF_PORT), MAX_CONFLICTS_OF_PORT + 1));
}

mod addresses;
