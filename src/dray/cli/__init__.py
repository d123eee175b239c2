"""The command line. Commands are imported only when they are used, so that `dray --help` answers at once."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click

from dray import __version__

# Exit codes after Ctrl-C, and when nobody reads on, as shells have them: 1 and 2 are answers.
INTERRUPTED: Final = 130
UNREAD: Final = 141

# command -> (module under dray.cli, one line for the list of commands), in the order of the help page
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("demo", "Start an example cluster, run example workloads and show what happens."),
    "up": ("up", "Run a local Kubernetes cluster: API server, scheduler, controllers, simulated nodes."),
    "kubeconfig": ("kubeconfig", "Print the kubeconfig of a `dray up` cluster, optionally with read-only access."),
    "scheduler": ("scheduler", "Run the Dray scheduler on any Kubernetes cluster."),
    "controllers": ("controllers", "Run Dray's controllers on any Kubernetes cluster."),
    "exporter": ("exporter", "Annotate each pod of a node with the NUMA zones that it uses."),
    "ui": ("ui", "Serve the web page: every device, why pods wait, what happened."),
    "why": ("why", "Explain why a pod is pending, or why it runs where it does."),
    "devices": ("devices", "List devices: free, in use and by which pods, tainted."),
    "zones": ("zones", "List the NUMA zones of nodes: what is free and which pods use the rest."),
    "taint": ("taint", "Taint devices: keep new pods away, or evict the pods that use them."),
    "untaint": ("taint", "Remove taints from devices."),
    "claims": ("claims", "List claims, and find those that nothing needs."),
    "release": ("release", "Release claims that no pod uses."),
    "verify": ("verify", "Prove that nothing is allocated twice."),
    "story": ("story", "Show what happened to a pod, step by step."),
    "snapshot": ("snapshot", "Save a cluster to one file, for the other commands to read."),
    "plan": ("plan", "Preview a change: placements, evictions, remaining capacity."),
    "simulate": ("simulate", "Simulate a cluster in virtual time."),
    "allocate": ("allocate", "Run only the device allocator, on manifests or JSON lines."),
    "numa": ("numa", "Check what a kubelet's Topology Manager would decide, from JSON lines."),
    "queues": ("queues", "Show queues: quota, fair share, usage and waiting pods."),
    "nodes": ("nodes", "Run simulated nodes with devices on any Kubernetes cluster."),
    "capture": ("capture", "Describe a cluster's hardware in a file, to simulate it."),
    "fabric": ("fabric", "Attach fabric devices (demonstration): sets binding conditions."),
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        gc.disable()  # of what is loaded nothing is garbage
        module = importlib.import_module(f"dray.cli.{COMMANDS[cmd_name][0]}")
        gc.enable()
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            from difflib import get_close_matches

            if near := get_close_matches(args[0], COMMANDS, 1):
                ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            unread()
        except RecursionError as error:
            from dray.cli.trouble import Trouble

            raise Trouble("an object is nested too deeply") from error
        except OverflowError as error:
            from dray.cli.trouble import Trouble

            raise Trouble("an object contains a number that is too large for any API field") from error
        except OSError as error:
            from dray.cli.trouble import Trouble, told

            raise Trouble(told(error)) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="dray")
def root() -> None:
    """Dray decides where work that needs devices runs on Kubernetes, and says why.

    \b
    Try it without a cluster:
      dray demo                          an example cluster with GPUs and workloads
      dray up --hardware gpu8:4          a local cluster of your own, for kubectl
    \b
    On an existing cluster (Kubernetes 1.34 or newer):
      dray scheduler --kubeconfig ~/.kube/config
      dray why train-0 -n research       why is this pod pending?
    """


def unread() -> NoReturn:
    """Whoever read the output has enough of it: end without a word, also from what is still to be flushed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(UNREAD)


def open_standard_streams() -> None:
    """Started with some of them closed (``dray verify >&-``, a supervisor that leaves none open), what is written there is not
    wanted. Opened in their order they have their own numbers again: else the first sockets would, and somebody writes to them."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `dray` and of `kubectl dray`."""
    open_standard_streams()
    root.main(args=None if arguments is None else list(arguments), prog_name=_program())


def _program() -> str:
    return "kubectl dray" if sys.argv[0].endswith("kubectl-dray") else "dray"
