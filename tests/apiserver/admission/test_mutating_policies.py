"""MutatingAdmissionPolicies change objects on their way in: what they make of them, and what they may not make."""

from __future__ import annotations

import pytest

from tests.apiserver.admission.asking import ask, prepare, verify_change
from tests.apiserver.admission.changes import CHANGES
from tests.apiserver.admission.conftest import NAMESPACE, Sender


@pytest.mark.parametrize("name", CHANGES)
def test_a_policy_changes_objects(send: Sender, name: str) -> None:
    prepare(send, CHANGES[name], NAMESPACE)
    for asked in CHANGES[name].asked:
        verify_change(asked, ask(send, asked, NAMESPACE), NAMESPACE)
