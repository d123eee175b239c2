"""Targets and taints on the command line: what makes no sense is a wrong parameter."""

from __future__ import annotations

import click

from dray.api.resource import DeviceTaint, DeviceTaintSelector
from dray.explain import targets


def selector(text: str) -> DeviceTaintSelector:
    try:
        return targets.selector(text)
    except targets.TargetError as error:
        raise click.BadParameter(str(error)) from error


def taint(text: str) -> DeviceTaint:
    try:
        return targets.taint(text)
    except targets.TargetError as error:
        raise click.BadParameter(str(error)) from error
