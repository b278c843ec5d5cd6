//! Configurations that `fibula init` writes, and what `fibula doctor` says of them, as users see both.

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

netio::tests! {
    namespaces: [
        a_switch_is_configured_by_answers,
        a_controller_is_configured_by_answers,
        a_certificate_that_is_there_is_replaced_by_force_alone,
        what_is_written_is_for_the_service_whatever_the_umask,
        doctor_tells_daemons_that_are_stopped_failed_or_hung,
        doctor_tries_files_as_the_user_of_the_service,
        doctor_says_what_the_url_of_a_controller_leads_to,
        doctor_says_why_an_interface_can_be_no_port,
    ],
    anywhere: [
        a_file_that_is_there_is_replaced_by_force_alone,
        what_cannot_be_asked_has_to_be_said,
        a_gateway_and_dhcp_are_configured_by_flags,
        doctor_says_what_is_bad_and_fails_for_it,
        doctor_ends_as_its_help_says,
    ]
}

fn fibula(arguments: &[&str]) -> Output {
    // There is nobody to ask.
    Command::new(env!("CARGO_BIN_EXE_fibula")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What doctor says of a configuration: its exit code, and its findings.
fn doctor(path: &Path) -> (i32, Vec<Value>) {
    let output = fibula(&["doctor", "-j", "--config", text(path)]);
    let lines = String::from_utf8(output.stdout.clone()).unwrap();
    (code(&output), lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn finds(findings: &[Value], grade: &str, what: &str, words: &str) -> bool {
    let is_it =
        |row: &Value| row["grade"] == grade && row["what"] == what && row["finding"].as_str().unwrap().contains(words);
    findings.iter().any(is_it)
}

fn a_file_that_is_there_is_replaced_by_force_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("controller.toml");
    let made = fibula(&["init", "controller", "--output", text(&path)]);
    assert_eq!(code(&made), 0, "{made:?}");
    let checked = fibula(&["controller", "--check", "--config", text(&path)]);
    assert_eq!(code(&checked), 0, "{checked:?}");
    let arguments = ["init", "controller", "--max-names", "77", "--output", text(&path)];
    let before = std::fs::read_to_string(&path).unwrap();
    let refused = fibula(&arguments);
    assert!(code(&refused) == 5 && String::from_utf8_lossy(&refused.stderr).contains("--force"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    assert_eq!(code(&fibula(&[&arguments[..], &["--force"]].concat())), 0);
    assert!(read("controller.toml").contains("max_names = 77"));
    // What was there is kept, once.
    assert_eq!(read("controller.toml.bak"), before);
    let second = ["init", "controller", "--max-names", "78", "--force", "-j", "--output", text(&path)];
    let made: Value =
        serde_json::from_slice(fibula(&second).stdout.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    assert!(made["backup"].as_str().unwrap().ends_with("controller.toml.bak2"), "{made}");
    assert!(read("controller.toml.bak2").contains("max_names = 77"));
    assert_eq!(code(&fibula(&second)), 0);
    assert!(!directory.path().join("controller.toml.bak3").exists(), "the same again is no loss");
}

fn a_certificate_that_is_there_is_replaced_by_force_alone() {
    let directory = tempfile::tempdir().unwrap();
    let pki = directory.path().join("pki");
    for arguments in [
        &["init"][..],
        &["issue", "switch", "s1"],
        &["issue", "controller", "c1", "--address", "10.0.0.1"],
        &["issue", "operator", "me", "--role", "admin"],
    ] {
        assert_eq!(code(&fibula(&[&["pki", "--pki", text(&pki)], arguments].concat())), 0);
    }
    // Certificates of nobody here, in a directory with the name of that of a switch.
    let fake = directory.path().join("fake/s1");
    std::fs::create_dir_all(&fake).unwrap();
    for name in ["ca.pem", "cert.pem", "key.pem"] {
        std::fs::copy(pki.join("operator/me").join(name), fake.join(name)).unwrap();
    }
    // One machine, whose /etc nobody else sees. What a command does is said by its code, and by the key that is there then.
    let script = r#"
        mount -t tmpfs tmpfs /etc
        cd "$1"
        try() {
            wanted="$1"; shift
            code=0; "$fibula" init "$@" > out 2>&1 || code=$?
            key=none; ! test -e /etc/fibula/tls/s1/key.pem || key=$(cat /etc/fibula/tls/s1/key.pem)
            for one in pki/switch/s1 fake/s1; do test "$key" != "$(cat $one/key.pem)" || key=$one; done
            files=$(ls /etc/fibula/switch /etc/fibula/controller.toml elsewhere.toml 2>/dev/null | xargs)
            test "$code $key $files" = "$wanted" || { echo "$*: $code $key $files, not $wanted"; cat out; exit 1; }
        }
        says() { grep -qF -- "$1" out || { echo "no $1"; cat out; exit 1; }; }
        switch='switch --name s1 --host eth1 --controller https://10.0.0.1:4600 --certificate'
        try '5 none ' $switch fake/s1
        says 'that of operator me (admin), and not of switch s1'
        try '5 none ' $switch no/s1
        says 'fibula pki issue'
        try '4 none ' $switch pki/switch/s1 -o no/such/directory.toml
        try '0 pki/switch/s1 /etc/fibula/switch: s1.toml' $switch pki/switch/s1
        there='pki/switch/s1 /etc/fibula/switch: s1.toml'
        try "5 $there" $switch fake/s1 -o elsewhere.toml
        try "5 $there" $switch fake/s1 -o elsewhere.toml --force
        try "5 $there" controller --certificate pki/switch/s1 -o elsewhere.toml
        says 'and not of a controller'
        # Another one of the same switch.
        "$fibula" pki --pki pki renew switch s1
        old=$(cat /etc/fibula/tls/s1/key.pem)
        try "5 $old /etc/fibula/switch: s1.toml" $switch pki/switch/s1 -o elsewhere.toml
        says '--force replaces it'
        try "4 $old /etc/fibula/switch: s1.toml" $switch pki/switch/s1 -o no/such/directory.toml --force
        try "0 $there" $switch pki/switch/s1 --force
        # The same one again is no loss; and one in the current directory has its name nevertheless.
        cd pki/switch/s1
        "$fibula" init $switch . -o ../../../elsewhere.toml > /dev/null
        cd ../../..
        grep -qF /etc/fibula/tls/s1 elsewhere.toml
    "#;
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-euc", script, "sh", text(directory.path())])
        .env("fibula", env!("CARGO_BIN_EXE_fibula"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn what_cannot_be_asked_has_to_be_said() {
    for (arguments, word) in [
        (&["init", "switch", "--host", "eth1"][..], "--name"),
        (&["init", "switch", "--name", "s1"], "--host DEVICE"),
        (&["init", "switch", "--name", "../s1", "--host", "eth1"], "cannot be part of the name of a service"),
        (
            &["init", "switch", "--name", "s1", "--host", "eth1", "--controller", "http://10.0.0.1:4600", "-o", "-"],
            "TLS",
        ),
        (&["init", "controller", "--name-kind", "names", "-o", "-"], "names"),
        (&["init", "switch", "--name", "s1", "--outside", "eth3"], "--gateway"),
        (
            &["init", "switch", "--name", "s1", "--outside", "eth3", "--gateway", "10.0.0.254", "-o", "-"],
            "eth3=192.0.2.1/24",
        ),
        (&["init", "switch", "--name", "s1", "--host", "eth1", "--dhcp-at", "eth2", "-o", "-"], "--host eth2"),
    ] {
        let output = fibula(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(code(&output) == 2 && stderr.contains(word), "{arguments:?}: {stderr}");
    }
    let printed = fibula(&["init", "switch", "--name", "s1", "--host", "eth1", "--trunk", "eth2", "-o", "-"]);
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("id = 2\ndevice = \"eth2\"\nrole = \"trunk\""), "{printed}");
    assert!(printed.contains("control = \"unix:/var/lib/fibula/switch/s1/control.sock\""), "{printed}");
}

fn a_gateway_and_dhcp_are_configured_by_flags() {
    let arguments = "init switch --name s1 --host eth1 --host eth2 --outside eth3=192.0.2.1/24 --outside eth4=2001:db8::1/64 --gateway \
         10.0.0.254 --gateway fd00::fe --next-hop 192.0.2.254 --next-hop 2001:db8::ff --dhcp-server 02:00:00:00:00:63 --dhcp-at eth2 \
         --state-dir /srv/s1 -o -";
    let output = fibula(&arguments.split_whitespace().collect::<Vec<_>>());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let config = switch::daemon::config::Config::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(config.state_dir, Path::new("/srv/s1"));
    assert!(config.control.is_some_and(|at| at.to_string().contains("/srv/s1/control.sock")));
    assert!(config.dhcp_server.is_some() && config.dhcp_trusted == Some(false));
    assert_eq!(config.ports.iter().map(|port| port.dhcp_trusted).collect::<Vec<_>>(), [None, Some(true), None, None]);
    let config = switch::daemon::config::Config::parse(&text).unwrap();
    let gateway = config.gateway_settings().unwrap().unwrap();
    assert_eq!((gateway.outside.len(), gateway.routes.len(), gateway.addresses.len()), (2, 4, 2));
    assert!(text.contains("fibula name add 02:f2:"), "{text}");
}

fn doctor_says_what_is_bad_and_fails_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("controller.toml");
    let store = directory.path().join("rib.sqlite");
    let config = |listen: &str| {
        format!("listen = '{listen}'\nstore = '{}'\nname_kind = 'mac'\nmax_names = 1000\n", store.display())
    };
    // A port that nobody listens at, since no daemon runs.
    std::fs::write(&path, config("127.0.0.1:0")).unwrap();
    let (good, findings) = doctor(&path);
    assert_eq!(good, 0, "{findings:#?}");
    assert!(finds(&findings, "ok", "configuration", "(controller)"));
    assert!(finds(&findings, "warning", "certificate", "fibula pki init"));
    assert!(findings.iter().any(|row| row["what"] == "kernel" && row["of"].is_null()));

    // An address for documentation is nobody's.
    std::fs::write(&path, format!("{}insecure = true\n", config("192.0.2.77:4600"))).unwrap();
    let (bad, findings) = doctor(&path);
    // As documented for every command whose check failed: the command itself worked.
    assert!(bad == 6 && finds(&findings, "bad", "listen", "ip address"), "{findings:#?}");

    let path = directory.path().join("s1.toml");
    let made = fibula(&["init", "switch", "--name", "s1", "--host", "no-such-nic", "--trunk", "lo", "-o", text(&path)]);
    assert!(String::from_utf8_lossy(&made.stdout).contains("there is no interface no-such-nic"), "{made:?}");
    let (bad, findings) = doctor(&path);
    assert_eq!(bad, 6);
    assert!(finds(&findings, "bad", "port 1", "ip link"), "{findings:#?}");
    assert!(finds(&findings, "bad", "port 2", "not an Ethernet interface"), "{findings:#?}");

    std::fs::write(&path, "name = 's1'\nstate_dir = '/tmp/x'\n").unwrap();
    let (bad, findings) = doctor(&path);
    assert!(bad == 6 && finds(&findings, "bad", "configuration", "controller"), "{findings:#?}");
}

fn doctor_ends_as_its_help_says() {
    let help = String::from_utf8(fibula(&["doctor", "--help"]).stdout).unwrap();
    for words in ["0 if nothing is bad", "6 if something is", "4 if there is no configuration", "2 if the command line"]
    {
        let help: Vec<&str> = help.split_whitespace().collect();
        assert!(help.join(" ").contains(words), "no {words}: {help:?}");
    }
    let wrong = fibula(&["doctor", "--no-such"]);
    assert!(code(&wrong) == 2 && wrong.stdout.is_empty(), "{wrong:?}");
    // Rows are on standard output, and why it fails is not.
    let (code, findings) = doctor(Path::new("/no/such.toml"));
    assert!(code == 6 && finds(&findings, "bad", "configuration", "`fibula init` writes one"), "{findings:#?}");
    let stderr = fibula(&["doctor", "-j", "--config", "/no/such.toml"]).stderr;
    let error: Value = serde_json::from_slice(&stderr).unwrap();
    assert!(error["exit"] == 6 && error["error"] == "1 finding is bad", "{error}");
}

/// The beginning of a script on a machine of its own, whose /etc, /run and network no one else sees: in it, systemd seems to run, and says
/// of every unit what the file `unit` does. `doctor CODE` and `says WORDS` check what doctor ends with and says, on standard output.
const MACHINE: &str = r#"
    grep -E '^(root|nobody):' /etc/passwd > passwd
    grep -E '^(root|nogroup):' /etc/group > group
    mount -t tmpfs tmpfs /etc
    mount -t tmpfs tmpfs /run
    mount -t sysfs sysfs /sys
    ip link set lo up
    mkdir -p /run/systemd/system bin /etc/fibula/switch
    cp passwd group /etc
    printf '#!/bin/sh\n! test -e %s/hangs || exec sleep 1000\ncat %s/unit\n' "$PWD" "$PWD" > bin/systemctl
    chmod +x bin/systemctl
    PATH="$PWD/bin:$PATH"
    unit() { printf '%s\n' LoadState=loaded "$@" > unit; }
    doctor() {
        wanted="$1"; shift
        code=0; "$fibula" doctor "$@" > out 2> err || code=$?
        test "$code" = "$wanted" || { echo "doctor: $code, not $wanted"; cat out err; exit 1; }
    }
    says() { grep -qE -- "$1" out || { echo "no $1"; cat out; exit 1; }; }
    lacks() { ! grep -E -- "$1" out || { echo "$1"; cat out; exit 1; }; }
    until_says() { tries=0; until grep -q -- "$1" "$2"; do tries=$((tries + 1)); test $tries -lt 3000 || { cat "$2"; exit 1; }; sleep 0.02; done; }
"#;

/// Runs a script in namespaces of its own, after [`MACHINE`], in an empty directory.
fn on_a_machine(script: &str) {
    let directory = tempfile::tempdir().unwrap();
    // Other users are to get as far as the files.
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-euc"])
        .arg(format!("{MACHINE}{script}"))
        .env("fibula", env!("CARGO_BIN_EXE_fibula"))
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn what_is_written_is_for_the_service_whatever_the_umask() {
    on_a_machine(
        r#"
        rmdir /etc/fibula/switch /etc/fibula
        "$fibula" pki --pki pki init > out
        "$fibula" pki --pki pki issue switch s1 > out
        umask 077
        "$fibula" init controller > out
        "$fibula" init switch --name s1 --host eth1 --controller https://127.0.0.1:4600 --certificate pki/switch/s1 > out
        "$fibula" init switch --name s2 --host eth2 > out
        test "$(stat -c %a /etc/fibula /etc/fibula/switch /etc/fibula/controller.toml /etc/fibula/switch/s1.toml | xargs)" = '755 755 644 644'
        test "$(stat -c %a /etc/fibula/tls /etc/fibula/tls/s1 /etc/fibula/tls/s1/key.pem | xargs)" = '750 750 600'
        # Each switch has a page of its own, also when its file is written anew.
        grep -q '127.0.0.1:4602' /etc/fibula/switch/s1.toml
        grep -q '127.0.0.1:4603' /etc/fibula/switch/s2.toml
        "$fibula" init switch --name s1 --host eth3 --force > out
        grep -q '127.0.0.1:4602' /etc/fibula/switch/s1.toml
        ls /etc/fibula/switch | xargs > out
        grep -qx 's1.toml s1.toml.bak s2.toml' out
        "#,
    );
}

fn doctor_tells_daemons_that_are_stopped_failed_or_hung() {
    on_a_machine(
        r#"
        "$fibula" init controller --store "$PWD/rib.sqlite" > out
        unit ActiveState=inactive SubState=dead Result=success ExecMainStartTimestamp=
        doctor 0
        says 'warning +/etc/fibula/controller.toml +service +.*was never started; systemctl enable --now fibula-controller.service'
        "$fibula" controller --config /etc/fibula/controller.toml > log 2>&1 &
        pid=$!
        until_says 'listens on' log
        unit ActiveState=active SubState=running MainPID=$pid
        doctor 0
        says "ok +/etc/fibula/controller.toml +service +fibula-controller.service runs, as process $pid"
        says "ok +/etc/fibula/controller.toml +controller +runs, with 0 names"
        says "ok .* listen +127.0.0.1:4600: the daemon listens there, as process $pid"
        # It accepts connections, and does not answer.
        kill -STOP $pid
        until_says '^State:.T' /proc/$pid/status
        doctor 6
        says "bad .* service +process $pid was stopped by a signal .*kill -CONT $pid; systemctl status fibula-controller"
        says 'untried .* status +not tried, because the process is stopped'
        kill -CONT $pid
        kill -KILL $pid
        wait $pid || true
        unit ActiveState=failed SubState=failed Result=signal ExecMainStatus=9
        doctor 6
        says 'bad .* service .*has failed \(it was killed by signal 9\); systemctl status .*; journalctl -e -u fibula-controller'
        # What systemd has forgotten, the store still says.
        unit ActiveState=inactive SubState=dead Result=success ExecMainStartTimestamp=
        doctor 6
        says 'bad .* service .*is stopped; systemctl enable --now fibula-controller.service'
        touch hangs
        doctor 6
        says 'bad .* service .*does not run now; start it with fibula controller --config .*, since systemctl does not answer in time'
        rm /etc/fibula/controller.toml
        doctor 4
        grep -q 'make one with `fibula init`' err
        test ! -s out
        "#,
    );
}

fn doctor_tries_files_as_the_user_of_the_service() {
    on_a_machine(
        r#"
        mount -t tmpfs tmpfs /root
        "$fibula" pki --pki pki init > out
        "$fibula" pki --pki pki issue switch s1 > out
        ip link add eth1 type veth peer name eth2
        ip link set eth1 up
        ip link set eth2 up
        mkdir /etc/fibula/tls
        cp -r pki/switch/s1 /etc/fibula/tls/
        chown -R nobody /etc/fibula/tls/s1
        chmod 755 /etc/fibula/tls/s1
        "$fibula" init switch --name s1 --host eth1 --controller https://127.0.0.1:4600 --tls /etc/fibula/tls/s1 > out
        service() { unit ActiveState=inactive User=nobody AmbientCapabilities='cap_net_admin cap_net_raw' StateDirectory=fibula/switch/s1 "$@"; }
        service ProtectHome=yes ProtectSystem=strict
        # Nobody is at the URL.
        doctor 6
        says 'ok .* files +the user nobody may use all [0-9]+ that the daemon opens'
        lacks 'private key'
        key=/etc/fibula/tls/s1/key.pem
        chown root $key
        doctor 6
        says "bad .* private key +the user nobody cannot read $key; chown nobody $key; chmod 600 $key"
        lacks ' files +the user'
        # The command is the one that helps.
        $(grep -oE "chown nobody $key" out)
        doctor 6
        says 'ok .* files +the user nobody'
        chmod 644 $key
        doctor 6
        says "warning .* private key +every user of this machine may read or write $key; chmod 600 $key"
        chown root $key
        chmod 640 $key
        chgrp nogroup $key
        doctor 6
        lacks 'private key'
        chown nobody:root $key
        chmod 600 $key
        chown root:root /etc/fibula/tls
        chmod 700 /etc/fibula/tls
        doctor 6
        says 'bad .* certificate +the user nobody cannot read .*; chgrp nogroup /etc/fibula/tls; chmod g\+x /etc/fibula/tls'
        chmod 755 /etc/fibula/tls
        chmod 600 /etc/fibula/switch/s1.toml
        doctor 6
        says 'bad .* configuration +the user nobody cannot read .*; chmod a\+r /etc/fibula/switch/s1.toml'
        chmod 644 /etc/fibula/switch/s1.toml
        # What the unit hides.
        cp -r pki/switch/s1 /root/
        chmod 755 /root /root/s1
        chown nobody /root/s1/*
        sed -i "s,/etc/fibula/tls/s1,/root/s1," /etc/fibula/switch/s1.toml
        doctor 6
        says 'bad .* unit +fibula-switch@s1.service cannot see /root/s1 \(ProtectHome=\); it is in a home directory: cp -r /root/s1 /etc/fibula/tls/'
        test "$(grep -c 'cannot see' out)" = 1
        sed -i "s,/root/s1,/etc/fibula/tls/s1,; s,/var/lib/fibula/switch/s1,$PWD/state," /etc/fibula/switch/s1.toml
        mkdir -m 700 state
        doctor 6
        says "bad .* unit +fibula-switch@s1.service may not write in $PWD/state .*ReadWritePaths=$PWD/state"
        service ProtectSystem=strict ReadWritePaths="$PWD/state"
        doctor 6
        lacks 'may not write'
        says "bad .* state_dir +the user nobody cannot write $PWD/state; chown nobody: $PWD/state"
        chown nobody state
        touch state/audit.jsonl state/image
        chmod 600 state/*
        doctor 6
        says "bad .* state_dir +the user nobody cannot write existing files.*chown nobody: $PWD/state/(audit.jsonl $PWD/state/image|image $PWD/state/audit.jsonl)"
        chown nobody state/*
        doctor 6
        says 'ok .* files +the user nobody'
        service User=none
        doctor 6
        says 'bad .* user +fibula-switch@s1.service runs as the user none, who does not exist on this machine'
        "#,
    );
}

fn doctor_says_what_the_url_of_a_controller_leads_to() {
    on_a_machine(
        r#"
        ip address add 10.9.9.9/32 dev lo
        rmdir /run/systemd/system
        "$fibula" pki --pki pki init > out
        "$fibula" pki --pki pki issue switch s1 > out
        "$fibula" pki --pki pki issue controller c1 --address 127.0.0.1 --address 10.9.9.9 > out
        controller() { printf '%s
' "listen = '$1'" "status = '$2'" "store = '$PWD/$3.sqlite'" "name_kind = 'mac'" 'max_names = 1000' > $3.toml; }
        controller 127.0.0.1:4600 127.0.0.1:4601 plain
        controller 10.9.9.9:4700 10.9.9.9:4701 tls
        printf '%s
' '[tls]' "dir = '$PWD/pki/controller/c1'" >> tls.toml
        printf '%s
' "name = 's2'" "controller = 'http://127.0.0.1:4600'" "state_dir = '$PWD/s2'" "lookup = '127.0.0.1:4800'" "status = '127.0.0.1:4802'" > s2.toml
        "$fibula" controller --config plain.toml > plain.log 2>&1 &
        plain=$!
        "$fibula" controller --config tls.toml > tls.log 2>&1 &
        "$fibula" switch --config s2.toml > s2.log 2>&1 &
        until_says 'listens on' plain.log
        until_says 'listens on' tls.log
        until_says 'runs' s2.log
        leads() {
            printf '%s
' "name = 's1'" "controller = '$1'" "state_dir = '$PWD/s1'" "lookup = '127.0.0.1:0'" > s1.toml
            case "$1" in https*) printf '%s
' '[tls]' "dir = '$PWD/pki/switch/s1'" >> s1.toml ;; *) echo 'insecure = true' >> s1.toml ;; esac
            code=0; "$fibula" doctor --config s1.toml > out 2> err || code=$?
            says "$2 +s1.toml +controller +$1: $3"
            test $code = $(test "$2" = ok && echo 0 || echo 6)
        }
        leads http://127.0.0.1:4600 ok 'a controller answers'
        leads https://10.9.9.9:4700 ok 'a controller answers'
        leads http://127.0.0.1:4601 bad 'that is the status page of a controller .*; write the address of its `listen`, 127.0.0.1:4600'
        leads https://127.0.0.1:4601 bad 'that is the status page of a controller'
        leads https://10.9.9.9:4701 bad 'that is not a listener for switches, .* its `status`'
        leads http://10.9.9.9:4700 bad 'TLS is spoken there; write https://'
        leads https://127.0.0.1:4600 bad 'no TLS is spoken there'
        leads http://127.0.0.1:4802 bad 'that is the status page of a switch'
        leads http://127.0.0.1:4800 bad '.*not a controller'
        leads http://127.0.0.1:4999 bad 'no process listens at 127.0.0.1:4999; on its machine: systemctl start fibula-controller'
        leads http://no-such-host.invalid:4600 bad 'the name cannot be resolved'
        leads unix:$PWD/no.sock bad 'there is no such socket'
        kill -STOP $plain
        until_says '^State:.T' /proc/$plain/status
        leads http://127.0.0.1:4600 bad 'connections are accepted there, but nothing is sent within 3 s'
        kill -CONT $plain
        # A controller has nothing to say of who asks in vain.
        ! grep -iE 'warn|error' plain.log | grep -v s2
        "#,
    );
}

fn doctor_says_why_an_interface_can_be_no_port() {
    on_a_machine(
        r#"
        ip link add br0 type bridge
        for i in 1 3 5 7; do
            ip link add eth$i type veth peer name eth$((i + 1))
            ip link set eth$i up
            ip link set eth$((i + 1)) up
        done
        ip link set eth1 master br0
        ip address add 10.1.1.1/24 dev eth3
        ip link set eth5 down
        ip address add 2001:db8::1/64 dev eth5
        switch() {
            printf '%s
' "name = '$1'" "controller = 'http://127.0.0.1:4600'" "state_dir = '$PWD/$1'" > $1.toml
            name=$1; shift; id=0
            for device; do id=$((id + 1)); printf '%s
' '[[port]]' "id = $id" "device = '$device'" "role = 'host'" >> $name.toml; done
        }
        switch s1 eth1 eth3 eth5 eth9 eth7 br0 eth8
        switch s2 eth7
        "$fibula" switch --config s2.toml > log 2>&1 &
        pid=$!
        until_says 'runs' log
        doctor 6 --config s1.toml --config s2.toml
        says 'bad +s1.toml +port 1 +eth1 is a part of the bridge br0, which receives its frames, too; ip link set eth1 nomaster'
        says 'warning +s1.toml +port 2 +eth3 has the address 10.1.1.1/24, .*ip address flush dev eth3'
        says 'warning +s1.toml +port 3 +eth5 has the address 2001:db8::1/64, '
        says 'bad +s1.toml +port 3 +eth5 is down; ip link set eth5 up'
        says 'bad +s1.toml +port 4 +there is no interface eth9; .*eth2, '
        says "bad +s1.toml +port 5 +process $pid already forwards at eth7"
        says 'warning +s1.toml +port 5 +eth7 is also a port in s2.toml'
        says 'bad +s1.toml +port 6 +br0 is a bridge'
        says 'ok +s1.toml +port 7 +eth8 is up'
        # Its own process is no other one.
        lacks ' s2.toml +port 1 +process'
        "#,
    );
}

/// `fibula` with arguments at a terminal, on a machine with the name gate and these pairs of Ethernet interfaces, with its configuration in
/// `home`, with these answers to its questions:
/// its exit code, and all that the terminal showed.
fn at_terminal(home: &Path, interfaces: &[[&str; 2]], arguments: &[&str], answers: &[(&str, &str)]) -> (i32, String) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, vec![]).unwrap();
    let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let terminal = File::options().read(true).write(true).open(name).unwrap();
    let links: String =
        interfaces.iter().map(|[one, other]| format!("ip link add {one} type veth peer name {other}; ")).collect();
    let script = format!(
        "mount -t sysfs sysfs /sys; mount -t tmpfs tmpfs /etc; ip link set lo up; echo gate.example.org > /proc/sys/kernel/hostname; {links} exec \"$0\" \"$@\""
    );
    let mut child = Command::new("unshare")
        .args(["--mount", "--net", "--uts", "sh", "-ec", &script, env!("CARGO_BIN_EXE_fibula")])
        .args(arguments)
        .env("XDG_CONFIG_HOME", home)
        .stdin(terminal.try_clone().unwrap())
        .stdout(terminal.try_clone().unwrap())
        .stderr(terminal)
        .spawn()
        .unwrap();
    let (mut master, mut shown) = (File::from(master), String::new());
    let mut answers = answers.iter();
    let mut next = answers.next();
    // The terminal ends with an error when the last process has closed it.
    let mut bytes = [0; 4096];
    while let Ok(n @ 1..) = master.read(&mut bytes) {
        shown.push_str(&String::from_utf8_lossy(&bytes[..n]));
        if let Some((question, answer)) = next
            && shown.ends_with(": ")
        {
            let asked = shown.lines().last().unwrap_or_default();
            assert!(asked.contains(question), "`{asked}` is asked, not `{question}`: {shown}");
            master.write_all(format!("{answer}\n").as_bytes()).unwrap();
            next = answers.next();
        }
    }
    assert_eq!(next, None, "this is not asked: {shown}");
    (child.wait().unwrap().code().unwrap(), shown)
}

fn a_switch_is_configured_by_answers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s1.toml");
    let arguments = ["init", "switch", "--output", text(&path)];
    let (code, shown) = at_terminal(
        directory.path(),
        &[["eth1", "eth2"], ["eth3", "eth4"]],
        &arguments,
        &[
            // What is no answer is asked again; no answer is the default.
            ("name of the switch [gate]", "../s7"),
            ("name of the switch [gate]", ""),
            ("[http://127.0.0.1:4600]", "10.0.0.1:4600"),
            ("[http://127.0.0.1:4600]", "http://10.0.0.1:4600"),
            ("[http://127.0.0.1:4600]", ""),
            ("eth1 (MTU 1500", "hosts"),
            ("eth1 (MTU 1500", "host"),
            ("eth2 (MTU 1500", "t"),
            ("eth3 (MTU 1500", ""),
            ("eth4 (MTU 1500", "n"),
        ],
    );
    assert_eq!(code, 0, "{shown}");
    for why in
        ["cannot be part of the name of a service", "not a controller's URL", "is without TLS", "host, trunk or no"]
    {
        assert!(shown.contains(why), "no {why}: {shown}");
    }
    let written = std::fs::read_to_string(&path).unwrap();
    for line in [
        "name = 'gate'",
        "controller = 'http://127.0.0.1:4600'",
        "device = 'eth1'\nrole = \"host\"",
        "device = 'eth2'\nrole = \"trunk\"",
    ] {
        assert!(written.replace('"', "'").contains(&line.replace('"', "'")), "no {line} in {written}");
    }
    assert!(!written.contains("eth3") && !written.contains("eth4"), "{written}");

    // A file that is there is said before anything is asked.
    let (code, shown) = at_terminal(directory.path(), &[["eth1", "eth2"]], &arguments, &[]);
    assert!(code == 5 && shown.contains("--force replaces it and keeps a copy"), "{code}: {shown}");

    // Who says no to all of them is asked again. Who ends it is told what was typed, and what was there stays.
    let (code, shown) = at_terminal(
        directory.path(),
        &[["eth1", "eth2"]],
        &["init", "switch", "--force", "--output", text(&path)],
        &[("name", "s8"), ("URL", ""), ("eth1", "no"), ("eth2", ""), ("eth1", "trunk"), ("eth2", "\u{4}")],
    );
    assert!(code == 130 && shown.contains("a switch needs ports"), "{code}: {shown}");
    let command = format!(
        "fibula init switch --name s8 --controller http://127.0.0.1:4600 --trunk eth1 --output {} --force",
        path.display()
    );
    assert!(shown.contains(&command), "no {command}: {shown}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), written);

    // Without an interface there is nothing to ask.
    let (code, shown) = at_terminal(directory.path(), &[], &["init", "switch", "--output", "/tmp/no-such.toml"], &[]);
    assert!(code == 2 && shown.contains("no Ethernet interface"), "{code}: {shown}");
}

fn a_controller_is_configured_by_answers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("controller.toml");
    let pki = directory.path().join("fibula/pki");
    for arguments in
        [&["init"][..], &["issue", "controller", "c1", "--address", "10.0.0.1"], &["issue", "switch", "s1"]]
    {
        assert_eq!(code(&fibula(&[&["pki", "--pki", text(&pki)], arguments].concat())), 0);
    }
    let (code, shown) = at_terminal(
        directory.path(),
        &[],
        &["init", "controller", "--output", text(&path)],
        &[
            // It is nobody's address; and others reach the other one, which takes a certificate.
            ("[127.0.0.1:4600]", "192.0.2.77:4600"),
            ("[127.0.0.1:4600]", "0.0.0.0:4600"),
            ("/fibula/pki/controller/c1]", "/no/such/directory"),
            ("/fibula/pki/controller/c1]", text(&pki.join("switch/s1"))),
            ("/fibula/pki/controller/c1]", ""),
        ],
    );
    assert_eq!(code, 0, "{shown}");
    for why in ["ip address", "cannot read the certificate", "and not of a controller"] {
        assert!(shown.contains(why), "no {why}: {shown}");
    }
    let written = std::fs::read_to_string(&path).unwrap();
    for line in ["listen = \"0.0.0.0:4600\"", "dir = \"/etc/fibula/tls/c1\""] {
        assert!(written.contains(line), "no {line} in {written}");
    }
    // By default nobody else reaches it, and nothing more is asked.
    let path = directory.path().join("other.toml");
    let (code, shown) =
        at_terminal(directory.path(), &[], &["init", "controller", "--output", text(&path)], &[("4600]", "")]);
    assert_eq!(code, 0, "{shown}");
}
