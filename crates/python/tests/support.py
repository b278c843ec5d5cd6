"""What tests share: names, and the command `fibula` as a process."""

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from pathlib import Path

import numpy as np

from fibula.rate import macs

ROOT = Path(os.environ.get("FIBULA_ROOT", Path(__file__).resolve().parents[3]))


def fibula():
    """The command, of the same build or named by FIBULA."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    named = os.environ.get("FIBULA")
    for path in [named] if named else [target / "release/fibula", target / "debug/fibula"]:
        if Path(path).exists():
            return str(path)
    raise AssertionError("these tests run the command `fibula`: cargo build -p fibula-cli, or set FIBULA")


def run(*arguments, **more):
    """Runs the command; what it printed."""
    done = subprocess.run([fibula(), *map(str, arguments)], capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


@contextlib.contextmanager
def environment(**variables):
    """These variables, and no certificate of the user who runs the tests."""
    before = dict(os.environ)
    for name in ("FIBULA_TLS", "FIBULA_CERT", "FIBULA_KEY", "FIBULA_CA"):
        os.environ.pop(name, None)
    os.environ.update(XDG_CONFIG_HOME="/nonexistent", **{name: str(value) for name, value in variables.items()})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def texts(names):
    """MAC addresses of dtype 'S6' as texts."""
    rows = np.ascontiguousarray(names).view(np.uint8).reshape(-1, 6)
    return [":".join(f"{byte:02x}" for byte in row) for row in rows.tolist()]


class Controller:
    """A controller on a free port of this machine, with its own store; with certificates if `tls`."""

    def __init__(self, tls=False, extra=""):
        self.directory = Path(tempfile.mkdtemp())
        # Bound and never listening: the controller may bind the same port, no other process gets it.
        self.reserved = socket.socket()
        self.reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.reserved.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.reserved.getsockname()[1]
        self.url = ("https://" if tls else "http://") + self.address
        lines = [f'listen = "{self.address}"', f'store = "{self.directory}/rib.sqlite"', 'name_kind = "mac"', "max_names = 100000", extra]
        if tls:
            pki = ["--pki", self.directory / "pki"]
            run("pki", *pki, "init")
            run("pki", *pki, "issue", "controller", "c1", "--address", "127.0.0.1")
            for role in ("admin", "reader"):
                run("pki", *pki, "issue", "operator", role, "--role", role)
            lines += ["[tls]", f'dir = "{self.directory}/pki/controller/c1"']
        (self.directory / "controller.toml").write_text("\n".join(lines))
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [fibula(), "controller", "--config", str(self.directory / "controller.toml")],
            stdout=subprocess.PIPE,
            env={**os.environ, "FIBULA_LOG": "warn"},
        )
        assert self.process.stdout.readline(), "the controller ended before it served"

    def credentials(self, operator):
        return self.directory / "pki/operator" / operator

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def restart(self):
        self.end()
        self.start()

    def stop(self):
        self.end()
        self.reserved.close()
        shutil.rmtree(self.directory)


@contextlib.contextmanager
def impostor(holder):
    """A server with TLS that has the certificate in this directory: where it is, and what it was asked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(holder / "cert.pem", holder / "key.pem")
    context.set_alpn_protocols(["h2"])
    listener = socket.create_server(("127.0.0.1", 0))
    asked = []

    def serve():
        while True:
            try:
                stream, _ = listener.accept()
            except OSError:
                return
            # A peer that waits for its end delays the client's.
            stream.settimeout(10)
            try:
                with context.wrap_socket(stream, server_side=True) as stream:
                    asked.append(stream.recv(4096))
            except OSError:
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield "127.0.0.1:%d" % listener.getsockname()[1], lambda: b"".join(asked)
    finally:
        # Wakes who accepts.
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


__all__ = ["Controller", "ROOT", "environment", "fibula", "impostor", "macs", "run", "texts"]
