"""What is answered: the same as on the command line, at once when something changes, and never more than is bounded."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import msgspec
import pytest
from click.testing import CliRunner

from dray.api.kinds import PODS, QUEUES, RESOURCE_CLAIMS
from dray.apiserver.embedded import Embedded
from dray.apiserver.server import ApiServer
from dray.cli import root
from dray.cluster.port import Forbidden, Write
from dray.nodes.hardware import hardware
from dray.runtime.local import bring_in
from dray.web.doors import OPEN_MAX
from dray.web.live import Live
from dray.web.picture import Painter
from dray.web.server import STREAMS_MAX
from tests.web.clusters import claim, gang, pod, queue, queued, small
from tests.web.conftest import TOKEN, Client, serving, still

ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def cli(path: Any, *arguments: str) -> Any:
    answer = CliRunner().invoke(root, [*arguments, "--snapshot", str(path), "-o", "json"])
    return msgspec.json.decode(answer.stdout)


async def test_pods_that_wait_are_told_as_dray_why_tells_them(tmp_path: Any) -> None:
    file = tmp_path / "now.json"
    file.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": small()}))
    async with serving(still(small())) as client:
        told = await client.ok("/api/waiting")
        one = await client.ok("/api/pod?name=team/train")
        placed = await client.ok("/api/pod?name=team/p-gpu8-0-gpu-0")
        health = await client.ok("/api/verify")
    said = cli(file, "why")
    assert [(c["verdict"], c["summary"], c["fixes"]) for c in told["causes"]] == [
        (c["verdict"], c["summary"], c["fixes"]) for c in said["causes"]
    ]
    assert [[each["pod"] for each in c["each"]] for c in told["causes"]] == [c["pods"] for c in said["causes"]]
    assert one["why"] == cli(file, "why", "team/train")
    text = CliRunner().invoke(root, ["why", "team/p-gpu8-0-gpu-0", "--snapshot", str(file)]).stdout
    assert f"Why {placed['chosen']['told']}" in " ".join(text.split())
    report = cli(file, "verify")
    assert {key: health[key] for key in report} == report


async def test_a_node_and_a_device_lead_to_pod_and_claim() -> None:
    async with serving(still(small())) as client:
        node = await client.ok("/api/node?name=gpu8-0")
        device = await client.ok("/api/device?name=gpu.dray.dev/gpu8-0/gpu-0")
        tainted = await client.ok("/api/device?name=gpu.dray.dev/gpu8-1/gpu-7")
    assert [row["device"] for row in node["devices"] if row["state"] == "allocated"] == ["gpu-0", "gpu-1"]
    assert [each["pod"] for each in node["pods"]] == ["team/p-gpu8-0-gpu-0", "team/p-gpu8-0-gpu-1"]
    assert device["holders"][0]["claim"] == "team/c-gpu8-0-gpu-0"
    assert device["holders"][0]["pods"][0]["pod"] == "team/p-gpu8-0-gpu-0"
    assert tainted["rules"] == [{"rule": "broken", "taint": "example.com/broken=ecc:NoSchedule"}]
    assert [line["what"] for line in tainted["story"]] == ["tainted"]


async def test_what_is_not_there_is_said_so_by_name() -> None:
    async with serving(still(small())) as client:
        for path, said in (
            ("/api/node?name=no", "no node named no"),
            ("/api/pod?name=team/no", "no pod named team/no"),
            ("/api/device?name=a/b/c", "no device named a/b/c"),
        ):
            status, body, _ = await client.get(path)
            assert (status, body) == (404, {"error": said})
        assert (await client.get("/api/node"))[0] == 400
        assert (await client.get("/api/map?at=soon"))[0] == 400
        assert (await client.get("/api/nothing"))[0] == 404


async def test_script_in_names_and_messages_is_data_and_never_markup() -> None:
    attacked = pod("attacked", "c-attacked", labels={"a": ATTACK}, annotations={"b": ATTACK})
    attacked["status"]["conditions"] = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": ATTACK,
            "message": ATTACK,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
    async with serving(still([*small(), claim("c-attacked", count=9), attacked])) as client:
        for path in ("/api/pod?name=team/attacked", f"/api/node?name={ATTACK}", "/api/waiting", "/api/map"):
            async with client.session.get(client.base + path, headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
                assert answer.content_type == "application/json"
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
        told = await client.ok("/api/pod?name=team/attacked")
        assert any(ATTACK in line.get("detail", "") for line in told["story"])


async def test_a_huge_object_is_answered_in_bounded_time() -> None:
    huge = pod("huge", "c-huge", annotations={"big": "x" * 5_000_000}, labels={f"l{n}": "v" * 60 for n in range(2000)})
    async with serving(still([*small(), claim("c-huge", count=9), huge])) as client:
        told = await client.ok("/api/pod?name=team/huge")
        assert told["why"]["verdict"] == "impossible"
        assert len(msgspec.json.encode(told)) < 500_000  # annotations are not sent around
        await client.ok("/api/map")


class Watched:
    """An API server of our own, without deciders, that a page looks at."""

    def __init__(self) -> None:
        self.server = ApiServer(None)
        self.port = Embedded(self.server)

    async def __aenter__(self) -> Watched:
        await self.server.start(port=0)
        made = hardware(["gpu8:2"])
        await bring_in(self.port, [*made.nodes, *made.objects], self.server.core.operations.registry)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.port.close()
        await self.server.stop()


async def _stream(client: Client, since: int | str) -> aiohttp.ClientResponse:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return await client.session.get(f"{client.base}/api/stream?since={since}", headers=headers)


async def _until(answer: aiohttp.ClientResponse, name: str) -> Any:
    async for line in answer.content:
        if line == f"event: {name}\n".encode():
            return msgspec.json.decode((await answer.content.readline()).removeprefix(b"data: "))
    raise AssertionError(f"the stream ended before {name}")


@pytest.mark.parametrize("since", ["", "²", "never", "9" * 5000])
async def test_who_does_not_say_since_when_is_told_everything(since: str) -> None:
    async with Watched() as watched, serving(Live(watched.port, "live")) as client:
        stream = await _stream(client, since)
        assert (await _until(stream, "reset"))["number"] == (await client.ok("/api/map"))["number"]
        stream.close()


async def test_what_changes_is_told_to_whoever_listens() -> None:
    async with Watched() as watched, serving(Live(watched.port, "live")) as client:
        picture = await client.ok("/api/map")
        assert len(picture["nodes"]) == 2
        stream = await _stream(client, picture["number"])
        await _until(stream, "hello")
        began = time.monotonic()
        made = {key: value for key, value in claim("c", namespace="default").items() if key != "status"}
        await watched.port.write(Write("create", RESOURCE_CLAIMS, "default", "c", made))
        waiting = pod("p", "c", namespace="default")
        await watched.port.write(Write("create", PODS, "default", "p", waiting))
        told = await asyncio.wait_for(_until(stream, "change"), 10)
        print(f"told after {time.monotonic() - began:.2f} s")
        assert told["waiting"] == 1
        assert (await client.ok("/api/waiting"))["waiting"] == 1
        stream.close()


async def test_who_comes_back_with_a_picture_that_nobody_remembers_begins_anew() -> None:
    async with Watched() as watched, serving(Live(watched.port, "live")) as client:
        await client.ok("/api/map")
        stream = await _stream(client, 12345)
        assert (await asyncio.wait_for(_until(stream, "reset"), 10))["number"] == 1
        stream.close()


async def test_a_kind_that_may_not_be_listed_is_named_and_nobody_waits_for_it() -> None:
    async with Watched() as watched:
        whole = watched.port.list

        async def some(kind: Any, **options: Any) -> Any:
            if kind == RESOURCE_CLAIMS:
                raise Forbidden(403, "Forbidden", "no")
            return await whole(kind, **options)

        watched.port.list = some  # type: ignore[method-assign]
        async with serving(Live(watched.port, "live")) as client:
            told = await asyncio.wait_for(client.ok("/api/about"), 5)
            assert len((await client.ok("/api/map"))["nodes"]) == 2
        assert told["notices"] == ["you may not list resourceclaims.resource.k8s.io; shown as if there were none"]


async def test_it_ends_at_once_although_pages_are_open() -> None:
    async with Watched() as watched, serving(Live(watched.port, "live")) as client:
        await client.ok("/api/map")
        stream = await _stream(client, 1)
        await _until(stream, "hello")
        await asyncio.wait_for(client.page.close(), 10)  # aiohttp would wait a minute for them
        stream.close()


async def test_thousands_of_streams_are_refused_and_the_page_still_answers() -> None:
    async with Watched() as watched, serving(Live(watched.port, "live")) as client:
        await client.ok("/api/map")
        streams = [await _stream(client, 1) for _ in range(STREAMS_MAX)]
        assert {stream.status for stream in streams} == {200}
        for _ in range(20):
            refused = await asyncio.gather(*(_stream(client, 1) for _ in range(100)))
            assert {each.status for each in refused} == {503}
            for each in refused:
                each.release()
        assert (await client.get("/api/about"))[0] == 200
        for stream in streams:
            stream.close()
        for _ in range(100):
            again = await _stream(client, 1)
            if again.status == 200:
                break
            again.release()
            await asyncio.sleep(0.05)
        assert again.status == 200  # a place that is left is free
        again.close()


async def test_a_plan_is_that_of_the_command_line_and_changes_nothing(tmp_path: Any) -> None:
    file = tmp_path / "now.json"
    file.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": small()}))
    said = cli(file, "plan", "--drain", "gpu8-0")
    async with serving(still(small())) as client:
        before = await client.ok("/api/map")
        status, told = await client.post("/api/plan", {"drain": ["gpu8-0"]})
        assert status == 200, told
        assert await client.ok("/api/map") == before
    assert {key: told[key] for key in said} == said
    assert told["told"] == "2 are evicted, none is recreated; 2 then wait."


async def test_a_plan_that_makes_no_sense_is_told_what_is_wrong() -> None:
    async with serving(still(small())) as client:
        for change, said in (
            ({"drain": ["nowhere"]}, "nowhere"),
            ({"manifests": "{"}, "the manifests: cannot be read"),
            ({"manifests": "a: b"}, "is not a Kubernetes object"),
            ({"manifests": "x: &a [*a]"}, "aliases"),
            ({"taint": [["gpu8-0", "nonsense"]]}, "is not a taint"),
            ({"taintDevices": [["a/b", "k:NoExecute"]]}, "give driver, pool and device"),
        ):
            status, told = await client.post("/api/plan", change)
            assert status == 400, told
            assert said in told["error"]


async def test_queues_are_told_as_on_the_command_line(tmp_path: Any) -> None:
    file = tmp_path / "now.json"
    file.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": queued()}))
    said = cli(file, "queues")
    async with serving(still(queued())) as client:
        told = await client.ok("/api/queues")
    assert {key: told[key] for key in said} == said
    assert [row["name"] for row in told["queues"]] == ["research", "speech", "vision"]
    assert told["resources"][0] in told["total"]


async def test_the_queue_that_a_pod_waits_in_is_told_as_on_the_command_line(tmp_path: Any) -> None:
    file = tmp_path / "now.json"
    file.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": [*queued(), *gang("job", 3, placed=1)]}))
    async with serving(still([*queued(), *gang("job", 3, placed=1)])) as client:
        one = await client.ok("/api/pod?name=team/job-2")
    text = CliRunner().invoke(root, ["why", "team/job-2", "--snapshot", str(file)]).stdout
    assert one["waits"] == "It waits in queue vision with pod group team/job, of which 3 start together."
    assert one["waits"] in " ".join(text.split())
    assert one["why"]["queued"] == cli(file, "why", "team/job-2")["queued"]


async def test_idle_connections_are_bounded_and_keep_nobody_out() -> None:
    async with serving(still(small())) as client:
        host, port = client.base.removeprefix("http://").split(":")
        stream = await _stream(client, 1)  # what is being answered is not cut off
        await _until(stream, "hello")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(OPEN_MAX + 100)]
        sent = {"Authorization": f"Bearer {TOKEN}"}
        async with aiohttp.ClientSession() as fresh, fresh.get(f"{client.base}/api/about", headers=sent) as answer:
            assert answer.status == 200
        await asyncio.wait_for(idle[0][0].read(), 5)  # the oldest had to go
        closed = sum(reader.at_eof() for reader, _ in idle)
        assert 100 <= closed <= 110
        assert not stream.content.at_eof()
        for _, writer in idle:
            writer.close()
        stream.close()


async def test_what_changes_while_a_picture_is_made_is_told_too(monkeypatch: Any) -> None:
    slow = Painter.paint

    def paint(self: Painter, moment: Any) -> Any:
        time.sleep(0.2)
        return slow(self, moment)

    monkeypatch.setattr(Painter, "paint", paint)
    async with Watched() as watched, serving(Live(watched.port, "live")) as client:
        stream = await _stream(client, (await client.ok("/api/map"))["number"])
        await _until(stream, "hello")
        for number in range(8):
            name = f"p{number}"
            await watched.port.write(Write("create", PODS, "default", name, pod(name, namespace="default")))
            await asyncio.sleep(0.08)
        told = 0
        while told < 8:  # the ping of 15 seconds is not what brings the last of them
            told = (await asyncio.wait_for(_until(stream, "change"), 10))["waiting"]
        stream.close()


async def test_gangs_are_told_with_their_members_and_evictions_with_their_reason() -> None:
    async with serving(still([*queued(), *gang("job", 3, placed=1), *gang("all", 1, placed=1)])) as client:
        told = await client.ok("/api/queues")
    assert [(each["gang"], each["needs"], each["placed"], each["waiting"]) for each in told["gangs"]] == [
        ("team/job", 3, 1, 2),  # who waits comes first
        ("team/all", 1, 1, 0),
    ]
    assert [each["pod"] for each in told["gangs"][0]["pods"]] == ["team/job-0", "team/job-1", "team/job-2"]
    assert told["gangs"][0]["queue"] == "vision"
    assert [(each["pod"], each["reason"]) for each in told["evictions"]] == [("team/left", "Preempted")] * 2
    assert {each["why"] for each in told["evictions"]} == {f"Preempted by pod team/{n}-0 on node gpu8-0" for n in ("job", "all")}


async def test_what_a_queue_held_and_asked_for_is_remembered_as_its_status_changes() -> None:
    async with Watched() as watched, serving(Live(watched.port, "live")) as client:
        await watched.port.write(Write("create", QUEUES, "", "vision", queue("vision", 8)))
        await client.ok("/api/about")
        for held in ("2", "2", "5"):
            status = {"status": {"allocated": {"nvidia.com/gpu": held}, "requested": {"nvidia.com/gpu": "6"}}}
            await watched.port.write(Write("patch", QUEUES, "", "vision", status, "status"))
            await asyncio.sleep(0.1)
        for _ in range(100):
            past = (await client.ok("/api/queues"))["history"]["vision"]
            if past[-1][1] == {"gpu": "5"}:
                break
            await asyncio.sleep(0.05)
    assert [point[1] for point in past if point[1]] == [{"gpu": "2"}, {"gpu": "5"}]
    assert past[-1][2] == {"gpu": "6"}


async def test_one_check_serves_all_who_ask_for_a_while_and_then_there_is_another(monkeypatch: Any) -> None:
    made = {key: value for key, value in claim("c", namespace="default").items() if key != "status"}
    async with Watched() as watched, serving(Live(watched.port, "live")) as client:
        monkeypatch.setattr("dray.web.server.VERIFY_SHARE", 1_000_000)
        first = await client.ok("/api/verify")
        await watched.port.write(Write("create", RESOURCE_CLAIMS, "default", "c", made))
        assert await client.ok("/api/verify") == first
    async with Watched() as watched, serving(Live(watched.port, "live")) as client, asyncio.timeout(20):
        monkeypatch.setattr("dray.web.server.VERIFY_SHARE", 1)
        assert (await client.ok("/api/verify"))["checked"]["claims"] == 0
        await watched.port.write(Write("create", RESOURCE_CLAIMS, "default", "c", made))
        while True:
            if (await client.ok("/api/verify"))["checked"]["claims"] == 1:
                break


async def test_a_map_is_there_for_those_who_unpack_nothing_too() -> None:
    async with serving(still(small())) as client:
        plain = await client.get("/api/map", headers={"Accept-Encoding": "identity"})
        packed = await client.get("/api/map", headers={"Accept-Encoding": "gzip"})
    assert plain[1] == packed[1]
    assert (plain[2].get("Content-Encoding"), packed[2].get("Content-Encoding")) == (None, "gzip")
