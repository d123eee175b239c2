"""ValidatingAdmissionPolicies look at writes: who is refused, and in which words."""

from __future__ import annotations

import pytest

from tests.apiserver.admission.asking import ask, prepare, verify
from tests.apiserver.admission.cases import CASES, OLDER
from tests.apiserver.admission.conftest import NAMESPACE, Sender

ALL = CASES | OLDER


@pytest.mark.parametrize("name", ALL)
def test_a_policy_decides(send: Sender, name: str) -> None:
    prepare(send, ALL[name], NAMESPACE)
    for asked in ALL[name].asked:
        verify(asked, ask(send, asked, NAMESPACE), NAMESPACE)
