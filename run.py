"""Set up Dray in ``.venv`` beside this file and run it. Needs only Python 3.11+ with pip.

    python3 run.py demo [OPTIONS OF dray demo]     run the demo
    python3 run.py test [OPTIONS OF pytest]        run the tests
    python3 run.py set-up [dev|page]               only install: also what the tests (dev) or the page's tests need

An existing set-up is reused until ``pyproject.toml`` changes or its Python is gone. This file also runs on older Pythons, to
report that they are too old.
"""

import os
import shutil
import subprocess
import sys
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(HERE, ".venv")
BIN = os.path.join(VENV, "Scripts" if os.name == "nt" else "bin")
PYTHON = os.path.join(BIN, "python.exe" if os.name == "nt" else "python")
NEEDED = (3, 11)
# The tests that a change must pass before anything else; make has the others.
TESTS = ["-m", "pytest", "-m", "not real and not slow", "-n", "auto"]


def main(arguments):
    if sys.version_info < NEEDED:
        return "Dray needs Python 3.11 or newer, but this is {}.{}; run it with a newer one.".format(*sys.version_info)
    command, *options = arguments or [""]
    if command == "demo":
        set_up("")
        return run(["-m", "dray", "demo", *options])
    if command == "test":
        set_up("dev")
        return run([*TESTS, *options])
    if command == "set-up" and set(options) <= {"dev", "page"}:
        for extra in options or [""]:
            set_up(extra)
        return 0
    print(__doc__.strip())
    return 0 if command in ("-h", "--help", "help") else 2


def set_up(extra):
    """``extra``: dependencies beyond those that Dray itself needs, by their name in pyproject.toml."""
    done = os.path.join(VENV, "." + (extra or "installed"))
    there = os.path.exists(PYTHON)  # and not gone with the Python that it was made of
    if there and os.path.exists(done) and os.path.getmtime(done) >= os.path.getmtime(os.path.join(HERE, "pyproject.toml")):
        return
    print("Setting up .venv{}; the first time this takes a minute …".format(" for " + extra if extra else ""), flush=True)
    pip = the_pip_at_hand()
    if not there:
        make_environment(with_pip=not pip)
    what = f"{HERE}[{extra}]" if extra else HERE
    install = ["install", "--quiet", "--disable-pip-version-check", "-e", what]
    subprocess.run([*(pip or [PYTHON, "-m", "pip"]), *install], check=True)
    with open(done, "w"):
        pass


def make_environment(with_pip):
    try:
        venv.create(VENV, clear=True, with_pip=with_pip)
    except subprocess.CalledProcessError:
        shutil.rmtree(VENV)  # half of one would be taken for a whole one
        raise


def the_pip_at_hand():
    """Of the Python that runs this: not every distribution ships what puts another pip into a new environment."""
    asked = subprocess.run([sys.executable, "-m", "pip", "--python", sys.executable, "--version"], capture_output=True)
    return [sys.executable, "-m", "pip", "--python", PYTHON] if asked.returncode == 0 else []


def run(arguments):
    """In the place of this process where the system can do that, so that signals reach who is meant."""
    if os.name == "nt":
        return subprocess.run([PYTHON, *arguments], cwd=HERE).returncode
    os.chdir(HERE)
    return os.execv(PYTHON, [PYTHON, *arguments])


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as failed:
        print((failed.output or b"").decode(errors="replace"), end="", flush=True)
        sys.exit(f"pip could not install what Dray needs (exit code {failed.returncode}); see its output above.")
