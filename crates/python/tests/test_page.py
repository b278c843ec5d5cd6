"""The page for Python users shows what its code prints, and the types say what there is."""

import doctest
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import fibula
from support import ROOT, Controller, environment

PAGE = ROOT / "docs/how-to/use-from-python.md"


class Page(unittest.TestCase):
    def test_its_code_prints_what_it_shows(self):
        site = Controller()
        self.addCleanup(site.stop)
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        os.chdir(directory.name)
        with environment(FIBULA_CONTROLLER=site.url):
            failed, tried = doctest.testfile(
                str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            )
        self.assertGreater(tried, 20)
        self.assertEqual(failed, 0)


class Types(unittest.TestCase):
    maxDiff = None

    def test_the_stub_has_what_the_native_half_has(self):
        import ast

        stub = Path(fibula.__file__).with_name("_native.pyi").read_text()
        declared = {}
        for node in ast.parse(stub).body:
            if isinstance(node, ast.ClassDef):
                declared[node.name] = {item.name for item in node.body if isinstance(item, ast.FunctionDef)} - {"__new__"}
            elif isinstance(node, ast.FunctionDef):
                declared[node.name] = None
        import fibula._native as native

        there = {}
        for name, item in vars(native).items():
            if isinstance(item, type):
                there[name] = {key for key in vars(item) if key == "__len__" or not key.startswith("_")}
            elif callable(item):
                there[name] = None
        self.assertEqual(there, declared)

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed: make wheel-test installs it")
    def test_types_are_right(self):
        configuration = str(ROOT / "crates/python/pyproject.toml")
        with tempfile.TemporaryDirectory() as directory:
            # Of packages where they are installed mypy says nothing.
            copy = Path(directory) / "fibula"
            shutil.copytree(Path(fibula.__file__).parent, copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
            check = [sys.executable, "-m", "mypy", "--config-file", configuration, "-p", "fibula"]
            done = subprocess.run(check, capture_output=True, text=True, cwd=directory)
            with open(copy / "flow.py", "a") as file:
                file.write('\nFlowTable("many")\n')
            wrong = subprocess.run(check, capture_output=True, text=True, cwd=directory)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn('incompatible type "str"', wrong.stdout)


class Rates(unittest.TestCase):
    def test_the_program_that_measures_rates_checks_its_answers(self):
        done = subprocess.run(
            [sys.executable, "-m", "fibula.rate", "--names", "4K", "--designs", "concise,line", "--passes", "1"],
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"concise +4,096 +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+\nline +4,096")
        for what in ("filter", "flow", "lpm"):
            self.assertRegex(done.stdout, rf"{what} +4,096 +[\d.]+ +- +[\d.]+ +[\d.]+ +[\d.]+")
        low = subprocess.run(
            [sys.executable, "-m", "fibula.rate", "--names", "1K", "--passes", "1", "--at-least", "1000"], capture_output=True
        )
        self.assertEqual(low.returncode, 1)


if __name__ == "__main__":
    unittest.main()
