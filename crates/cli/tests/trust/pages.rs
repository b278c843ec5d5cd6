//! The page in a browser, with certificates.

use super::support::{PATIENCE, exit_code};
use super::{Trust, free_address};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A connection of TLS to pages, with the certificate of a directory, and all that comes by it; none without openssl.
fn browser(address: SocketAddr, files: &Path, request: &str) -> Option<(Child, std::sync::mpsc::Receiver<String>)> {
    let file = |name: &str| files.join(name).display().to_string();
    let mut child = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &address.to_string(), "-alpn", "http/1.1"])
        .args(["-cert", &file("cert.pem"), "-key", &file("key.pem")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    child.stdin.as_mut().unwrap().write_all(request.as_bytes()).unwrap();
    let (said, comes) = std::sync::mpsc::channel();
    let mut out = child.stdout.take().unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        // Until the connection ends.
        while let Some(n) = out.read(&mut bytes).ok().filter(|n| *n > 0) {
            _ = said.send(String::from_utf8_lossy(&bytes[..n]).into_owned());
        }
    });
    Some((child, comes))
}

#[test]
fn an_open_page_whose_certificate_is_revoked_is_told_so_and_then_cut_off() {
    let trust = Trust::new();
    let config = trust.site.path("controller.toml");
    // One that other machines reach, so that it takes certificates.
    let pages = SocketAddr::from(([0, 0, 0, 0], free_address().port()));
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("status = '{pages}'\n{text}")).unwrap();
    let _controller = trust.site.start();
    let done = |arguments: &[&str]| assert_eq!(exit_code(&trust.fibula("operator/admin", arguments)), 0);

    // Whoever sends the next request early has the server read nothing while it tells events.
    let pages = SocketAddr::from(([127, 0, 0, 1], pages.port()));
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    let request = format!("{}{}", get("/ui/events"), get("/ui/network"));
    let open = |holder: &str| browser(pages, &trust.dir(holder), &request);
    let Some((mut writer, of_writer)) = open("operator/writer") else {
        return netio::testkit::missing("openssl, by which a page is open while a certificate is revoked");
    };
    let (mut reader, of_reader) = open("operator/reader").unwrap();
    let until = |comes: &std::sync::mpsc::Receiver<String>, part: &str| {
        let mut all = String::new();
        while !all.contains(part) {
            all += &comes.recv_timeout(PATIENCE).unwrap_or_else(|end| panic!("{end}, and no {part} in {all}"));
        }
        all
    };
    done(&["switch", "add", "s1"]);
    for comes in [&of_writer, &of_reader] {
        let said = until(comes, "s1");
        assert!(said.contains("HTTP/1.1 200") && !said.contains("\"uptime_seconds\""), "{said}");
    }

    trust.authority.revoke("operator", "writer", None).unwrap();
    let said = until(&of_writer, "operator writer (writer) is no longer valid: it is revoked");
    assert!(said.contains("HTTP/1.1 403"), "{said}");
    done(&["switch", "add", "s2"]);
    // Nothing more comes, and the connection ends.
    let rest: String = std::iter::from_fn(|| match of_writer.recv_timeout(PATIENCE) {
        Ok(more) => Some(more),
        Err(end) => (end != std::sync::mpsc::RecvTimeoutError::Disconnected).then(|| panic!("the connection is open")),
    })
    .collect();
    assert!(!rest.contains("s2") && !rest.contains("HTTP/1.1 200"), "{rest}");
    // That of another goes on.
    until(&of_reader, "s2");
    for child in [&mut writer, &mut reader] {
        _ = child.kill();
        _ = child.wait();
    }
}

#[test]
fn a_reader_who_tries_to_change_something_from_the_page_is_counted_and_recorded_as_with_a_command() {
    let trust = Trust::new();
    let config = trust.site.path("controller.toml");
    let pages = SocketAddr::from(([0, 0, 0, 0], free_address().port()));
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("status = '{pages}'\ndashboard = 'change'\n{text}")).unwrap();
    let _controller = trust.site.start();
    let pages = SocketAddr::from(([127, 0, 0, 1], pages.port()));
    // The whole answer to one request; none without openssl.
    let ask = |holder: &str, request: &str| -> Option<String> {
        let (mut child, comes) = browser(pages, &trust.dir(holder), request)?;
        let mut answer = String::new();
        loop {
            match comes.recv_timeout(PATIENCE) {
                Ok(more) => answer += &more,
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                Err(end) => panic!("{end} after {answer}"),
            }
        }
        _ = child.kill();
        _ = child.wait();
        Some(answer)
    };
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let body = "{\"do\": \"link.drain\", \"end\": {\"switch\": \"s1\", \"port\": 2}}";
    let act = format!(
        "POST /ui/act HTTP/1.1\r\nHost: x\r\nX-Fibula: 1\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let Some(answer) = ask("operator/reader", &act) else {
        return netio::testkit::missing("openssl, which opens a page");
    };
    assert!(answer.contains("HTTP/1.1 403") && answer.contains("it needs the role writer"), "{answer}");
    // A writer may, if there is such a link.
    let answer = ask("operator/writer", &act).unwrap();
    assert!(answer.contains("HTTP/1.1 404"), "{answer}");
    let metrics = ask("operator/reader", &get("/metrics")).unwrap();
    assert!(metrics.contains("fibula_turned_away_total{reason=\"role\"} 1\n"), "{metrics}");
    let turned = trust.audit(&["--outcome", "turned-away", "--who", "reader"]);
    assert!(turned.len() == 1 && turned[0]["what"].as_str().unwrap().ends_with("DrainLink"), "{turned:?}");

    // What is not there is not found, whoever asks; what is there is not for everybody.
    for holder in ["operator/reader", "operator/admin", "switch/s1"] {
        let answer = ask(holder, &get("/nothing")).unwrap();
        assert!(answer.contains("HTTP/1.1 404"), "{holder}: {answer}");
    }
    assert!(ask("switch/s1", &get("/status")).unwrap().contains("HTTP/1.1 403"));
}
