//! Peers that take what they can of a controller: connections that do nothing, messages that never end, the name of another.

mod support;

use api::v1;
use std::io::{Read, Write};
use std::net::TcpStream;
use support::{Process, Site, add_full_mesh, eventually, exit_code, in_step, mac, peer, record, stderr};

/// One HTTP/2 connection, spoken by hand.
struct Peer(TcpStream);

impl Peer {
    fn connect(site: &Site) -> Peer {
        let mut stream = TcpStream::connect(site.url.strip_prefix("http://").unwrap()).unwrap();
        stream.write_all(peer::FIRST).unwrap();
        Peer(stream)
    }

    /// Begins a request on `stream` with a message that has `len` bytes, of which only a few come.
    fn unfinished(&mut self, stream: u32, path: &str, len: u32) {
        self.0.write_all(&peer::unfinished(stream, path, len)).unwrap();
    }
}

/// The value of a metric of the controller.
fn metric(status: &str, name: &str) -> Option<u64> {
    let mut stream = TcpStream::connect(status).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// A site whose controller has a status page, and the page's address.
fn site(limits: &str) -> (Site, String) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    (Site::new(&format!("status = \"{free}\"\n[limits]\n{limits}")), free)
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_never_end_are_refused_and_take_no_memory() {
    let (site, status) = site("");
    let _controller = site.start();
    add_full_mesh(&mut site.client().await, 1).await;
    let put = "/fibula.v1.Northbound/PutNames";
    let mut huge = Peer::connect(&site);
    let mut large = Peer::connect(&site);
    for i in 0..60 {
        huge.unfinished(2 * i + 1, put, 60 << 20);
        large.unfinished(2 * i + 1, put, 15 << 20);
    }
    let refused = |limit: &str| metric(&status, &format!("fibula_refused_total{{limit=\"{limit}\"}}"));
    eventually("all huge messages refused", async || refused("message_bytes") == Some(60)).await;
    // Three large ones fit into the bytes of a connection.
    eventually("most large messages refused", async || refused("connection_bytes") == Some(57)).await;
    assert_eq!(metric(&status, "fibula_request_bytes"), Some(3 * (15 << 20)));
    let added = site.fibula(&["name", "add", &mac(1), "h1"]);
    assert_eq!(exit_code(&added), 0, "{}", stderr(&added));
    drop(large);
    eventually("bytes given back", async || metric(&status, "fibula_request_bytes") == Some(0)).await;
}

/// A client asks and never reads: what the answers may take is bounded, and changes wait for none of them.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads_take_bounded_memory_and_hold_up_no_change() {
    let (site, status) = site("");
    let _controller = site.start();
    let mut client = site.client().await;
    add_full_mesh(&mut client, 1).await;
    for batch in 0..4 {
        let names = (0..2500).map(|i| record(2500 * batch + i, "h1")).collect();
        client.put_names(v1::PutNamesRequest { names, only_new: true }).await.unwrap();
    }
    let before = metric(&status, "fibula_resident_bytes").unwrap();
    let list = "/fibula.v1.Northbound/ListNames";
    // The message {limit: 10000}, for whose answers, of which each has 0.5 MB in 3 MB of memory, there is no window.
    let message = list_request(10_000);
    let mut peers: Vec<Peer> = (0..30).map(|_| Peer::connect(&site)).collect();
    for peer in &mut peers {
        for i in 0..90 {
            peer.0.write_all(&peer::whole(2 * i + 1, list, &message)).unwrap();
        }
    }
    let refused = |limit: &str| metric(&status, &format!("fibula_refused_total{{limit=\"{limit}\"}}")).unwrap_or(0);
    let n_refused = || refused("connection_bytes") + refused("peer_bytes");
    let answers = || metric(&status, "fibula_answer_bytes").unwrap();
    // 25 of them take 95.4 MiB.
    eventually("all but those that fit are refused", async || n_refused() + 25 >= 30 * 90).await;
    assert!((1..=96 << 20).contains(&answers()), "{}", answers());
    let added = site.fibula(&["name", "add", &mac(20_000), "h1"]);
    assert_eq!(exit_code(&added), 0, "{}", stderr(&added));
    let grown = metric(&status, "fibula_resident_bytes").unwrap().saturating_sub(before);
    assert!(grown < 400 << 20, "{} MiB more", grown >> 20);
    drop(peers);
    eventually("all is given back", async || answers() < 1 << 16).await;
    let page = client.list_names(v1::ListNamesRequest { limit: 10_000, ..Default::default() }).await.unwrap();
    assert_eq!(page.into_inner().names.len(), 10_000);
}

