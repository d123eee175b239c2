"""Roles, bindings and requests for certificates, as far as they are looked into.

Data only: what they mean is decided where requests are authorized.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dray.api.core import LabelSelector
from dray.api.meta import Object, Struct


class PolicyRule(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """What may be done to what."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")


class Role(Object):
    rules: tuple[PolicyRule, ...] = ()


class AggregationRule(Struct):
    cluster_role_selectors: tuple[LabelSelector, ...] = ()


class ClusterRole(Role):
    aggregation_rule: AggregationRule | None = None


class RoleRef(Struct):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class Subject(Struct):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class RoleBinding(Object):
    """Also a ClusterRoleBinding, which has no namespace."""

    role_ref: RoleRef = msgspec.field(default_factory=RoleRef)
    subjects: tuple[Subject, ...] = ()


class CertificateSigningRequest(Object):
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
