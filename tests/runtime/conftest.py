from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dray.apiserver.embedded import Embedded
from dray.apiserver.server import ApiServer


@pytest.fixture
async def cluster() -> AsyncIterator[Embedded]:
    server = ApiServer(None)
    await server.start()
    port = Embedded(server)
    yield port
    await port.close()
    await server.stop()