/// A request for so many names, encoded: field 2, a number.
fn list_request(limit: u32) -> Vec<u8> {
    let mut bytes = vec![2 << 3];
    let mut rest = limit;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

/// A daemon may often open 1,024 files until it asks for more, and a hundred here.
#[tokio::test(flavor = "multi_thread")]
async fn more_connections_are_served_than_files_are_allowed_at_first() {
    let limits = "connections = 300\nconnections_per_peer = 300\nfirst_request_ms = 60000\n";
    // With so many files all fit, and with so many half of what is left of them after the daemon's own: each of its two listeners has
    // connections for itself.
    for (most_files, served) in [(1000, 250), (200, (200 - 64) / 2)] {
        let (site, status) = site(limits);
        let controller = site.start_with_files(100, most_files);
        add_full_mesh(&mut site.client().await, 1).await;
        let address = site.url.strip_prefix("http://").unwrap();
        let idle: Vec<TcpStream> = (0..250).map(|_| TcpStream::connect(address).unwrap()).collect();
        // Besides there are the client's connection and that to the status page.
        let connections = || metric(&status, "fibula_connections").unwrap_or(0);
        eventually("the connections are open", async || connections() >= served).await;
        assert!(connections() <= served + 8, "{} of {most_files} files", connections());
        let added = site.fibula(&["name", "add", &mac(1), "h1"]);
        assert_eq!(exit_code(&added), 0, "{}", stderr(&added));
        drop((idle, controller));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_lock_nobody_out() {
    let (site, status) = site("connections = 40\nconnections_per_peer = 20\nfirst_request_ms = 60000\n");
    let _controller = site.start();
    add_full_mesh(&mut site.client().await, 1).await;
    let address = site.url.strip_prefix("http://").unwrap();
    let idle: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
    let added = site.fibula(&["name", "add", &mac(1), "h1"]);
    assert_eq!(exit_code(&added), 0, "{}", stderr(&added));
    // Besides there is the connection that asks for this, at another listener, which has connections for itself.
    assert!(metric(&status, "fibula_connections").is_some_and(|n| n <= 20 + 1));
    assert!(metric(&status, "fibula_refused_total{limit=\"replaced\"}").is_some_and(|n| n >= 280));
    drop(idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_switches_that_say_one_name_the_first_is_served_and_the_other_is_told() {
    let site = Site::new("");
    let _controller = site.start();
    let client = site.client().await;
    add_full_mesh(&mut client.clone(), 1).await;
    let start = |machine: &str| {
        let (file, state, log) = (format!("{machine}.toml"), site.path(machine), format!("{machine}.log"));
        let text = format!(
            "name = \"s1\"\ncontroller = \"{}\"\nstate_dir = \"{}\"\nlookup = \"127.0.0.1:0\"\n",
            site.url,
            state.display()
        );
        std::fs::write(site.path(&file), text).unwrap();
        Process::logging(&["switch", "--config", site.path(&file).to_str().unwrap()], &site.path(&log))
    };
    let list = async || {
        let request = v1::ListSwitchesRequest {};
        client.clone().list_switches(request).await.unwrap().into_inner()
    };
    let first = start("one");
    eventually("the first one in step", async || in_step(&client).await == 1).await;
    let second = start("two");
    eventually("both are told of", async || !list().await.troubles.is_empty()).await;
    assert!(list().await.troubles[0].starts_with("two switches claim the name `s1`: "), "{:?}", list().await.troubles);
    let says = |log: &str, part: &str| std::fs::read_to_string(site.path(log)).unwrap().contains(part);
    eventually("the second one says why", async || says("two.log", "another switch says that it is `s1`")).await;
    eventually("the first one in step", async || in_step(&client).await == 1).await;
    assert!(!says("one.log", "another switch says"));
    let listed = site.fibula(&["switch", "list"]);
    assert!(stderr(&listed).contains("give one of them another name"), "{}", stderr(&listed));

    first.kill();
    let names = vec![record(1, "h1")];
    client.clone().put_names(v1::PutNamesRequest { names, ..Default::default() }).await.unwrap();
    eventually("the second one is served", async || in_step(&client).await == 1).await;
    drop(second);
}
