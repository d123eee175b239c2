"""Messages are read as they were written, and bytes that are none end in an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.wire import WireError, decode, encode
from dray.nodes import messages as m
from dray.nodes.reports import Reports
from dray.numa import podresources as p

text = st.text(max_size=8)
devices = st.builds(
    m.Device, st.lists(text, max_size=3).map(tuple), text, text, st.lists(text, max_size=3).map(tuple), st.none() | text
)
claims = st.builds(m.NodePrepareResourceResponse, st.lists(devices, max_size=3).map(tuple), text)
numbers = st.integers(-(2**63), 2**63 - 1)
zones = st.none() | st.builds(p.TopologyInfo, st.lists(st.builds(p.NUMANode, numbers), max_size=2).map(tuple))
memory = st.builds(p.ContainerMemory, text, numbers, zones)
containers = st.builds(
    p.ContainerResources, text, st.just(()), st.lists(numbers, max_size=5).map(tuple), st.lists(memory, max_size=2).map(tuple)
)
everything = (
    st.builds(m.NodePrepareResourcesResponse, st.dictionaries(text, claims, max_size=3))
    | st.builds(p.PodResources, text, text, st.lists(containers, max_size=2).map(tuple))
    | st.builds(m.RegistrationStatus, st.booleans(), text)
)


@given(everything)
def test_a_message_is_read_as_it_was_written(message: object) -> None:
    assert decode(type(message), encode(message)) == message


@given(st.binary(max_size=60), st.sampled_from([p.PodResources, m.NodePrepareResourcesResponse, m.PluginInfo]))
def test_any_bytes_are_a_message_or_an_error(raw: bytes, kind: type[object]) -> None:
    try:
        found = decode(kind, raw)
    except WireError:
        return
    assert decode(kind, encode(found)) == found


def test_the_bytes_are_those_of_protocol_buffers() -> None:
    """As protoc's own encoders write them."""
    claim = m.Claim("ns", "u", "n")
    assert encode(m.NodeResourcesRequest((claim,))) == b"\n\n\n\x02ns\x12\x01u\x1a\x01n"
    assert encode(p.ContainerResources("c", cpu_ids=(1, 300))) == b"\n\x01c\x1a\x03\x01\xac\x02"
    ill = m.DeviceHealth(m.DeviceIdentifier("p"), health=2, last_updated_time=-1)
    assert encode(ill) == b"\n\x03\n\x01p\x10\x02\x18" + b"\xff" * 9 + b"\x01"
    assert decode(p.ContainerResources, b"\x18\x01\x18\x02").cpu_ids == (1, 2)


def test_fields_that_are_not_known_are_skipped() -> None:
    assert decode(m.PluginInfo, b"\x12\x01n" + b"\x98\x06\x07" + b"\xa1\x06" + b"\x00" * 8) == m.PluginInfo(name="n")


@pytest.mark.parametrize("raw", [b"\x0a\x05ab", b"\x0a", b"\xff" * 11, b"\x0b", b"\x08\x01", b"\x12\x01\xff"])
def test_bytes_that_end_too_soon_or_have_other_types_are_refused(raw: bytes) -> None:
    with pytest.raises(WireError):
        decode(m.PluginInfo, raw)


def health(device: str, status: int = m.HEALTHY, seconds: int = 0) -> m.DeviceHealth:
    return m.DeviceHealth(m.DeviceIdentifier("p", device), status, 0, seconds)


def test_a_device_that_reports_leave_out_is_unknown_when_its_time_is_up() -> None:
    reports = Reports()
    assert reports.take([health("a"), health("b", seconds=100)], 0.0)
    assert not reports.take([health("a")], 20.0)
    assert [reports.of("p", name, 31.0).status for name in "ab"] == ["Healthy", "Healthy"]
    assert reports.expire(60.0)
    assert [reports.of("p", name, 60.0).status for name in "ab"] == ["Unknown", "Healthy"]
    assert not reports.expire(99.0)
    assert reports.of("p", "b", 100.0).status == "Unknown"
