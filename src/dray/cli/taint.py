"""``dray taint`` and ``dray untaint``: device taints for people, with a look at what they do before they do it."""

from __future__ import annotations

import sys
import time
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.text import Text

from dray.api.durations import seconds
from dray.api.gates import Gates
from dray.api.kinds import DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.resource import DeviceTaint, DeviceTaintRule, DeviceTaintSelector
from dray.api.times import parse_time
from dray.api.tolerations import evicts, selects
from dray.cli import evicting, targets
from dray.cli.output import console as console_of
from dray.cli.output import emit, output_option, table
from dray.cli.source import Source, placing_of, source_options
from dray.cli.trouble import Trouble, patience
from dray.cluster.port import Conflict, NotFound, Write
from dray.cluster.remote import Remote
from dray.cluster.served import Served
from dray.cluster.world import World
from dray.controllers.eviction import EXPIRES_AT
from dray.controllers.taints import taint_text
from dray.explain.blast import Blast, Owner, asked_told, budgets_told, does, previewed, selector_text, told
from dray.explain.targets import rule_of, unpublished, writes

_NEEDED: Final = (PODS, RESOURCE_CLAIMS, RESOURCE_SLICES)
_SHOWN: Final = 12


def _duration(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    try:
        return seconds(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.argument("target", metavar="DRIVER/POOL/DEVICE")
@click.argument("what", metavar="KEY=VALUE:EFFECT")
@click.option("--rule", "name", help="Name of the DeviceTaintRule.  [default: derived from the target and the taint]")
@click.option(
    "--expires", callback=_duration, metavar="2h", help="Remove the taint after this time (needs Dray's eviction controller)."
)
@click.option("--preview", is_flag=True, help="Only show which pods would be evicted, their owners, and where they would go.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--confirm-above",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Ask for confirmation before evicting more than this many pods.",
)
@click.option("--wave", type=click.IntRange(1), metavar="N", help="Evict this many pods at a time, and wait until they are gone.")
@click.option("--pause", callback=_duration, default="0s", metavar="30s", help="Time to wait between waves.")
@click.option("--respect-budgets", is_flag=True, help="Evict only as fast as PodDisruptionBudgets allow.")
@click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Wait, and show progress, until all evicted pods are gone."
)
@click.option("--timeout", callback=_duration, default="10m", show_default=True, help="Maximum time to wait.")
@source_options
@output_option
def taint(target: str, what: str, name: str | None, source: Source, output: str, **options: Any) -> None:
    """Taint devices: keep new pods away, or evict the pods that use them.

    Creates a DeviceTaintRule. Each part of the target may be *; a single * is every device. The effect is None (only show what
    would happen), NoSchedule (no new pods) or NoExecute (also evict pods that do not tolerate the taint). With --wave or
    --respect-budgets this command evicts the pods itself, and the rule has the effect NoSchedule until all of them are gone. Exit
    code 1 when not all pods are gone in time.

    \b
    Examples:
      dray taint gpu.example.com/node-7/gpu-3 example.com/broken:NoExecute --preview
      dray taint gpu.example.com/node-7/gpu-3 example.com/broken=ecc:NoExecute
      dray taint 'gpu.example.com/node-7/*' example.com/maintenance:NoSchedule --expires 2h
      dray taint gpu.example.com example.com/upgrade:NoExecute --wave 4 --pause 1m --respect-budgets
    """
    chosen, wanted = targets.selector(target), targets.taint(what)
    waves = evicting.Waves(options["wave"] or 0, options["pause"], options["respect_budgets"])
    if waves.wanted and not evicts(wanted):
        raise click.UsageError("--wave and --respect-budgets require the effect NoExecute")
    if not options["preview"] and not source.live:
        raise click.UsageError("--snapshot reads files, which cannot be tainted; add --preview")
    expires = options["expires"]
    rule = rule_of(chosen, wanted, name=name, expires_at=time.time() + expires if expires is not None else None)
    snapshot = source.read(needs=_NEEDED)
    world, (_, gates) = snapshot.world, placing_of(None, snapshot)
    known = world.get(DEVICE_TAINT_RULES, rule.metadata.name)
    if known is not None and known.spec.device_selector != chosen:
        about = selector_text(known.spec.device_selector)
        raise Trouble(f"rule {rule.metadata.name} already exists for {about}; choose another name with --rule")
    found = _previewed(world, rule, gates, ask=options["preview"] or wanted.effect == "None")
    if options["preview"]:
        emit(found, output, lambda console: show(found, wanted, console, wide=output == "wide"))
        return
    for doubt in filter(None, (found.unpublished, found.without_effect)):
        click.echo(f"warning: {doubt}", err=True)
    if not options["yes"] and _grave(found, wanted, chosen, options["confirm_above"]):
        _confirm(_previewed(world, rule, gates, ask=True), wanted)
    _carry_out(source, rule, found, waves, options, output)


def _previewed(world: World, rule: DeviceTaintRule, gates: Gates, *, ask: bool) -> Blast:
    with patience("checking where the pods would go …"):
        return previewed(world, rule, time.time(), ask=ask, gates=gates)


def _grave(found: Blast, wanted: DeviceTaint, chosen: DeviceTaintSelector, above: int) -> bool:
    """Whether it must be meant: everything is tainted, or many are evicted."""
    return (chosen == DeviceTaintSelector() and wanted.effect != "None") or (evicts(wanted) and found.pods > above)


def _confirm(found: Blast, wanted: DeviceTaint) -> None:
    show(found, wanted, console_of(stderr=True), wide=False)
    if not sys.stdin.isatty():
        raise Trouble(f"this {does(found, wanted)}; confirm with --yes")
    click.confirm(f"This {does(found, wanted)}. Continue?", abort=True, err=True)


# ---------------------------------------------------------------------------------------------------------- carrying out


def _carry_out(
    source: Source, rule: DeviceTaintRule, found: Blast, waves: evicting.Waves, options: dict[str, Any], output: str
) -> None:
    effect = "NoSchedule" if waves.wanted else rule.spec.taint.effect

    def tell(text: str) -> None:
        click.echo(text, err=True)

    async def job(remote: Remote) -> evicting.Left:
        nonlocal effect
        cluster, end = await Served.of(remote, (DEVICE_TAINT_RULES,)), time.time() + options["timeout"]
        first = rule
        if waves.wanted:
            softer = msgspec.structs.replace(rule.spec.taint, effect=effect)
            first = msgspec.structs.replace(rule, spec=msgspec.structs.replace(rule.spec, taint=softer))
        verb = await _write(cluster, first)
        tell(f"devicetaintrule/{rule.metadata.name} {verb}: {taint_text(first.spec.taint)} on {found.selector}")
        left = evicting.Left(done=True)
        if waves.wanted:
            left = await evicting.in_waves(cluster, rule, waves, end, tell)
            if not left.done:
                return left
            await _write(cluster, rule)
            effect = rule.spec.taint.effect
        if evicts(rule.spec.taint) and options["wait"]:
            watched = await evicting.watched(cluster, rule.metadata.name, end, tell)
            return msgspec.structs.replace(watched, evicted=left.evicted)
        return left

    try:
        left = source.run(job, waiting_for="the pods to leave")
    except KeyboardInterrupt:  # what it leaves behind is not what was asked for, and must be known
        still = "evictions continue" if effect == "NoExecute" else "it keeps new pods away, but no more pods are evicted"
        tell(f"stopped watching; rule {rule.metadata.name} remains: {still}")
        raise
    answer = {"rule": rule.metadata.name, "preview": found, **msgspec.to_builtins(left)}
    emit(answer, output, lambda console: _told(left, rule, found, console))
    sys.exit(0 if left.done else 1)


async def _write(cluster: Served, rule: DeviceTaintRule) -> str:
    create, change = writes(rule, cluster.version_of(DEVICE_TAINT_RULES))
    try:
        await cluster.write(create)
    except Conflict:
        await cluster.write(change)
        return "configured"
    return "created"


def _told(left: evicting.Left, rule: DeviceTaintRule, found: Blast, console: Console) -> None:
    for pod, why in sorted(left.kept.items()):
        console.print(f"{pod}: {why}", markup=False)
    if not left.done:
        console.print(f"Not all pods are gone: {left.message}.", markup=False)
    elif left.message:
        console.print("All pods that do not tolerate the taint are gone from these devices.")
    elif rule.spec.taint.effect == "None":
        show(found, rule.spec.taint, console, wide=False)


# -------------------------------------------------------------------------------------------------------- for people


def show(found: Blast, wanted: DeviceTaint, console: Console, *, wide: bool) -> None:
    for line in told(found, wanted):
        console.print(line, markup=False)
    if not found.pods:
        return
    rows = [_row(owner, wide) for owner in found.owners]
    console.print(table(("namespace", "owner", "pods", "node", "finds another place"), rows if wide else rows[:_SHOWN]))
    if len(rows) > _SHOWN and not wide:
        console.print(f"… and {len(rows) - _SHOWN} more owners, see -o wide")
    for line in asked_told(found):
        console.print(line, markup=False)
    for line in budgets_told(found):
        console.print(f"{line}; --respect-budgets waits for it.", markup=False)


def _row(owner: Owner, wide: bool) -> tuple[str | Text, ...]:
    shown = owner.pods if wide else owner.pods[:3]
    pods, where = [leaves.pod.partition("/")[2] for leaves in shown], [leaves.node for leaves in shown]
    if more := len(owner.pods) - len(shown):
        pods.append(f"and {more} more")
    who: str | Text = owner.owner or Text("none: not recreated", "yellow")
    return owner.namespace, who, "\n".join(pods), "\n".join(where), _finds(owner)


def _finds(owner: Owner) -> str | Text:
    if not owner.owner:
        return ""
    asked = [leaves for leaves in owner.pods if leaves.finds_place is not None]
    places = list(dict.fromkeys(leaves.place_then for leaves in asked if leaves.finds_place))
    found = sum(bool(leaves.finds_place) for leaves in asked)
    if not asked:
        return "not checked"
    of = f" of {len(asked)}" if found < len(asked) or len(asked) < len(owner.pods) else ""
    named = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
    return f"{found}{of}: {named}" if found else Text(f"none of {len(asked)}", "red")


# ------------------------------------------------------------------------------------------------------------- untaint


@click.command()
@click.argument("target", metavar="[DRIVER/POOL/DEVICE]", required=False)
@click.argument("key", metavar="[KEY]", required=False)
@click.option("--rule", "names", multiple=True, help="Remove this DeviceTaintRule. Repeatable.")
@click.option("--expired", is_flag=True, help="Remove all expired rules.")
@source_options
@output_option
def untaint(target: str | None, key: str | None, names: tuple[str, ...], expired: bool, source: Source, output: str) -> None:
    """Remove taints from devices: deletes the DeviceTaintRules for exactly this target.

    With a key, only taints with that key. Taints that a driver publishes can only be removed by the driver; they are listed. Exit
    code 1 when there is nothing to remove.

    \b
    Examples:
      dray untaint gpu.example.com/node-7/gpu-3
      dray untaint 'gpu.example.com/node-7/*' example.com/maintenance
      dray untaint --rule upgrade
      dray untaint --expired
    """
    if sum(map(bool, (target, names, expired))) != 1:
        raise click.UsageError("specify a target, --rule or --expired")
    if not source.live:
        raise click.UsageError("--snapshot reads files, which cannot be changed")
    chosen = targets.selector(target) if target else None
    world = source.read(needs=(DEVICE_TAINT_RULES,)).world
    rules: list[DeviceTaintRule] = list(world.all(DEVICE_TAINT_RULES).values())
    if missing := [name for name in names if world.get(DEVICE_TAINT_RULES, name) is None]:
        raise Trouble(f"rule {', '.join(missing)} not found")
    wanted = [rule for rule in rules if _wanted(rule, chosen, (key or "").rstrip("-"), names, expired)]
    source.run(lambda remote: _remove(remote, wanted))
    removed = [rule.metadata.name for rule in wanted]
    hints = [] if wanted or chosen is None else list(_still(world, chosen))
    emit({"removed": removed, "hints": hints}, output, lambda console: _removed(wanted, hints, expired, console))
    sys.exit(0 if removed else 1)


def _wanted(rule: DeviceTaintRule, chosen: DeviceTaintSelector | None, key: str, names: tuple[str, ...], expired: bool) -> bool:
    if expired:
        at = rule.metadata.annotations.get(EXPIRES_AT)
        try:
            return at is not None and parse_time(at) <= time.time()
        except ValueError:
            return False
    if names:
        return rule.metadata.name in names
    return rule.spec.device_selector == chosen and key in ("", rule.spec.taint.key)


async def _remove(remote: Remote, rules: list[DeviceTaintRule]) -> None:
    cluster = await Served.of(remote, (DEVICE_TAINT_RULES,))
    for rule in rules:
        try:
            await cluster.write(Write("delete", DEVICE_TAINT_RULES, name=rule.metadata.name, uid=rule.uid))
        except NotFound:
            continue


def _still(world: World, chosen: DeviceTaintSelector) -> Any:
    """Why a device is tainted although no rule is about exactly this target."""
    for name, rule in sorted(world.all(DEVICE_TAINT_RULES).items()):
        other = rule.spec.device_selector
        parts = [(getattr(other, part), getattr(chosen, part)) for part in ("driver", "pool", "device")] if other else []
        if other is None or not other.by_names or not all(None in (theirs, ours) or theirs == ours for theirs, ours in parts):
            continue
        part = "" if all(theirs is None or theirs == ours for theirs, ours in parts) else "part of "
        yield f"rule {name} taints {part}it with {taint_text(rule.spec.taint)}: its target is {selector_text(other)}"
    for slice in world.all(RESOURCE_SLICES).values():
        for device in slice.spec.devices:
            if device.taints and selects(chosen, slice.spec.driver, slice.spec.pool.name, device.name):
                said = ", ".join(map(taint_text, device.taints))
                yield f"the driver itself publishes {said} on {slice.spec.driver}/{slice.spec.pool.name}/{device.name}"
    if RESOURCE_SLICES in world.kinds and (nowhere := unpublished(chosen, world.all(RESOURCE_SLICES).values())):
        yield nowhere


def _removed(rules: list[DeviceTaintRule], hints: list[str], expired: bool, console: Console) -> None:
    for rule in rules:
        said = f"{taint_text(rule.spec.taint)} on {selector_text(rule.spec.device_selector)}"
        console.print(f"devicetaintrule/{rule.metadata.name} removed: {said}", markup=False)
    if not rules:
        console.print("No rules have expired." if expired else "No rule has exactly this target.")
    for hint in hints[:_SHOWN]:
        console.print(f"  {hint}", markup=False)
