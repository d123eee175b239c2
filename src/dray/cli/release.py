"""``dray release``: let go of claims that no pod uses, and show why that is so."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from typing import Any, Final

import click
import msgspec
from rich.console import Console

from dray.api.core import Pod
from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.api.meta import decode
from dray.api.resource import FINALIZER, DeviceKey, ResourceClaim
from dray.cli.output import emit, output_option
from dray.cli.source import Source, source_options
from dray.cli.trouble import Trouble
from dray.cluster.port import Conflict, NotFound, Write
from dray.cluster.remote import Remote
from dray.explain.orphans import claim_rows, usage

MANAGER: Final = "dray-release"
# Somebody else wrote the claim in between: looked at again this many times.
TRIES: Final = 5


class Released(msgspec.Struct, rename="camel"):
    """What became of one claim. ``refused`` says who uses it."""

    claim: str
    devices: list[str] = []
    proof: list[str] = []
    refused: list[str] = []
    deleted: bool = False
    done: bool = False
    idle: bool = False
    """Nothing is held, reserved or kept, so that nothing was or would be done."""


@click.command()
@click.argument("names", nargs=-1, metavar="[CLAIM]…")
@click.option("-n", "--namespace", help="Namespace of the claims.")
@click.option("--orphans", is_flag=True, help="Release all claims that `dray claims --orphans` lists.")
@click.option("--dry-run", is_flag=True, help="Only show the evidence.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation with --orphans.")
@source_options
@output_option
def release(
    names: tuple[str, ...], namespace: str | None, orphans: bool, dry_run: bool, yes: bool, source: Source, output: str
) -> None:
    """Release claims that no pod uses: deallocate their devices, remove the finalizer, and delete claims whose pod is gone.

    Each claim is read from the API server first and written only if it has not changed since, so a pod that gets the claim in
    the meantime keeps it. Exit code 1 when a claim is in use. Caution: a pod that was force-deleted while its node was
    unreachable may still run there; the API does not show that.

    \b
    Examples:
      dray release train-0-gpu-x7k2p -n research --dry-run
      dray release research/train-0-gpu-x7k2p
      dray release --orphans
    """
    if bool(names) == orphans:
        raise click.UsageError("specify claim names or --orphans")
    if not source.live:
        raise click.UsageError("--snapshot reads files, which cannot be changed")
    keys = _orphans(source, namespace) if orphans else [_key(name, source, namespace) for name in names]
    if orphans and keys and not yes and not dry_run:
        _confirm(keys)
    found = source.run(lambda remote: _release(remote, keys, dry_run)) if keys else []
    emit({"claims": found}, output, lambda console: _show(found, dry_run, console))
    sys.exit(1 if any(one.refused for one in found) else 0)


def _key(name: str, source: Source, namespace: str | None) -> str:
    prefix, slash, short = name.rpartition("/")
    if slash and prefix not in ("resourceclaim", "resourceclaims", "resourceclaim.resource.k8s.io"):
        return name
    return f"{source.namespace(namespace)}/{short}"


def _orphans(source: Source, namespace: str | None) -> list[str]:
    world = source.read(needs=(RESOURCE_CLAIMS, PODS)).world
    rows = claim_rows(world, time.time())
    return [row.key for row in rows if row.orphan and namespace in (None, row.namespace)]


def _confirm(keys: list[str]) -> None:
    told = ", ".join(keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
    if not sys.stdin.isatty():
        raise Trouble(f"this releases {len(keys)} claims ({told}); confirm with --yes")
    click.confirm(f"Release {len(keys)} claims ({told})?", abort=True, err=True)


async def _release(remote: Remote, keys: Iterable[str], dry_run: bool) -> list[Released]:
    return list(await asyncio.gather(*(_one(remote, key, dry_run) for key in keys)))


async def _one(remote: Remote, key: str, dry_run: bool) -> Released:
    for _ in range(TRIES):
        try:
            return await _attempt(remote, key, dry_run)
        except Conflict:
            continue
    raise Trouble(f"claim {key} keeps changing; try again")


async def _attempt(remote: Remote, key: str, dry_run: bool) -> Released:
    """Read, prove, write. Raises Conflict where the claim changed after it was read."""
    namespace, _, name = key.partition("/")
    try:
        claim = decode(ResourceClaim, await remote.get(RESOURCE_CLAIMS, namespace, name))
    except NotFound as error:
        raise Trouble(f'claim "{name}" not found in namespace "{namespace}"') from error
    # After the claim: a pod that appears later cannot be in its reservations without changing it.
    raws, _ = await remote.list(PODS, namespace=namespace)
    found = usage(claim, [decode(Pod, raw) for raw in raws])
    results = claim.status.allocation.devices.results if claim.status.allocation is not None else ()
    made = Released(key, [str(DeviceKey.of(r)) for r in results], found.proof, found.using)
    made.idle = not (results or claim.status.reserved_for or FINALIZER in claim.metadata.finalizers or found.owner_gone)
    if found.using or dry_run:
        return made
    made.deleted = await _let_go(remote, claim, found.owner_gone)
    made.done = True
    return made


async def _let_go(remote: Remote, claim: ResourceClaim, delete: bool) -> bool:
    """Free the devices, drop the finalizer, delete what nobody will need. Whether it is gone."""
    if claim.status.allocation is not None or claim.status.reserved_for:
        body = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
        claim = await _write(remote, claim, "patch", body, subresource="status")
    going = claim.metadata.deletion_timestamp is not None
    if delete and not going:
        claim = await _write(remote, claim, "delete")
    others = [name for name in claim.metadata.finalizers if name != FINALIZER]
    if FINALIZER in claim.metadata.finalizers:
        claim = await _write(remote, claim, "patch", {"metadata": {"finalizers": others or None}})
    return (delete or going) and not others


async def _write(remote: Remote, claim: ResourceClaim, verb: Any, body: Any = None, **more: Any) -> ResourceClaim:
    metadata = claim.metadata
    write = Write(
        verb, RESOURCE_CLAIMS, metadata.namespace, metadata.name, body, uid=claim.uid, resource_version=metadata.resource_version,
        field_manager=MANAGER, **more,
    )  # fmt: skip
    return decode(ResourceClaim, await remote.write(write))


def _show(found: list[Released], dry_run: bool, console: Console) -> None:
    if not found:
        console.print("No orphaned claims.")
    for one in found:
        held = f" ({', '.join(one.devices)})" if one.devices else ""
        if one.refused:
            console.print(f"{one.claim}{held} is in use:", markup=False)
            told = one.refused
        else:
            did = "would be released" if dry_run else "released and deleted" if one.deleted else "released"
            console.print(f"{one.claim}{held}: {'nothing to release' if one.idle else did}.", markup=False)
            told = one.proof
        for line in told:
            console.print(f"  {line}", markup=False)
