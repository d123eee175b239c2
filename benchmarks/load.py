"""Decodes and indexes ResourceSlices from stdin, one a line, and prints how long it took and what memory they take."""

from __future__ import annotations

import gc
import json
import resource
import sys
import time

import msgspec

from dray.api.gates import Gates
from dray.api.resource import ResourceSlice
from dray.devices import Devices


def resident() -> int:
    with open("/proc/self/statm") as fields:
        return int(fields.read().split()[1]) * resource.getpagesize()


def main() -> None:
    lines = sys.stdin.buffer.read().splitlines()
    engine = Devices(Gates.dray())
    gc.collect()
    before, began = resident(), time.perf_counter()
    decoder = msgspec.json.Decoder(ResourceSlice)
    for line in lines:
        engine.put_slice(decoder.decode(line))
    seconds = time.perf_counter() - began
    print(json.dumps({"micros": round(seconds * 1e6), "bytes": resident() - before}))


if __name__ == "__main__":
    main()
